// SPDX-License-Identifier: Apache-2.0
//! How linear, managed and host memory is made and freed.
//!
//! Accounting: an allocation costs its bytes rounded up to 512, exactly; there is no hidden block around small ones.
//! Managed and host memory costs no device memory. Freed device memory reads as zero when it is given out again.

use std::sync::Arc;

use partage_abi::types::CuResult;

use super::allocation::{Allocation, AllocationKind};
use super::allocations::Memory;
use super::foreign::Sharing;
use super::lock::lock;
use super::pool::take_physical;
use super::shared::shared;
use super::windows::cost;
use crate::context::Context;
use crate::state::{Answer, Driver};

const PAGE: u64 = 4096;

/// What a call may free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freeable {
    /// `cuMemFree`: device, pool, managed and external memory.
    Device,
    /// `cuMemFreeHost`: page-locked memory of the driver.
    Host,
    /// `cuMemHostUnregister`: the program's own memory.
    Registered,
}

impl Freeable {
    fn covers(self, kind: &AllocationKind) -> bool {
        match kind {
            AllocationKind::Device
            | AllocationKind::Managed
            | AllocationKind::Pooled(_)
            | AllocationKind::Imported(..)
            | AllocationKind::External(_) => self == Self::Device,
            AllocationKind::Host => self == Self::Host,
            AllocationKind::Registered => self == Self::Registered,
            // Graphs have their own way.
            AllocationKind::Mapped(_) | AllocationKind::Opened(_) | AllocationKind::Graph(_) => false,
        }
    }
}

impl Memory {
    /// Allocates memory of the context's device. INVALID_VALUE for no bytes, OUT_OF_MEMORY when it is not there.
    pub fn allocate(&self, driver: &Driver, context: &Context, bytes: u64) -> Answer<Arc<Allocation>> {
        if bytes == 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        let cost = cost(bytes)?;
        let offset = take_physical(driver, context.device, cost)?;
        Ok(self.enter(self.describe(context, AllocationKind::Device, offset, bytes, cost)))
    }

    /// An allocation at an offset of the device's window.
    pub(super) fn describe(
        &self,
        context: &Context,
        kind: AllocationKind,
        offset: u64,
        bytes: u64,
        cost: u64,
    ) -> Allocation {
        let (device, ordinal) = match &kind {
            AllocationKind::Pooled(pool) => (pool.device, pool.ordinal),
            _ => (context.device, context.ordinal),
        };
        let offset = self.windows.space.window(device).start + offset;
        let (address, alias) = (
            self.windows.space.visible(offset),
            self.windows.space.alias(offset) as usize,
        );
        Allocation {
            cost,
            device,
            ordinal,
            ..Allocation::new(context, kind, address, bytes, alias)
        }
    }

    /// Allocates memory that CPU and devices share.
    pub fn allocate_managed(&self, context: &Context, bytes: u64, flags: u32) -> Answer<Arc<Allocation>> {
        let made = self.allocate_ordinary(context, AllocationKind::Managed, bytes, flags)?;
        let length = ordinary_length(bytes).unwrap_or(0);
        // SAFETY: the mapping just made. Managed memory is the device's: a child has none.
        unsafe { libc::madvise(made.address as *mut libc::c_void, length, libc::MADV_DONTFORK) };
        Ok(made)
    }

    /// Allocates page-locked host memory.
    pub fn allocate_host(&self, context: &Context, bytes: u64, flags: u32) -> Answer<Arc<Allocation>> {
        self.allocate_ordinary(context, AllocationKind::Host, bytes, flags)
    }

    fn allocate_ordinary(
        &self,
        context: &Context,
        kind: AllocationKind,
        bytes: u64,
        flags: u32,
    ) -> Answer<Arc<Allocation>> {
        if bytes == 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        let length = ordinary_length(bytes).ok_or(CuResult::OUT_OF_MEMORY)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // Apart from the program's own mappings, which have not this flag: the kernel would make one of two that touch,
        // and take it apart again, which takes as long as the whole call does otherwise.
        let mapping = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, mapping, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(CuResult::OUT_OF_MEMORY);
        }
        Ok(self.enter(Allocation {
            flags,
            ..Allocation::new(context, kind, at as u64, bytes, at as usize)
        }))
    }

    /// Makes the program's own memory reachable for devices. HOST_MEMORY_ALREADY_REGISTERED when any of it is.
    pub fn register(&self, context: &Context, address: u64, bytes: u64, flags: u32) -> Answer {
        let end = address
            .checked_add(bytes)
            .filter(|end| *end > address)
            .ok_or(CuResult::INVALID_VALUE)?;
        if self.windows.space.offset(address).is_some() || self.windows.space.offset(end - 1).is_some() {
            return Err(CuResult::INVALID_VALUE);
        }
        let made = Allocation::new(context, AllocationKind::Registered, address, bytes, address as usize);
        if self.enter_if_free(Allocation { flags, ..made }) {
            Ok(())
        } else {
            Err(CuResult::HOST_MEMORY_ALREADY_REGISTERED)
        }
    }

    /// Frees the allocation that starts at `address`, if it is `what` the call may free; else INVALID_VALUE. The
    /// caller has waited for the work that may use it.
    pub fn free(&self, driver: &Driver, address: u64, what: Freeable) -> Answer {
        if what == Freeable::Device && self.free_of_graph(address) {
            return Ok(());
        }
        let taken = self
            .take(address, |found| what.covers(&found.kind))
            .ok_or(CuResult::INVALID_VALUE)?;
        self.give_back(driver, &taken);
        Ok(())
    }

    /// Frees everything that belongs to a context.
    pub fn free_all_of(&self, driver: &Driver, context: &Context) {
        for allocation in self.take_all(|allocation| allocation.context == context.id) {
            self.give_back(driver, &allocation);
        }
        self.destroy_arrays_of(context);
    }

    /// Gives back what an allocation that has left the table held.
    pub(super) fn give_back(&self, driver: &Driver, allocation: &Allocation) {
        match &allocation.kind {
            AllocationKind::Device => {
                let offset = self.windows.window_offset(allocation.device, allocation.address);
                let (device, cost) = (allocation.device, allocation.cost);
                match std::mem::replace(&mut *lock(&allocation.sharing), Sharing::Over) {
                    Sharing::Alone | Sharing::Over => self.windows.give_physical(driver, device, offset, cost),
                    Sharing::Shared(hold) => shared().give(driver, self.windows, hold, device, offset, cost),
                }
            }
            AllocationKind::Pooled(pool) => {
                let offset = self.windows.window_offset(allocation.device, allocation.address);
                pool.give(offset, allocation.cost, None);
            }
            AllocationKind::Managed | AllocationKind::Host => {
                let length = ordinary_length(allocation.bytes).unwrap_or(0);
                // SAFETY: mapped by `allocate_ordinary` with this length, and taken out of the table by us alone.
                unsafe { libc::munmap(allocation.address as *mut libc::c_void, length) };
            }
            // Mappings end with the last who knows them.
            AllocationKind::Registered
            | AllocationKind::Mapped(_)
            | AllocationKind::Opened(_)
            | AllocationKind::Imported(..)
            | AllocationKind::External(_)
            | AllocationKind::Graph(_) => {}
        }
    }
}

fn ordinary_length(bytes: u64) -> Option<usize> {
    usize::try_from(bytes.checked_next_multiple_of(PAGE)?)
        .ok()
        .filter(|length| *length <= isize::MAX as usize)
}
