// SPDX-License-Identifier: Apache-2.0
//! `queue`: who waits, in which order, for what, and for how long still.

use partage_protocol::admin::{PlaceView, QueueView};
use partage_protocol::terms::format_part;

use crate::books::Books;
use crate::books::may_see;
use crate::caller::Caller;
use crate::config::Order;
use crate::job::Job;
use crate::machine::Machine;

impl Books {
    /// Answer to `queue`.
    pub fn queue_view<M: Machine>(&self, caller: &Caller, now_ns: u64, machine: &M) -> QueueView {
        let order = self.queue_order();
        let expected = self.expected_waits(machine, now_ns);
        let jobs = self.queue().filter_map(|id| self.jobs.get(&id));
        let place = |(number, job): (usize, &Job)| {
            let queued = job.life.queued();
            let promise = job.record.terms.promise_ppm;
            PlaceView {
                place: u32::try_from(number + 1).unwrap_or(u32::MAX),
                job: job.id().to_string(),
                user: job.record.user.clone(),
                priority: job.record.terms.class.word().to_owned(),
                mem: queued.and_then(|queued| queued.mem_text.clone()),
                compute: (promise > 0).then(|| format_part(promise).replace(' ', "")),
                comes_back: queued.is_none(),
                waited_ns: now_ns.saturating_sub(self.waits_since(job.id())),
                reason: match queued {
                    Some(queued) => queued.reason.clone(),
                    // It may be about a process of the job's.
                    None if !may_see(job, caller) => "it waits to come back".to_owned(),
                    None => self.returning_reason(job.id()),
                },
                expected_wait_ns: expected.get(&job.id()).copied(),
                user_gpu_ns: (order == Order::Fair).then(|| self.had_ns(job.record.uid, now_ns)),
            }
        };
        QueueView {
            order: order.word().to_owned(),
            jobs: jobs.enumerate().map(place).collect(),
        }
    }
}
