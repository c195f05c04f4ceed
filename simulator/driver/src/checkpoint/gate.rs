// SPDX-License-Identifier: Apache-2.0
//! Where calls stop while the process is locked.
//!
//! A call is counted in before it looks whether the gate is closed, and the thread that locks closes the gate before it
//! looks at the count: one of the two sees the other. A call that finds the gate closed is counted out again and waits.
//! Calls made inside of a call, and by host functions on the driver's own threads, pass: the lock waits for the outer
//! one anyway.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::Class;
use crate::executor::place::is_worker;
use crate::state::driver;

static IS_CLOSED: AtomicBool = AtomicBool::new(false);
static INSIDE: AtomicU64 = AtomicU64::new(0);
/// Held to wait for one of the two, and to change what is waited for.
static TURN: Mutex<()> = Mutex::new(());
static OPENED: Condvar = Condvar::new();
static LEFT: Condvar = Condvar::new();

thread_local! {
    /// A call of this thread is under way.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A call is under way until this is dropped.
pub struct Inside(());

impl Drop for Inside {
    fn drop(&mut self) {
        IS_INSIDE.set(false);
        leave();
    }
}

/// A call begins. It waits here if it may change a device of a process that is locked.
#[inline]
pub fn enter(class: Class) -> Option<Inside> {
    // Without a driver, and in a forked child, every call answers by itself.
    if class != Class::Changes || driver().is_err() || IS_INSIDE.get() || is_worker() {
        return None;
    }
    loop {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        if !IS_CLOSED.load(Ordering::SeqCst) {
            IS_INSIDE.set(true);
            return Some(Inside(()));
        }
        leave();
        wait_until_open();
    }
}

/// No call begins from here on.
pub fn close() {
    IS_CLOSED.store(true, Ordering::SeqCst);
}

/// Calls go on.
pub fn open() {
    let _turn = turn();
    IS_CLOSED.store(false, Ordering::SeqCst);
    OPENED.notify_all();
}

/// Waits until no call is under way, until `deadline`. Precondition: the gate is closed.
pub fn wait_until_empty(deadline: Option<Instant>) -> bool {
    let mut turn = turn();
    while INSIDE.load(Ordering::SeqCst) > 0 {
        turn = match deadline.map(|deadline| deadline.checked_duration_since(Instant::now())) {
            None => LEFT.wait(turn).unwrap_or_else(PoisonError::into_inner),
            Some(None) => return false,
            Some(Some(left)) => LEFT.wait_timeout(turn, left).unwrap_or_else(PoisonError::into_inner).0,
        };
    }
    true
}

fn leave() {
    if INSIDE.fetch_sub(1, Ordering::SeqCst) == 1 && IS_CLOSED.load(Ordering::SeqCst) {
        // Under the lock: the thread that waits has seen the count, or sleeps.
        let _turn = turn();
        LEFT.notify_all();
    }
}

#[cold]
fn wait_until_open() {
    let mut turn = turn();
    while IS_CLOSED.load(Ordering::SeqCst) {
        turn = OPENED.wait(turn).unwrap_or_else(PoisonError::into_inner);
    }
}

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
