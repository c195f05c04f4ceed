// SPDX-License-Identifier: Apache-2.0
//! Who holds how much of a device, for who is refused or waits.

use partage_protocol::units::JobId;

/// Somebody who has memory of a device. The words are in `views/said/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Job(JobId),
    /// A process of no job.
    Process(u32),
    /// Programs of the host, whose memory it is.
    Host,
    /// Processes that NVML does not list.
    Hidden,
}

/// What somebody has of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    pub who: Who,
    /// Index of the device.
    pub gpu: u32,
    /// The greater of promised and used; 0 where only time is short.
    pub bytes: u64,
    /// Millionths of the device's time that are promised to it, where time is short.
    pub ppm: Option<u32>,
}

impl Holding {
    /// So much of the device's time is promised to it.
    pub(crate) fn set_time(&mut self, ppm: Option<u32>) {
        self.ppm = ppm;
    }
}

/// The greatest first: of time, then of memory.
pub(crate) fn sort_holders(holders: &mut [Holding]) {
    holders.sort_by(|a, b| {
        let by_name = || a.who.to_string().cmp(&b.who.to_string());
        (b.ppm, b.bytes).cmp(&(a.ppm, a.bytes)).then_with(by_name)
    });
}
