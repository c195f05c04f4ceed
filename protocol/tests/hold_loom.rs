// SPDX-License-Identifier: Apache-2.0
//! The hold under loom: calls against a broker that closes it, and a library that finds a thread outside. As for the
//! gate, the broker's membarrier makes the client's compiler fence act as a full one, which is how it stands here.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p partage-protocol --release --test hold_loom`
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use loom::thread;
use partage_protocol::gate::{HELD, OPEN, Word, enter_shortly as launch_shortly, leave as launched, name};
use partage_protocol::hold::{
    Entered, FENCED, HARD, SOFT, close_hard, close_parked, close_softly, enter, enter_nvml, enter_shortly, is_closed,
    is_parked, leave, open,
};

struct LoomWord(AtomicU32);

impl Word for LoomWord {
    fn load(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }
    fn store(&self, value: u32) {
        self.0.store(value, Ordering::Release);
    }
    fn light() {
        fence(Ordering::SeqCst);
    }
    fn full() {
        fence(Ordering::SeqCst);
    }
}

fn word(value: u32) -> LoomWord {
    LoomWord(AtomicU32::new(value))
}

/// A thread's place, the hold, and the gate of its device.
struct Page {
    hold: LoomWord,
    inside: LoomWord,
    out: LoomWord,
    slot: LoomWord,
    gate: LoomWord,
    flags: LoomWord,
    /// The driver has the call.
    has_called: AtomicBool,
}

impl Page {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            hold: word(0),
            inside: word(0),
            out: word(0),
            slot: word(0),
            gate: word(OPEN),
            flags: word(0),
            has_called: AtomicBool::new(false),
        })
    }

    fn call(&self, is_short: bool) -> bool {
        let has_passed = if is_short {
            enter_shortly(&self.inside, &self.hold)
        } else {
            enter(&self.inside, &self.hold) == Entered::Passed
        };
        if has_passed {
            self.has_called.store(true, Ordering::Relaxed);
            leave(&self.inside);
        }
        has_passed
    }

    /// A launch: the short way, else the long one.
    fn launch(&self) -> bool {
        if launch_shortly(&self.slot, &self.gate, &self.flags, name(0)) {
            self.has_called.store(true, Ordering::Relaxed);
            launched(&self.slot);
            return true;
        }
        self.call(false)
    }

    /// As the broker does it: the flag for launches, the word, the heavy barrier.
    fn close(&self) -> u32 {
        self.flags.store(HELD);
        let closed = close_softly(&self.hold);
        LoomWord::full();
        closed
    }

    fn is_inside(&self, closed: u32) -> bool {
        (self.inside.load() | self.slot.load()) != 0 && self.out.load() != closed
    }
}

/// What the broker does not see inside has called, or never will while the hold is closed.
fn nothing_passes_unseen(act: fn(&Page) -> bool) {
    loom::model(move || {
        let page = Page::new();
        let client = {
            let page = page.clone();
            thread::spawn(move || act(&page))
        };
        let closed = page.close();
        let is_clear = !page.is_inside(closed);
        let had_called = page.has_called.load(Ordering::Relaxed);
        let has_passed = client.join().expect("the client");
        assert!(!is_clear || had_called == has_passed, "a call that nobody saw");
    });
}

#[test]
fn after_closing_what_passed_shows_or_has_called() {
    nothing_passes_unseen(|page| page.call(false));
    nothing_passes_unseen(|page| page.call(true));
}

#[test]
fn after_closing_what_launched_shows_or_has_launched() {
    nothing_passes_unseen(Page::launch);
}

#[test]
fn after_parking_what_looked_shows_or_has_ended() {
    loom::model(|| {
        let page = Page::new();
        let client = {
            let page = page.clone();
            thread::spawn(move || {
                let has_passed = enter_nvml(&page.inside, &page.hold) == Entered::Passed;
                if has_passed {
                    page.has_called.store(true, Ordering::Relaxed);
                    leave(&page.inside);
                }
                has_passed
            })
        };
        close_parked(&page.hold);
        // The library's own thread, once it was told to park.
        LoomWord::full();
        let is_clear = page.inside.load() == 0;
        let had_called = page.has_called.load(Ordering::Relaxed);
        let has_passed = client.join().expect("the client");
        assert!(!is_clear || had_called == has_passed, "a call that nobody saw");
    });
}

#[test]
fn a_thread_that_was_found_outside_is_seen_when_it_comes_in_under_another_word() {
    loom::model(|| {
        let page = Page::new();
        // It left a call by a jump.
        page.inside.store(1);
        let first = page.close();
        let library = {
            let page = page.clone();
            // It was seen outside while the hold said `first`; the library is slow to say so.
            thread::spawn(move || page.out.store(first))
        };
        let client = {
            let page = page.clone();
            thread::spawn(move || page.call(true))
        };
        open(&page.hold);
        let second = page.close();
        let is_clear = !page.is_inside(second);
        let had_called = page.has_called.load(Ordering::Relaxed);
        let has_passed = client.join().expect("the client");
        library.join().expect("the library");
        assert!(!is_clear || had_called == has_passed, "a call that nobody saw");
    });
}

#[test]
fn a_thread_at_the_hold_sees_that_it_opens() {
    loom::model(|| {
        let page = Page::new();
        page.close();
        let broker = {
            let page = page.clone();
            thread::spawn(move || open(&page.hold))
        };
        let entered = enter(&page.inside, &page.hold);
        let now = broker.join().expect("the broker");
        match entered {
            Entered::Passed => leave(&page.inside),
            // It would sleep on another word than the one that stands there: a futex returns at once.
            Entered::Held(word) => assert!(is_closed(word) && word != now),
        }
        assert!(page.call(false));
    });
}

#[test]
fn each_change_is_another_word_and_the_fence_stays() {
    loom::model(|| {
        let hold = word(FENCED);
        let mut seen = vec![hold.load()];
        for _ in 0..3 {
            seen.push(close_softly(&hold));
            assert_eq!(hold.load() & (SOFT | HARD), SOFT);
            seen.push(close_hard(&hold));
            assert_eq!(hold.load() & (SOFT | HARD), HARD);
            assert!(!is_parked(hold.load()));
            seen.push(close_parked(&hold));
            assert!(is_parked(hold.load()));
            seen.push(open(&hold));
            assert!(!is_closed(hold.load()));
        }
        assert!(seen.iter().all(|word| word & FENCED != 0));
        assert!(
            !enter_shortly(&word(0), &hold),
            "without membarrier the short way is closed"
        );
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 13);
    });
}
