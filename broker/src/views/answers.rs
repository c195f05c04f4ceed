// SPDX-License-Identifier: Apache-2.0
//! Views, from a published copy and /proc.

use std::collections::BTreeSet;

use partage_metrics::{Exposition, JobLabel, MOST_SERIES, Seen, exposition};
use partage_policy::{Caller, Process};
use partage_protocol::admin::{BrokerView, ErrorCode, ErrorView, JobView, MetricsRequest, Reply, UnmanagedView};
use partage_protocol::frame;
use partage_protocol::units::JobId;

use super::published::{Published, ViewRequest, What};
use crate::host::proc::Processes;

/// Bytes of jobs in one answer to `ps`; more go into further ones. With the longest labels and commands a thousand jobs
/// take four times what a document may hold, and one job with all the clients that it may have a fifth of it: there is
/// always room for the processes of no job, which come with the first page.
const PAGE: usize = frame::MAX_DOCUMENT / 4;

/// Which of the live jobs are stopped.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// All live jobs.
    pub live: BTreeSet<JobId>,
    /// Those of them whose processes are all stopped by a signal.
    pub stopped: BTreeSet<JobId>,
}

impl Published {
    /// Finds which of the live jobs are stopped, and shows it from here on.
    #[must_use]
    pub fn find_stopped(mut self, processes: &dyn Processes) -> (Self, Found) {
        let live: BTreeSet<JobId> = self.books.live().collect();
        let is_stopped = |process: &Process| {
            let stat = processes.stat(process.pid);
            stat.is_some_and(|stat| stat.id == *process && stat.is_stopped)
        };
        let are_stopped = |job: &JobId| {
            let processes = self.books.processes(*job);
            !processes.is_empty() && processes.iter().all(is_stopped)
        };
        let found = Found {
            stopped: live.iter().copied().filter(are_stopped).collect(),
            live,
        };
        let now = found.with_others(&self.stopped);
        if now != self.stopped {
            self.books = self.books.with_stopped(&now);
            self.stopped = now;
        }
        (self, found)
    }

    /// The answer to a request.
    #[must_use]
    pub fn answer(&self, request: &ViewRequest, processes: &dyn Processes) -> Reply {
        let ViewRequest { caller, what, .. } = request;
        match what {
            What::Ps { all, after } => self.ps(caller, (*all, *after), processes),
            What::Status => Reply::Status(self.books.status(self.broker_for(caller), self.now_ns, &self.machine)),
            What::Queue => Reply::Queue(self.books.queue_view(caller, self.now_ns, &self.machine)),
            What::Metrics(asked) => self.metrics(caller, asked),
            What::Get(target) => {
                let reply = self.books.get(caller, target, &self.machine);
                reply.unwrap_or_else(|why| Reply::Error(why.view()))
            }
            What::Why(target) => {
                let reply = self.books.why(caller, target, self.now_ns, &self.machine);
                reply.unwrap_or_else(|why| Reply::Error(why.view()))
            }
        }
    }

    fn broker_for(&self, caller: &Caller) -> BrokerView {
        BrokerView {
            is_admin: caller.is_admin,
            ..self.broker.clone()
        }
    }

    /// Everything that a monitoring system reads, of one moment.
    fn metrics(&self, caller: &Caller, asked: &MetricsRequest) -> Reply {
        let mut labels = Vec::new();
        for word in &asked.labels {
            match JobLabel::called(word) {
                Some(label) => labels.push(label),
                None => {
                    let known = JobLabel::ALL.map(JobLabel::word).join(", ");
                    return Reply::Error(ErrorView {
                        code: ErrorCode::Invalid,
                        message: format!("no label is called {word:?}"),
                        hint: Some(format!("there are {known}")),
                        holders: Vec::new(),
                    });
                }
            }
        }
        let status = self.books.status(self.broker_for(caller), self.now_ns, &self.machine);
        let seen = Seen {
            totals: status.totals.clone(),
            status,
            jobs: self.books.live_views(caller, &self.machine),
            unmanaged: self.books.unmanaged(),
            dropped_before: asked.dropped_before,
        };
        let most = asked
            .most_series
            .map_or(MOST_SERIES, |most| usize::try_from(most).unwrap_or(usize::MAX));
        let Exposition { text, dropped } = exposition(&seen, &labels, most);
        Reply::Metrics { text, dropped }
    }

    /// One page of jobs.
    fn ps(&self, caller: &Caller, page: (bool, Option<JobId>), processes: &dyn Processes) -> Reply {
        let mut bytes = 0;
        let fits = |view: &JobView| {
            bytes += serde_json::to_vec(view).map_or(0, |text| text.len());
            bytes <= PAGE
        };
        let mut reply = self.books.ps_page(caller, page, &self.machine, fits);
        if let Reply::Ps { unmanaged, .. } = &mut reply {
            self.name_unmanaged(unmanaged, caller, processes);
        }
        reply
    }

    /// Names the owners of unmanaged processes; their programs are for their owner's and administrators' eyes.
    fn name_unmanaged(&self, unmanaged: &mut [UnmanagedView], caller: &Caller, processes: &dyn Processes) {
        for view in unmanaged {
            view.user = view.uid.and_then(|uid| self.users.get(&uid).cloned());
            if caller.is_admin || view.uid == Some(caller.uid) && caller.inside.is_none() {
                view.command = processes.name(view.pid);
            }
        }
    }
}

impl Found {
    /// All stopped jobs: of the live ones these, of the others those that were before.
    #[must_use]
    pub fn with_others(&self, before: &BTreeSet<JobId>) -> BTreeSet<JobId> {
        let others = before.difference(&self.live);
        others.chain(&self.stopped).copied().collect()
    }
}
