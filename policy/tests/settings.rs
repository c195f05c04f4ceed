// SPDX-License-Identifier: Apache-2.0
//! `partage set` and `--mem-request`: limits without promises, no limit, time limits and names, of jobs that run and
//! wait.

use crate::host::{Host, broker_view, caller, mem};
use partage_policy::{Action, Change, Event, TargetQuery, Ticket};
use partage_protocol::admin::{ErrorCode, ErrorView, JobView, Reply, RunRequest, TermsChange};
use partage_protocol::units::{GIB, JobId, SECOND_NS};

fn view(host: &Host, job: JobId) -> JobView {
    host.policy.job_view(job, &caller(0), &host.board).expect("known")
}

fn memory(host: &Host, job: JobId) -> (Option<u64>, u64) {
    let device = &view(host, job).devices[0];
    (device.limit_bytes, device.request_bytes)
}

fn promised(text: &str, request: &str) -> RunRequest {
    RunRequest {
        mem_request: Some(request.into()),
        wait: true,
        ..mem(text)
    }
}

fn set(host: &mut Host, uid: u32, job: JobId, change: Change) -> Result<JobView, ErrorView> {
    let ticket = Ticket(host.fresh());
    let target = TargetQuery {
        text: job.to_string(),
        descends_from: None,
    };
    let event = Event::Set {
        ticket,
        caller: caller(uid),
        target,
        change: Box::new(change),
    };
    host.step(event);
    match host.replies[&ticket].last().cloned().expect("answered") {
        Reply::Job(view) => Ok(view),
        Reply::Error(error) => Err(error),
        other => panic!("{other:?}"),
    }
}

fn set_mem(host: &mut Host, job: JobId, text: &str) {
    let change = Change {
        mem: Some(text.into()),
        ..Change::default()
    };
    set(host, 1, job, change).expect("set");
}

fn named(name: &str) -> Change {
    Change {
        name: Some(name.into()),
        ..Change::default()
    }
}

fn time_limit(text: &str) -> Change {
    Change {
        terms: TermsChange {
            time_limit: Some(text.into()),
            ..TermsChange::default()
        },
        ..Change::default()
    }
}

#[test]
fn a_limit_without_a_promise_takes_no_room_from_anybody() {
    let mut host = Host::new(&[8]);
    for request in ["none", "0"] {
        for _ in 0..3 {
            let (job, _) = host.admitted(1, promised("8GiB", request));
            assert_eq!(memory(&host, job), (Some(8 * GIB), 0), "{request}");
        }
    }
    host.admitted(2, mem("8GiB"));
    // Zero with a unit, or of a limit, is a slip.
    for wrong in ["0GiB", "0%", "-1"] {
        let (ticket, _) = host.run(1, promised("8GiB", wrong));
        assert_eq!(host.error_of(ticket).code, ErrorCode::Invalid, "{wrong}");
    }
    let (ticket, _) = host.run(1, mem("0"));
    assert_eq!(host.error_of(ticket).code, ErrorCode::Invalid);
}

#[test]
fn a_limit_alone_never_makes_a_promise_that_was_not_there() {
    let mut host = Host::new(&[16]);
    for request in [mem(""), promised("8GiB", "none")] {
        let (job, _) = host.admitted(1, request);
        for gib in [4, 12, 16] {
            set_mem(&mut host, job, &format!("{gib}GiB"));
            assert_eq!(memory(&host, job), (Some(gib * GIB), 0));
        }
        set_mem(&mut host, job, "none");
        assert_eq!(memory(&host, job), (None, 0));
    }
    // One that equals the limit follows it, and stays when that is taken away.
    let (job, _) = host.admitted(1, mem("4GiB"));
    set_mem(&mut host, job, "6GiB");
    assert_eq!(memory(&host, job), (Some(6 * GIB), 6 * GIB));
    set_mem(&mut host, job, "none");
    assert_eq!(memory(&host, job), (None, 6 * GIB));
    let device = view(&host, job).devices[0].clone();
    assert_eq!(device.limit_from, "partage set mem=none by alice");
    assert_eq!(device.request_from, "partage set mem=6GiB by alice");
    set_mem(&mut host, job, "8GiB");
    assert_eq!(memory(&host, job), (Some(8 * GIB), 6 * GIB));
    let none = Change {
        mem_request: Some("none".into()),
        ..Change::default()
    };
    set(&mut host, 1, job, none).expect("set");
    assert_eq!(memory(&host, job), (Some(8 * GIB), 0));
}

#[test]
fn the_same_holds_for_a_request_that_waits() {
    for (request, text, expected) in [
        (mem(""), "4GiB", (Some(4 * GIB), 0)),
        (promised("8GiB", "none"), "4GiB", (Some(4 * GIB), 0)),
        (mem("8GiB"), "4GiB", (Some(4 * GIB), 4 * GIB)),
        (mem("8GiB"), "none", (None, 8 * GIB)),
    ] {
        let mut host = Host::new(&[16]);
        let first = RunRequest {
            compute: Some("60%".into()),
            ..mem("")
        };
        let (holder, process) = host.admitted(2, first.clone());
        let request = RunRequest {
            compute: first.compute,
            wait: true,
            ..request
        };
        let (ticket, _) = host.run(1, request);
        assert!(host.is_waiting(ticket));
        let job = JobId(holder.0 + 1);
        set_mem(&mut host, job, text);
        host.finish(holder, process);
        assert_eq!(host.job_of(ticket), Some(job));
        assert_eq!(memory(&host, job), expected, "{text}");
    }
}

#[test]
fn a_time_limit_comes_goes_and_counts_from_the_admission() {
    let mut host = Host::new(&[16]);
    let (job, _) = host.admitted(1, mem(""));
    host.pass(100 * SECOND_NS);
    for over in ["90s", "100s"] {
        let error = set(&mut host, 1, job, time_limit(over)).expect_err("over already");
        assert!(error.message.contains("has run for 100s already"), "{error:?}");
        assert_eq!(error.hint.as_deref(), Some("to end it: partage stop j1"));
    }
    let shown = set(&mut host, 1, job, time_limit("150s")).expect("set");
    assert_eq!(shown.terms.time_limit_ns, Some(150 * SECOND_NS));
    assert_eq!(shown.terms.ends_ns, Some(shown.started_ns + 150 * SECOND_NS));
    let is_over = |host: &Host| {
        let over = |command: &Action| matches!(command, Action::SignalJob { .. });
        host.commands.iter().any(over)
    };
    set(&mut host, 1, job, time_limit("none")).expect("set");
    host.pass(60 * SECOND_NS);
    assert!(!is_over(&host) && view(&host, job).terms.time_limit_ns.is_none());
    set(&mut host, 1, job, time_limit("200s")).expect("set");
    host.pass(39 * SECOND_NS);
    assert!(!is_over(&host));
    host.pass(2 * SECOND_NS);
    assert!(is_over(&host));
    assert!(
        view(&host, job)
            .notes
            .join("\n")
            .contains("its time limit of 3m20s is over")
    );
    for wrong in ["0s", "90", "soon"] {
        assert!(set(&mut host, 1, job, time_limit(wrong)).is_err(), "{wrong}");
    }
}

#[test]
fn a_job_gets_a_name_that_nobody_else_of_its_user_has() {
    let mut host = Host::new(&[16]);
    let [one, two] = [1, 1].map(|uid| host.admitted(uid, mem("")).0);
    let of_bob = host.admitted(2, mem("")).0;
    assert_eq!(
        set(&mut host, 1, one, named("train")).expect("set").name.as_deref(),
        Some("train")
    );
    assert!(set(&mut host, 1, one, named("train")).is_ok(), "its own");
    let error = set(&mut host, 1, two, named("train")).expect_err("taken");
    assert!(
        error.message.contains("your job j1 is called \"train\" already"),
        "{error:?}"
    );
    assert!(set(&mut host, 2, of_bob, named("train")).is_ok(), "of somebody else");
    for wrong in ["", "j7", "7up", "a b", "partage/x"] {
        let error = set(&mut host, 1, two, named(wrong)).expect_err("no name");
        assert!(error.message.starts_with("name: "), "{error:?}");
    }
    let record = host
        .records()
        .into_iter()
        .find(|record| record.id == one.0)
        .expect("saved");
    assert_eq!(record.name.as_deref(), Some("train"));
    assert_eq!(set(&mut host, 1, one, named("none")).expect("set").name, None);
    assert!(set(&mut host, 1, two, named("train")).is_ok());
}

/// Of what a job held that has just ended, `set` may have all, as `run` may: it is kept for a late child alone.
#[test]
fn a_raise_takes_the_room_of_a_job_of_which_nothing_runs() {
    let mut host = Host::new(&[16]);
    let whole = host.policy.status(broker_view(), host.now_ns, &host.board).devices[0].usable_bytes;
    let half = (whole / GIB / 2).max(1);
    let (kept, _) = host.admitted(1, mem(&format!("{half}GiB")));
    let (ended, process) = host.admitted(1, mem(&format!("{half}GiB")));
    host.step(Event::ProcessGone(process));
    assert_eq!(view(&host, ended).state, "ended");
    let change = |mem: &str| Change {
        mem: Some(mem.into()),
        ..Change::default()
    };
    let wanted = format!("{}GiB", half + half / 2);
    set(&mut host, 1, kept, change(&wanted)).expect("nobody else wants it");
    let (other, _) = host.admitted(1, mem("1GiB"));
    let why = set(&mut host, 1, kept, change(&format!("{}GiB", whole / GIB))).expect_err("another runs there");
    assert_eq!(why.code, ErrorCode::NoRoom, "{why:?}");
    assert_eq!(view(&host, other).state, "running");
}
