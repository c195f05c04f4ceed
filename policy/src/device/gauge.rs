// SPDX-License-Identifier: Apache-2.0
//! The overhead of one client on one device, and its contradictions with NVML.

use partage_protocol::units::{ClientId, DeviceUuid, JobId};

use crate::machine::Reading;

/// What is known of one client on one slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gauge {
    /// The reading when the look that is under way was asked for.
    pub before: Option<Reading>,
    /// O as last measured, without what is announced.
    pub measured: u64,
    pub announced: Option<Announced>,
    /// Since when no reading was quiet.
    pub busy_since_ns: Option<u64>,
    /// The least overhead that the readings since then allow.
    pub least: u64,
    /// Not quiet for [`UNAUDITED_NS`].
    pub is_unaudited: bool,
    /// NVML lists the process without its bytes, or does not know it by this pid although it holds memory.
    pub is_unmeasured: bool,
    /// NVML has listed the process at some time.
    pub was_listed: bool,
    /// What it said last.
    pub last: Option<Reading>,
    /// It announced or made a context not long ago.
    pub explained_until_ns: Option<u64>,
    /// It contradicts NVML, or itself.
    pub drift: Option<Drift>,
}

impl Gauge {
    pub(crate) fn overhead(&self) -> u64 {
        let announced = self.announced.as_ref().map_or(0, Announced::floor);
        self.measured.max(announced)
    }
}

/// Contexts that were announced and not measured yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    /// O when the first was announced, or when the last of them was measured.
    pub base: u64,
    pub each: u64,
    pub count: u64,
    pub until_ns: u64,
}

impl Announced {
    pub(crate) fn floor(&self) -> u64 {
        self.base.saturating_add(self.each.saturating_mul(self.count))
    }
}

/// A `MEASURE_AFTER` that waits for a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Measuring {
    pub client: ClientId,
    pub slot: usize,
    pub device: DeviceUuid,
    pub sequence: u32,
    pub until_ns: u64,
    pub looks: u32,
    /// The look that is under way was asked for afterwards.
    pub is_covered: bool,
    /// O before the context was made.
    pub baseline: u64,
}

/// A client on a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub job: JobId,
    pub client: ClientId,
    pub slot: usize,
}

/// A client that contradicts NVML, or itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drift {
    pub kind: Kind,
    /// What, with the numbers, as last seen.
    pub text: String,
    /// Bytes of the contradiction when it was last told, or how often it was seen where no bytes are meant.
    pub told: u64,
    pub seen: u64,
    pub since_ns: u64,
    pub is_confirmed: bool,
    pub is_answered: bool,
}

/// What contradicts what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Its words each other.
    Words,
    /// It claims more than NVML shows.
    Claims,
    /// NVML shows more than its job may have.
    Past,
}

/// What a look said of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Quiet,
    /// The least that its overhead can be, as far as this look tells.
    Busy(u64),
    /// Nothing can be said: NVML shows no bytes, or the pages are lost.
    Nothing,
}
