// SPDX-License-Identifier: Apache-2.0
//! The job of this process, as a broker's welcome names it.

use partage_protocol::message::{WELCOME_DEFAULT_JOB, WELCOME_STRICT, Welcome};
use partage_protocol::page::{BrokerPage, GrantLine};

/// The job, written once before the phase becomes `Attached`. Which devices it has, the broker's page says alone: a
/// move changes them.
pub struct Job {
    /// The job's number.
    pub number: u64,
    /// How many devices it has.
    count: usize,
    /// None in a fresh state.
    page: Option<&'static BrokerPage>,
    /// The process belongs to no job of `run` (any more).
    pub is_default: bool,
    /// The job was started with `--strict`.
    pub is_strict: bool,
}

impl Job {
    /// The devices in slot order.
    pub fn devices(&self) -> &[GrantLine] {
        let lines = self.page.and_then(|page| page.devices.get(..self.count));
        lines.unwrap_or(&[])
    }

    /// The slot of a device of the job.
    pub fn slot_of(&self, uuid: &[u8; 16]) -> Option<usize> {
        self.devices().iter().position(|device| device.uuid() == *uuid)
    }

    /// Takes over what a welcome says, and the page that came with it.
    pub fn read(&mut self, welcome: &Welcome, page: &'static BrokerPage) {
        self.number = welcome.job;
        self.is_default = welcome.flags & WELCOME_DEFAULT_JOB != 0;
        self.is_strict = welcome.flags & WELCOME_STRICT != 0;
        self.count = (welcome.device_count as usize).min(page.devices.len());
        self.page = Some(page);
    }
}
