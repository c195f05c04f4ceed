// SPDX-License-Identifier: Apache-2.0
//! A job's ledger with the machine's atomics: any amounts up to 2^64, any history, and real threads.
//!
//! Every interleaving is searched elsewhere with small numbers; here the numbers are large and the threads are real.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};

use partage_protocol::job_ledger::{JobLedger, Pages, Shared, Verdict, Words};
use partage_protocol::reservation::{AskAnswer, Charged, ClientWords, Denial, Underflow, charge, refund, reserve};
use partage_protocol::units::{ClientId, GIB};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// A seed that is printed (with a failure, as all output of a test), or the one that is asked for.
fn config() -> ProptestConfig {
    let mut config = ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0));
    }
    println!("replay with PROPTEST_RNG_SEED={}", config.rng_seed);
    config
}

#[derive(Default)]
struct Row {
    ledger: AtomicU64,
    granted: AtomicU64,
    used: AtomicU64,
    settled: AtomicU64,
    overhead: AtomicU64,
    owed: AtomicU64,
}

impl Row {
    fn client(&self) -> ClientWords<'_, AtomicU64> {
        ClientWords {
            used: &self.used,
            granted: &self.granted,
            settled: &self.settled,
        }
    }
    fn used(&self) -> u64 {
        self.used.load(Ordering::SeqCst)
    }
}

#[derive(Default)]
struct Rows(BTreeMap<ClientId, Row>);

impl Pages for Rows {
    type Word = AtomicU64;
    fn words(&self, client: ClientId) -> Option<Words<'_, AtomicU64>> {
        let row = self.0.get(&client)?;
        let shared = Shared {
            granted: &row.granted,
            used: &row.used,
            settled: &row.settled,
        };
        Some(Words {
            ledger: &row.ledger,
            overhead: &row.overhead,
            owed: &row.owed,
            shared: Some(shared),
        })
    }
}

fn rows(count: u64) -> Rows {
    Rows((0..count).map(|id| (ClientId(id), Row::default())).collect())
}

fn answer(verdict: Verdict) -> AskAnswer {
    match verdict {
        Verdict::Granted => AskAnswer::Granted,
        Verdict::Retry => AskAnswer::Retry,
        Verdict::Limit => AskAnswer::Denied(Denial::Limit),
        Verdict::ProcessLimit => AskAnswer::Denied(Denial::ProcessLimit),
        Verdict::CardFull { .. } => AskAnswer::Denied(Denial::CardFull),
        Verdict::Invalid => AskAnswer::Denied(Denial::Invalid),
    }
}

#[test]
fn a_lone_client_has_everything_and_never_asks() {
    let (pages, mut ledger) = (rows(1), JobLedger::new(u64::MAX, u64::MAX));
    ledger.attach(&pages, ClientId(0), 0);
    let row = &pages.0[&ClientId(0)];
    assert_eq!(charge(&row.used, &row.granted, 1 << 63), Charged::Done);
    assert_eq!(charge(&row.used, &row.granted, (1 << 63) - 1), Charged::Done);
    assert_eq!(charge(&row.used, &row.granted, 1), Charged::Overflow);
    assert_eq!(refund(&row.used, u64::MAX), Ok(0));
    assert_eq!(refund(&row.used, 1), Err(Underflow));
    assert_eq!(row.used(), 0);
}

#[test]
fn a_second_client_takes_half_of_what_the_first_does_not_use() {
    let (pages, mut ledger) = (rows(2), JobLedger::new(10 * GIB, 10 * GIB));
    ledger.attach(&pages, ClientId(0), 0);
    let first = &pages.0[&ClientId(0)];
    assert_eq!(charge(&first.used, &first.granted, 4 * GIB), Charged::Done);
    ledger.attach(&pages, ClientId(1), 0);
    let granted = |id| pages.0[&ClientId(id)].granted.load(Ordering::SeqCst);
    assert_eq!((granted(0), granted(1)), (7 * GIB, 3 * GIB));
    ledger.death(&pages, ClientId(0), 0);
    assert_eq!(granted(1), 10 * GIB, "alone again");
}

#[test]
fn a_denial_says_whether_it_was_the_limit_or_the_card() {
    let (pages, mut ledger) = (rows(2), JobLedger::new(10, 6));
    ledger.attach(&pages, ClientId(0), 0);
    ledger.attach(&pages, ClientId(1), 0);
    assert_eq!(
        ledger.ask(&pages, ClientId(0), 8, 0).verdict,
        Verdict::CardFull { short_by: 2 }
    );
    assert_eq!(ledger.ask(&pages, ClientId(0), 11, 0).verdict, Verdict::Limit);
    assert_eq!(ledger.ask(&pages, ClientId(9), 1, 0).verdict, Verdict::Invalid);
    let granted = ledger.ask(&pages, ClientId(0), 6, 0);
    assert_eq!(
        (granted.verdict, granted.granted, granted.limit),
        (Verdict::Granted, 6, 10)
    );
    assert_eq!(
        ledger.ask(&pages, ClientId(1), 1, 0).verdict,
        Verdict::CardFull { short_by: 1 },
        "pinned"
    );
    assert_eq!(
        ledger.ask(&pages, ClientId(1), 1, u64::MAX).verdict,
        Verdict::Granted,
        "not for ever"
    );
}

#[test]
fn a_lying_client_gains_nothing_and_stops_nobody_else() {
    let (pages, mut ledger) = (rows(2), JobLedger::new(10, 10));
    ledger.attach(&pages, ClientId(0), 0);
    ledger.attach(&pages, ClientId(1), 0);
    let liar = &pages.0[&ClientId(0)];
    for lie in [u64::MAX, 1 << 63, 6] {
        liar.used.store(lie, Ordering::SeqCst);
        liar.settled.store(lie, Ordering::SeqCst);
        assert_eq!(ledger.used_sum(&pages), 5, "no more than the driver was allowed");
        assert_eq!(
            ledger.ask(&pages, ClientId(1), 6, 0).verdict,
            Verdict::Retry,
            "as if a charge were being undone"
        );
        assert_eq!(
            ledger.ask(&pages, ClientId(1), 5, 0).verdict,
            Verdict::Granted,
            "what it has nobody takes"
        );
    }
    ledger.death(&pages, ClientId(0), 0);
    assert_eq!(ledger.ask(&pages, ClientId(1), 10, 0).verdict, Verdict::Granted);
}

#[derive(Clone, Debug)]
enum Step {
    Attach,
    Allocate(usize, u64),
    Free(usize),
    Die(usize),
    Limit(u64, u64),
    Overhead(usize, u64),
    Announce(usize, u64),
    OwnLimit(usize, Option<u64>),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![1..100u64, Just(1 << 63), Just(u64::MAX), any::<u64>()];
    prop_oneof![
        2 => Just(Step::Attach),
        6 => (0..6usize, bytes).prop_map(|(client, bytes)| Step::Allocate(client, bytes)),
        2 => (0..6usize).prop_map(Step::Free),
        1 => (0..6usize).prop_map(Step::Die),
        1 => (0..500u64, 0..500u64).prop_map(|(limit, ceiling)| Step::Limit(limit, ceiling)),
        1 => (0..6usize, prop_oneof![0..300u64, Just(u64::MAX)])
            .prop_map(|(client, bytes)| Step::Overhead(client, bytes)),
        1 => (0..6usize, 0..300u64).prop_map(|(client, bytes)| Step::Announce(client, bytes)),
        1 => (0..6usize, prop::option::weighted(0.8, 0..300u64))
            .prop_map(|(client, limit)| Step::OwnLimit(client, limit)),
        1 => Just(Step::Restart),
    ]
}

/// A ledger, its clients' words, and the number of the last client.
struct History {
    pages: Rows,
    ledger: JobLedger,
    next: u64,
}

impl History {
    /// One of the clients that live.
    fn nth(&self, at: usize) -> Option<ClientId> {
        let alive: Vec<ClientId> = self.ledger.clients().collect();
        alive.get(at % alive.len().max(1)).copied()
    }

    fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Attach => {
                self.next += 1;
                self.pages.0.insert(ClientId(self.next), Row::default());
                self.ledger.attach(&self.pages, ClientId(self.next), 0);
            }
            Step::Allocate(client, bytes) => return self.allocate(client, bytes),
            Step::Free(client) => {
                let Some(client) = self.nth(client) else { return Ok(()) };
                let row = &self.pages.0[&client];
                prop_assert_eq!(refund(&row.used, row.used()), Ok(0));
            }
            Step::Die(client) => {
                let Some(client) = self.nth(client) else { return Ok(()) };
                self.ledger.death(&self.pages, client, 0);
                self.pages.0.remove(&client);
            }
            Step::Limit(limit, ceiling) => self.ledger.set_limit(&self.pages, limit, ceiling, 0),
            Step::Overhead(client, bytes) => {
                let Some(client) = self.nth(client) else { return Ok(()) };
                self.ledger.set_overhead(&self.pages, client, bytes, 0);
                prop_assert_eq!(self.pages.0[&client].overhead.load(Ordering::SeqCst), bytes);
            }
            Step::Announce(client, bytes) => return self.announce(client, bytes),
            Step::OwnLimit(client, limit) => {
                let Some(client) = self.nth(client) else { return Ok(()) };
                self.ledger.set_own_limit(&self.pages, client, limit, 0);
            }
            Step::Restart => {
                let mut after = JobLedger::new(self.ledger.limit(), self.ledger.ceiling());
                for client in self.ledger.clients() {
                    after.set_own_limit(&self.pages, client, self.ledger.own_limit(client), 0);
                    after.adopt(&self.pages, client);
                }
                // As the first measurement does.
                after.rebalance(&self.pages, 0);
                self.ledger = after;
            }
        }
        Ok(())
    }

    /// What a client's own limit leaves it.
    fn own_room(&self, client: ClientId) -> u64 {
        let row = &self.pages.0[&client];
        let has = row.used().saturating_add(row.overhead.load(Ordering::SeqCst));
        let limit = self.ledger.own_limit(client);
        limit.map_or(u64::MAX, |limit| limit.saturating_sub(has))
    }

    fn allocate(&mut self, client: usize, bytes: u64) -> Result<(), TestCaseError> {
        let Some(client) = self.nth(client) else { return Ok(()) };
        let used = self.ledger.used_sum(&self.pages);
        let room = self.ledger.limit().min(self.ledger.ceiling()).saturating_sub(used);
        let room = room.min(self.own_room(client));
        let row = &self.pages.0[&client];
        let ledger = &mut self.ledger;
        let ask = |wanted| answer(ledger.ask(&self.pages, client, wanted, 0).verdict);
        let got = reserve(&row.client(), bytes, ask);
        // Alone at work, so an ask that fits must succeed, and one that does not must not.
        let charged = self
            .pages
            .0
            .values()
            .fold(0, |sum: u64, row| sum.saturating_add(row.used()));
        let before = charged - if got.is_ok() { bytes } else { 0 };
        prop_assert_eq!(before.saturating_add(self.ledger.overhead_sum(&self.pages)), used);
        prop_assert_eq!(got.is_ok(), bytes <= room, "{} bytes with {} left", bytes, room);
        Ok(())
    }

    fn announce(&mut self, client: usize, bytes: u64) -> Result<(), TestCaseError> {
        let Some(client) = self.nth(client) else { return Ok(()) };
        let was = self.pages.0[&client].overhead.load(Ordering::SeqCst);
        let growth = bytes.saturating_sub(was);
        let room = self
            .ledger
            .limit()
            .min(self.ledger.ceiling())
            .saturating_sub(self.ledger.used_sum(&self.pages));
        let room = room.min(self.own_room(client));
        let verdict = self.ledger.reserve_overhead(&self.pages, client, bytes, 0);
        // Alone at work, and nothing is pinned: exactly what fits is granted.
        prop_assert_eq!(
            verdict == Verdict::Granted,
            growth <= room,
            "{} more with {} left",
            growth,
            room
        );
        let is = self.pages.0[&client].overhead.load(Ordering::SeqCst);
        prop_assert_eq!(
            is,
            if verdict == Verdict::Granted {
                was.max(bytes)
            } else {
                was
            }
        );
        Ok(())
    }

    /// What holds after every step; `before` it, so much was granted.
    fn check(&self, before: u64) -> Result<(), TestCaseError> {
        let beyond = self.ledger.overhead_sum(&self.pages);
        let most = self.ledger.limit().min(self.ledger.ceiling()).saturating_sub(beyond);
        let sum = self.ledger.granted_sum(&self.pages);
        prop_assert_eq!(self.ledger.is_over(&self.pages), sum > most);
        prop_assert!(
            sum <= most || sum <= before,
            "{} granted of {} beside {}",
            sum,
            most,
            beyond
        );
        for (client, row) in &self.pages.0 {
            prop_assert!(row.used() <= row.ledger.load(Ordering::SeqCst));
            let own = self.ledger.own_limit(*client).unwrap_or(u64::MAX);
            let has = row
                .ledger
                .load(Ordering::SeqCst)
                .saturating_add(row.overhead.load(Ordering::SeqCst));
            // Over a lowered limit all are frozen, and over its own limit each by itself.
            let shown = if sum > most || has > own {
                0
            } else {
                row.ledger.load(Ordering::SeqCst)
            };
            prop_assert_eq!(row.granted.load(Ordering::SeqCst), shown);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_history_breaks_the_ledger(
        limit in prop_oneof![1..500u64, Just(u64::MAX)], steps in prop::collection::vec(step(), 1..60),
    ) {
        let (pages, ledger) = (Rows::default(), JobLedger::new(limit, limit));
        let mut history = History { pages, ledger, next: 0 };
        for step in steps {
            let before = history.ledger.granted_sum(&history.pages);
            history.take(step)?;
            history.check(before)?;
        }
    }
}

/// Threads as clients, the broker behind a lock as it is behind its socket: 60, 60 and 40 of a limit of 100, again and
/// again from one barrier. What the driver would hold is counted where it would be allocated.
#[test]
fn threads_at_a_barrier_never_get_two_of_60() {
    const ROUNDS: usize = 1_000;
    let pages = rows(3);
    let broker = Mutex::new(JobLedger::new(100, 100));
    for id in 0..3 {
        broker.lock().expect("broker").attach(&pages, ClientId(id), 0);
    }
    let (start, end) = (Barrier::new(3), Barrier::new(3));
    let (held, large, small) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (id, bytes) in [(0, 60), (1, 60), (2, 40)] {
            let (pages, broker, start, end) = (&pages, &broker, &start, &end);
            let (held, large, small, failed) = (&held, &large, &small, &failed);
            scope.spawn(move || {
                let row = &pages.0[&ClientId(id)];
                for _ in 0..ROUNDS {
                    start.wait();
                    let ask = |wanted| {
                        let mut broker = broker.lock().expect("broker");
                        answer(broker.ask(pages, ClientId(id), wanted, 0).verdict)
                    };
                    let got = reserve(&row.client(), bytes, ask).is_ok();
                    if got {
                        let sum = held.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        failed.fetch_or(sum > 100, Ordering::SeqCst);
                        if bytes == 60 { large } else { small }.fetch_add(1, Ordering::SeqCst);
                    }
                    end.wait();
                    if got {
                        held.fetch_sub(bytes, Ordering::SeqCst);
                        refund(&row.used, bytes).expect("charged");
                    }
                }
            });
        }
    });
    assert!(!failed.load(Ordering::SeqCst), "more than the limit was allocated");
    assert_eq!(
        (large.load(Ordering::SeqCst), small.load(Ordering::SeqCst)),
        (ROUNDS as u64, ROUNDS as u64)
    );
}
