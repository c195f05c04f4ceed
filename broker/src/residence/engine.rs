// SPDX-License-Identifier: Apache-2.0
//! The engine's state.

use partage_protocol::units::JobId;

use super::idle::Idle;
use super::periodic::Periodic;
use super::way::Ways;
use super::writing::Writings;
use crate::dispatcher::kernel::Linux;

/// What is under way with the memory of jobs.
pub(crate) struct Engine {
    pub(super) ways: Ways,
    /// What was seen of the jobs that leave when they are idle.
    pub(super) idle: Idle,
    /// When each job is to be saved next that is saved again and again.
    pub(super) periodic: Periodic,
    /// Jobs that go on while their snapshots are made whole.
    pub(super) writings: Writings,
    pub(super) kernel: Linux,
}

impl Engine {
    /// Nothing is under way.
    pub(crate) fn new() -> Self {
        Self {
            ways: Ways::default(),
            idle: Idle::default(),
            periodic: Periodic::default(),
            writings: Writings::default(),
            kernel: Linux::here(),
        }
    }

    /// There may be another driver from now on.
    pub(crate) fn forget_maps(&mut self) {
        self.ways.maps.clear();
    }

    /// A record was written, or could not be. It may say that its job leaves when it is idle.
    pub(crate) fn note_written(&mut self, job: JobId, is_written: bool) {
        self.idle.hurry();
        self.periodic.hurry();
        if is_written {
            self.ways.unwritten.remove(&job);
        } else {
            self.ways.unwritten.insert(job);
        }
    }
}
