// SPDX-License-Identifier: Apache-2.0
//! The job that a control group has.

use crate::books::Books;
use crate::caller::Process;
use crate::job::Job;
use partage_protocol::units::JobId;

impl Books {
    /// The living job that this process was registered for.
    pub(crate) fn begun_with(&self, process: Process) -> Option<JobId> {
        let is_it = |job: &&Job| {
            let is_registered = job.record.registration.is_some() && job.record.first == Some(process);
            is_registered && job.is_first_alive && job.state().takes_processes()
        };
        self.jobs.values().find(is_it).map(Job::id)
    }
}
