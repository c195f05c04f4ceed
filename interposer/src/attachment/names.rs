// SPDX-License-Identifier: Apache-2.0
//! The names of the job's devices, and the sentence about a device that the driver shows and that is not the job's.

use core::sync::atomic::Ordering;

use partage_protocol::message::MAX_DEVICES;

use crate::attachment::job::Job;
use crate::attachment::ordinals::FOREIGN;
use crate::guest::text::{self, Text};
use crate::note;
use crate::state::State;

/// Room for the names of sixteen devices.
pub type List = Text<2048>;

/// The job's devices that this process may open, as far as masking needs them: UUID and kind, in job order.
pub struct Names {
    uuids: [[u8; 16]; MAX_DEVICES],
    mig: u32,
    count: usize,
    /// What the program's variable calls each; none for all: its place here.
    numbers: Option<[u32; MAX_DEVICES]>,
}

impl Names {
    /// How many devices.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Are there MIG instances among them?
    pub fn has_mig(&self) -> bool {
        self.mig != 0
    }

    /// From the broker, else from the environment; none when nobody said.
    pub fn of_job(state: &State) -> Option<Self> {
        let settings = state.settings();
        let mut names = Self {
            uuids: settings.devices,
            mig: settings.mig,
            count: settings.device_count,
            numbers: None,
        };
        // A process that outlived its job is a client of the default one, which has every device: what the job had
        // still bounds it, because the environment may only lower.
        let outlived = |job: &Job| job.is_default && settings.device_count > 0;
        if let Some(job) = super::of(state).job().filter(|job| !outlived(job)) {
            (names.count, names.mig) = (0, 0);
            // What came by `run` had the variable taken away: what it has was set inside. An engine's process has its
            // job's token too, and of its devices alone the broker tells numbers.
            let is_of_run = settings.has_token && job.is_default;
            let mut numbers = (!is_of_run).then_some([u32::MAX; MAX_DEVICES]);
            for (slot, device) in job.devices().iter().enumerate() {
                // The driver ends a list at a device that it cannot open.
                let Some(to) = names.uuids.get_mut(names.count).filter(|_| job.is_open(slot)) else {
                    continue;
                };
                *to = device.uuid();
                names.mig |= u32::from(device.is_mig()) << (names.count & 31);
                if let Some(place) = numbers.as_mut().and_then(|numbers| numbers.get_mut(names.count)) {
                    *place = device.number().unwrap_or(u32::MAX);
                }
                names.count += 1;
            }
            let is_numbered = |numbers: &[u32; MAX_DEVICES]| numbers.iter().any(|number| *number != u32::MAX);
            names.numbers = numbers.filter(is_numbered);
        }
        (names.count > 0).then_some(names)
    }

    /// The same, called by their places among the job's.
    pub fn in_job(&self) -> Self {
        Self { numbers: None, ..*self }
    }

    /// Does the program's variable count the machine's devices, of which the job has some?
    pub fn are_of_machine(&self) -> bool {
        self.numbers.is_some()
    }

    /// The device that the program's variable calls so.
    pub fn numbered(&self, number: u64) -> Option<usize> {
        match &self.numbers {
            None => usize::try_from(number).ok(),
            Some(numbers) => numbers
                .iter()
                .take(self.count)
                .position(|one| u64::from(*one) == number),
        }
    }

    /// Adds one device's name to a list. `false`: there is no such device.
    pub fn write(&self, index: usize, list: &mut List) -> bool {
        let Some(uuid) = self.uuids.get(index).filter(|_| index < self.count) else {
            return false;
        };
        if !list.is_empty() {
            list.push(",");
        }
        text::push_uuid(list, uuid, self.mig >> (index & 31) & 1 != 0);
        true
    }

    /// The one device that a full or abbreviated name means.
    pub fn named(&self, name: &[u8]) -> Option<usize> {
        let mut found = None;
        for index in 0..self.count {
            let mut full = List::new();
            self.write(index, &mut full);
            if full
                .as_bytes()
                .get(..name.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(name))
            {
                if found.is_some() {
                    return None;
                }
                found = Some(index);
            }
        }
        found
    }
}

/// Says once, on standard error too, which device the driver shows that is not the job's.
pub fn tell_foreign(state: &State) {
    let known = super::of(state).ordinals.known.load(Ordering::Acquire) as usize;
    let slots = || super::of(state).ordinals.slots.iter().take(known.saturating_sub(1));
    let is_foreign = |slot: &core::sync::atomic::AtomicI32| slot.load(Ordering::Relaxed) == FOREIGN;
    let Some(ordinal) = slots().position(is_foreign) else {
        return;
    };
    if super::of(state).ordinals.has_told_foreign.swap(true, Ordering::Relaxed) {
        return;
    }
    let mut list = List::new();
    if let Some(names) = Names::of_job(state) {
        for index in 0..names.count {
            names.write(index, &mut list);
        }
    }
    let mut line = note::Line::new();
    line.push("partage: the driver shows ");
    text::push_uuid(&mut line, &super::of(state).ordinals.uuid(ordinal), false);
    line.push(", and this job was given ").push(list.as_bytes());
    line.push(if slots().all(is_foreign) {
        ": it ignored CUDA_VISIBLE_DEVICES; cuInit answers 100, no context can be made"
    } else {
        ": no context can be made on a device that is not the job's (code 101)"
    });
    note::write(state, note::line().push(line.as_bytes()));
    if state.settings().log.as_bytes() != b"stderr" {
        note::warn(state, &mut line);
    }
}
