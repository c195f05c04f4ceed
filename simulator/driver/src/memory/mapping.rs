// SPDX-License-Identifier: Apache-2.0
//! Virtual memory management: physical memory without an address, address ranges without memory, and mappings that
//! join the two.
//!
//! Physical memory costs from `cuMemCreate` until its handle is released and its last mapping is gone, in every process
//! that holds it; host memory costs nothing. A mapping is an [`Allocation`] in the window that programs manage; nobody
//! reaches it before `cuMemSetAccess`.
//!
//! Memory that can be shared lies in a file of its own, so that a descriptor of that file is all that another process
//! needs. While such a descriptor is the only thing that is left of the memory it costs nobody anything; who imports it
//! then pays for it, or is refused.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use partage_abi::types::{CuContext, CuMemAllocationProp, CuResult};
use partage_abi::values::*;
use partage_machine::backing;
use partage_machine::ranges::RangeId;

use super::allocations::{Allocation, AllocationKind, Memory, lock, memory};
use super::foreign::ordinal_of;
use super::ranges::Ranges;
use super::shared::{Hold, Ticket};
use super::space::LARGE_PAGE;
use super::view::{CPU, CPU_READS};
use crate::state::{Answer, Driver, driver};

/// Physical memory, made by `cuMemCreate` or imported.
#[derive(Debug)]
pub struct Physical {
    /// The machine device; of host memory the first one.
    pub device: usize,
    /// That device as the program numbers it; -1 for host memory.
    pub ordinal: i32,
    /// Its length, a multiple of [`LARGE_PAGE`].
    pub bytes: u64,
    /// What it was asked for with.
    pub properties: CuMemAllocationProp,
    place: Place,
    /// How often the handle is held.
    holds: Mutex<u32>,
    /// The part in the range that others hold too, once it was exported or when it was imported.
    shared: Mutex<Option<Hold>>,
}

/// Where physical memory is.
#[derive(Debug)]
pub enum Place {
    /// At an offset of the device's window.
    Window(u64),
    /// In a file of its own, as memory that can be shared is.
    Own(File),
    /// In a file of its own, in the host's memory.
    Host(File),
}

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

// SAFETY: the pointer in the properties is the program's and is only handed back.
unsafe impl Send for Physical {}
// SAFETY: as above.
unsafe impl Sync for Physical {}

impl Drop for Physical {
    /// With the last handle and the last mapping the memory goes back to the device.
    fn drop(&mut self) {
        let (Ok(driver), Ok(memory)) = (driver(), memory()) else {
            return;
        };
        match &self.place {
            Place::Window(offset) => memory.give_physical(driver, self.device, *offset, self.bytes),
            // What others hold too is let go of with the hold.
            Place::Own(_) if lock(&self.shared).is_none() => {
                driver.machine.release(driver.seat, self.device, self.bytes);
            }
            Place::Own(_) | Place::Host(_) => {}
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

    /// Whether it is host memory.
    pub fn is_host(&self) -> bool {
        matches!(self.place, Place::Host(_))
    }

    /// A descriptor for other processes, close-on-exec. INVALID_VALUE for memory that was not asked for with one.
    pub fn export(&self, driver: &Driver) -> Answer<OwnedFd> {
        if self.properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR == 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        let (Place::Own(file) | Place::Host(file)) = &self.place else {
            return Err(CuResult::INVALID_VALUE);
        };
        let mut shared = lock(&self.shared);
        if !self.is_host() && shared.is_none() {
            *shared = Some(memory()?.shared.share(driver, self.device, self.bytes)?);
        }
        let flags = &self.properties.allocFlags;
        let usage = flags.usage.to_ne_bytes();
        let location = self.properties.location;
        let ticket = Ticket {
            machine: driver.machine.spec().id,
            bytes: self.bytes,
            kind: location.kind,
            number: if self.is_host() {
                location.id
            } else {
                self.device as i32
            },
            flags: [flags.compressionType, flags.gpuDirectRDMACapable, usage[0], usage[1]],
            id: shared.as_ref().map_or(
                RangeId {
                    place: u64::MAX,
                    serial: 0,
                },
                |hold| hold.id,
            ),
        };
        ticket.write(file).map_err(|_| CuResult::OPERATING_SYSTEM)?;
        // SAFETY: duplicates a descriptor that is open.
        let given = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) };
        if given < 0 {
            return Err(CuResult::OPERATING_SYSTEM);
        }
        // SAFETY: just made, owned by nobody else.
        Ok(unsafe { OwnedFd::from_raw_fd(given) })
    }
}

/// The address ranges that programs hold: start to length, as offsets in the managed window.
#[derive(Debug)]
pub struct Reservations {
    pub(super) free: Ranges,
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
        let can_be_shared = properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
        let place = if can_be_shared {
            let reserved = driver.machine.reserve(driver.seat, device, bytes);
            reserved.map_err(|_| CuResult::OUT_OF_MEMORY)?;
            let file = backing::create(&driver.machine.folder().join("memory"), bytes + Ticket::BYTES);
            Place::Own(file.map_err(|_| {
                driver.machine.release(driver.seat, device, bytes);
                CuResult::OPERATING_SYSTEM
            })?)
        } else {
            self.open_device(driver, device)?;
            Place::Window(self.take_physical(driver, device, bytes)?)
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
        let is_here = ticket.machine == driver.machine.spec().id && ticket.bytes.is_multiple_of(LARGE_PAGE);
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
        let device = usize::try_from(ticket.number).map_err(|_| CuResult::INVALID_VALUE)?;
        let ordinal = ordinal_of(driver, device)?;
        properties.location.id = ordinal;
        let hold = self.shared.join_file(driver, &file, device, ticket.bytes)?;
        let made = Physical::new(device, ordinal, ticket.bytes, properties, Place::Own(file));
        *lock(&made.shared) = Some(hold);
        Ok(made)
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

    /// Puts physical memory, from its start on, behind a part of a reserved address range.
    pub fn map_physical(&self, driver: &Driver, address: u64, bytes: u64, physical: Arc<Physical>) -> Answer {
        let offset = self.managed_offset(address)?;
        let is_aligned = address.is_multiple_of(LARGE_PAGE) && bytes.is_multiple_of(LARGE_PAGE);
        if bytes == 0 || bytes > physical.bytes || !is_aligned {
            return Err(CuResult::INVALID_VALUE);
        }
        // Held until the mapping stands: nobody frees the addresses meanwhile.
        let reservations = lock(&self.reservations);
        if !reservations.covers(offset, bytes) || !self.between(address, address + bytes).is_empty() {
            return Err(CuResult::INVALID_VALUE);
        }
        let (file, from) = match &physical.place {
            Place::Window(offset) => (self.open_device(driver, physical.device)?, *offset),
            Place::Own(file) | Place::Host(file) => (file, 0),
        };
        let place = self.space.managed_window().start + offset;
        self.space.map(place, file, from, bytes)?;
        let made = Allocation::mapped(physical, address, bytes, self.space.alias(place) as usize);
        if self.enter_if_free(made) {
            Ok(())
        } else {
            Err(CuResult::INVALID_VALUE)
        }
    }

    /// Takes the mappings that fill `address..address + bytes` exactly away. INVALID_VALUE when they do not.
    pub fn unmap_physical(&self, address: u64, bytes: u64) -> Answer {
        let mappings = self.mappings(address, bytes)?;
        let place = self.space.managed_window().start + self.managed_offset(address)?;
        for mapping in &mappings {
            self.take(mapping.address, |_| true);
        }
        self.space.unmap(place, bytes);
        if mappings.iter().any(|mapping| mapping.is_reached_by_cpu()) {
            self.space.hide(place, bytes);
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
        let place = self.space.offset(mapping.address).ok_or(CuResult::INVALID_VALUE)?;
        if bits == 0 {
            self.space.hide(place, mapping.bytes);
            Ok(())
        } else {
            self.space.show(place, file, 0, mapping.bytes, bits == CPU)
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
            .space
            .offset(address)
            .and_then(|at| at.checked_sub(self.space.managed_window().start));
        offset.ok_or(CuResult::INVALID_VALUE)
    }
}

impl Physical {
    fn new(device: usize, ordinal: i32, bytes: u64, properties: CuMemAllocationProp, place: Place) -> Arc<Self> {
        Arc::new(Self {
            device,
            ordinal,
            bytes,
            properties,
            place,
            holds: Mutex::new(1),
            shared: Mutex::default(),
        })
    }
}

/// A file in the host's memory, without a name.
pub(super) fn host_file(bytes: u64) -> Option<File> {
    // SAFETY: makes a descriptor; the name is a C string.
    let made = unsafe { libc::memfd_create(c"partage-sim-host".as_ptr(), libc::MFD_CLOEXEC) };
    if made < 0 {
        return None;
    }
    // SAFETY: just made, owned by nobody else.
    let file = backing::out_of_the_way(unsafe { File::from_raw_fd(made) });
    file.set_len(bytes).ok()?;
    Some(file)
}

impl Allocation {
    /// What the CPU may do with it (`CU_MEM_ACCESS_FLAGS_PROT_*`).
    pub fn cpu_access(&self) -> i32 {
        match self.reach.load(Ordering::Acquire) {
            reach if reach & CPU != 0 => CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            reach if reach & CPU_READS != 0 => CU_MEM_ACCESS_FLAGS_PROT_READ,
            _ => CU_MEM_ACCESS_FLAGS_PROT_NONE,
        }
    }

    fn is_reached_by_cpu(&self) -> bool {
        self.cpu_access() != CU_MEM_ACCESS_FLAGS_PROT_NONE
    }

    fn mapped(physical: Arc<Physical>, address: u64, bytes: u64, alias: usize) -> Self {
        let (device, ordinal) = (physical.device, physical.ordinal);
        Self::without_context(AllocationKind::Mapped(physical), device, ordinal, address, bytes, alias)
    }

    /// An allocation that belongs to no context and outlives them all; nobody reaches it yet.
    pub(super) fn without_context(
        kind: AllocationKind,
        device: usize,
        ordinal: i32,
        address: u64,
        bytes: u64,
        alias: usize,
    ) -> Self {
        Self {
            address,
            bytes,
            cost: 0,
            kind,
            device,
            ordinal,
            context: 0,
            owner: CuContext(std::ptr::null_mut()),
            flags: 0,
            sync_copies: false.into(),
            sharing: Mutex::default(),
            id: 0,
            reach: 0.into(),
            alias,
        }
    }
}
