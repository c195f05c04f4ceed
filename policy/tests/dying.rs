// SPDX-License-Identifier: Apache-2.0
//! A process has ended, and the driver has not freed its memory yet: whoever asks for that memory gets it.

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::host::{Host, mem, uuid, verdict_of};
use crate::overhead::{CONTEXT, child, view, why};
use partage_policy::{Event, GIVEN_UP_NS, PATIENCE_NS};
use partage_protocol::admin::RunRequest;
use partage_protocol::message::{
    MEASURE_AFTER, MEASURE_BEFORE, VERDICT_CARD_FULL, VERDICT_GRANTED, VERDICT_LIMIT, VERDICT_UNFREED,
};
use partage_protocol::reservation::settle as settle_grant;
use partage_protocol::units::{ClientId, GIB, JobId};
use proptest::prelude::*;

/// The number of the host's asks.
const ASK: u32 = 5;
/// The number of the host's questions about contexts.
const CONTEXT_ASK: u32 = 6;

/// A job of 8 GiB: a parent with 1 GiB, a worker with 6 GiB, and another worker with nothing.
struct Family {
    host: Host,
    job: JobId,
    parent: ClientId,
    worker: ClientId,
    other: ClientId,
}

fn family() -> Family {
    let mut host = Host::new(&[16]);
    let (job, process) = host.admitted(1, mem("8GiB"));
    let parent = host.attach(job, process);
    let worker = host.attach(job, child(11));
    let other = host.attach(job, child(12));
    assert!(host.allocate(parent, 0, GIB) && host.allocate(worker, 0, 6 * GIB));
    Family {
        host,
        job,
        parent,
        worker,
        other,
    }
}

fn fail_fast(request: RunRequest) -> RunRequest {
    RunRequest { wait: false, ..request }
}

#[test]
fn what_a_dying_sibling_holds_is_waited_for() {
    let Family {
        mut host,
        job,
        parent,
        worker,
        other,
    } = family();
    host.step(Event::ClientDying(worker));
    assert_eq!(host.say_ask(parent, 0, 7 * GIB, 6 * GIB), None);
    assert_eq!(
        host.say_ask(other, 0, GIB, GIB),
        Some(VERDICT_GRANTED),
        "others do not queue behind it"
    );
    host.measure();
    let said = host.step(Event::ClientGone(worker));
    assert_eq!(verdict_of(&said, ASK), Some(VERDICT_GRANTED));
    assert_eq!(view(&host, job).denied.limit, 0);
}

#[test]
fn an_end_that_nobody_noticed_is_found_before_a_denial() {
    let Family {
        mut host,
        parent,
        worker,
        ..
    } = family();
    host.unnoticed.insert(worker);
    assert_eq!(host.say_ask(parent, 0, 7 * GIB, 6 * GIB), None);
    let said = host.step(Event::ClientGone(worker));
    assert_eq!(verdict_of(&said, ASK), Some(VERDICT_GRANTED));
}

#[test]
fn who_lives_is_not_waited_for() {
    let Family {
        mut host, parent, job, ..
    } = family();
    assert_eq!(host.say_ask(parent, 0, 7 * GIB, 6 * GIB), Some(VERDICT_LIMIT));
    assert_eq!(view(&host, job).denied.limit, 1, "it was looked for, and denied once");
}

#[test]
fn what_does_not_fit_either_way_is_denied_at_once() {
    let Family {
        mut host,
        parent,
        worker,
        ..
    } = family();
    host.step(Event::ClientDying(worker));
    assert_eq!(host.say_ask(parent, 0, 8 * GIB + 1, 7 * GIB + 1), Some(VERDICT_LIMIT));
    assert_eq!(host.say_ask(parent, 0, 8 * GIB, 7 * GIB), None);
}

#[test]
fn a_denial_names_whose_memory_does_not_come_back() {
    let Family {
        mut host,
        job,
        parent,
        worker,
        ..
    } = family();
    host.step(Event::ClientDying(worker));
    assert_eq!(host.say_ask(parent, 0, 7 * GIB, 6 * GIB), None);
    host.now_ns += PATIENCE_NS - 1;
    assert_eq!(verdict_of(&host.step(Event::Tick), ASK), None);
    host.now_ns += 1;
    assert_eq!(verdict_of(&host.step(Event::Tick), ASK), Some(VERDICT_UNFREED));
    assert_eq!(view(&host, job).denied.limit, 1);
    let sentence = "pid 11 had ended, but the driver had not freed its 6 GiB; without that there was room";
    assert!(why(&host, job).contains(sentence), "{}", why(&host, job));
    // It is stuck: nobody waits for ever, and each time the reason is said.
    host.now_ns += GIVEN_UP_NS;
    assert_eq!(host.say_ask(parent, 0, 7 * GIB, 6 * GIB), Some(VERDICT_UNFREED));
    assert_eq!(host.say_ask(parent, 0, 9 * GIB, 8 * GIB), Some(VERDICT_LIMIT));
}

#[test]
fn each_end_that_frees_enough_answers() {
    let mut host = Host::new(&[16]);
    let (job, process) = host.admitted(1, mem("8GiB"));
    let parent = host.attach(job, process);
    let workers = [host.attach(job, child(11)), host.attach(job, child(12))];
    for worker in workers {
        assert!(host.allocate(worker, 0, 4 * GIB));
        host.step(Event::ClientDying(worker));
    }
    assert_eq!(host.say_ask(parent, 0, 4 * GIB, 4 * GIB), None);
    let said = host.step(Event::ClientGone(workers[0]));
    assert_eq!(
        verdict_of(&said, ASK),
        Some(VERDICT_GRANTED),
        "the other one is still there"
    );
}

#[test]
fn a_burst_waits_for_the_dying_of_another_job() {
    let mut host = Host::new(&[16]);
    let burst = || RunRequest {
        mem_request: Some("1GiB".into()),
        ..mem("16GiB")
    };
    let (job, process) = host.admitted(1, burst());
    let client = host.attach(job, process);
    let (other, elsewhere) = host.admitted(2, burst());
    let ending = host.attach(other, elsewhere);
    let living = host.attach(other, child(11));
    assert!(host.allocate(ending, 0, 10 * GIB) && host.allocate(living, 0, 3 * GIB));
    host.measure();
    host.unnoticed.insert(ending);
    assert_eq!(host.say_ask(client, 0, 14 * GIB, 14 * GIB), Some(VERDICT_CARD_FULL));
    assert_eq!(host.say_ask(client, 0, 12 * GIB, 12 * GIB), None);
    let said = host.step(Event::ClientGone(ending));
    assert_eq!(verdict_of(&said, ASK), Some(VERDICT_GRANTED));
}

#[test]
fn a_context_waits_for_the_dying() {
    let Family {
        mut host,
        parent,
        worker,
        other,
        ..
    } = family();
    host.free(worker, 0, 6 * GIB);
    assert!(host.make_context(parent, 0, CONTEXT), "what one costs is known");
    assert!(host.allocate(worker, 0, 6 * GIB + 3 * (CONTEXT / 4)));
    host.step(Event::ClientDying(worker));
    assert_eq!(host.say_measure(other, 0, MEASURE_BEFORE), None);
    let said = host.step(Event::ClientGone(worker));
    assert_eq!(verdict_of(&said, CONTEXT_ASK), Some(VERDICT_GRANTED));
}

/// A context whose cost nobody knew is made while the worker before is still charged: it stays.
#[test]
fn a_context_is_judged_without_the_dying() {
    let judged = |is_freed: bool| {
        let Family {
            mut host,
            worker,
            other,
            ..
        } = family();
        assert!(host.allocate(worker, 0, GIB));
        host.step(Event::ClientDying(worker));
        assert_eq!(host.say_measure(other, 0, MEASURE_BEFORE), Some(VERDICT_GRANTED));
        host.change_beyond(other, 0, |_| CONTEXT);
        assert_eq!(host.say_measure(other, 0, MEASURE_AFTER), None);
        host.step(Event::Asking(uuid(1)));
        let from = host.commands.len();
        host.answer_look(uuid(1));
        assert_eq!(
            verdict_of(&host.commands[from..], CONTEXT_ASK),
            None,
            "the look is not the last"
        );
        if is_freed {
            host.step(Event::ClientGone(worker));
            host.measure();
        } else {
            host.now_ns += PATIENCE_NS;
            host.step(Event::Tick);
        }
        verdict_of(&host.commands[from..], CONTEXT_ASK)
    };
    assert_eq!(judged(true), Some(VERDICT_GRANTED));
    assert_eq!(judged(false), Some(VERDICT_UNFREED));
}

#[test]
fn a_run_that_would_not_wait_waits_for_the_dying() {
    let mut host = Host::new(&[8]);
    let (job, process) = host.admitted(1, mem("6GiB"));
    let worker = host.attach(job, process);
    assert!(host.allocate(worker, 0, 5 * GIB));
    host.measure();
    let (early, _) = host.run(1, fail_fast(mem("5GiB")));
    assert!(host.error_of(early).message.contains("2 GiB of 8 GiB left"));
    host.step(Event::ClientDying(worker));
    host.step(Event::ProcessGone(process));
    let (next, _) = host.run(1, fail_fast(mem("5GiB")));
    let (patient, _) = host.run(2, mem("2GiB"));
    let (too_large, _) = host.run(1, fail_fast(mem("9GiB")));
    assert!(host.error_of(too_large).message.contains("never fit"));
    assert!(!host.replies.contains_key(&next), "{:?}", host.replies.get(&next));
    host.measure();
    host.step(Event::ClientGone(worker));
    assert!(host.job_of(next).is_some() && host.job_of(patient).is_some());
}

#[test]
fn a_run_that_would_not_wait_fails_where_nothing_comes_back() {
    let mut host = Host::new(&[8]);
    let (job, process) = host.admitted(1, mem("6GiB"));
    let worker = host.attach(job, process);
    assert!(host.allocate(worker, 0, 5 * GIB));
    host.step(Event::ClientDying(worker));
    host.step(Event::ProcessGone(process));
    let (next, _) = host.run(1, fail_fast(mem("5GiB")));
    assert!(!host.replies.contains_key(&next));
    assert!(
        host.policy
            .next_deadline()
            .is_some_and(|due| due <= host.now_ns + PATIENCE_NS)
    );
    host.pass(PATIENCE_NS);
    assert!(host.error_of(next).message.contains("2 GiB of 8 GiB left"));
    let (patient, _) = host.run(1, mem("5GiB"));
    host.pass(GIVEN_UP_NS);
    assert!(host.is_waiting(patient), "it hears then what it waits for");
    assert_eq!(host.policy.waiting_jobs(), 1);
}

/// One act in the life of a job's processes.
#[derive(Clone, Copy, Debug)]
enum Act {
    Attach,
    Ask { client: usize, mib: u64 },
    Free { client: usize },
    End { client: usize, is_noticed: bool },
    Freed { client: usize },
    Pass { ms: u64 },
}

fn act() -> impl Strategy<Value = Act> {
    let client = || 0..4usize;
    prop_oneof![
        3 => Just(Act::Attach),
        6 => (client(), 1..3000u64).prop_map(|(client, mib)| Act::Ask { client, mib }),
        1 => client().prop_map(|client| Act::Free { client }),
        3 => (client(), any::<bool>()).prop_map(|(client, is_noticed)| Act::End { client, is_noticed }),
        3 => client().prop_map(|client| Act::Freed { client }),
        1 => (1..2500u64).prop_map(|ms| Act::Pass { ms }),
    ]
}

/// What a question waits with: who asked, for a use of how much, and when.
type Open = Option<(ClientId, u64, u64)>;

fn settle(host: &mut Host, open: &mut Open, from: usize) -> Result<(), TestCaseError> {
    let Some((client, wanted, asked_ns)) = *open else {
        return Ok(());
    };
    let waited = host.now_ns - asked_ns;
    let Some(verdict) = verdict_of(&host.commands[from..], ASK) else {
        prop_assert!(waited < PATIENCE_NS, "no answer after {waited}");
        return Ok(());
    };
    *open = None;
    let others: u64 = host
        .programs
        .keys()
        .filter(|other| **other != client && !ENDED.with_borrow(|ended| ended.contains(other)))
        .map(|other| host.used(*other, 0))
        .sum();
    if verdict == VERDICT_GRANTED {
        let more = wanted - host.used(client, 0);
        prop_assert!(host.allocate(client, 0, more));
        settle_grant(&host.board.rows[&client][0].0[3]);
    } else if others + wanted <= LIMIT {
        // It has room beside those who live: denied only after all the patience, and said why.
        prop_assert!(
            waited >= PATIENCE_NS || verdict == VERDICT_UNFREED,
            "{verdict} after {waited}"
        );
        prop_assert_eq!(verdict, VERDICT_UNFREED);
    }
    Ok(())
}

const LIMIT: u64 = 4 * GIB;

thread_local! {
    /// Clients of this history whose process has ended.
    static ENDED: RefCell<BTreeSet<ClientId>> = const { RefCell::new(BTreeSet::new()) };
}

proptest! {
    #[test]
    fn nobody_is_denied_what_only_the_dead_hold(acts in proptest::collection::vec(act(), 1..60)) {
        let mut host = Host::new(&[16]);
        let (job, first) = host.admitted(1, mem("4GiB"));
        let parent = host.attach(job, first);
        ENDED.with_borrow_mut(BTreeSet::clear);
        let (mut open, mut pid): (Open, u32) = (None, 20);
        for act in acts {
            let from = host.commands.len();
            let clients: Vec<ClientId> = host.programs.keys().copied().collect();
            let at = |client: usize| clients.get(client).copied();
            let is_ended = |client: &ClientId| ENDED.with_borrow(|ended| ended.contains(client));
            match act {
                Act::Attach if clients.len() < 4 => {
                    pid += 1;
                    host.attach(job, child(pid));
                }
                Act::Ask { client, mib } => {
                    let client = at(client).filter(|client| !is_ended(client) && open.is_none());
                    if let Some(client) = client {
                        let bytes = mib << 20;
                        let wanted = host.used(client, 0) + bytes;
                        open = Some((client, wanted, host.now_ns));
                        host.say_ask(client, 0, wanted, bytes);
                    }
                }
                Act::Free { client } => {
                    let client = at(client).filter(|client| open.is_none_or(|(asker, ..)| asker != *client));
                    if let Some(client) = client.filter(|client| !is_ended(client)) {
                        host.free(client, 0, host.used(client, 0));
                    }
                }
                Act::End { client, is_noticed } => {
                    let client = at(client).filter(|client| *client != parent && !is_ended(client));
                    if let Some(client) = client.filter(|client| open.is_none_or(|(asker, ..)| asker != *client)) {
                        ENDED.with_borrow_mut(|ended| ended.insert(client));
                        if is_noticed {
                            host.step(Event::ClientDying(client));
                        } else {
                            host.unnoticed.insert(client);
                        }
                    }
                }
                Act::Freed { client } => {
                    if let Some(client) = at(client).filter(is_ended) {
                        host.unnoticed.remove(&client);
                        host.step(Event::ClientDying(client));
                        host.step(Event::ClientGone(client));
                    }
                }
                Act::Pass { ms } => host.pass(ms * 1_000_000),
                Act::Attach => {}
            }
            settle(&mut host, &mut open, from)?;
        }
    }
}
