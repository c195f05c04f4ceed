// SPDX-License-Identifier: Apache-2.0
//! Stream-ordered pools: device memory that is kept after a free, so that the next allocation finds it at hand.
//!
//! Terms: *reserved* is what the pool holds of the device, in [chunks](super::chunks); *used* is the part that programs
//! hold, from the call that allocates to the call that frees. Invariant: used <= reserved. What a stream freed is
//! that stream's at once; others get it when the free has happened, or when events order them after it, as far as
//! the pool's rules of reuse allow. Chunks that are idle go back to the device when a program synchronises while more
//! than the release threshold is reserved, when it trims the pool, and when the device has no room for something else.
//!
//! Lock order: a pool's `growing`, then any pool's figures, then the executor's state or the table of ranges.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use partage_abi::types::{CuMemLocation, CuMemPoolProps, CuResult};
use partage_abi::values::{CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE};

use super::chunks::Chunks;
use super::lock::lock;
use super::over::are_complete;
use super::pool_sharing::PoolSharing;
use super::shared::shared;
use super::space::LARGE_PAGE;
use super::span::Wish;
use super::windows::windows;
use crate::executor::{OpId, Seen};
use crate::state::{Answer, Driver, driver};

/// One pool.
#[derive(Debug)]
pub struct Pool {
    /// The machine device.
    pub device: usize,
    /// That device as the program numbers it.
    pub ordinal: i32,
    /// Bytes that may be reserved, as asked for; 0 for as much as there is.
    pub limit: u64,
    /// Length of a chunk.
    chunk: u64,
    /// Whose kernels reach its memory, one bit per machine device.
    pub(super) reach: AtomicU32,
    /// What other processes have of it.
    pub(super) sharing: PoolSharing,
    /// One thread at a time makes it greater.
    growing: Mutex<()>,
    figures: Mutex<Figures>,
}

/// What a pool says of itself; bytes.
#[derive(Debug, Default)]
pub struct Figures {
    /// The most that was reserved since it was set back.
    pub reserved_high: u64,
    /// Held by programs.
    pub used: u64,
    /// The most since it was set back.
    pub used_high: u64,
    /// Kept although nobody uses it.
    pub threshold: u64,
    /// The three rules of reuse (`CU_MEMPOOL_ATTR_REUSE_*`, the first three attributes): off when true.
    pub reuse_off: [bool; 3],
    chunks: Chunks<Freed>,
}

/// The free that a kept block comes from, while nobody has seen that it has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freed {
    /// Key of the stream.
    pub stream: u64,
    /// Id of its context.
    pub context: u64,
    /// The free itself.
    pub op: OpId,
}

/// The stream that asks for memory.
pub struct Asker {
    /// Its key.
    pub stream: u64,
    /// What it comes after.
    pub seen: Seen,
}

/// `CU_MEMPOOL_ATTR_REUSE_*` as indices of [`Figures::reuse_off`].
const FOLLOW_EVENTS: usize = 0;
const OPPORTUNISTIC: usize = 1;
const INTERNAL: usize = 2;

/// Where an allocation is in the window, and the frees that must happen before the stream may use it.
pub(super) type Place = (u64, Vec<OpId>);

impl Figures {
    /// Held of the device.
    pub fn reserved(&self) -> u64 {
        self.chunks.reserved()
    }

    /// Start and length of the chunks that have a part of `start..end`.
    pub(super) fn chunks_between(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        self.chunks.between(start, end)
    }

    /// A place in what is kept for a stream that waits for nothing.
    fn take_kept(&mut self, asker: &Asker, cost: u64) -> Option<Place> {
        let reuse_off = self.reuse_off;
        let found = self.chunks.take(cost, |freed| {
            freed.stream == asker.stream
                || !reuse_off[FOLLOW_EVENTS] && asker.seen.covers(freed.stream, freed.op)
                || !reuse_off[OPPORTUNISTIC] && are_complete(&[freed.op])
        });
        found.map(|(at, _)| (self.hand_out(at, cost), Vec::new()))
    }

    /// A place in what is kept for a stream that will wait for the frees.
    fn take_waiting(&mut self, cost: u64) -> Option<Place> {
        let found = if self.reuse_off[INTERNAL] {
            None
        } else {
            self.chunks.take(cost, |_| true)
        };
        found.map(|(at, freed)| {
            let waits_for = freed.into_iter().map(|freed| freed.op).collect();
            (self.hand_out(at, cost), waits_for)
        })
    }

    fn hand_out(&mut self, at: u64, cost: u64) -> u64 {
        self.used += cost;
        self.used_high = self.used_high.max(self.used);
        at
    }
}

impl Pool {
    /// Whether it is another process's: nothing is allocated from it here.
    pub fn is_imported(&self) -> bool {
        matches!(self.sharing, PoolSharing::Imported(_))
    }

    /// Whether it was asked for with descriptors for other processes.
    pub fn is_shareable(&self) -> bool {
        matches!(self.sharing, PoolSharing::Exports(_))
    }

    /// A descriptor for other processes, close-on-exec. INVALID_VALUE unless the pool was asked for with one.
    pub fn export(&self, driver: &Driver) -> Answer<OwnedFd> {
        self.sharing.export(driver, self.device)
    }

    /// An empty pool of a device.
    fn new(driver: &Driver, device: usize, ordinal: i32, limit: u64, sharing: PoolSharing) -> Self {
        Self {
            device,
            ordinal,
            limit,
            chunk: driver.at(device).pool_growth_bytes,
            reach: AtomicU32::new(1 << device),
            sharing,
            growing: Mutex::default(),
            figures: Mutex::default(),
        }
    }

    /// Its figures, locked.
    pub fn figures(&self) -> MutexGuard<'_, Figures> {
        lock(&self.figures)
    }

    /// Whose kernels reach its memory, one bit per machine device.
    pub(super) fn reach(&self) -> u32 {
        self.reach.load(Ordering::Acquire)
    }

    /// Whether a machine device reaches its memory.
    pub fn is_reached_from(&self, device: usize) -> bool {
        self.reach.load(Ordering::Acquire) & 1 << device != 0
    }

    /// What a node is asked for with that allocates in a capture.
    pub fn wish(&self, bytes: u64) -> Wish {
        Wish {
            device: self.device,
            ordinal: self.ordinal,
            bytes,
            reach: self.reach.load(Ordering::Acquire),
            properties: CuMemPoolProps {
                allocType: CU_MEM_ALLOCATION_TYPE_PINNED,
                location: CuMemLocation {
                    kind: CU_MEM_LOCATION_TYPE_DEVICE,
                    id: self.ordinal,
                },
                ..CuMemPoolProps::default()
            },
            access: Vec::new(),
        }
    }

    /// Gives idle chunks back as long as at least `keep` bytes remain. What the program has not seen being freed counts
    /// as idle by the same rule as for reuse.
    pub fn trim(&self, driver: &Driver, keep: u64) {
        let mut figures = self.figures();
        if !figures.reuse_off[OPPORTUNISTIC] {
            figures.chunks.ripen(|freed| are_complete(&[freed.op]));
        }
        self.release(driver, &mut figures, keep);
    }

    /// The program has waited for the frees that `is_seen` chooses: they are over, and more than the threshold need
    /// not be kept.
    fn settle(&self, driver: &Driver, is_seen: &dyn Fn(&Freed) -> bool) {
        let mut figures = self.figures();
        figures
            .chunks
            .ripen(|freed| is_seen(freed) && are_complete(&[freed.op]));
        let keep = figures.threshold;
        self.release(driver, &mut figures, keep);
    }

    fn release(&self, driver: &Driver, figures: &mut Figures, keep: u64) {
        let Ok(windows) = windows() else { return };
        for (start, length) in figures.chunks.release(keep) {
            match self.sharing.end_of_chunk(start) {
                Some(hold) => shared().give(driver, windows, hold, self.device, start, length),
                None => windows.give_physical(driver, self.device, start, length),
            }
        }
    }

    /// A place for `cost` bytes. In this order: what is kept and may be used at once, fresh memory, what is kept and
    /// may be used when frees of other streams have happened.
    pub(super) fn take(&self, driver: &Driver, asker: &Asker, cost: u64) -> Answer<Place> {
        if let Some(place) = self.figures().take_kept(asker, cost) {
            return Ok(place);
        }
        let _alone = lock(&self.growing);
        if let Some(place) = self.figures().take_kept(asker, cost) {
            return Ok(place); // grown by another thread meanwhile
        }
        let grown = self.grow(driver, cost).or_else(|_| {
            // Idle chunks may be too small each, and count against the pool's own limit.
            self.trim(driver, 0);
            self.grow(driver, cost)
        });
        grown.or_else(|code| self.figures().take_waiting(cost).ok_or(code))
    }

    /// Takes whole chunks of the device and a place in them. Precondition: `growing` is held.
    fn grow(&self, driver: &Driver, cost: u64) -> Answer<Place> {
        let room = match self.limit {
            0 => u64::MAX,
            limit => limit
                .checked_next_multiple_of(LARGE_PAGE)
                .unwrap_or(u64::MAX)
                .saturating_sub(self.figures().reserved()),
        };
        let bytes = cost
            .checked_next_multiple_of(self.chunk)
            .ok_or(CuResult::OUT_OF_MEMORY)?
            .min(room);
        if bytes < cost {
            return Err(CuResult::OUT_OF_MEMORY);
        }
        let start = take_physical(driver, self.device, bytes)?;
        let mut figures = self.figures();
        figures.chunks.add(start, bytes, self.chunk);
        figures.reserved_high = figures.reserved_high.max(figures.reserved());
        // Nobody else has seen this memory yet. A neighbour may lie before it, then that is taken along.
        let found = figures.chunks.take(cost, |_| false).ok_or(CuResult::OUT_OF_MEMORY)?;
        Ok((figures.hand_out(found.0, cost), Vec::new()))
    }

    /// No other process has anything of it any more. Answers the bytes that counted for ranges.
    pub(super) fn end_sharing(&self) -> u64 {
        let figures = self.figures();
        let starts = self.sharing.end_of_exports();
        let bytes = |start: u64| {
            figures
                .chunks_between(start, start + 1)
                .map(|(_, length)| length)
                .sum::<u64>()
        };
        starts.into_iter().map(bytes).sum()
    }

    /// Takes a freed place back; `freed` says which free gives it back, where that may not have happened yet.
    pub(super) fn give(&self, offset: u64, cost: u64, freed: Option<Freed>) {
        let mut figures = self.figures();
        figures.used -= cost;
        figures.chunks.give(offset, cost, freed);
    }
}

impl Drop for Pool {
    /// With its handle and its last allocation, a pool gives back what it kept.
    fn drop(&mut self) {
        if let Ok(driver) = driver() {
            let mut figures = self.figures();
            figures.chunks.ripen(|_| true);
            self.release(driver, &mut figures, 0);
        }
    }
}

/// Every pool.
static POOLS: Mutex<Vec<Weak<Pool>>> = Mutex::new(Vec::new());

/// Makes a pool of a device.
pub fn create_pool(driver: &Driver, device: usize, ordinal: i32, limit: u64, sharing: PoolSharing) -> Arc<Pool> {
    let pool = Arc::new(Pool::new(driver, device, ordinal, limit, sharing));
    let mut pools = lock(&POOLS);
    pools.retain(|pool| pool.strong_count() > 0);
    pools.push(Arc::downgrade(&pool));
    pool
}

/// All pools. Not under the lock of the list: the last reference to a pool may be the one given here.
pub(super) fn all_pools() -> Vec<Arc<Pool>> {
    lock(&POOLS).iter().filter_map(Weak::upgrade).collect()
}

/// The program has waited for the frees that `is_seen` chooses.
pub fn settle_pools(driver: &Driver, is_seen: impl Fn(&Freed) -> bool) {
    for pool in all_pools() {
        pool.settle(driver, &is_seen);
    }
}

/// Gives back what the pools of a device keep without need.
pub fn trim_pools(driver: &Driver, device: usize) {
    for pool in all_pools().iter().filter(|pool| pool.device == device) {
        pool.trim(driver, 0);
    }
}

/// Reserves `cost` bytes of a device and finds a place for them in its window. What pools keep without need makes room
/// before anybody is refused. Precondition: the caller holds no pool's figures.
pub(super) fn take_physical(driver: &Driver, device: usize, cost: u64) -> Answer<u64> {
    let windows = windows()?;
    let try_it = || {
        shared().reclaim(driver, windows);
        windows.try_physical(driver, device, cost)
    };
    try_it().or_else(|_| {
        trim_pools(driver, device);
        try_it()
    })
}
