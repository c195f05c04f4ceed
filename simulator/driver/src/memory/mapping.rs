// SPDX-License-Identifier: Apache-2.0
//! Virtual memory management: physical memory without an address, address ranges without memory, and mappings that
//! join the two.
//!
//! Physical memory costs from `cuMemCreate` until its handle is released and its last mapping is gone, in every process
//! that holds it; host memory costs nothing. A mapping is an [`Allocation`] in the window that programs manage; nobody
//! reaches it before `cuMemSetAccess`.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use partage_abi::types::{CuMemAllocationProp, CuResult};
use partage_abi::values::*;
use partage_machine::backing::Kept;

use super::allocation::{Allocation, AllocationKind};
use super::allocations::Memory;
use super::foreign::ordinal_of;
use super::lock::lock;
use super::physical::{Own, Physical, Place};
use super::pool::take_physical;
use super::shared::{Ticket, shared};
use super::space::LARGE_PAGE;
use super::view::{CPU, CPU_READS};
use super::windows::host_file;
use crate::state::{Answer, Driver};

/// Whose access to mappings is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accessor {
    /// A machine device.
    Device(usize),
    /// The CPU.
    Host,
}

/// `CU_DEVICE_CPU`: the ordinal of host memory.
const HOST_ORDINAL: i32 = -1;

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
        let can_be_shared = properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
        let place = if can_be_shared {
            let reserved = driver.machine().reserve(device, bytes);
            reserved.map_err(|_| CuResult::OUT_OF_MEMORY)?;
            let file = driver.machine().create_file(bytes + Ticket::BYTES);
            let file = file.map_err(|_| {
                driver.machine().release(device, bytes);
                CuResult::OPERATING_SYSTEM
            })?;
            Place::Own(Own::new(file, false))
        } else {
            self.windows.open_device(driver, device)?;
            Place::Window(take_physical(driver, device, bytes)?)
        };
        Ok(Physical::new(device, ordinal, bytes, properties, place))
    }

    /// Makes physical memory of the host.
    pub fn create_host_physical(
        &self,
        driver: &Driver,
        bytes: u64,
        properties: CuMemAllocationProp,
    ) -> Answer<Arc<Physical>> {
        let file = host_file(bytes + Ticket::BYTES).ok_or(CuResult::OUT_OF_MEMORY)?;
        let device = *driver.visible.first().ok_or(CuResult::NO_DEVICE)?;
        let place = Place::Host(file);
        Ok(Physical::new(device, HOST_ORDINAL, bytes, properties, place))
    }

    /// The physical memory that a descriptor of another process, or of this one, names. INVALID_VALUE when it names
    /// none of this machine.
    pub fn import_physical(&self, driver: &Driver, file: File) -> Answer<Arc<Physical>> {
        let ticket = Ticket::read(&file).ok_or(CuResult::INVALID_VALUE)?;
        let is_here = ticket.machine == driver.machine().spec().id && ticket.bytes.is_multiple_of(LARGE_PAGE);
        if !is_here {
            return Err(CuResult::INVALID_VALUE);
        }
        let mut properties = CuMemAllocationProp {
            kind: CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            ..Default::default()
        };
        let [compression, direct, usage @ ..] = ticket.flags;
        properties.allocFlags.compressionType = compression;
        properties.allocFlags.gpuDirectRDMACapable = direct;
        properties.allocFlags.usage = u16::from_ne_bytes(usage);
        properties.location.kind = ticket.kind;
        if ticket.kind != CU_MEM_LOCATION_TYPE_DEVICE {
            properties.location.id = ticket.number;
            let device = *driver.visible.first().ok_or(CuResult::NO_DEVICE)?;
            let place = Place::Host(file);
            return Ok(Physical::new(device, HOST_ORDINAL, ticket.bytes, properties, place));
        }
        let place = usize::try_from(ticket.number).map_err(|_| CuResult::INVALID_VALUE)?;
        let device = driver.number_of(place).ok_or(CuResult::INVALID_DEVICE)?;
        let ordinal = ordinal_of(driver, device)?;
        properties.location.id = ordinal;
        let hold = shared().join_file(driver, &file, device, ticket.bytes)?;
        let made = Physical::new(
            device,
            ordinal,
            ticket.bytes,
            properties,
            Place::Own(Own::new(file, true)),
        );
        *lock(&made.shared) = Some(hold);
        Ok(made)
    }

    /// Reserves an address range, at `wish` if that is free.
    pub fn reserve_addresses(&self, bytes: u64, align: u64, wish: u64) -> Answer<u64> {
        let start = self.windows.space.managed_window().start;
        let mut reservations = lock(&self.windows.reservations);
        let wished = self
            .windows
            .space
            .offset(wish)
            .and_then(|offset| offset.checked_sub(start));
        let wished = wished.filter(|offset| offset % align == 0 && reservations.free.take_at(*offset, bytes));
        let offset = match wished {
            Some(offset) => offset,
            None => reservations.free.take(bytes, align).ok_or(CuResult::OUT_OF_MEMORY)?,
        };
        reservations.held.insert(offset, bytes);
        Ok(self.windows.space.visible(start + offset))
    }

    /// Gives an address range back. INVALID_VALUE unless it is one, whole and with nothing mapped in it.
    pub fn free_addresses(&self, address: u64, bytes: u64) -> Answer {
        let offset = self.managed_offset(address)?;
        let mut reservations = lock(&self.windows.reservations);
        if reservations.held.get(&offset) != Some(&bytes) || !self.between(address, address + bytes).is_empty() {
            return Err(CuResult::INVALID_VALUE);
        }
        reservations.held.remove(&offset);
        reservations.free.give(offset, bytes);
        Ok(())
    }

    /// Puts physical memory, from its start on, behind a part of a reserved address range.
    pub fn map_physical(&self, driver: &Driver, address: u64, bytes: u64, physical: Arc<Physical>) -> Answer {
        let offset = self.managed_offset(address)?;
        let is_aligned = address.is_multiple_of(LARGE_PAGE) && bytes.is_multiple_of(LARGE_PAGE);
        if bytes == 0 || bytes > physical.bytes || !is_aligned {
            return Err(CuResult::INVALID_VALUE);
        }
        // Held until the mapping stands: nobody frees the addresses meanwhile.
        let reservations = lock(&self.windows.reservations);
        if !reservations.covers(offset, bytes) || !self.between(address, address + bytes).is_empty() {
            return Err(CuResult::INVALID_VALUE);
        }
        let place = self.windows.space.managed_window().start + offset;
        if let Place::Window(_) = physical.place {
            self.windows.open_device(driver, physical.device)?;
        }
        self.map_at(place, bytes, &physical)?;
        let made = Allocation::mapped(physical, address, bytes, self.windows.space.alias(place) as usize);
        if self.enter_if_free(made) {
            Ok(())
        } else {
            Err(CuResult::INVALID_VALUE)
        }
    }

    /// Lets the driver reach the first `bytes` of physical memory at the alias of a place in the space.
    /// OPERATING_SYSTEM when the program has closed its file.
    pub(super) fn map_at(&self, place: u64, bytes: u64, physical: &Physical) -> Answer {
        let space = &self.windows.space;
        let mapped = match &physical.place {
            Place::Window(offset) => {
                let backing = self.windows.backing(physical.device);
                let file = backing.as_ref().and_then(|file| file.get());
                file.map(|file| space.map(place, file, *offset, bytes))
            }
            Place::Own(own) => {
                let kept = lock(&own.file);
                let file = kept.as_ref().and_then(Kept::get);
                file.map(|file| space.map(place, file, 0, bytes))
            }
            Place::Host(file) => Some(space.map(place, file, 0, bytes)),
        };
        mapped.ok_or(CuResult::OPERATING_SYSTEM)?
    }

    /// Takes the mappings that fill `address..address + bytes` exactly away. INVALID_VALUE when they do not.
    pub fn unmap_physical(&self, address: u64, bytes: u64) -> Answer {
        let mappings = self.mappings(address, bytes)?;
        let place = self.windows.space.managed_window().start + self.managed_offset(address)?;
        for mapping in &mappings {
            self.take(mapping.address, |_| true);
        }
        self.windows.space.unmap(place, bytes);
        if mappings.iter().any(|mapping| mapping.is_reached_by_cpu()) {
            self.windows.space.hide(place, bytes);
        }
        // The physical memory may go now, after nothing leads to it any more.
        drop(mappings);
        Ok(())
    }

    /// Lets a device, or the CPU, reach mappings, or not. INVALID_VALUE unless mappings fill the range, NOT_SUPPORTED
    /// when the CPU is to reach memory of a device, or a device is only to read.
    pub fn set_access(&self, address: u64, bytes: u64, who: Accessor, flags: i32) -> Answer {
        let mappings = self.mappings(address, bytes)?;
        let bits = match (who, flags) {
            (_, CU_MEM_ACCESS_FLAGS_PROT_NONE) => 0,
            (Accessor::Device(device), CU_MEM_ACCESS_FLAGS_PROT_READWRITE) => 1 << device,
            (Accessor::Host, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) => CPU,
            (Accessor::Host, CU_MEM_ACCESS_FLAGS_PROT_READ) => CPU_READS,
            (Accessor::Device(_), CU_MEM_ACCESS_FLAGS_PROT_READ) => return Err(CuResult::NOT_SUPPORTED),
            _ => return Err(CuResult::INVALID_VALUE),
        };
        let all_bits = match who {
            Accessor::Device(device) => 1 << device,
            Accessor::Host => CPU | CPU_READS,
        };
        if who == Accessor::Host {
            for mapping in &mappings {
                self.let_cpu_reach(mapping, bits)?;
            }
        }
        self.change(|_| {
            for mapping in mappings {
                mapping.reach.fetch_and(!all_bits, Ordering::AcqRel);
                mapping.reach.fetch_or(bits, Ordering::AcqRel);
            }
        });
        Ok(())
    }

    fn let_cpu_reach(&self, mapping: &Allocation, bits: u32) -> Answer {
        let AllocationKind::Mapped(physical) = &mapping.kind else {
            return Err(CuResult::INVALID_VALUE);
        };
        let Place::Host(file) = &physical.place else {
            return Err(CuResult::NOT_SUPPORTED);
        };
        let place = self
            .windows
            .space
            .offset(mapping.address)
            .ok_or(CuResult::INVALID_VALUE)?;
        if bits == 0 {
            self.windows.space.hide(place, mapping.bytes);
            Ok(())
        } else {
            self.windows.space.show(place, file, 0, mapping.bytes, bits == CPU)
        }
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
            .windows
            .space
            .offset(address)
            .and_then(|at| at.checked_sub(self.windows.space.managed_window().start));
        offset.ok_or(CuResult::INVALID_VALUE)
    }
}
