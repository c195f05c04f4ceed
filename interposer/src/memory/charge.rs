// SPDX-License-Identifier: Apache-2.0
//! What one charge is, wherever it is kept: in a record, in a pool's entry, in a reservation under way.

/// A charge that was made: where it stands, and what a refund gives back.
#[derive(Clone, Copy)]
pub struct Charge {
    /// Slot, in the numbering of `is_standalone`.
    pub slot: u32,
    /// Bytes.
    pub bytes: u64,
    /// Made before a broker answered.
    pub is_standalone: bool,
    /// Managed memory: charged in full, resident only where it is touched.
    pub is_managed: bool,
}

impl Charge {
    /// No bytes of a slot, in the numbering of `is_standalone`.
    pub const fn nothing(slot: usize, is_standalone: bool) -> Self {
        Self {
            slot: slot as u32,
            bytes: 0,
            is_standalone,
            is_managed: false,
        }
    }
}

/// What the driver's allocator hands out at least, in bytes: neighbouring one-byte allocations lie this far apart.
const GRANULE: u64 = 512;

/// The bytes that an allocation of `bytes` takes of the device.
pub fn cost(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(GRANULE).unwrap_or(u64::MAX)
}
