// SPDX-License-Identifier: Apache-2.0
//! Jobs of `run --lazy`: all requests of a user with one token are one job, whichever of its processes asks first.

use crate::host::{Host, mem, uuid};
use partage_policy::{Event, Membership, Ticket};
use partage_protocol::admin::{ErrorCode, Reply, RunRequest};
use partage_protocol::units::{GIB, SECOND_NS};

fn lazy(amount: &str, digit: &str) -> RunRequest {
    RunRequest {
        token: Some(digit.repeat(64)),
        name: Some("late".into()),
        ..mem(amount)
    }
}

fn token_of(host: &Host, ticket: Ticket) -> String {
    match host.replies[&ticket].last() {
        Some(Reply::Admitted(admitted)) => admitted.token.clone(),
        other => panic!("not admitted: {other:?}"),
    }
}

#[test]
fn requests_with_one_token_are_one_job() {
    let mut host = Host::new(&[16]);
    let (first, _) = host.run(1, lazy("6GiB", "a"));
    let (second, process) = host.run(1, lazy("6GiB", "a"));
    let job = host.job_of(first).expect("admitted");
    assert_eq!(host.job_of(second), Some(job), "and its name is not taken by itself");
    assert_eq!(token_of(&host, first), "a".repeat(64));
    assert_eq!(token_of(&host, second), "a".repeat(64));
    // By the token, although a parent of it belongs to a default job.
    let stray = host
        .attach_as(partage_policy::Process { pid: 77, start: 7 }, 1, Membership::default())
        .expect("welcomed");
    let default = host.programs[&stray].job;
    assert_ne!(default, job);
    let membership = Membership {
        by_kernel: Some(default),
        token: Some([0xaa; 32]),
        ..Membership::default()
    };
    let client = host.attach_as(process, 1, membership).expect("welcomed");
    assert_eq!(host.programs[&client].job, job);
    // Another user's same token is another job, and needs a room of its own.
    let (other, _) = host.run(2, lazy("6GiB", "a"));
    assert!(host.job_of(other).is_some_and(|other| other != job));
    let (third, _) = host.run(2, lazy("6GiB", "b"));
    assert_eq!(
        host.error_of(third).code,
        ErrorCode::Invalid,
        "the name is another job's of that user"
    );
}

/// What NVML would show a program of such a request now: each device's index and limit.
fn foreseen(host: &mut Host, amount: &str, digit: &str) -> Vec<(u32, u64)> {
    let request = RunRequest {
        dry_run: true,
        name: None,
        ..lazy(amount, digit)
    };
    let (ticket, _) = host.run(1, request);
    match host.replies[&ticket].last() {
        Some(Reply::Foreseen { devices }) => {
            let shown = devices
                .iter()
                .map(|device| (device.index.expect("known"), device.limit_bytes));
            shown.collect()
        }
        other => panic!("not foreseen: {other:?}"),
    }
}

#[test]
fn a_look_promises_nothing_and_shows_what_the_job_would_have() {
    let mut host = Host::new(&[16, 16]);
    host.admitted(1, mem("8GiB"));
    assert_eq!(foreseen(&mut host, "6GiB", "a"), [(1, 6 * GIB)]);
    assert_eq!(foreseen(&mut host, "50%", "a").len(), 1);
    assert_eq!(host.policy.live_jobs(), 1, "nothing is promised");
    let (first, _) = host.run(1, lazy("6GiB", "a"));
    assert!(host.job_of(first).is_some());
    // What the job has, whatever else would be free now.
    host.admitted(1, mem("9GiB"));
    assert_eq!(foreseen(&mut host, "6GiB", "a"), [(1, 6 * GIB)]);
    // Where it would wait, a device that it could have.
    let shown = foreseen(&mut host, "15GiB", "b");
    assert_eq!(shown.len(), 1);
    assert_eq!(shown[0].1, 15 * GIB);
    let (refused, _) = host.run(
        1,
        RunRequest {
            dry_run: true,
            name: None,
            ..lazy("40GiB", "c")
        },
    );
    assert!(matches!(host.replies[&refused].last(), Some(Reply::Error(_))));
}

#[test]
fn who_waits_joins_the_job_that_another_process_began() {
    let mut host = Host::new(&[16]);
    let (holder, process) = host.admitted(1, mem("12GiB"));
    let (first, _) = host.run(1, lazy("10GiB", "a"));
    let (second, _) = host.run(1, lazy("10GiB", "a"));
    assert!(host.is_waiting(first) && host.is_waiting(second));
    host.finish(holder, process);
    let job = host.job_of(first).expect("admitted");
    assert_eq!(host.job_of(second), Some(job), "there is room for one of 10 GiB only");
    assert_eq!(host.policy.live_jobs(), 1);
}

#[test]
fn a_job_that_lingers_lives_on_for_who_joins() {
    let mut host = Host::new(&[16]);
    let (first, process) = host.run(1, lazy("10GiB", "a"));
    let job = host.job_of(first).expect("admitted");
    host.step(Event::ProcessGone(process));
    host.pass(4 * SECOND_NS);
    let (second, process) = host.run(1, lazy("10GiB", "a"));
    assert_eq!(host.job_of(second), Some(job));
    host.pass(4 * SECOND_NS);
    let membership = Membership {
        token: Some([0xaa; 32]),
        ..Membership::default()
    };
    let client = host.attach_as(process, 1, membership).expect("welcomed");
    assert_eq!(host.programs[&client].job, job);
    host.kill(client);
    host.pass(6 * SECOND_NS);
    assert_eq!(host.state_of(job), "ended");
    // Its next process is a job again.
    let (third, _) = host.run(1, lazy("10GiB", "a"));
    assert!(host.job_of(third).is_some_and(|third| third != job));
}

#[test]
fn what_is_no_token_is_refused() {
    let mut host = Host::new(&[16]);
    for token in [String::new(), "a".repeat(63), "g".repeat(64), "0".repeat(64)] {
        let request = RunRequest {
            token: Some(token.clone()),
            ..mem("1GiB")
        };
        let (ticket, _) = host.run(1, request);
        assert_eq!(host.error_of(ticket).code, ErrorCode::Invalid, "{token:?}");
    }
}

#[test]
fn processes_without_partage_are_counted_when_they_are_gone() {
    let mut host = Host::new(&[16]);
    host.is_excused = true;
    let (job, process) = host.admitted(1, mem("1GiB"));
    for pid in 500..503 {
        host.strangers.insert(pid, (uuid(1), GIB, Some(job)));
        host.measure();
        host.measure();
        host.strangers.clear();
        host.measure();
    }
    let view = host
        .policy
        .job_view(job, &crate::host::caller(1), &host.board)
        .expect("shown");
    assert_eq!(view.unlimited, 3);
    let note = "3 processes of it used a GPU without Partage: no limit held for them";
    assert!(view.notes.iter().any(|said| said == note), "{:?}", view.notes);
    host.finish(job, process);
    let ended = host.commands.iter().find_map(|command| match command {
        partage_policy::Action::RememberJob(ended) => Some(ended.strangers_seen),
        _ => None,
    });
    assert_eq!(ended, Some(3), "the next broker knows");
}
