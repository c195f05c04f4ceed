// SPDX-License-Identifier: Apache-2.0
//! Stream-ordered pools: device memory that is kept after a free, so that the next allocation finds it at hand.
//!
//! Terms: *reserved* is what the pool holds of the device, *used* is the part that programs hold; the difference is
//! kept in blocks. Invariant: used <= reserved. Memory goes back to the device when a free completes and more is
//! reserved than the release threshold; the vendor's driver waits for the next synchronisation with that.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use partage_abi::types::CuResult;

use super::allocations::{Allocation, AllocationKind, Memory, lock};
use super::linear::cost;
use crate::state::{Answer, Context, Driver, driver};

/// One pool.
#[derive(Debug)]
pub struct Pool {
    /// The machine device.
    pub device: usize,
    /// That device as the program numbers it.
    pub ordinal: i32,
    /// Bytes that may be reserved; 0 for as much as there is.
    pub limit: u64,
    /// Whose kernels reach its memory, one bit per machine device.
    reach: AtomicU32,
    figures: Mutex<Figures>,
}

/// What a pool says of itself; bytes.
#[derive(Debug, Default)]
pub struct Figures {
    /// Held of the device.
    pub reserved: u64,
    /// The most since it was set back.
    pub reserved_high: u64,
    /// Held by programs.
    pub used: u64,
    /// The most since it was set back.
    pub used_high: u64,
    /// Kept although nobody uses it.
    pub threshold: u64,
    /// The three rules of reuse (`CU_MEMPOOL_ATTR_REUSE_*`, the first three attributes): off when true.
    pub reuse_off: [bool; 3],
    /// Kept blocks: offset in the device's window and length.
    kept: Vec<(u64, u64)>,
}

impl Pool {
    /// An empty pool of a device.
    pub fn new(device: usize, ordinal: i32, limit: u64) -> Self {
        Self {
            device,
            ordinal,
            limit,
            reach: AtomicU32::new(1 << device),
            figures: Mutex::default(),
        }
    }

    /// Its figures, locked.
    pub fn figures(&self) -> MutexGuard<'_, Figures> {
        lock(&self.figures)
    }

    /// Whether a machine device reaches its memory.
    pub fn is_reached_from(&self, device: usize) -> bool {
        self.reach.load(Ordering::Acquire) & 1 << device != 0
    }

    /// Gives kept memory back until no more than `bytes` are reserved, as far as it is not used.
    pub fn trim(&self, driver: &Driver, bytes: u64) {
        let mut figures = self.figures();
        while figures.reserved > bytes
            && let Some((offset, length)) = figures.kept.pop()
        {
            figures.reserved -= length;
            driver.memory.give_physical(driver, self.device, offset, length);
        }
    }

    /// A place for `cost` bytes: the smallest kept block that holds them, else fresh memory.
    fn take(&self, driver: &Driver, cost: u64) -> Answer<u64> {
        let mut figures = self.figures();
        let fitting = figures
            .kept
            .iter()
            .enumerate()
            .filter(|(_, block)| block.1 >= cost)
            .min_by_key(|(_, b)| b.1);
        let offset = match fitting.map(|(place, block)| (place, *block)) {
            Some((place, (offset, length))) => {
                match length - cost {
                    0 => drop(figures.kept.swap_remove(place)),
                    rest => figures.kept[place] = (offset + cost, rest),
                }
                offset
            }
            None => {
                if self.limit > 0 && figures.reserved + cost > self.limit {
                    return Err(CuResult::OUT_OF_MEMORY);
                }
                let offset = driver.memory.take_physical(driver, self.device, cost)?;
                figures.reserved += cost;
                figures.reserved_high = figures.reserved_high.max(figures.reserved);
                offset
            }
        };
        figures.used += cost;
        figures.used_high = figures.used_high.max(figures.used);
        Ok(offset)
    }

    /// Takes a freed place back.
    pub(super) fn give(&self, driver: &Driver, offset: u64, cost: u64) {
        let threshold = {
            let mut figures = self.figures();
            figures.used -= cost;
            figures.kept.push((offset, cost));
            figures.threshold
        };
        self.trim(driver, threshold);
    }
}

impl Drop for Pool {
    /// With its handle and its last allocation, a pool gives back what it kept.
    fn drop(&mut self) {
        if let Ok(driver) = driver() {
            self.trim(driver, 0);
        }
    }
}

impl Memory {
    /// Allocates from a pool, for a stream of `context`.
    pub fn allocate_from(
        &self,
        driver: &Driver,
        context: &Context,
        pool: &Arc<Pool>,
        bytes: u64,
    ) -> Answer<Arc<Allocation>> {
        if bytes == 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        let cost = cost(bytes)?;
        self.open_device(driver, pool.device)?;
        let offset = pool.take(driver, cost).or_else(|_| {
            // What pools of this device keep is not in use: it makes room before anybody is refused.
            pool.trim(driver, 0);
            pool.take(driver, cost)
        })?;
        let made = self.describe(context, AllocationKind::Pooled(pool.clone()), offset, bytes, cost);
        made.reach.store(pool.reach.load(Ordering::Acquire), Ordering::Release);
        Ok(self.enter(made))
    }

    /// Lets a device reach the memory of a pool, or not.
    pub fn set_pool_access(&self, pool: &Arc<Pool>, device: usize, is_allowed: bool) {
        let change = |reach: &AtomicU32| match is_allowed {
            true => reach.fetch_or(1 << device, Ordering::AcqRel),
            false => reach.fetch_and(!(1 << device), Ordering::AcqRel),
        };
        change(&pool.reach);
        self.change(|table| {
            for allocation in table.values() {
                if matches!(&allocation.kind, AllocationKind::Pooled(of) if Arc::ptr_eq(of, pool)) {
                    change(&allocation.reach);
                }
            }
        });
    }

    /// Marks the allocation that starts at `address` as freed by a stream. INVALID_VALUE when there is none of device
    /// memory, or it is marked already. It stays reachable until [`free`](Self::free).
    pub fn mark_freed(&self, address: u64) -> Answer {
        let found = self
            .find(address)
            .filter(|found| found.address == address)
            .ok_or(CuResult::INVALID_VALUE)?;
        let is_device = matches!(found.kind, AllocationKind::Device | AllocationKind::Pooled(_));
        if is_device && !found.is_freed.swap(true, Ordering::AcqRel) {
            Ok(())
        } else {
            Err(CuResult::INVALID_VALUE)
        }
    }
}
