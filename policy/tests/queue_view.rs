// SPDX-License-Identifier: Apache-2.0
//! `partage queue`: places, reasons, and guesses of the wait.

use std::collections::BTreeSet;

use partage_policy::{Event, Mark, Residence, TargetQuery, Ticket};
use partage_protocol::admin::{PlaceView, RunRequest};
use partage_protocol::units::{GIB, JobId, SECOND_NS};

use crate::host::{Host, caller, mem};

const MINUTE: u64 = 60 * SECOND_NS;

fn limited(amount: &str, minutes: u64) -> RunRequest {
    RunRequest {
        time_limit_ns: Some(minutes * MINUTE),
        ..mem(amount)
    }
}

fn places(host: &Host) -> Vec<PlaceView> {
    host.policy.queue_view(&caller(0), host.now_ns, &host.board).jobs
}

/// The guesses in whole minutes.
fn guesses(host: &Host) -> Vec<Option<u64>> {
    let minutes = |view: PlaceView| view.expected_wait_ns.map(|ns| ns / MINUTE);
    places(host).into_iter().map(minutes).collect()
}

#[test]
fn a_time_limit_says_when_there_is_room_at_the_latest() {
    let mut host = Host::new(&[8]);
    host.admitted(1, limited("6GiB", 60));
    host.admitted(1, limited("2GiB", 90));
    host.pass(10 * MINUTE);
    host.run(2, mem("4GiB"));
    host.run(1, mem("2GiB"));
    host.run(2, mem("8GiB"));
    let views = places(&host);
    let shown = |view: &PlaceView| (view.place, view.user.clone(), view.mem.clone(), view.comes_back);
    let expected = [(1, "bob", "4GiB"), (2, "alice", "2GiB"), (3, "bob", "8GiB")];
    let expected = expected.map(|(place, user, mem)| (place, user.to_owned(), Some(mem.to_owned()), false));
    assert_eq!(views.iter().map(shown).collect::<Vec<_>>(), expected);
    assert!(views[0].reason.contains("GPU 0 has"), "{}", views[0].reason);
    assert_eq!((views[0].priority.as_str(), views[0].user_gpu_ns), ("normal", None));
    // The second has room beside the first once the first limit is over; when those two end nobody knows.
    assert_eq!(guesses(&host), [Some(50), Some(50), None]);
    host.pass(20 * MINUTE);
    assert_eq!(guesses(&host), [Some(30), Some(30), None]);
    assert_eq!(places(&host)[0].waited_ns, 20 * MINUTE);
}

#[test]
fn jobs_like_it_that_ended_say_how_long_a_job_runs() {
    let mut host = Host::new(&[8]);
    let train = || RunRequest {
        name: Some("train".into()),
        ..mem("8GiB")
    };
    for minutes in [30, 10, 20] {
        let (job, process) = host.admitted(1, train());
        host.pass(minutes * MINUTE);
        host.finish(job, process);
    }
    let (job, process) = host.admitted(1, train());
    host.pass(SECOND_NS);
    host.run(2, mem("8GiB"));
    assert_eq!(guesses(&host), [Some(19)], "the median less what it ran");
    host.pass(25 * MINUTE);
    assert_eq!(guesses(&host), [Some(4)], "longer than two of them");
    host.pass(10 * MINUTE);
    assert_eq!(guesses(&host), [None], "longer than any");
    host.finish(job, process);
    // Another user's job of that name is not like it.
    host.run(2, train());
    assert_eq!(guesses(&host), [None]);
}

#[test]
fn nothing_is_guessed_of_who_is_stopped() {
    let mut host = Host::new(&[8]);
    host.admitted(1, limited("8GiB", 60));
    host.run(2, mem("8GiB"));
    let waiting: BTreeSet<JobId> = host.policy.queue().collect();
    assert_eq!(guesses(&host).len(), 1);
    assert!(guesses(&host)[0].is_some());
    host.step(Event::Stopped(waiting));
    host.pass(SECOND_NS);
    assert_eq!(guesses(&host), [None]);
}

#[test]
fn a_suspended_job_that_comes_back_has_its_place() {
    let mut host = Host::new(&[8]);
    let (job, process) = host.admitted(1, mem("8GiB"));
    let client = host.attach(job, process);
    assert!(host.allocate(client, 0, GIB));
    for residence in [Residence::Leaving, Residence::Away] {
        if residence == Residence::Away {
            let processes = host.policy.processes(job);
            host.policy.ledger_leave(job, &processes, &host.board, host.now_ns);
        }
        let mark = Box::new(Mark {
            residence,
            ..Mark::default()
        });
        host.step(Event::Residence { job, mark });
    }
    host.admitted(2, limited("8GiB", 60));
    let ticket = Ticket(host.fresh());
    host.step(Event::Resume {
        ticket,
        caller: caller(1),
        target: TargetQuery {
            text: job.to_string(),
            descends_from: None,
        },
        is_patient: true,
        timeout_ns: None,
    });
    host.run(2, mem("4GiB"));
    let views = places(&host);
    let shown = |view: &PlaceView| (view.job.clone(), view.comes_back, view.expected_wait_ns.is_some());
    assert_eq!(shown(&views[0]), (job.to_string(), true, false));
    assert!(views[0].reason.contains("GPU 0"), "{}", views[0].reason);
    // Why it cannot may be about a process of it: that is its owner's to know.
    for (uid, is_told) in [(1, true), (2, false)] {
        let view = host.policy.queue_view(&caller(uid), host.now_ns, &host.board);
        assert_eq!(view.jobs[0].reason == views[0].reason, is_told);
        assert!(!view.jobs[0].reason.is_empty());
    }
    assert_eq!((views[1].place, views[1].comes_back), (2, false));
}
