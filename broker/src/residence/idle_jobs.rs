// SPDX-License-Identifier: Apache-2.0
//! Looks at the clients of jobs that leave when they are idle: whether they do anything with their devices, and, of a
//! job that left, whether a thread wants to go on. What follows from that is the policy's
//! (`policy/src/decisions/idling.rs`).

use std::sync::atomic::Ordering;

use partage_policy::Event;
use partage_protocol::units::JobId;

use super::engine::Engine;
use super::holds::is_anybody_inside;
use crate::site::Site;

impl Engine {
    /// Looks at the jobs that leave when they are idle, where that is due.
    pub(super) fn tick_idle(&mut self, site: &mut Site) {
        if site.now.ns < self.idle.due_ns() {
            return;
        }
        let jobs: Vec<(JobId, bool)> = site.policy.leave_when_idle().collect();
        self.idle.keep(&jobs, site.now.ns);
        for (job, is_away) in jobs {
            if is_away {
                if wants_to_go_on(site, job) {
                    site.tell(Event::Wanted(job));
                }
                continue;
            }
            let done = (done(site, job), is_anybody_inside(site, job));
            let for_ns = self.idle.quiet_ns(job, done, site.now.ns);
            if for_ns > 0 && !self.ways.has(job) {
                site.tell(Event::Quiet { job, for_ns });
            }
        }
    }
}

/// What the processes of a job have done with their devices: a number that changes with each launch, allocation and
/// free, and with each process that comes or goes. One that uses NVML alone does nothing.
fn done(site: &Site, job: JobId) -> u64 {
    let mut done = 0_u64;
    for (_, client) in site.clients.iter().filter(|(_, client)| client.job == job) {
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
fn wants_to_go_on(site: &Site, job: JobId) -> bool {
    let mut of_job = site.clients.iter().filter(|(_, client)| client.job == job);
    of_job.any(|(_, client)| {
        let pages = client.pages.as_ref();
        pages.is_some_and(|pages| pages.client().head.wants.load(Ordering::Acquire) != 0)
    })
}
