// SPDX-License-Identifier: Apache-2.0
//! What the driver knows of the machine in this process: its seat there and the devices it shows.
//!
//! Made by the first `cuInit` and never freed. A forked child inherits none of it: a page that the kernel wipes at
//! fork says so, and every entry point asks [`driver`] first, so no lock that another thread held at the fork is ever
//! waited for. What programs make here (contexts, memory, streams) is in the modules of those names.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockWriteGuard};

use partage_abi::types::*;
use partage_machine::faults::Faults;
use partage_machine::machine::faults_of_environment;
use partage_machine::{Device, Machine};

pub mod here;

use here::{Here, Place, Shown};

/// The answer of everything that can fail.
pub type Answer<T = ()> = Result<T, CuResult>;

/// The driver of this process.
pub struct Driver {
    /// Held for writing while the process is in no machine.
    place: RwLock<Place>,
    /// Faults that are switched on.
    pub faults: Arc<Faults>,
    /// The devices that this process sees: `visible[ordinal]` is its number for one.
    pub visible: Vec<usize>,
    /// All devices, by this process's number. Lock after `place`.
    shown: RwLock<Vec<Shown>>,
}

static DRIVER: AtomicPtr<Driver> = AtomicPtr::new(std::ptr::null_mut());
/// A word on a page of its own that reads 1 in the process that made it and 0 in its forked children.
static LIFE: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// The driver, or NOT_INITIALIZED before `cuInit` and in a forked child.
#[inline]
pub fn driver() -> Answer<&'static Driver> {
    let driver = DRIVER.load(Ordering::Acquire);
    if driver.is_null() || is_forked() {
        return Err(CuResult::NOT_INITIALIZED);
    }
    // SAFETY: leaked by `install`.
    Ok(unsafe { &*driver })
}

/// Whether this process is a fork of one that had used the driver.
pub fn is_forked() -> bool {
    let life = LIFE.load(Ordering::Acquire);
    // SAFETY: a page mapped for the life of the process.
    !life.is_null() && unsafe { (*life).load(Ordering::Relaxed) } == 0
}

/// The machine's faults, before `cuInit` too; `None` without a machine.
pub fn faults() -> Option<Arc<Faults>> {
    static FAULTS: OnceLock<Option<Arc<Faults>>> = OnceLock::new();
    if let Ok(driver) = driver() {
        return Some(driver.faults.clone());
    }
    let found = FAULTS.get_or_init(|| faults_of_environment().map(Arc::new));
    found.clone()
}

/// The code that a switched-on fault gives this call instead of carrying it out.
pub fn fault_at(symbol: &str) -> Option<CuResult> {
    driver().ok()?.faults.on_call(symbol).map(CuResult)
}

impl Driver {
    /// The driver over an open machine, showing the devices at the machine indices `visible`.
    pub fn new(machine: Machine, seat: usize, visible: Vec<usize>) -> Self {
        Self {
            faults: machine.faults().clone(),
            visible,
            shown: RwLock::new(here::all_of(&machine)),
            place: RwLock::new(Place { machine, seat }),
        }
    }

    /// Makes this the driver of the process, for good.
    pub fn install(self) -> Answer {
        // Before the driver: whoever sees it must be able to tell a fork.
        LIFE.store(life_page()?, Ordering::Release);
        DRIVER.store(Box::into_raw(Box::new(self)), Ordering::Release);
        Ok(())
    }

    /// The machine. Waits while the process is in none. Precondition: the caller holds no other answer of this.
    pub fn machine(&self) -> Here<'_> {
        Here {
            place: self.place.read().unwrap_or_else(PoisonError::into_inner),
            shown: &self.shown,
        }
    }

    /// The process's place in the machine, to leave it and to come back: others wait as long as this is held.
    pub fn place(&self) -> RwLockWriteGuard<'_, Place> {
        self.place.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// All devices, by this process's number.
    pub fn shown(&self) -> Vec<Shown> {
        self.shown.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The devices are others from now on, as many as before.
    pub fn show(&self, devices: Vec<Shown>) {
        *self.shown.write().unwrap_or_else(PoisonError::into_inner) = devices;
    }

    /// A device by this process's number.
    pub fn at(&self, device: usize) -> Arc<Device> {
        let shown = self.shown.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&shown[device].device)
    }

    /// Where the machine has a device.
    pub fn place_of(&self, device: usize) -> usize {
        self.shown.read().unwrap_or_else(PoisonError::into_inner)[device].place
    }

    /// This process's number for the device at a place of the machine.
    pub fn number_of(&self, place: usize) -> Option<usize> {
        let shown = self.shown.read().unwrap_or_else(PoisonError::into_inner);
        shown.iter().position(|shown| shown.place == place)
    }

    /// Whether a device has fallen off the bus.
    pub fn is_lost(&self, device: usize) -> bool {
        self.faults.is_lost(self.place_of(device))
    }

    /// The device behind an ordinal.
    pub fn device(&self, ordinal: CuDevice) -> Answer<Arc<Device>> {
        let index = usize::try_from(ordinal)
            .ok()
            .and_then(|ordinal| self.visible.get(ordinal));
        index.map(|&index| self.at(index)).ok_or(CuResult::INVALID_DEVICE)
    }
}

fn life_page() -> Answer<*mut AtomicU32> {
    // One page for the life of the process, also when `cuInit` fails and is called again.
    static PAGE: OnceLock<usize> = OnceLock::new();
    let page = *PAGE.get_or_init(|| {
        // SAFETY: a fresh private page; nothing else knows it.
        unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let page = libc::mmap(
                std::ptr::null_mut(),
                4096,
                protection,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if page == libc::MAP_FAILED || libc::madvise(page, 4096, libc::MADV_WIPEONFORK) != 0 {
                return 0;
            }
            (*page.cast::<AtomicU32>()).store(1, Ordering::Relaxed);
            page as usize
        }
    });
    if page == 0 {
        Err(CuResult::OPERATING_SYSTEM)
    } else {
        Ok(page as *mut AtomicU32)
    }
}

/// An answer as the C interface gives it.
pub fn code(answer: Answer) -> CuResult {
    match answer {
        Ok(()) => CuResult::SUCCESS,
        Err(code) => code,
    }
}

/// Stores to a pointer of the program: INVALID_VALUE when it is null.
pub fn store<T>(to: *mut T, value: T) -> Answer {
    if to.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    // SAFETY: not null, and by the contract of the entry point it leads to room for a `T`. The program need not
    // have aligned it.
    unsafe { to.write_unaligned(value) };
    Ok(())
}
