// SPDX-License-Identifier: Apache-2.0
//! What is remembered of processes of no job on a device.

/// What processes of no job mean for those who share a device's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strangers {
    /// Nothing.
    #[default]
    Quiet,
    /// Their slices are felt: they use 2 % of the time or more, or the driver does not say what they use.
    Felt,
    /// They use as much of it as one more job would.
    Crowding,
}

/// What is remembered of one unmanaged process on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stranger {
    /// The newest figure.
    pub busy_ppm: Option<u32>,
    /// It uses time.
    pub is_busy: bool,
    /// When that was last seen.
    pub busy_ns: Option<u64>,
    /// When its use was last told.
    pub told_ns: Option<u64>,
}
