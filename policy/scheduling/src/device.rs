// SPDX-License-Identifier: Apache-2.0
//! One device: its members, what they are owed, and what an observation changes.

use std::collections::BTreeMap;

use partage_gpu_time::split::Crowd;
use partage_protocol::terms::Class;
use partage_protocol::units::{ClientId, JobId};

use crate::cap::CapBudget;
use crate::class::{request_ns, weights};
use crate::command::{Cause, Regime};
use crate::config::Config;
use crate::correction::{MOST_CAP_DEBT_NS, MOST_LAG_NS};
use crate::event::{DeviceKey, Observation, Terms};
use crate::job_on_device::{ClientOnDevice, Gate, JobOnDevice};
use crate::regime::{Evidence, Rule};
use crate::share::Eevdf;

/// A client says itself how long its units are; beyond this they do not make anybody else wait longer.
const LONGEST_SLACK_NS: u64 = 25_000_000;
const LONGEST_UNIT_NS: u64 = 200_000_000;

/// Who has the turn, in Turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nobody; the device is drained, or has been since this instant.
    Free { since_ns: u64 },
    /// This job.
    Held { job: JobId, since_ns: u64 },
}

/// One device.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    pub key: DeviceKey,
    pub members: BTreeMap<JobId, JobOnDevice>,
    pub eevdf: Eevdf,
    pub rule: Rule,
    pub turn: Turn,
    /// A gang that waits until all its devices are free: nobody else gets a turn here.
    pub claim: Option<JobId>,
    /// Who had the turn last, for the hand-over's length and for who is shown as the cause of waiting.
    pub last_holder: Option<JobId>,
    pub observed_ns: Option<u64>,
    pub is_unmanaged: bool,
    /// What is left of the time may be that of processes outside.
    pub is_felt: bool,
    /// Length of a turn of class normal; follows the measured length of a hand-over.
    pub quantum_ns: u64,
    handover_ns: u64,
    idle_since_ns: Option<u64>,
    /// Since when there is work and none of it retires, whoever's it is.
    still_since_ns: Option<u64>,
}

impl Device {
    pub fn new(key: DeviceKey, config: &Config) -> Self {
        Self {
            key,
            members: BTreeMap::new(),
            eevdf: Eevdf::default(),
            rule: Rule::new(config),
            turn: Turn::Free { since_ns: 0 },
            claim: None,
            last_holder: None,
            observed_ns: None,
            is_unmanaged: false,
            is_felt: false,
            quantum_ns: config.quantum_max_ns,
            handover_ns: config.quantum_max_ns / 60,
            idle_since_ns: None,
            still_since_ns: None,
        }
    }

    pub fn is_turns(&self) -> bool {
        self.rule.regime() == Regime::Turns
    }

    /// The job that has the turn.
    pub fn holder(&self) -> Option<JobId> {
        match self.turn {
            Turn::Held { job, .. } if self.is_turns() => Some(job),
            _ => None,
        }
    }

    /// Gives a job these terms here.
    pub fn set_terms(&mut self, job: JobId, terms: Terms, config: &Config, now: u64) {
        let request = request_ns(terms.class, self.quantum_ns);
        match self.members.get_mut(&job) {
            Some(member) => member.set_terms(terms, config, now),
            None => {
                self.members.insert(job, JobOnDevice::new(terms, config, now));
                self.eevdf.add(job, request);
            }
        }
        self.eevdf.set_request(job, request);
        self.weigh(config);
    }

    /// The job is gone from here.
    pub fn remove(&mut self, job: JobId, config: &Config, now: u64) {
        self.members.remove(&job);
        self.eevdf.remove(job);
        if self.claim == Some(job) {
            self.claim = None;
        }
        if self.holder() == Some(job) {
            self.turn = Turn::Free { since_ns: now };
        }
        self.rule.forget(config);
        self.weigh(config);
    }

    /// Jobs with a client here.
    pub fn present(&self) -> impl Iterator<Item = (JobId, &JobOnDevice)> {
        self.members
            .iter()
            .filter(|(_, member)| !member.seats.is_empty())
            .map(|(job, member)| (*job, member))
    }

    /// Jobs that would use the device if they were let.
    pub fn candidates(&self) -> impl Iterator<Item = (JobId, &JobOnDevice)> {
        self.present().filter(|(_, member)| member.is_candidate())
    }

    /// Whether nothing is on the device or on its way, and no gate is open.
    pub fn is_quiet(&self) -> bool {
        self.members
            .values()
            .all(|member| member.is_drained(self.rule.is_forced))
    }

    /// Whether work is on the device that has not ended for as long as a drain may take.
    pub fn is_hopeless(&self, config: &Config) -> bool {
        seats(&self.members).any(|seat| seat.stalls(config.drain_timeout_ns))
    }

    /// By how much a job may be ahead before it is kept away: as configured, but where units are long, a quarter of the
    /// longest. Service cannot be finer than the units, and each time that a gate opens and closes costs some accuracy.
    pub fn slack_ns(&self, config: &Config) -> u64 {
        let unit = self.candidates().map(|(_, member)| member.unit_ns()).max().unwrap_or(0);
        config.slack_ns.max((unit / 4).min(LONGEST_SLACK_NS))
    }

    /// How long this device may take to drain: as configured, at least three quanta, and no shorter than the longest
    /// unit takes (as far as that is reasonable: a client says itself how long its units are).
    pub fn drain_timeout_ns(&self, config: &Config) -> u64 {
        let unit = self
            .members
            .values()
            .map(JobOnDevice::unit_ns)
            .max()
            .unwrap_or(0)
            .min(LONGEST_UNIT_NS);
        config.drain_timeout_ns.max(3 * self.quantum_ns).max(unit + unit / 2)
    }

    /// Lets all caps' periods end that have ended.
    pub fn advance_caps(&mut self, now: u64) {
        for budget in self.members.values_mut().filter_map(|member| member.budget.as_mut()) {
            budget.advance(now);
        }
    }

    /// Nobody kept the time since the last observation. What was used in it is charged as the samples at both its ends
    /// say, as if it had been no longer than [`Config::late_ns`]: nobody stands still for what no gate kept him from.
    pub fn begin_anew(&mut self, now: u64, config: &Config) {
        self.observed_ns = Some(now.saturating_sub(config.late_ns));
        self.still_since_ns = None;
        for seat in self.members.values_mut().flat_map(|member| &mut member.seats) {
            seat.meter.begin_anew();
        }
    }

    /// Books an observation: charges, duties, who wants and who does not. The gangs are those that are kept from here
    /// by other devices, too.
    pub fn account(&mut self, seen: &[Observation], gangs: &[JobId], config: &Config, now: u64) {
        let dt = self.observed_ns.map_or(0, |at| now.saturating_sub(at));
        self.observed_ns = Some(now);
        let wanted_before: Vec<bool> = self.members.values().map(JobOnDevice::wants).collect();
        let (crowd, is_busy) = self.take(seen, now);
        self.advance_caps(now);
        let is_still = self.stands_still(config, now);
        self.charge(dt, crowd, now);
        // Who wants is in before the charges are shared, who does not leaves after.
        let mut charges = Vec::new();
        let mut corrections = Vec::new();
        let mut still = Vec::new();
        for (job, member) in &mut self.members {
            let correction = member.correction.take(dt);
            if member.is_candidate() || member.is_busy() || correction > 0 {
                self.eevdf.join(*job, !member.wanted_within(config.nap_ns, now));
            }
            let mut charge = 0;
            for seat in &mut member.seats {
                seat.book(now, is_still);
                charge += seat.charge_ns;
            }
            let felt = correction.min((self.eevdf.lag(*job) + MOST_LAG_NS).max(0));
            charges.push((*job, charge + felt));
            corrections.push((charge + correction, correction > 0));
            let mut busy = member.seats.iter().filter(|seat| seat.seen.is_busy).peekable();
            let was_stalled = member.is_stalled;
            member.is_stalled = busy.peek().is_some() && busy.all(|seat| seat.stalls(config.drain_timeout_ns));
            if was_stalled || member.is_stalled || member.is_stopped() {
                still.push(*job);
            }
        }
        self.weigh(config);
        self.eevdf.serve(&charges);
        for ((member, (charge, is_corrected)), wanted) in self.members.values_mut().zip(corrections).zip(wanted_before)
        {
            member.book(now, dt, charge, wanted, config);
            if is_corrected && let Some(budget) = &mut member.budget {
                budget.owe_at_most(MOST_CAP_DEBT_NS);
            }
        }
        // Nor is anybody owed the time for which its processes were stopped, or for which its work did not end: while
        // that lasts samples charge it, and what they took is given back at its end.
        for job in gangs.iter().chain(&still) {
            self.eevdf.limit_claim(*job, self.quantum_ns);
        }
        // Who takes turns wanted the device without pause until now: that its next launch is late is no end of work.
        let think_ns = if self.is_turns() {
            config.nap_ns
        } else {
            config.think_ns
        };
        for (job, member) in &self.members {
            let is_over = !member.is_busy() && (member.is_capped() || !member.wanted_within(think_ns, now));
            if is_over && self.eevdf.lag(*job) >= 0 {
                self.eevdf.leave(*job);
            }
        }
        self.weigh(config);
        // What the device idles for the sake of a higher class is not the turns' fault.
        let is_spared = seats(&self.members).any(|seat| seat.is_spared(config));
        if self.is_turns() && !is_spared && self.candidates().next().is_some() {
            self.rule.book(dt, is_busy);
        }
        self.time_handover(is_busy, config, now);
    }

    /// Finds out what each client is charged for the last `dt` nanoseconds.
    fn charge(&mut self, dt: u64, crowd: Crowd, now: u64) {
        let mut left = Vec::new();
        for seat in self.members.values_mut().flat_map(|member| &mut member.seats) {
            let charge = seat.meter.charge(seat.seen.device_time, dt, crowd);
            seat.charge_ns = charge.ns;
            if charge.left_ns != 0 {
                left.push((charge.left_ns, now.saturating_sub(charge.passed_ns)));
            }
            if seat.seen.device_time.is_estimate && seat.meter.counts() {
                seat.guessed_ns = Some(now);
            }
        }
        // What is left may be that of processes outside.
        if self.is_felt {
            return;
        }
        for (left_ns, since_ns) in left {
            let is_beside = |seat: &&mut ClientOnDevice| seat.guessed_ns.is_some_and(|at| at >= since_ns);
            let seats = self.members.values_mut().flat_map(|member| &mut member.seats);
            let mut beside: Vec<&mut ClientOnDevice> = seats.filter(is_beside).collect();
            let part = left_ns / (beside.len().max(1) as i64);
            beside.iter_mut().for_each(|seat| seat.charge_ns += part);
        }
    }

    /// Takes over a sample; returns among how many the interval is shared, and whether any client has work now.
    fn take(&mut self, seen: &[Observation], now: u64) -> (Crowd, bool) {
        let seen: BTreeMap<ClientId, &Observation> = seen.iter().map(|seen| (seen.client, seen)).collect();
        let unmanaged = u32::from(self.is_unmanaged);
        let mut crowd = Crowd {
            before: unmanaged,
            after: unmanaged,
        };
        for seat in self.members.values_mut().flat_map(|member| &mut member.seats) {
            crowd.before += u32::from(seat.meter.counts());
            seat.retires = false;
            if let Some(seen) = seen.get(&seat.client) {
                seat.retires = seat.seen_ns.is_some() && seat.seen.retired != seen.retired;
                if !seen.is_busy || seat.retires || seat.seen_ns.is_none() {
                    seat.progressed_ns = now;
                }
                seat.seen = **seen;
                seat.seen_ns = Some(now);
                seat.is_shallow |= !seen.is_busy && seat.gate != Gate::Open { depth_ns: None };
            }
            seat.meter.sample(seat.seen.is_busy);
            crowd.after += u32::from(seat.meter.counts());
        }
        let is_idle = !self.is_unmanaged && !seats(&self.members).any(|seat| seat.seen.is_busy);
        for seat in self.members.values_mut().flat_map(|member| &mut member.seats) {
            seat.find_elsewhere(is_idle);
        }
        (crowd, crowd.after > 0)
    }

    /// Whether nothing on the device has retired for as long as a drain may take, and as all that is there could take
    /// with half of the device. Then what came meanwhile is not waited for in turn: one that spins after another would
    /// add up.
    fn stands_still(&mut self, config: &Config, now: u64) -> bool {
        let busy = || seats(&self.members).filter(|seat| seat.seen.is_busy);
        if busy().next().is_none() || seats(&self.members).any(|seat| seat.retires) {
            self.still_since_ns = None;
            return false;
        }
        let units: u64 = busy().map(|seat| seat.seen.unit_ns.min(LONGEST_UNIT_NS)).sum();
        let since = *self.still_since_ns.get_or_insert(now);
        now.saturating_sub(since) >= config.drain_timeout_ns.max(2 * units)
    }

    /// Weights depend on who wants the device.
    fn weigh(&mut self, config: &Config) {
        let promised = self
            .members
            .values()
            .map(|member| u64::from(member.terms.promise_ppm))
            .sum();
        let wanting: Vec<JobId> = self
            .members
            .keys()
            .copied()
            .filter(|job| self.eevdf.is_in(*job))
            .collect();
        let terms: Vec<Terms> = wanting.iter().map(|job| self.members[job].terms).collect();
        for (job, weight) in wanting.iter().zip(weights(&terms, promised, config.floor_ppm)) {
            self.eevdf.set_weight(*job, weight);
        }
        self.eevdf.share_left();
    }

    /// The share that the job is entitled to now, beside the others that want the device; at most its cap.
    pub fn entitled_ppm(&self, job: JobId, config: &Config) -> u32 {
        let Some(member) = self.members.get(&job) else { return 0 };
        let promised = self
            .members
            .values()
            .map(|member| u64::from(member.terms.promise_ppm))
            .sum();
        let others = self
            .members
            .iter()
            .filter(|(other, _)| **other != job && self.eevdf.is_in(**other));
        let terms: Vec<Terms> = std::iter::once(member.terms)
            .chain(others.map(|(_, member)| member.terms))
            .collect();
        let weights = weights(&terms, promised, config.floor_ppm);
        let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
        let ppm = u128::from(weights[0]) * 1_000_000 / sum.max(1);
        let cap = member.budget.as_ref().map_or(1_000_000, CapBudget::cap_ppm);
        u32::try_from(ppm).unwrap_or(1_000_000).min(cap)
    }

    /// A job above `class` that presses and does not want the device all the time, of those that `may` interrupt: these
    /// interrupt a turn, the others get turns.
    pub fn interrupted_by(
        &self,
        class: Class,
        may: impl Fn(JobId) -> bool,
        config: &Config,
        now: u64,
    ) -> Option<JobId> {
        self.present()
            .filter(|(job, member)| may(*job) && member.is_pressing(config, now))
            .find(|(_, member)| member.terms.class > class && member.saturated_ns.is_none() && member.has_claim())
            .map(|(job, _)| job)
    }

    /// What is judged to choose the regime.
    pub fn evidence(&self, config: &Config, now: u64) -> Evidence {
        let mut evidence = Evidence {
            present: self.present().count(),
            saturated: 0,
            proven: 0,
            unit_ns: 0,
            is_stuck: self.members.values().any(JobOnDevice::is_stuck),
            is_unmanaged: self.is_unmanaged,
            deep: None,
        };
        for (job, member) in self.present() {
            if let Some(since) = member.saturated_ns {
                evidence.saturated += 1;
                evidence.proven += usize::from(now.saturating_sub(since) >= config.evidence_ns);
                evidence.unit_ns = evidence.unit_ns.max(member.unit_ns());
            }
            if !member.is_shallow() && member.is_busy() {
                evidence.deep = evidence.deep.or(Some(job));
            }
        }
        evidence
    }

    /// For what reason a job waits while another has the turn or had it last.
    pub fn held_by_turn(&self, job: JobId) -> Cause {
        let Some(holder) = self.holder().or(self.last_holder).filter(|holder| *holder != job) else {
            return Cause::None;
        };
        let class = |job: JobId| self.members.get(&job).map(|member| member.terms.class);
        if class(holder) > class(job) {
            Cause::Priority(holder)
        } else {
            Cause::Neighbour(holder)
        }
    }

    /// Times hand-overs: from the last sight of the old holder's work to the first of the new one's. A quantum is sixty
    /// times as long, so that less than 2 % are lost.
    fn time_handover(&mut self, is_busy: bool, config: &Config, now: u64) {
        if !self.is_turns() {
            self.idle_since_ns = None;
            return;
        }
        match (self.idle_since_ns, is_busy) {
            (None, false) => self.idle_since_ns = Some(now),
            (Some(since), true) => {
                let took = now.saturating_sub(since).min(config.quantum_max_ns / 10);
                self.handover_ns = (7 * self.handover_ns + took) / 8;
                let quantum = (self.handover_ns * 60).clamp(config.quantum_min_ns, config.quantum_max_ns);
                self.idle_since_ns = None;
                if quantum.abs_diff(self.quantum_ns) * 10 > self.quantum_ns {
                    self.quantum_ns = quantum;
                    for (job, member) in &self.members {
                        self.eevdf.set_request(*job, request_ns(member.terms.class, quantum));
                    }
                }
            }
            _ => {}
        }
    }
}

fn seats(members: &BTreeMap<JobId, JobOnDevice>) -> impl Iterator<Item = &ClientOnDevice> {
    members.values().flat_map(|member| &member.seats)
}
