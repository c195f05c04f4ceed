// SPDX-License-Identifier: Apache-2.0
//! The device time of one client on one device, from what its lanes retired (see the [loop](crate)).
//!
//! ```text
//!   own of a lane = length of what retired · mean of 1/n over the samples that found the lane running since it last
//!                   retired, where n lanes ran
//!   time         += Σ own of lanes that ran alone + k · Σ own of lanes that ran beside others of the client
//!   k             = (wall − Σ own of lanes that ran alone) / Σ own of the others, in exclusive windows, the least of
//!                   the last few: wall is the time in which the client had work on the device and no other client
//!                   had; 1 before
//! ```
//! Lanes that fill the device by themselves slow each other down: k is up to their number. Lanes of small kernels do
//! not: k is about 1. Each turn in Turns is an exclusive window.
//!
//! All numbers come from the client: any value is tolerated.

use partage_wire::gate::{LANES, Progress, TimePage, Work};

use crate::DeviceTime;

/// What retired is known if at most one part of so many is of units without a length.
const UNKNOWN_PART: u64 = 64;
/// After something unknown retired, so much has to retire that is known, in nanoseconds: a slice of the device.
const TRUST_NS: u64 = 2_000_000;
/// No sample speaks for more time than this, in nanoseconds: ten slices.
const LONGEST_SAMPLE_NS: u64 = 20_000_000;
/// k is told by so much work at a time, in nanoseconds: some twenty turns, so that what a sample comes late is little.
const ENOUGH_NS: u64 = 100_000_000;
/// The least of so many of the last k counts: a machine that stands still makes one too large, and nothing makes one
/// small.
const KEPT: usize = 4;
/// A window that neither begins nor ends with an idle client counts once it is so long that a batch cut at either end
/// is little beside it. Nanoseconds.
const LONG_WINDOW_NS: u64 = 100_000_000;

/// What is known of one client on one device.
#[derive(Clone, Debug, Default)]
pub struct GpuTimeEstimator {
    lanes: [Lane; LANES],
    /// What had retired without a lane. `None`: some was under way.
    unlaned: Option<Work>,
    /// The client was sampled before.
    is_known: bool,
    /// Lanes that ran at the last sample.
    running: usize,
    last_ns: u64,
    /// Mean of 1/n over all lanes of late, for batches that came and went between two samples.
    together: Ratio,
    /// Of exclusive windows since k was told last, and the last that were told.
    exclusive: Ratio,
    told: [Option<Ratio>; KEPT],
    /// The exclusive window that goes on.
    window: Option<Window>,
    /// What retired and was known since something was not.
    trusted_ns: u64,
    time_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Lane {
    /// What had retired at the last sample. `None`: nobody could say.
    done: Option<Work>,
    is_running: bool,
    /// Since something of it last retired: for how long it ran, and each part of that divided by the lanes that ran.
    ran: Ratio,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            // Nothing, before the first.
            done: Some(Work::default()),
            is_running: false,
            ran: Ratio::default(),
        }
    }
}

/// Of an exclusive window: its time, and what retired in it.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    wall_ns: u64,
    /// Own time of lanes that ran alone, and of lanes that ran beside others.
    alone_ns: u64,
    beside_ns: u64,
    /// The client was idle as it began.
    is_whole: bool,
}

impl Window {
    fn plus(self, more: Self) -> Self {
        Self {
            wall_ns: self.wall_ns.saturating_add(more.wall_ns),
            alone_ns: self.alone_ns.saturating_add(more.alone_ns),
            beside_ns: self.beside_ns.saturating_add(more.beside_ns),
            ..self
        }
    }
}

/// A time, and the part of it that is the client's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ratio {
    own_ns: u64,
    of_ns: u64,
}

impl Ratio {
    fn add(&mut self, own_ns: u64, of_ns: u64) {
        self.own_ns = self.own_ns.saturating_add(own_ns);
        self.of_ns = self.of_ns.saturating_add(of_ns);
    }

    /// Forgets half once it is of more than this.
    fn keep(&mut self, most_ns: u64) {
        while self.of_ns > most_ns {
            (self.own_ns, self.of_ns) = (self.own_ns / 2, self.of_ns / 2);
        }
    }

    /// All of it is the client's own, or nothing is known.
    fn is_whole(&self) -> bool {
        self.own_ns == self.of_ns
    }

    /// This part of a time; all of it if none is known.
    fn part(&self, ns: u64) -> u64 {
        if self.of_ns == 0 {
            return ns;
        }
        let part = u128::from(ns) * u128::from(self.own_ns) / u128::from(self.of_ns);
        u64::try_from(part).unwrap_or(u64::MAX)
    }
}

impl GpuTimeEstimator {
    /// Samples the client's page at `now`, in monotonic nanoseconds. `is_exclusive`: nobody else had work on the device
    /// since the last sample. Answers the device time of all that retired since the client is known.
    pub fn update(&mut self, page: &TimePage, is_exclusive: bool, now: u64) -> DeviceTime {
        let unlaned = page.done_unlaned();
        let mut seen = [Progress::default(); LANES];
        let mut used = 0;
        for (seen, progress) in seen.iter_mut().zip(page.progress()) {
            *seen = progress;
            used += 1;
        }
        self.book(&seen[..used], unlaned, is_exclusive, now)
    }

    fn book(&mut self, seen: &[Progress], unlaned: Option<Work>, is_exclusive: bool, now: u64) -> DeviceTime {
        let was_known = core::mem::replace(&mut self.is_known, true);
        let unlaned = unlaned.zip(core::mem::replace(&mut self.unlaned, unlaned));
        let mut retired = unlaned.map(|(now, before)| now.since(before));
        let running = seen.iter().filter(|seen| seen.is_running).count();
        let before = core::mem::replace(&mut self.running, running);
        let dt = now.saturating_sub(core::mem::replace(&mut self.last_ns, now));
        // Half the time since the last sample was as that one found it, the other half as this one does.
        let half = dt.min(LONGEST_SAMPLE_NS) / 2;
        // Of lanes that ran alone, and of lanes that ran beside others.
        let (mut alone_ns, mut beside_ns) = (0_u64, 0_u64);
        for (lane, progress) in self.lanes.iter_mut().zip(seen) {
            let both = progress.done.zip(core::mem::replace(&mut lane.done, progress.done));
            let new = both.filter(|_| was_known).map(|(now, before)| now.since(before));
            retired = retired.zip(new).map(|(sum, new)| sum.plus(new));
            if lane.is_running {
                lane.ran.add(half / before.max(1) as u64, half);
                self.together.add(half / before.max(1) as u64, half);
            }
            if let Some(new) = new.filter(|new| new.ns > 0) {
                let ran = if lane.ran.of_ns > 0 { &lane.ran } else { &self.together };
                let own = ran.part(new.ns);
                let sum = if ran.is_whole() { &mut alone_ns } else { &mut beside_ns };
                *sum = sum.saturating_add(own);
                lane.ran = Ratio::default();
            }
            lane.is_running = progress.is_running;
            if lane.is_running {
                lane.ran.add(half / running as u64, half);
                self.together.add(half / running as u64, half);
            }
        }
        self.together.keep(LONGEST_SAMPLE_NS);
        let wall_ns = [before, running].iter().filter(|running| **running > 0).count() as u64 * (dt / 2);
        let more = Window {
            wall_ns,
            alone_ns,
            beside_ns,
            is_whole: before == 0,
        };
        match retired {
            Some(retired) if retired.unknown_ns <= retired.ns / UNKNOWN_PART => {
                self.trusted_ns = self.trusted_ns.saturating_add(retired.ns);
            }
            _ => self.trusted_ns = 0,
        }
        let is_estimate = self.trusted_ns < TRUST_NS;
        // Lengths that are not known teach nothing.
        self.learn((is_exclusive && !is_estimate).then_some(more));
        // They take no less than if each had the device for a part of the time, nor longer than one after the other.
        let (least_ns, most_ns) = (beside_ns / 2, beside_ns.saturating_mul(LANES as u64));
        let k = self.told.iter().flatten().map(|told| told.part(beside_ns)).min();
        let beside_ns = k.map_or(beside_ns, |ns| ns.clamp(least_ns, most_ns));
        self.time_ns = self.time_ns.saturating_add(alone_ns).saturating_add(beside_ns);
        DeviceTime {
            ns: self.time_ns,
            is_estimate,
        }
    }

    /// Another interval of an exclusive window, or the end of it.
    fn learn(&mut self, more: Option<Window>) {
        let Some(more) = more else {
            self.window = None;
            return;
        };
        let window = match self.window {
            Some(window) => window.plus(more),
            None => more,
        };
        let is_idle = self.running == 0;
        let ends = is_idle || window.wall_ns >= LONG_WINDOW_NS;
        if ends && (window.is_whole || window.wall_ns >= LONG_WINDOW_NS) && window.beside_ns > 0 {
            self.exclusive
                .add(window.wall_ns.saturating_sub(window.alone_ns), window.beside_ns);
            if self.exclusive.of_ns >= ENOUGH_NS {
                self.told.rotate_right(1);
                self.told[0] = Some(core::mem::take(&mut self.exclusive));
            }
        }
        let next = Window {
            is_whole: is_idle,
            ..Window::default()
        };
        self.window = Some(if ends { next } else { window });
    }
}

#[cfg(test)]
mod tests;
