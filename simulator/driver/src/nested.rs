// SPDX-License-Identifier: Apache-2.0
//! Calls made inside of a call of the same thread: by a signal handler that interrupted it, or by the destructor of a
//! user object. The interrupted call may hold any lock of the driver, which its thread would wait for without end, so
//! such a call is refused with NOT_PERMITTED, as calls of host functions are. What only reads constants goes on.

use std::cell::Cell;

thread_local! {
    static IS_CALLING: Cell<bool> = const { Cell::new(false) };
}

/// A call is under way until this is dropped.
pub struct Call {
    is_outer: bool,
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.is_outer {
            IS_CALLING.set(false);
        }
    }
}

/// A call begins; `None` for one that is to be refused.
#[inline]
pub fn begin(takes_locks: bool) -> Option<Call> {
    let is_outer = !IS_CALLING.replace(true);
    (is_outer || !takes_locks).then_some(Call { is_outer })
}

/// Whether a function takes any lock: the few that do not tell constants.
pub const fn takes_locks(symbol: &str) -> bool {
    let constants = ["cuGetErrorName", "cuGetErrorString", "cuDriverGetVersion"];
    let mut at = 0;
    while at < constants.len() {
        if is_same(symbol.as_bytes(), constants[at].as_bytes()) {
            return false;
        }
        at += 1;
    }
    true
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}
