// SPDX-License-Identifier: Apache-2.0
//! The right to wait for one of this library's locks. The thread that a signal handler interrupts may hold one, and a
//! forked child may lack the thread that does: neither may wait, so both are refused.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use partage_abi::types::CuResult;

static IS_FORKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static IS_TAKEN: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread may wait for a lock, and may hold it, until this is dropped. Drop it after the lock.
pub struct Turn(());

impl Drop for Turn {
    fn drop(&mut self) {
        IS_TAKEN.set(false);
    }
}

/// Begins; NOT_PERMITTED inside of another turn of the same thread, and NOT_INITIALIZED in a forked child.
pub fn begin() -> Result<Turn, CuResult> {
    if is_forked() {
        return Err(CuResult::NOT_INITIALIZED);
    }
    if IS_TAKEN.replace(true) {
        return Err(CuResult::NOT_PERMITTED);
    }
    Ok(Turn(()))
}

/// From here on a forked child is refused: this process uses the driver, which the child has not.
pub fn watch_forks() {
    extern "C" fn in_child() {
        IS_FORKED.store(true, Ordering::Relaxed);
    }
    // SAFETY: the handler only stores to a static.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

/// True in a child of a process that uses the driver.
pub fn is_forked() -> bool {
    IS_FORKED.load(Ordering::Relaxed)
}

/// A lock that a panicking thread held is as good as any: no state is half written here.
pub fn lock<'lock, T>(mutex: &'lock Mutex<T>, _turn: &'lock Turn) -> MutexGuard<'lock, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_inside_of_a_turn_is_refused_and_one_after_it_is_not() {
        let outer = begin().ok();
        assert_eq!(begin().err(), Some(CuResult::NOT_PERMITTED));
        assert!(std::thread::spawn(|| begin().is_ok()).join().expect("no panic"));
        drop(outer);
        assert!(begin().is_ok());
    }
}
