// SPDX-License-Identifier: Apache-2.0
//! Requests that find their job there: from inside a container or group that is one, a registration that is asked
//! again, and that of a group which is a job already.

use partage_protocol::units::JobId;

use super::Policy;
use crate::event::Run;
use crate::heard::Word;
use crate::refusal::Why;

impl Policy {
    /// Answers a request that needs no new job; false where it does.
    pub(super) fn is_answered(&mut self, run: &Run, now_ns: u64) -> bool {
        let takes_processes = |id: &JobId| self.books.jobs.get(id).is_some_and(|job| job.state().takes_processes());
        // In the control group or namespace of a job: it has that one.
        if let Some(id) = run.caller.inside.filter(takes_processes) {
            match self.books.jobs.get(&id) {
                _ if run.request.restored.is_some() => self.refuse(run.ticket, Why::InsideRestored(id)),
                // A lazy job's process only waits for a job to belong to.
                _ if run.request.token.is_some() => self.join(run.ticket, id, now_ns),
                Some(job) => {
                    let seen = Box::new((job.clone(), run.caller.clone()));
                    self.tell(run.ticket, Word::Inside(seen));
                }
                None => {}
            }
            return true;
        }
        let Some((registration, _)) = &run.registered else {
            return false;
        };
        // Asked again by a caller that lost the broker before, or of a group that is a job.
        let process = run.caller.process;
        let begun = self.begun_with(process);
        let begun = begun.or_else(|| self.living_by(registration, run.caller.uid));
        let Some(id) = begun else { return false };
        if self.books.jobs.get(&id).is_some_and(|job| !job.is_first_alive) {
            self.follow(id, process);
        }
        self.join(run.ticket, id, now_ns);
        true
    }
}
