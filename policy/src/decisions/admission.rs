// SPDX-License-Identifier: Apache-2.0
//! The queue: requests are judged, wait in their order, and become live jobs.
//!
//! The order is that in which they came, or a fair one (`fairness.rs`). What is short is given in that order: a waiting
//! request reserves its amounts on every device that it
//! could use, and later ones get what is left beside that (`books/room/claims.rs`). So small requests do not starve a
//! large one, and a request for an idle device, or for nothing that is short, does not wait behind another.
//!
//! A job that lingers (no process left, 5 s not over) gives way to a request that needs its place; a late child of it
//! still has the limit in its environment.

use partage_protocol::job_ledger::JobLedger;
use partage_protocol::message::TOKEN_BYTES;
use partage_protocol::units::{DeviceUuid, JobId};

use super::Policy;
use crate::action::Action;
use crate::books::room::claims::{Claims, Wish};
use crate::books::room::placement::{Shortages, Unplaced};
use crate::books::room::survey::Survey;
use crate::caller::Ticket;
use crate::event::Run;
use crate::heard::Word;
use crate::holding::Holding;
use crate::job::{Happening, Job, JobRecord, Life, Placement, Queued, Slot, Wait};
use crate::machine::Machine;
use crate::notice::{Figures, Notice};
use crate::refusal::{Refusal, Why};
use crate::request::RunSpec;
use crate::residence::ResidenceRecord;
use crate::rules::Asked;

/// A token as a request has it; none where it is none, or one of zeros, which belongs to nobody.
fn token_of(text: &str) -> Option<[u8; TOKEN_BYTES]> {
    let mut token = [0; TOKEN_BYTES];
    if text.len() != 2 * TOKEN_BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, place) in token.iter_mut().zip((0..text.len()).step_by(2)) {
        *byte = u8::from_str_radix(text.get(place..place + 2)?, 16).ok()?;
    }
    (token != [0; TOKEN_BYTES]).then_some(token)
}

/// The record of a job that waits.
fn record_of(id: JobId, run: Run, token: Option<[u8; TOKEN_BYTES]>, spec: &RunSpec) -> JobRecord {
    let request = run.request;
    JobRecord {
        id: id.0,
        uid: run.caller.uid,
        user: run.caller.user,
        name: request.name,
        labels: request.labels,
        command: request.command,
        first: Some(run.caller.process),
        token: token.unwrap_or(run.token),
        cgroup: run.cgroup,
        default_scope: None,
        environment: String::new(),
        is_strict: spec.is_strict(),
        is_quiet: request.quiet,
        devices: Vec::new(),
        terms: spec.terms.clone(),
        asked: Asked {
            preset: spec.preset.clone(),
            terms: Some(spec.asked_terms.clone().settled()),
            facts: Some(spec.facts.clone()),
            preemptible: request.preemptible,
            idle_release_ns: request.idle_release_ns,
            saved: request.saved,
            restored_root: request.restored.map(|needs| needs.root),
        },
        started_unix_ns: run.unix_ns,
        residence: ResidenceRecord::default(),
        registration: run.registered.map(|(registration, _)| registration),
    }
}

impl Policy {
    pub(crate) fn run<M: Machine>(&mut self, run: Run, machine: &M, now_ns: u64) {
        if self.is_answered(&run, now_ns) {
            return;
        }
        let lazy = run.request.token.as_deref().map(token_of);
        if lazy == Some(None) {
            return self.refuse(run.ticket, Why::Token());
        }
        let lazy = lazy.flatten();
        // The name is its own job's.
        let has_job = lazy.is_some_and(|token| self.has_token(token, run.caller.uid));
        let spec = match self.judged(&run, has_job, machine, now_ns) {
            Ok(spec) => spec,
            Err(why) => return self.refuse(run.ticket, why),
        };
        if run.request.dry_run {
            let before = self.before_new((run.caller.uid, spec.terms.class), now_ns);
            let Some(token) = lazy else {
                return self.dry_run(run.ticket, &spec, before, machine);
            };
            let living = self.living_job(token, run.caller.uid);
            return self.foresee(run.ticket, (&spec, living), before, machine);
        }
        if let Some(id) = lazy.and_then(|token| self.living_job(token, run.caller.uid)) {
            if run.request.restored.is_none() {
                return self.join(run.ticket, id, now_ns);
            }
            if !self.books.jobs.get(&id).is_some_and(Job::is_lingering) {
                return self.refuse(run.ticket, Why::LivesAlready(id));
            }
            self.end(id, (Happening::PlaceWanted, &Notice::IsRestored()), machine, now_ns);
        }
        let id = self.books.jobs.take_number();
        let queued = Queued {
            wait: Wait::new(run.ticket, now_ns, run.request.wait_timeout_ns),
            mem_text: run.request.mem.clone().or_else(|| spec.shown()),
            spec,
        };
        let record = record_of(id, run, lazy, &queued.spec);
        self.add_job(Job::new(record, Life::waiting(queued)));
        self.queue_run(id, now_ns);
    }

    /// What a request asks, judged by the rules.
    fn judged<M: Machine>(&mut self, run: &Run, has_job: bool, machine: &M, now_ns: u64) -> Result<RunSpec, Refusal> {
        let mut spec = RunSpec::from_request(&run.request, run.facts(), &self.books.config)?;
        if let Some((_, lowered)) = run.registered.as_ref().filter(|(_, lowered)| !lowered.is_empty()) {
            spec = spec.lowered(lowered, &self.books.config)?;
        }
        if let Some(name) = run.request.name.as_ref().filter(|_| !has_job) {
            self.check_name_is_free(run.caller.uid, name, None, machine, now_ns)?;
        }
        self.check_holds_a_context(&spec, run.caller.uid)?;
        Ok(spec)
    }

    /// A process of a lazy job asks, and another one's request began that job: it lives as if it had just begun, so
    /// that this process finds it.
    pub(super) fn join(&mut self, ticket: Ticket, id: JobId, now_ns: u64) {
        let Some(job) = self.books.jobs.get_mut(&id) else {
            return;
        };
        job.linger_on(now_ns);
        let record = Box::new(job.record.clone());
        self.tell(ticket, Word::Admitted(record, Vec::new()));
    }

    /// A waiting request whose job another process of it began meanwhile is answered.
    fn join_begun(&mut self, id: JobId, survey: &Survey, now_ns: u64) -> bool {
        let record = self.books.jobs.get(&id).map(|job| &job.record);
        let Some(begun) = record.and_then(|record| survey.living(self, record.token, record.uid)) else {
            return false;
        };
        if let Some(queued) = self.forget_waiting(id) {
            self.join(queued.ticket, begun, now_ns);
        }
        true
    }

    /// May a user's job be called that? One that lingers under the name makes room.
    pub(crate) fn check_name_is_free<M: Machine>(
        &mut self,
        uid: u32,
        name: &str,
        except: Option<JobId>,
        machine: &M,
        now_ns: u64,
    ) -> Result<(), Refusal> {
        let same = |job: &&Job| {
            let is_called = job.record.uid == uid && job.record.name.as_deref() == Some(name);
            job.state().takes_name() && is_called && Some(job.id()) != except
        };
        let Some(holder) = self.books.jobs.values().find(same) else {
            return Ok(());
        };
        let id = holder.id();
        if holder.is_lingering() {
            self.end(id, (Happening::PlaceWanted, &Notice::NameWanted()), machine, now_ns);
            return Ok(());
        }
        Err(Why::NameTaken(id, name.to_owned()).into())
    }

    /// What would become of a request behind the first so many of the queue.
    fn dry_run<M: Machine>(&mut self, ticket: Ticket, spec: &RunSpec, before: usize, machine: &M) {
        let survey = Survey::default();
        let claimed = self.claims(before, &survey, machine);
        match self.place(spec, &claimed, &survey, machine) {
            Ok(places) => self.tell(
                ticket,
                Word::done(Notice::WouldStart(self.describe(&places), spec.terms.clone())),
            ),
            Err(Unplaced::NoRoom { reason, .. }) => self.tell(ticket, Word::done(Notice::WouldWait(reason))),
            Err(Unplaced::Refused(why)) => self.refuse(ticket, why),
        }
    }

    /// Admits whoever's turn it is, and tells the others what they wait for.
    pub(crate) fn serve_queue<M: Machine>(&mut self, machine: &M, now_ns: u64) {
        let mut claimed = Claims::default();
        let mut survey = Survey::default();
        let mut position = 0;
        self.books.swaps.begin_turn();
        self.order_queue(now_ns);
        self.expire_coming(now_ns);
        for id in self.books.queue.iter().copied().collect::<Vec<_>>() {
            if self.is_returning(id) {
                let waits_on = self.serve_return(id, (&mut claimed, &mut survey), position + 1, machine, now_ns);
                position += u32::from(waits_on);
                continue;
            }
            if self.books.jobs.get(&id).is_none_or(|job| job.life.queued().is_none()) {
                self.books.queue.leave(id);
                continue;
            }
            if self.join_begun(id, &survey, now_ns) {
                continue;
            }
            let unplaced = if self.is_passed(id) {
                Err(Unplaced::NoRoom {
                    reason: Notice::RunIsStopped().to_string(),
                    shortages: Shortages::new(),
                    wishes: Vec::new(),
                })
            } else {
                self.try_admit(id, &claimed, &mut survey, machine, now_ns)
            };
            match unplaced {
                Ok(()) => {}
                Err(Unplaced::Refused(why)) => self.leave_queue(id, why),
                Err(Unplaced::NoRoom { wishes, .. }) if self.waits_for_an_end(id, &claimed, machine, now_ns) => {
                    position += 1;
                    claimed.add(id, wishes);
                }
                Err(Unplaced::NoRoom {
                    reason,
                    shortages,
                    wishes,
                }) => {
                    let by_others = self.preempt(id, (&claimed, &shortages), machine, now_ns);
                    let reason = by_others.unwrap_or(reason);
                    let holders = if self.is_told(id, now_ns) {
                        self.shortage_holders(&shortages, &survey, machine)
                    } else {
                        Vec::new()
                    };
                    if self.still_waits(id, position + 1, reason, holders, now_ns) {
                        position += 1;
                        claimed.add(id, wishes);
                    }
                }
            }
        }
    }

    /// What it does to the devices ends the survey.
    fn try_admit<M: Machine>(
        &mut self,
        id: JobId,
        claimed: &Claims,
        survey: &mut Survey,
        machine: &M,
        now_ns: u64,
    ) -> Result<(), Unplaced> {
        let Some(queued) = self.books.jobs.get(&id).and_then(|job| job.life.queued()) else {
            return Ok(());
        };
        let spec = queued.spec.clone();
        let mut places = self.place(&spec, claimed, survey, machine);
        if let Err(Unplaced::NoRoom { wishes, shortages, .. }) = &places
            && survey.has_lingering(self)
        {
            let wished = wishes.iter().map(|wish| wish.device);
            let devices: Vec<_> = wished.chain(shortages.keys().copied()).collect();
            if self.end_lingering(&devices, machine, now_ns) {
                *survey = Survey::default();
                places = self.place(&spec, claimed, survey, machine);
            }
        }
        let admitted = self.admit(id, places?, machine, now_ns);
        *survey = Survey::default();
        admitted
    }

    /// Ends the jobs on these devices of which nothing runs any more: what they hold is wanted. Answers whether there
    /// were any.
    pub(crate) fn end_lingering<M: Machine>(&mut self, devices: &[DeviceUuid], machine: &M, now_ns: u64) -> bool {
        let is_here = |job: &&Job| job.is_lingering() && devices.iter().any(|device| job.slot_of(*device).is_some());
        let lingering: Vec<JobId> = self.books.jobs.values().filter(is_here).map(Job::id).collect();
        for job in &lingering {
            self.end(*job, (Happening::PlaceWanted, &Notice::PlaceWanted()), machine, now_ns);
        }
        !lingering.is_empty()
    }

    /// Makes a waiting job live on these devices; what burstable jobs hold there is lowered first. They may have used
    /// it in the meantime: then the job waits on.
    fn admit<M: Machine>(
        &mut self,
        id: JobId,
        places: Vec<Placement>,
        machine: &M,
        now_ns: u64,
    ) -> Result<(), Unplaced> {
        let slots = places
            .iter()
            .map(|place| {
                let limit = self.limit_of(place.device, place.limit);
                Slot::new(JobLedger::new(limit, place.request.min(limit)))
            })
            .collect();
        let started_unix_ns = self.unix_ns(now_ns);
        let Some(job) = self.books.jobs.get_mut(&id) else {
            return Ok(());
        };
        let Some((queued, asked_unix_ns)) = job.admit(&places, slots, (now_ns, started_unix_ns)) else {
            return Ok(());
        };
        for place in &places {
            self.share_headroom(place.device, machine, now_ns);
        }
        let is_kept = |place: &&Placement| place.request == 0 || self.is_kept(id, place.device, machine);
        if let Some(short) = places.iter().find(|place| !is_kept(place)).map(|place| place.device) {
            let ppm = queued.spec.terms.promise_ppm.into();
            if let Some(job) = self.books.jobs.get_mut(&id) {
                job.put_back(queued, asked_unix_ns);
            }
            let gpu = self.gpu(short);
            let wish = |place: &Placement| Wish {
                device: place.device,
                bytes: place.request,
                ppm,
            };
            for place in &places {
                self.share_headroom(place.device, machine, now_ns);
            }
            return Err(Unplaced::NoRoom {
                reason: Notice::PromiseInUse(gpu).to_string(),
                shortages: Shortages::from([(short, (true, false))]),
                wishes: places.iter().map(wish).collect(),
            });
        }
        self.books.queue.leave(id);
        self.announce_admission(id, &queued, machine);
        Ok(())
    }

    /// Tells everybody of the admission.
    pub(crate) fn announce_admission<M: Machine>(&mut self, id: JobId, queued: &Queued, machine: &M) {
        let Some(job) = self.books.jobs.get(&id) else { return };
        let record = job.record.clone();
        let what = Notice::Starts(id, self.describe(&record.devices), record.terms.clone());
        self.act(Action::SaveJob(Box::new(record.clone())));
        self.show_terms(id);
        if let Some(process) = record.first {
            self.act(Action::Watch { job: id, process });
        }
        let devices = || record.devices.iter().map(|place| place.device);
        let accounts = devices().filter_map(|device| self.account(device, machine));
        let notes = accounts.filter_map(|account| account.overcommit_note());
        let notes = notes
            .chain(devices().filter_map(|device| self.time_note(device)))
            .collect();
        let pid = record.first.map(|first| first.pid);
        self.tell(queued.ticket, Word::Admitted(Box::new(record), notes));
        self.publish_numbers("job-admitted", (Some(id), pid), what, Figures::Job);
    }

    /// A request that may have room in a moment hears nothing until then, and does not fail.
    fn waits_for_an_end<M: Machine>(&mut self, id: JobId, claimed: &Claims, machine: &M, now_ns: u64) -> bool {
        let Some(until_ns) = self.may_have_room_soon(id, claimed, machine, now_ns) else {
            return false;
        };
        if let Some(queued) = self.books.jobs.get_mut(&id).and_then(Job::queued_mut) {
            queued.hear_nothing_until(until_ns);
        }
        self.bring_forward(until_ns);
        true
    }

    /// Updates a waiting job; answers whether it waits on. `holders` count where it is told.
    fn still_waits(&mut self, id: JobId, position: u32, reason: String, holders: Vec<Holding>, now_ns: u64) -> bool {
        let Some(job) = self.books.jobs.get_mut(&id) else {
            return false;
        };
        let is_registered = job.record.registration.is_some();
        let Some(queued) = job.queued_mut() else {
            return false;
        };
        if !queued.spec.wait || queued.ran_out(now_ns) {
            let why = match queued.spec.wait {
                true => Why::NoRoomWithin(now_ns.saturating_sub(queued.since_ns), reason, holders),
                false => Why::NoRoom(reason, !is_registered, holders),
            };
            self.leave_queue(id, why.into());
            return false;
        }
        queued.wait_for(&reason);
        if let Some(is_first) = queued.take_reminder(now_ns) {
            let ticket = queued.ticket;
            self.tell(ticket, Word::Waiting(position, reason.clone(), holders));
            if is_first {
                let what = Notice::Waits(id, reason);
                self.publish_numbers("job-waiting", (Some(id), None), what, Figures::Waiting(position));
            }
        }
        true
    }

    /// A waiting job is given up, with an answer.
    pub(crate) fn leave_queue(&mut self, id: JobId, why: Refusal) {
        if self.books.jobs.get(&id).is_some_and(|job| job.life.queued().is_some()) {
            // While it is known whose it is: others read neither its terms nor its name.
            self.publish("job-refused", Some(id), None, Notice::Refused(id, why.to_string()));
        }
        if let Some(queued) = self.forget_waiting(id) {
            self.refuse(queued.ticket, why);
        }
    }

    /// A waiting job is given up without an answer.
    pub(crate) fn forget_waiting(&mut self, id: JobId) -> Option<Box<Queued>> {
        self.books.queue.leave(id);
        self.books.jobs.forget(id)?.give_up()
    }
}
