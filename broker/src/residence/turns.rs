// SPDX-License-Identifier: Apache-2.0
//! The turns of the engine: what the loop calls.

use partage_protocol::units::JobId;

use super::engine::Engine;
use super::waits::{answer_of, end_or_wait};
use super::way::{Begun, Phase, Turn, Way};
use crate::host::checkpoint::Outcome;
use crate::site::Site;

impl Engine {
    /// Has one thing go on that can, until the policy has to hear of something or others have to answer. The policy has
    /// heard all that was to be heard next.
    pub(crate) fn go_on(&mut self, site: &mut Site) {
        match self.ways.ready.pop_front() {
            None => {}
            Some(Turn::Drain(device)) => self.begin_drain(site, device),
            Some(Turn::Drained(device)) => self.drain_on(site, device),
            Some(Turn::Job(job)) => match self.ways.by_job.remove(&job) {
                Some(way) if matches!(way.phase, Phase::Clearing) => self.ask_states(site, job, way),
                Some(way) => self.follow(site, job, way),
                None => {}
            },
        }
    }

    /// Can anything go on?
    pub(crate) fn is_ready(&self) -> bool {
        !self.ways.ready.is_empty()
    }

    /// Does what time brings.
    pub(crate) fn tick(&mut self, site: &mut Site) {
        self.tick_ways(site);
        self.tick_idle(site);
        self.tick_periodic(site);
    }

    /// What became of a question about a job's process.
    pub(crate) fn helper_answered(&mut self, site: &mut Site, job: JobId, outcome: Outcome) {
        let Some(mut way) = self.ways.by_job.remove(&job) else {
            return;
        };
        if let Outcome::Failed(why) = &outcome {
            say_helper_lost(site, job, why);
        }
        match &mut way.phase {
            Phase::Clearing => self.ways.start(job, way),
            Phase::Asking { .. } => self.take_state(site, job, way, outcome),
            Phase::Trying { .. } => self.take_map(site, job, way, &outcome),
            Phase::Passing { step, .. } => {
                if let Some(mut begun) = step.take() {
                    let answer = answer_of(site, job, &mut way, &mut begun, outcome);
                    end_or_wait(site, &mut way, begun, answer);
                }
                self.ways.start(job, way);
            }
        }
    }

    /// Looks after everything that is under way.
    pub(super) fn tick_ways(&mut self, site: &mut Site) {
        for (job, process) in std::mem::take(&mut self.ways.gone) {
            self.take_gone(site, job, process);
        }
        self.take_ended_moves();
        self.tick_restores(site);
        for (job, way, ended) in self.writings.take_ended(site) {
            self.finish(site, job, way, ended);
        }
        let jobs: Vec<JobId> = self.ways.by_job.keys().copied().collect();
        for job in jobs {
            let Some(mut way) = self.ways.by_job.remove(&job) else {
                continue;
            };
            if self.poll(site, job, &mut way) {
                self.ways.hurry(Turn::Job(job));
            }
            self.ways.by_job.insert(job, way);
        }
    }

    /// When [`tick`](Self::tick) has something to do, at the latest.
    pub(crate) fn due_ns(&self) -> u64 {
        self.ways_due_ns().min(self.idle.due_ns()).min(self.periodic.poll_ns())
    }

    /// When [`tick_ways`](Self::tick_ways) has something to do, at the latest.
    pub(super) fn ways_due_ns(&self) -> u64 {
        if !self.ways.gone.is_empty() || !self.ways.ended_moves.is_empty() {
            return 0;
        }
        let due = |way: &Way| match &way.phase {
            Phase::Clearing | Phase::Asking { .. } | Phase::Trying { .. } => u64::MAX,
            Phase::Passing { step, .. } => step.as_ref().map_or(0, Begun::due_ns),
        };
        let due = self.ways.by_job.values().map(due);
        let due = due.chain(self.ways.restores.values().copied());
        let due = due.chain(self.writings.due_ns()).min();
        due.unwrap_or(u64::MAX)
    }
}

/// A helper that ended by itself is worth a word to administrators: its user may have had a hand in it.
fn say_helper_lost(site: &mut Site, job: JobId, why: &str) {
    let text = format!("{job}: the helper that calls the driver for it was lost: {why}");
    site.publish("helper-lost", Some(job), None, text);
}
