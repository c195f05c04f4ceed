// SPDX-License-Identifier: Apache-2.0
//! Goes on with what the records of jobs say, where a broker before left off.

use partage_policy::{Event, Passage, Patience, Place, Plan, Process, Residence, Return};
use partage_protocol::units::JobId;

use super::dumping::sweep_saving;
use super::engine::Engine;
use super::facts::processes_with_library;
use super::restoring::lacks;
use super::steps::owed;
use super::way::{Closed, Purpose, Way};
use crate::site::Site;

impl Engine {
    /// How the passage of a new mark begins: of every job whose record says that it is not here.
    pub(crate) fn recover_ways(&mut self, site: &mut Site) {
        sweep_saving(site);
        let jobs: Vec<JobId> = site.policy.live().collect();
        self.recover_restores(site, &jobs);
        for job in jobs {
            self.recover_way(site, job);
        }
    }

    /// Goes on with what a job's record says, unless something is under way.
    pub(super) fn recover_way(&mut self, site: &mut Site, job: JobId) {
        let Some(mark) = site.policy.residence(job).cloned() else {
            return;
        };
        if mark.residence == Residence::Here || self.ways.has(job) {
            return;
        }
        let (devices, processes) = (site.jobs.devices(job), processes_with_library(site, job));
        // From the first moment on, for processes that begin now. A broker before may have left less.
        let closed = match mark.residence {
            Residence::Leaving => Closed::Soft,
            Residence::Saving => Closed::Parked,
            _ => Closed::Hard,
        };
        self.set_hold(site, job, Some(closed));
        let owes = |process: &Process| !owed(site, job, *process, Place::Source).is_empty();
        if matches!(mark.residence, Residence::Away | Residence::Poisoned) && !processes.iter().any(owes) {
            // Nothing of it is to come back: it stays as it is, and takes no room without asking.
            return;
        }
        let passage = Passage::recover(&mark, &devices, &processes, Patience::default());
        let way = Way::passing(passage, Purpose::Recover(mark.residence), processes, site.now.ns);
        self.ways.start(job, way);
    }

    /// There is room for a job that is away: its way back begins, and claims the room. While something else is under
    /// way with it, that ends first.
    pub(crate) fn come(&mut self, site: &mut Site, job: JobId) {
        if self.ways.has(job) {
            self.ways.to_come.insert(job);
            return;
        }
        let mark = site.policy.residence(job).cloned().unwrap_or_default();
        let (devices, processes) = (site.jobs.devices(job), processes_with_library(site, job));
        if let Some(why) = lacks(site, job) {
            return site.tell(Event::Returned {
                job,
                end: Return::NoRoom(why),
            });
        }
        let is_stopped = |process: &&Process| site.processes.stat(process.pid).is_some_and(|stat| stat.is_stopped);
        if let Some(stopped) = processes.iter().find(is_stopped) {
            // The driver would wait for it without end, and the room be kept from others.
            let pid = stopped.pid;
            let end = Return::NoRoom(format!("pid {pid} is stopped: kill -CONT {pid} lets it go on"));
            return site.tell(Event::Returned { job, end });
        }
        match Passage::begin(Plan::Come, &mark, &devices, &processes, Patience::default()) {
            Ok(mut passage) => {
                // One that began meanwhile waits before it has any CUDA: it is not to be restored.
                for process in &processes {
                    if owed(site, job, *process, Place::Source).is_empty() {
                        passage.ask_first(*process);
                    }
                }
                self.ways
                    .start(job, Way::passing(passage, Purpose::Resume, processes, site.now.ns));
            }
            Err(Residence::Here) => {
                let text = format!("{job} runs again");
                let end = Return::Back(text);
                site.tell(Event::Returned { job, end });
            }
            Err(residence) => {
                let end = Return::Never(format!("{job} is {} now", residence.word()));
                site.tell(Event::Returned { job, end });
            }
        }
    }
}
