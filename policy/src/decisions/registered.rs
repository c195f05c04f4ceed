// SPDX-License-Identifier: Apache-2.0
//! Requests that find their job there: from inside a container that is one, and a registration that is asked again.

use partage_protocol::units::JobId;

use super::Policy;
use crate::event::Run;
use crate::heard::Word;
use crate::refusal::Why;

impl Policy {
    /// Answers a request that needs no new job; false where it does.
    pub(super) fn is_answered(&mut self, run: &Run, now_ns: u64) -> bool {
        let takes_processes = |id: &JobId| self.books.jobs.get(id).is_some_and(|job| job.state().takes_processes());
        if let Some(id) = run.caller.inside.filter(takes_processes) {
            self.inside(run, id, now_ns);
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
    fn inside(&mut self, run: &Run, id: JobId, now_ns: u64) {
        if run.request.restored.is_some() {
            return self.refuse(run.ticket, Why::InsideRestored(id));
        }
        // A lazy job's process only waits for a job to belong to.
        if run.request.token.is_some() {
            return self.join(run.ticket, id, now_ns);
        }
        if let Some(job) = self.books.jobs.get(&id) {
            let seen = Box::new((job.clone(), run.caller.clone()));
            self.tell(run.ticket, Word::Inside(seen));
        }
    }
}
