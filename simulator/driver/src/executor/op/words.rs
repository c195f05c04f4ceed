// SPDX-License-Identifier: Apache-2.0
//! Stream memory operations: waits for, and writes of, words that devices and hosts share.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

use partage_abi::types::CuResult;

use crate::context::Context;
use crate::executor::place::{Place, settle};
use crate::memory::memory;
use crate::state::Answer;

/// How long a waiting operation sleeps between two looks, at first and at most. Nobody tells us of a write by the
/// CPU, so it has to be looked for.
const NAPS: (Duration, Duration) = (Duration::from_micros(20), Duration::from_micros(500));

/// When a wait is over (`CU_STREAM_WAIT_VALUE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Cyclic difference is not negative.
    AtLeast,
    /// Equal.
    Equal,
    /// A common bit.
    And,
    /// A bit that neither has.
    Nor,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordStep {
    /// Waits until the word fulfils a condition.
    Wait {
        /// Where.
        address: u64,
        /// Compared with this.
        value: u64,
        /// 4 or 8 bytes.
        bytes: u64,
        /// How.
        until: Until,
    },
    /// Writes a word after everything before is visible.
    Write {
        /// Where.
        address: u64,
        /// What.
        value: u64,
        /// 4 or 8 bytes.
        bytes: u64,
    },
    /// Makes earlier writes visible.
    Fence,
}

impl Until {
    /// The condition in the low bits of a call's flags.
    pub fn from_flags(flags: u32) -> Option<Self> {
        [Self::AtLeast, Self::Equal, Self::And, Self::Nor]
            .get(flags as usize & 7)
            .copied()
    }

    /// Whether `found` fulfils it.
    pub fn holds(self, found: u64, value: u64, bytes: u64) -> bool {
        match self {
            Self::AtLeast if bytes == 4 => (found as u32).wrapping_sub(value as u32) as i32 >= 0,
            Self::AtLeast => found.wrapping_sub(value) as i64 >= 0,
            Self::Equal => found == value,
            Self::And => found & value != 0,
            Self::Nor if bytes == 4 => !(found as u32 | value as u32) != 0,
            Self::Nor => !(found | value) != 0,
        }
    }
}

impl WordStep {
    /// Checks alignment and bounds. INVALID_VALUE otherwise.
    pub fn check(&self) -> Answer {
        match *self {
            Self::Wait { address, bytes, .. } | Self::Write { address, bytes, .. } => {
                if !address.is_multiple_of(bytes) {
                    return Err(CuResult::INVALID_VALUE);
                }
                match memory()?.resolve(address, bytes) {
                    Err(_) if memory()?.is_planned(address, bytes) => Ok(()),
                    reached => reached.map(drop),
                }
            }
            Self::Fence => Ok(()),
        }
    }
}

/// Carries out the steps; a failure becomes the context's. Gives up when the context ends. Returns whether it had to
/// wait: steps that do not wait take no device time, so what follows them still follows directly.
pub fn run(steps: &[WordStep], place: &mut Place<'_>) -> bool {
    let mut has_waited = false;
    for step in steps {
        match one(step, place) {
            Ok(waited) => has_waited |= waited,
            Err(_) => {
                place.context.stick(CuResult::ILLEGAL_ADDRESS);
                break;
            }
        }
    }
    has_waited
}

/// The word at an address, of 4 or 8 bytes. INVALID_VALUE where there is no memory.
fn look(address: u64, bytes: u64) -> Answer<u64> {
    let at = memory()?.resolve(address, bytes)?;
    // SAFETY: resolved and aligned; other writers use atomic words too, or race by the program's choice.
    Ok(unsafe {
        match bytes {
            4 => u64::from(AtomicU32::from_ptr(at.cast()).load(Ordering::SeqCst)),
            _ => AtomicU64::from_ptr(at.cast()).load(Ordering::SeqCst),
        }
    })
}

/// Sleeps until the word fulfils the condition or the context ends, its use included. True if it had to.
pub fn await_word(address: u64, bytes: u64, context: &Context, holds: impl Fn(u64) -> bool) -> Answer<bool> {
    let mut nap = NAPS.0;
    let mut has_waited = false;
    while !holds(look(address, bytes)?) && context.check().is_ok() {
        has_waited = true;
        std::thread::sleep(nap);
        nap = (nap * 2).min(NAPS.1);
    }
    Ok(has_waited)
}

fn one(step: &WordStep, place: &mut Place<'_>) -> Answer<bool> {
    match *step {
        WordStep::Fence => fence(Ordering::SeqCst),
        WordStep::Write { address, value, bytes } => {
            fence(Ordering::SeqCst);
            let at = memory()?.resolve(address, bytes)?;
            // SAFETY: resolved and aligned; see `look`.
            unsafe {
                match bytes {
                    4 => AtomicU32::from_ptr(at.cast()).store(value as u32, Ordering::SeqCst),
                    _ => AtomicU64::from_ptr(at.cast()).store(value, Ordering::SeqCst),
                }
            }
        }
        WordStep::Wait {
            address,
            value,
            bytes,
            until,
        } => {
            if until.holds(look(address, bytes)?, value, bytes) {
                return Ok(false);
            }
            settle(place.transit);
            return await_word(address, bytes, place.context, |found| until.holds(found, value, bytes));
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_as_the_manual_defines_them() {
        assert!(Until::AtLeast.holds(5, 5, 4) && Until::AtLeast.holds(6, 5, 4) && !Until::AtLeast.holds(4, 5, 4));
        assert!(Until::AtLeast.holds(1, 0xffff_ffff, 4), "the comparison is cyclic");
        assert!(
            !Until::AtLeast.holds(1, 0xffff_ffff, 8),
            "with as many bits as the word has"
        );
        assert!(Until::Equal.holds(7, 7, 8) && !Until::Equal.holds(7, 8, 8));
        assert!(Until::And.holds(6, 2, 4) && !Until::And.holds(6, 1, 4));
        assert!(Until::Nor.holds(1, 2, 4) && !Until::Nor.holds(0xffff_0000, 0x0000_ffff, 4));
        assert_eq!(Until::from_flags(4), None);
    }
}
