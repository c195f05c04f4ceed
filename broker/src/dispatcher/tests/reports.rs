// SPDX-License-Identifier: Apache-2.0
//! What the event loop hears, and when.

use std::sync::atomic::Ordering;

use partage_policy::JobTime;
use partage_protocol::units::{ClientId, JobId};
use partage_scheduling::Terms;

use super::{Bench, DEVICE, MS, is_open, join, joined, show_busy, terms};
use crate::dispatcher::gates::Dispatcher;
use crate::dispatcher::message::Message;
use crate::dispatcher::report::{BETWEEN_VIEWS_NS, Outbox, Report, VIEWS_NS, queue};
use crate::dispatcher::thread::DispatcherThread;

const NOBODY: Vec<JobTime> = Vec::new();

/// One measured job.
fn one_job() -> Vec<JobTime> {
    let mut dispatcher = Dispatcher::new(Bench::default());
    for job in [1, 2] {
        terms(&mut dispatcher, 0, job, Terms::default());
    }
    let _pages = [join(&mut dispatcher, 0, 1, 1), join(&mut dispatcher, 0, 2, 2)];
    dispatcher.run_once(0);
    dispatcher.view(0).into_iter().take(1).collect()
}

#[test]
fn views_come_once_a_second_while_a_job_is_measured_and_once_when_none_is_any_more() {
    let mut outbox = Outbox::default();
    assert_eq!(outbox.due_ns(false), None, "nothing to say");
    assert_eq!(outbox.take(VIEWS_NS, true, one_job), [Report::Views(one_job())]);
    assert_eq!(outbox.due_ns(true), Some(2 * VIEWS_NS));
    assert_eq!(outbox.take(2 * VIEWS_NS - 1, true, one_job), []);
    // The figures are the same: what NVML shows beside them may not be.
    assert_eq!(outbox.take(2 * VIEWS_NS, true, one_job), [Report::Views(one_job())]);
    assert_eq!(outbox.take(3 * VIEWS_NS, false, || NOBODY), [Report::Views(NOBODY)]);
    assert_eq!(outbox.due_ns(false), None);
    assert_eq!(outbox.take(9 * VIEWS_NS, false, || NOBODY), []);
}

#[test]
fn news_are_reported_at_once_and_together_where_there_are_many() {
    let mut outbox = Outbox::default();
    let now = 10 * VIEWS_NS;
    outbox.note_news();
    assert_eq!(outbox.take(now, true, one_job).len(), 1);
    outbox.note_news();
    assert_eq!(outbox.due_ns(true), Some(now + BETWEEN_VIEWS_NS));
    let drained = Report::Drained {
        client: ClientId(1),
        device: DEVICE,
    };
    outbox.push(drained.clone());
    assert_eq!(outbox.take(now + 1, true, one_job), [drained], "the views wait");
    assert_eq!(
        outbox.take(now + BETWEEN_VIEWS_NS, true, one_job),
        [Report::Views(one_job())]
    );
    assert_eq!(outbox.due_ns(true), Some(now + BETWEEN_VIEWS_NS + VIEWS_NS));
}

#[test]
fn the_loop_takes_every_report_and_of_several_views_the_newest() {
    let (reporter, reports) = queue().expect("a descriptor");
    let drained = Report::Drained {
        client: ClientId(1),
        device: DEVICE,
    };
    reporter.send(vec![Report::Views(one_job()), drained.clone()]);
    reporter.send(vec![Report::Views(NOBODY)]);
    reporter.send(Vec::new());
    let is_rung = || {
        let mut polled = [nix::poll::PollFd::new(reports.bell(), nix::poll::PollFlags::POLLIN)];
        nix::poll::poll(&mut polled, 0u16) == Ok(1)
    };
    assert!(is_rung());
    assert_eq!(reports.take(), [drained, Report::Views(NOBODY)]);
    assert!(!is_rung());
    assert_eq!(reports.take(), []);
    reporter.send(vec![Report::Views(NOBODY)]);
    assert!(is_rung());
}

#[test]
fn a_client_that_does_not_drain_is_reported_and_reported_again_when_it_drains() {
    let mut dispatcher = Dispatcher::new(Bench::default());
    for job in [1, 2] {
        terms(&mut dispatcher, 0, job, Terms::default());
    }
    let pages = [join(&mut dispatcher, 0, 1, 1), join(&mut dispatcher, 0, 2, 2)];
    let mut heard = Vec::new();
    let mut views = 0;
    // From 200 ms on the first one's work does not end, whatever its gate says, for so long.
    let hang = 200 * MS..1_500 * MS;
    for now in (0..4_000 * MS).step_by(MS as usize / 20) {
        for (index, pages) in pages.iter().enumerate() {
            let is_hung = index == 0 && hang.contains(&now);
            let waiting = u32::from(!is_open(pages) && !is_hung);
            pages.time().devices[0].waiting.store(waiting, Ordering::SeqCst);
            if is_hung {
                show_busy(pages, true);
            } else {
                show_busy(pages, false);
                show_busy(pages, is_open(pages));
            }
        }
        dispatcher.run_once(now);
        for report in dispatcher.take_reports(now) {
            match report {
                Report::NotDraining { client, device, .. } => heard.push((client, device, false)),
                Report::Drained { client, device } => heard.push((client, device, true)),
                Report::Views(jobs) => {
                    views += 1;
                    let has_stuck = jobs.iter().any(|job| job.job == JobId(1) && job.is_not_draining);
                    let is_stuck = heard.last().is_some_and(|(_, _, is_drained)| !is_drained);
                    assert_eq!(has_stuck, is_stuck, "views at {now} say what was reported");
                }
            }
        }
    }
    let first = ClientId(1);
    assert_eq!(heard.first(), Some(&(first, DEVICE, false)));
    assert_eq!(heard.last(), Some(&(first, DEVICE, true)));
    assert!((5..=8).contains(&views), "{views} views in four seconds");
    dispatcher.take(4_000 * MS, Message::JobGone(JobId(2)));
    dispatcher.run_once(4_000 * MS);
    assert_eq!(dispatcher.take_reports(5_000 * MS), [Report::Views(NOBODY)]);
}

#[test]
fn the_thread_rings_when_jobs_are_measured_and_when_they_are_gone() {
    let dispatcher = DispatcherThread::start().expect("a thread");
    let jobs_seen = |wanted: usize| {
        for _ in 0..100 {
            let mut polled = [nix::poll::PollFd::new(
                dispatcher.descriptor(),
                nix::poll::PollFlags::POLLIN,
            )];
            assert_eq!(nix::poll::poll(&mut polled, 10_000u16), Ok(1), "{wanted} jobs");
            let is_wanted = |report: &Report| matches!(report, Report::Views(jobs) if jobs.len() == wanted);
            if dispatcher.reports().iter().any(is_wanted) {
                return;
            }
        }
        panic!("{wanted} jobs were never reported");
    };
    let pages = [1, 2].map(|id| {
        let (job, devices, terms) = (JobId(id), vec![DEVICE], Terms::default());
        dispatcher.tell(Message::Terms { job, devices, terms });
        let (pages, joined) = joined(id, id);
        dispatcher.tell(joined);
        pages
    });
    jobs_seen(2);
    for id in [1, 2] {
        dispatcher.tell(Message::JobGone(JobId(id)));
    }
    jobs_seen(0);
    drop(dispatcher);
    assert!(
        pages.iter().all(|pages| is_open(pages)),
        "every gate is open at the end"
    );
}
