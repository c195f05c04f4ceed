// SPDX-License-Identifier: Apache-2.0
//! The devices that NVML lists for this process: its job's.

use core::sync::atomic::Ordering;

use partage_protocol::message::MAX_DEVICES;
use partage_protocol::page::GrantLine;

use crate::attachment;
use crate::attachment::job::Job;
use crate::guest::errno;
use crate::lazy::foreseen;
use crate::session;
use crate::state::{self, State};

/// This process's state, attached where a broker is to be had. NVML is no use of the GPU: it waits for no admission.
pub fn looked_up() -> Option<&'static State> {
    let state = state::get()?;
    errno::preserving(|| session::ensure(state, true));
    Some(state)
}

/// The devices of this process's job.
#[derive(Clone, Copy)]
pub enum Listed {
    /// It is a client.
    Job(&'static Job),
    /// It belongs to a `run --lazy` and has used no GPU yet: those that it would have.
    Foreseen(&'static [GrantLine]),
}

impl Listed {
    /// The devices in slot order.
    pub fn devices(self) -> &'static [GrantLine] {
        match self {
            Self::Job(job) => job.devices(),
            Self::Foreseen(lines) => lines,
        }
    }

    /// The slot of a device of the job.
    pub fn slot_of(self, uuid: &[u8; 16]) -> Option<usize> {
        self.devices().iter().position(|device| device.uuid() == *uuid)
    }

    /// May this process open the device of a slot?
    fn is_open(self, slot: usize) -> bool {
        match self {
            Self::Job(job) => job.is_open(slot),
            Self::Foreseen(_) => true,
        }
    }
}

/// This process's state, and the devices of its job.
pub type Shared = (&'static State, Listed);

/// What NVML's answers are made of. `None`: NVML shows what it shows.
pub fn shared() -> Option<Shared> {
    let state = looked_up()?;
    if let Some(job) = attachment::of(state).job() {
        return Some((state, Listed::Job(job)));
    }
    if !state.settings().is_lazy {
        return None;
    }
    let foreseen = errno::preserving(|| foreseen::devices(state))?;
    Some((state, Listed::Foreseen(foreseen)))
}

/// The job's slots in the order NVML lists them: those whose device this process may open.
pub fn in_pci_order(job: Listed) -> ([usize; MAX_DEVICES], usize) {
    let mut order = [0; MAX_DEVICES];
    let mut count = 0;
    let open = |(slot, _): &(usize, &_)| job.is_open(*slot);
    for (slot, device) in job.devices().iter().enumerate().take(MAX_DEVICES).filter(open) {
        count += 1;
        // How many come before: fewer than `count`, each once.
        let index = device.index.load(Ordering::Relaxed);
        let rank = job
            .devices()
            .iter()
            .enumerate()
            .filter(|(other, _)| job.is_open(*other))
            .filter(|(other, candidate)| (candidate.index.load(Ordering::Relaxed), *other) < (index, slot))
            .count();
        if let Some(place) = order.get_mut(rank) {
            *place = slot;
        }
    }
    (order, count)
}
