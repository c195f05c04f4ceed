// SPDX-License-Identifier: Apache-2.0
//! `--time-limit`: a job that runs too long by the clock on the wall is ended as by `partage stop`.
//!
//! ```text
//!   admitted ── a minute before ──► a line on its terminal, an event
//!            ── limit over ──► SIGTERM, a line on its terminal, an event ── grace over ──► SIGKILL
//! ```
//! A limit of two minutes or less has no warning: its user has just read it.
//! Time in the queue does not count, nor does time in which the job's memory is not on its devices. A broker that
//! adopts the job counts from the admission that the record names, by Unix time; if the limit was over already, the job
//! gets SIGTERM and the whole grace again.

use crate::books::seen::due::TIME_LIMIT_GRACE_NS;
use crate::books::seen::due::TIME_WARNING_NS;
use crate::books::seen::due::time_warning_at;
use partage_protocol::units::{JobId, SECOND_NS};

use super::Policy;
use crate::action::{Action, Signal};
use crate::job::JobRecord;
use crate::notice::{Figures, Notice};
use crate::residence::Residence;

/// When a job's limit is over, by the monotonic clock, judged from its record; none while it stands still because the
/// job is not here.
pub(crate) fn time_limit_at(record: &JobRecord, limit_ns: Option<u64>, unix_ns: u64, now_ns: u64) -> Option<u64> {
    let left_ns = limit_ns?.saturating_sub(record.run_ns(unix_ns));
    let is_here = record.residence.residence() == Residence::Here;
    is_here.then(|| now_ns.saturating_add(left_ns))
}

impl Policy {
    /// Tells a job's user that its time limit is near; nothing happens before.
    pub(crate) fn warn_of_time_limit(&mut self, id: JobId, now_ns: u64) {
        let Some(job) = self.books.jobs.get_mut(&id).filter(|job| job.state().may_end()) else {
            return;
        };
        let Some(at_ns) = job.time_limit_at_ns.filter(|at| *at > now_ns) else {
            return;
        };
        if time_warning_at(job).is_none_or(|warning| now_ns < warning) {
            return;
        }
        job.set_time_warned();
        let limit_ns = job.record.terms.time_limit_ns.unwrap_or(0);
        if limit_ns <= 2 * TIME_WARNING_NS {
            return;
        }
        let left_ns = (at_ns - now_ns).next_multiple_of(SECOND_NS);
        let what = Notice::TimeNear(id, left_ns, limit_ns);
        self.act(Action::tell(id, &what));
        self.publish("time-limit-near", Some(id), None, what);
    }

    /// Ends a job whose time limit is over; nothing happens before.
    pub(crate) fn expire_time_limit(&mut self, id: JobId, now_ns: u64) {
        let Some(job) = self.books.jobs.get_mut(&id).filter(|job| job.state().may_end()) else {
            return;
        };
        if job.time_limit_at_ns.is_none_or(|at| now_ns < at) {
            return;
        }
        job.set_over_time();
        let terms = &job.record.terms;
        let limit_ns = terms.time_limit_ns.unwrap_or(0);
        let reason = Notice::TimeLimit(limit_ns, terms.origin.time_limit.clone()).to_string();
        let kill_at_ns = now_ns.saturating_add(TIME_LIMIT_GRACE_NS);
        // One that is ended already is killed at most that much later than otherwise.
        let by = job.record.uid;
        job.order_stop(None, kill_at_ns, (reason, by));
        let what = Notice::TimeOver(id, limit_ns);
        self.act(Action::tell(id, &what));
        let signal = Signal::Terminate;
        self.act(Action::SignalJob { job: id, signal, by });
        self.publish_numbers("time-limit", (Some(id), None), what, Figures::Job);
    }
}
