// SPDX-License-Identifier: Apache-2.0
//! Clients: which job a process belongs to, asks, deaths, exec, and the broker's restart.

use crate::host::{Host, caller, mem, uuid};
use partage_policy::{Action, Event, Membership, Process};
use partage_protocol::admin::{JobView, Reply, RunRequest};
use partage_protocol::units::{GIB, JobId, SECOND_NS};

fn token_of(host: &Host, job: JobId) -> [u8; 32] {
    host.records()
        .into_iter()
        .find(|record| record.id == job.0)
        .expect("recorded")
        .token
}

fn by_token(token: [u8; 32]) -> Membership {
    Membership {
        token: Some(token),
        scope: "session-1".into(),
        ..Membership::default()
    }
}

#[test]
fn a_token_counts_for_its_own_user() {
    let mut host = Host::new(&[16]);
    let (job, _) = host.admitted(1, mem("8GiB"));
    let token = token_of(&host, job);
    let own = host
        .attach_as(Process { pid: 10, start: 1 }, 1, by_token(token))
        .expect("welcomed");
    assert_eq!(host.programs[&own].job, job);
    let other = host
        .attach_as(Process { pid: 11, start: 1 }, 2, by_token(token))
        .expect("welcomed");
    assert_ne!(
        host.programs[&other].job, job,
        "another user's process gets its own default job"
    );
    let none = host
        .attach_as(Process { pid: 12, start: 1 }, 1, by_token([0; 32]))
        .expect("welcomed");
    assert_ne!(host.programs[&none].job, job);
    let same = host
        .attach_as(Process { pid: 13, start: 1 }, 1, by_token([0; 32]))
        .expect("welcomed");
    assert_eq!(
        host.programs[&same].job, host.programs[&none].job,
        "one default job per user and scope"
    );
    let lower = Membership {
        environment_limit: 2 * GIB,
        ..by_token([0; 32])
    };
    let lower = host
        .attach_as(Process { pid: 14, start: 1 }, 1, lower)
        .expect("welcomed");
    assert_ne!(
        host.programs[&lower].job, host.programs[&none].job,
        "its environment lowers its limit"
    );
    assert!(host.allocate(lower, 0, 2 * GIB) && !host.allocate(lower, 0, 1));
}

#[test]
fn a_default_job_ends_with_its_last_process() {
    let mut host = Host::new(&[16, 16]);
    let client = host
        .attach_as(Process { pid: 10, start: 1 }, 1, by_token([0; 32]))
        .expect("welcomed");
    let job = host.programs[&client].job;
    assert_eq!(host.programs[&client].devices, [uuid(1), uuid(2)]);
    assert!(
        host.allocate(client, 1, 16 * GIB),
        "no promise anywhere: the whole card"
    );
    host.kill(client);
    host.pass(5 * SECOND_NS);
    assert_eq!(host.state_of(job), "ended");
}

#[test]
fn processes_of_one_job_share_its_limit() {
    let mut host = Host::new(&[16]);
    let (job, process) = host.admitted(1, mem("10GiB"));
    let first = host.attach(job, process);
    let second = host.attach(job, Process { pid: 11, start: 1 });
    let third = host.attach(job, Process { pid: 12, start: 1 });
    assert!(host.allocate(first, 0, 6 * GIB));
    assert!(!host.allocate(second, 0, 6 * GIB));
    assert!(host.allocate(third, 0, 4 * GIB));
    host.kill(first);
    assert!(host.allocate(second, 0, 6 * GIB), "a death gives back at once");
    for size in [1, u64::MAX, 1 << 63] {
        assert!(!host.allocate(second, 0, size));
    }
    host.free(third, 0, 4 * GIB);
    assert!(!host.allocate(third, 0, 4 * GIB + 1) && host.allocate(third, 0, 4 * GIB));
}

#[test]
fn a_process_that_changed_its_image_holds_nothing_of_the_old_one() {
    let mut host = Host::new(&[16]);
    let (job, process) = host.admitted(1, mem("10GiB"));
    let before = host.attach(job, process);
    assert!(host.allocate(before, 0, 10 * GIB));
    let after = host.attach(job, process);
    assert!(!host.programs.contains_key(&before));
    assert!(host.allocate(after, 0, 10 * GIB));
}

#[test]
fn a_new_broker_adopts_jobs_and_admits_nothing_until_all_are_back() {
    let mut host = Host::new(&[16, 16]);
    let pinned = RunRequest {
        gpu: Some("0".into()),
        ..mem("10GiB")
    };
    let (job, process) = host.admitted(1, pinned);
    let client = host.attach(job, process);
    assert!(host.allocate(client, 0, 7 * GIB));
    let records = host.records();
    host.restart(records);
    assert_eq!(host.state_of(job), "running");
    host.measure();
    let (on_its_device, _) = host.run(
        2,
        RunRequest {
            gpu: Some("0".into()),
            ..mem("1GiB")
        },
    );
    assert!(host.is_waiting(on_its_device));
    let (elsewhere, _) = host.run(2, mem("1GiB"));
    assert_eq!(host.devices_of(elsewhere), [1]);
    host.board.lost.clear();
    host.step(Event::Reattach {
        client,
        process,
        are_pages_lost: false,
    });
    assert!(host.job_of(on_its_device).is_some(), "the last one came back");
    // Its grant, of which alone the ledger told meanwhile, was never in use.
    let view = all_jobs(&host).into_iter().find(|view| view.job == job.to_string());
    assert_eq!(view.map(|view| view.devices[0].peak_bytes), Some(7 * GIB));
    assert!(host.allocate(client, 0, 3 * GIB) && !host.allocate(client, 0, 1));
    let (next, _) = host.admitted(1, mem("1GiB"));
    assert!(next.0 > 50, "numbers are never used twice");
}

#[test]
fn who_does_not_come_back_is_counted_as_it_stands() {
    let mut host = Host::new(&[16]);
    let (job, process) = host.admitted(
        1,
        RunRequest {
            mem_request: Some("1GiB".into()),
            ..mem("16GiB")
        },
    );
    let client = host.attach(job, process);
    assert!(host.allocate(client, 0, 12 * GIB));
    let records = host.records();
    host.restart(records);
    host.measure();
    let (ticket, _) = host.run(2, mem("4GiB"));
    assert!(host.is_waiting(ticket));
    host.pass(partage_policy::ADOPTION_NS);
    assert!(
        host.is_waiting(ticket),
        "its ledger says 16 GiB, and nobody can lower it"
    );
    host.step(Event::ClientGone(client));
    assert!(host.job_of(ticket).is_some());
}

/// Jobs that a caller of `ps --all` sees.
fn all_jobs(host: &Host) -> Vec<JobView> {
    let Reply::Ps { jobs, .. } = host.policy.ps(&caller(0), true, &host.board) else {
        panic!("ps")
    };
    jobs
}

/// A job whose only process exited with code 7 a moment ago, and what was said of its end.
fn lingering() -> (Host, JobId, Vec<JobView>) {
    let mut host = Host::new(&[16]);
    host.policy.set_clock(host.now_ns, 5_000 * SECOND_NS);
    let (job, process) = host.admitted(1, mem("10GiB"));
    let client = host.attach(job, process);
    assert!(host.allocate(client, 0, 6 * GIB) && !host.allocate(client, 0, 5 * GIB));
    host.step(Event::Exited { process, code: 7 });
    host.kill(client);
    host.step(Event::ProcessGone(process));
    let seen = all_jobs(&host);
    assert_eq!((seen[0].state.as_str(), seen[0].exit_code), ("ended", Some(7)));
    (host, job, seen)
}

/// A process's descriptors are closed before the kernel tells its exit code.
#[test]
fn a_code_that_comes_after_the_end_is_remembered() {
    let mut host = Host::new(&[16]);
    let (job, process) = host.admitted(1, mem("10GiB"));
    let client = host.attach(job, process);
    host.kill(client);
    host.step(Event::ProcessGone(process));
    let code = |host: &Host| {
        let mut remembered = host.commands.iter().filter_map(|command| match command {
            Action::RememberJob(ended) => Some(ended.exit_code),
            _ => None,
        });
        remembered.next_back()
    };
    assert_eq!(code(&host), Some(None));
    host.step(Event::Exited { process, code: 7 });
    assert_eq!(code(&host), Some(Some(7)));
}

#[test]
fn a_job_that_lingers_ended_as_it_did_for_the_next_broker_too() {
    let (mut host, job, seen) = lingering();
    let records = host.records();
    assert_eq!(records.len(), 1, "a late child may come");
    host.restart(records);
    let is_end = |command: &Action| matches!(command, Action::Publish { kind: "job-ended", .. });
    for wait in [0, 6 * SECOND_NS] {
        host.pass(wait);
        let now = all_jobs(&host);
        assert_eq!(now.len(), 1, "{now:#?}");
        let told = |view: &JobView| {
            let peak = view.devices[0].peak_bytes;
            (view.state.clone(), view.exit_code, view.ended_ns, view.denied, peak)
        };
        assert_eq!(told(&now[0]), told(&seen[0]), "after {wait} ns");
        assert_eq!(host.commands.iter().filter(|command| is_end(command)).count(), 1);
    }
    assert!(host.records().is_empty(), "it lingered on, and no longer than usual");
    assert_eq!(host.ended().len(), 1);
    assert_eq!((host.ended()[0].job.id, host.ended()[0].exit_code), (job.0, Some(7)));
}

#[test]
fn a_job_that_went_on_lives_for_the_next_broker_and_is_listed_once() {
    let (mut host, job, _) = lingering();
    let late = Process { pid: 11, start: 1 };
    let client = host.attach(job, late);
    let records = host.records();
    host.restart(records);
    let now = all_jobs(&host);
    assert_eq!(
        (now.len(), now[0].state.as_str(), now[0].ended_ns),
        (1, "running", None)
    );
    host.kill(client);
    host.pass(6 * SECOND_NS);
    let now = all_jobs(&host);
    assert_eq!(
        (now.len(), now[0].state.as_str(), now[0].exit_code),
        (1, "ended", Some(7))
    );
    assert!(host.records().is_empty());
}

#[test]
fn lost_pages_keep_the_grant_and_cannot_grow() {
    let mut host = Host::new(&[16]);
    let (job, process) = host.admitted(1, mem("10GiB"));
    let client = host.attach(job, process);
    let sibling = host.attach(job, Process { pid: 11, start: 1 });
    assert!(host.allocate(client, 0, 6 * GIB));
    let granted = host.board.value(client, 0, 0);
    let records = host.records();
    host.restart(records);
    host.board.lost = vec![client];
    host.step(Event::Reattach {
        client,
        process,
        are_pages_lost: true,
    });
    host.step(Event::Reattach {
        client: sibling,
        process: Process { pid: 11, start: 1 },
        are_pages_lost: false,
    });
    assert!(!host.allocate(client, 0, 4 * GIB));
    assert!(
        !host.allocate(sibling, 0, 10 * GIB - granted + 1),
        "its grant is counted whole"
    );
    assert!(host.allocate(sibling, 0, 10 * GIB - granted));
    let view = host.policy.job_view(job, &caller(1), &host.board).expect("known");
    assert!(view.notes.iter().any(|note| note.contains("cannot grow")));
    let stranger = Event::Reattach {
        client,
        process: Process { pid: 99, start: 1 },
        are_pages_lost: false,
    };
    let refused = host.step(stranger);
    assert!(matches!(refused[0], Action::Refuse { .. }));
}
