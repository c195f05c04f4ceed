// SPDX-License-Identifier: Apache-2.0
//! A lock that is taken even when its last holder panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
