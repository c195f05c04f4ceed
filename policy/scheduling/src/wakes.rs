// SPDX-License-Identifier: Apache-2.0
//! WakePredictor: when a job that sleeps is likely to want the device again.
//!
//! Terms. *Pause*: from the last look that saw the job want the device to the next one that does. *Wake*: the end of a
//! pause that is no gap within a request, so at least a fifth of a millisecond and a quarter of the longest recent
//! pause. *Window*: when the next wake is expected.
//!
//! Two kinds of program wake regularly. One has a clock: its wakes lie on a line over their number, each with an error
//! of its own; the line is fitted to the last wakes (through the means of their older and newer halves), and the window
//! is what these errors span, at the next number. The other sleeps for so long after each request: the window is what
//! the last pauses span. Whichever is narrower counts, if it is narrow beside the time between two wakes: a window
//! costs those who are let in meanwhile something (see `depth`), and one that is as long as the sleep tells nothing.

use std::collections::VecDeque;

use crate::config::Config;

/// Wakes that are remembered, and how many it takes to expect another.
const KEPT: usize = 32;
const LEAST: usize = 8;
/// A shorter pause is no sleep.
const SHORTEST_NS: u64 = 200_000;
/// A window is at most this part of the time between two wakes.
const NARROW: u64 = 8;
/// Who wakes more often is not expected: what others are spared before each wake (half a millisecond) would be more
/// than a quarter of the time.
const SHORTEST_PERIOD_NS: u64 = 2_000_000;
/// So many wakes in a row may fail to come before nothing is expected any more.
const MISSED: u64 = 4;
/// Pauses by which it is judged whether they are short as a rule: six of eight.
const JUDGED: usize = 8;
const RULE: usize = 6;

/// What is remembered of one job's pauses on one device.
#[derive(Clone, Debug, Default)]
pub(crate) struct WakePredictor {
    /// When it was last seen to want the device.
    last_ns: Option<u64>,
    wants: bool,
    /// Since when it wants it without a pause, and when it last ceased to.
    began_ns: u64,
    ended_ns: u64,
    /// Oldest first; for each pause, for how long the device was wanted before it.
    pauses: VecDeque<u64>,
    runs: VecDeque<u64>,
    wakes: VecDeque<u64>,
    sleeps: VecDeque<u64>,
    next: Option<Next>,
}

/// The next wake.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// Between these instants, or a multiple of the period later.
    Clock { from: u64, until: u64, period: u64 },
    /// After a sleep of between so long and so long.
    Sleep { least: u64, most: u64 },
}

impl WakePredictor {
    /// Takes over what a look saw, `dt` nanoseconds after the one before. What begins or ends between two looks is
    /// taken to do so in the middle.
    pub fn book(&mut self, now: u64, dt: u64, wants: bool) {
        if self.wants && !wants {
            self.ended_ns = now.saturating_sub(dt / 2);
        }
        if wants && !self.wants && self.last_ns.is_some() {
            let began = now.saturating_sub(dt / 2);
            let pause = began.saturating_sub(self.ended_ns);
            let longest = self.pauses.iter().copied().max().unwrap_or(0);
            push(&mut self.pauses, pause);
            push(&mut self.runs, self.ended_ns.saturating_sub(self.began_ns));
            if pause >= SHORTEST_NS.max(longest / 4) {
                self.wake(began, pause);
            }
        }
        if wants {
            if !self.wants {
                self.began_ns = now.saturating_sub(dt / 2);
            }
            self.last_ns = Some(now);
        }
        self.wants = wants;
    }

    fn wake(&mut self, now: u64, slept: u64) {
        // Wakes that failed to come are no wakes: the line goes on as if they had not been due.
        if let (Some(Next::Clock { period, .. }), Some(last)) = (self.next, self.wakes.back()) {
            let missed = (now.saturating_sub(*last) + period / 2) / period.max(1);
            let shift = missed.saturating_sub(1) * period;
            self.wakes.iter_mut().for_each(|wake| *wake += shift);
        }
        push(&mut self.wakes, now);
        push(&mut self.sleeps, slept);
        self.next = self.expect();
    }

    fn expect(&self) -> Option<Next> {
        if self.wakes.len() < LEAST {
            return None;
        }
        let (least, most) = (*self.sleeps.iter().min()?, *self.sleeps.iter().max()?);
        let clock = fit(&self.wakes);
        let between = (self.wakes.back()? - self.wakes.front()?) / (self.wakes.len() as u64 - 1);
        let (width, next) = match clock {
            Some((from, until, period)) if until - from <= most - least => {
                (until - from, Next::Clock { from, until, period })
            }
            _ => (most - least, Next::Sleep { least, most }),
        };
        (between >= SHORTEST_PERIOD_NS && width <= between / NARROW).then_some(next)
    }

    /// In how long it may wake at the earliest, if it sleeps; 0: at any moment.
    pub fn due_in_ns(&self, now: u64, config: &Config) -> Option<u64> {
        // The next wake lies outside of what the last ones span once in a while, by a little.
        let margin = |width: u64| width / KEPT as u64 * 2 + config.watch_drain_ns;
        match self.next.filter(|_| !self.wants)? {
            Next::Clock { from, until, period } => {
                let margin = margin(until - from);
                let beat = now.saturating_sub(until + margin).div_ceil(period.max(1));
                (beat < MISSED).then(|| (from + beat * period).saturating_sub(now + margin))
            }
            Next::Sleep { least, most } => {
                let (slept, margin) = (now.saturating_sub(self.ended_ns), margin(most - least));
                (slept <= most + margin).then(|| least.saturating_sub(slept + margin))
            }
        }
    }

    /// Whether it may be in one of the pauses that are no longer than this: they are the rule with this job, and it
    /// uses the device for at least as long as it pauses. Else others would have to wait for one that wants next to
    /// nothing.
    pub fn is_in_pause(&self, now: u64, longest_ns: u64) -> bool {
        let Some(last) = self.last_ns.filter(|_| !self.wants) else {
            return false;
        };
        if now.saturating_sub(last) >= longest_ns {
            return false;
        }
        let recent = self.pauses.iter().zip(&self.runs).rev().take(JUDGED);
        let short = || recent.clone().filter(|(pause, _)| **pause <= longest_ns);
        let (pauses, runs) = short().fold((0, 0), |sum, (pause, run)| (sum.0 + pause, sum.1 + run));
        short().count() >= RULE && runs >= pauses
    }
}

/// The line through these instants, continued by one: what the errors span there, and its slope.
fn fit(wakes: &VecDeque<u64>) -> Option<(u64, u64, u64)> {
    // In quarters of a number, so that the middles of halves are whole.
    let half = wakes.len() / 2;
    let first = *wakes.front()?;
    let at = |wake: &u64| i128::from(wake - first);
    let count = i128::try_from(half).ok()?;
    let older: i128 = wakes.iter().take(half).map(at).sum::<i128>() / count;
    let newer: i128 = wakes.iter().skip(wakes.len() - half).map(at).sum::<i128>() / count;
    let numbers = i128::try_from(wakes.len() - half).ok()?;
    let line = |number: usize| {
        let from_middle = 2 * i128::try_from(number).unwrap_or(0) - (count - 1);
        older + (newer - older) * from_middle / (2 * numbers)
    };
    let errors = || wakes.iter().enumerate().map(|(number, wake)| at(wake) - line(number));
    let next = line(wakes.len());
    let instant = |error: i128| u64::try_from(next + error).ok().map(|at| at + first);
    let period = u64::try_from((newer - older) / numbers).ok()?;
    Some((instant(errors().min()?)?, instant(errors().max()?)?, period))
}

fn push(kept: &mut VecDeque<u64>, value: u64) {
    if kept.len() == KEPT {
        kept.pop_front();
    }
    kept.push_back(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;
    const LEAD: u64 = 300 * US;

    /// Wants the device from each of these instants for so long; looks every 50 µs.
    fn lived(wakes: &[u64], busy_ns: u64) -> (WakePredictor, u64) {
        let mut predictor = WakePredictor::default();
        let end = wakes.last().map_or(0, |wake| wake + busy_ns + 100 * US);
        for now in (0..=end).step_by(50_000) {
            predictor.book(
                now,
                50 * US,
                wakes.iter().any(|wake| (*wake..wake + busy_ns).contains(&now)),
            );
        }
        (predictor, end)
    }

    /// When a wake is first and last expected after the end, to a tenth of a millisecond.
    fn due(predictor: &WakePredictor, end: u64) -> Option<(u64, u64)> {
        let config = Config::default();
        let mut due = (end..end + 9 * MS)
            .step_by(10_000)
            .filter(|now| predictor.due_in_ns(*now, &config).is_some_and(|due| due <= LEAD));
        let first = due.next()?;
        Some((first - end, due.last().unwrap_or(first) - end))
    }

    #[test]
    fn a_clock_is_known_by_its_wakes_whatever_each_is_late() {
        let late = |n: u64| n * 7919 % 300 * US;
        let wakes: Vec<u64> = (1..40).map(|n| n * 10 * MS + late(n)).collect();
        let (predictor, end) = lived(&wakes, 2 * MS);
        let (first, last) = due(&predictor, end).expect("regular");
        let next = 400 * MS - end;
        assert!(
            first + LEAD <= next + 50 * US && first + LEAD + 200 * US >= next,
            "{first} {next}"
        );
        assert!(last >= next + 300 * US && last <= next + 600 * US, "{last} {next}");
    }

    #[test]
    fn a_sleep_after_each_request_is_known_by_its_length() {
        let mut wakes = vec![10 * MS];
        for n in 1..40u64 {
            // What a request takes differs by milliseconds, the sleep does not.
            wakes.push(wakes[wakes.len() - 1] + 2 * MS + n % 2 * 50 * US + 5 * MS);
        }
        let (predictor, end) = lived(&wakes, 2 * MS);
        let (first, last) = due(&predictor, end).expect("regular");
        let next = 5 * MS - 100 * US;
        assert!(
            first + LEAD <= next && last >= next && last <= next + MS,
            "{first} {last} {next}"
        );
    }

    #[test]
    fn a_beat_that_is_missed_does_not_end_a_rhythm() {
        let wakes: Vec<u64> = (1..60).filter(|n| n % 20 != 0).map(|n| n * 10 * MS).collect();
        let (predictor, end) = lived(&wakes, 2 * MS);
        assert!(due(&predictor, end).is_some());
        // After four, nothing is expected.
        assert!(due(&predictor, end + 5 * 10 * MS).is_none());
    }

    #[test]
    fn wakes_at_random_are_not_expected() {
        let mut at = 0;
        let wakes: Vec<u64> = (1..40u64)
            .map(|n| {
                at += 3 * MS + n * n * 7919 % 20_000 * US;
                at
            })
            .collect();
        let (predictor, end) = lived(&wakes, MS);
        assert!(due(&predictor, end).is_none());
    }

    #[test]
    fn who_wakes_all_the_time_is_not_expected() {
        let every = |period: u64| (1..60u64).map(|n| n * period).collect::<Vec<u64>>();
        for (period, is_expected) in [(500 * US, false), (MS, false), (2 * MS, true), (3 * MS, true)] {
            let (predictor, end) = lived(&every(period), 100 * US);
            assert_eq!(due(&predictor, end).is_some(), is_expected, "{period}");
        }
    }

    #[test]
    fn gaps_within_a_request_are_no_wakes() {
        let requests = (1..40u64).flat_map(|n| (0..5).map(move |part| n * 10 * MS + part * 700 * US));
        let (predictor, end) = lived(&requests.collect::<Vec<u64>>(), 400 * US);
        let (first, _) = due(&predictor, end).expect("regular");
        assert!((5 * MS..7 * MS).contains(&first), "{first}");
    }

    #[test]
    fn short_pauses_are_waited_for_where_they_are_the_rule() {
        let parts: Vec<u64> = (0..20).map(|part| part * 200 * US).collect();
        let (predictor, end) = lived(&parts, 120 * US);
        assert!(predictor.is_in_pause(end, 200 * US) && !predictor.is_in_pause(end + 200 * US, 200 * US));
        let (predictor, end) = lived(&[0, 10 * MS, 20 * MS, 30 * MS, 40 * MS, 50 * MS, 60 * MS], MS);
        assert!(!predictor.is_in_pause(end, 200 * US));
    }
}
