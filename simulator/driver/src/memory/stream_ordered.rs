// SPDX-License-Identifier: Apache-2.0
//! Allocations and frees in the order of streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use partage_abi::types::CuResult;

use super::allocation::{Allocation, AllocationKind};
use super::allocations::Memory;
use super::pool::{Asker, Freed, Pool};
use super::windows::cost;
use crate::context::Context;
use crate::executor::OpId;
use crate::state::{Answer, Driver};

impl Memory {
    /// Allocates from a pool, for a stream of `context`. Also answers what the stream must wait for before it uses
    /// the memory.
    pub fn allocate_from(
        &self,
        driver: &Driver,
        context: &Context,
        pool: &Arc<Pool>,
        asker: &Asker,
        bytes: u64,
    ) -> Answer<(Arc<Allocation>, Vec<OpId>)> {
        if bytes == 0 || pool.is_imported() {
            return Err(CuResult::INVALID_VALUE);
        }
        let cost = cost(bytes)?;
        self.windows.open_device(driver, pool.device)?;
        let (offset, waits_for) = pool.take(driver, asker, cost)?;
        let made = self.describe(context, AllocationKind::Pooled(pool.clone()), offset, bytes, cost);
        made.reach.store(pool.reach.load(Ordering::Acquire), Ordering::Release);
        Ok((self.enter(made), waits_for))
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
                if matches!(
                    &allocation.kind,
                    AllocationKind::Pooled(of) | AllocationKind::Imported(_, of) if Arc::ptr_eq(of, pool)
                ) {
                    change(&allocation.reach);
                }
            }
        });
    }

    // ---- frees in stream order ----------------------------------------------------------------------------------

    /// Begins the free of the allocation of device memory that starts at `address`: it is no longer the program's, but
    /// what was submitted before still reaches it until [`end_free`](Self::end_free). INVALID_VALUE when there is none.
    pub fn begin_free(&self, address: u64) -> Answer<Arc<Allocation>> {
        let mut leaving = self.leaving();
        let is_device = |found: &Allocation| {
            matches!(
                found.kind,
                AllocationKind::Device | AllocationKind::Pooled(_) | AllocationKind::Imported(..)
            )
        };
        let taken = self.take(address, is_device).ok_or(CuResult::INVALID_VALUE)?;
        leaving.push(taken.clone());
        Ok(taken)
    }

    /// The stream could not be told of a free that was begun: the allocation is the program's again.
    pub fn undo_free(&self, allocation: &Arc<Allocation>) {
        let mut leaving = self.leaving();
        leaving.retain(|other| other.id != allocation.id);
        self.change(|table| table.insert(allocation.address, allocation.clone()));
    }

    /// Gives the memory of a free that was begun back to its pool: it is reused in the order that `freed` says.
    pub fn give_to_pool(&self, allocation: &Allocation, freed: Freed) {
        if let AllocationKind::Pooled(pool) = &allocation.kind {
            let offset = self.windows.window_offset(allocation.device, allocation.address);
            pool.give(offset, allocation.cost, Some(freed));
        }
    }

    /// A stream, or a graph, has come to a free.
    pub fn end_free(&self, driver: &Driver, allocation: &Allocation) {
        if allocation.graph_part().is_some() {
            self.leave(allocation);
            return;
        }
        let mut leaving = self.leaving();
        leaving.retain(|other| other.id != allocation.id);
        // Snapshots that still show it expire.
        self.change(|_| ());
        drop(leaving);
        if let AllocationKind::Device = allocation.kind {
            self.give_back(driver, allocation);
        }
    }
}
