// SPDX-License-Identifier: Apache-2.0
//! How a locked process leaves the machine, and how it enters the one that there is when it comes back.
//!
//! It leaves with its memory in private memory, without a place in any table, file or list of the machine; only the
//! libraries are still mapped. It comes back under the process id and start time of now, to a machine that may have
//! been made anew, with the same addresses and handles.

use std::sync::{Arc, RwLockWriteGuard};

use partage_abi::types::CuResult;
use partage_machine::faults::CheckpointFault;
use partage_machine::machine::{Shortage, folder_of_environment};
use partage_machine::{Device, Machine};

use super::map::{Known, Pair, places};
use crate::context;
use crate::event;
use crate::executor::lanes;
use crate::memory::{self, memory};
use crate::state::here::{Place, Shown};
use crate::state::{Answer, Driver};

/// The level at which managed memory may cost the contexts, and what did not fit stays taken.
const LEVEL_OF_REGRESSIONS: u32 = 595;

/// A process that has left.
pub struct Away {
    driver: &'static Driver,
    /// Keeps everybody from the machine.
    place: RwLockWriteGuard<'static, Place>,
    memory: memory::Away,
    /// By device: bytes, contexts included, and contexts.
    held: Vec<(u64, u32)>,
    /// By device: what time it was.
    times: Vec<u64>,
    has_imports: bool,
}

/// Why a process is still away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The pairs, or its imported memory and events: INVALID_VALUE.
    Map,
    /// A device has too little memory free: OUT_OF_MEMORY.
    Room,
    /// The machine is not there, or its files cannot be written: OPERATING_SYSTEM.
    Machine,
    /// Its addresses could not be mapped, and some are lost: UNKNOWN.
    Addresses,
}

/// Leaves the machine. Precondition: no call that may change a device is under way or begins, and nothing that was
/// submitted is left. NOT_SUPPORTED for managed memory, OUT_OF_MEMORY for a MIG instance, that or OPERATING_SYSTEM when
/// the memory cannot be taken along; the process is then as it was.
pub fn leave(driver: &'static Driver) -> Answer<Away> {
    let memory = memory()?;
    if memory.has_managed() {
        let level = driver.machine().spec().driver;
        if level == LEVEL_OF_REGRESSIONS && driver.faults.has(CheckpointFault::Spoils) {
            context::all()
                .iter()
                .for_each(|context| context.stick(CuResult::LAUNCH_FAILED));
        }
        return Err(CuResult::NOT_SUPPORTED);
    }
    // Measured on an A100 with a driver of 580 (cuda-checkpoint's issue 42).
    if driver
        .visible
        .iter()
        .any(|&number| driver.at(number).instance.is_some())
    {
        return Err(CuResult::OUT_OF_MEMORY);
    }
    let mut place = driver.place();
    let has_imports = memory.has_imports() || event::has_opened();
    let taken = memory.take_off()?;
    event::keep_all_to_itself();
    driver.faults.on_operation("checkpoint");
    let times = lanes::leave(taken.alone.len());
    let held = taken.alone.iter().enumerate().map(|(device, alone)| {
        let (bytes, contexts) = place.machine.held(place.seat, driver.place_of(device));
        (bytes + alone, contexts)
    });
    let held: Vec<(u64, u32)> = held.collect();
    let seat = place.seat;
    let taken_along = in_host(driver, &place.machine, &held);
    if let Err(error) = place.machine.leave(seat, &taken_along) {
        // It is out of the books in any case.
        eprintln!("partage sim: a checkpointed process keeps a mapping of the machine's tables: {error}");
    }
    Ok(Away {
        driver,
        place,
        memory: taken,
        held,
        times,
        has_imports,
    })
}

/// What a process takes along into the host's memory, by the machine's device. Contexts end.
fn in_host(driver: &Driver, machine: &Machine, held: &[(u64, u32)]) -> Vec<u64> {
    let mut taken = vec![0; machine.devices().len()];
    for (index, (bytes, contexts)) in held.iter().enumerate() {
        let place = driver.place_of(index);
        if let (Some(sum), Some(device)) = (taken.get_mut(place), machine.devices().get(place)) {
            *sum += bytes.saturating_sub(device.context_bytes * u64::from(*contexts));
        }
    }
    taken
}

impl Away {
    /// Bytes that it took along.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes
    }

    /// Enters the machine of now, on the devices that `pairs` say. When it is refused the process is still away.
    pub fn come_back(&mut self, pairs: &[Pair]) -> Result<(), Refusal> {
        let driver = self.driver;
        let folder = folder_of_environment().ok_or(Refusal::Machine)?;
        let machine = Machine::open_again(&folder, Arc::clone(&driver.faults)).map_err(|error| {
            eprintln!("partage sim: no machine to come back to: {error}");
            Refusal::Machine
        })?;
        if self.has_imports || driver.faults.has(CheckpointFault::Imports) {
            return Err(Refusal::Map);
        }
        let before = driver.shown();
        let shown = self.targets(&before, &machine, pairs).ok_or(Refusal::Map)?;
        let seat = machine.take_seat().map_err(|_| Refusal::Machine)?;
        let keeps = machine.spec().driver == LEVEL_OF_REGRESSIONS && !driver.faults.has(CheckpointFault::Heals);
        if let Err((place, shortage)) = self.hold(&before, &shown, &machine, seat) {
            if keeps {
                // What it got so far it keeps until it ends, the rest of the full device included.
                if let Shortage::Device(full) = shortage {
                    let _ = machine.reserve(seat, place, full.free);
                }
                *self.place = Place { machine, seat };
            } else {
                machine.give_up(seat, &in_host(driver, &machine, &self.held));
            }
            return Err(Refusal::Room);
        }
        driver.faults.on_operation("restore");
        *self.place = Place { machine, seat };
        driver.show(shown);
        self.enter().inspect_err(|_| {
            let taken_along = in_host(driver, &self.place.machine, &self.held);
            let _ = self.place.machine.leave(seat, &taken_along);
            driver.show(before);
        })
    }

    /// Puts everything on the devices. Precondition: the process has its seat, and the devices are the new ones.
    fn enter(&mut self) -> Result<(), Refusal> {
        let driver = self.driver;
        let machine = &self.place.machine;
        lanes::come_back(driver, machine, &self.times).map_err(|_| Refusal::Machine)?;
        let memory = memory().map_err(|_| Refusal::Machine)?;
        memory.put_on(driver, &self.memory, &self.place).map_err(|code| {
            lanes::leave(self.times.len());
            match code {
                CuResult::OPERATING_SYSTEM => Refusal::Machine,
                _ => Refusal::Addresses,
            }
        })
    }

    /// The devices as this process numbers them, after the move that `pairs` say.
    fn targets(&self, before: &[Shown], machine: &Machine, pairs: &[Pair]) -> Option<Vec<Shown>> {
        let old: Vec<Known<'_>> = before.iter().map(|shown| Known::of(&shown.device)).collect();
        let now: Vec<Known<'_>> = machine.devices().iter().map(Known::of).collect();
        let is_masked = self.driver.visible.len() < before.len();
        let places = places(&old, &now, pairs, machine.spec().map, is_masked)?;
        let is_stale = self.driver.faults.has(CheckpointFault::Stale);
        let show = |(index, place): (usize, usize)| {
            let mut device = Device {
                index,
                ..machine.devices()[place].clone()
            };
            if is_stale {
                device.pci_bus = before[index].device.pci_bus;
            }
            Shown {
                device: Arc::new(device),
                place,
            }
        };
        Some(places.into_iter().enumerate().map(show).collect())
    }

    /// Reserves what the process held; what a context costs may differ between devices. Fails with the first place that
    /// has not enough.
    fn hold(&self, before: &[Shown], shown: &[Shown], machine: &Machine, seat: usize) -> Result<(), (usize, Shortage)> {
        for (index, &(bytes, contexts)) in self.held.iter().enumerate() {
            let cost = |of: &Shown| of.device.context_bytes * u64::from(contexts);
            let bytes = bytes.saturating_sub(cost(&before[index])) + cost(&shown[index]);
            let place = shown[index].place;
            let held = machine.hold_again(seat, place, bytes, contexts);
            held.map_err(|shortage| (place, shortage))?;
        }
        Ok(())
    }
}
