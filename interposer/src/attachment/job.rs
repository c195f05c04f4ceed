// SPDX-License-Identifier: Apache-2.0
//! The job of this process, as a broker's welcome names it.

use core::sync::atomic::{AtomicU64, Ordering};

use partage_protocol::message::{WELCOME_DEFAULT_JOB, WELCOME_OPEN_SHIFT, WELCOME_STRICT, Welcome};
use partage_protocol::page::{BrokerPage, GrantLine};

/// The job, written once before the phase becomes `Attached`. Which devices it has, the broker's page says alone: a
/// move changes them.
pub struct Job {
    /// The job's number. The one word that may change later.
    pub number: AtomicU64,
    /// How many devices it has.
    count: usize,
    /// None in a fresh state.
    page: Option<&'static BrokerPage>,
    /// The process belongs to no job of `run` (any more).
    pub is_default: bool,
    /// The job was started with `--strict`.
    pub is_strict: bool,
    /// Which of its devices this process may open, bit N for slot N; 0: each.
    open: u32,
}

impl Job {
    /// The job's number.
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// The devices in slot order.
    pub fn devices(&self) -> &[GrantLine] {
        let lines = self.page.and_then(|page| page.devices.get(..self.count));
        lines.unwrap_or(&[])
    }

    /// The slot of a device of the job.
    pub fn slot_of(&self, uuid: &[u8; 16]) -> Option<usize> {
        self.devices().iter().position(|device| device.uuid() == *uuid)
    }

    /// May this process open the device of a slot?
    pub fn is_open(&self, slot: usize) -> bool {
        self.open == 0 || self.open >> (slot & 31) & 1 != 0
    }

    /// Takes over what a welcome says, and the page that came with it.
    pub fn read(&mut self, welcome: &Welcome, page: &'static BrokerPage) {
        self.number.store(welcome.job, Ordering::Relaxed);
        self.is_default = welcome.flags & WELCOME_DEFAULT_JOB != 0;
        self.is_strict = welcome.flags & WELCOME_STRICT != 0;
        self.open = welcome.flags >> WELCOME_OPEN_SHIFT;
        self.count = (welcome.device_count as usize).min(page.devices.len());
        self.page = Some(page);
    }
}
