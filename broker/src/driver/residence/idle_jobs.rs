// SPDX-License-Identifier: Apache-2.0
//! Looks at the clients of jobs that leave when they are idle: whether they do anything with their devices, and, of a
//! job that left, whether a thread wants to go on. What follows from that is the policy's
//! (`policy/src/decisions/idling.rs`).

use std::sync::atomic::Ordering;

use partage_policy::Event;
use partage_protocol::units::JobId;

use crate::clock::Now;
use crate::driver::state_driver::StateDriver;

impl StateDriver {
    /// Looks at the jobs that leave when they are idle, where that is due.
    pub(in crate::driver) fn tick_idle(&mut self, now: Now) {
        if now.ns < self.ways.idle.due_ns() {
            return;
        }
        let jobs: Vec<(JobId, bool)> = self.policy.leave_when_idle().collect();
        self.ways.idle.keep(&jobs, now.ns);
        for (job, is_away) in jobs {
            if is_away {
                if self.wants_to_go_on(job) {
                    self.step(now, Event::Wanted(job));
                }
                continue;
            }
            let done = (self.done(job), self.is_anybody_inside(job));
            let for_ns = self.ways.idle.quiet_ns(job, done, now.ns);
            if for_ns > 0 && !self.ways.has(job) {
                self.step(now, Event::Quiet { job, for_ns });
            }
        }
    }

    /// When [`tick_idle`](Self::tick_idle) has something to do, at the latest.
    pub(in crate::driver) const fn idle_due_ns(&self) -> u64 {
        self.ways.idle.due_ns()
    }

    /// What the processes of a job have done with their devices: a number that changes with each launch, allocation and
    /// free, and with each process that comes or goes. One that uses NVML alone does nothing.
    fn done(&self, job: JobId) -> u64 {
        let mut done = 0_u64;
        for (_, client) in self.clients.iter().filter(|(_, client)| client.job == job) {
            if client.has_driver {
                done = done.wrapping_add(u64::from(client.process.pid) << 32);
            }
            let Some(pages) = &client.pages else { continue };
            let file = pages.file();
            for place in file.time.places() {
                done = done.wrapping_add(place.launches.load(Ordering::Relaxed));
            }
            for line in &file.page.devices {
                done = done.wrapping_add(line.started.load(Ordering::Relaxed));
            }
        }
        done
    }

    /// Does a thread of the job stand at the hold?
    fn wants_to_go_on(&self, job: JobId) -> bool {
        let mut of_job = self.clients.iter().filter(|(_, client)| client.job == job);
        of_job.any(|(_, client)| {
            let pages = client.pages.as_ref();
            pages.is_some_and(|pages| pages.client().head.wants.load(Ordering::Acquire) != 0)
        })
    }
}
