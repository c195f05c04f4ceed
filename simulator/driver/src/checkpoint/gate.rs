// SPDX-License-Identifier: Apache-2.0
//! Where calls stop while the process is locked or checkpointed.
//!
//! A call is counted in before it looks whether the gate is closed, and the thread that locks closes the gate before it
//! looks at the count: one of the two sees the other. A call that finds the gate closed is counted out again and waits.
//! Calls made inside of a call, and by host functions on the driver's own threads, pass: the lock waits for the outer
//! one anyway.
//!
//! | call | gate open | closed | and the process is away |
//! |---|---|---|---|
//! | that changes a device | counted | waits | waits |
//! | that synchronises | counted | goes on *frozen*: gives nothing back | waits, or ends the process (below) |
//! | that asks | goes on | goes on | goes on, and waits where it needs the machine |
//!
//! At some levels a synchronise that is a thread's first call while the process is away ends it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use partage_machine::faults::CheckpointFault;

use super::Class;
use crate::executor::place::is_worker;
use crate::state::driver;

static IS_CLOSED: AtomicBool = AtomicBool::new(false);
static INSIDE: AtomicU64 = AtomicU64::new(0);
/// The number of the checkpoint while the process is away; 0 while it is not.
static AWAY: AtomicU64 = AtomicU64::new(0);
/// Whether a synchronise that is a thread's first call while the process is away ends it.
static IS_DEADLY: AtomicBool = AtomicBool::new(false);
/// Held to wait for one of the three, and to change what is waited for.
static TURN: Mutex<()> = Mutex::new(());
static OPENED: Condvar = Condvar::new();
static LEFT: Condvar = Condvar::new();

thread_local! {
    /// A call of this thread is under way.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
    /// It began while the gate was closed.
    static IS_FROZEN: Cell<bool> = const { Cell::new(false) };
    /// The last checkpoint during which this thread has called.
    static CALLED_DURING: Cell<u64> = const { Cell::new(0) };
}

/// A call is under way until this is dropped.
pub struct Inside {
    is_frozen: bool,
}

impl Drop for Inside {
    fn drop(&mut self) {
        if self.is_frozen {
            IS_FROZEN.set(false);
        } else {
            IS_INSIDE.set(false);
            leave();
        }
    }
}

/// A call begins. It waits here if it may change a device of a process that is locked.
#[inline]
pub fn enter(class: Class) -> Option<Inside> {
    if class == Class::Asks {
        note_call();
        return None;
    }
    // Without a driver, and in a forked child, every call answers by itself.
    if driver().is_err() || IS_INSIDE.get() || is_worker() {
        return None;
    }
    loop {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        if !IS_CLOSED.load(Ordering::SeqCst) {
            IS_INSIDE.set(true);
            return Some(Inside { is_frozen: false });
        }
        leave();
        if class == Class::Synchronises {
            if AWAY.load(Ordering::SeqCst) == 0 {
                IS_FROZEN.set(true);
                return Some(Inside { is_frozen: true });
            }
            end_if_first();
            wait_until_back();
        } else {
            note_call();
            wait_until_open();
        }
    }
}

/// Whether the call that this thread is in began while the gate was closed: it changes nothing.
pub fn is_frozen() -> bool {
    IS_FROZEN.get()
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

/// The process is away from here on. Precondition: the gate is closed.
pub fn set_away(is_deadly: bool) {
    static LAST: AtomicU64 = AtomicU64::new(0);
    IS_DEADLY.store(is_deadly, Ordering::SeqCst);
    AWAY.store(LAST.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
}

/// The process is back, and locked.
pub fn set_back() {
    let _turn = turn();
    AWAY.store(0, Ordering::SeqCst);
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

/// This thread has called, if the process is away.
#[inline]
fn note_call() {
    let away = AWAY.load(Ordering::SeqCst);
    if away != 0 {
        CALLED_DURING.set(away);
    }
}

/// Ends the process as a real driver does, which reaches for what it has given up.
#[cold]
fn end_if_first() {
    let away = AWAY.load(Ordering::SeqCst);
    let is_first = CALLED_DURING.replace(away) != away;
    let is_spared = driver().is_ok_and(|driver| driver.faults.has(CheckpointFault::Spared));
    if away != 0 && is_first && IS_DEADLY.load(Ordering::SeqCst) && !is_spared {
        // SAFETY: what an access to unmapped memory does: the signal cannot be blocked, and where a handler comes back
        // from it the access is repeated. The set lives during the calls.
        unsafe {
            let mut access: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut access);
            libc::sigaddset(&mut access, libc::SIGSEGV);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &access, std::ptr::null_mut());
            loop {
                libc::raise(libc::SIGSEGV);
            }
        }
    }
}

#[cold]
fn wait_until_open() {
    let mut turn = turn();
    while IS_CLOSED.load(Ordering::SeqCst) {
        turn = OPENED.wait(turn).unwrap_or_else(PoisonError::into_inner);
    }
}

#[cold]
fn wait_until_back() {
    let mut turn = turn();
    while AWAY.load(Ordering::SeqCst) != 0 {
        turn = OPENED.wait(turn).unwrap_or_else(PoisonError::into_inner);
    }
}

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
