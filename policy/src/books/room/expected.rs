// SPDX-License-Identifier: Apache-2.0
//! How long those that wait may still wait: guesses, for `partage queue`.
//!
//! The end of a running job is guessed from its time limit, and from how long jobs like it ran (of the same user, with
//! the same name or else the same command, that ended within the last day): what is sooner. A waiting job is guessed to
//! start once so many of these ends have come, in their order, that it has room beside all that is kept for those
//! before it. Where an end that it needs is not known, nothing is guessed.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use partage_protocol::units::JobId;

use super::claims::Claims;
use super::placement::Unplaced;
use super::survey::Survey;
use crate::books::Books;
use crate::job::{Job, JobRecord};
use crate::machine::Machine;
use crate::residence::Residence;

/// So many of the queue get a guess, for each of which the devices are judged as they will be at some instants to come.
const GUESSED: usize = 100;

/// Jobs that are alike: user, and name, or else command.
type Likeness<'a> = (u32, Option<&'a str>, &'a [String]);

impl Books {
    /// How long the first in the queue may still wait, in nanoseconds, where that can be guessed.
    pub(crate) fn expected_waits<M: Machine>(&self, machine: &M, now_ns: u64) -> BTreeMap<JobId, u64> {
        let ends = self.expected_ends(now_ns);
        let counts: Vec<usize> = (1..=ends.len()).collect();
        // The devices after the first so many ends.
        let surveys: Vec<OnceCell<Survey>> = (0..=ends.len()).map(|_| OnceCell::new()).collect();
        let survey = |count: usize| {
            let gone = || ends[..count].iter().map(|(_, id)| *id).collect();
            surveys[count].get_or_init(|| Survey::without(gone()))
        };
        let mut claimed = Claims::default();
        let mut waits = BTreeMap::new();
        for id in self.queue.iter().take(GUESSED).filter(|id| !self.is_passed(**id)) {
            let Some(job) = self.jobs.get(id) else { continue };
            let Some(queued) = job.life.queued() else {
                if self.is_returning(*id) {
                    claimed.add(*id, self.return_wishes(job, machine));
                }
                continue;
            };
            let place = |count| self.place(&queued.spec, &claimed, survey(count), machine);
            let Err(Unplaced::NoRoom { wishes, .. }) = place(0) else {
                continue;
            };
            // One more end takes nobody's room.
            let needed = counts.partition_point(|count| place(*count).is_err());
            if let Some((end_ns, _)) = ends.get(needed) {
                waits.insert(*id, end_ns.saturating_sub(now_ns));
            }
            claimed.add(*id, wishes);
        }
        waits
    }

    /// When running jobs may end, the next one first, as far as can be guessed.
    fn expected_ends(&self, now_ns: u64) -> Vec<(u64, JobId)> {
        let mut past: BTreeMap<Likeness<'_>, Vec<u64>> = BTreeMap::new();
        for job in self.jobs.values() {
            if let (Some(end), Some(like)) = (&job.end, likeness(&job.record)) {
                past.entry(like).or_default().push(job.record.run_ns(end.unix_ns));
            }
        }
        past.values_mut().for_each(|runs| runs.sort_unstable());
        let unix_ns = self.unix_ns(now_ns);
        let end = |job: &Job| {
            let ran_ns = job.record.run_ns(unix_ns);
            let runs = likeness(&job.record).and_then(|like| past.get(&like));
            let left_ns = runs
                .and_then(|runs| usual_run(runs, ran_ns))
                .map(|run_ns| run_ns - ran_ns);
            let by_past = left_ns.map(|left_ns| now_ns.saturating_add(left_ns));
            by_past.into_iter().chain(job.time_limit_at_ns).min()
        };
        let is_here = |job: &&Job| job.state().holds_memory() && job.residence() == Residence::Here;
        let here = self.jobs.values().filter(is_here);
        let mut ends: Vec<(u64, JobId)> = here.filter_map(|job| Some((end(job)?, job.id()))).collect();
        ends.sort_unstable();
        ends
    }
}

/// What a job is like; a default job is many programs, which are like nothing.
fn likeness(record: &JobRecord) -> Option<Likeness<'_>> {
    if record.default_scope.is_some() {
        return None;
    }
    match &record.name {
        Some(name) => Some((record.uid, Some(name), &[])),
        None => Some((record.uid, None, &record.command)),
    }
}

/// How long a job runs that ran for so long already: the median of those past runs (in order) that took longer.
fn usual_run(runs: &[u64], ran_ns: u64) -> Option<u64> {
    let longer = &runs[runs.partition_point(|run| *run <= ran_ns)..];
    longer.get(longer.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::usual_run;

    #[test]
    fn the_usual_run_is_the_median_of_those_that_are_still_possible() {
        let runs = [10, 20, 30, 40, 50];
        assert_eq!(usual_run(&runs, 0), Some(30));
        assert_eq!(usual_run(&runs, 30), Some(50));
        assert_eq!(usual_run(&runs, 49), Some(50));
        assert_eq!(usual_run(&runs, 50), None);
        assert_eq!(usual_run(&[], 0), None);
    }
}
