// SPDX-License-Identifier: Apache-2.0
//! TARGETs: who is meant, who may look and change, and what others are shown.

use crate::host::{Host, broker_view, caller, mem};
use partage_policy::{Access, Event, TargetQuery};
use partage_protocol::admin::{ErrorCode, Reply, RunRequest};
use partage_protocol::units::JobId;

fn named(name: &str) -> RunRequest {
    RunRequest {
        name: Some(name.into()),
        ..mem("1GiB")
    }
}

fn query(text: &str) -> TargetQuery {
    TargetQuery {
        text: text.into(),
        descends_from: None,
    }
}

fn resolve(host: &Host, uid: u32, text: &str) -> Result<u64, ErrorCode> {
    let found = host.policy.resolve(&query(text), &caller(uid), Access::Change);
    found.map(|id| id.0).map_err(|why| why.view().code)
}

/// alice (1) has j1 `train` and j2; bob (2) has j3 `train`; j4 of carol (3) waits.
fn people() -> (Host, Vec<partage_policy::Process>) {
    let mut host = Host::new(&[4]);
    let first = [
        (1, named("train")),
        (1, mem("1GiB")),
        (2, named("train")),
        (3, mem("4GiB")),
    ];
    let processes = first
        .into_iter()
        .map(|(uid, request)| host.run(uid, request).1)
        .collect();
    (host, processes)
}

#[test]
fn a_users_target_matches_the_jobs_that_ps_lists() {
    let mut host = Host::new(&[16]);
    let first = host.admitted(1, mem("1GiB"));
    let second = host.admitted(1, mem("1GiB"));
    host.step(Event::ProcessGone(first.1));
    assert_eq!(
        host.state_of(first.0),
        "ended",
        "it lingers, and for its user it is over"
    );
    assert_eq!(resolve(&host, 1, "@alice"), Ok(second.0.0));
    host.step(Event::ProcessGone(second.1));
    assert_eq!(resolve(&host, 1, "@alice"), Err(ErrorCode::NoTarget));
}

#[test]
fn ids_pids_and_names() {
    let (mut host, processes) = people();
    assert_eq!(resolve(&host, 1, "j1"), Ok(1));
    assert_eq!(resolve(&host, 1, "train"), Ok(1), "one's own");
    assert_eq!(resolve(&host, 2, "train"), Ok(3));
    assert_eq!(resolve(&host, 1, "alice/train"), Ok(1));
    assert_eq!(resolve(&host, 1, "1/train"), Ok(1), "a uid stands for its user");
    assert_eq!(resolve(&host, 0, "bob/train"), Ok(3));
    assert_eq!(resolve(&host, 2, "@bob"), Ok(3));
    assert_eq!(resolve(&host, 1, &processes[1].pid.to_string()), Ok(2));
    let child = partage_policy::Process {
        pid: 4_000_000,
        start: 5,
    };
    host.attach(JobId(2), child);
    assert_eq!(resolve(&host, 1, "4000000"), Ok(2), "a client's pid");
    let by_ancestry = TargetQuery {
        text: "777".into(),
        descends_from: Some(JobId(2)),
    };
    assert_eq!(
        host.policy
            .resolve(&by_ancestry, &caller(1), Access::Look)
            .map(|id| id.0),
        Ok(2)
    );
}

#[test]
fn nothing_and_several() {
    let (host, _) = people();
    for text in [
        "j9",
        "jobs",
        "999999",
        "alice/other",
        "@nobody",
        "cgroup:/x",
        "container:abc",
        "slurm:12",
        "j",
    ] {
        assert_eq!(resolve(&host, 1, text), Err(ErrorCode::NoTarget), "{text}");
    }
    for text in ["42x", "Slurm:12", "99999999999"] {
        assert_eq!(resolve(&host, 1, text), Err(ErrorCode::Invalid), "{text}");
    }
    let several = host
        .policy
        .resolve(&query("@alice"), &caller(1), Access::Look)
        .expect_err("two jobs")
        .view();
    assert_eq!(several.code, ErrorCode::Ambiguous);
    assert!(
        several.message.contains("j1 (alice/train)") && several.message.contains("j2"),
        "{}",
        several.message
    );
    assert_eq!(
        resolve(&host, 0, "train"),
        Err(ErrorCode::Ambiguous),
        "an administrator without one of his own"
    );
}

#[test]
fn others_jobs_are_out_of_reach() {
    let (host, processes) = people();
    assert_eq!(resolve(&host, 1, "j3"), Err(ErrorCode::NotAllowed));
    assert_eq!(
        resolve(&host, 1, &processes[2].pid.to_string()),
        Err(ErrorCode::NotAllowed)
    );
    assert_eq!(
        resolve(&host, 1, "bob/train"),
        Err(ErrorCode::NoTarget),
        "names are seen by their owner only"
    );
    assert_eq!(resolve(&host, 3, "train"), Err(ErrorCode::NoTarget));
    assert_eq!(resolve(&host, 0, "j3"), Ok(3), "an administrator");
}

#[test]
fn others_see_that_a_job_is_there_and_no_more() {
    let (host, _) = people();
    let Reply::Ps { jobs, .. } = host.policy.ps(&caller(2), false, &host.board) else {
        panic!("ps")
    };
    let (own, other) = (&jobs[2], &jobs[0]);
    assert_eq!((own.name.as_deref(), own.command.len()), (Some("train"), 1));
    assert_eq!(
        (other.name.as_deref(), other.command.len(), other.labels.len()),
        (None, 0, 0)
    );
    assert_eq!(
        other.devices[0].request_bytes,
        1 << 30,
        "but what they hold is no secret"
    );
    let status = host.policy.status(broker_view(), host.now_ns, &host.board);
    assert_eq!((status.queue.len(), status.devices[0].jobs.len()), (1, 3));
    assert_eq!(status.queue[0].job, "j4");
}

#[test]
fn names_are_unique_among_live_jobs_of_a_user_and_ended_ones_answer_to_look() {
    let (mut host, processes) = people();
    let (ticket, _) = host.run(1, named("train"));
    assert_eq!(host.error_of(ticket).code, ErrorCode::Invalid);
    host.finish(JobId(1), processes[0]);
    assert_eq!(resolve(&host, 1, "train"), Err(ErrorCode::NoTarget));
    let look = |host: &Host| {
        host.policy
            .resolve(&query("train"), &caller(1), Access::Look)
            .map(|id| id.0)
    };
    assert_eq!(look(&host), Ok(1), "the one that ended");
    host.run(1, named("train"));
    assert_eq!(look(&host), Ok(5), "the one that lives");
    let Reply::Ps { jobs, .. } = host.policy.ps(&caller(1), true, &host.board) else {
        panic!("ps")
    };
    assert!(jobs.iter().any(|job| job.state == "ended"));
    host.pass(25 * 3_600 * partage_protocol::units::SECOND_NS);
    let Reply::Ps { jobs, .. } = host.policy.ps(&caller(1), true, &host.board) else {
        panic!("ps")
    };
    assert!(jobs.iter().all(|job| job.state != "ended"), "forgotten after a day");
}

#[test]
fn a_waiting_job_can_be_stopped_and_changed() {
    let (mut host, _) = people();
    assert!(matches!(host.set(3, "j4", "1GiB"), Reply::Job(_)));
    assert_eq!(host.state_of(JobId(4)), "running", "the smaller request fits");
    let (ticket, _) = host.run(3, mem("4GiB"));
    let stop = Event::Stop {
        ticket: partage_policy::Ticket(1),
        caller: caller(3),
        target: query("j5"),
        grace_ns: 0,
    };
    host.step(stop);
    assert!(host.error_of(ticket).message.contains("stopped"));
}
