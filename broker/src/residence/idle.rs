// SPDX-License-Identifier: Apache-2.0
//! What was seen of the jobs that leave when they are idle (`run --idle-release`): since when each did nothing.

use std::collections::BTreeMap;

use partage_protocol::units::{JobId, SECOND_NS};

/// Between two looks at whether a job does anything: `--idle-release` takes seconds.
const IDLE_POLL_NS: u64 = SECOND_NS / 2;
/// Between two looks at whether a job that left wants to go on: its call stands that much longer.
const WANTED_POLL_NS: u64 = SECOND_NS / 100;

/// What was seen of the jobs that leave when they are idle.
#[derive(Debug, Default)]
pub(super) struct Idle {
    seen: BTreeMap<JobId, Seen>,
    /// When to look next; 0 where a job may have come.
    due_ns: u64,
}

/// What one job had done, and since when that is all.
#[derive(Clone, Copy, Debug)]
struct Seen {
    done: u64,
    since_ns: u64,
}

impl Idle {
    /// A job may have to be looked at.
    pub(super) const fn hurry(&mut self) {
        self.due_ns = 0;
    }

    /// These are the jobs, and whether each left and is away: when to look at them next.
    pub(super) fn keep(&mut self, jobs: &[(JobId, bool)], now_ns: u64) {
        let is_here = |id: &JobId| jobs.iter().any(|(job, is_away)| job == id && !is_away);
        self.seen.retain(|id, _| is_here(id));
        let is_any_away = jobs.iter().any(|(_, is_away)| *is_away);
        self.due_ns = match (jobs.is_empty(), is_any_away) {
            (true, _) => u64::MAX,
            (_, true) => now_ns + WANTED_POLL_NS,
            (_, false) => now_ns + IDLE_POLL_NS,
        };
    }

    /// When to look next.
    pub(super) const fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// A job has done so much by now, or is at it; answers for how long it did nothing.
    pub(super) fn quiet_ns(&mut self, job: JobId, (done, is_inside): (u64, bool), now_ns: u64) -> u64 {
        let new = Seen { done, since_ns: now_ns };
        let seen = self.seen.entry(job).or_insert(new);
        if is_inside || seen.done != done {
            *seen = new;
        }
        now_ns.saturating_sub(seen.since_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_or_being_done_ends_the_quiet() {
        let mut idle = Idle::default();
        let job = JobId(1);
        assert_eq!(idle.quiet_ns(job, (5, false), 100), 0);
        assert_eq!(idle.quiet_ns(job, (5, false), 150), 50);
        assert_eq!(idle.quiet_ns(job, (5, true), 160), 0);
        assert_eq!(idle.quiet_ns(job, (5, false), 180), 20);
        assert_eq!(idle.quiet_ns(job, (6, false), 190), 0);
        assert_eq!(idle.quiet_ns(JobId(2), (0, false), 195), 0);
        assert_eq!(idle.quiet_ns(job, (6, false), 200), 10);
    }
}
