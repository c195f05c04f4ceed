// SPDX-License-Identifier: Apache-2.0
//! What each process of a job may hold beside the job's limit: the same for each (`process_mem`), or one process's own
//! (`partage set process:PID mem=…`).
//!
//! The numbers stand in the job's record, by device; the ledger of each slot enforces them wherever something is
//! granted. A process's own limit is judged by the rules' `max.process_mem`, replaces the job's for that process,
//! outlives the broker and an exec, and ends with the process.

use std::collections::BTreeSet;

use partage_protocol::units::JobId;

use super::Policy;
use crate::action::Action;
use crate::books::room::changed::read_limit;
use crate::caller::{Caller, Process};
use crate::event::Change;
use crate::job::OwnLimit;
use crate::machine::Machine;
use crate::notice::{Figures, Notice};
use crate::refusal::{Refusal, Why};

impl Policy {
    /// The numbers of a job's processes are what its record says.
    pub(crate) fn limit_processes<M: Machine>(&mut self, id: JobId, machine: &M, now_ns: u64) {
        let Some(job) = self.books.jobs.get_mut(&id) else {
            return;
        };
        for client in job.clients.clone() {
            if let Some(known) = self.books.clients.get(&client) {
                job.limit_client((client, known.process), machine, now_ns);
            }
        }
    }

    /// `partage set process:PID mem=…`: one process alone.
    ///
    /// # Errors
    /// No such client, not the caller's, another key than `mem`, or above a rule.
    pub(crate) fn change_process<M: Machine>(
        &mut self,
        caller: &Caller,
        pid: &str,
        change: &Change,
        machine: &M,
        now_ns: u64,
    ) -> Result<JobId, Refusal> {
        let (id, process) = self.client_of_pid(pid, caller)?;
        let only_mem = Change {
            mem: change.mem.clone(),
            is_forced: change.is_forced,
            ..Change::default()
        };
        let said = read_limit(change, ("mem", change.mem.as_deref()), caller)?;
        let (Some(said), true) = (said, *change == only_mem) else {
            return Err(Why::OnlyMem(pid.to_owned(), id).into());
        };
        let judge = self.judge_of(id);
        let alive: BTreeSet<Process> = self.books.clients.values().map(|client| client.process).collect();
        let mut places = self.books.places(id);
        for place in &mut places {
            let Some(device) = self.books.devices.get(&place.device) else {
                continue;
            };
            let bytes = said.value.map(|amount| amount.on(device.usable()));
            self.check_size(device, bytes.unwrap_or(0), device.seen.total_bytes, "mem")?;
            let mut asked = said.clone().map(|_| bytes);
            let (limit, words) = judge.process_limit(Some(&asked), device.size())?;
            asked.settle();
            place
                .own
                .retain(|own| own.process != process && alive.contains(&own.process));
            place.own.push(OwnLimit {
                process,
                asked,
                limit,
                words,
            });
        }
        self.apply(id, &places, machine, now_ns);
        self.show_pages(id);
        let limits = places.iter();
        let limits = limits.map(|place| (place.process_limit(process), self.gpu(place.device)));
        let what = Notice::OwnLimits(id, process.pid, limits.collect());
        let about = (Some(id), Some(process.pid));
        self.publish_numbers("limit-changed", about, what, Figures::Process(process));
        if let Some(record) = self.books.jobs.get(&id).map(|job| job.record.clone()) {
            self.act(Action::SaveJob(Box::new(record)));
        }
        Ok(id)
    }
}
