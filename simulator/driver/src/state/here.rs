// SPDX-License-Identifier: Apache-2.0
//! The machine as this process is in it: its seat there, and where its devices are.
//!
//! A process numbers devices as the machine that it came to did, for good: contexts, memory and streams know those
//! numbers only. After a restore the device of a number may be another one, at another place of another machine. The
//! translation is here and nowhere else.
//!
//! While the process is checkpointed it is in no machine: whoever asks for one waits until it is in one again.

use std::fs::File;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use partage_machine::entry_counts::Table;
use partage_machine::events::SharedEvent;
use partage_machine::machine::Shortage;
use partage_machine::ranges::RangeId;
use partage_machine::tickets;
use partage_machine::timeline::Timeline;
use partage_machine::{Device, Error, Machine, Spec};

/// A process's place in a machine.
pub struct Place {
    /// The machine.
    pub machine: Machine,
    /// The seat in its table.
    pub seat: usize,
}

/// A device that this process shows.
#[derive(Clone)]
pub struct Shown {
    /// What it says of itself; its index is this process's number for it.
    pub device: Arc<Device>,
    /// Where the machine has it.
    pub place: usize,
}

/// The devices of a machine as a process numbers them that has just come to it.
pub fn all_of(machine: &Machine) -> Vec<Shown> {
    let show = |device: &Device| Shown {
        device: Arc::new(device.clone()),
        place: device.index,
    };
    machine.devices().iter().map(show).collect()
}

/// The machine, which the process does not leave as long as this lives. Devices are the process's numbers.
pub struct Here<'a> {
    pub(super) place: RwLockReadGuard<'a, Place>,
    pub(super) shown: &'a RwLock<Vec<Shown>>,
}

impl Here<'_> {
    fn at(&self, device: usize) -> usize {
        self.shown.read().unwrap_or_else(PoisonError::into_inner)[device].place
    }

    /// Makes an event for other processes. Fails with the operating system's error.
    pub fn make_event(&self) -> std::io::Result<SharedEvent> {
        SharedEvent::make(self.place.machine.folder(), self.place.machine.own_id())
    }

    /// Opens the event of another process by its number. `None` when it is gone.
    pub fn open_event(&self, id: u64) -> Option<SharedEvent> {
        SharedEvent::open(self.place.machine.folder(), self.place.machine.own_id(), id)
    }

    /// What the machine was made from.
    pub fn spec(&self) -> &Spec {
        self.place.machine.spec()
    }

    /// Where new files for memory are made.
    pub fn create_file(&self, bytes: u64) -> std::io::Result<File> {
        partage_machine::backing::create(&self.place.machine.folder().join("memory"), bytes)
    }

    /// Which seat of the machine's table is this process's.
    pub fn own_place(&self) -> usize {
        self.place.seat
    }

    /// By which the machine's tables know this process.
    pub fn own_ticket(&self) -> u64 {
        self.place.machine.own_id().ticket
    }

    /// The number of the process that has a ticket of the machine; `None` when it has ended, or cannot be seen.
    /// Precondition: it is not this process's.
    pub fn holder(&self, ticket: u64) -> Option<u32> {
        tickets::holder(self.place.machine.folder(), ticket).filter(|pid| *pid != 0)
    }

    /// The version that `cuDriverGetVersion` answers.
    pub fn driver_version(&self) -> i32 {
        self.place.machine.driver_version().0
    }

    /// Opens the timelines of the machine's devices.
    pub fn timeline(&self) -> Result<Timeline, Error> {
        self.place.machine.timeline()
    }

    /// See [`Machine::create_backing`].
    pub fn create_backing(&self, device: usize, bytes: u64) -> Result<File, Error> {
        self.place
            .machine
            .create_backing(self.place.seat, self.at(device), bytes)
    }

    /// See [`Machine::reserve`].
    pub fn reserve(&self, device: usize, bytes: u64) -> Result<(), Shortage> {
        self.place.machine.reserve(self.place.seat, self.at(device), bytes)
    }

    /// See [`Machine::release`].
    pub fn release(&self, device: usize, bytes: u64) {
        self.place.machine.release(self.place.seat, self.at(device), bytes);
    }

    /// See [`Machine::share`].
    pub fn share(&self, device: usize, bytes: u64) -> Option<RangeId> {
        self.place.machine.share(self.place.seat, self.at(device), bytes)
    }

    /// See [`Machine::join_or_adopt`].
    pub fn join_or_adopt(
        &self,
        device: usize,
        bytes: u64,
        read: impl FnOnce() -> RangeId,
        write: impl FnOnce(RangeId),
    ) -> Result<RangeId, Shortage> {
        let place = &self.place;
        place
            .machine
            .join_or_adopt(place.seat, self.at(device), bytes, read, write)
    }

    /// See [`Machine::join`].
    pub fn join(&self, id: RangeId, of: usize) -> bool {
        self.place.machine.join(self.place.seat, id, of)
    }

    /// See [`Machine::let_go`].
    pub fn let_go(&self, id: RangeId) -> bool {
        self.place.machine.let_go(self.place.seat, id)
    }

    /// See [`Machine::is_held`].
    pub fn is_held(&self, id: RangeId) -> bool {
        self.place.machine.is_held(id)
    }

    /// See [`Machine::open_context`].
    pub fn open_context(&self, device: usize) -> Result<(), Shortage> {
        self.place.machine.open_context(self.place.seat, self.at(device))
    }

    /// See [`Machine::close_context`].
    pub fn close_context(&self, device: usize) {
        self.place.machine.close_context(self.place.seat, self.at(device));
    }

    /// See [`Machine::free`].
    pub fn free(&self, device: usize) -> u64 {
        self.place.machine.free(self.at(device))
    }

    /// See [`Machine::host_available`].
    pub fn host_available(&self) -> Option<u64> {
        self.place.machine.host_available()
    }

    /// See [`Machine::count_unbuilt`].
    pub fn count_unbuilt(&self, table: Table, row: usize, symbol: &str) {
        self.place.machine.count_unbuilt(table, row, symbol);
    }
}
