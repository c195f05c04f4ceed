// SPDX-License-Identifier: Apache-2.0
//! Reports from the dispatcher to the event loop: clients that do not drain, and views of each job's device time.
//!
//! While jobs are measured, a view is sent every [`VIEWS_NS`], and after *news* at once, at most once in
//! [`BETWEEN_VIEWS_NS`]. News: a message arrived, or a client stopped or began to drain. One last report says that no
//! job is measured any more.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use nix::sys::eventfd::{EfdFlags, EventFd};
use partage_policy::JobTime;
use partage_protocol::units::{ClientId, DeviceUuid, SECOND_NS};

/// Between two views while nothing but the figures changes: what is shown is a second's and a minute's, and the policy
/// compares a second's with NVML's.
pub const VIEWS_NS: u64 = SECOND_NS;
/// Least time between two views: what happens often is reported together.
pub const BETWEEN_VIEWS_NS: u64 = SECOND_NS / 10;

/// One report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// A client's work did not retire within the drain timeout: nobody waits for it any more.
    NotDraining {
        /// The client.
        client: ClientId,
        /// Where its work is.
        device: DeviceUuid,
        /// What was seen.
        why: &'static str,
    },
    /// A client that did not drain retires work again, or has none.
    Drained {
        /// The client.
        client: ClientId,
        /// Where its work was.
        device: DeviceUuid,
    },
    /// Every job that is measured, on each of its devices; a job that is not in it is not measured.
    Views(Vec<JobTime>),
}

/// What waits to be reported, and when views are due.
#[derive(Debug, Default)]
pub struct Outbox {
    reports: Vec<Report>,
    has_news: bool,
    /// The views reported last held a job.
    had_jobs: bool,
    views_ns: u64,
}

impl Outbox {
    /// Something happened that the next views show.
    pub fn note_news(&mut self) {
        self.has_news = true;
    }

    /// Adds a report; what it is about shows in the next views.
    pub fn push(&mut self, report: Report) {
        self.reports.push(report);
        self.has_news = true;
    }

    /// When views are due, if nothing else happens. `is_measuring`: a job is measured now.
    #[must_use]
    pub fn due_ns(&self, is_measuring: bool) -> Option<u64> {
        if self.has_news {
            return Some(self.views_ns.saturating_add(BETWEEN_VIEWS_NS));
        }
        (is_measuring || self.had_jobs).then(|| self.views_ns.saturating_add(VIEWS_NS))
    }

    /// What is to be reported now. `views` is asked for them where they are due.
    pub fn take(&mut self, now_ns: u64, is_measuring: bool, views: impl FnOnce() -> Vec<JobTime>) -> Vec<Report> {
        let mut reports = std::mem::take(&mut self.reports);
        if self.due_ns(is_measuring).is_some_and(|due_ns| now_ns >= due_ns) {
            (self.views_ns, self.has_news) = (now_ns, false);
            let views = views();
            if std::mem::replace(&mut self.had_jobs, !views.is_empty()) || self.had_jobs {
                reports.push(Report::Views(views));
            }
        }
        reports
    }
}

/// The dispatcher's end of the queue.
#[derive(Debug)]
pub struct Reporter {
    sender: Sender<Report>,
    bell: Arc<EventFd>,
}

/// The event loop's end of the queue.
#[derive(Debug)]
pub struct Reports {
    receiver: Receiver<Report>,
    bell: Arc<EventFd>,
}

/// Both ends of a new queue.
///
/// # Errors
/// The system's, when it has no descriptor to give.
pub fn queue() -> Result<(Reporter, Reports), nix::Error> {
    let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
    let bell = Arc::new(bell);
    let (sender, receiver) = mpsc::channel();
    let reporter = Reporter {
        sender,
        bell: Arc::clone(&bell),
    };
    Ok((reporter, Reports { receiver, bell }))
}

impl Reporter {
    /// Queues reports and rings once. Takes no lock that the event loop could hold.
    pub fn send(&self, reports: Vec<Report>) {
        if reports.is_empty() {
            return;
        }
        for report in reports {
            // Without a receiver the broker leaves.
            let _ = self.sender.send(report);
        }
        let _ = self.bell.write(1);
    }
}

impl Reports {
    /// Readable when [`Reports::take`] has something to give.
    #[must_use]
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// What was reported since, in order; of several views the newest alone.
    #[must_use]
    pub fn take(&self) -> Vec<Report> {
        // First the bell: what is queued after this rings again.
        let _ = self.bell.read();
        let mut reports: Vec<Report> = self.receiver.try_iter().collect();
        let is_view = |report: &Report| matches!(report, Report::Views(_));
        let newest = reports.iter().rposition(is_view);
        let mut place = 0;
        reports.retain(|report| {
            place += 1;
            !is_view(report) || Some(place - 1) == newest
        });
        reports
    }
}
