// SPDX-License-Identifier: Apache-2.0
//! What a kernel of one context may reach: a sorted snapshot of the live allocations, taken at its launch.

use std::sync::Arc;

use partage_ptx::{DeviceMemory, Region};

/// A bit per machine device, and one for memory that every context reaches (managed, host).
pub const EVERYBODY: u32 = 1 << 31;

/// The CPU may read and write it. No context has this bit, nor the next.
pub const CPU: u32 = 1 << 30;
/// The CPU may read it.
pub const CPU_READS: u32 = 1 << 29;

/// One reachable piece, and who reaches it.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Where it is.
    pub region: Region,
    /// The bit of the device it is on, or [`EVERYBODY`].
    pub owner: u32,
}

// SAFETY: the pointer leads to a mapping of the driver that is not bound to a thread.
unsafe impl Send for Piece {}
// SAFETY: as above; a piece is never changed.
unsafe impl Sync for Piece {}

/// The memory of one launch.
#[derive(Clone, Debug)]
pub struct View {
    /// Sorted by address, not overlapping.
    pieces: Arc<Vec<Piece>>,
    reach: u32,
}

impl View {
    /// `pieces` as seen by a context that reaches the owners in `reach`.
    pub fn new(pieces: Arc<Vec<Piece>>, reach: u32) -> Self {
        Self {
            pieces,
            reach: reach | EVERYBODY,
        }
    }
}

impl DeviceMemory for View {
    fn region(&self, address: u64) -> Option<Region> {
        let after = self.pieces.partition_point(|piece| piece.region.address <= address);
        let piece = self.pieces.get(after.checked_sub(1)?)?;
        let is_inside = address - piece.region.address < piece.region.bytes;
        (is_inside && piece.owner & self.reach != 0).then_some(piece.region)
    }
}
