// SPDX-License-Identifier: Apache-2.0
//! The library's state in this process: how often it was initialised, and the machine it looks at.
//!
//! Without a lock, so that a child forked at any moment can go on using it. Never freed: other threads may be
//! reading, and programs call us after the destructors of static objects.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use partage_abi::nvml::*;
use partage_machine::machine::Books;
use partage_machine::{Device, Machine};

/// The answer of everything that can fail.
pub type Answer<T = ()> = Result<T, NvmlReturn>;

/// What an initialised library looks at: nothing of the machine stays open or mapped between calls, so a process that
/// is checkpointed has nothing of it.
pub struct Nvml {
    /// Tables of the simulated machine.
    pub books: Books,
    /// Those of its devices that this process can open, in PCI order.
    pub devices: Vec<Device>,
    /// The version that `cuDriverGetVersion` answers, and the driver's own version text.
    pub driver_version: (i32, &'static str),
}

static NVML: AtomicPtr<Nvml> = AtomicPtr::new(std::ptr::null_mut());
static INITIALISATIONS: AtomicU32 = AtomicU32::new(0);

/// Handles are numbers, not addresses: this, plus 16 for each device, and 8 more for its MIG instance.
const FIRST_HANDLE: usize = 0x4e56_4d4c_0000;
const HANDLE_STEP: usize = 16;
const OF_INSTANCE: usize = 8;

/// Opens the machine, or counts one more user of it. DRIVER_NOT_LOADED when there is none.
pub fn initialise() -> Answer {
    if INITIALISATIONS.load(Ordering::Acquire) == 0 {
        let machine = match Machine::from_environment() {
            None => return Err(NvmlReturn::DRIVER_NOT_LOADED),
            Some(Err(error)) => {
                eprintln!("partage sim: no device: {error}");
                return Err(NvmlReturn::DRIVER_NOT_LOADED);
            }
            Some(Ok(machine)) => machine,
        };
        let nvml = Nvml {
            books: machine.books(),
            devices: machine
                .reachable()
                .into_iter()
                .filter_map(|place| machine.devices().get(place).cloned())
                .collect(),
            driver_version: machine.driver_version(),
        };
        NVML.store(Box::into_raw(Box::new(nvml)), Ordering::Release);
    }
    INITIALISATIONS.fetch_add(1, Ordering::AcqRel);
    Ok(())
}

/// Takes one user away; UNINITIALIZED when there is none.
pub fn shut_down() -> Answer {
    let taken = INITIALISATIONS.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
    taken.map(drop).map_err(|_| NvmlReturn::UNINITIALIZED)
}

/// The initialised library.
pub fn nvml() -> Answer<&'static Nvml> {
    let nvml = NVML.load(Ordering::Acquire);
    if nvml.is_null() || INITIALISATIONS.load(Ordering::Acquire) == 0 {
        return Err(NvmlReturn::UNINITIALIZED);
    }
    // SAFETY: leaked by `initialise`.
    Ok(unsafe { &*nvml })
}

/// The code that a switched-on fault gives this call instead of carrying it out.
pub fn fault_at(symbol: &str) -> Option<NvmlReturn> {
    nvml().ok()?.books.faults().on_call(symbol).map(NvmlReturn)
}

impl Nvml {
    /// The number that this process counts a device by.
    pub fn place_of(&self, device: &Device) -> usize {
        let place = self.devices.iter().position(|other| other.index == device.index);
        place.unwrap_or(device.index)
    }

    /// The handle of a device.
    pub fn handle(&self, index: usize) -> NvmlDevice {
        NvmlDevice((FIRST_HANDLE + index * HANDLE_STEP) as *mut c_void)
    }
}

/// Is this the handle of a MIG instance, not of its card?
pub fn is_instance(handle: NvmlDevice) -> bool {
    (handle.0 as usize).wrapping_sub(FIRST_HANDLE) % HANDLE_STEP == OF_INSTANCE
}

/// The handle of a card's instance.
pub fn instance_of(card: NvmlDevice) -> NvmlDevice {
    NvmlDevice((card.0 as usize | OF_INSTANCE) as *mut c_void)
}

/// The handle of an instance's card; a card's is its own.
pub fn card_of(handle: NvmlDevice) -> NvmlDevice {
    NvmlDevice((handle.0 as usize & !OF_INSTANCE) as *mut c_void)
}

/// The device behind a handle: INVALID_ARGUMENT for one that was made up, GPU_IS_LOST for one that fell off the bus.
pub fn device(handle: NvmlDevice) -> Answer<&'static Device> {
    let nvml = nvml()?;
    let offset = (handle.0 as usize).wrapping_sub(FIRST_HANDLE);
    let device = nvml
        .devices
        .get(offset / HANDLE_STEP)
        .filter(|device| match offset % HANDLE_STEP {
            0 => true,
            OF_INSTANCE => device.instance.is_some(),
            _ => false,
        });
    let device = device.ok_or(NvmlReturn::INVALID_ARGUMENT)?;
    if nvml.books.faults().is_lost(device.index) {
        return Err(NvmlReturn::GPU_IS_LOST);
    }
    Ok(device)
}

/// The answer to a question that the machine's tables could not be asked: UNKNOWN, for the machine is gone.
pub fn gone(_: std::io::Error) -> NvmlReturn {
    NvmlReturn::UNKNOWN
}

/// An answer as the C interface gives it.
pub fn code(answer: Answer) -> NvmlReturn {
    match answer {
        Ok(()) => NvmlReturn::SUCCESS,
        Err(code) => code,
    }
}

/// Stores to a pointer of the program: INVALID_ARGUMENT when it is null.
pub fn store<T>(to: *mut T, value: T) -> Answer {
    if to.is_null() {
        return Err(NvmlReturn::INVALID_ARGUMENT);
    }
    // SAFETY: not null, and by the contract of the entry point it leads to room for a `T`, perhaps not aligned.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// Writes a C string into `length` bytes of the program; INSUFFICIENT_SIZE, and nothing written, when it does not fit.
pub fn store_text(to: *mut c_char, length: c_uint, text: &str) -> Answer {
    if to.is_null() {
        return Err(NvmlReturn::INVALID_ARGUMENT);
    }
    if text.len() >= length as usize {
        return Err(NvmlReturn::INSUFFICIENT_SIZE);
    }
    // SAFETY: not null, and by the contract of the entry point `to` leads to `length` bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), text.len());
        to.add(text.len()).write(0);
    }
    Ok(())
}
