// SPDX-License-Identifier: Apache-2.0
//! The gate under loom: launches against a broker that closes it. The broker's membarrier makes the client's compiler
//! fence act as a full one, which is how it stands here; a client without membarrier runs the same code with its own.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p partage-protocol --release --test gate_loom`
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use loom::thread;
use partage_protocol::gate::{Entered, MEASURED, OPEN, Word, close, enter, enter_shortly, leave, name, open};

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

struct Line {
    gate: LoomWord,
    flags: LoomWord,
    slots: [LoomWord; 2],
    /// The driver has a launch of this thread.
    has_launched: [AtomicBool; 2],
}

impl Line {
    fn new(word: u32) -> Arc<Self> {
        Arc::new(Self {
            gate: LoomWord(AtomicU32::new(word)),
            flags: LoomWord(AtomicU32::new(0)),
            slots: [LoomWord(AtomicU32::new(0)), LoomWord(AtomicU32::new(0))],
            has_launched: [AtomicBool::new(false), AtomicBool::new(false)],
        })
    }

    /// The usual way of a launch. `false`: it has to take the other.
    fn launch_shortly(&self, thread: usize) -> bool {
        let has_passed = enter_shortly(&self.slots[thread], &self.gate, &self.flags, name(0));
        if has_passed {
            self.has_launched[thread].store(true, Ordering::Relaxed);
            leave(&self.slots[thread]);
        }
        has_passed
    }

    fn launch(&self, thread: usize, is_fenced: bool) -> bool {
        match enter(&self.slots[thread], &self.gate, 0, is_fenced) {
            Entered::Passed => {
                self.has_launched[thread].store(true, Ordering::Relaxed);
                leave(&self.slots[thread]);
                true
            }
            Entered::Closed(word) => {
                assert_eq!(word & OPEN, 0);
                false
            }
        }
    }
}

/// Launches of so many threads against a broker that keeps them out by `act`: what it does not see in a slot has
/// launched, or never will.
fn nothing_passes_unseen(threads: usize, launch: fn(&Line, usize) -> bool, act: fn(&Line)) {
    loom::model(move || {
        let line = Line::new(OPEN);
        let clients: Vec<_> = (0..threads)
            .map(|thread| {
                let line = line.clone();
                thread::spawn(move || launch(&line, thread))
            })
            .collect();
        act(&line);
        LoomWord::full();
        // What the broker sees clear now stays as it is: launched before, or never.
        let seen: Vec<_> = (0..threads)
            .map(|thread| {
                let is_clear = line.slots[thread].load() == 0;
                (is_clear, line.has_launched[thread].load(Ordering::Relaxed))
            })
            .collect();
        for (thread, client) in clients.into_iter().enumerate() {
            let has_passed = client.join().expect("the client");
            let (is_clear, had_launched) = seen[thread];
            assert!(!is_clear || had_launched == has_passed, "a launch that nobody saw");
        }
    });
}

fn closes(line: &Line) {
    close(&line.gate);
}

#[test]
fn after_closing_what_passed_shows_or_has_launched() {
    nothing_passes_unseen(2, |line, thread| line.launch(thread, false), closes);
    nothing_passes_unseen(2, |line, thread| line.launch(thread, true), closes);
}

#[test]
fn after_closing_what_passed_shortly_shows_or_has_launched() {
    nothing_passes_unseen(1, Line::launch_shortly, closes);
}

#[test]
fn after_a_flag_what_passed_shortly_shows_or_has_launched() {
    nothing_passes_unseen(1, Line::launch_shortly, |line| line.flags.store(MEASURED));
}

#[test]
fn a_gate_that_opens_is_seen_by_whoever_waits_on_its_word() {
    loom::model(|| {
        let line = Line::new(0);
        let broker = {
            let line = line.clone();
            thread::spawn(move || open(&line.gate))
        };
        let is_through = line.launch(0, false);
        let word = broker.join().expect("the broker");
        assert_eq!(word & OPEN, OPEN);
        // Closed was seen with another word than the one it is now: a futex wait on it returns at once.
        assert!(is_through || line.gate.load() == word);
        assert!(line.launch(0, false));
    });
}

#[test]
fn each_change_of_the_word_is_another_word() {
    loom::model(|| {
        let word = LoomWord(AtomicU32::new(OPEN));
        let mut seen = vec![word.load()];
        for _ in 0..3 {
            seen.push(close(&word));
            seen.push(open(&word));
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 7);
    });
}
