// SPDX-License-Identifier: Apache-2.0
//! What users are shown: jobs, devices, queue, as the admin protocol's documents.
//!
//! Names, labels and commands of a job are shown to its owner and to administrators only.

use std::ops::Bound;

use partage_protocol::admin::{
    BrokerView, ClientView, DeniedView, DeviceView, ErrorView, JobDeviceView, JobView, QueuedView, Reply, StatusView,
    UnmanagedView,
};
use partage_protocol::message::NO_INDEX;
use partage_protocol::reservation::Word;
use partage_protocol::terms::{WHOLE_PPM, format_part, ratio};
use partage_protocol::units::JobId;

use crate::event::{Caller, TargetQuery};
use crate::job::{Job, State};
use crate::measured_time::regime_word;
use crate::overhead::overhead_of;
use crate::policy::{Machine, OnSlot, Policy};
use crate::room::Picture;
use crate::target::{Access, may_see};

impl Policy {
    /// Answer to `ps` in one piece: current jobs, with `all` ended ones too, oldest first.
    pub fn ps<M: Machine>(&self, caller: &Caller, all: bool, machine: &M) -> Reply {
        self.ps_page(caller, (all, None), machine, |_| true)
    }

    /// A page of the answer to `ps`: the jobs after that one, as many as `fits` says of one after the other, at least one.
    /// The processes of no job come with the first page.
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

    /// Answer to `get`.
    ///
    /// # Errors
    /// The target is none, several, or no target.
    pub fn get<M: Machine>(&self, caller: &Caller, target: &TargetQuery, machine: &M) -> Result<Reply, Box<ErrorView>> {
        let id = self.resolve(target, caller, Access::Look).map_err(Box::new)?;
        let job = self.jobs.get(&id).map(|job| self.view(job, caller, machine));
        job.map(Reply::Job)
            .ok_or_else(|| Box::new(crate::request::invalid(format!("{id} is unknown"), None)))
    }

    /// Answer to `status`; what the broker knows of itself is given, jobs and clients are filled in.
    pub fn status<M: Machine>(&self, mut broker: BrokerView, now_ns: u64, machine: &M) -> StatusView {
        let is_running = |job: &&Job| job.state().is_running();
        broker.jobs = u32::try_from(self.jobs.values().filter(is_running).count()).unwrap_or(u32::MAX);
        broker.clients = u32::try_from(self.clients.len()).unwrap_or(u32::MAX);
        let mut devices: Vec<DeviceView> = self
            .devices
            .keys()
            .filter_map(|device| self.device_view(*device, machine))
            .collect();
        devices.sort_by_key(|device| device.index);
        let queue = self.queue.iter().filter_map(|id| self.jobs.get(id)).filter_map(|job| {
            let queued = job.life.queued()?;
            Some(QueuedView {
                job: job.id().to_string(),
                user: job.record.user.clone(),
                mem: queued.mem_text.clone(),
                compute: Some(queued.spec.terms.promise_ppm)
                    .filter(|ppm| *ppm > 0)
                    .map(|ppm| format_part(ppm).replace(' ', "")),
                waited_ns: now_ns.saturating_sub(queued.since_ns),
                reason: queued.reason.clone(),
            })
        });
        StatusView {
            broker,
            devices,
            queue: queue.collect(),
        }
    }

    /// Whose a job is, while it is known: waiting, live, or ended within the last day.
    #[must_use]
    pub fn owner(&self, job: JobId) -> Option<u32> {
        self.jobs.get(&job).map(|job| job.record.uid)
    }

    /// Jobs that are live or lingering; a private broker leaves when there is none and nobody waits.
    #[must_use]
    pub fn live_jobs(&self) -> usize {
        self.jobs.values().filter(|job| job.state().keeps_the_broker()).count()
    }

    /// Jobs that wait.
    #[must_use]
    pub fn waiting_jobs(&self) -> usize {
        self.queue.len()
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
            }
            view
        });
        let slots = job.slots.len();
        let clients = job.clients.iter().filter_map(|id| {
            let client = self.clients.get(id)?;
            let used = |slot| {
                machine
                    .words(*id, slot)
                    .and_then(|words| words.shared.map(|shared| shared.used.load()))
            };
            let shown = if client.is_nvml_only { 0..0 } else { 0..slots };
            let overhead_bytes: Vec<u64> = shown.map(|slot| overhead_of(machine, *id, slot)).collect();
            let with_charges = |(slot, overhead): (usize, &u64)| used(slot).unwrap_or(0).saturating_add(*overhead);
            let used_bytes = overhead_bytes.iter().enumerate().map(with_charges).collect();
            Some(ClientView {
                pid: client.process.pid,
                state: client.presence.word().into(),
                used_bytes,
                overhead_bytes,
            })
        });
        let started_unix_ns = Some(record.started_unix_ns).filter(|_| job.state() != State::Waiting);
        let mut notes = job.notes.clone();
        notes.extend(job.strangers_note());
        notes.extend(self.drift_notes(job));
        notes.extend(self.overhead_notes(job));
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
            notes: if sees { notes } else { Vec::new() },
            ended_ns: job.end.as_ref().map(|end| end.unix_ns),
            terms: record.terms.view(started_unix_ns, sees),
            end_reason: job.end.as_ref().map(|end| end.reason.clone()),
            exit_code: job.exit_code.filter(|_| job.end.is_some()),
            unlimited: job.strangers_seen,
        }
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
            overhead_bytes: 0,
            managed_bytes: 0,
            time: place.and_then(|place| self.time_view(id, place.device)),
        }
    }

    fn device_view<M: Machine>(&self, device: partage_protocol::units::DeviceUuid, machine: &M) -> Option<DeviceView> {
        let known = self.devices.get(&device)?;
        let mut picture = self.picture(device, machine)?;
        // What a job that lingers holds is anybody's who needs it.
        let lingers = |id| self.jobs.get(&id).is_some_and(Job::is_lingering);
        picture.holds.retain(|hold| !lingers(hold.job));
        let promises = self.time_promises(device).filter(|(job, _)| !job.is_lingering());
        let promised_time: u64 = promises.map(|(_, ppm)| u64::from(ppm)).sum();
        let is_lost = known.state == crate::device::DeviceState::Lost;
        let state = if is_lost {
            format!("{}: {}", known.state.word(), known.why)
        } else {
            known.state.word().into()
        };
        Some(DeviceView {
            index: known.seen.index,
            uuid: device.to_string(),
            model: known.seen.model.clone(),
            state,
            total_bytes: known.seen.total_bytes,
            usable_bytes: known.usable(),
            committed_bytes: picture.committed().saturating_add(picture.unmanaged()),
            used_bytes: known.measured.as_ref().map_or(0, |measured| measured.used_bytes),
            unmanaged_bytes: picture.unmanaged(),
            unmanaged_time: self.strangers_part(device).map(ratio),
            jobs: picture.holds.iter().map(|hold| hold.job.to_string()).collect(),
            promised_bytes: picture.promised(),
            denied: self.denied_on(&picture),
            notes: picture
                .overcommit_note()
                .into_iter()
                .chain(self.time_note(device))
                .collect(),
            unmanaged_notes: self.strangers_note(device).into_iter().collect(),
            // As a ratio, which 53 bits hold exactly enough.
            promised_time: promised_time as f64 / f64::from(WHOLE_PPM),
            regime: self.regime(device).map(|regime| regime_word(regime).to_owned()),
        })
    }

    /// Denials of the live jobs of a device.
    fn denied_on(&self, picture: &Picture) -> DeniedView {
        let slots = picture
            .holds
            .iter()
            .filter_map(|hold| self.jobs.get(&hold.job)?.slots.get(hold.slot));
        slots.fold(DeniedView::default(), |sum, slot| DeniedView {
            limit: sum.limit + slot.denied.limit,
            card_full: sum.card_full + slot.denied.card_full,
            no_broker: sum.no_broker + slot.denied.no_broker,
            overhead: sum.overhead + slot.denied.overhead,
        })
    }

    fn unmanaged(&self) -> Vec<UnmanagedView> {
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
                        busy: process.busy_ppm.map(ratio),
                    });
                }
            }
        }
        all.sort_by_key(|process| (process.gpu, process.pid));
        all
    }
}
