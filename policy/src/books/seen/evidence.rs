// SPDX-License-Identifier: Apache-2.0
//! What one poll of a device shows of one process, for the auditor.

/// What a look said of one process.
use crate::device::Member;
use crate::machine::Reading;
pub(crate) struct Evidence<'a> {
    pub pid: u32,
    /// Its clients on the device.
    pub members: &'a [Member],
    /// What each of them says, in the same order.
    pub readings: &'a [Reading],
    /// What NVML shows; none where it says nothing, or never listed the process.
    pub shown: Option<u64>,
    pub is_quiet: bool,
}
