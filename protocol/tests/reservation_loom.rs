// SPDX-License-Identifier: Apache-2.0
//! The word protocol under loom: every memory order that the C++ model allows between a charging client and a broker
//! that lowers its grant. The search beside it (`reservation_every_interleaving`) covers whole jobs in sequentially
//! consistent order; here are the barriers.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p partage-protocol --release --test reservation_loom`
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;
use partage_protocol::reservation::{
    Charged, Lowered, Word, came_back, charge, freeze, leave, lower, raise, refund, return_to,
};

/// loom treats sequentially consistent accesses as acquire and release and models fences in full: so the barrier that
/// the hardware's exchange is has to be written out here.
struct LoomWord(AtomicU64);

impl Word for LoomWord {
    fn load(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
    fn store(&self, value: u64) {
        self.0.store(value, Ordering::SeqCst);
    }
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.0
            .compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst)
    }
    fn fence() {
        fence(Ordering::SeqCst);
    }
    fn fence_after_exchange() {
        fence(Ordering::SeqCst);
    }
}

/// L, G and U of one client, all granted.
struct Line {
    ledger: LoomWord,
    granted: LoomWord,
    used: LoomWord,
}

impl Line {
    fn granted(bytes: u64) -> Arc<Self> {
        let word = |value| LoomWord(AtomicU64::new(value));
        Arc::new(Self {
            ledger: word(bytes),
            granted: word(bytes),
            used: word(0),
        })
    }
}

#[test]
fn a_charge_and_a_lowering_never_both_succeed() {
    loom::model(|| {
        let line = Line::granted(5);
        let client = {
            let line = line.clone();
            thread::spawn(move || charge(&line.used, &line.granted, 3) == Charged::Done)
        };
        let is_lowered = lower(&line.ledger, &line.granted, &line.used, 2) == Lowered::Done;
        let is_charged = client.join().expect("the client");
        assert!(!(is_lowered && is_charged), "3 of 5 used and 3 of 5 given away");
        assert_eq!(line.granted.load(), line.ledger.load());
        assert_eq!(line.used.load(), if is_charged { 3 } else { 0 });
    });
}

#[test]
fn what_was_lowered_goes_to_a_sibling_once() {
    loom::model(|| {
        let (line, sibling) = (Line::granted(5), Line::granted(0));
        let client = {
            let line = line.clone();
            thread::spawn(move || charge(&line.used, &line.granted, 3) == Charged::Done)
        };
        let other = {
            let sibling = sibling.clone();
            thread::spawn(move || charge(&sibling.used, &sibling.granted, 3) == Charged::Done)
        };
        if lower(&line.ledger, &line.granted, &line.used, 2) == Lowered::Done {
            raise(&sibling.ledger, &sibling.granted, 3);
        }
        let both = client.join().expect("the client") && other.join().expect("the sibling");
        assert!(!both, "two charges of 3 under a limit of 5");
        assert!(line.ledger.load() + sibling.ledger.load() <= 5);
    });
}

#[test]
fn two_threads_of_one_client_and_a_lowering() {
    loom::model(|| {
        let line = Line::granted(5);
        let threads: Vec<_> = [3, 2]
            .into_iter()
            .map(|bytes| {
                let line = line.clone();
                thread::spawn(move || {
                    let is_done = charge(&line.used, &line.granted, bytes) == Charged::Done;
                    if is_done { bytes } else { 0 }
                })
            })
            .collect();
        let is_lowered = lower(&line.ledger, &line.granted, &line.used, 3) == Lowered::Done;
        let held: u64 = threads.into_iter().map(|thread| thread.join().expect("a thread")).sum();
        assert!(
            held <= line.ledger.load(),
            "{held} allocated under {}",
            line.ledger.load()
        );
        assert!(!is_lowered || line.ledger.load() == 3);
        assert_eq!(line.used.load(), held);
    });
}

#[test]
fn a_refund_lets_a_lowering_through_or_not_and_nothing_drifts() {
    loom::model(|| {
        let line = Line::granted(5);
        assert_eq!(charge(&line.used, &line.granted, 4), Charged::Done);
        let client = {
            let line = line.clone();
            thread::spawn(move || {
                refund(&line.used, 4).expect("it was charged");
                charge(&line.used, &line.granted, 5) == Charged::Done
            })
        };
        let is_lowered = lower(&line.ledger, &line.granted, &line.used, 0) == Lowered::Done;
        let is_charged = client.join().expect("the client");
        assert!(!(is_lowered && is_charged));
        assert_eq!(line.used.load(), if is_charged { 5 } else { 0 });
    });
}

#[test]
fn a_freeze_leaves_what_was_charged_and_nothing_more() {
    loom::model(|| {
        let line = Line::granted(5);
        assert_eq!(charge(&line.used, &line.granted, 1), Charged::Done);
        let client = {
            let line = line.clone();
            thread::spawn(move || {
                if charge(&line.used, &line.granted, 3) == Charged::Done {
                    4
                } else {
                    1
                }
            })
        };
        freeze(&line.ledger, &line.granted, &line.used);
        let held = client.join().expect("the client");
        assert!(
            held <= line.ledger.load(),
            "{held} allocated under {}",
            line.ledger.load()
        );
        assert_eq!(line.granted.load(), 0);
    });
}

#[test]
fn what_is_charged_while_a_client_leaves_counts_as_owed() {
    loom::model(|| {
        let line = Line::granted(5);
        let word = |value| LoomWord(AtomicU64::new(value));
        let (overhead, owed) = (word(1), word(0));
        assert_eq!(charge(&line.used, &line.granted, 1), Charged::Done);
        let client = {
            let line = line.clone();
            thread::spawn(move || charge(&line.used, &line.granted, 3) == Charged::Done)
        };
        let left = leave(&line.ledger, Some(&line.granted), Some(&line.used), &overhead, &owed);
        let is_charged = client.join().expect("the client");
        let held = if is_charged { 4 } else { 1 };
        assert!(held < left, "{held} and 1 of overhead left, {left} are owed");
        assert_eq!((line.ledger.load(), overhead.load(), line.granted.load()), (0, 0, 0));
        assert_eq!(owed.load(), left);
    });
}

#[test]
fn what_came_back_may_use_what_the_ledger_says_and_no_more() {
    loom::model(|| {
        let word = |value| LoomWord(AtomicU64::new(value));
        let (line, owed, overhead) = (Line::granted(0), word(4), word(0));
        // It had 3, and the driver 1 beyond them; 1 of the ledger is slack.
        line.used.store(3);
        line.ledger.store(5);
        let client = {
            let line = line.clone();
            thread::spawn(move || {
                let is_charged = charge(&line.used, &line.granted, 1) == Charged::Done;
                // A grant is never seen before the ledger covers it.
                assert!(!is_charged || line.ledger.load() >= 4);
                is_charged || charge(&line.used, &line.granted, 2) == Charged::Done
            })
        };
        return_to(&line.ledger, &owed);
        came_back(&line.ledger, Some(&line.granted), Some(&line.used), &overhead, &owed);
        let _is_charged = client.join().expect("the client");
        assert_eq!((owed.load(), overhead.load()), (0, 1));
        assert!(line.used.load() + overhead.load() <= line.ledger.load());
    });
}

/// loom can see a missing barrier: a broker that does not fence between its store and its load.
struct Unfenced(LoomWord);

impl Word for Unfenced {
    fn load(&self) -> u64 {
        self.0.0.load(Ordering::Relaxed)
    }
    fn store(&self, value: u64) {
        self.0.0.store(value, Ordering::Relaxed);
    }
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.0
            .0
            .compare_exchange(current, new, Ordering::Relaxed, Ordering::Relaxed)
    }
    fn fence() {}
    fn fence_after_exchange() {}
}

#[test]
#[should_panic(expected = "given away")]
fn without_barriers_it_breaks() {
    loom::model(|| {
        let word = |value| Arc::new(Unfenced(LoomWord(AtomicU64::new(value))));
        let (ledger, granted, used) = (word(5), word(5), word(0));
        let client = {
            let (granted, used) = (granted.clone(), used.clone());
            thread::spawn(move || charge(&*used, &*granted, 3) == Charged::Done)
        };
        let is_lowered = lower(&*ledger, &*granted, &*used, 2) == Lowered::Done;
        let is_charged = client.join().expect("the client");
        assert!(!(is_lowered && is_charged), "3 of 5 used and 3 of 5 given away");
    });
}
