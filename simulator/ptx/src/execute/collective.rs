// SPDX-License-Identifier: Apache-2.0
//! Operations among the lanes of a warp: `shfl`, `vote`, `match`, `redux`, and reading the clocks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::lanes::{Inst, LANES, Lane, Lanes, NO_GUARD, Word, each_lane, handler};

/// Low bits of `x` of a shuffle; its predicate's row stands in the bits above 8, all ones for none.
pub mod shuffle_mode {
    /// From a lower lane.
    pub const UP: u64 = 0;
    /// From a higher lane.
    pub const DOWN: u64 = 1;
    /// From the lane whose number differs in the given bits.
    pub const BUTTERFLY: u64 = 2;
    /// From a chosen lane.
    pub const INDEX: u64 = 3;
}

/// `shfl`
///
/// # Safety
/// The rule on handlers in `lanes`.
pub unsafe fn shuffle(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: by contract.
    unsafe {
        let a = *lanes.row::<u32>(inst.a);
        let (b, c) = (*lanes.row::<u32>(inst.b), *lanes.row::<u32>(inst.c));
        let d = lanes.row::<u32>(inst.d);
        let mut valid = 0u32;
        each_lane(mask, |lane| {
            let (by, clamp, segment) = (b[lane] & 31, c[lane] & 31, c[lane] >> 8 & 31);
            let own = lane as u32;
            let limit = (own & segment) | (clamp & !segment);
            let (from, inside) = match inst.x & 3 {
                shuffle_mode::UP => (own.wrapping_sub(by), own as i32 - by as i32 >= limit as i32),
                shuffle_mode::DOWN => (own + by, own + by <= limit),
                shuffle_mode::BUTTERFLY => (own ^ by, own ^ by <= limit),
                _ => {
                    let chosen = (own & segment) | (by & !segment);
                    (chosen, chosen <= limit)
                }
            };
            valid |= u32::from(inside) << lane;
            (*d)[lane] = a[if inside { (from & 31) as usize } else { lane }];
        });
        let predicate = (inst.x >> 8) as u32;
        if predicate != NO_GUARD {
            lanes.set_predicate(predicate, valid, mask);
        }
    }
    true
}

/// What a vote computes, in the low bits of `x`; bit 2 negates the predicate.
pub mod vote_mode {
    /// Every lane holds.
    pub const ALL: u64 = 0;
    /// One lane holds.
    pub const ANY: u64 = 1;
    /// All lanes agree.
    pub const UNIFORM: u64 = 2;
    /// The mask of lanes that hold.
    pub const BALLOT: u64 = 3;
    /// Negate the predicate.
    pub const NEGATED: u64 = 4;
}

/// `vote`: predicate `a`; the lanes that take part are those that run it.
///
/// # Safety
/// The rule on handlers in `lanes`.
pub unsafe fn vote(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: by contract.
    unsafe {
        let flip = if inst.x & vote_mode::NEGATED != 0 { u32::MAX } else { 0 };
        let held = (lanes.predicate(inst.a) ^ flip) & mask;
        let result = match inst.x & 3 {
            vote_mode::ALL => held == mask,
            vote_mode::ANY => held != 0,
            vote_mode::UNIFORM => held == 0 || held == mask,
            _ => {
                let d = lanes.row::<u32>(inst.d);
                each_lane(mask, |lane| (*d)[lane] = held);
                return true;
            }
        };
        lanes.set_predicate(inst.d, if result { mask } else { 0 }, mask);
    }
    true
}

handler!(/// `match`: `x` is 0 for any, else 1 plus 256 times the row of the predicate of `match.all`.
    match_values, match_lanes<R: Key>);

/// A word that can be compared.
pub trait Key: Word + PartialEq {}
impl Key for u32 {}
impl Key for u64 {}

#[inline(always)]
unsafe fn match_lanes<R: Key>(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: the rule on handlers in `lanes`.
    unsafe {
        let a = *lanes.row::<R>(inst.a);
        let d = lanes.row::<u32>(inst.d);
        let equal_to = |value: R| {
            (0..LANES).fold(0, |found, lane| {
                found | u32::from(mask >> lane & 1 == 1 && a[lane] == value) << lane
            })
        };
        if inst.x & 1 == 0 {
            each_lane(mask, |lane| (*d)[lane] = equal_to(a[lane]));
            return true;
        }
        let all = equal_to(a[mask.trailing_zeros() as usize & 31]) == mask;
        each_lane(mask, |lane| (*d)[lane] = if all { mask } else { 0 });
        let predicate = (inst.x >> 8) as u32;
        if predicate != NO_GUARD {
            lanes.set_predicate(predicate, if all { mask } else { 0 }, mask);
        }
    }
    true
}

handler!(/// `redux`: combines row `a` of all lanes that run it.
    reduce, reduce_lanes<O: Reduction>);

/// A combination of two values of one type.
pub trait Reduction:
    super::lanes::Binary<A = <Self as Reduction>::T, B = <Self as Reduction>::T, D = <Self as Reduction>::T>
{
    /// The type.
    type T: Lane;
}
impl<T: Lane, O: super::lanes::Binary<A = T, B = T, D = T>> Reduction for O {
    type T = T;
}

#[inline(always)]
unsafe fn reduce_lanes<O: Reduction>(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: the rule on handlers in `lanes`.
    unsafe {
        let a = *lanes.row::<<O::T as Lane>::Raw>(inst.a);
        let d = lanes.row::<<O::T as Lane>::Raw>(inst.d);
        let first = mask.trailing_zeros() as usize & 31;
        let mut total = O::T::of(a[first]);
        each_lane(mask & (mask - 1), |lane| total = O::apply(total, O::T::of(a[lane]), 0));
        each_lane(mask, |lane| (*d)[lane] = total.raw());
    }
    true
}

/// `elect.sync`: the lowest lane is chosen; `d` takes its number, predicate `c` is true for it.
///
/// # Safety
/// The rule on handlers in `lanes`.
pub unsafe fn elect(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: by contract.
    unsafe {
        let d = lanes.row::<u32>(inst.d);
        each_lane(mask, |lane| (*d)[lane] = mask.trailing_zeros());
        lanes.set_predicate(inst.c, mask & mask.wrapping_neg(), mask);
    }
    true
}

/// `activemask`
///
/// # Safety
/// The rule on handlers in `lanes`.
pub unsafe fn active_mask(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: by contract.
    unsafe {
        let d = lanes.row::<u32>(inst.d);
        let group = lanes.group;
        each_lane(mask, |lane| (*d)[lane] = group);
    }
    true
}

/// `bar.warp.sync` and other instructions whose waiting is all they do.
pub unsafe fn nothing(_: &mut Lanes, _: &Inst, _: u32) -> bool {
    true
}

/// Writes 64 bits of time to `d`: `x` is 0 for cycles (of one nanosecond), 1 for nanoseconds since 1970.
///
/// # Safety
/// The rule on handlers in `lanes`.
pub unsafe fn clock(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    let now = if inst.x == 0 {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        START.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
    } else {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos() as u64)
    };
    // SAFETY: by contract.
    unsafe {
        let d = lanes.row::<u64>(inst.d);
        each_lane(mask, |lane| (*d)[lane] = now);
    }
    true
}

/// `nanosleep`: sleeps for the longest of the lanes, at most the millisecond that the hardware allows.
///
/// # Safety
/// The rule on handlers in `lanes`.
pub unsafe fn nanosleep(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: by contract.
    let times = unsafe { *lanes.row::<u32>(inst.a) };
    let mut longest = 0;
    each_lane(mask, |lane| longest = longest.max(times[lane]));
    std::thread::sleep(Duration::from_nanos(u64::from(longest.min(1_000_000))));
    true
}
