// SPDX-License-Identifier: Apache-2.0
//! Requests that find their job there: from inside a container that is one, and a registration that is asked again.

use partage_protocol::units::JobId;

use super::Policy;
use crate::event::Run;
use crate::machine::Machine;
use crate::refusal::invalid;

impl Policy {
    /// Answers a request that needs no new job; false where it does.
    pub(super) fn is_answered<M: Machine>(&mut self, run: &Run, machine: &M, now_ns: u64) -> bool {
        let takes_processes = |id: &JobId| self.books.jobs.get(id).is_some_and(|job| job.state().takes_processes());
        if let Some(id) = run.caller.inside.filter(takes_processes) {
            self.inside(run, id, machine, now_ns);
            return true;
        }
        // Asked again by a caller that lost the broker before.
        let begun = run
            .registered
            .as_ref()
            .and_then(|_| self.begun_with(run.caller.process));
        if let Some(id) = begun {
            self.join(run.ticket, id, now_ns);
        }
        begun.is_some()
    }

    /// A process that is in a container's control group asks for a job: it has one.
    fn inside<M: Machine>(&mut self, run: &Run, id: JobId, machine: &M, now_ns: u64) {
        if run.request.restored.is_some() {
            let why = invalid(
                format!("this is inside {id}, a container's job, which a restored job cannot join"),
                Some("restore it outside the container".to_owned()),
            );
            return self.refuse(run.ticket, why);
        }
        // A lazy job's process only waits for a job to belong to.
        if run.request.token.is_some() {
            return self.join(run.ticket, id, now_ns);
        }
        if let Some(reply) = self.inside_reply(id, &run.caller, machine) {
            self.reply(run.ticket, reply);
        }
    }
}
