// SPDX-License-Identifier: Apache-2.0
//! The broker's kind, how much may be promised, the rules about jobs and the auditor's.

use partage_protocol::aliases::Family;
use partage_protocol::terms::{Class, WHOLE_PPM};
use partage_protocol::time_aliases::TimeVariable;
use partage_protocol::units::SECOND_NS;

use crate::rules::Rules;
use crate::worded::worded;

/// What is configured. A reload changes the rules, what variables count for, and what the auditor does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Serves one user: its promises hold among that user's jobs.
    pub is_private: bool,
    /// The next job's number, where no adoption says more; 1 on a fresh host.
    pub first_job: u64,
    /// How much of what jobs can share on a device may be promised, in millionths; [`Config::ALL_ONCE`] and more.
    pub overcommit_millionths: u64,
    /// How much of a device's time may be promised, in millionths; [`Config::ALL_ONCE`] and more.
    pub compute_overcommit_millionths: u64,
    /// The highest class that everybody may ask for; administrators may ask for any.
    pub max_class: Class,
    /// Other tools' memory variables that count for nothing.
    pub aliases_off: Vec<Family>,
    /// Their variables about time that count for nothing.
    pub time_aliases_off: Vec<TimeVariable>,
    /// What is done about clients that contradict NVML, and about GPU processes of no job.
    pub audit: Audit,
    /// How device time that is not promised is split.
    pub split: Split,
    /// Which waiting job is next.
    pub queue: QueueRules,
    /// Presets and rules.
    pub rules: Rules,
}

impl Config {
    /// Promises within what there is.
    pub const ALL_ONCE: u64 = 1_000_000;

    /// What may be promised on a device of `usable` bytes.
    pub(crate) fn promisable(&self, usable: u64) -> u64 {
        let all = u128::from(usable) * u128::from(self.overcommit_millionths.max(Self::ALL_ONCE));
        u64::try_from(all / u128::from(Self::ALL_ONCE)).unwrap_or(u64::MAX)
    }

    /// Millionths of a device's time that may be promised.
    pub(crate) fn promisable_time(&self) -> u64 {
        self.compute_overcommit_millionths.max(u64::from(WHOLE_PPM))
    }

    /// Takes what changes while the broker runs: all but the kind, the first number and what may be promised.
    pub fn take(&mut self, new: Self) {
        *self = Self {
            is_private: self.is_private,
            first_job: self.first_job,
            overcommit_millionths: self.overcommit_millionths,
            compute_overcommit_millionths: self.compute_overcommit_millionths,
            ..new
        };
    }

    pub(crate) fn is_time_on(&self, variable: TimeVariable) -> bool {
        !self.time_aliases_off.contains(&variable)
    }

    pub(crate) fn is_on(&self, family: Family) -> bool {
        !self.aliases_off.contains(&family)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            is_private: true,
            first_job: 1,
            overcommit_millionths: Self::ALL_ONCE,
            compute_overcommit_millionths: Self::ALL_ONCE,
            max_class: Class::Realtime,
            aliases_off: Vec::new(),
            time_aliases_off: Vec::new(),
            audit: Audit::default(),
            split: Split::Job,
            queue: QueueRules::default(),
            rules: Rules::default(),
        }
    }
}

worded! {
    /// How the part of a device's time that is not promised is split.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Split(word) {
        /// Among the users of these jobs first, then by class and weight among each user's own.
        User = "user",
        /// Among the jobs that want it, by class and weight.
        Job = "job",
    }
}

worded! {
    /// In which order waiting jobs have their turn.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Order(word) {
        /// The order in which they came.
        Arrival = "arrival",
        /// By class, then by what their users had of the GPUs of late, then by age.
        Fair = "fair",
    }
}

/// Which waiting job is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueRules {
    /// In which order.
    pub order: Order,
    /// Fair: after so long GPU time that a user had counts half.
    pub half_life_ns: u64,
    /// Fair: a job that waited for so long is before all others, by age alone.
    pub max_wait_ns: u64,
}

impl Default for QueueRules {
    fn default() -> Self {
        Self {
            order: Order::Arrival,
            half_life_ns: 3_600 * SECOND_NS,
            max_wait_ns: 24 * 3_600 * SECOND_NS,
        }
    }
}

worded! {
    /// What is done about what the auditor finds.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Response(word) {
        /// It is said in events and views.
        #[default]
        Report = "report",
        /// And nothing new is granted there.
        DenyNew = "deny-new",
        /// And the process is killed.
        Kill = "kill",
    }
}

/// The auditor's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Audit {
    /// About clients that drift.
    pub drift: Response,
    /// About GPU processes of no job.
    pub unmanaged: Response,
    /// Bytes by which a client and NVML may differ.
    pub tolerance: u64,
    /// The broker's own user: the only one whose processes a private broker may kill.
    pub uid: u32,
}

impl Default for Audit {
    fn default() -> Self {
        Self {
            drift: Response::Report,
            unmanaged: Response::Report,
            tolerance: 64 << 20,
            uid: u32::MAX,
        }
    }
}
