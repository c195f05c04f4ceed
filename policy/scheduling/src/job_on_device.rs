// SPDX-License-Identifier: Apache-2.0
//! A job on a device, the *member*, and its clients there, each on a *seat*.

use partage_gpu_time::split::Meter;
use partage_protocol::units::ClientId;

use crate::cap::CapBudget;
use crate::command::Cause;
use crate::config::Config;
use crate::correction::Correction;
use crate::event::{Observation, Terms};
use crate::record::Window;
use crate::waits::Waits;
use crate::wakes::WakePredictor;

/// Time constant of a job's duty.
const DUTY_NS: i64 = 100_000_000;
const PPM: i64 = 1_000_000;
/// Whoever was not looked at for longer was not seen to want anything in between.
const LONGEST_INTERVAL_NS: i64 = 1_000_000_000;
/// Tenths of a second and of a minute.
const SECOND_BUCKET_NS: u64 = 100_000_000;
const MINUTE_BUCKET_NS: u64 = 6_000_000_000;
/// Nothing is taken for a unit that has had more than one and a half of this.
const LONGEST_CHARGED_UNIT_NS: u64 = 10_000_000_000;

/// A gate as it was last commanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Closed,
    Open { depth_ns: Option<u64> },
}

/// One client on one device.
#[derive(Clone, Debug)]
pub(crate) struct ClientOnDevice {
    pub client: ClientId,
    pub gate: Gate,
    /// When the gate last opened or closed.
    pub changed_ns: u64,
    pub seen_ns: Option<u64>,
    pub seen: Observation,
    pub meter: Meter,
    /// When it was last seen to have work of unknown length.
    pub guessed_ns: Option<u64>,
    /// What it is charged for the time between the last two looks, in nanoseconds; negative where it was too much
    /// before.
    pub charge_ns: i64,
    /// Work retired between the last two looks.
    pub retires: bool,
    /// When work last retired, or the client was last seen idle.
    pub progressed_ns: u64,
    /// What it was charged since, while it had work: what a unit has had that did not end.
    unretired_ns: i64,
    /// Nothing on the device retires.
    is_still: bool,
    /// It was seen idle since its work in flight is bounded: what it has on the device is within the bound.
    pub is_shallow: bool,
    /// `NotDraining` was said.
    pub is_stuck: bool,
    /// Its work does not begin although nobody had work on the device: it waits for something else than the device.
    pub is_elsewhere: bool,
}

impl ClientOnDevice {
    pub fn new(client: ClientId, now: u64) -> Self {
        Self {
            client,
            gate: Gate::Closed,
            changed_ns: now,
            seen_ns: None,
            seen: Observation::idle(client),
            meter: Meter::default(),
            guessed_ns: None,
            charge_ns: 0,
            retires: false,
            progressed_ns: now,
            unretired_ns: 0,
            is_still: false,
            is_shallow: false,
            is_stuck: false,
            is_elsewhere: false,
        }
    }

    /// Whether the client has work on the device or a thread that wants to bring some and can. A thread that stands
    /// before an open gate stands there for what its client has in flight: if that waits for a host function, no device
    /// is of use to it.
    pub fn wants(&self) -> bool {
        let is_waiting = self.seen.is_waiting && !(self.is_elsewhere && self.gate != Gate::Closed);
        self.seen.is_busy || (!self.seen.is_stopped && (is_waiting || self.seen.is_entering))
    }

    /// Takes note whether its work waits for something else than the device. Seen once on a device that had nothing to
    /// do, that holds until its work begins: beside others a context also waits for its slice.
    pub fn find_elsewhere(&mut self, is_device_idle: bool) {
        self.is_elsewhere = self.seen.is_pending && !self.retires && (is_device_idle || self.is_elsewhere);
    }

    /// Books what it is charged. `is_still`: nothing on the device has retired for longer than it could take.
    pub fn book(&mut self, now: u64, is_still: bool) {
        let has_moved = !self.seen.is_busy || self.progressed_ns == now;
        self.is_still = is_still && !has_moved;
        self.unretired_ns = if has_moved {
            0
        } else {
            (self.unretired_ns + self.charge_ns).max(0)
        };
    }

    /// The device time that its work has had without ending, if that is as much as a drain may take, or half as much
    /// again as its longest unit takes. By the clock a unit may take any time beside others, unless nothing of them
    /// retires either.
    pub fn stalled_for_ns(&self, drain_timeout_ns: u64) -> Option<u64> {
        let unit = self.seen.unit_ns.min(LONGEST_CHARGED_UNIT_NS);
        let had = u64::try_from(self.unretired_ns).unwrap_or(0);
        let is_long = had >= drain_timeout_ns.max(unit + unit / 2);
        (self.seen.is_busy && (is_long || self.is_still)).then_some(had.max(drain_timeout_ns))
    }

    /// Whether its work does not end.
    pub fn stalls(&self, drain_timeout_ns: u64) -> bool {
        self.stalled_for_ns(drain_timeout_ns).is_some()
    }

    /// Whether it may have no more than one unit on the device, because a job of a higher class is about to want it.
    pub fn is_spared(&self, config: &Config) -> bool {
        let depth_ns = Some(config.depth_before_wake_ns);
        self.gate == Gate::Open { depth_ns }
    }

    /// Whether its gate is closed and nothing of it is on the device or on its way, seen after the gate closed. A
    /// stopped thread inside a launch call brings at most one unit, later: nobody is made to wait for it unless the
    /// device must be somebody's alone.
    pub fn is_drained(&self, is_strict: bool) -> bool {
        let is_entering = self.seen.is_entering && (is_strict || !self.seen.is_stopped);
        self.gate == Gate::Closed
            && self.seen_ns.is_some_and(|seen| seen > self.changed_ns)
            && !self.seen.is_busy
            && !is_entering
    }
}

/// A time for which a job is let in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relief {
    pub until_ns: u64,
    /// Because the floor owed it that; otherwise because its work in flight does not end.
    pub is_owed: bool,
}

/// One job on one device.
#[derive(Clone, Debug)]
pub(crate) struct JobOnDevice {
    pub terms: Terms,
    pub seats: Vec<ClientOnDevice>,
    pub budget: Option<CapBudget>,
    /// When it was last seen to want the device.
    pub wanted_ns: Option<u64>,
    /// Part of the time for which it wanted it, of late, parts per million.
    duty_ppm: i64,
    /// Since when its duty is above 90 % (until it is below 80 %).
    pub saturated_ns: Option<u64>,
    /// `None`: its gates are to be open.
    pub held_by: Option<Cause>,
    /// In Overlap it was ahead by more than the slack and has not been owed anything since.
    pub is_ahead: bool,
    /// As a gang it is kept away for another device's sake: others are not kept away for its.
    pub is_barred: bool,
    /// It has work on the device, none of which has retired for as long as a drain may take: others are not kept away
    /// for its sake.
    pub is_stalled: bool,
    /// What the floor owes it: grows while it is kept waiting, shrinks by what it is charged.
    pub floor_ns: i64,
    /// It is let in for a while, whatever its share and class.
    pub relief: Option<Relief>,
    wakes: WakePredictor,
    /// What it was charged since it came; for moments negative, where too much was charged before.
    pub used_ns: i64,
    /// The part of it that no look saw.
    pub correction: Correction,
    pub waited_ns: u64,
    /// For what.
    pub waits: Waits,
    pub second: Window,
    pub minute: Window,
    /// For how long it wanted the device, since it did first.
    pub wanted: Option<Window>,
}

impl JobOnDevice {
    pub fn new(terms: Terms, config: &Config, now: u64) -> Self {
        let mut member = Self {
            terms,
            seats: Vec::new(),
            budget: None,
            wanted_ns: None,
            duty_ppm: 0,
            saturated_ns: None,
            held_by: Some(Cause::None),
            is_ahead: false,
            is_barred: false,
            is_stalled: false,
            floor_ns: 0,
            relief: None,
            wakes: WakePredictor::default(),
            used_ns: 0,
            correction: Correction::default(),
            waited_ns: 0,
            waits: Waits::default(),
            second: Window::new(SECOND_BUCKET_NS, now),
            minute: Window::new(MINUTE_BUCKET_NS, now),
            wanted: None,
        };
        member.set_terms(terms, config, now);
        member
    }

    /// Other terms from now on.
    pub fn set_terms(&mut self, terms: Terms, config: &Config, now: u64) {
        self.terms = terms;
        // The whole device is no cap.
        match (terms.cap_ppm.filter(|cap| i64::from(*cap) < PPM), &mut self.budget) {
            (Some(cap), Some(budget)) => {
                budget.advance(now);
                budget.change(cap);
            }
            (Some(cap), budget @ None) => *budget = Some(CapBudget::new(cap, config.period_ns, now)),
            (None, budget) => *budget = None,
        }
    }

    /// Whether any of its clients wants the device.
    pub fn wants(&self) -> bool {
        self.seats.iter().any(ClientOnDevice::wants)
    }

    /// Whether its cap keeps it from the device now.
    pub fn is_capped(&self) -> bool {
        self.budget.as_ref().is_some_and(CapBudget::is_exhausted)
    }

    /// Whether others may be kept away for its sake: not if it had too much, does not end, or cannot come.
    pub fn has_claim(&self) -> bool {
        !self.is_ahead && !self.is_stalled && !self.is_barred
    }

    /// Whether something else than its cap keeps it from a device that it wants.
    pub fn is_kept(&self) -> bool {
        self.wants() && self.held_by.is_some_and(|by| by != Cause::Cap)
    }

    /// Whether work of it is on the device.
    pub fn is_busy(&self) -> bool {
        self.seats.iter().any(|seat| seat.seen.is_busy)
    }

    /// Whether it would use the device if it were let.
    pub fn is_candidate(&self) -> bool {
        self.wants() && !self.is_capped()
    }

    /// Whether it wanted the device within this time.
    pub fn wanted_within(&self, ns: u64, now: u64) -> bool {
        self.wanted_ns.is_some_and(|at| now.saturating_sub(at) < ns)
    }

    /// Whether it wants the device, or just did and is about to want it again: lower classes are not let in meanwhile.
    pub fn is_pressing(&self, config: &Config, now: u64) -> bool {
        !self.is_capped() && (self.wants() || self.wakes.is_in_pause(now, config.linger_ns))
    }

    /// In how long it may want the device again at the earliest, where that is known; only of one that wants nothing.
    pub fn due_in_ns(&self, now: u64, config: &Config) -> Option<u64> {
        if self.wants() || self.is_capped() {
            return None;
        }
        let is_in_pause = self.wakes.is_in_pause(now, config.pause_ns);
        if is_in_pause {
            Some(0)
        } else {
            self.wakes.due_in_ns(now, config)
        }
    }

    /// Longest recent unit of its clients.
    pub fn unit_ns(&self) -> u64 {
        self.seats.iter().map(|seat| seat.seen.unit_ns).max().unwrap_or(0)
    }

    /// Whether all its processes are stopped.
    pub fn is_stopped(&self) -> bool {
        !self.seats.is_empty() && self.seats.iter().all(|seat| seat.seen.is_stopped)
    }

    /// Whether nothing of it is on the device or on its way.
    pub fn is_drained(&self, is_strict: bool) -> bool {
        self.seats.iter().all(|seat| seat.is_drained(is_strict))
    }

    /// Whether its work in flight is known to be within the bounds that its clients were given.
    pub fn is_shallow(&self) -> bool {
        self.seats.iter().all(|seat| seat.is_shallow)
    }

    /// Whether a client of it was said not to drain.
    pub fn is_stuck(&self) -> bool {
        self.seats.iter().any(|seat| seat.is_stuck)
    }

    /// What was booked up to now was no measure of anything.
    pub fn begin_measuring(&mut self, now: u64) {
        self.waits = Waits::default();
        self.second = Window::new(SECOND_BUCKET_NS, now);
        self.minute = Window::new(MINUTE_BUCKET_NS, now);
        self.wanted = None;
    }

    /// Books an interval: what it was charged, whether it wanted the device, for how long it waited.
    pub fn book(&mut self, now: u64, dt: u64, charge: i64, wanted_before: bool, config: &Config) {
        self.used_ns += charge;
        self.second.add(now, charge);
        self.minute.add(now, charge);
        // What it had on the device before there was a cap is not held against it.
        let is_shallow = self.is_shallow();
        if let Some(budget) = &mut self.budget {
            budget.charge(charge);
            if !is_shallow {
                budget.forgive();
            }
        }
        // Long service is not held against it for longer than one unit takes to be owed.
        let least = signed(self.unit_ns().max(config.quantum_min_ns));
        self.floor_ns = (self.floor_ns - charge).max(-least);
        if self.is_kept() {
            self.floor_ns += signed(dt) * i64::from(config.floor_ppm) / PPM;
        }
        let wants = self.wants();
        self.wakes.book(now, dt, wants);
        if let Some(by) = self.held_by
            && wants
            && !self.is_busy()
        {
            self.waited_ns += dt;
            self.waits.add(by, dt, now);
        }
        if wants || self.wanted.is_some() {
            let wanted = self.wanted.get_or_insert_with(|| Window::new(MINUTE_BUCKET_NS, now));
            let dt = signed(dt).min(LONGEST_INTERVAL_NS);
            wanted.add(now, dt * (i64::from(wanted_before) + i64::from(wants)) / 2);
        }
        let dt = signed(dt).min(DUTY_NS);
        let target = (i64::from(wanted_before) + i64::from(wants)) * PPM / 2;
        self.duty_ppm += (target - self.duty_ppm) * dt / (DUTY_NS + dt);
        if self.duty_ppm >= 900_000 {
            self.saturated_ns.get_or_insert(now);
        } else if self.duty_ppm < 800_000 {
            self.saturated_ns = None;
        }
        if wants {
            self.wanted_ns = Some(now);
        }
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// What others leave comes and goes: only what is left of it in the end was the unit's.
    #[test]
    fn corrections_do_not_make_a_long_unit_look_as_if_it_never_ended() {
        let mut seat = ClientOnDevice::new(ClientId(1), 0);
        seat.seen.is_busy = true;
        seat.seen.unit_ns = 100_000_000;
        let mut book = |charge: i64, times: usize| {
            (0..times).for_each(|_| {
                for charge_ns in [charge, 2 * MS - charge] {
                    seat.charge_ns = charge_ns;
                    seat.book(1, false);
                }
            });
            seat.stalls(50_000_000)
        };
        assert!(!book(12 * MS, 74));
        assert!(book(12 * MS, 2));
    }
}
