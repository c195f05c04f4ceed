// SPDX-License-Identifier: Apache-2.0
//! The limit of each process of a job, and of one process alone: granted, denied, shown, judged, and kept.

use crate::host::{Host, caller, mem};
use crate::rules_in_use::{gib, host as ruled_host, reload, view};
use partage_policy::{Action, Change, Event, Max, Process, Rule, Rules, TargetQuery};
use partage_protocol::admin::{ErrorCode, ErrorView, Reply, RunRequest};
use partage_protocol::message::{MEASURE_BEFORE, VERDICT_GRANTED, VERDICT_LIMIT, VERDICT_PROCESS_LIMIT};
use partage_protocol::units::{ClientId, GIB, JobId, MIB};

fn each(limit: &str, process: &str) -> RunRequest {
    RunRequest {
        process_mem: Some(process.into()),
        ..mem(limit)
    }
}

pub fn child(host: &mut Host, job: JobId) -> (ClientId, Process) {
    let number = host.fresh();
    let process = Process {
        pid: number as u32,
        start: number,
    };
    (host.attach(job, process), process)
}

/// `partage set process:PID mem=…`
pub fn set_one(host: &mut Host, uid: u32, process: Process, mem: &str) -> Result<(), ErrorView> {
    let change = Change {
        mem: Some(mem.into()),
        ..Change::default()
    };
    match host.ask_change(caller(uid), &format!("process:{}", process.pid), change) {
        Reply::Job(_) => Ok(()),
        Reply::Error(error) => Err(error),
        other => panic!("{other:?}"),
    }
}

/// What a client was last shown of its own limit on its first device.
fn shown(host: &Host, client: ClientId) -> u64 {
    let last = host.commands.iter().rev().find_map(|command| match command {
        Action::ShowPage {
            client: of,
            process_limits,
            ..
        } if *of == client => Some(process_limits[0]),
        _ => None,
    });
    last.expect("shown")
}

fn at_most(most: u64) -> Rules {
    Rules {
        rules: vec![Rule {
            name: "students".into(),
            max: Max {
                process_mem: Some(gib(most)),
                ..Max::default()
            },
            ..Rule::default()
        }],
        ..Rules::default()
    }
}

#[test]
fn four_processes_get_their_limit_each_and_not_512_bytes_more() {
    let mut host = Host::new(&[16]);
    let (job, first) = host.admitted(1, each("100%", "4GiB"));
    let mut clients = vec![host.attach(job, first)];
    assert_eq!(shown(&host, clients[0]), 4 * GIB);
    assert!(!host.allocate(clients[0], 0, 4 * GIB + 512), "alone in its job, too");
    clients.extend((0..3).map(|_| child(&mut host, job).0));
    for client in &clients {
        assert!(host.allocate(*client, 0, 3 * GIB) && host.allocate(*client, 0, GIB));
        assert_eq!(
            host.say_ask(*client, 0, 4 * GIB + 512, 512),
            Some(VERDICT_PROCESS_LIMIT)
        );
    }
    let view = view(&host, job);
    assert_eq!((view.denied.process_limit, view.denied.limit), (5, 0));
    assert_eq!(view.devices[0].process_limit_bytes, Some(4 * GIB));
    let target = TargetQuery {
        text: job.to_string(),
        descends_from: None,
    };
    let Ok(Reply::Why(why)) = host.policy.why(&caller(1), &target, host.now_ns, &host.board) else {
        panic!("why")
    };
    let text = why.sentences.join("\n");
    let last = host.programs[&clients[3]].process.pid;
    for words in [
        &format!("partage set process:{last} mem=4352MiB"),
        "5 by the process limit",
        "each process at most 4 GiB by --process-mem 4GiB",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let denial = &why.denials[0];
    assert_eq!(
        (denial.reason.as_str(), denial.limit_bytes, denial.used_bytes),
        ("process limit", 4 * GIB, 4 * GIB)
    );
}

#[test]
fn the_jobs_limit_still_holds_and_is_named() {
    let mut host = Host::new(&[16]);
    let (job, first) = host.admitted(1, each("6GiB", "4GiB"));
    let one = host.attach(job, first);
    let (two, _) = child(&mut host, job);
    assert!(host.allocate(one, 0, 4 * GIB) && host.allocate(two, 0, 2 * GIB));
    assert_eq!(host.say_ask(two, 0, 3 * GIB, GIB), Some(VERDICT_LIMIT));
    assert_eq!(host.say_ask(two, 0, 5 * GIB, 3 * GIB), Some(VERDICT_PROCESS_LIMIT));
}

#[test]
fn one_processs_limit_touches_no_sibling_and_outlives_the_broker() {
    let mut host = Host::new(&[16]);
    let (job, first) = host.admitted(1, mem("100%"));
    let one = host.attach(job, first);
    let (two, second) = child(&mut host, job);
    assert!(host.allocate(one, 0, 3 * GIB) && host.allocate(two, 0, 3 * GIB));
    set_one(&mut host, 1, second, "2GiB").expect("its owner may");
    assert_eq!((shown(&host, one), shown(&host, two)), (0, 2 * GIB));
    assert_eq!(host.used(two, 0), 3 * GIB, "nothing is taken away");
    host.free(two, 0, GIB / 2);
    assert!(!host.allocate(two, 0, 512), "it is still beyond");
    assert!(host.allocate(one, 0, 5 * GIB), "a sibling notices nothing");
    host.free(two, 0, 3 * GIB / 2);
    host.pass(1_000_000_000);
    assert!(host.allocate(two, 0, GIB), "within again");
    // Exec: the same process, another client.
    let again = host.attach(job, second);
    assert_eq!(shown(&host, again), 2 * GIB);
    assert!(!host.allocate(again, 0, 2 * GIB + 512) && host.allocate(again, 0, 2 * GIB));
    let records = host.records();
    host.restart(records);
    for client in [one, again] {
        let process = host.programs[&client].process;
        host.board.lost.retain(|lost| *lost != client);
        host.step(Event::Reattach {
            client,
            process,
            are_pages_lost: false,
        });
    }
    assert_eq!((shown(&host, one), shown(&host, again)), (0, 2 * GIB));
    assert_eq!(host.say_ask(again, 0, 2 * GIB + 512, 512), Some(VERDICT_PROCESS_LIMIT));
    set_one(&mut host, 1, second, "none").expect("no limit of its own any more");
    assert_eq!(shown(&host, again), 0);
    assert!(host.allocate(again, 0, GIB));
}

#[test]
fn every_process_limit_can_be_set_and_a_single_one_replaces_it() {
    let mut host = Host::new(&[16]);
    let (job, first) = host.admitted(1, each("100%", "25%"));
    let one = host.attach(job, first);
    let (two, second) = child(&mut host, job);
    assert_eq!(shown(&host, one), 4 * GIB);
    set_one(&mut host, 1, second, "6GiB").expect("more than the others");
    let change = Change {
        process_mem: Some("2GiB".into()),
        ..Change::default()
    };
    let reply = host.ask_change(caller(1), &job.to_string(), change);
    assert!(matches!(reply, Reply::Job(_)), "{reply:?}");
    assert_eq!((shown(&host, one), shown(&host, two)), (2 * GIB, 6 * GIB));
    assert!(host.allocate(two, 0, 6 * GIB) && !host.allocate(one, 0, 2 * GIB + 512));
    // Only its mem, only by those who may change the job, and nobody else is meant by the word.
    let weight = Change {
        name: Some("x".into()),
        mem: Some("1GiB".into()),
        ..Change::default()
    };
    let target = format!("process:{}", second.pid);
    let reply = host.ask_change(caller(1), &target, weight);
    assert!(
        matches!(&reply, Reply::Error(why) if why.code == ErrorCode::Invalid),
        "{reply:?}"
    );
    assert_eq!(
        set_one(&mut host, 2, second, "1GiB").expect_err("bob").code,
        ErrorCode::NotAllowed
    );
    let stranger = Process { pid: 7, start: 7 };
    assert_eq!(
        set_one(&mut host, 1, stranger, "1GiB").expect_err("nobody").code,
        ErrorCode::NoTarget
    );
    let query = TargetQuery {
        text: target,
        descends_from: None,
    };
    let look = host.policy.resolve(&query, &caller(1), partage_policy::Access::Look);
    assert_eq!(look.expect_err("no job").view().code, ErrorCode::Invalid);
}

#[test]
fn a_rule_caps_every_way_to_a_process_limit_and_gives_it_back() {
    let mut host = ruled_host(at_most(2));
    let (ticket, _) = host.run(1, each("8GiB", "4GiB"));
    let refused = host.error_of(ticket);
    assert_eq!(refused.code, ErrorCode::NotAllowed);
    assert!(
        refused.message.contains("rule students, max.process_mem = 2GiB"),
        "{refused:?}"
    );
    let by_variable = RunRequest {
        from_variables: vec!["PARTAGE_PROCESS_MEM".into()],
        ..each("8GiB", "4GiB")
    };
    let (job, first) = host.admitted(1, by_variable);
    let client = host.attach(job, first);
    assert_eq!(shown(&host, client), 2 * GIB, "a variable is lowered");
    let refused = set_one(&mut host, 1, first, "3GiB").expect_err("above the rule");
    assert_eq!(refused.code, ErrorCode::NotAllowed);
    assert!(host.allocate(client, 0, 2 * GIB) && !host.allocate(client, 0, 512));
    // Lowered below use nothing dies and nothing grows; loosened, what was asked is back.
    reload(&mut host, at_most(1));
    assert_eq!((shown(&host, client), host.used(client, 0)), (GIB, 2 * GIB));
    host.free(client, 0, GIB / 2);
    assert!(!host.allocate(client, 0, 512));
    reload(&mut host, Rules::default());
    assert_eq!(shown(&host, client), 4 * GIB);
    assert!(host.allocate(client, 0, 5 * GIB / 2) && !host.allocate(client, 0, 512));
    // A program without `run`, and a job that asks for nothing.
    reload(&mut host, at_most(3));
    let (job, first) = host.admitted(2, mem("4GiB"));
    let client = host.attach(job, first);
    assert_eq!(shown(&host, client), 3 * GIB);
    let membership = partage_policy::Membership::default();
    let bare = host
        .attach_as(Process { pid: 9, start: 9 }, 2, membership)
        .expect("welcomed");
    assert_eq!(shown(&host, bare), 3 * GIB);
}

#[test]
fn contexts_count_against_a_processs_limit() {
    let mut host = Host::new(&[16]);
    let (job, first) = host.admitted(1, each("8GiB", "1GiB"));
    let one = host.attach(job, first);
    assert!(host.make_context(one, 0, 256 * MIB), "the first is measured");
    assert!(!host.allocate(one, 0, 768 * MIB + 512), "its overhead is its own");
    assert!(host.allocate(one, 0, 768 * MIB));
    assert_eq!(
        host.say_measure(one, 0, MEASURE_BEFORE),
        Some(VERDICT_PROCESS_LIMIT),
        "a second context"
    );
    let (two, _) = child(&mut host, job);
    assert_eq!(
        host.say_measure(two, 0, MEASURE_BEFORE),
        Some(VERDICT_GRANTED),
        "a sibling's fits"
    );
    assert!(!host.allocate(two, 0, 768 * MIB + 512), "and is kept for it");
    assert_eq!(view(&host, job).denied.process_limit, 3);
}
