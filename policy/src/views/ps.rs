// SPDX-License-Identifier: Apache-2.0
//! `ps` and `get`: jobs as documents.
//!
//! USED of a job on a device is the sum of min(U, L) + O over its clients: U is on the client's own page, L and O in
//! the broker's ledger (`Words::used` in `protocol/src/job_ledger/words.rs`).
//!
//! Names, labels and commands of a job are shown to its owner and to administrators only.

use std::ops::Bound;

use partage_protocol::admin::{
    CheckpointView, ClientView, ContainerView, EngineView, JobDeviceView, JobView, Reply, ResidenceView, TimeView,
    UnmanagedView,
};
use partage_protocol::message::NO_INDEX;
use partage_protocol::reservation::Word;
use partage_protocol::size::format_duration;
use partage_protocol::terms::ratio;
use partage_protocol::units::{DeviceUuid, JobId};
use partage_scheduling::TimeState;

use super::slow::Slowness;
use super::words::{regime_word, state_word};
use crate::books::Books;
use crate::books::seen::due::TIME_LIMIT_GRACE_NS;
use crate::books::{Access, may_see};
use crate::caller::Caller;
use crate::event::TargetQuery;
use crate::job::{Job, State};
use crate::machine::{Machine, OnSlot, overhead_of};
use crate::refusal::{Refusal, Why};
use crate::registration::Registration;
use crate::residence::Residence;
use crate::time::Measured;

impl Books {
    /// Answer to `ps` in one piece: current jobs, with `all` ended ones too, oldest first.
    pub fn ps<M: Machine>(&self, caller: &Caller, all: bool, machine: &M) -> Reply {
        self.ps_page(caller, (all, None), machine, |_| true)
    }

    /// A page of the answer to `ps`: the jobs after that one, as many as `fits` says of one after the other, at least
    /// one. The processes of no job come with the first page.
    pub fn ps_page<M: Machine>(
        &self,
        caller: &Caller,
        (all, after): (bool, Option<JobId>),
        machine: &M,
        mut fits: impl FnMut(&JobView) -> bool,
    ) -> Reply {
        let rest = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let (mut jobs, mut more) = (Vec::new(), false);
        for (_, job) in self.jobs.range(rest).filter(|(_, job)| all || !job.state().is_over()) {
            let view = self.view(job, caller, machine);
            more = !fits(&view) && !jobs.is_empty();
            if more {
                break;
            }
            jobs.push(view);
        }
        Reply::Ps {
            jobs,
            unmanaged: if after.is_none() { self.unmanaged() } else { Vec::new() },
            more,
        }
    }

    /// The jobs that live, as `caller` may see them, oldest first.
    pub fn live_views<M: Machine>(&self, caller: &Caller, machine: &M) -> Vec<JobView> {
        let live = self.jobs.values().filter(|job| !job.state().is_over());
        live.map(|job| self.view(job, caller, machine)).collect()
    }

    /// Answer to `get`.
    ///
    /// # Errors
    /// The target is none, several, or no target.
    pub fn get<M: Machine>(&self, caller: &Caller, target: &TargetQuery, machine: &M) -> Result<Reply, Refusal> {
        let id = self.resolve(target, caller, Access::Look)?;
        let job = self.jobs.get(&id).map(|job| self.view(job, caller, machine));
        job.map(Reply::Job).ok_or_else(|| Why::Unknown(id).into())
    }

    /// One job as `caller` may see it.
    pub fn job_view<M: Machine>(&self, id: JobId, caller: &Caller, machine: &M) -> Option<JobView> {
        self.jobs.get(&id).map(|job| self.view(job, caller, machine))
    }

    pub(crate) fn view<M: Machine>(&self, job: &Job, caller: &Caller, machine: &M) -> JobView {
        let record = &job.record;
        let sees = may_see(job, caller);
        let devices = (0..record.devices.len()).map(|slot| {
            let ledger = job.slots.get(slot).filter(|_| job.state().holds_memory());
            let ledger = ledger.map(|slot| &slot.ledger);
            let pages = OnSlot { machine, slot };
            let used = ledger.map_or(0, |ledger| ledger.used_sum(&pages));
            let granted = ledger.map_or(0, |ledger| ledger.held_sum(&pages));
            let mut view = self.slot_view(job.id(), slot, used, granted);
            view.overhead_bytes = ledger.map_or(0, |ledger| ledger.overhead_sum(&pages));
            view.managed_bytes = ledger.map_or(0, |_| self.managed_bytes(job, slot, machine));
            if !sees {
                view.limit_from.clear();
                view.request_from.clear();
                view.process_limit_from.clear();
            }
            view
        });
        let slots = job.slots.len();
        let clients = job.clients.iter().filter_map(|id| {
            let client = self.clients.get(id)?;
            let used = |slot| {
                let words = machine.words(*id, slot).filter(|words| words.owed.load() == 0);
                words.and_then(|words| words.shared.map(|shared| shared.used.load()))
            };
            let overhead_bytes: Vec<u64> = (0..slots).map(|slot| overhead_of(machine, *id, slot)).collect();
            let with_charges = |(slot, overhead): (usize, &u64)| used(slot).unwrap_or(0).saturating_add(*overhead);
            let used_bytes = overhead_bytes.iter().enumerate().map(with_charges).collect();
            Some(ClientView {
                pid: client.process.pid,
                state: client.presence.word().into(),
                used_bytes,
                overhead_bytes,
            })
        });
        JobView {
            job: job.id().to_string(),
            name: record.name.clone().filter(|_| sees),
            user: record.user.clone(),
            uid: record.uid,
            state: self.state(job, machine).word().into(),
            pid: record.first.map_or(0, |first| first.pid),
            command: if sees { record.command.clone() } else { Vec::new() },
            labels: if sees { record.labels.clone() } else { Vec::new() },
            devices: devices.collect(),
            clients: clients.collect(),
            denied: job.denied,
            started_ns: record.started_unix_ns,
            is_strict: record.is_strict,
            notes: if sees { self.job_notes(job) } else { Vec::new() },
            ended_ns: job.end.as_ref().map(|end| end.unix_ns),
            terms: record.terms.view(counted_from(job), sees),
            end_reason: job.end.as_ref().map(|end| end.reason.clone()),
            is_over_time: job.is_over_time,
            exit_code: job.exit_code.filter(|_| job.end.is_some()),
            unlimited: job.strangers_seen,
            container: record.registration.as_ref().filter(|_| sees).map(container_view),
            engine: record.registration.as_ref().filter(|_| sees).and_then(engine_view),
            queued_ns: self.queued_ns(job),
            suspends: record.residence.suspends,
            residence: self.residence_views(job),
            checkpoint: record.residence.saved.map(|save| CheckpointView {
                bytes: save.bytes,
                took_ns: save.took_ns,
                age_ns: self.unix_ns(self.now_ns).saturating_sub(save.made_unix_ns),
            }),
        }
    }

    /// How long it waited to start.
    fn queued_ns(&self, job: &Job) -> u64 {
        match job.life.queued() {
            Some(queued) if job.record.devices.is_empty() => self.now_ns.saturating_sub(queued.since_ns),
            _ => job.record.residence.queued_ns,
        }
    }

    /// How long it was in each state; where one was passed through, and *running* always.
    fn residence_views(&self, job: &Job) -> Vec<ResidenceView> {
        if job.record.devices.is_empty() {
            return Vec::new();
        }
        let ended = job.end.as_ref().map(|end| end.unix_ns);
        let until = ended.unwrap_or_else(|| self.unix_ns(self.now_ns));
        let ran = (Residence::Here, job.record.run_ns(until));
        let spent = job.record.residence.spent_ns(until);
        let view = |(state, spent_ns): (Residence, u64)| ResidenceView {
            state: state.word().to_owned(),
            spent_ns,
        };
        std::iter::once(ran).chain(spent).map(view).collect()
    }

    /// Sentences about a job for those who may see it.
    fn job_notes(&self, job: &Job) -> Vec<String> {
        let mut notes = job.notes.clone();
        if job.is_over_time && job.end.is_none() {
            let limit = format_duration(job.record.terms.time_limit_ns.unwrap_or(0));
            let grace = format_duration(TIME_LIMIT_GRACE_NS);
            notes.push(format!(
                "its time limit of {limit} is over: SIGTERM was sent, SIGKILL follows after {grace}"
            ));
        }
        notes.extend(job.unmanaged_note());
        notes.extend(self.drift_notes(job));
        notes.extend(self.overhead_notes(job));
        let places = job.record.devices.iter().filter(|_| job.state().holds_memory());
        for place in places {
            notes.extend(self.sick_note(place.device));
            notes.extend(self.drain_note(place.device));
        }
        let forced = job.record.forced();
        notes.extend(
            forced
                .iter()
                .map(|words| format!("beyond the rules, until it ends: {words}")),
        );
        notes
    }

    pub(crate) fn slot_view(&self, id: JobId, slot: usize, used_bytes: u64, granted_bytes: u64) -> JobDeviceView {
        let job = self.jobs.get(&id);
        let place = job.and_then(|job| job.record.devices.get(slot));
        let seen = place
            .and_then(|place| self.devices.get(&place.device))
            .map(|device| &device.seen);
        let state = job.and_then(|job| job.slots.get(slot));
        let peak = state.map_or(0, |slot| slot.peak);
        let was = state.and_then(|slot| slot.was.clone());
        let (index, model) = seen
            .map(|seen| (seen.index, seen.model.clone()))
            .or(was)
            .unwrap_or((NO_INDEX, String::new()));
        let origin = place.map(|place| place.origin.clone()).unwrap_or_default();
        JobDeviceView {
            index,
            uuid: place.map(|place| place.device.to_string()).unwrap_or_default(),
            model,
            limit_bytes: place.and_then(|place| place.limit),
            request_bytes: place.map_or(0, |place| place.request),
            used_bytes,
            peak_bytes: peak.max(used_bytes),
            granted_bytes: granted_bytes.max(used_bytes),
            denied: state.map(|slot| slot.denied).unwrap_or_default(),
            limit_from: origin.limit,
            request_from: origin.request,
            process_limit_bytes: place.and_then(|place| place.process),
            process_limit_from: origin.process,
            overhead_bytes: 0,
            managed_bytes: 0,
            time: place.and_then(|place| self.time_view(id, place.device)),
        }
    }

    /// What a job got of a device's time, for users.
    pub(crate) fn time_view(&self, job: JobId, device: DeviceUuid) -> Option<TimeView> {
        let measured = self.times.get(&(job, device))?;
        let known = self.jobs.get(&job).filter(|job| job.residence() == Residence::Here)?;
        let promise_ppm = known.record.terms.promise_ppm;
        Some(time_view(measured, promise_ppm, &self.judge(measured)))
    }

    /// The processes of no job.
    #[must_use]
    pub fn unmanaged(&self) -> Vec<UnmanagedView> {
        let managed = self.managed_pids();
        let mut all = Vec::new();
        for device in self.devices.values() {
            for process in device.measured.iter().flat_map(|measured| &measured.processes) {
                if !managed.contains_key(&process.pid) {
                    all.push(UnmanagedView {
                        pid: process.pid,
                        uid: process.uid,
                        gpu: device.seen.index,
                        used_bytes: process.bytes.unwrap_or(0),
                        job: process.descends_from.map(|job| job.to_string()),
                        user: None,
                        command: None,
                        other_broker: process.other_broker.clone(),
                        busy: process.busy_ppm.map(ratio),
                    });
                }
            }
        }
        all.sort_by_key(|process| (process.gpu, process.pid));
        all
    }
}

fn time_view(measured: &Measured, promise_ppm: u32, slowness: &Slowness) -> TimeView {
    let now = &measured.now;
    let held_by = match slowness {
        Slowness::None | Slowness::Program | Slowness::NotDraining => None,
        Slowness::Cap => Some("cap".to_owned()),
        Slowness::Neighbour(job) | Slowness::Priority(job) => Some(job.to_string()),
        Slowness::Unmanaged => Some("unmanaged".to_owned()),
    };
    let state = if now.is_not_draining {
        TimeState::NotDraining
    } else {
        now.state
    };
    TimeView {
        asked: ratio(promise_ppm),
        share: ratio(now.asked_ppm),
        got_1s: ratio(now.got_1s_ppm),
        got_60s: ratio(now.got_60s_ppm),
        used_ns: now.used_ns,
        waited_ns: now.waited_ns,
        waited_60s_ns: measured.waited_recently_ns(),
        state: state_word(state).to_owned(),
        held_by,
        is_held_by_priority: matches!(slowness, Slowness::Priority(_)),
        unit_ns: now.unit_ns,
        regime: regime_word(now.regime).to_owned(),
    }
}

/// A time limit counts from there, in Unix time; while the job is away it has no end.
fn counted_from(job: &Job) -> Option<u64> {
    let is_counted = job.state() != State::Waiting && job.residence() == Residence::Here;
    let from = job
        .record
        .started_unix_ns
        .saturating_add(job.record.residence.paused_ns);
    is_counted.then_some(from)
}

/// The engine's job that was registered, if it is one's.
fn engine_view(registration: &Registration) -> Option<EngineView> {
    let engine = Some(&registration.engine).filter(|engine| !engine.is_none())?;
    let words = Some(engine.words.clone()).filter(|words| !words.is_empty());
    Some(EngineView {
        id: engine.id.clone(),
        words,
    })
}

/// What was registered.
fn container_view(registration: &Registration) -> ContainerView {
    let cgroup = registration.cgroup.as_ref();
    ContainerView {
        id: registration.container.clone(),
        name: Some(registration.name.clone()).filter(|name| !name.is_empty()),
        cgroup: cgroup.map(|cgroup| cgroup.path.clone()),
    }
}
