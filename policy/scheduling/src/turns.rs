// SPDX-License-Identifier: Apache-2.0
//! Turns: one job at a time has the device; it is drained in between.
//!
//! ```text
//!              grant: drained, and the candidate with the earliest deadline (a gang: on all its devices)
//!   free ──────────────────────────────────────────────────────────────────────────────────────────► held
//!    ▲  │ not drained in time: Overlap                                                                │
//!    └──┴─────────────────────────────────────────────────────────────────────────────────────────────┘
//!              revoke: somebody else wants it, and the holder had its request, is idle, capped or outranked
//! ```
//! A holder that nobody waits for keeps its turn. Unless the device must be one job's alone, a job of a higher class
//! than the holder that neither wants the device all the time nor is ahead of its share passes without a turn, and the
//! holder is closed as long as that job wants the device.

use partage_protocol::terms::Class;
use partage_protocol::units::JobId;

use crate::class::request_ns;
use crate::command::{Action, Cause, Command};
use crate::contention::Contention;
use crate::device::Turn;
use crate::event::DeviceKey;
use crate::job_on_device::JobOnDevice;
use crate::overlap;
use crate::scheduler::Scheduler;

/// A turn ends after this many requests of time by the clock, whatever was charged: a holder may want and not use.
const CLOCK_REQUESTS: u64 = 4;

impl Scheduler {
    /// Ends and begins turns on these devices, which gangs connect.
    pub(crate) fn take_turns(&mut self, keys: &[DeviceKey], out: &mut Vec<Command>) {
        for key in keys {
            if let Some((job, why)) = self.turn_is_over(*key) {
                self.end_turn(*key, job);
                self.note(why);
            }
        }
        for key in keys {
            self.fall_back_if_late(*key, out);
        }
        for key in keys {
            self.grant(*key);
        }
        for key in keys {
            self.judge_turns(*key);
        }
    }

    /// The holder and why its turn is over, if it is.
    fn turn_is_over(&mut self, key: DeviceKey) -> Option<(JobId, &'static str)> {
        let (config, now) = (self.config, self.now);
        let device = self.devices.get(&key)?;
        let job = device.holder()?;
        let Turn::Held { since_ns, .. } = device.turn else {
            return None;
        };
        let Some(member) = device.members.get(&job) else {
            return Some((job, "the holder is gone"));
        };
        let is_claimed = device.claim.is_some_and(|claim| claim != job);
        let has_others = self.wanting(key).iter().any(|other| *other != job);
        if member.is_capped() {
            return Some((job, "the cap is used up"));
        }
        if self
            .gangs
            .get(&job)
            .is_some_and(|gang| !gang.may_go_on(job, &self.devices))
        {
            return Some((job, "the gang is kept away on another device"));
        }
        let is_served = device.eevdf.is_served(job);
        if is_claimed {
            return Some((job, "a gang gets all its devices at once"));
        }
        if !has_others {
            if is_served {
                self.begin(key, job);
            }
            return None;
        }
        if !self.wanted_within(key, job, config.release_ns) {
            return Some((job, "the holder is idle"));
        }
        if self.is_stalled(key, job) {
            return Some((job, "its work does not end"));
        }
        // A job passes beside the holder, unless one of the two is a gang or the device must be one job's alone: then
        // the turn ends, for a gang where the next one is its own.
        let is_alone = device.rule.is_forced || self.gangs.contains_key(&job);
        let may = |other| is_alone || (self.gangs.contains_key(&other) && self.order(key).first() == Some(&other));
        if device.interrupted_by(member.terms.class, may, &config, now).is_some() {
            return Some((job, "a higher class wants the device"));
        }
        let request = request_ns(member.terms.class, device.quantum_ns);
        let requests = if self.is_absent(key, job) { 1 } else { CLOCK_REQUESTS };
        let is_long = now.saturating_sub(since_ns) >= requests * request;
        if is_served || is_long {
            if self.order(key).first() == Some(&job) {
                self.begin(key, job);
                return None;
            }
            return Some((job, "its request is served"));
        }
        None
    }

    /// The job asks again and keeps its turn.
    fn begin(&mut self, key: DeviceKey, job: JobId) {
        let now = self.now;
        if let Some(device) = self.devices.get_mut(&key) {
            device.eevdf.renew(job);
            device.turn = Turn::Held { job, since_ns: now };
            device.last_holder = Some(job);
        }
    }

    /// Nobody holds the device; of a gang, any of its devices.
    fn end_turn(&mut self, key: DeviceKey, job: JobId) {
        for key in self.turn_devices(key, job) {
            if let Some(device) = self.devices.get_mut(&key)
                && device.holder() == Some(job)
            {
                device.turn = Turn::Free { since_ns: self.now };
            }
        }
    }

    /// The devices on which the job has its turn together with this one.
    fn turn_devices(&self, key: DeviceKey, job: JobId) -> Vec<DeviceKey> {
        match self.gangs.get(&job) {
            Some(gang) => {
                let is_turns = |key: &&DeviceKey| self.devices.get(key).is_some_and(|device| device.is_turns());
                gang.devices.iter().filter(is_turns).copied().collect()
            }
            None => vec![key],
        }
    }

    /// Whether the device is drained, and the gangs that have a seat on it are drained everywhere.
    fn is_settled(&self, key: DeviceKey) -> bool {
        self.devices.get(&key).is_some_and(|device| {
            let is_drained = |job: &JobId| {
                self.gangs
                    .get(job)
                    .is_none_or(|gang| !gang.devices.contains(&key) || gang.is_drained(*job, &self.devices))
            };
            matches!(device.turn, Turn::Free { .. }) && device.is_quiet() && device.members.keys().all(is_drained)
        })
    }

    /// Leaves Turns where a drain has taken too long and somebody waits for its end.
    fn fall_back_if_late(&mut self, key: DeviceKey, out: &mut Vec<Command>) {
        let Some(device) = self.devices.get(&key) else { return };
        let Turn::Free { since_ns } = device.turn else { return };
        // What has stood still for as long as a drain may take, before this one began or in it, will not end it either.
        let is_late = self.now.saturating_sub(since_ns) >= device.drain_timeout_ns(&self.config)
            || device.is_hopeless(&self.config);
        // A capped job waits, too, if what it has on the device is waiting for what its gate keeps out.
        let is_awaited = device.members.values().any(JobOnDevice::wants) || !self.wanting(key).is_empty();
        if !device.is_turns() || !is_late || !is_awaited || self.is_settled(key) {
            return;
        }
        let mut keys = vec![key];
        for job in device.members.keys() {
            keys.extend(self.turn_devices(key, *job));
        }
        for key in keys {
            if let Some(device) = self.devices.get_mut(&key)
                && device.is_turns()
                && let Some((regime, reason)) = device.rule.give_up(self.now)
            {
                device.claim = None;
                let action = Action::Regime { device: key, regime };
                out.push(Command { action, reason });
                overlap::judge(device, &self.config, self.now);
            }
        }
    }

    /// Jobs that would use the device if they were let. A gang wants all its devices if it wants one.
    fn wanting(&self, key: DeviceKey) -> Vec<JobId> {
        let Some(device) = self.devices.get(&key) else {
            return Vec::new();
        };
        let wants = |(job, member): &(JobId, &JobOnDevice)| match self.gangs.get(job) {
            Some(gang) if gang.devices.contains(&key) => {
                !member.is_capped() && gang.any(*job, &self.devices, JobOnDevice::wants)
            }
            _ => member.is_candidate(),
        };
        device.present().filter(wants).map(|(job, _)| job).collect()
    }

    /// Whether the job wanted the device, or as a gang any of its devices, within this time.
    fn wanted_within(&self, key: DeviceKey, job: JobId, ns: u64) -> bool {
        let wanted = |member: &JobOnDevice| member.wanted_within(ns, self.now);
        match self.gangs.get(&job) {
            Some(gang) => gang.any(job, &self.devices, wanted),
            None => self
                .devices
                .get(&key)
                .and_then(|device| device.members.get(&job))
                .is_some_and(wanted),
        }
    }

    /// Whether work of the job does not end; of a gang, on any of its devices.
    fn is_stalled(&self, key: DeviceKey, job: JobId) -> bool {
        match self.gangs.get(&job) {
            Some(gang) => gang.any(job, &self.devices, |member| member.is_stalled),
            None => self
                .devices
                .get(&key)
                .and_then(|device| device.members.get(&job))
                .is_some_and(|member| member.is_stalled),
        }
    }

    /// Whether this is a gang that works on its other devices and has not wanted this one for as long as a request.
    fn is_absent(&self, key: DeviceKey, job: JobId) -> bool {
        let Some(device) = self.devices.get(&key).filter(|_| self.gangs.contains_key(&job)) else {
            return false;
        };
        let is_here = |member: &JobOnDevice| {
            member.wants() || member.wanted_within(request_ns(member.terms.class, device.quantum_ns), self.now)
        };
        !device.members.get(&job).is_some_and(is_here)
    }

    /// Candidates in the order in which they are to have the device: those that are not ahead first, among these the
    /// higher class, then the earlier deadline. A gang that is absent has no class above another's. Whose work does not
    /// end comes last.
    fn order(&self, key: DeviceKey) -> Vec<JobId> {
        let Some(device) = self.devices.get(&key) else {
            return Vec::new();
        };
        let may = |job: &JobId| {
            self.gangs
                .get(job)
                .is_none_or(|gang| gang.may_run(*job, &self.devices, &self.config, self.now))
        };
        let mut left: Vec<JobId> = self.wanting(key).into_iter().filter(may).collect();
        let mut order = Vec::with_capacity(left.len());
        while !left.is_empty() {
            let class = |job: &JobId| match self.is_absent(key, *job) {
                true => Class::Low,
                false => device.members[job].terms.class,
            };
            let moves = |job: &&JobId| !self.is_stalled(key, **job);
            let is_eligible = |job: &&JobId| device.eevdf.lag(**job) >= 0 && moves(job);
            let top = left.iter().filter(is_eligible).map(class).max();
            let pool: Vec<JobId> = match top {
                Some(top) => left
                    .iter()
                    .filter(is_eligible)
                    .filter(|job| class(job) == top)
                    .copied()
                    .collect(),
                None if left.iter().any(|job| moves(&job)) => left.iter().filter(moves).copied().collect(),
                None => left.clone(),
            };
            let Some(best) = device.eevdf.best(&pool) else { break };
            order.push(best);
            left.retain(|job| *job != best);
        }
        order
    }

    /// Gives a free device to the first candidate; a gang gets all its devices, or claims them.
    fn grant(&mut self, key: DeviceKey) {
        let Some(device) = self.devices.get(&key) else { return };
        if !device.is_turns() || !matches!(device.turn, Turn::Free { .. }) || !self.is_settled(key) {
            return;
        }
        let order = self.order(key);
        let claim = device.claim.filter(|claim| order.contains(claim));
        if claim.is_none()
            && let Some(claim) = device.claim
        {
            self.drop_claim(claim);
        }
        for job in claim.map_or(order, |claim| vec![claim]) {
            let keys = self.turn_devices(key, job);
            if keys
                .iter()
                .all(|key| self.is_settled(*key) && self.is_claimable(*key, job))
            {
                self.drop_claim(job);
                for key in keys {
                    self.begin(key, job);
                }
                return;
            }
            if keys.iter().all(|key| self.is_claimable(*key, job)) {
                for key in keys {
                    let Some(device) = self.devices.get_mut(&key) else {
                        continue;
                    };
                    device.claim = Some(job);
                    if let Some(holder) = device.holder() {
                        self.end_turn(key, holder);
                    }
                }
                return;
            }
        }
    }

    fn is_claimable(&self, key: DeviceKey, job: JobId) -> bool {
        let claim = self.devices.get(&key).and_then(|device| device.claim);
        claim.is_none_or(|claim| claim == job)
    }

    fn drop_claim(&mut self, job: JobId) {
        for device in self.devices.values_mut() {
            if device.claim == Some(job) {
                device.claim = None;
            }
        }
    }

    /// Says for each member of a device in Turns what keeps it away.
    fn judge_turns(&mut self, key: DeviceKey) {
        let (config, now) = (self.config, self.now);
        let gangs = &self.gangs;
        let Some(device) = self.devices.get_mut(&key).filter(|device| device.is_turns()) else {
            return;
        };
        let holder = device.holder();
        let holder_class = holder.and_then(|job| Some(device.members.get(&job)?.terms.class));
        let jobs: Vec<JobId> = device.members.keys().copied().collect();
        let contention = Contention::of(device, &config, now);
        for job in jobs {
            let verdict = overlap::verdict(device, job, &contention);
            let is_gang = gangs.contains_key(&job);
            let class = device.members[&job].terms.class;
            let is_light = device.members[&job].saturated_ns.is_none() && !device.members[&job].is_ahead && !is_gang;
            let passes = is_light && !device.rule.is_forced && holder_class.is_some_and(|low| class > low);
            let held_by = match verdict {
                Some(Cause::Cap) => Some(Cause::Cap),
                // Nobody waits for a gang that does not pass: it gets turns.
                _ if holder == Some(job) && !device.rule.is_forced && !is_gang => device
                    .interrupted_by(class, |other| !gangs.contains_key(&other), &config, now)
                    .map(Cause::Priority),
                _ if holder == Some(job) || passes => None,
                _ => Some(device.held_by_turn(job)),
            };
            if let Some(member) = device.members.get_mut(&job) {
                member.held_by = held_by;
            }
            if holder == Some(job) {
                overlap::relieve(device, job, &config, now);
            } else if let Some(member) = device.members.get_mut(&job) {
                // Turns come round; nobody needs another way in.
                (member.floor_ns, member.relief) = (0, None);
            }
        }
    }
}
