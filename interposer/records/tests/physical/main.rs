// SPDX-License-Identifier: Apache-2.0
//! The record machine of `cuMemCreate` against a model of the driver: every short history of one thread, and long
//! random histories of several threads whose calls interleave at every point between record and driver.
//!
//! Promised at every instant: what the driver holds is charged. At rest: nothing else is.

mod model;

use std::collections::BTreeMap;

use partage_records::physical::{Mapped, Physicals, Released, Unmapped};
use proptest::prelude::*;

use model::*;

#[test]
fn every_short_history_ends_with_what_the_driver_holds() {
    let mut alphabet = vec![Call::Create];
    for number in 0..2 {
        alphabet.push(Call::Release(number + 1));
        alphabet.push(Call::Retain(number));
        alphabet.push(Call::Unmap(number, 1));
        for handle in 1..3 {
            alphabet.push(Call::Map(number, handle));
        }
    }
    alphabet.push(Call::Unmap(0, 2));
    let choices = alphabet.len() * 2;
    let depth = 4;
    let mut histories = 0_u64;
    // Every history is one number in the base of the choices; the first call is a creation that succeeds.
    for number in 0..choices.pow(depth) {
        let (mut driver, mut books) = (Driver::default(), Books::default());
        call(&mut driver, &mut books, Call::Create, false);
        let mut rest = number;
        for _ in 0..depth {
            let choice = rest % choices;
            rest /= choices;
            call(&mut driver, &mut books, alphabet[choice / 2], choice % 2 == 1);
            assert_eq!(books.charged, driver.alive(), "history {number}");
            assert_eq!(books.physicals.count(), books.charged.len(), "history {number}");
        }
        histories += 1;
    }
    println!("{histories} histories");
}

/// A call of one of several threads, between its record and its end.
enum Underway {
    Create(bool),
    Created(u64, u64),
    Release(u64, Option<Released>, bool),
    Released(u64, Option<Released>, bool),
    Map(u64, u64, Mapped, bool),
    Mapped(u64, Mapped, bool),
    Unmap(u64, u64, Unmapped, bool),
    Unmapped(u64, u64, Unmapped, bool),
}

/// Threads of one program that uses a handle only while it is sure to hold it.
#[derive(Default)]
struct Threads {
    driver: Driver,
    books: Books,
    underway: BTreeMap<usize, Underway>,
    /// Holds the program knows of and has not begun to give up.
    holds: BTreeMap<u64, u64>,
}

impl Threads {
    fn begin(&mut self, call: Call, is_refused: bool) -> Option<Underway> {
        Some(match call {
            Call::Create => {
                assert!(self.books.physicals.promise());
                Underway::Create(is_refused)
            }
            Call::Release(handle) => {
                let holds = self.holds.get_mut(&handle).filter(|holds| **holds > 0)?;
                *holds -= 1;
                let released = self.books.physicals.begin_release(handle);
                Underway::Release(handle, released, is_refused)
            }
            Call::Map(index, handle) => {
                self.holds.get(&handle).filter(|holds| **holds > 0)?;
                // A program that gives up its last hold while it maps cannot know whether it may.
                let mapped = self.books.physicals.begin_map(handle);
                Underway::Map(address(index), handle, mapped, is_refused)
            }
            Call::Unmap(index, count) => {
                let unmapped = self.books.physicals.begin_unmap(address(index), count * UNIT);
                Underway::Unmap(address(index), count * UNIT, unmapped, is_refused)
            }
            Call::Retain(index) => {
                if let Some(handle) = self.driver.retain(address(index)) {
                    self.books.physicals.retained(handle, address(index));
                    *self.holds.entry(handle).or_insert(0) += 1;
                }
                return None;
            }
        })
    }

    /// The driver acts, or a call whose driver has acted ends.
    fn go_on(&mut self, underway: Underway) -> Option<Underway> {
        match underway {
            Underway::Create(true) => self.books.physicals.break_promise(),
            Underway::Create(false) => {
                let (handle, memory) = self.driver.create();
                self.books.charged.insert(memory);
                return Some(Underway::Created(handle, memory));
            }
            Underway::Created(handle, memory) => {
                let gone = self.books.physicals.created(handle, memory);
                self.books.refund(gone);
                *self.holds.entry(handle).or_insert(0) += 1;
            }
            Underway::Release(handle, released, is_refused) => {
                let is_released = !is_refused && self.driver.release(handle);
                return Some(Underway::Released(handle, released, is_released));
            }
            Underway::Released(handle, released, is_released) => {
                if !is_released {
                    // Only now does the program know that it still holds it.
                    *self.holds.entry(handle).or_insert(0) += 1;
                }
                if let Some(released) = released {
                    let gone = self.books.physicals.end_release(released, is_released);
                    self.books.refund(gone);
                }
            }
            Underway::Map(at, handle, mapped, is_refused) => {
                let is_mapped = !is_refused && self.driver.map(at, handle);
                return Some(Underway::Mapped(at, mapped, is_mapped));
            }
            Underway::Mapped(at, mapped, is_mapped) => {
                let gone = self.books.physicals.end_map(mapped, at, UNIT, is_mapped);
                self.books.refund(gone);
            }
            Underway::Unmap(at, bytes, unmapped, is_refused) => {
                let is_unmapped = !is_refused && self.driver.unmap(at, bytes);
                return Some(Underway::Unmapped(at, bytes, unmapped, is_unmapped));
            }
            Underway::Unmapped(_, _, unmapped, is_unmapped) => self.books.end_unmap(unmapped, is_unmapped),
        }
        None
    }

    /// May a thread begin this beside what is under way? A program does not use an address that another of its threads
    /// is mapping or unmapping, nor retain or release what may be gone before it looks.
    fn is_sound(&self, call: Call) -> bool {
        self.underway.values().all(|other| {
            let (start, end, is_release) = match other {
                Underway::Map(at, ..) | Underway::Mapped(at, ..) => (*at, *at + UNIT, false),
                Underway::Unmap(at, bytes, ..) => (*at, *at + bytes, false),
                // Unmapped, the range is free for whoever reserves it next; refused, nobody knows yet.
                Underway::Unmapped(_, _, _, true) => (0, 0, false),
                Underway::Unmapped(at, bytes, _, false) => (*at, *at + bytes, false),
                Underway::Release(..) => (0, 0, true),
                _ => (0, 0, false),
            };
            match call {
                Call::Map(index, _) => !(start..end).contains(&address(index)),
                Call::Unmap(index, count) => {
                    let (from, to) = (address(index), address(index) + count * UNIT);
                    to <= start || end <= from
                }
                Call::Retain(index) => !is_release && !(start..end).contains(&address(index)),
                // Whoever gives up the last hold while another thread maps may find the number given to other memory.
                Call::Release(handle) => {
                    let is_last = self.holds.get(&handle).is_none_or(|holds| *holds < 2);
                    !(is_last && matches!(other, Underway::Map(_, mapped, ..) if *mapped == handle))
                }
                Call::Create => true,
            }
        })
    }

    fn step(&mut self, thread: usize, call: Call, is_refused: bool) {
        let next = match self.underway.remove(&thread) {
            Some(underway) => self.go_on(underway),
            None if self.is_sound(call) => self.begin(call, is_refused),
            None => None,
        };
        if let Some(next) = next {
            self.underway.insert(thread, next);
        }
        let alive = self.driver.alive();
        assert!(
            alive.is_subset(&self.books.charged),
            "the driver holds {alive:?}, charged is {:?}",
            self.books.charged
        );
    }

    fn rest(&mut self) {
        while let Some(thread) = self.underway.keys().next().copied() {
            self.step(thread, Call::Create, true);
        }
        assert_eq!(self.books.charged, self.driver.alive());
    }
}

fn calls() -> impl Strategy<Value = Call> {
    prop_oneof![
        2 => Just(Call::Create),
        3 => (1..5_u64).prop_map(Call::Release),
        1 => (0..ADDRESSES).prop_map(Call::Retain),
        4 => (0..ADDRESSES, 1..5_u64).prop_map(|(index, handle)| Call::Map(index, handle)),
        3 => (0..ADDRESSES, 1..3_u64).prop_map(|(index, count)| Call::Unmap(index, count)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3 * ProptestConfig::default().cases))]

    #[test]
    fn what_the_driver_holds_is_charged_however_calls_interleave(
        steps in proptest::collection::vec((0..3_usize, calls(), proptest::bool::weighted(0.15)), 1..300)
    ) {
        let mut threads = Threads::default();
        for (thread, call, is_refused) in steps {
            threads.step(thread, call, is_refused);
        }
        threads.rest();
    }
}

#[test]
fn ten_thousand_cycles_end_at_nothing() {
    let (mut driver, mut books) = (Driver::default(), Books::default());
    for _ in 0..10_000 {
        call(&mut driver, &mut books, Call::Create, false);
        call(&mut driver, &mut books, Call::Map(0, 1), false);
        call(&mut driver, &mut books, Call::Release(1), false);
        call(&mut driver, &mut books, Call::Unmap(0, 1), false);
    }
    assert!(books.charged.is_empty());
    assert_eq!(books.physicals.count(), 0);
}

#[test]
fn many_memories_at_once_are_told_apart() {
    let mut books = Books::default();
    for number in 1..=5_000 {
        assert!(books.physicals.promise());
        books.charged.insert(number);
        assert_eq!(books.physicals.created(number, number), None);
        let mapped = books.physicals.begin_map(number);
        assert_eq!(books.physicals.end_map(mapped, BASE + number * UNIT, UNIT, true), None);
        let released = books.physicals.begin_release(number).expect("known");
        assert_eq!(
            books.physicals.end_release(released, true),
            None,
            "its mapping keeps it"
        );
    }
    let unmapped = books.physicals.begin_unmap(BASE + UNIT, 2_500 * UNIT);
    assert!(books.physicals.concerns_ours(&unmapped));
    books.end_unmap(unmapped, true);
    assert_eq!(books.charged, (2_501..=5_000).collect());
}

#[test]
fn memory_that_is_not_ours_is_followed_and_never_charged() {
    let mut books = Books::default();
    assert!(books.physicals.promise());
    books.charged.insert(1);
    assert_eq!(books.physicals.created(7, 1), None);
    // Ours, an import, ours again, side by side.
    for (index, handle) in [7, 99, 7].into_iter().enumerate() {
        let mapped = books.physicals.begin_map(handle);
        assert_eq!(
            books.physicals.end_map(mapped, BASE + index as u64 * UNIT, UNIT, true),
            None
        );
    }
    assert!(books.physicals.begin_release(99).is_none());
    let released = books.physicals.begin_release(7).expect("known");
    assert_eq!(books.physicals.end_release(released, true), None);
    let unmapped = books.physicals.begin_unmap(BASE, 3 * UNIT);
    books.end_unmap(unmapped, true);
    assert!(books.charged.is_empty(), "one call ended all three");
}

#[test]
fn an_own_export_that_comes_back_as_the_same_handle_is_held_once_more() {
    let mut books = Books::default();
    assert!(books.physicals.promise());
    books.charged.insert(1);
    assert_eq!(books.physicals.created(7, 1), None);
    books.physicals.imported(7);
    books.physicals.imported(8);
    for is_last in [false, true] {
        let released = books.physicals.begin_release(7).expect("known");
        let gone = books.physicals.end_release(released, true);
        assert_eq!(gone.is_some(), is_last);
    }
}

#[test]
fn a_host_without_memory_is_said_before_the_driver_is_called() {
    LEFT.set(1);
    let mut physicals = Physicals::<u64, HeapPages>::default();
    assert!(!physicals.promise(), "one table of two");
    LEFT.set(usize::MAX);
    assert!(physicals.promise());
    assert_eq!(physicals.created(1, 1), None);
    // A mapping that cannot be recorded does not keep its memory charged for ever.
    LEFT.set(0);
    let mapped = physicals.begin_map(1);
    assert_eq!(physicals.end_map(mapped, BASE, UNIT, true), None);
    LEFT.set(usize::MAX);
    let released = physicals.begin_release(1).expect("known");
    assert_eq!(physicals.end_release(released, true), Some(1));
}
