// SPDX-License-Identifier: Apache-2.0
//! The devices that NVML lists for this process: its job's.

use core::sync::atomic::Ordering;

use partage_protocol::message::MAX_DEVICES;

use crate::attachment::job::Job;
use crate::guest::errno;
use crate::session;
use crate::state::{self, State};

/// This process's state, attached where a broker is to be had. NVML is no use of the GPU: it waits for no admission.
pub fn looked_up() -> Option<&'static State> {
    let state = state::get()?;
    errno::preserving(|| session::ensure(state, true));
    Some(state)
}

/// This process's state and its job.
pub type Shared = (&'static State, &'static Job);

/// What NVML's answers are made of. `None`: NVML shows what it shows.
pub fn shared() -> Option<Shared> {
    let state = looked_up()?;
    Some((state, state.job()?))
}

/// The job's slots in the order NVML lists them: those whose device this process may open.
pub fn in_pci_order(job: &Job) -> ([usize; MAX_DEVICES], usize) {
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
