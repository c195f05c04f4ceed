// SPDX-License-Identifier: Apache-2.0
//! Every live allocation of the process, and how it is made, found and freed.
//!
//! Accounting: an allocation costs its bytes rounded up to 512, exactly; there is no hidden block around small ones.
//! Managed and host memory costs no device memory. Freed device memory reads as zero when it is given out again.
//!
//! Lock order: table, then ranges; neither is held across a call into the machine that can wait.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use partage_abi::types::CuResult;
use partage_machine::Device;
use partage_ptx::Region;

use super::ranges::Ranges;
use super::space::{LARGE_PAGE, Space};
use super::view::{EVERYBODY, Piece, View};
use crate::state::{Answer, Context, Driver};

/// Addresses and costs are multiples of this.
const GRANULE: u64 = 512;
const PAGE: u64 = 4096;

/// How an allocation came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationKind {
    /// `cuMemAlloc`, `cuMemAllocPitch`, module globals.
    Device,
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemHostAlloc`, `cuMemAllocHost`.
    Host,
    /// `cuMemHostRegister`: the program's own memory.
    Registered,
}

/// One live allocation.
#[derive(Debug)]
pub struct Allocation {
    /// Its first visible address.
    pub address: u64,
    /// The bytes asked for.
    pub bytes: u64,
    /// Device memory it costs.
    pub cost: u64,
    /// How it came about.
    pub kind: AllocationKind,
    /// The machine device it is on, or whose context made it.
    pub device: usize,
    /// That device as the program numbers it.
    pub ordinal: i32,
    /// The context it belongs to.
    pub context: u64,
    /// The flags it was made with.
    pub flags: u32,
    /// Unique in the process (`CU_POINTER_ATTRIBUTE_BUFFER_ID`).
    pub id: u64,
    /// Where the driver reaches the first byte.
    alias: usize,
}

impl Allocation {
    /// Where the driver reaches the byte at a visible address inside.
    pub fn reach(&self, address: u64) -> *mut u8 {
        (self.alias as u64 + (address - self.address)) as *mut u8
    }

    fn contains(&self, address: u64) -> bool {
        address - self.address < self.bytes
    }
}

/// All memory of the process.
#[derive(Debug)]
pub struct Memory {
    space: Space,
    /// Free parts of each device's window; offsets in the window are offsets in its file.
    ranges: Vec<Mutex<Ranges>>,
    /// The file behind each device, made when its first context is.
    backing: Vec<OnceLock<File>>,
    opening: Mutex<()>,
    table: RwLock<BTreeMap<u64, Arc<Allocation>>>,
    /// Changes with the table.
    version: AtomicU64,
    /// The pieces of the table, and of which version.
    pieces: Mutex<(u64, Arc<Vec<Piece>>)>,
    next_id: AtomicU64,
}

// SAFETY: the pointers inside lead to mappings of the process; all changes are under locks.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Reserves addresses for the memory of these devices.
    pub fn reserve(devices: &[Device]) -> Answer<Self> {
        let space = Space::reserve(devices)?;
        let ranges = (0..devices.len())
            .map(|device| Mutex::new(Ranges::new(space.window(device).bytes)))
            .collect();
        Ok(Self {
            space,
            ranges,
            backing: devices.iter().map(|_| OnceLock::new()).collect(),
            opening: Mutex::new(()),
            table: RwLock::default(),
            version: AtomicU64::new(1),
            pieces: Mutex::default(),
            next_id: AtomicU64::new(1),
        })
    }

    /// Makes a device's memory reachable. Done before its first context.
    pub fn open_device(&self, driver: &Driver, device: usize) -> Answer {
        let _one_at_a_time = lock(&self.opening);
        if self.backing[device].get().is_some() {
            return Ok(());
        }
        let window = self.space.window(device);
        let file = driver
            .machine
            .create_backing(driver.seat, device, window.bytes)
            .map_err(|_| CuResult::OPERATING_SYSTEM)?;
        self.space.map(window.start, &file, 0, window.bytes)?;
        let _ = self.backing[device].set(file);
        Ok(())
    }

    // ---- making and freeing -----------------------------------------------------------------------------------

    /// Allocates memory of the context's device. INVALID_VALUE for no bytes, OUT_OF_MEMORY when it is not there.
    pub fn allocate(&self, driver: &Driver, context: &Context, bytes: u64) -> Answer<Arc<Allocation>> {
        if bytes == 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        let device = context.device;
        let cost = bytes.checked_next_multiple_of(GRANULE).ok_or(CuResult::OUT_OF_MEMORY)?;
        if cost > driver.machine.devices()[device].memory {
            return Err(CuResult::OUT_OF_MEMORY);
        }
        driver
            .machine
            .reserve(driver.seat, device, cost)
            .map_err(|_| CuResult::OUT_OF_MEMORY)?;
        let align = if cost < LARGE_PAGE { GRANULE } else { LARGE_PAGE };
        let Some(offset) = lock(&self.ranges[device]).take(cost, align) else {
            driver.machine.release(driver.seat, device, cost);
            return Err(CuResult::OUT_OF_MEMORY);
        };
        let offset = self.space.window(device).start + offset;
        let alias = self.space.alias(offset) as usize;
        Ok(self.enter(
            context,
            self.space.visible(offset),
            bytes,
            cost,
            AllocationKind::Device,
            0,
            alias,
        ))
    }

    /// Allocates memory that CPU and devices share.
    pub fn allocate_managed(&self, context: &Context, bytes: u64, flags: u32) -> Answer<Arc<Allocation>> {
        self.allocate_ordinary(context, bytes, AllocationKind::Managed, flags)
    }

    /// Allocates page-locked host memory.
    pub fn allocate_host(&self, context: &Context, bytes: u64, flags: u32) -> Answer<Arc<Allocation>> {
        self.allocate_ordinary(context, bytes, AllocationKind::Host, flags)
    }

    fn allocate_ordinary(
        &self,
        context: &Context,
        bytes: u64,
        kind: AllocationKind,
        flags: u32,
    ) -> Answer<Arc<Allocation>> {
        if bytes == 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        let length = ordinary_length(bytes).ok_or(CuResult::OUT_OF_MEMORY)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let mapping = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, mapping, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(CuResult::OUT_OF_MEMORY);
        }
        if kind == AllocationKind::Managed {
            // SAFETY: the mapping just made. Managed memory is the device's: a child has none.
            unsafe { libc::madvise(at, length, libc::MADV_DONTFORK) };
        }
        Ok(self.enter(context, at as u64, bytes, 0, kind, flags, at as usize))
    }

    /// Makes the program's own memory reachable for devices. HOST_MEMORY_ALREADY_REGISTERED when any of it is.
    pub fn register(&self, context: &Context, address: u64, bytes: u64, flags: u32) -> Answer {
        let end = address
            .checked_add(bytes)
            .filter(|end| *end > address)
            .ok_or(CuResult::INVALID_VALUE)?;
        if self.space.offset(address).is_some() || self.space.offset(end - 1).is_some() {
            return Err(CuResult::INVALID_VALUE);
        }
        let overlaps = |table: &BTreeMap<u64, Arc<Allocation>>| {
            table
                .range(..end)
                .next_back()
                .is_some_and(|(_, last)| last.address + last.bytes > address)
        };
        let made = Arc::new(self.describe(
            context,
            address,
            bytes,
            0,
            AllocationKind::Registered,
            flags,
            address as usize,
        ));
        let mut table = self.table_mut();
        if overlaps(&table) {
            return Err(CuResult::HOST_MEMORY_ALREADY_REGISTERED);
        }
        table.insert(address, made);
        self.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Frees the allocation of these kinds that starts at `address`; INVALID_VALUE when there is none. The caller
    /// has waited for the work that may use it.
    pub fn free(&self, driver: &Driver, address: u64, kinds: &[AllocationKind]) -> Answer {
        let taken = {
            let mut table = self.table_mut();
            match table.get(&address) {
                Some(found) if kinds.contains(&found.kind) => table.remove(&address),
                _ => None,
            }
        };
        self.version.fetch_add(1, Ordering::Release);
        let allocation = taken.ok_or(CuResult::INVALID_VALUE)?;
        self.give_back(driver, &allocation);
        Ok(())
    }

    /// Frees everything that belongs to a context.
    pub fn free_all_of(&self, driver: &Driver, context: &Context) {
        let mut gone = Vec::new();
        self.table_mut().retain(|_, allocation| {
            let stays = allocation.context != context.id;
            if !stays {
                gone.push(allocation.clone());
            }
            stays
        });
        self.version.fetch_add(1, Ordering::Release);
        for allocation in gone {
            self.give_back(driver, &allocation);
        }
    }

    fn give_back(&self, driver: &Driver, allocation: &Allocation) {
        match allocation.kind {
            AllocationKind::Device => {
                let window = self.space.window(allocation.device);
                let offset = allocation.address - self.space.visible(window.start);
                let mut ranges = lock(&self.ranges[allocation.device]);
                let (start, end) = ranges.give(offset, allocation.cost);
                // Whole pages that are free now and were not before. Small neighbours may still use the edges. Under
                // the lock: nobody may get these addresses before they are clean.
                let first = start.next_multiple_of(PAGE).max(offset / PAGE * PAGE);
                let last = (end / PAGE * PAGE).min((offset + allocation.cost).next_multiple_of(PAGE));
                self.space.punch(window.start + first, window.start + last);
                drop(ranges);
                driver.machine.release(driver.seat, allocation.device, allocation.cost);
            }
            AllocationKind::Managed | AllocationKind::Host => {
                let length = ordinary_length(allocation.bytes).unwrap_or(0);
                // SAFETY: mapped by `allocate_ordinary` with this length, and taken out of the table by us alone.
                unsafe { libc::munmap(allocation.address as *mut libc::c_void, length) };
            }
            AllocationKind::Registered => {}
        }
    }

    fn enter(
        &self,
        context: &Context,
        address: u64,
        bytes: u64,
        cost: u64,
        kind: AllocationKind,
        flags: u32,
        alias: usize,
    ) -> Arc<Allocation> {
        let made = Arc::new(self.describe(context, address, bytes, cost, kind, flags, alias));
        self.table_mut().insert(address, made.clone());
        self.version.fetch_add(1, Ordering::Release);
        made
    }

    fn describe(
        &self,
        context: &Context,
        address: u64,
        bytes: u64,
        cost: u64,
        kind: AllocationKind,
        flags: u32,
        alias: usize,
    ) -> Allocation {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let Context {
            device,
            ordinal,
            id: context,
            ..
        } = *context;
        Allocation {
            address,
            bytes,
            cost,
            kind,
            device,
            ordinal,
            context,
            flags,
            id,
            alias,
        }
    }

    // ---- finding ----------------------------------------------------------------------------------------------

    /// The live allocation that an address is in.
    pub fn find(&self, address: u64) -> Option<Arc<Allocation>> {
        let table = self.table();
        let (_, last) = table.range(..=address).next_back()?;
        last.contains(address).then(|| last.clone())
    }

    /// Where the driver reaches `bytes` bytes at an address of device, managed or host memory of ours; INVALID_VALUE
    /// unless one live allocation holds all of them.
    #[allow(dead_code)] // used by copies and memory sets
    pub fn resolve(&self, address: u64, bytes: u64) -> Answer<*mut u8> {
        let table = self.table();
        let (_, last) = table.range(..=address).next_back().ok_or(CuResult::INVALID_VALUE)?;
        let offset = address - last.address;
        if offset > last.bytes || bytes > last.bytes - offset {
            return Err(CuResult::INVALID_VALUE);
        }
        Ok(last.reach(address))
    }

    /// As [`resolve`](Self::resolve), but memory that the driver does not know is taken to be the program's own and
    /// reached where it is. INVALID_VALUE for an address in our windows that is not allocated.
    #[allow(dead_code)] // used by copies between addresses of any kind
    pub fn resolve_any(&self, address: u64, bytes: u64) -> Answer<*mut u8> {
        if self.space.offset(address).is_some()
            || self
                .find(address)
                .is_some_and(|found| found.bytes_after(address) >= bytes)
        {
            return self.resolve(address, bytes);
        }
        if address == 0 {
            Err(CuResult::INVALID_VALUE)
        } else {
            Ok(address as *mut u8)
        }
    }

    /// What kernels of a context may reach now.
    #[allow(dead_code)] // used by launches
    pub fn view(&self, context: &Context) -> View {
        let version = self.version.load(Ordering::Acquire);
        let mut pieces = lock(&self.pieces);
        if pieces.0 != version {
            *pieces = (version, Arc::new(self.pieces()));
        }
        let reach = 1 << context.device | context.peers.load(Ordering::Relaxed);
        View::new(pieces.1.clone(), reach)
    }

    fn pieces(&self) -> Vec<Piece> {
        let table = self.table();
        let piece = |allocation: &Arc<Allocation>| Piece {
            region: Region {
                address: allocation.address,
                bytes: allocation.bytes,
                host: allocation.alias as *mut u8,
            },
            owner: match allocation.kind {
                AllocationKind::Device => 1 << allocation.device,
                _ => EVERYBODY,
            },
        };
        table.values().map(piece).collect()
    }

    fn table(&self) -> RwLockReadGuard<'_, BTreeMap<u64, Arc<Allocation>>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn table_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<u64, Arc<Allocation>>> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Allocation {
    fn bytes_after(&self, address: u64) -> u64 {
        self.bytes - (address - self.address)
    }
}

fn ordinary_length(bytes: u64) -> Option<usize> {
    usize::try_from(bytes.checked_next_multiple_of(PAGE)?)
        .ok()
        .filter(|length| *length <= isize::MAX as usize)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
