// SPDX-License-Identifier: Apache-2.0
//! Why something is not allowed, or makes no sense.

/// Why a judgement is a refusal. The words are those that the caller wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAllowed {
    /// A number above what a rule allows.
    Above {
        /// `--mem 20GiB`.
        words: String,
        /// `the rule students, max.mem = 16GiB (/etc/partage/partage.toml:12)`.
        rule: String,
        /// The most that may be asked, as it is written: `16GiB`.
        most: String,
    },
    /// A promise of memory above the limit that goes with it.
    RequestAboveLimit {
        /// `--mem-request 6GiB`.
        request: String,
        /// `--mem 4GiB`.
        limit: String,
    },
    /// A promise of time above the cap that goes with it, in millionths.
    PromiseAboveCap {
        /// The promise.
        promise_ppm: u32,
        /// The cap.
        cap_ppm: u32,
    },
    /// A preset that there is not.
    UnknownPreset {
        /// As written.
        name: String,
        /// The ones that there are.
        known: Vec<String>,
    },
    /// A preset that a rule does not allow.
    PresetNotAllowed {
        /// Its name.
        name: String,
        /// `the rule students, classes = ["small"] (…)`.
        rule: String,
    },
    /// A GPU that a rule does not allow.
    GpuNotAllowed {
        /// `GPU 3`.
        gpu: String,
        /// `the rule students, gpu = [0, 1] (…)`.
        rule: String,
    },
    /// A rule leaves such jobs nothing.
    Barred {
        /// `rule quota-user-alice, each_user.jobs = 0 (…)`.
        rule: String,
    },
    /// Only administrators go beyond the rules.
    Force,
}
