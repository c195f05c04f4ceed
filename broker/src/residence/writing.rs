// SPDX-License-Identifier: Apache-2.0
//! Snapshots that are made whole while their jobs go on.
//!
//! CRIU has all of a job once its pages are in files. The sums of these files, and the disk, are waited for by the
//! dump's process ([`dump`](crate::snapshot::dump)); what fails there costs that generation alone. The command that
//! asked waits too: it is told of a snapshot that is whole.

use std::collections::BTreeMap;

use partage_policy::{Outcome, Stage};
use partage_protocol::units::{JobId, SECOND_NS};

use super::way::Way;
use super::written::{Written, what_became};
use crate::site::Site;

/// Between two looks at whether a snapshot is whole.
const WHOLE_POLL_NS: u64 = SECOND_NS / 50;

/// Jobs that went on, or could not come back, with snapshots that are not whole yet.
#[derive(Debug, Default)]
pub(super) struct Writings {
    by_job: BTreeMap<JobId, Writing>,
}

#[derive(Debug)]
struct Writing {
    way: Way,
    ended: (Outcome, bool),
    since_ns: u64,
    looked_ns: u64,
}

impl Writing {
    const fn due_ns(&self) -> u64 {
        self.looked_ns + WHOLE_POLL_NS
    }
}

impl Writings {
    /// The way of a save came to its end before its snapshot is whole.
    pub(super) fn add(&mut self, job: JobId, mut way: Way, ended: (Outcome, bool), now_ns: u64) {
        way.stood_ns = Some(now_ns.saturating_sub(way.began_ns));
        let writing = Writing {
            way,
            ended,
            since_ns: now_ns,
            looked_ns: now_ns,
        };
        self.by_job.insert(job, writing);
    }

    /// Is one of this broker's being written for the job?
    pub(super) fn has(&self, job: JobId) -> bool {
        self.by_job.contains_key(&job)
    }

    /// When to look next.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.by_job.values().map(Writing::due_ns).min()
    }

    /// Those that are whole, or never will be.
    pub(super) fn take_ended(&mut self, site: &Site) -> Vec<(JobId, Way, (Outcome, bool))> {
        let due = self.by_job.extract_if(.., |job, writing| {
            if site.now.ns < writing.due_ns() {
                return false;
            }
            writing.looked_ns = site.now.ns;
            matches!(
                what_became(site, *job, &mut writing.way),
                Written::Whole | Written::Failed(_)
            )
        });
        let ended = due.map(|(job, writing)| {
            let mut way = writing.way;
            way.note_stage(Stage::Commit, site.now.ns.saturating_sub(writing.since_ns));
            (job, way, writing.ended)
        });
        ended.collect()
    }
}
