// SPDX-License-Identifier: Apache-2.0
//! Timers, and how jobs end: deadlines, lingering, stopping, strict jobs, forgetting.

use std::collections::BTreeSet;
use std::fmt::Display;

use partage_protocol::units::{DeviceUuid, JobId};

use super::Policy;
use crate::action::{Action, Signal};
use crate::caller::{Process, Ticket};
use crate::heard::Word;
use crate::job::{End, Happening, Job, Next, REMEMBER_COUNT, State};
use crate::machine::Machine;
use crate::notice::{Figures, Notice};
use crate::refusal::Why;

impl Policy {
    /// Everything that is due. Runs at the start of a step, so that no order of events can outrun a deadline.
    pub(crate) fn expire<M: Machine>(&mut self, machine: &M, now_ns: u64) {
        if let Some(late) = self.books.clients.end_wait(now_ns) {
            if self.books.clients.is_empty() && self.live_jobs() == 0 && late == 0 {
                // The first broker of this place has nobody to wait for.
            } else {
                let what = match late {
                    0 => Notice::AllAdopted(),
                    late => Notice::Adopted(late),
                };
                self.publish("adoption-done", None, None, what);
            }
            for device in self.books.devices.keys().copied().collect::<Vec<_>>() {
                self.share_headroom(device, machine, now_ns);
            }
        }
        self.expire_overheads(machine, now_ns);
        for id in self.books.jobs.keys().copied().collect::<Vec<_>>() {
            self.expire_job(id, machine, now_ns);
        }
        self.forget_old_jobs(now_ns);
    }

    fn expire_job<M: Machine>(&mut self, id: JobId, machine: &M, now_ns: u64) {
        self.warn_of_time_limit(id, now_ns);
        self.expire_time_limit(id, now_ns);
        let Some(job) = self.books.jobs.get_mut(&id).filter(|job| job.state().may_end()) else {
            return;
        };
        let mut actions = Vec::new();
        if let Some(by) = job.take_kill(now_ns) {
            let signal = Signal::Kill;
            actions.push(Action::SignalJob { job: id, signal, by });
        }
        let mut killed = job.take_strict_kills(now_ns);
        actions.extend(killed.iter().map(|pid| Action::KillUnmanaged { job: id, pid: *pid }));
        let is_over = job.life.linger_until_ns().is_some_and(|until| now_ns >= until);
        // One that cannot be killed is tried again and named once.
        killed.retain(|pid| job.note(Notice::StrictKill(*pid, id)));
        for action in actions {
            self.act(action);
        }
        for pid in killed {
            self.act(Action::tell(id, Notice::StrictKill(pid, id)));
            self.publish("strict-kill", Some(id), Some(pid), Notice::StrictKill(pid, id));
        }
        if is_over {
            self.end(id, (Happening::LingerOver, &Notice::LastProcessGone()), machine, now_ns);
        }
    }

    fn forget_old_jobs(&mut self, now_ns: u64) {
        let ended = |job: &Job| Some((job.life.forget_at_ns()?, job.id()));
        let mut old: Vec<(u64, JobId)> = self.books.jobs.values().filter_map(ended).collect();
        old.sort_unstable();
        let excess = old.len().saturating_sub(REMEMBER_COUNT);
        for (order, (_, id)) in old.into_iter().enumerate() {
            let is_expired = |job: &Job| job.life.is_expired(now_ns);
            if order < excess || self.books.jobs.get(&id).is_some_and(is_expired) {
                self.books.jobs.forget(id);
            }
        }
    }

    /// How a job's first process ended, as the kernel told.
    pub(crate) fn exited(&mut self, process: Process, code: u32) {
        let is_first = |job: &&mut Job| job.record.first == Some(process);
        let mut ended = Vec::new();
        for job in self.books.jobs.values_mut().filter(is_first) {
            job.set_exit_code(code);
            ended.extend(job.end.is_some().then(|| job.id()));
        }
        // The kernel may tell the code after the end was written down.
        ended.into_iter().for_each(|job| self.remember(job));
    }

    /// A job's first process is gone.
    pub(crate) fn process_gone<M: Machine>(&mut self, process: Process, machine: &M, now_ns: u64) {
        let is_first = |job: &&mut Job| job.record.first == Some(process);
        let mut gone = Vec::new();
        for job in self.books.jobs.values_mut().filter(is_first) {
            job.lose_first();
            gone.push(job.id());
        }
        for job in gone {
            self.look_after(job, machine, now_ns);
        }
    }

    /// The process that a job lives by from now on, of the control group that it owns.
    pub(crate) fn follow(&mut self, id: JobId, process: Process) {
        let Some(job) = self.books.jobs.get_mut(&id).filter(|job| job.state().takes_processes()) else {
            return;
        };
        job.follow(process);
        let record = Box::new(job.record.clone());
        self.act(Action::SaveJob(record));
        self.act(Action::Watch { job: id, process });
    }

    /// Begins to linger, or ends, once nothing of the job is left.
    pub(crate) fn look_after<M: Machine>(&mut self, id: JobId, machine: &M, now_ns: u64) {
        let Some(job) = self.books.jobs.get_mut(&id).filter(|job| job.state().may_end()) else {
            return;
        };
        if job.is_first_alive || !job.clients.is_empty() {
            return;
        }
        if let Some(stopping) = &job.stopping {
            let reason = stopping.reason.clone();
            self.end(id, (Happening::EmptiedStopping, &reason), machine, now_ns);
        } else if let Some(registration) = &job.record.registration {
            // A container whose first process is gone is over, as is an empty group: nobody is still to come.
            let why = match registration.container.is_empty() {
                true => Notice::LastProcessGone(),
                false => Notice::ContainerGone(),
            };
            self.end(id, (Happening::EmptiedStopping, &why), machine, now_ns);
        } else if job.linger(now_ns) {
            self.announce_end(id, &Notice::LastProcessGone(), now_ns);
            self.remember(id);
        }
    }

    /// Has a job's end written down: when it is announced, for a broker that stops before the job has lingered, and
    /// when nothing can change it any more, which counts instead.
    pub(crate) fn remember(&mut self, id: JobId) {
        if let Some(ended) = self.books.jobs.get(&id).and_then(Job::remembered) {
            self.act(Action::RememberJob(Box::new(ended)));
        }
    }

    /// Says that nothing of a job runs any more, and remembers since when.
    fn announce_end(&mut self, id: JobId, why: &dyn Display, now_ns: u64) {
        let unix_ns = self.unix_ns(now_ns);
        let shown: Vec<_> = self.books.jobs.get(&id).map_or(Vec::new(), |job| {
            let devices = job
                .record
                .devices
                .iter()
                .map(|place| self.books.devices.get(&place.device));
            devices
                .map(|device| device.map(|device| (device.seen.index, device.seen.model.clone())))
                .collect()
        });
        let Some(job) = self.books.jobs.get_mut(&id) else {
            return;
        };
        let reason = why.to_string();
        job.announce_end(End { unix_ns, reason }, shown);
        let summary = job.summary();
        if !job.record.is_quiet && summary.has_used_a_gpu() {
            self.act(Action::tell(id, Notice::Ended(id, summary.sentence())));
        }
        let what = Notice::EndedBy(id, summary.sentence(), why.to_string());
        self.publish_numbers("job-ended", (Some(id), None), what, Figures::Ended(summary));
    }

    /// A process of a job that only lingered met the driver after all.
    pub(crate) fn resume(&mut self, id: JobId) {
        let Some(job) = self.books.jobs.get_mut(&id) else {
            return;
        };
        if !job.resume() {
            return;
        }
        self.publish("job-resumed", Some(id), None, Notice::Resumed(id));
    }

    /// Ends a job, and hands out what it held.
    pub(crate) fn end<M: Machine>(
        &mut self,
        id: JobId,
        (what, why): (Happening, &dyn Display),
        machine: &M,
        now_ns: u64,
    ) {
        let Some(before) = self.books.jobs.get(&id).map(Job::state) else {
            return;
        };
        if before.after(what) != Next::To(State::Ended) {
            return;
        }
        if !before.is_over() {
            self.announce_end(id, why, now_ns);
        }
        let Some(job) = self.books.jobs.get_mut(&id) else {
            return;
        };
        let spared = job.spared();
        let tickets = job.finish(what, now_ns);
        let devices: Vec<DeviceUuid> = job.record.devices.iter().map(|place| place.device).collect();
        self.note_totals(id);
        self.books.times.forget(id);
        self.books.swaps.forget(id);
        self.act(Action::ForgetJob(id));
        self.remember(id);
        for ticket in tickets {
            self.tell(ticket, Word::done(Notice::HasEnded(id, spared.clone())));
        }
        for device in devices {
            self.share_headroom(device, machine, now_ns);
        }
    }

    /// Processes of a job that is being stopped are another user's, and were left alone. Once the rest was killed they
    /// keep nobody waiting: the job goes on with them.
    pub(crate) fn note_spared(&mut self, id: JobId, processes: &[(u32, String)]) {
        let Some(job) = self.books.jobs.get_mut(&id) else {
            return;
        };
        job.note_spared(processes);
        let spared = job.spared();
        let pids: BTreeSet<u32> = processes.iter().map(|(pid, _)| *pid).collect();
        let is_spared = |process: Process| pids.contains(&process.pid);
        let clients = job.clients.clone();
        let is_first_spared = job.is_first_alive && job.record.first.is_some_and(is_spared);
        let is_held = is_first_spared
            || clients.iter().any(|client| {
                let client = self.books.clients.get(client);
                client.is_some_and(|client| is_spared(client.process))
            });
        let Some(job) = self.books.jobs.get_mut(&id).filter(|_| is_held) else {
            return;
        };
        for ticket in job.give_up_stop() {
            self.refuse(ticket, Why::GoesOn(id, spared.clone()));
        }
    }

    /// A `run` that waited went away: the job never was.
    pub(crate) fn ticket_gone(&mut self, ticket: Ticket) {
        let waits = |job: &&Job| job.life.queued().is_some_and(|queued| queued.ticket == ticket);
        if let Some(id) = self.books.jobs.values().find(waits).map(Job::id) {
            self.publish("job-gone", Some(id), None, Notice::GivenUp(id));
            self.forget_waiting(id);
        }
        self.return_given_up(ticket);
        for job in self.books.jobs.values_mut() {
            job.forget_ticket(ticket);
        }
    }
}
