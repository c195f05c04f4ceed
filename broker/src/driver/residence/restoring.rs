// SPDX-License-Identifier: Apache-2.0
//! `partage restore`: a job whose processes come from a snapshot is away from its first moment on.
//!
//! ```text
//!   Run ──► admitted ──► Restore: hold hard, mark Away, who will say hello is on disk ──► Waiting ──► CRIU
//!     each recorded client: a parked hello ──► pages, P as recorded ──► the last one ──► as `resume` ──► Done
//! ```
//! Until it has come back, the list of who is expected lies in a file: a new broker takes the hellos in as well.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use partage_policy::{Books, Caller, Event, Mark, Process, Residence, TargetQuery, Ticket};
use partage_protocol::admin::{ErrorCode, Reply, Waiting};
use partage_protocol::message::{HELLO_PARKED, Hello};
use partage_protocol::size::format_bytes;
use partage_protocol::snapshot::{Needs, RestoreRequest, SavedClient, Unfit};
use partage_protocol::units::{ClientId, JobId};

use super::way::{Closed, Expecting};
use crate::clock::Now;
use crate::driver::effect::Effect;
use crate::driver::requests::error_view;
use crate::driver::state_driver::StateDriver;
use crate::host::proc;
use crate::peer::ConnectionId;
use crate::state::ledger::LineIndex;

impl StateDriver {
    /// The caller's job, admitted just now, is about to be restored.
    pub(super) fn restore(&mut self, ticket: Ticket, caller: Caller, request: &RestoreRequest, now: Now) {
        let me = nix::unistd::geteuid().as_raw();
        if caller.uid != me {
            // As with a checkpoint. What it says that the processes had is believed.
            let message = format!("jobs are restored by a broker of their own user alone (uid {me} here)");
            let error = error_view(ErrorCode::NotAllowed, message, None);
            return self.answer_ticket(ticket, Reply::Error(error));
        }
        let Some(job) = self.jobs.of_first(caller.process) else {
            let message = format!("{} was restored by another command meanwhile", request.saved_job);
            let hint = "one of them can live at a time: partage ps";
            let error = error_view(ErrorCode::Failed, message, Some(hint));
            return self.answer_ticket(ticket, Reply::Error(error));
        };
        let residence = self
            .policy
            .residence(job)
            .map_or(Residence::Here, |mark| mark.residence);
        let is_fresh = residence == Residence::Here && self.processes_with_library(job).is_empty();
        let checked = match is_fresh && !self.ways.has(job) {
            true => self.has_devices(job, request),
            false => Err(Unfit::new("job", format!("{job} has processes already"))),
        };
        if let Err(unfit) = checked {
            let error = error_view(ErrorCode::Failed, unfit.to_string(), None);
            return self.answer_ticket(ticket, Reply::Error(error));
        }
        let written = serde_json::to_vec(&request.clients).map(|text| std::fs::write(self.expecting_file(job), text));
        if !matches!(written, Ok(Ok(()))) {
            let message = "the broker cannot write to its folder".to_owned();
            return self.answer_ticket(ticket, Reply::Error(error_view(ErrorCode::Internal, message, None)));
        }
        // From their first moment on: what they have is checkpointed.
        self.set_hold(job, Some(Closed::Hard));
        let mark = Mark {
            residence: Residence::Away,
            books: Books::Left,
            ..Mark::default()
        };
        let mark = Box::new(mark);
        self.step(now, Event::Residence { job, mark });
        self.ways.expecting.insert(job, Expecting { ticket, caller });
        // Now they may be restored.
        let waiting = Waiting {
            position: 0,
            reason: format!("the processes of {job} are to come back"),
            holders: Vec::new(),
        };
        self.effects.push(Effect::Document {
            to: ConnectionId(ticket.0),
            reply: Box::new(Reply::Waiting(waiting)),
            is_last: false,
        });
    }

    /// Has this machine what a snapshot needs? Asked before its job is admitted. Precondition: the devices are known.
    ///
    /// # Errors
    /// [`Unfit`], with what was saved and what is here.
    pub(in crate::driver) fn has_needs(&self, needs: &Needs) -> Result<(), Unfit> {
        let unfit = |why: String| Err(Unfit::new("devices", why));
        for saved in &needs.devices {
            let (list, uuid) = (self.devices.list(), &saved.uuid);
            let Some((_, facts)) = list.iter().find(|(device, _)| device.to_string() == *uuid) else {
                return unfit(format!(
                    "{uuid} ({}) was saved, and is none of the {} here",
                    saved.name,
                    list.len()
                ));
            };
            if facts.model != saved.name {
                return unfit(format!(
                    "{uuid} was saved as {}, and is {} here",
                    saved.name, facts.model
                ));
            }
            if facts.total != saved.total_bytes {
                let (was, is) = (format_bytes(saved.total_bytes), format_bytes(facts.total));
                return unfit(format!("{uuid} had {was} of memory as it was saved, and has {is} here"));
            }
            if !needs.driver.is_empty() && facts.driver != needs.driver {
                let why = format!("{} was saved, and {:?} is here", needs.driver, facts.driver);
                return Err(Unfit::new("driver", why));
            }
        }
        Ok(())
    }

    /// Are these the job's devices, slot by slot?
    fn has_devices(&self, job: JobId, request: &RestoreRequest) -> Result<(), Unfit> {
        let saved = &request.devices;
        let own = self.jobs.devices(job);
        if own.len() != saved.len() {
            let why = format!("{} were saved, and the job has {}", saved.len(), own.len());
            return Err(Unfit::new("devices", why));
        }
        for (slot, (own, saved)) in own.iter().zip(saved).enumerate() {
            if own.to_string() != saved.uuid {
                let why = format!("{} ({}) was saved, and the job has {own}", saved.uuid, saved.name);
                return Err(Unfit::new("devices", why));
            }
            let owed = request.clients.iter().filter_map(|client| client.owed.get(slot));
            let owed = owed.fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
            if owed > saved.total_bytes {
                let why = format!("{owed} bytes were on {own}, which has {} in all", saved.total_bytes);
                return Err(Unfit::new("clients", why));
            }
        }
        Ok(())
    }

    /// What a restored process has to get back, by its number and client id in the snapshot; none where nobody expects
    /// it.
    fn expected(&self, process: Process, client: u64) -> Option<Vec<u64>> {
        let job = self.job_by_kernel(process)?;
        let number = proc::inner_number(process.pid)?;
        let mut saved = self.expected_of(job).into_iter();
        let saved = saved.find(|saved| saved.pid == number && saved.client == client)?;
        Some(saved.owed)
    }

    fn expected_of(&self, job: JobId) -> Vec<SavedClient> {
        let text = std::fs::read(self.expecting_file(job)).ok();
        let saved = text.and_then(|text| serde_json::from_slice(&text).ok());
        saved.unwrap_or_default()
    }

    /// Why a restored job cannot come back yet.
    pub(super) fn lacks(&self, job: JobId) -> Option<String> {
        let missing = self.missing(job);
        let pids: Vec<String> = missing.iter().map(|saved| saved.pid.to_string()).collect();
        (!pids.is_empty()).then(|| format!("restored pid {} did not say hello yet", pids.join(", ")))
    }

    fn missing(&self, job: JobId) -> Vec<SavedClient> {
        let mut expected = self.expected_of(job);
        if !expected.is_empty() {
            let of_job = self.clients.iter().filter(|(_, client)| client.job == job);
            let here: Vec<Option<u32>> = of_job
                .map(|(_, client)| proc::inner_number(client.process.pid))
                .collect();
            expected.retain(|saved| !here.contains(&Some(saved.pid)));
        }
        expected
    }

    /// What a restored process has to get back is owed to it.
    ///
    /// # Errors
    /// A sentence: nobody expects such a process.
    pub(in crate::driver) fn owe(&self, process: Process, hello: &Hello, line: LineIndex) -> Result<(), &'static str> {
        if hello.flags & HELLO_PARKED == 0 {
            return Ok(());
        }
        let owed = self
            .expected(process, hello.client)
            .ok_or("this process was restored, and no `partage restore` waits for it")?;
        for (slot, bytes) in owed.into_iter().enumerate() {
            self.clients.ledger.owed(line, slot).store(bytes, Ordering::SeqCst);
        }
        Ok(())
    }

    /// A client was welcomed: with the last one of a restored job that job comes back.
    pub(in crate::driver) fn has_arrived(&mut self, client: ClientId, now: Now) {
        let Some(job) = self.clients.get(client).map(|client| client.job) else {
            return;
        };
        if !self.ways.expecting.contains_key(&job) || self.lacks(job).is_some() {
            return;
        }
        if let Some(Expecting { ticket, caller }) = self.ways.expecting.remove(&job) {
            let resume = Event::Resume {
                ticket,
                caller,
                target: TargetQuery {
                    text: job.to_string(),
                    descends_from: None,
                },
                is_patient: true,
                timeout_ns: None,
            };
            self.step(now, resume);
        }
    }

    /// It has come back, or will not.
    pub(in crate::driver) fn forget_expecting(&self, job: JobId) {
        // Most jobs are not restored.
        let _ = std::fs::remove_file(self.expecting_file(job));
    }

    fn expecting_file(&self, job: JobId) -> PathBuf {
        self.directory.snapshots().join(format!("{job}.expected"))
    }
}
