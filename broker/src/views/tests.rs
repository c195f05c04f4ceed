// SPDX-License-Identifier: Apache-2.0
//! Batches, the copy's words, and the worker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;

use partage_policy::{Books, Caller, Config, Machine, Policy, Process, Reading, TargetQuery};
use partage_protocol::admin::Reply;
use partage_protocol::frame::Assembler;
use partage_protocol::job_ledger::{Shared, Words};
use partage_protocol::units::{ClientId, JobId};

use super::queue::Queue;
use super::{Answer, Found, Frozen, Published, ViewRequest, Views, What};
use crate::peer::ConnectionId;

fn request(uid: u32, to: u64, what: What) -> ViewRequest {
    let caller = Caller {
        uid,
        user: uid.to_string(),
        is_admin: false,
        may_change_own: true,
        process: Process { pid: 1, start: 1 },
        inside: None,
    };
    let to = ConnectionId(to);
    ViewRequest { to, caller, what }
}

fn why(uid: u32, to: u64, text: String) -> ViewRequest {
    let descends_from = None;
    request(uid, to, What::Why(TargetQuery { text, descends_from }))
}

/// A page of its own.
fn page(uid: u32, to: u64) -> ViewRequest {
    let after = Some(JobId(to));
    request(uid, to, What::Ps { all: false, after })
}

fn numbers(batch: &[ViewRequest]) -> Vec<u64> {
    batch.iter().map(|request| request.to.0).collect()
}

#[test]
fn who_asks_a_lot_waits_for_itself() {
    let mut waiting = Queue::default();
    for to in 0..40 {
        waiting.add(page(1, to)).expect("room");
    }
    waiting.add(page(2, 100)).expect("room");
    assert_eq!(numbers(&waiting.take_batch()), (0..16).chain([100]).collect::<Vec<_>>());
    waiting.add(page(2, 101)).expect("room");
    waiting.forget(1, ConnectionId(17));
    let second: Vec<u64> = [16].into_iter().chain(18..33).chain([101]).collect();
    assert_eq!(numbers(&waiting.take_batch()), second);
    for to in 200..300 {
        // The same for all: one answer.
        waiting.add(request(1, to, What::Queue)).expect("room");
    }
    assert_eq!(
        numbers(&waiting.take_batch()),
        (33..40).chain(200..300).collect::<Vec<_>>()
    );
    assert!(waiting.is_empty() && waiting.take_batch().is_empty());
}

#[test]
fn the_bytes_that_wait_are_bounded_for_each_user() {
    let long = || "x".repeat(200 * 1024);
    let mut waiting = Queue::default();
    let added = (0..100).filter(|to| waiting.add(why(1, *to, long())).is_ok()).count();
    assert_eq!(added, 5, "a mebibyte");
    waiting.add(why(2, 200, long())).expect("another user's");
    waiting
        .add(request(1, 201, What::Status))
        .expect("it says nothing of its own");
    drop(waiting.take_batch());
    waiting.add(why(1, 202, long())).expect("there is room again");
}

/// One client whose words can be changed, on two slots.
#[derive(Default)]
struct OneClient([AtomicU64; 6]);

impl Machine for OneClient {
    type Word = AtomicU64;

    fn words(&self, client: ClientId, slot: usize) -> Option<Words<'_, AtomicU64>> {
        let [ledger, overhead, owed, granted, used, settled] = &self.0;
        let shared = Shared { granted, used, settled };
        (client.0 == 1 && slot < 16).then_some(Words {
            ledger,
            overhead,
            owed,
            // The second slot's pages are lost.
            shared: Some(shared).filter(|_| slot == 0),
        })
    }

    fn reading(&self, _: ClientId, slot: usize) -> Option<Reading> {
        let used = self.0[4].load(std::sync::atomic::Ordering::Relaxed);
        (slot == 0).then_some(Reading {
            used,
            ..Reading::default()
        })
    }
}

#[test]
fn a_copy_keeps_every_word_as_it_was() {
    use partage_protocol::reservation::Word;
    let machine = OneClient::default();
    let set = |first: u64| {
        machine
            .0
            .iter()
            .zip(first..)
            .for_each(|(word, value)| Word::store(word, value))
    };
    set(10);
    let frozen = Frozen::of(&machine, [(ClientId(1), 2), (ClientId(2), 2)].into_iter());
    set(20);
    let words = frozen.words(ClientId(1), 0).expect("copied");
    assert_eq!([words.ledger, words.overhead, words.owed].map(Word::load), [10, 11, 12]);
    let shared = words.shared.expect("copied");
    assert_eq!(
        [shared.granted, shared.used, shared.settled].map(Word::load),
        [13, 14, 15]
    );
    assert_eq!(frozen.reading(ClientId(1), 0).map(|reading| reading.used), Some(14));
    let lost = frozen.words(ClientId(1), 1).expect("copied");
    assert!(lost.shared.is_none() && frozen.reading(ClientId(1), 1).is_none());
    assert!(frozen.words(ClientId(1), 2).is_none() && frozen.words(ClientId(2), 0).is_none());
}

#[test]
fn a_job_that_is_not_live_stays_as_it_was() {
    let jobs = |numbers: &[u64]| numbers.iter().map(|number| JobId(*number)).collect::<BTreeSet<_>>();
    let found = Found {
        live: jobs(&[1, 2, 3]),
        stopped: jobs(&[2]),
    };
    assert_eq!(found.with_others(&jobs(&[1, 7])), jobs(&[2, 7]));
}

fn published() -> Published {
    let broker = r#"{"pid":1,"version":"","kind":"","socket_dir":"","driver":"","jobs":0,"clients":0,"uptime_ns":0}"#;
    Published {
        books: Books::clone(&Policy::new(Config::default())),
        machine: Frozen::default(),
        broker: serde_json::from_str(broker).expect("a broker's view"),
        users: BTreeMap::new(),
        stopped: BTreeSet::new(),
        now_ns: 0,
    }
}

/// Has these made, and answers all that the worker says.
fn made(views: &mut Views, requests: impl Iterator<Item = ViewRequest>) -> Vec<Answer> {
    for request in requests {
        views.add(request).expect("room");
    }
    let mut all = Vec::new();
    while views.are_awaited() {
        views.serve(published);
        views.wait();
        all.extend(views.answers());
    }
    all
}

#[test]
fn all_are_answered_in_their_order_and_the_worker_is_idle_again() {
    let mut views = Views::start().expect("starts");
    for _ in 0..3 {
        // More than may be made and not taken, and more than one batch.
        let pages = (0..40).map(|to| page(1, to));
        let said = made(&mut views, pages.chain([why(1, 40, "j1".to_owned())]));
        let stopped = (0..)
            .zip(&said)
            .filter(|(_, answer)| matches!(answer, Answer::Stopped(_)));
        let places: Vec<usize> = stopped.map(|(place, _)| place).collect();
        assert_eq!(places, [0, 17, 34], "before each batch");
        let documents = said.into_iter().filter_map(|answer| match answer {
            Answer::View { to, packets } => Some((to.0, packets)),
            Answer::Stopped(_) => None,
        });
        for (number, (to, packets)) in (0..).zip(documents) {
            assert_eq!(to, number);
            let mut assembler = Assembler::default();
            let whole = packets
                .iter()
                .find_map(|packet| assembler.push(packet).expect("packets"));
            let reply: Reply = serde_json::from_slice(&whole.expect("whole")).expect("a reply");
            match number {
                40 => assert!(matches!(reply, Reply::Error(_)), "{reply:?}"),
                _ => assert!(matches!(reply, Reply::Ps { .. }), "{reply:?}"),
            }
        }
    }
}

#[test]
fn who_may_see_the_same_shares_the_bytes_of_a_list() {
    let mut views = Views::start().expect("starts");
    let mut others = [0, 1, 2, 3].map(|to| request(1, to, What::Status));
    others[1].caller.process.pid = 77;
    others[2].caller.inside = Some(JobId(1));
    others[3].caller.is_admin = true;
    let second_user = request(2, 4, What::Status);
    let said = made(&mut views, others.into_iter().chain([second_user]));
    let packets: Vec<_> = said
        .iter()
        .filter_map(|answer| match answer {
            Answer::View { packets, .. } => packets.first(),
            Answer::Stopped(_) => None,
        })
        .collect();
    let shares = |one: usize, other: usize| std::sync::Arc::ptr_eq(packets[one], packets[other]);
    assert!(shares(0, 1), "another process of the same user");
    assert!(!shares(0, 2) && !shares(0, 3) && !shares(0, 4) && !shares(2, 3));
}

#[test]
fn all_that_wait_share_one_copy_and_no_other_is_made_meanwhile() {
    let mut views = Views::start().expect("starts");
    let mut copies = 0;
    for to in 0..3 {
        views.add(request(1, to, What::Status)).expect("room");
        // Before the first batch is answered.
        views.serve(|| {
            copies += 1;
            published()
        });
    }
    assert_eq!(copies, 1);
    let mut count = 0;
    while views.are_awaited() {
        views.wait();
        count += views.answers().len();
        views.serve(|| {
            copies += 1;
            published()
        });
    }
    assert_eq!((count, copies), (3, 2), "what came meanwhile has a newer one");
}

#[test]
fn nobody_waits_for_a_worker_whose_answers_nobody_takes() {
    let mut views = Views::start().expect("starts");
    for to in 0..16 {
        views.add(request(1, to, What::Status)).expect("room");
    }
    views.serve(published);
    drop(views);
}
