// SPDX-License-Identifier: Apache-2.0
//! The right to call. The call that a signal handler interrupts may hold a lock of this library, and a forked child may
//! lack the thread that does: neither may wait for it, so both are refused.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::status::{Outcome, Status};

thread_local! {
    static IS_CALLING: Cell<bool> = const { Cell::new(false) };
}

static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// A call is under way until this is dropped.
pub struct Turn(());

impl Drop for Turn {
    fn drop(&mut self) {
        IS_CALLING.set(false);
    }
}

/// A call begins: EXECUTION_FAILED inside of another one of the same thread, NOT_INITIALIZED in a forked child.
pub fn begin() -> Outcome<Turn> {
    if IS_FORKED.load(Ordering::Relaxed) {
        return Err(Status::NOT_INITIALIZED);
    }
    if IS_CALLING.replace(true) {
        return Err(Status::EXECUTION_FAILED);
    }
    Ok(Turn(()))
}

/// From here on a child that is forked is refused: this process uses the driver.
pub fn watch_forks() {
    extern "C" fn in_child() {
        IS_FORKED.store(true, Ordering::Relaxed);
    }
    // SAFETY: the handler only stores to a static.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_inside_of_a_call_is_refused_and_one_after_it_is_not() {
        let outer = begin().ok();
        assert_eq!(begin().err(), Some(Status::EXECUTION_FAILED));
        assert!(std::thread::spawn(|| begin().is_ok()).join().expect("no panic"));
        drop(outer);
        assert!(begin().is_ok());
    }
}
