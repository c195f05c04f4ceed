// SPDX-License-Identifier: Apache-2.0
//! The mark of a drained device.

/// Who drained a device, and when; a broker before may not have said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainMark {
    /// In nanoseconds since 1970.
    pub since_unix_ns: Option<u64>,
    /// The user who asked.
    pub uid: Option<u32>,
}
