// SPDX-License-Identifier: Apache-2.0
//! Snapshots that are made whole while their jobs go on.
//!
//! CRIU has all of a job once its pages are in files. The sums of these files, and the disk, are the dump's process's to
//! wait for ([`dump`](crate::snapshot::dump)); what fails there costs that generation alone. The command that asked
//! waits too: it is told of a snapshot that is whole.

use partage_policy::{Outcome, Stage};
use partage_protocol::units::{JobId, SECOND_NS};

use super::dumping::{Written, what_became};
use super::engine::Engine;
use super::way::Way;
use crate::site::Site;

/// Between two looks at whether a snapshot is whole.
const LOOK_NS: u64 = SECOND_NS / 50;

/// A job that goes on, or could not come back, with a snapshot that is not whole yet.
#[derive(Debug)]
pub(super) struct Writing {
    way: Way,
    ended: (Outcome, bool),
    since_ns: u64,
    looked_ns: u64,
}

impl Writing {
    /// When to look next.
    pub(super) const fn due_ns(&self) -> u64 {
        self.looked_ns + LOOK_NS
    }
}

impl Engine {
    /// The way of a save came to its end before its snapshot is whole.
    pub(super) fn wait_until_whole(&mut self, site: &Site, job: JobId, mut way: Way, ended: (Outcome, bool)) {
        way.stood_ns = Some(site.now.ns.saturating_sub(way.began_ns));
        let writing = Writing {
            way,
            ended,
            since_ns: site.now.ns,
            looked_ns: site.now.ns,
        };
        self.ways.writing.insert(job, writing);
    }

    /// Says what became of the snapshots that are whole, or never will be.
    pub(super) fn tick_writing(&mut self, site: &mut Site) {
        let due = self
            .ways
            .writing
            .iter()
            .filter(|(_, writing)| site.now.ns >= writing.due_ns());
        let due: Vec<JobId> = due.map(|(job, _)| *job).collect();
        for job in due {
            let Some(mut writing) = self.ways.writing.remove(&job) else {
                continue;
            };
            match what_became(site, job, &mut writing.way) {
                Written::Runs | Written::Dumped => {
                    writing.looked_ns = site.now.ns;
                    self.ways.writing.insert(job, writing);
                }
                Written::Whole | Written::Failed(_) => {
                    let Writing {
                        mut way,
                        ended,
                        since_ns,
                        ..
                    } = writing;
                    way.note_stage(Stage::Commit, site.now.ns.saturating_sub(since_ns));
                    self.say_what_came(site, job, &mut way, ended);
                }
            }
        }
    }
}
