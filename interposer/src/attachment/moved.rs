// SPDX-License-Identifier: Apache-2.0
//! What the broker's page says of the job's devices since the job moved.

use core::sync::atomic::Ordering;

use partage_protocol::message::{Devices, PCI_BYTES};
use partage_protocol::page::GrantLine;

use crate::state::State;

/// Which of its placements the broker's page shows.
pub fn placement(state: &State) -> u32 {
    let page = super::of(state).broker_page();
    page.map_or(0, |page| page.head.placement.load(Ordering::Acquire))
}

/// What was learnt before a move, as the broker's page has it now: a broker may be met before the next call learns.
pub fn follow(state: &State, message: &mut Devices) {
    let Some(job) = super::of(state).job() else { return };
    let told = message.uuids.iter_mut().zip(&mut message.pci);
    for ((uuid, pci), slot) in told.zip(&super::of(state).ordinals.slots).take(message.count as usize) {
        let slot = usize::try_from(slot.load(Ordering::Relaxed)).ok();
        let now = slot.and_then(|slot| job.devices().get(slot)).map(GrantLine::uuid);
        if let Some(now) = now.filter(|now| *now != *uuid) {
            *uuid = now;
            *pci = [0; PCI_BYTES];
        }
    }
}
