// SPDX-License-Identifier: Apache-2.0
//! Totals of several jobs: what they hold together, what waits for one, and what a reload does to it.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;

use crate::host::{Board, Host, caller, mem};
use crate::process_limits::child;
use crate::rules_in_use::{gib, host as ruled_host, reload, view, written};
use partage_policy::{
    Event, Machine, Match, Max, Membership, Pattern, Process, Reading, Rule, Rules, TargetQuery, Ticket, Total,
};
use partage_protocol::admin::{ErrorCode, Reply, RunRequest};
use partage_protocol::job_ledger::Words;
use partage_protocol::message::{VERDICT_CARD_FULL, VERDICT_GRANTED};
use partage_protocol::reservation::{Charged, charge};
use partage_protocol::units::{ClientId, GIB, JobId, SECOND_NS};
use proptest::prelude::*;

pub fn each_user(each_user: Total) -> Rules {
    with_totals(each_user, Total::default(), Match::default())
}

fn with_totals(each_user: Total, together: Total, matching: Match) -> Rules {
    Rules {
        rules: vec![Rule {
            name: "students".into(),
            each_user,
            together,
            matching,
            ..Rule::default()
        }],
        ..Rules::default()
    }
}

pub fn memory(most: u64) -> Total {
    Total {
        mem: Some(gib(most)),
        ..Total::default()
    }
}

/// A job without a promise, and its client.
fn job(host: &mut Host, uid: u32) -> (JobId, ClientId) {
    let (job, first) = host.admitted(uid, mem(""));
    let client = host.attach(job, first);
    (job, client)
}

/// Σ L + Σ O of some clients on their first device.
pub fn held(host: &Host, clients: &[ClientId]) -> u64 {
    let of = |client: &ClientId| {
        let row = host.board.rows.get(client).map(|_| host.board.value(*client, 0, 0));
        row.map_or(0, |ledger| ledger + host.overhead(*client, 0))
    };
    clients.iter().map(of).sum()
}

fn why(host: &Host, job: JobId, uid: u32) -> String {
    let target = TargetQuery {
        text: job.to_string(),
        descends_from: None,
    };
    match host.policy.why(&caller(uid), &target, host.now_ns, &host.board) {
        Ok(Reply::Why(why)) => format!("{}\n{:?}", why.sentences.join("\n"), why.denials),
        other => panic!("{other:?}"),
    }
}

fn reason(host: &Host, ticket: Ticket) -> String {
    match host.replies.get(&ticket).and_then(|said| said.last()) {
        Some(Reply::Waiting(waiting)) => waiting.reason.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn of_two_jobs_of_a_user_that_ask_for_sixty_percent_exactly_one_gets_it() {
    let mut host = ruled_host(each_user(memory(5)));
    let ((one, a), (two, b)) = (job(&mut host, 1), job(&mut host, 1));
    let (_, other) = job(&mut host, 2);
    assert_eq!(
        view(&host, one).devices[0].limit_bytes,
        Some(5 * GIB),
        "a total is its jobs' card"
    );
    for round in 0..10 {
        let (first, second) = if round % 2 == 0 { (a, b) } else { (b, a) };
        assert!(host.allocate(first, 0, 3 * GIB) && !host.allocate(second, 0, 3 * GIB));
        assert!(host.allocate(second, 0, 2 * GIB), "what is left");
        assert!(!host.allocate(first, 0, 512));
        assert!(held(&host, &[a, b]) <= 5 * GIB);
        assert!(host.allocate(other, 0, 5 * GIB), "another user has a total of his own");
        for client in [a, b, other] {
            host.free(client, 0, host.used(client, 0));
        }
    }
    assert_eq!(
        (view(&host, two).denied.total, view(&host, two).denied.card_full),
        (10, 0)
    );
    assert!(host.allocate(a, 0, 4 * GIB) && !host.allocate(b, 0, 2 * GIB));
    let text = why(&host, two, 1);
    for words in [
        "the rule students, each_user.mem = 5GiB (/etc/partage/partage.toml:12) had no room for it; held by j1",
        "by a total of several jobs",
        "GPU 0: 4 GiB of the 5 GiB of rule students",
        "reason: \"rule students\"",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// A machine on which a client takes bytes of its grant at one of the broker's looks at its words.
struct Amid<'a> {
    board: &'a Board,
    client: ClientId,
    bytes: u64,
    left: Cell<u64>,
    /// Whether the grant covered it.
    is_charged: Cell<bool>,
}

impl Machine for Amid<'_> {
    type Word = AtomicU64;
    fn words(&self, client: ClientId, slot: usize) -> Option<Words<'_, AtomicU64>> {
        if client == self.client {
            if self.left.get() == 0 && !self.is_charged.get() {
                let row = &self.board.rows[&client][slot].0;
                self.is_charged
                    .set(charge(&row[2], &row[1], self.bytes) == Charged::Done);
            }
            self.left.set(self.left.get().saturating_sub(1));
        }
        self.board.words(client, slot)
    }

    fn reading(&self, client: ClientId, slot: usize) -> Option<Reading> {
        self.board.reading(client, slot)
    }
}

#[test]
fn what_a_job_kept_from_a_lowering_and_freed_is_there_for_the_next() {
    let mut charged = 0;
    for left in 0..40 {
        let mut host = ruled_host(each_user(memory(5)));
        let ((_, a), (_, b)) = (job(&mut host, 1), job(&mut host, 1));
        assert!(host.allocate(a, 0, 3 * GIB));
        host.free(a, 0, 3 * GIB);
        let amid = Amid {
            board: &host.board,
            client: a,
            bytes: 3 * GIB,
            left: Cell::new(left),
            is_charged: Cell::new(false),
        };
        let ask = Event::Ask {
            client: b,
            slot: 0,
            wanted: 3 * GIB,
            request: 3 * GIB,
            sequence: 5,
        };
        // Granted or not: whatever it is, the other one gives up what it took.
        let _ = host.policy.step(host.now_ns, ask, &amid);
        let is_charged = amid.is_charged.get();
        if is_charged {
            charged += 1;
            host.free(a, 0, 3 * GIB);
        }
        assert!(
            host.allocate(b, 0, 3 * GIB),
            "nobody uses any of the total, charged at look {left}"
        );
        assert!(held(&host, &[a, b]) <= 5 * GIB);
    }
    assert!(charged > 2, "the client was never in the broker's way");
}

#[test]
fn together_is_shared_by_users_and_environments_of_one_scope() {
    let scope = Match {
        cgroup: Some(vec![Pattern("/lab".into())]),
        ..Match::default()
    };
    let mut host = ruled_host(with_totals(Total::default(), memory(4), scope));
    let bare = |host: &mut Host, pid: u32, uid: u32, limit: u64| {
        let membership = Membership {
            scope: "lab".into(),
            cgroup: "/lab/a".into(),
            environment_limit: limit,
            ..Membership::default()
        };
        let process = Process { pid, start: pid.into() };
        host.attach_as(process, uid, membership).expect("welcomed")
    };
    let clients = [
        bare(&mut host, 1, 1, 0),
        bare(&mut host, 2, 1, 3 * GIB),
        bare(&mut host, 3, 2, 0),
    ];
    assert!(host.allocate(clients[0], 0, 2 * GIB) && host.allocate(clients[1], 0, GIB));
    assert!(!host.allocate(clients[2], 0, 2 * GIB) && host.allocate(clients[2], 0, GIB));
    assert!(clients.iter().all(|client| !host.allocate(*client, 0, 512)));
    assert_eq!(held(&host, &clients), 4 * GIB);
    let (_, outside) = job(&mut host, 1);
    assert!(host.allocate(outside, 0, 8 * GIB), "the rule is not about it");
}

#[test]
fn promises_of_a_total_wait_in_the_queue_and_in_nobodys_way() {
    let mut host = ruled_host(each_user(memory(8)));
    let (one, first) = host.admitted(1, mem("6GiB"));
    let (waits, _) = host.run(1, mem("4GiB"));
    let text = reason(&host, waits);
    assert!(
        text.contains(
            "rule students, each_user.mem = 8GiB (/etc/partage/partage.toml:12) leaves 2 GiB on GPU 0; \
                       held by j1 6 GiB"
        ),
        "{text}"
    );
    // Another user's passes, as large as the whole rest: nothing is kept for the one that waits.
    let (_, other) = host.admitted(2, mem("8GiB"));
    let (_, small) = host.admitted(1, mem("2GiB"));
    // More than the total will never have room.
    let (never, _) = host.run(1, mem("9GiB"));
    assert_eq!(host.error_of(never).code, ErrorCode::NotAllowed);
    // A promise is kept within the total, and none is raised beyond it.
    let client = host.attach(one, first);
    assert!(host.allocate(client, 0, 6 * GIB), "it was promised");
    let raised = host.set(1, &one.to_string(), "7GiB");
    assert!(
        matches!(&raised, Reply::Error(why) if why.message.contains("rule students, each_user.mem = 8GiB")),
        "{raised:?}"
    );
    host.kill(client);
    host.step(Event::ProcessGone(first));
    assert!(host.job_of(waits).is_some(), "a job that lingers makes room");
    let _ = (other, small);
}

/// Four devices, of which the rule leaves a user some.
fn wide(total: Total) -> Host {
    let mut host = ruled_host(each_user(total));
    for index in 1..4 {
        let mut seen = host.devices[0].clone();
        (seen.index, seen.uuid) = (index, crate::host::uuid(index as u8 + 1));
        host.devices.push(seen);
    }
    host.enumerate();
    host.measure();
    host
}

fn on(gpu: &str) -> RunRequest {
    RunRequest {
        gpu: Some(gpu.into()),
        ..mem("1GiB")
    }
}

#[test]
fn jobs_of_a_user_are_on_no_more_gpus_than_their_total() {
    let mut host = wide(Total {
        gpus: Some(written(2, "2", 7)),
        ..Total::default()
    });
    let (too_many, _) = host.run(1, on("auto:3"));
    assert_eq!(
        host.error_of(too_many).code,
        ErrorCode::NotAllowed,
        "alone more than the total"
    );
    host.admitted(1, on("2"));
    let (ticket, second) = host.run(1, on("auto:2"));
    assert_eq!(host.devices_of(ticket), [0, 2], "one where it is already");
    let two = host.job_of(ticket).expect("admitted");
    let (elsewhere, _) = host.run(1, on("1"));
    let text = reason(&host, elsewhere);
    assert!(
        text.contains("rule students, each_user.gpus = 2 (/etc/partage/partage.toml:7): its jobs are on GPU 0, GPU 2"),
        "{text}"
    );
    assert_eq!(host.policy.queue().count(), 1);
    host.admitted(2, on("1"));
    let bare = host
        .attach_as(Process { pid: 9, start: 9 }, 1, Membership::default())
        .expect("welcomed");
    assert_eq!(
        host.programs[&bare].devices,
        [crate::host::uuid(1), crate::host::uuid(3)],
        "without run likewise"
    );
    host.kill(bare);
    host.finish(two, second);
    assert!(host.job_of(elsewhere).is_some(), "its turn");
}

#[test]
fn no_more_jobs_of_a_user_run_than_their_total() {
    let mut host = wide(Total {
        jobs: Some(written(2, "2", 8)),
        ..Total::default()
    });
    let (one, first) = host.admitted(1, on("auto"));
    host.admitted(1, on("auto"));
    let (third, _) = host.run(1, on("auto"));
    let text = reason(&host, third);
    assert!(
        text.contains("rule students, each_user.jobs = 2 (/etc/partage/partage.toml:8): 2 run (j1, j2)"),
        "{text}"
    );
    let bare = host.attach_as(Process { pid: 9, start: 9 }, 1, Membership::default());
    assert!(bare.is_none(), "without run it cannot wait");
    host.admitted(2, on("auto"));
    host.finish(one, first);
    assert!(host.job_of(third).is_some(), "its turn");
}

#[test]
fn promised_time_never_exceeds_a_total() {
    let half = Total {
        compute_promise: Some(written(500_000, "50%", 9)),
        ..Total::default()
    };
    let mut host = ruled_host(each_user(half));
    let part = |part: &str| RunRequest {
        compute: Some(part.into()),
        ..mem("")
    };
    let (one, _) = host.admitted(1, part("30%"));
    let (waits, _) = host.run(1, part("30%"));
    let text = reason(&host, waits);
    assert!(
        text.contains("rule students, each_user.compute = 50%") && text.contains("leaves 20 % of the time"),
        "{text}"
    );
    host.admitted(2, part("50%"));
    let (never, _) = host.run(1, part("60%"));
    assert_eq!(host.error_of(never).code, ErrorCode::NotAllowed);
    host.admitted(1, part("20%"));
    let raised = host.set_terms(caller(1), &one.to_string(), &[("compute", "40%")]);
    assert!(
        matches!(&raised, Reply::Error(why) if why.code == ErrorCode::NoRoom),
        "{raised:?}"
    );
}

#[test]
fn a_total_that_is_lowered_takes_nothing_and_lets_nothing_grow() {
    let mut host = ruled_host(Rules::default());
    let ((_, a), (_, b)) = (job(&mut host, 1), job(&mut host, 1));
    assert!(host.allocate(a, 0, 4 * GIB) && host.allocate(b, 0, 4 * GIB));
    reload(&mut host, each_user(memory(6)));
    assert_eq!((host.used(a, 0), host.used(b, 0)), (4 * GIB, 4 * GIB));
    assert!(!host.allocate(a, 0, 512) && !host.allocate(b, 0, 512));
    host.free(a, 0, 3 * GIB);
    host.pass(SECOND_NS);
    assert!(
        !host.allocate(b, 0, 2 * GIB),
        "a limit of its own, too: 6 GiB less the sibling's 1"
    );
    assert!(host.allocate(b, 0, GIB) && held(&host, &[a, b]) <= 6 * GIB);
    reload(&mut host, Rules::default());
    assert!(host.allocate(a, 0, 4 * GIB) && host.allocate(b, 0, GIB), "given back");
}

#[test]
fn several_processes_and_a_rule_for_one_job_share_a_total_with_another_job() {
    let mut rules = each_user(memory(6));
    rules.rules[0].max = Max {
        mem: Some(gib(4)),
        process_mem: Some(gib(3)),
        ..Max::default()
    };
    let mut host = ruled_host(rules);
    let ((one, a), (_, c)) = (job(&mut host, 1), job(&mut host, 1));
    let (b, _) = child(&mut host, one);
    assert!(host.allocate(a, 0, 3 * GIB) && !host.allocate(a, 0, 512), "the process");
    assert!(host.allocate(b, 0, GIB) && !host.allocate(b, 0, 512), "the job");
    assert!(host.allocate(c, 0, 2 * GIB) && !host.allocate(c, 0, 512), "the total");
    assert_eq!(host.say_ask(c, 0, 3 * GIB, GIB), Some(VERDICT_CARD_FULL));
    host.free(a, 0, 3 * GIB);
    assert_eq!(host.say_ask(c, 0, 3 * GIB, GIB), Some(VERDICT_GRANTED));
}

#[derive(Clone, Debug)]
enum Step {
    Start(u32),
    Child(usize),
    Allocate(usize, u64),
    Free(usize),
    Kill(usize),
    Context(usize, u64),
    Measure,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (1..3u32).prop_map(Step::Start),
        1 => (0..6usize).prop_map(Step::Child),
        6 => (0..6usize, 1..5u64).prop_map(|(client, gib)| Step::Allocate(client, gib * GIB)),
        2 => (0..6usize).prop_map(Step::Free),
        1 => (0..6usize).prop_map(Step::Kill),
        1 => (0..6usize, 1..3u64).prop_map(|(client, quarter)| Step::Context(client, quarter * GIB / 4)),
        1 => Just(Step::Measure),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_users_do_their_jobs_stay_within_a_total_and_get_all_of_it(
        steps in prop::collection::vec(step(), 1..40),
    ) {
        const MOST: u64 = 6 * GIB;
        let mut host = ruled_host(each_user(memory(6)));
        let mut clients: Vec<(ClientId, JobId, u32)> = Vec::new();
        // What a context took is granted after it was made.
        let mut has_contexts = false;
        for step in steps {
            let nth = |at: usize| clients.get(at % clients.len().max(1)).copied();
            match step {
                Step::Start(uid) => {
                    let (job, client) = job(&mut host, uid);
                    clients.push((client, job, uid));
                }
                Step::Child(at) => if let Some((_, job, uid)) = nth(at) {
                    clients.push((child(&mut host, job).0, job, uid));
                },
                Step::Allocate(at, bytes) => if let Some((client, _, uid)) = nth(at) {
                    let of_user = clients.iter().filter(|(_, _, of)| *of == uid);
                    let used: u64 = of_user.map(|(client, ..)| host.used(*client, 0) + host.overhead(*client, 0)).sum();
                    let has = |client: &ClientId| host.used(*client, 0) + host.overhead(*client, 0);
                    let everybody: u64 = clients.iter().map(|(client, ..)| has(client)).sum();
                    let is_there = everybody + bytes <= 16 * GIB;
                    let got = host.allocate(client, 0, bytes);
                    prop_assert_eq!(got, used + bytes <= MOST && is_there, "{} with {} in use", bytes, used);
                },
                Step::Free(at) => if let Some((client, ..)) = nth(at) {
                    host.free(client, 0, host.used(client, 0));
                },
                Step::Kill(at) => if let Some((client, ..)) = nth(at) {
                    host.kill(client);
                    clients.retain(|(other, ..)| *other != client);
                },
                Step::Context(at, bytes) => if let Some((client, ..)) = nth(at) {
                    host.make_context(client, 0, bytes);
                    has_contexts = true;
                },
                Step::Measure => host.measure(),
            }
            for uid in 1..3 {
                let of_user: Vec<ClientId> =
                    clients.iter().filter(|(_, _, of)| *of == uid).map(|(client, ..)| *client).collect();
                let held = held(&host, &of_user);
                prop_assert!(held <= MOST || has_contexts, "{held} held");
            }
        }
    }
}
