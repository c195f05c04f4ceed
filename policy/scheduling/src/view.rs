// SPDX-License-Identifier: Apache-2.0
//! What is shown of the jobs, and how often the devices are to be looked at.

use partage_protocol::units::JobId;

use crate::command::{Cause, JobView, TimeState};
use crate::device::{Device, Turn};
use crate::event::DeviceKey;
use crate::job_on_device::{Gate, JobOnDevice};
use crate::scheduler::Scheduler;

/// A budget with less than this left may end before the next look at the ordinary interval.
const NEAR_NS: i64 = 2_000_000;
/// A look may come later by this part of the time for which nobody, or only one job, has wanted the device.
const IDLE_PARTS: u64 = 200;
const BUSY_PARTS: u64 = 1_000;
/// For so long after a gate changed its client's work is expected to begin or to end.
const SETTLING_NS: u64 = 2_000_000;

impl Scheduler {
    /// Every job on every device, in the order of their keys.
    pub fn view(&self, now: u64) -> Vec<JobView> {
        let now = now.max(self.now);
        let rows = self
            .devices
            .values()
            .flat_map(|device| device.members.iter().map(move |row| (device, row)));
        rows.map(|(device, (job, member))| self.row(device, *job, member, now))
            .collect()
    }

    fn row(&self, device: &Device, job: JobId, member: &JobOnDevice, now: u64) -> JobView {
        let wants = member.wants();
        let state = if member.is_stuck() {
            TimeState::NotDraining
        } else if member.is_capped() {
            TimeState::Capped
        } else if wants && member.held_by.is_some() && !member.is_busy() {
            TimeState::Waiting
        } else if wants || member.wanted_within(self.config.think_ns, self.now) {
            TimeState::Open
        } else {
            TimeState::Idle
        };
        let held_by = match member.held_by {
            Some(Cause::Cap) => Cause::Cap,
            Some(by) if wants => by,
            // Its gate is open and the device is not ours to give.
            None if wants && device.is_unmanaged => Cause::Unmanaged,
            _ => Cause::None,
        };
        JobView {
            job,
            device: device.key,
            asked_ppm: device.entitled_ppm(job, &self.config),
            got_ppm_1s: member.second.ppm(now),
            got_ppm_60s: member.minute.ppm(now),
            used_ns: u64::try_from(member.used_ns).unwrap_or(0),
            corrected_ns: member.correction.charged_ns(),
            waited_ns: member.waited_ns,
            state,
            regime: device.rule.regime(),
            unit_ns: member.unit_ns(),
            held_by,
            waits_for: member.waits.mostly(now),
            wanted_ppm_60s: member.wanted.as_ref().map_or(0, |wanted| wanted.ppm(now)),
        }
    }

    /// How long after one observation of the device the next is wanted. `None`: there is nobody to look at.
    pub fn wants_observation(&self, device: DeviceKey) -> Option<u64> {
        let config = &self.config;
        let device = self.devices.get(&device)?;
        let present: Vec<(JobId, &JobOnDevice)> = device.present().collect();
        let is_near_cap = present.iter().any(|(_, member)| {
            let budget = member
                .budget
                .as_ref()
                .map(|budget| (budget.is_exhausted(), budget.budget_ns()));
            member.wants() && budget.is_some_and(|(is_out, left)| !is_out && left < NEAR_NS)
        });
        // What begins and ends at a gate that has just changed is measured finely: it is not seen again.
        let is_settling = present.iter().flat_map(|(_, member)| &member.seats).any(|seat| {
            let changed = self.now.saturating_sub(seat.changed_ns);
            let is_awaited = seat.gate != Gate::Closed && seat.seen.is_waiting && !seat.seen.is_busy;
            let is_ending = seat.gate == Gate::Closed && seat.seen.is_busy;
            changed < SETTLING_NS && (is_awaited || is_ending)
        });
        match present.as_slice() {
            [] => None,
            // A gang may be kept away from here for another device's sake, and must be seen to want.
            [(_, only)]
                if only.budget.is_none() && only.held_by.is_none() && !device.is_unmanaged && !device.is_turns() =>
            {
                Some(config.watch_alone_ns)
            }
            _ if is_settling => Some(config.watch_drain_ns),
            _ if is_near_cap => Some(config.watch_turns_ns),
            [(_, only)] if only.wants() => Some(config.watch_light_ns / 2),
            [_] => Some(config.watch_light_ns),
            _ => Some(self.watch_shared(device, &present)),
        }
    }

    /// Does an observation of the device that comes now come so late that nobody kept its time since the one before?
    pub fn is_late(&self, device: DeviceKey, now: u64) -> bool {
        let seen_ns = self.devices.get(&device).and_then(|device| device.observed_ns);
        let due_ns = seen_ns.and_then(|seen_ns| Some(seen_ns.saturating_add(self.wants_observation(device)?)));
        due_ns.is_some_and(|due_ns| now > due_ns.saturating_add(self.config.late_ns))
    }

    /// Is an observation of the device worth that its clients mark their work? Not for a job that is alone on it
    /// without a cap: nobody's share depends on what it uses, and a launch costs it no more than the gate.
    pub fn wants_marks(&self, device: DeviceKey) -> bool {
        self.wants_observation(device)
            .is_some_and(|interval| interval < self.config.watch_alone_ns)
    }

    /// Several jobs are there. The longer nobody but who is busy has wanted the device, the less often it is looked at:
    /// what is seen later by so much is little beside a sleep of that length.
    fn watch_shared(&self, device: &Device, present: &[(JobId, &JobOnDevice)]) -> u64 {
        let (config, now) = (&self.config, self.now);
        let wanting = || {
            present
                .iter()
                .map(|(_, member)| *member)
                .filter(|member| member.is_candidate())
        };
        let slept_ns = |members: &mut dyn Iterator<Item = &JobOnDevice>| {
            let last = members.filter_map(|member| member.wanted_ns).max().unwrap_or(0);
            now.saturating_sub(last)
        };
        let idle = || {
            present
                .iter()
                .map(|(_, member)| *member)
                .filter(|member| !member.is_candidate())
        };
        let idle_ns = slept_ns(&mut idle());
        let is_recent = idle_ns < config.hysteresis_ns;
        let Some(lowest) = wanting().map(|member| member.terms.class).min() else {
            // Nobody wants anything; in Turns every gate is closed and whoever wakes waits for the next look.
            return if is_recent {
                config.watch_light_ns / 4
            } else if device.is_turns() {
                config.watch_light_ns
            } else {
                (idle_ns / IDLE_PARTS).clamp(config.watch_idle_ns, 10 * config.watch_idle_ns)
            };
        };
        let is_draining = device.is_turns() && matches!(device.turn, Turn::Free { .. });
        let is_holder_idle = device
            .holder()
            .and_then(|job| device.members.get(&job))
            .is_some_and(|member| !member.wants());
        let others_want = wanting().nth(1).is_some();
        let mut higher = present
            .iter()
            .map(|(_, member)| *member)
            .filter(|member| member.terms.class > lowest)
            .peekable();
        let has_higher = higher.peek().is_some();
        let expects_higher = has_higher && slept_ns(&mut higher) < config.hysteresis_ns;
        if is_draining || is_holder_idle || expects_higher {
            config.watch_drain_ns
        } else if device.is_turns() && (others_want || is_recent) {
            config.watch_turns_ns
        } else if others_want || has_higher {
            config.watch_overlap_ns
        } else if device.is_turns() {
            config.watch_light_ns / 2
        } else {
            (idle_ns / BUSY_PARTS).clamp(config.watch_light_ns, config.watch_idle_ns)
        }
    }
}
