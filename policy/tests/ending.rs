// SPDX-License-Identifier: Apache-2.0
//! How jobs end: lingering, stopping, strict jobs, and what is said at the end.

use crate::admission::fail;
use crate::host::{Host, broker_view, caller, mem, uuid};
use crate::rules_in_use::{at_most, host, reload, view};
use partage_policy::{Action, Event, Process, TargetQuery, Ticket};
use partage_protocol::admin::{ErrorCode, Reply, RunRequest};
use partage_protocol::units::{GIB, SECOND_NS};

#[test]
fn a_job_lives_with_any_process_and_five_seconds() {
    let mut host = Host::new(&[16]);
    let (a, pa) = host.admitted(1, mem("16GiB"));
    let client = host.attach(a, pa);
    host.step(Event::ProcessGone(pa));
    host.pass(60 * SECOND_NS);
    assert_eq!(host.state_of(a), "running");
    host.step(Event::ClientDying(client));
    assert_eq!(host.state_of(a), "dying");
    host.kill(client);
    // It is over for its user at once; its place is kept for a late child.
    assert_eq!(host.state_of(a), "ended");
    let is_told = |host: &Host, kind| {
        let told = |action: &Action| matches!(action, Action::Publish { kind: k, .. } if *k == kind);
        host.commands.iter().filter(|command| told(command)).count()
    };
    assert_eq!(is_told(&host, "job-ended"), 1);
    host.pass(4 * SECOND_NS);
    let late = host.attach(a, Process { pid: 77, start: 1 });
    assert_eq!(
        (host.state_of(a).as_str(), is_told(&host, "job-resumed")),
        ("running", 1)
    );
    host.kill(late);
    assert_eq!((host.state_of(a).as_str(), is_told(&host, "job-ended")), ("ended", 2));
    host.pass(4 * SECOND_NS);
    assert!(host.policy.live_jobs() == 1, "its place is kept");
    host.pass(SECOND_NS);
    assert!(host.policy.live_jobs() == 0 && is_told(&host, "job-ended") == 2);
}

#[test]
fn an_end_says_code_time_peak_and_denials_at_once() {
    for is_quiet in [false, true] {
        let mut host = Host::new(&[16]);
        let request = RunRequest {
            quiet: is_quiet,
            ..mem("2GiB")
        };
        let (a, process) = host.admitted(1, request);
        let client = host.attach(a, process);
        assert!(host.allocate(client, 0, 3 << 29) && !host.allocate(client, 0, 1 << 30));
        host.pass(13 * SECOND_NS);
        host.step(Event::Exited { process, code: 7 });
        host.kill(client);
        host.step(Event::ProcessGone(process));
        let line = format!("{a} ended 7 after 13s, peak 1.5 of 2 GiB, denied once");
        let told = |action: &Action| matches!(action, Action::Tell { text, .. } if *text == line);
        let published = |action: &Action| match action {
            Action::Publish {
                kind: "job-ended",
                text,
                numbers,
                ..
            } => {
                let numbers = numbers.view(&host.policy);
                let device = &numbers.devices[0];
                assert_eq!((numbers.exit_code, numbers.ran_ns), (Some(7), Some(13 * SECOND_NS)));
                assert_eq!((numbers.denied, device.peak_bytes), (Some(1), Some(3 << 29)));
                assert_eq!((device.limit_bytes, device.request_bytes), (Some(2 << 30), 2 << 30));
                text.starts_with(&line)
            }
            _ => false,
        };
        let count = |is_it: &dyn Fn(&Action) -> bool| host.commands.iter().filter(|c| is_it(c)).count();
        assert_eq!(
            (count(&told), count(&published)),
            (usize::from(!is_quiet), 1),
            "{:#?}",
            host.commands
        );
        let view = host.policy.job_view(a, &caller(1), &host.board).expect("shown");
        assert_eq!((view.state.as_str(), view.exit_code), ("ended", Some(7)));
        let Reply::Ps { jobs, .. } = host.policy.ps(&caller(1), false, &host.board) else {
            panic!("ps")
        };
        assert!(jobs.is_empty(), "not among those that run");
        let status = host.policy.status(broker_view(), host.now_ns, &host.board);
        assert_eq!((status.broker.jobs, status.devices[0].committed_bytes), (0, 0));
    }
}

#[test]
fn a_lingering_job_gives_way() {
    let mut host = Host::new(&[16]);
    let (a, pa) = host.admitted(
        1,
        RunRequest {
            name: Some("train".into()),
            ..mem("16GiB")
        },
    );
    host.step(Event::ProcessGone(pa));
    let request = RunRequest {
        name: Some("train".into()),
        ..mem("16GiB")
    };
    host.admitted(1, fail(request));
    assert_eq!(host.state_of(a), "ended");
}

#[test]
fn stop_sends_two_signals_and_answers_at_the_end() {
    let mut host = Host::new(&[16]);
    let (a, pa) = host.admitted(1, mem("1GiB"));
    let client = host.attach(a, pa);
    let stop = |ticket, uid| Event::Stop {
        ticket: Ticket(ticket),
        caller: caller(uid),
        target: TargetQuery {
            text: "j1".into(),
            descends_from: None,
        },
        grace_ns: 10 * SECOND_NS,
    };
    host.step(stop(1, 2));
    assert_eq!(host.error_of(Ticket(1)).code, ErrorCode::NotAllowed);
    let signals = |host: &Host| {
        host.commands
            .iter()
            .filter(|command| matches!(command, Action::SignalJob { .. }))
            .count()
    };
    host.step(stop(2, 1));
    assert_eq!(signals(&host), 1);
    host.pass(10 * SECOND_NS);
    assert_eq!(signals(&host), 2);
    host.kill(client);
    assert!(!host.replies.contains_key(&Ticket(2)));
    host.step(Event::ProcessGone(pa));
    assert!(matches!(host.replies[&Ticket(2)].last(), Some(Reply::Done { .. })));
    assert_eq!(host.state_of(a), "ended");
}

/// In whose name the signals are sent, and what is said of processes that are another user's.
#[test]
fn a_stop_is_its_users_word_and_names_whom_it_leaves_alone() {
    let mut host = Host::new(&[16]);
    let stop = |ticket, uid, text: &str| Event::Stop {
        ticket: Ticket(ticket),
        caller: caller(uid),
        target: TargetQuery {
            text: text.into(),
            descends_from: None,
        },
        grace_ns: 10 * SECOND_NS,
    };
    let names = |host: &Host| {
        let signals = host.commands.iter().filter_map(|command| match command {
            Action::SignalJob { by, .. } => Some(*by),
            _ => None,
        });
        signals.collect::<Vec<u32>>()
    };
    let spared = |job, pid| Event::Spared {
        job,
        processes: vec![(pid, "root".to_owned())],
    };
    let (a, first) = host.admitted(1, mem("1GiB"));
    host.step(stop(1, 1, "j1"));
    host.step(spared(a, 70_000));
    assert_eq!(names(&host), [1]);
    host.step(Event::ProcessGone(first));
    match host.replies[&Ticket(1)].last() {
        Some(Reply::Done { message }) => {
            let words = "j1 has ended: pid 70000 of root was not signalled, which is another user's";
            assert_eq!(message, words);
        }
        other => panic!("{other:?}"),
    }
    // A client that is another user's keeps nobody waiting, once the rest was killed.
    let (b, first) = host.admitted(1, mem("1GiB"));
    let client = host.attach(b, first);
    host.step(stop(2, 1, "j2"));
    host.step(spared(b, first.pid));
    assert!(!host.replies.contains_key(&Ticket(2)), "its grace is not over");
    host.pass(10 * SECOND_NS);
    host.step(spared(b, first.pid));
    let said = host.error_of(Ticket(2)).message.clone();
    assert!(
        said.contains("j2 goes on: pid ") && said.contains(" of root was not signalled"),
        "{said}"
    );
    // The job is as it was, and root's word ends all of it.
    host.step(stop(3, 0, "j2"));
    assert_eq!(names(&host), [1, 1, 1, 0]);
    host.kill(client);
    host.step(Event::ProcessGone(first));
    assert_eq!(host.state_of(b), "ended");
}

#[test]
fn a_strict_jobs_stranger_is_killed_within_two_seconds() {
    for (is_strict, kills) in [(true, 1), (false, 0)] {
        let mut host = Host::new(&[16]);
        let (a, _) = host.admitted(
            1,
            RunRequest {
                strict: is_strict,
                ..mem("1GiB")
            },
        );
        host.strangers.insert(4711, (uuid(1), GIB, Some(a)));
        host.is_excused = true;
        host.measure();
        host.measure();
        host.pass(SECOND_NS);
        let count = |is_it: fn(&Action) -> bool| host.commands.iter().filter(|command| is_it(command)).count();
        let told = |text: &'static str| {
            let is_it = |action: &Action| matches!(action, Action::Tell { text: said, .. } if said.contains(text));
            host.commands.iter().filter(|command| is_it(command)).count()
        };
        assert_eq!(told("uses GPU 0 without Partage"), 1, "named once");
        assert_eq!(told("--strict killed pid 4711 of j1"), kills);
        let is_event = |action: &Action| {
            matches!(
                action,
                Action::Publish {
                    kind: "strict-kill",
                    pid: Some(4711),
                    ..
                }
            )
        };
        assert_eq!(count(is_event), kills);
        let view = host.policy.job_view(a, &caller(1), &host.board).expect("shown");
        assert_eq!(
            view.notes
                .iter()
                .filter(|note| note.contains("--strict killed"))
                .count(),
            kills
        );
        assert_eq!(
            count(|action| matches!(action, Action::KillUnmanaged { pid: 4711, .. })),
            kills
        );
    }
}

#[test]
fn a_waiting_job_is_as_strict_as_the_rules_at_its_admission() {
    for (asked, first, then, expected) in [
        (false, false, true, true),
        (false, true, false, false),
        (true, true, false, true),
        (true, false, false, true),
    ] {
        let rules = |is_strict: bool| {
            let mut rules = at_most(8, None);
            rules.rules[0].is_strict = is_strict;
            rules
        };
        let mut host = host(rules(first));
        let (holder, process) = host.admitted(2, mem("8GiB"));
        host.admitted(2, mem("8GiB"));
        let request = RunRequest {
            strict: asked,
            ..mem("8GiB")
        };
        let (ticket, _) = host.run(1, request);
        assert!(host.is_waiting(ticket));
        reload(&mut host, rules(then));
        host.finish(holder, process);
        let job = host.job_of(ticket).expect("admitted");
        assert_eq!(view(&host, job).is_strict, expected, "{asked} {first} {then}");
    }
}

/// The event says whose it was, for others read no more of it than of a job that runs.
#[test]
fn what_becomes_of_a_waiting_job_is_its_owners() {
    let mut host = Host::new(&[8]);
    host.admitted(2, mem("8GiB"));
    let (gone, _) = host.run(1, mem("6GiB"));
    host.step(Event::TicketGone(gone));
    let short = RunRequest {
        wait_timeout_ns: Some(SECOND_NS),
        ..mem("6GiB")
    };
    host.run(1, short);
    host.pass(2 * SECOND_NS);
    let owner = |wanted: &str| {
        let mut found = host.commands.iter().filter_map(|command| match command {
            Action::Publish { kind, uid, .. } if *kind == wanted => Some(*uid),
            _ => None,
        });
        found.next().expect("it is said")
    };
    assert_eq!(["job-gone", "job-refused"].map(owner), [Some(1), Some(1)]);
}
