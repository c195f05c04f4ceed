// SPDX-License-Identifier: Apache-2.0
//! Exhaustive search of the pool account: every interleaving of threads that allocate from, free to, trim and look at
//! one pool, one step for each access to U, to the account (under its lock) and to the driver.
//!
//! Amounts are in granules of 512 bytes. The pool is a driver's: it hands out what is free or grows in whole steps, and
//! where both are possible (what is free may be in pieces, or another stream's) both are followed.

use std::collections::HashSet;

use partage_protocol::pool::{GRANULE, LARGEST_STEP, PoolAccount, Settled, Ticket};

const THREADS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Op {
    /// Allocates so many granules, as the interposer does.
    Allocate(u64),
    /// The same without a reservation: the pool looks as if it could serve it.
    AllocateUnreserved(u64),
    /// The driver refuses, and gives back what the pool keeps.
    AllocateInVain(u64),
    /// Frees what this thread allocated last; nobody looks after it.
    Free,
    /// Gives back what the pool keeps, and looks.
    Trim,
}

/// Where a thread is in its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Start,
    Charged(u64),
    Begun(Ticket, u64),
    /// The driver was called; what it answered is to be read.
    Called(Ticket, u64, bool),
    Read(Ticket, u64, bool, u64),
    /// The driver was called, and handed out memory that it had, up to there in the pool.
    Known(Ticket, u64, u64),
    /// U has to fall.
    Less(u64),
    /// U has to rise.
    More(Ticket, u64),
    /// U has risen.
    Raised(Ticket, u64),
    /// It could not: what was allocated is freed and the pool trimmed.
    Undo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Thread {
    next: usize,
    at: At,
    held: u64,
    is_denied: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    account: PoolAccount,
    used_word: u64,
    real: u64,
    used: u64,
    threads: [Thread; THREADS],
    is_above: bool,
}

struct Scenario {
    programs: [&'static [Op]; THREADS],
    /// What the pool grows by, a whole number of times.
    step: u64,
    limit: u64,
    /// Every thread reserves whole steps: what an account that has learned them does.
    knows_step: bool,
    /// How the account settles.
    settle: fn(&mut PoolAccount, &mut Ticket, u64, u64, u64, bool) -> Settled,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            programs: [&[]; THREADS],
            step: GRANULE,
            limit: 100 * GRANULE,
            knows_step: true,
            settle: PoolAccount::settle,
        }
    }
}

impl Scenario {
    fn successors(&self, state: &State) -> Vec<State> {
        let mut all = Vec::new();
        for index in 0..THREADS {
            let thread = state.threads[index];
            let Some(op) = self.programs[index].get(thread.next) else {
                continue;
            };
            self.step_thread(state, index, *op, &mut all);
        }
        all
    }

    fn step_thread(&self, state: &State, index: usize, op: Op, all: &mut Vec<State>) {
        let mut next = *state;
        let thread = &mut next.threads[index];
        let reserved_by = |bytes: u64| {
            if self.knows_step {
                bytes.next_multiple_of(self.step)
            } else {
                state.account.to_reserve(bytes)
            }
        };
        let done = |thread: &mut Thread| {
            thread.at = At::Start;
            thread.next += 1;
        };
        match (thread.at, op) {
            (At::Start, Free) => {
                next.used -= thread.held;
                thread.held = 0;
                done(thread);
            }
            (At::Start, Trim) => thread.at = At::Begun(state.account.look(), 0),
            (At::Start, AllocateUnreserved(_)) => thread.at = At::Begun(next.account.begin(0), 0),
            (At::Start, Allocate(granules) | AllocateInVain(granules)) => {
                let reserved = reserved_by(granules * GRANULE);
                if next.used_word + reserved > self.limit {
                    thread.is_denied = true;
                    done(thread);
                } else {
                    next.used_word += reserved;
                    thread.at = At::Charged(reserved);
                }
            }
            (At::Charged(reserved), _) => thread.at = At::Begun(next.account.begin(reserved), reserved),
            (At::Begun(ticket, reserved), Trim | AllocateInVain(_)) => {
                next.real = next.used.next_multiple_of(self.step);
                thread.at = At::Called(ticket, reserved, true);
            }
            (At::Begun(ticket, reserved), Allocate(granules) | AllocateUnreserved(granules)) => {
                let bytes = granules * GRANULE;
                thread.at = At::Called(ticket, reserved, true);
                thread.held = bytes;
                next.used += bytes;
                if next.real >= next.used {
                    all.push(next);
                    // The same, and the thread knows the memory for what it is.
                    next.threads[index].at = At::Known(ticket, reserved, next.used);
                    all.push(next);
                    next.threads[index].at = At::Called(ticket, reserved, true);
                }
                next.real += bytes.next_multiple_of(self.step);
                all.push(next);
                // Memory that was let go of unseen, and taken again: it looks as it did before.
                next.threads[index].at = At::Known(ticket, reserved, next.real);
            }
            (At::Called(ticket, reserved, may_grow), _) => {
                thread.at = At::Read(ticket, reserved, may_grow, state.real);
            }
            (At::Read(mut ticket, reserved, may_grow, reading), _) => {
                let asked = match op {
                    Allocate(granules) | AllocateUnreserved(granules) => granules * GRANULE,
                    _ => 0,
                };
                match (self.settle)(&mut next.account, &mut ticket, reserved, asked, reading, may_grow) {
                    Settled::Stale => thread.at = At::Called(ticket, reserved, may_grow),
                    Settled::Even => done(thread),
                    Settled::Less(bytes) => thread.at = At::Less(bytes),
                    Settled::More(bytes) => thread.at = At::More(ticket, bytes),
                }
            }
            (At::Known(ticket, reserved, end), _) => {
                // Known is what the last reading that was taken over showed.
                if end <= next.account.reserved() {
                    thread.at = At::Less(next.account.end_unused(reserved));
                } else {
                    thread.at = At::Called(ticket, reserved, true);
                }
            }
            (At::Less(bytes), _) => {
                next.used_word -= bytes;
                done(thread);
            }
            (At::More(ticket, bytes), _) => {
                if next.used_word + bytes > self.limit {
                    next.account.disown(bytes);
                    thread.at = At::Undo;
                } else {
                    next.used_word += bytes;
                    thread.at = At::Raised(ticket, bytes);
                }
            }
            (At::Raised(mut ticket, bytes), _) => {
                if next.account.own(&mut ticket, bytes) {
                    done(thread);
                } else {
                    thread.at = At::Called(ticket, 0, true);
                }
            }
            (At::Undo, _) => {
                next.used -= thread.held;
                thread.held = 0;
                next.is_above = true;
                next.real = next.used.next_multiple_of(self.step);
                thread.at = At::Called(next.account.look(), 0, false);
            }
            (at, Free) => unreachable!("{at:?}"),
        }
        all.push(next);
    }

    /// Visits every state; the first in which `holds` says no is answered, with the way there.
    fn search(&self, holds: impl Fn(&State, bool) -> Result<(), String>) -> Result<usize, String> {
        let thread = Thread {
            next: 0,
            at: At::Start,
            held: 0,
            is_denied: false,
        };
        let first = State {
            account: PoolAccount::default(),
            used_word: 0,
            real: 0,
            used: 0,
            threads: [thread; THREADS],
            is_above: false,
        };
        // Every state with the place of the one before it.
        let mut all = vec![(first, 0)];
        let mut seen = HashSet::from([first]);
        let mut open = vec![0];
        while let Some(place) = open.pop() {
            let state = all[place].0;
            let successors = self.successors(&state);
            if let Err(why) = holds(&state, successors.is_empty()) {
                let back = std::iter::successors(Some(place), |place| Some(all[*place].1).filter(|_| *place > 0));
                let mut steps: Vec<_> = back.map(|place| format!("{:?}", all[place].0)).collect();
                steps.reverse();
                return Err(format!("{why}\n{}", steps.join("\n")));
            }
            for next in successors {
                if seen.insert(next) {
                    open.push(all.len());
                    all.push((next, place));
                }
            }
        }
        Ok(seen.len())
    }
}

/// What holds whenever no call grows the pool by more than it reserved.
fn covered(state: &State, is_end: bool) -> Result<(), String> {
    if state.account.charged() < state.real {
        return Err(format!("{} charged, {} real", state.account.charged(), state.real));
    }
    exact_at_the_end(state, is_end)
}

/// What holds always: with nothing under way, U, A and the pool agree.
fn exact_at_the_end(state: &State, is_end: bool) -> Result<(), String> {
    let charged = state.account.charged();
    if is_end && (charged != state.real || state.used_word != charged || !state.account.is_at_rest()) {
        return Err(format!("U {}, A {charged}, real {}", state.used_word, state.real));
    }
    Ok(())
}

use Op::{Allocate, AllocateInVain, AllocateUnreserved, Free, Trim};

#[test]
fn three_threads_that_allocate_free_and_trim_are_covered_at_every_instant() {
    for step in [1, 2, 3] {
        let scenario = Scenario {
            programs: [
                &[Allocate(2), Free, Trim],
                &[Allocate(1), Free, Allocate(3)],
                &[Allocate(2), Trim],
            ],
            step: step * GRANULE,
            ..Scenario::default()
        };
        let states = scenario
            .search(covered)
            .unwrap_or_else(|why| panic!("step {step}: {why}"));
        assert!(states > 10_000, "only {states} states");
    }
}

#[test]
fn calls_that_the_driver_refuses_leave_nothing_behind() {
    let scenario = Scenario {
        programs: [
            &[Allocate(2), Free, AllocateInVain(4)],
            &[AllocateInVain(1), Allocate(1)],
            &[Allocate(3), Free, Trim],
        ],
        step: 2 * GRANULE,
        ..Scenario::default()
    };
    // The last free may come after every look: what it frees stays in the pool, and in both figures.
    scenario.search(covered).unwrap();
}

#[test]
fn a_pool_that_grows_by_more_than_was_asked_is_exact_at_rest() {
    let scenario = Scenario {
        programs: [
            &[Allocate(1), Free, Trim],
            &[Allocate(1), Allocate(2)],
            &[AllocateUnreserved(1)],
        ],
        step: 4 * GRANULE,
        knows_step: false,
        ..Scenario::default()
    };
    scenario.search(exact_at_the_end).unwrap();
}

#[test]
fn at_the_limit_nothing_is_charged_beyond_it_and_what_fits_is_not_denied() {
    // Limit 4: two of 2 fit whatever the order, because what has grown already is not counted twice.
    let scenario = Scenario {
        programs: [&[Allocate(2)], &[Allocate(2)], &[Trim]],
        step: 2 * GRANULE,
        limit: 4 * GRANULE,
        ..Scenario::default()
    };
    scenario
        .search(|state, is_end| {
            if state.threads.iter().any(|thread| thread.is_denied) || state.is_above {
                return Err("a fitting request was denied".into());
            }
            covered(state, is_end)
        })
        .unwrap();
}

#[test]
fn growth_that_the_limit_does_not_allow_is_undone() {
    let scenario = Scenario {
        programs: [
            &[Allocate(1), Free],
            &[AllocateUnreserved(2), Free, Trim],
            &[Allocate(2), Free, Trim],
        ],
        step: 2 * GRANULE,
        limit: 4 * GRANULE,
        knows_step: false,
        ..Scenario::default()
    };
    scenario
        .search(|state, is_end| {
            if state.used_word > scenario.limit {
                return Err(format!("U {} above the limit", state.used_word));
            }
            // Growth that was undone may have been somebody else's at the same time: A is then below what is real, by
            // no more than U leaves of the limit, until the next look.
            if state.is_above {
                let is_even = !is_end || state.used_word == state.account.charged();
                return is_even.then_some(()).ok_or_else(|| "U differs from A".into());
            }
            exact_at_the_end(state, is_end)
        })
        .unwrap();
}

/// The search can fail: an account that takes over whatever it read is caught.
#[test]
fn an_account_that_believes_old_readings_is_caught() {
    let scenario = Scenario {
        programs: [&[Allocate(2)], &[Allocate(2)], &[]],
        settle: |account, ticket, reserved, asked, reading, may_grow| {
            if account.settle(ticket, reserved, asked, reading, may_grow) == Settled::Stale {
                return account.settle(ticket, reserved, asked, reading, may_grow);
            }
            Settled::Even
        },
        ..Scenario::default()
    };
    assert!(scenario.search(covered).is_err());
}

/// The search can fail: without the bound by what was reserved, growth under way is counted twice.
#[test]
fn an_account_that_counts_growth_twice_is_caught() {
    let scenario = Scenario {
        programs: [&[Allocate(2)], &[Allocate(2)], &[]],
        settle: |account, ticket, reserved, asked, reading, may_grow| {
            let pending = account.charged().saturating_sub(reserved);
            account.settle(ticket, reserved, asked, reading + pending, may_grow)
        },
        step: 2 * GRANULE,
        limit: 4 * GRANULE,
        ..Scenario::default()
    };
    let found = scenario.search(|state, is_end| {
        if state.is_above {
            return Err("a fitting request was denied".into());
        }
        exact_at_the_end(state, is_end)
    });
    assert!(found.is_err());
}

#[test]
fn the_step_is_learned_from_a_call_that_was_alone() {
    let mut account = PoolAccount::default();
    assert_eq!(account.to_reserve(1), GRANULE);
    let mut alone = |asked: u64, reading: u64| {
        let reserved = account.to_reserve(asked);
        let mut ticket = account.begin(reserved);
        let settled = account.settle(&mut ticket, reserved, asked, reading, true);
        (settled, account)
    };
    let (settled, after) = alone(GRANULE, 32 << 20);
    assert_eq!(settled, Settled::More((32 << 20) - GRANULE));
    assert_eq!(after.to_reserve(1), 32 << 20);
    assert!(!after.grows_in_larger_steps(GRANULE), "seen once");
    let (settled, after) = alone(GRANULE, 64 << 20);
    assert_eq!(settled, Settled::Even);
    assert!(after.grows_in_larger_steps(GRANULE), "seen twice");
    assert!(!after.grows_in_larger_steps(32 << 20));
    let (settled, after) = alone(GRANULE, 64 << 20);
    assert_eq!(settled, Settled::Less(32 << 20), "served from what was there");
    assert_eq!(after.to_reserve(1), 32 << 20, "no growth teaches nothing");
    let (_, after) = alone(300 << 20, 500 << 20);
    assert_eq!(after.to_reserve(1), LARGEST_STEP, "not more than the largest step");
}

#[test]
fn no_answer_of_a_driver_overflows() {
    for reading in [0, 1, u64::MAX - 1, u64::MAX] {
        for asked in [0, 1, u64::MAX] {
            let mut account = PoolAccount::default();
            for _ in 0..3 {
                let reserved = account.to_reserve(asked);
                let mut ticket = account.begin(reserved);
                let _ = account.settle(&mut ticket, reserved, asked, reading, true);
                account.give_up(u64::MAX);
                account.disown(u64::MAX);
                let _ = account.close(0);
            }
        }
    }
}
