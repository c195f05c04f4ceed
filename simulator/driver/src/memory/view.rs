// SPDX-License-Identifier: Apache-2.0
//! What a kernel of one context may reach: a sorted snapshot of the live allocations, taken at its launch.

use std::sync::Arc;

use partage_ptx::{DeviceMemory, Region};

use super::space::Space;

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
    /// The device goes through the host's page tables: what lies outside of these addresses is the program's own.
    pageable: Option<&'static Space>,
}

impl View {
    /// `pieces` as seen by a context that reaches the owners in `reach`, and all that the program may read and write
    /// outside of `pageable`.
    pub fn new(pieces: Arc<Vec<Piece>>, reach: u32, pageable: Option<&'static Space>) -> Self {
        Self {
            pieces,
            reach: reach | EVERYBODY,
            pageable,
        }
    }
}

impl DeviceMemory for View {
    fn region(&self, address: u64) -> Option<Region> {
        self.listed(address).or_else(|| {
            self.pageable.filter(|space| !space.holds(address))?;
            mapping_at(address)
        })
    }
}

impl View {
    fn listed(&self, address: u64) -> Option<Region> {
        let after = self.pieces.partition_point(|piece| piece.region.address <= address);
        let piece = self.pieces.get(after.checked_sub(1)?)?;
        let is_inside = address - piece.region.address < piece.region.bytes;
        (is_inside && piece.owner & self.reach != 0).then_some(piece.region)
    }
}

/// The mapping of this process around an address that it may read and write. A program that unmaps it while a kernel
/// works on it ends by SIGSEGV, where a device reports a fault.
fn mapping_at(address: u64) -> Option<Region> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        let is_it = (start..end).contains(&address) && rest.starts_with("rw");
        is_it.then_some(Region {
            address: start,
            bytes: end - start,
            host: start as *mut u8,
        })
    })
}
