// SPDX-License-Identifier: Apache-2.0
//! Where device memory lies: the window of each device with the file behind it, and the window of the addresses that
//! programs manage themselves.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::FromRawFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use partage_abi::types::CuResult;
use partage_machine::Device;
use partage_machine::backing::{Kept, out_of_the_way};

use super::lock::lock;
use super::ranges::Ranges;
use super::space::{LARGE_PAGE, Space};
use crate::state::{Answer, Driver, driver};

/// Addresses and costs are multiples of this.
const GRANULE: u64 = 512;
const PAGE: u64 = 4096;

/// The windows of this process.
#[derive(Debug)]
pub struct Windows {
    /// Their addresses.
    pub space: Space,
    /// Free parts of each device's window; offsets in the window are offsets in its file.
    ranges: Vec<Mutex<Ranges>>,
    /// The file behind each device, made when it is first used.
    backing: Vec<Mutex<Option<Arc<Kept<File>>>>>,
    /// What programs did with the window that they manage.
    pub(super) reservations: Mutex<Reservations>,
}

/// The address ranges that programs hold: start to length, as offsets in the managed window.
#[derive(Debug)]
pub struct Reservations {
    pub(super) free: Ranges,
    pub(super) held: BTreeMap<u64, u64>,
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
    pub fn covers(&self, offset: u64, bytes: u64) -> bool {
        let found = self.held.range(..=offset).next_back();
        found.is_some_and(|(start, length)| offset + bytes <= start + length)
    }
}

static WINDOWS: OnceLock<Windows> = OnceLock::new();

/// The windows of this process.
pub fn windows() -> Answer<&'static Windows> {
    driver()?;
    WINDOWS.get().ok_or(CuResult::NOT_INITIALIZED)
}

impl Windows {
    /// Reserves addresses for the memory of these devices, once for the process.
    pub fn reserve(devices: &[Device]) -> Answer<&'static Self> {
        if let Some(windows) = WINDOWS.get() {
            return Ok(windows);
        }
        let space = Space::reserve(devices)?;
        let ranges = (0..devices.len())
            .map(|device| Mutex::new(Ranges::new(space.window(device).bytes)))
            .collect();
        let reservations = Mutex::new(Reservations::new(space.managed_window().bytes));
        Ok(WINDOWS.get_or_init(|| Self {
            space,
            ranges,
            backing: devices.iter().map(|_| Mutex::default()).collect(),
            reservations,
        }))
    }

    /// Makes a device's memory reachable, if it is not yet, and gives the file behind it.
    pub fn open_device(&self, driver: &Driver, device: usize) -> Answer<Arc<Kept<File>>> {
        let mut backing = lock(&self.backing[device]);
        if let Some(file) = &*backing {
            return Ok(Arc::clone(file));
        }
        let window = self.space.window(device);
        let file = driver
            .machine()
            .create_backing(device, window.bytes)
            .map_err(|_| CuResult::OPERATING_SYSTEM)?;
        self.space.map(window.start, &file, 0, window.bytes)?;
        let file = Arc::new(Kept::new(file));
        *backing = Some(Arc::clone(&file));
        Ok(file)
    }

    /// The file behind a device, if it was ever used: to be taken away, or to be another one.
    pub(super) fn backing(&self, device: usize) -> MutexGuard<'_, Option<Arc<Kept<File>>>> {
        lock(&self.backing[device])
    }

    /// How many devices there are.
    pub(super) fn devices(&self) -> usize {
        self.backing.len()
    }

    /// A place in a device's window that others held is free again, and clean.
    pub(super) fn forget_place(&self, device: usize, offset: u64, cost: u64) {
        lock(&self.ranges[device]).give(offset, cost);
    }

    /// Where a visible address is in a device's window.
    pub(super) fn window_offset(&self, device: usize, address: u64) -> u64 {
        address - self.space.visible(self.space.window(device).start)
    }

    /// Where the driver reaches the byte at a visible address.
    pub(super) fn alias_of(&self, address: u64) -> Answer<usize> {
        let offset = self.space.offset(address).ok_or(CuResult::INVALID_VALUE)?;
        Ok(self.space.alias(offset) as usize)
    }

    /// Takes addresses of the managed window beside what programs reserve there. Answers where they are in the space.
    pub(super) fn take_managed(&self, bytes: u64) -> Answer<u64> {
        let offset = lock(&self.reservations).free.take(bytes, LARGE_PAGE);
        Ok(self.space.managed_window().start + offset.ok_or(CuResult::OUT_OF_MEMORY)?)
    }

    /// Gives such addresses back; nothing is reached there any more.
    pub(super) fn give_managed(&self, place: u64, bytes: u64) {
        self.space.unmap(place, bytes);
        let offset = place - self.space.managed_window().start;
        lock(&self.reservations).free.give(offset, bytes);
    }

    /// Reserves `cost` bytes of a device and finds a place for them in its window.
    pub(super) fn try_physical(&self, driver: &Driver, device: usize, cost: u64) -> Answer<u64> {
        if cost > driver.at(device).memory {
            return Err(CuResult::OUT_OF_MEMORY);
        }
        driver
            .machine()
            .reserve(device, cost)
            .map_err(|_| CuResult::OUT_OF_MEMORY)?;
        let align = if cost < LARGE_PAGE { GRANULE } else { LARGE_PAGE };
        lock(&self.ranges[device]).take(cost, align).ok_or_else(|| {
            driver.machine().release(device, cost);
            CuResult::OUT_OF_MEMORY
        })
    }

    /// Gives a place in a device's window back, clean, with the memory it cost.
    pub(super) fn give_physical(&self, driver: &Driver, device: usize, offset: u64, cost: u64) {
        self.give_place(device, offset, cost);
        driver.machine().release(device, cost);
    }

    /// Gives a place in a device's window back, clean.
    pub(super) fn give_place(&self, device: usize, offset: u64, cost: u64) {
        let window = self.space.window(device);
        let mut ranges = lock(&self.ranges[device]);
        let (start, end) = ranges.give(offset, cost);
        // Whole pages that are free now and were not before: small neighbours may still use the edges. Under the
        // lock, because nobody may get these addresses before they are clean.
        let first = start.next_multiple_of(PAGE).max(offset / PAGE * PAGE);
        let last = (end / PAGE * PAGE).min((offset + cost).next_multiple_of(PAGE));
        self.space.punch(window.start + first, window.start + last);
    }
}

/// What an allocation of so many bytes costs. OUT_OF_MEMORY when no device could hold it.
pub(super) fn cost(bytes: u64) -> Answer<u64> {
    bytes.checked_next_multiple_of(GRANULE).ok_or(CuResult::OUT_OF_MEMORY)
}

/// A file in the host's memory, without a name.
pub(super) fn host_file(bytes: u64) -> Option<File> {
    // SAFETY: makes a descriptor; the name is a C string.
    let made = unsafe { libc::memfd_create(c"partage-sim-host".as_ptr(), libc::MFD_CLOEXEC) };
    if made < 0 {
        return None;
    }
    // SAFETY: just made, owned by nobody else.
    let file = out_of_the_way(unsafe { File::from_raw_fd(made) });
    file.set_len(bytes).ok()?;
    Some(file)
}
