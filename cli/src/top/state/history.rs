// SPDX-License-Identifier: Apache-2.0
//! What each job got in each of the last sixty seconds.

use std::collections::HashMap;

use partage_protocol::admin::JobView;

use crate::top::fields;

/// Seconds that are kept.
pub const SECONDS: usize = 60;

/// The last minute of every job that is there.
#[derive(Debug, Default)]
pub struct History {
    jobs: HashMap<String, Vec<Option<f64>>>,
}

impl History {
    /// A second has passed, and this is what the broker says of it.
    pub fn note(&mut self, jobs: &[JobView]) {
        let mut next = HashMap::with_capacity(jobs.len());
        for job in jobs {
            let mut parts = self.jobs.remove(&job.job).unwrap_or_default();
            push(&mut parts, fields::mean_of(job, |time| time.got_1s));
            next.insert(job.job.clone(), parts);
        }
        self.jobs = next;
    }

    /// A second has passed of which nobody said anything.
    pub fn note_silence(&mut self) {
        self.jobs.values_mut().for_each(|parts| push(parts, None));
    }

    /// The minute of one job, the oldest second first.
    pub fn of(&self, job: &str) -> &[Option<f64>] {
        self.jobs.get(job).map_or(&[], Vec::as_slice)
    }
}

fn push(parts: &mut Vec<Option<f64>>, part: Option<f64>) {
    if parts.len() == SECONDS {
        parts.remove(0);
    }
    parts.push(part);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::testing;

    #[test]
    fn a_minute_is_kept_and_jobs_that_left_are_not() {
        let mut history = History::default();
        let job = testing::at_work("j1", 0.25);
        for _ in 0..70 {
            history.note(std::slice::from_ref(&job));
        }
        history.note_silence();
        let minute = history.of("j1");
        assert_eq!((minute.len(), minute[58], minute[59]), (SECONDS, Some(0.25), None));
        history.note(&[]);
        assert!(history.of("j1").is_empty());
    }
}
