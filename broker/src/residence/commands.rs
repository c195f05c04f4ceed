// SPDX-License-Identifier: Apache-2.0
//! The commands that begin a passage, and the look before anything is touched.

use partage_policy::{Access, Caller, Event, Obstacle, Patience, Residence, TargetQuery, Ticket};
use partage_protocol::admin::{ErrorCode, Reply, Request};
use partage_protocol::snapshot::FILES_MAX;

use super::answers::refuse_way;
use super::engine::Engine;
use super::facts::{residence_of, waits_to_start};
use super::way::{Leaving, Purpose, SaveTo, Turn};
use crate::site::Site;

impl Engine {
    /// A command about where jobs' memory is.
    pub(crate) fn request(&mut self, site: &mut Site, ticket: Ticket, caller: Caller, request: Request) {
        match request {
            Request::Suspend {
                target,
                drain_timeout_ns,
            } => {
                let target = site.target(target);
                let patience = Patience::draining(drain_timeout_ns);
                self.suspend(site, (ticket, patience), &caller, &target);
            }
            Request::Resume {
                target,
                wait,
                wait_timeout_ns,
            } => {
                let resume = Event::Resume {
                    ticket,
                    caller,
                    target: site.target(target),
                    is_patient: wait,
                    timeout_ns: wait_timeout_ns,
                };
                site.tell(resume);
            }
            Request::Checkpoint {
                target,
                out,
                stop,
                keep,
                criu,
                files_max,
                drain_timeout_ns,
                outside,
            } => {
                let patience = Patience::draining(drain_timeout_ns);
                let to = SaveTo {
                    folder: out.into(),
                    is_to_stop: stop,
                    keep,
                    criu: criu.map(Into::into),
                    files_max: files_max.unwrap_or(FILES_MAX),
                    outside,
                    is_periodic: false,
                };
                let target = site.target(target);
                self.save(site, (ticket, patience), &caller, &target, to);
            }
            Request::Restore(request) => self.restore(site, ticket, caller, &request),
            Request::Migrate {
                target,
                to,
                from,
                dry_run,
                drain_timeout_ns,
            } => {
                let target = site.target(target);
                let asked = (ticket, Patience::draining(drain_timeout_ns));
                self.migrate(site, asked, &caller, &target, (from.as_deref(), &to, dry_run));
            }
            Request::Drain { gpu, drain_timeout_ns } => {
                let patience = Patience::draining(drain_timeout_ns);
                self.drain(site, ticket, &caller, (&gpu, Some(patience)));
            }
            Request::Undrain { gpu } => self.drain(site, ticket, &caller, (&gpu, None)),
            _ => {}
        }
    }

    /// `partage suspend`.
    fn suspend(
        &mut self,
        site: &mut Site,
        (ticket, patience): (Ticket, Patience),
        caller: &Caller,
        target: &TargetQuery,
    ) {
        let job = match site.policy.resolve(target, caller, Access::Change) {
            Ok(job) => job,
            Err(why) => return site.answer_ticket(ticket, Reply::Error(why.view())),
        };
        let residence = residence_of(site, job);
        // One that left without a command is to stay suspended from now on.
        if let Some(way) = self.ways.by_job.get_mut(&job) {
            if way.purpose == Purpose::Suspend {
                way.tickets.push(ticket);
                self.ways.hurry(Turn::Job(job));
                return site.tell(Event::Stays(job));
            }
            let under_way = way.under_way(residence);
            return refuse_way(site, ticket, &[Obstacle::NotHere(job, under_way)]);
        }
        if waits_to_start(site, job) {
            let message = format!("{job} waits in the queue to start: there is nothing to suspend");
            return site.deny_ticket(ticket, ErrorCode::Failed, message, None);
        }
        if residence == Residence::Away {
            site.tell(Event::Stays(job));
            let message = format!("{job} is suspended already");
            return site.answer_ticket(ticket, Reply::Done { message });
        }
        self.begin_to_leave(site, job, Leaving::asked(Purpose::Suspend, (ticket, patience)));
    }
}
