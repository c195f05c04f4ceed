// SPDX-License-Identifier: Apache-2.0
//! The life of jobs and devices as time passes: measurements, lingering, stopping, strict jobs, ending.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;

use partage_protocol::admin::{ErrorCode, ErrorView, Reply};
use partage_protocol::size::format_bytes;
use partage_protocol::units::{DeviceUuid, JobId, SECOND_NS};

use crate::command::{Action, Signal};
use crate::device::{Device, DeviceState};
use crate::event::{DeviceSeen, DriverState, Measurement};
use crate::job::{End, Job, JobState, LINGER_NS, Phase, Presence, REMEMBER_COUNT, REMEMBER_NS};
use crate::policy::{Machine, OnSlot, Policy};

/// A descendant of a strict job that uses a GPU without attaching is killed this long after it was first seen: the job
/// promises 2 s, and a measurement comes every second at the latest.
pub const STRICT_NS: u64 = SECOND_NS / 2;

impl Policy {
    pub(crate) fn see_devices<M: Machine>(
        &mut self,
        driver: DriverState,
        found: Vec<DeviceSeen>,
        machine: &M,
        now_ns: u64,
    ) {
        self.driver = driver;
        let present: BTreeSet<DeviceUuid> = found.iter().map(|seen| seen.uuid).collect();
        for seen in found {
            let uuid = seen.uuid;
            match self.devices.get_mut(&uuid) {
                Some(known) if known.state != DeviceState::Lost => known.seen = seen,
                _ => {
                    let (index, model) = (seen.index, seen.model.clone());
                    let text = format!("GPU {index} ({model}) has {}", format_bytes(seen.total_bytes));
                    self.devices.insert(uuid, Device::new(seen));
                    self.publish("device-found", None, None, text);
                }
            }
            self.share_pool(uuid, machine, now_ns);
        }
        let missing: Vec<DeviceUuid> = self
            .devices
            .keys()
            .filter(|uuid| !present.contains(uuid))
            .copied()
            .collect();
        for device in missing {
            let why = "the driver does not show it any more".into();
            self.lose_device(device, why, machine, now_ns);
        }
    }

    pub(crate) fn lose_device<M: Machine>(&mut self, device: DeviceUuid, why: String, machine: &M, now_ns: u64) {
        let Some(known) = self
            .devices
            .get_mut(&device)
            .filter(|known| known.state != DeviceState::Lost)
        else {
            return;
        };
        known.state = DeviceState::Lost;
        known.why.clone_from(&why);
        let text = format!("GPU {} is lost: {why}", known.seen.index);
        for job in self
            .jobs
            .values_mut()
            .filter(|job| job.is_live() && job.slot_of(device).is_some())
        {
            job.note(text.clone());
        }
        self.publish("device-lost", None, None, text);
        self.forget_strangers_time(device, now_ns);
        self.give_up_measuring(device, machine, now_ns);
    }

    pub(crate) fn measure<M: Machine>(&mut self, measured: Measurement, machine: &M, now_ns: u64) {
        let device = measured.device;
        self.note_strangers(&measured, now_ns);
        self.note_strangers_time(&measured, now_ns);
        let Some(known) = self
            .devices
            .get_mut(&device)
            .filter(|known| known.state != DeviceState::Lost)
        else {
            return;
        };
        known.measured = Some(measured);
        known.state = DeviceState::Ok;
        known.is_slow = false;
        self.note_shown_time(device);
        self.take_overheads(device, machine, now_ns);
        self.answer_unmanaged(device, now_ns);
        let jobs: Vec<JobId> = self
            .jobs
            .values()
            .filter(|job| job.is_live() && job.slot_of(device).is_some())
            .map(Job::id)
            .collect();
        for job in jobs {
            self.note_peaks(job, machine);
            self.bar_drifting(job, machine, now_ns);
            self.follow_falling_use(job, machine, now_ns);
        }
        self.share_pool(device, machine, now_ns);
    }

    /// A job over its limit gives up what it freed.
    fn follow_falling_use<M: Machine>(&mut self, job: JobId, machine: &M, now_ns: u64) {
        let Some(job) = self.jobs.get_mut(&job) else { return };
        for (slot, state) in job.slots.iter_mut().enumerate() {
            let pages = OnSlot { machine, slot };
            state.is_lowered &= state.ledger.used_sum(&pages) > state.ledger.limit();
            if state.ledger.is_over(&pages) {
                state.ledger.rebalance(&pages, now_ns);
            }
        }
    }

    /// Names every process that uses the device without being managed, once.
    fn note_strangers(&mut self, measured: &Measurement, now_ns: u64) {
        let managed = self.managed_pids();
        let strangers: Vec<_> = measured
            .processes
            .iter()
            .filter(|process| !managed.contains_key(&process.pid))
            .cloned()
            .collect();
        for process in &strangers {
            let job = process
                .descends_from
                .filter(|id| self.jobs.get(id).is_some_and(Job::is_live));
            let Some(known) = self.devices.get_mut(&measured.device) else {
                return;
            };
            let is_new = known.announced.insert(process.pid);
            let index = known.seen.index;
            let Some(id) = job else {
                if is_new {
                    let text = format!(
                        "pid {} uses {} of GPU {index}",
                        process.pid,
                        process.bytes.map_or("an unknown amount".to_owned(), format_bytes)
                    );
                    self.publish("unmanaged", None, Some(process.pid), text);
                }
                continue;
            };
            let Some(state) = self.jobs.get_mut(&id) else { continue };
            if let Entry::Vacant(place) = state.strangers.entry(process.pid) {
                place.insert(now_ns);
                state.strangers_seen = state.strangers_seen.saturating_add(1);
                let pid = process.pid;
                let text = format!("pid {pid} of {id} uses GPU {index} without Partage: no limit holds for it");
                state.note(text.clone());
                self.command(
                    Action::Tell {
                        job: id,
                        text: text.clone(),
                    },
                    "never silently unenforced",
                );
                self.publish("unmanaged", Some(id), Some(pid), text);
            }
        }
        self.forget_strangers(measured);
    }

    /// Drops strangers that no device shows any more.
    fn forget_strangers(&mut self, measured: &Measurement) {
        let mut shown: BTreeSet<u32> = measured.processes.iter().map(|process| process.pid).collect();
        let others = self
            .devices
            .values()
            .filter(|device| device.seen.uuid != measured.device);
        shown.extend(
            others
                .filter_map(|device| device.measured.as_ref())
                .flat_map(|m| &m.processes)
                .map(|p| p.pid),
        );
        for job in self.jobs.values_mut() {
            job.strangers.retain(|pid, _| shown.contains(pid));
        }
        if let Some(device) = self.devices.get_mut(&measured.device) {
            device.announced.retain(|pid| shown.contains(pid));
        }
    }

    /// Everything that is due. Runs at the start of a step, so that no order of events can outrun a deadline.
    pub(crate) fn expire<M: Machine>(&mut self, machine: &M, now_ns: u64) {
        if self
            .adoption_until_ns
            .is_some_and(|until| now_ns >= until || self.awaited.is_empty())
        {
            self.adoption_until_ns = None;
            let late = self.awaited.len();
            self.awaited.clear();
            let text = match late {
                0 => "every client of the broker before came back".to_owned(),
                late => format!("{late} clients did not come back yet and are counted with all they were granted"),
            };
            if self.clients.is_empty() && self.live_jobs() == 0 && late == 0 {
                // The first broker of this place has nobody to wait for.
            } else {
                self.publish("adoption-done", None, None, text);
            }
            for device in self.devices.keys().copied().collect::<Vec<_>>() {
                self.share_pool(device, machine, now_ns);
            }
        }
        self.expire_overheads(machine, now_ns);
        for id in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.expire_job(id, machine, now_ns);
        }
        self.forget_old_jobs(now_ns);
    }

    fn expire_job<M: Machine>(&mut self, id: JobId, machine: &M, now_ns: u64) {
        self.expire_time_limit(id, now_ns);
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.is_live()) else {
            return;
        };
        let mut actions = Vec::new();
        let mut killed = Vec::new();
        if let Some(stopping) = &mut job.stopping
            && !stopping.is_killed
            && now_ns >= stopping.kill_at_ns
        {
            stopping.is_killed = true;
            let action = Action::SignalJob {
                job: id,
                signal: Signal::Kill,
            };
            actions.push((action, format!("{}, and the grace is over", stopping.reason)));
        }
        if job.record.is_strict {
            for (pid, since_ns) in &mut job.strangers {
                if now_ns >= since_ns.saturating_add(STRICT_NS) {
                    *since_ns = now_ns;
                    let reason = format!("{id} is strict and pid {pid} uses a GPU without Partage");
                    actions.push((Action::KillUnmanaged { job: id, pid: *pid }, reason));
                    killed.push(*pid);
                }
            }
        }
        let is_over = job.linger_until_ns.is_some_and(|until| now_ns >= until);
        let text = |pid| format!("--strict killed pid {pid} of {id}: it used a GPU without Partage");
        // One that cannot be killed is tried again and named once.
        killed.retain(|pid| job.note(text(*pid)));
        for (action, reason) in actions {
            self.command(action, &reason);
        }
        for pid in killed {
            let tell = Action::Tell {
                job: id,
                text: text(pid),
            };
            self.command(tell, "whoever lost a process must know why");
            self.publish("strict-kill", Some(id), Some(pid), text(pid));
        }
        if is_over {
            self.end(id, "its last process is gone", machine, now_ns);
        }
    }

    fn forget_old_jobs(&mut self, now_ns: u64) {
        let ended = |job: &Job| match job.phase {
            Phase::Ended { forget_at_ns } => Some((forget_at_ns, job.id())),
            _ => None,
        };
        let mut old: Vec<(u64, JobId)> = self.jobs.values().filter_map(ended).collect();
        old.sort_unstable();
        let excess = old.len().saturating_sub(REMEMBER_COUNT);
        for (order, (forget_at_ns, id)) in old.into_iter().enumerate() {
            if order < excess || now_ns >= forget_at_ns {
                self.jobs.remove(&id);
            }
        }
    }

    /// When [`Policy::expire`] has something to do next.
    pub(crate) fn next_due(&self) -> Option<u64> {
        // With nobody left to wait for, an adoption ends at once.
        let adoption = self
            .adoption_until_ns
            .map(|until| if self.awaited.is_empty() { 0 } else { until });
        let mut due: Vec<u64> = adoption.into_iter().chain(self.overheads_due()).collect();
        for job in self.jobs.values() {
            match &job.phase {
                Phase::Waiting(queued) => {
                    due.extend(queued.deadline_ns);
                    due.push(queued.next_reminder_ns);
                }
                Phase::Live => {
                    due.extend(job.linger_until_ns);
                    due.extend(job.time_limit_at_ns);
                    due.extend(
                        job.stopping
                            .iter()
                            .filter(|stop| !stop.is_killed)
                            .map(|stop| stop.kill_at_ns),
                    );
                    if job.record.is_strict {
                        due.extend(
                            job.strangers
                                .values()
                                .map(|since_ns| since_ns.saturating_add(STRICT_NS)),
                        );
                    }
                }
                Phase::Ended { forget_at_ns } => due.push(*forget_at_ns),
            }
        }
        due.into_iter().min()
    }

    /// Begins to linger, or ends, once nothing of the job is left.
    pub(crate) fn look_after<M: Machine>(&mut self, id: JobId, machine: &M, now_ns: u64) {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.is_live()) else {
            return;
        };
        if job.is_first_alive || !job.clients.is_empty() {
            return;
        }
        if let Some(stopping) = &job.stopping {
            let reason = stopping.reason.clone();
            self.end(id, &reason, machine, now_ns);
        } else if job.linger_until_ns.is_none() {
            job.linger_until_ns = Some(now_ns.saturating_add(LINGER_NS));
            self.announce_end(id, "its last process is gone", now_ns);
            self.remember(id);
        }
    }

    /// Has a job's end written down: when it is announced, for a broker that stops before the job has lingered, and when
    /// nothing can change it any more, which counts instead.
    pub(crate) fn remember(&mut self, id: JobId) {
        if let Some(ended) = self.jobs.get(&id).and_then(Job::remembered) {
            self.command(Action::RememberJob(Box::new(ended)), "ended jobs answer for a day");
        }
    }

    /// Says that nothing of a job runs any more, and remembers since when.
    fn announce_end(&mut self, id: JobId, why: &str, now_ns: u64) {
        let unix_ns = self.unix_ns(now_ns);
        let shown: Vec<_> = self.jobs.get(&id).map_or(Vec::new(), |job| {
            let devices = job.record.devices.iter().map(|place| self.devices.get(&place.device));
            devices
                .map(|device| device.map(|device| (device.seen.index, device.seen.model.clone())))
                .collect()
        });
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.end = Some(End {
            unix_ns,
            reason: why.to_owned(),
        });
        for (slot, was) in job.slots.iter_mut().zip(shown) {
            slot.was = was.or_else(|| slot.was.take());
        }
        let summary = job.summary();
        let sentence = format!("{id} {}", summary.sentence());
        if !job.record.is_quiet && summary.has_used_a_gpu() {
            let text = sentence.clone();
            self.command(Action::Tell { job: id, text }, "its user may still be there");
        }
        self.publish("job-ended", Some(id), None, format!("{sentence}: {why}"));
    }

    /// A process of a job that only lingered met the driver after all.
    pub(crate) fn resume(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.is_lingering()) else {
            return;
        };
        job.linger_until_ns = None;
        job.end = None;
        let text = format!("{id} goes on: a process of it that was still to come is there");
        self.publish("job-resumed", Some(id), None, text);
    }

    pub(crate) fn end<M: Machine>(&mut self, id: JobId, why: &str, machine: &M, now_ns: u64) {
        let Some(job) = self.jobs.get(&id).filter(|job| job.is_live()) else {
            return;
        };
        if !job.is_lingering() {
            self.announce_end(id, why, now_ns);
        }
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.phase = Phase::Ended {
            forget_at_ns: now_ns.saturating_add(REMEMBER_NS),
        };
        job.linger_until_ns = None;
        job.strangers.clear();
        let stopping = job.stopping.take();
        let devices: Vec<DeviceUuid> = job.record.devices.iter().map(|place| place.device).collect();
        self.forget_times(id);
        self.command(Action::ForgetJob(id), why);
        self.remember(id);
        for ticket in stopping.into_iter().flat_map(|stopping| stopping.tickets) {
            self.reply(
                ticket,
                Reply::Done {
                    message: format!("{id} has ended"),
                },
                why,
            );
        }
        for device in devices {
            self.share_pool(device, machine, now_ns);
        }
    }

    /// The state that users see.
    pub(crate) fn state<M: Machine>(&self, job: &Job, machine: &M) -> JobState {
        match job.phase {
            Phase::Waiting(_) => return JobState::Waiting,
            Phase::Ended { .. } => return JobState::Ended,
            Phase::Live if job.is_lingering() => return JobState::Ended,
            Phase::Live => {}
        }
        let is_dying = |id| {
            self.clients
                .get(id)
                .is_some_and(|client| client.presence == Presence::Dying)
        };
        if !job.is_first_alive && !job.clients.is_empty() && job.clients.iter().all(is_dying) {
            return JobState::Dying;
        }
        let is_over = |(slot, state): (usize, &crate::job::Slot)| {
            state.ledger.held_sum(&OnSlot { machine, slot }) > state.ledger.limit()
        };
        if job.slots.iter().enumerate().any(is_over) {
            JobState::OverLimit
        } else if job.is_stopped {
            JobState::Stopped
        } else {
            JobState::Running
        }
    }

    /// A `run` that waited went away: the job never was.
    pub(crate) fn ticket_gone(&mut self, ticket: crate::event::Ticket) {
        let waits = |job: &&Job| matches!(&job.phase, Phase::Waiting(queued) if queued.ticket == ticket);
        if let Some(id) = self.jobs.values().find(waits).map(Job::id) {
            self.forget_waiting(id);
            self.publish("job-gone", Some(id), None, format!("{id} was given up while it waited"));
        }
        for job in self.jobs.values_mut() {
            if let Some(stopping) = &mut job.stopping {
                stopping.tickets.retain(|other| *other != ticket);
            }
        }
    }

    /// Refuses a command line's request.
    pub(crate) fn refuse(&mut self, ticket: crate::event::Ticket, why: ErrorView) {
        let reason = why.message.clone();
        self.reply(ticket, Reply::Error(why), &reason);
    }

    /// What a waiting `run` hears when somebody stops its job.
    pub(crate) fn stopped_while_waiting(id: JobId) -> ErrorView {
        let message = format!("{id} was stopped while it waited for room");
        ErrorView {
            code: ErrorCode::Internal,
            message,
            hint: None,
            holders: Vec::new(),
        }
    }
}
