// SPDX-License-Identifier: Apache-2.0
//! Initialization and version. `cuInit` opens the machine that `PARTAGE_SIM_DIR` names; without one there is no
//! device.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use partage_abi::types::*;
use partage_machine::machine::folder_of_environment;
use partage_machine::{Machine, Spec};

use crate::checkpoint::thread;
use crate::executor::pool::are_complete;
use crate::memory::{ask_for_completion, install};
use crate::state::{Answer, Driver, code, driver, faults, is_forked, store};
use crate::visible;

pub fn cuInit(flags: c_uint) -> CuResult {
    code(initialise(flags))
}

pub fn cuDriverGetVersion(driver_version: *mut c_int) -> CuResult {
    static VERSION: OnceLock<c_int> = OnceLock::new();
    let version = VERSION.get_or_init(|| {
        // Without a machine the library still has a version: that of the default machine.
        let spec = folder_of_environment().and_then(|folder| Spec::read(&folder).ok());
        let version = spec.unwrap_or_default().driver_version();
        version.map_or(0, |(version, _)| version)
    });
    let claimed = faults().and_then(|faults| faults.version());
    code(store(driver_version, claimed.unwrap_or(*version)))
}

fn initialise(flags: c_uint) -> Answer {
    if flags != 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    // A process forked from one that had used the driver can never use it.
    if is_forked() {
        return Err(CuResult::NOT_INITIALIZED);
    }
    if driver().is_ok() {
        return Ok(());
    }
    let _turn = Turn::wait()?;
    if driver().is_ok() {
        return Ok(());
    }
    let machine = match Machine::from_environment() {
        None => return Err(CuResult::NO_DEVICE),
        Some(Err(error)) => {
            eprintln!("partage sim: no device: {error}");
            return Err(CuResult::NO_DEVICE);
        }
        Some(Ok(machine)) => machine,
    };
    let order = visible::order(
        machine.devices(),
        &machine.reachable(),
        std::env::var("CUDA_DEVICE_ORDER").ok().as_deref(),
    );
    let shown = match machine.faults().shown() {
        Some(devices) => devices.map(Into::into),
        None => std::env::var_os("CUDA_VISIBLE_DEVICES"),
    };
    let uuids: Vec<String> = machine
        .devices()
        .iter()
        .map(|device| device.instance_text().unwrap_or_else(|| device.uuid_text()))
        .collect();
    let visible = visible::select(
        &order,
        &uuids,
        shown.as_deref().map(|value| value.to_string_lossy()).as_deref(),
    );
    if visible.is_empty() {
        return Err(CuResult::NO_DEVICE);
    }
    if let Some(failure) = machine.faults().on_call("cuInit") {
        return Err(CuResult(failure));
    }
    let seat = machine.take_seat().map_err(|error| {
        eprintln!("partage sim: {error}");
        CuResult::OPERATING_SYSTEM
    })?;
    // Before the driver: whoever sees it must find the memory.
    ask_for_completion(are_complete);
    install(machine.devices(), machine.spec().bounds)?;
    thread::start()?;
    Driver::new(machine, seat, visible).install()
}

/// The right to initialise. Not a mutex: a child forked while another thread initialises must not wait for a thread
/// that it does not have.
struct Turn;

static INITIALISER: AtomicU32 = AtomicU32::new(0);

impl Turn {
    fn wait() -> Answer<Self> {
        let here = std::process::id();
        loop {
            match INITIALISER.compare_exchange(0, here, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(Self),
                Err(process) if process != here => return Err(CuResult::NOT_INITIALIZED),
                Err(_) => std::thread::sleep(Duration::from_micros(100)),
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        INITIALISER.store(0, Ordering::Release);
    }
}
