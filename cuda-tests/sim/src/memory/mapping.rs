// SPDX-License-Identifier: Apache-2.0
//! Virtual memory management: physical memory without an address, address ranges without memory, and mappings that
//! join the two.
//!
//! Physical memory costs from `cuMemCreate` until its handle is released and its last mapping is gone. A mapping is
//! an [`Allocation`] in the window that programs manage; nobody reaches it before `cuMemSetAccess`.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use partage_abi::types::{CuContext, CuMemAllocationProp, CuResult};

use super::allocations::{Allocation, AllocationKind, Memory, lock};
use super::ranges::Ranges;
use super::space::LARGE_PAGE;
use crate::state::{Answer, Driver, driver};

/// Physical memory of one device, made by `cuMemCreate`.
#[derive(Debug)]
pub struct Physical {
    /// The machine device.
    pub device: usize,
    /// That device as the program numbers it.
    pub ordinal: i32,
    /// Its length, a multiple of [`LARGE_PAGE`].
    pub bytes: u64,
    /// What it was asked for with.
    pub properties: CuMemAllocationProp,
    /// Where it is in the device's window.
    offset: u64,
    /// How often the handle is held.
    holds: Mutex<u32>,
}

// SAFETY: the pointer in the properties is the program's and is only handed back.
unsafe impl Send for Physical {}
// SAFETY: as above.
unsafe impl Sync for Physical {}

impl Drop for Physical {
    /// With the last handle and the last mapping the memory goes back to the device.
    fn drop(&mut self) {
        if let Ok(driver) = driver() {
            driver
                .memory
                .give_physical(driver, self.device, self.offset, self.bytes);
        }
    }
}

impl Physical {
    /// Holds the handle once more.
    pub fn hold(&self) {
        *lock(&self.holds) += 1;
    }

    /// Lets go of the handle; true when nobody holds it any more.
    pub fn let_go(&self) -> bool {
        let mut holds = lock(&self.holds);
        *holds = holds.saturating_sub(1);
        *holds == 0
    }
}

/// The address ranges that programs hold: start to length, as offsets in the managed window.
#[derive(Debug)]
pub struct Reservations {
    free: Ranges,
    held: BTreeMap<u64, u64>,
}

impl Reservations {
    /// All of a window of `bytes` is free.
    pub fn new(bytes: u64) -> Self {
        Self {
            free: Ranges::new(bytes),
            held: BTreeMap::new(),
        }
    }

    /// Whether one reservation holds all of these offsets.
    fn covers(&self, offset: u64, bytes: u64) -> bool {
        let found = self.held.range(..=offset).next_back();
        found.is_some_and(|(start, length)| offset + bytes <= start + length)
    }
}

impl Memory {
    /// Makes physical memory of a device. Needs no context. OUT_OF_MEMORY when it is not there.
    pub fn create_physical(
        &self,
        driver: &Driver,
        ordinal: i32,
        bytes: u64,
        properties: CuMemAllocationProp,
    ) -> Answer<Arc<Physical>> {
        let device = driver.device(ordinal)?.index;
        self.open_device(driver, device)?;
        let offset = self.take_physical(driver, device, bytes)?;
        Ok(Arc::new(Physical {
            device,
            ordinal,
            bytes,
            properties,
            offset,
            holds: Mutex::new(1),
        }))
    }

    /// Reserves an address range, at `wish` if that is free.
    pub fn reserve_addresses(&self, bytes: u64, align: u64, wish: u64) -> Answer<u64> {
        let start = self.space.managed_window().start;
        let mut reservations = lock(&self.reservations);
        let wished = self.space.offset(wish).and_then(|offset| offset.checked_sub(start));
        let wished = wished.filter(|offset| offset % align == 0 && reservations.free.take_at(*offset, bytes));
        let offset = match wished {
            Some(offset) => offset,
            None => reservations.free.take(bytes, align).ok_or(CuResult::OUT_OF_MEMORY)?,
        };
        reservations.held.insert(offset, bytes);
        Ok(self.space.visible(start + offset))
    }

    /// Gives an address range back. INVALID_VALUE unless it is one, whole and with nothing mapped in it.
    pub fn free_addresses(&self, address: u64, bytes: u64) -> Answer {
        let offset = self.managed_offset(address)?;
        let mut reservations = lock(&self.reservations);
        if reservations.held.get(&offset) != Some(&bytes) || !self.between(address, address + bytes).is_empty() {
            return Err(CuResult::INVALID_VALUE);
        }
        reservations.held.remove(&offset);
        reservations.free.give(offset, bytes);
        Ok(())
    }

    /// Puts physical memory behind a part of a reserved address range.
    pub fn map_physical(&self, driver: &Driver, address: u64, bytes: u64, physical: Arc<Physical>) -> Answer {
        let offset = self.managed_offset(address)?;
        if bytes != physical.bytes || !address.is_multiple_of(LARGE_PAGE) {
            return Err(CuResult::INVALID_VALUE);
        }
        // Held until the mapping stands: nobody frees the addresses meanwhile.
        let reservations = lock(&self.reservations);
        if !reservations.covers(offset, bytes) || !self.between(address, address + bytes).is_empty() {
            return Err(CuResult::INVALID_VALUE);
        }
        let file = self.open_device(driver, physical.device)?;
        let place = self.space.managed_window().start + offset;
        self.space.map(place, file, physical.offset, bytes)?;
        let made = Allocation::mapped(physical, address, bytes, self.space.alias(place) as usize);
        self.enter_if_free(made).map_err(|_| CuResult::INVALID_VALUE)
    }

    /// Takes the mappings that fill `address..address + bytes` exactly away. INVALID_VALUE when they do not.
    pub fn unmap_physical(&self, address: u64, bytes: u64) -> Answer {
        let mappings = self.mappings(address, bytes)?;
        let place = self.space.managed_window().start + self.managed_offset(address)?;
        for mapping in &mappings {
            self.take(mapping.address, |_| true);
        }
        self.space.unmap(place, bytes);
        // The physical memory may go now, after nothing leads to it any more.
        drop(mappings);
        Ok(())
    }

    /// Lets a device reach mappings, or not. INVALID_VALUE unless mappings fill the range.
    pub fn set_access(&self, address: u64, bytes: u64, device: usize, is_allowed: bool) -> Answer {
        let mappings = self.mappings(address, bytes)?;
        self.change(|_| {
            for mapping in mappings {
                match is_allowed {
                    true => mapping.reach.fetch_or(1 << device, Ordering::AcqRel),
                    false => mapping.reach.fetch_and(!(1 << device), Ordering::AcqRel),
                };
            }
        });
        Ok(())
    }

    /// The physical memory behind an address.
    pub fn physical_at(&self, address: u64) -> Answer<(Arc<Allocation>, Arc<Physical>)> {
        let found = self.find(address).ok_or(CuResult::INVALID_VALUE)?;
        match &found.kind {
            AllocationKind::Mapped(physical) => Ok((found.clone(), physical.clone())),
            _ => Err(CuResult::INVALID_VALUE),
        }
    }

    /// The mappings that fill a range without a gap.
    fn mappings(&self, address: u64, bytes: u64) -> Answer<Vec<Arc<Allocation>>> {
        self.managed_offset(address)?;
        let end = address.checked_add(bytes).ok_or(CuResult::INVALID_VALUE)?;
        let mappings = self.between(address, end);
        let mut reached = address;
        for mapping in &mappings {
            if mapping.address != reached {
                return Err(CuResult::INVALID_VALUE);
            }
            reached = mapping.end();
        }
        if reached == end && bytes > 0 {
            Ok(mappings)
        } else {
            Err(CuResult::INVALID_VALUE)
        }
    }

    fn managed_offset(&self, address: u64) -> Answer<u64> {
        let offset = self
            .space
            .offset(address)
            .and_then(|at| at.checked_sub(self.space.managed_window().start));
        offset.ok_or(CuResult::INVALID_VALUE)
    }
}

impl Allocation {
    fn mapped(physical: Arc<Physical>, address: u64, bytes: u64, alias: usize) -> Self {
        let (device, ordinal) = (physical.device, physical.ordinal);
        Self {
            address,
            bytes,
            cost: 0,
            kind: AllocationKind::Mapped(physical),
            device,
            ordinal,
            // Belongs to no context and outlives them all.
            context: 0,
            owner: CuContext(std::ptr::null_mut()),
            flags: 0,
            sync_copies: false.into(),
            id: 0,
            reach: 0.into(),
            alias,
        }
    }
}
