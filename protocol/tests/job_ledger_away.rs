// SPDX-License-Identifier: Apache-2.0
//! Members of a job's ledger whose memory leaves the device and comes back: any amounts up to 2^64.
//!
//! Every interleaving is searched elsewhere with small numbers (`reservation_every_interleaving`).

use std::sync::atomic::{AtomicU64, Ordering};

use partage_protocol::job_ledger::{JobLedger, Pages, Shared, Verdict, Words};
use partage_protocol::units::ClientId;
use proptest::prelude::*;

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
    fn get(word: &AtomicU64) -> u64 {
        word.load(Ordering::SeqCst)
    }
}

/// Two clients, the one that leaves first.
#[derive(Default)]
struct Rows([Row; 2]);

impl Pages for Rows {
    type Word = AtomicU64;
    fn words(&self, client: ClientId) -> Option<Words<'_, AtomicU64>> {
        let row = self.0.get(client.0 as usize)?;
        Some(Words {
            ledger: &row.ledger,
            overhead: &row.overhead,
            owed: &row.owed,
            shared: Some(Shared {
                granted: &row.granted,
                used: &row.used,
                settled: &row.settled,
            }),
        })
    }
}

const AWAY: ClientId = ClientId(0);
const HERE: ClientId = ClientId(1);

proptest! {
    #[test]
    fn what_left_is_free_and_comes_back_if_it_fits(
        limit in any::<u64>(), used in any::<u64>(), overhead in any::<u64>(), sibling in any::<u64>(),
    ) {
        let (pages, mut ledger) = (Rows::default(), JobLedger::new(limit, limit));
        let [away, here] = &pages.0;
        ledger.attach(&pages, AWAY, 0);
        away.used.store(used.min(Row::get(&away.granted)), Ordering::SeqCst);
        let used = Row::get(&away.used);
        ledger.attach(&pages, HERE, 0);
        ledger.set_overhead(&pages, AWAY, overhead, 0);
        let owed = ledger.leave(&pages, AWAY, 0);
        prop_assert_eq!(owed, used.saturating_add(overhead).max(1));
        prop_assert!(ledger.is_away(&pages, AWAY));
        prop_assert_eq!((Row::get(&away.ledger), Row::get(&away.granted), Row::get(&away.overhead)), (0, 0, 0));
        // All of the limit is the sibling's, and what is measured of the other is not believed.
        prop_assert_eq!(Row::get(&here.granted), limit);
        ledger.set_overhead(&pages, AWAY, overhead, 0);
        prop_assert_eq!(Row::get(&away.overhead), 0);
        // It leaves again: nothing is forgotten.
        prop_assert_eq!(ledger.leave(&pages, AWAY, 0), owed);
        here.used.store(sibling.min(limit), Ordering::SeqCst);
        let sibling = Row::get(&here.used);
        let fits = u128::from(owed) + u128::from(sibling) <= u128::from(limit);
        let verdict = ledger.make_return(&pages, AWAY, 0);
        prop_assert_eq!(verdict == Verdict::Granted, fits, "{:?}", verdict);
        prop_assert_eq!(Row::get(&away.granted), 0);
        if !fits {
            prop_assert_eq!((verdict, Row::get(&away.ledger)), (Verdict::Limit, 0));
            return Ok(());
        }
        prop_assert!(Row::get(&away.ledger) >= owed);
        // A sibling that is measured, frees or asks meanwhile takes nothing of it.
        ledger.rebalance(&pages, 0);
        prop_assert!(Row::get(&away.ledger) >= owed);
        prop_assert!(ledger.held_sum(&pages) <= limit);
        ledger.came_back(&pages, AWAY, 0);
        prop_assert!(!ledger.is_away(&pages, AWAY));
        prop_assert_eq!(Row::get(&away.granted), Row::get(&away.ledger));
        prop_assert!(Row::get(&away.granted) >= used && ledger.held_sum(&pages) <= limit);
        // It leaves again before anybody measured it, and has to have as much room the next time.
        prop_assert_eq!(Row::get(&away.overhead), owed - used);
        prop_assert_eq!(ledger.leave(&pages, AWAY, 0), owed);
    }
}

#[test]
fn a_client_that_is_away_asks_in_vain_and_dies_like_any_other() {
    let (pages, mut ledger) = (Rows::default(), JobLedger::new(10, 10));
    ledger.attach(&pages, AWAY, 0);
    ledger.attach(&pages, HERE, 0);
    let owed = ledger.leave(&pages, AWAY, 0);
    assert_eq!(owed, 1, "who used nothing is away, too");
    assert_eq!(ledger.ask(&pages, AWAY, 4, 0).verdict, Verdict::Retry);
    assert_eq!(ledger.reserve_overhead(&pages, AWAY, 4, 0), Verdict::Retry);
    assert_eq!(Row::get(&pages.0[1].granted), 10);
    ledger.death(&pages, AWAY, 0);
    assert_eq!(Row::get(&pages.0[0].owed), 0);
    assert_eq!(ledger.leave(&pages, AWAY, 0), 0, "no member");
    assert_eq!(ledger.make_return(&pages, AWAY, 0), Verdict::Invalid);
}
