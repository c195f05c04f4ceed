// SPDX-License-Identifier: Apache-2.0
//! `status`: devices and the queue as a document.

use partage_protocol::admin::{BrokerView, DeniedView, DeviceView, DrainedView, QueuedView, StatusView, UnifiedView};
use partage_protocol::terms::{WHOLE_PPM, format_part, ratio};
use partage_protocol::units::DeviceUuid;
use partage_scheduling::Regime;

use super::telemetry::{sick_view, telemetry_view, watts};
use super::words::regime_word;
use crate::books::Books;
use crate::device::{DeviceAccount, DeviceState};
use crate::job::{Job, both};
use crate::machine::Machine;

impl Books {
    /// Answer to `status`; what the broker knows of itself is given, jobs and clients are filled in.
    pub fn status<M: Machine>(&self, broker: BrokerView, now_ns: u64, machine: &M) -> StatusView {
        let is_running = |job: &&Job| job.state().is_running();
        let running = self.jobs.values().filter(is_running).count();
        let broker = BrokerView {
            jobs: u32::try_from(running).unwrap_or(u32::MAX),
            clients: u32::try_from(self.clients.len()).unwrap_or(u32::MAX),
            ..broker
        };
        let mut devices: Vec<DeviceView> = self
            .devices
            .keys()
            .filter_map(|device| self.device_view(*device, machine))
            .collect();
        devices.sort_by_key(|device| device.index);
        let queue = self.queue().filter_map(|id| self.jobs.get(&id)).filter_map(|job| {
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
        let totals = match broker.is_admin {
            true => self.live_totals(machine),
            false => Vec::new(),
        };
        StatusView {
            totals,
            broker,
            devices,
            queue: queue.collect(),
        }
    }

    fn device_view<M: Machine>(&self, device: DeviceUuid, machine: &M) -> Option<DeviceView> {
        let known = self.devices.get(&device)?;
        let mut account = self.account(device, machine)?;
        // What a job that lingers holds is anybody's who needs it.
        let lingers = |id| self.jobs.get(&id).is_some_and(Job::is_lingering);
        account.holds.retain(|hold| !lingers(hold.job));
        let promises = self.time_promises(device).filter(|(job, _)| !job.is_lingering());
        let promised_time: u64 = promises.map(|(_, ppm)| u64::from(ppm)).sum();
        let sick = self.sickness(device);
        let state = match (known.state, sick) {
            (DeviceState::Lost, _) => format!("{}: {}", known.state.word(), known.why),
            (_, Some(_)) => "sick".into(),
            (DeviceState::Ok, None) if self.is_drained(device) => match self.jobs_to_move(device, machine).is_empty() {
                true => "drained".into(),
                false => "draining".into(),
            },
            (state, None) => state.word().into(),
        };
        let told = known.measured.as_ref().map(|measured| &measured.telemetry);
        let percent = |part: u32| f64::from(part.min(100)) / 100.0;
        Some(DeviceView {
            utilization: told.and_then(|told| told.busy_percent).map(percent),
            temperature_celsius: told.and_then(|told| told.temperature_celsius),
            power_watts: told.and_then(|told| told.power_milliwatts).map(watts),
            throttle: told.map_or_else(Vec::new, |told| {
                told.throttles().map(|reason| reason.word.to_owned()).collect()
            }),
            telemetry: told.map(|told| telemetry_view(told, self.health.get(&device))),
            sick: sick.map(sick_view),
            index: known.seen.index,
            uuid: device.to_string(),
            model: known.seen.model.clone(),
            state,
            total_bytes: known.seen.total_bytes,
            usable_bytes: known.usable(),
            committed_bytes: account.committed().saturating_add(account.unmanaged()),
            used_bytes: known.measured.as_ref().map_or(0, |measured| measured.used_bytes),
            unmanaged_bytes: account.unmanaged().saturating_sub(account.host()),
            unified: known.seen.is_unified.then(|| UnifiedView {
                host_bytes: account.host(),
                kept_bytes: known.seen.reserve_bytes,
            }),
            unmanaged_time: self.unmanaged_part(device).map(ratio),
            jobs: account.holds.iter().map(|hold| hold.job.to_string()).collect(),
            promised_bytes: account.promised(),
            denied: self.denied_on(&account),
            notes: account
                .overcommit_note()
                .into_iter()
                .chain(self.time_note(device))
                .chain(self.sick_note(device))
                .chain(self.drain_note(device))
                .collect(),
            is_drained: self.is_drained(device),
            drained: self.drained().get(&device).map(|mark| DrainedView {
                since_unix_ns: mark.since_unix_ns,
                uid: mark.uid,
            }),
            unmanaged_notes: self.unmanaged_note(device).into_iter().collect(),
            // As a ratio, which 53 bits hold exactly enough.
            promised_time: promised_time as f64 / f64::from(WHOLE_PPM),
            regime: self.regime(device).map(|regime| regime_word(regime).to_owned()),
        })
    }

    /// Denials of the live jobs of a device.
    fn denied_on(&self, account: &DeviceAccount) -> DeniedView {
        let slots = account
            .holds
            .iter()
            .filter_map(|hold| self.jobs.get(&hold.job)?.slots.get(hold.slot));
        slots.fold(DeniedView::default(), |sum, slot| both(&sum, &slot.denied))
    }

    /// How a device is shared, where anything is measured on it.
    pub(crate) fn regime(&self, device: DeviceUuid) -> Option<Regime> {
        let mut here = self.times.iter().filter(|((_, other), _)| *other == device);
        here.next().map(|(_, measured)| measured.now.regime)
    }
}
