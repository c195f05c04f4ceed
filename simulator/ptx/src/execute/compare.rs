// SPDX-License-Identifier: Apache-2.0
//! Comparisons, selections and predicate logic.

use std::marker::PhantomData;

use super::lanes::{ALL, Compare, Inst, LANES, Lane, Lanes, Word, each_lane, handler};
use super::number::{Bf16, F16, Ftz};

/// Values that can be compared; only floating ones can be unordered.
pub trait Ordered: Lane {
    /// Something with an order.
    type Key: PartialOrd;
    /// The value's place in that order.
    fn key(self) -> Self::Key;
    /// True for a NaN.
    fn is_unordered(self) -> bool;
}

macro_rules! ordered {
    ($($type:ty, $key:ty, |$value:ident| $make:expr, $nan:expr;)*) => {$(
        impl Ordered for $type {
            type Key = $key;
            #[inline(always)]
            fn key(self) -> $key { let $value = self; $make }
            #[inline(always)]
            fn is_unordered(self) -> bool { let $value = self; $nan }
        }
    )*};
}
ordered! {
    u16, u16, |value| value, { let _ = value; false };
    i16, i16, |value| value, { let _ = value; false };
    u32, u32, |value| value, { let _ = value; false };
    i32, i32, |value| value, { let _ = value; false };
    u64, u64, |value| value, { let _ = value; false };
    i64, i64, |value| value, { let _ = value; false };
    f32, f32, |value| value, value.is_nan();
    f64, f64, |value| value, value.is_nan();
    Ftz, f32, |value| value.0, value.0.is_nan();
    F16, f32, |value| value.single(), value.single().is_nan();
    Bf16, f32, |value| value.single(), value.single().is_nan();
}

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident = |$a:ident, $b:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        pub struct $name<T>(PhantomData<T>);
        impl<T: Ordered> Compare for $name<T> {
            type A = T;
            #[inline(always)]
            // An unordered comparison is the negation of its opposite.
            #[allow(clippy::neg_cmp_op_on_partial_ord)]
            fn apply($a: T, $b: T) -> bool { $body }
        }
    )*};
}
comparisons! {
    /// `eq`
    Equal = |a, b| a.key() == b.key();
    /// `ne`: false for a NaN
    Unequal = |a, b| a.key() < b.key() || a.key() > b.key();
    /// `lt`, `lo`
    Less = |a, b| a.key() < b.key();
    /// `le`, `ls`
    LessEqual = |a, b| a.key() <= b.key();
    /// `gt`, `hi`
    Greater = |a, b| a.key() > b.key();
    /// `ge`, `hs`
    GreaterEqual = |a, b| a.key() >= b.key();
    /// `equ`: true for a NaN
    EqualUnordered = |a, b| !(a.key() < b.key() || a.key() > b.key());
    /// `neu`
    UnequalUnordered = |a, b| a.key() != b.key();
    /// `ltu`
    LessUnordered = |a, b| !(a.key() >= b.key());
    /// `leu`
    LessEqualUnordered = |a, b| !(a.key() > b.key());
    /// `gtu`
    GreaterUnordered = |a, b| !(a.key() <= b.key());
    /// `geu`
    GreaterEqualUnordered = |a, b| !(a.key() < b.key());
    /// `num`: neither is NaN
    BothNumbers = |a, b| !a.is_unordered() && !b.is_unordered();
    /// `nan`: one is NaN
    AnyNan = |a, b| a.is_unordered() || b.is_unordered();
}

handler!(/// `selp`: `a` where predicate `c`, else `b`; `x` is 1 when the predicate is negated.
    select, select_lanes<R: Word>);
handler!(/// `slct`: `a` where the integer `c` is not negative, else `b`.
    select_sign, select_sign_lanes<R: Word>);
handler!(/// `slct.f32`: `a` where the single `c` is not negative, else `b`.
    select_float_sign, select_float_sign_lanes<R: Word>);
handler!(/// `set`: a predicate (`a`) as a value: `x` where it holds, else zero.
    spread, spread_lanes<R: FromBits>);

/// A word made from the immediate.
pub trait FromBits: Word {
    /// The low bits.
    fn from_bits(bits: u64) -> Self;
}
impl FromBits for u32 {
    fn from_bits(bits: u64) -> Self {
        bits as u32
    }
}
impl FromBits for u64 {
    fn from_bits(bits: u64) -> Self {
        bits
    }
}

#[inline(always)]
unsafe fn choose<R: Word>(lanes: &Lanes, inst: &Inst, chosen: u32, mask: u32) -> bool {
    // SAFETY: the rule on handlers in `lanes`.
    unsafe {
        let (a, b, d) = (lanes.row::<R>(inst.a), lanes.row::<R>(inst.b), lanes.row::<R>(inst.d));
        if mask == ALL {
            let mut result = [R::default(); LANES];
            for (lane, value) in result.iter_mut().enumerate() {
                let (left, right) = ((*a)[lane], (*b)[lane]);
                *value = if chosen >> lane & 1 == 1 { left } else { right };
            }
            *d = result;
        } else {
            each_lane(mask, |lane| {
                (*d)[lane] = if chosen >> lane & 1 == 1 {
                    (*a)[lane]
                } else {
                    (*b)[lane]
                }
            });
        }
    }
    true
}

#[inline(always)]
unsafe fn select_lanes<R: Word>(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: the rule on handlers in `lanes`.
    unsafe {
        let chosen = lanes.predicate(inst.c) ^ if inst.x == 1 { ALL } else { 0 };
        choose::<R>(lanes, inst, chosen, mask)
    }
}

#[inline(always)]
unsafe fn select_sign_lanes<R: Word>(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: the rule on handlers in `lanes`.
    unsafe {
        let c = lanes.row::<u32>(inst.c);
        let chosen = (0..LANES).fold(0, |found, lane| found | u32::from((*c)[lane] as i32 >= 0) << lane);
        choose::<R>(lanes, inst, chosen, mask)
    }
}

#[inline(always)]
unsafe fn select_float_sign_lanes<R: Word>(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: the rule on handlers in `lanes`.
    unsafe {
        let c = lanes.row::<u32>(inst.c);
        let chosen = (0..LANES).fold(0, |found, lane| {
            found | u32::from(f32::from_bits((*c)[lane]) >= 0.0) << lane
        });
        choose::<R>(lanes, inst, chosen, mask)
    }
}

#[inline(always)]
unsafe fn spread_lanes<R: FromBits>(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: the rule on handlers in `lanes`.
    unsafe {
        let (chosen, d) = (lanes.predicate(inst.a), lanes.row::<R>(inst.d));
        let value = R::from_bits(inst.x);
        each_lane(mask, |lane| {
            (*d)[lane] = if chosen >> lane & 1 == 1 { value } else { R::default() }
        });
    }
    true
}

/// What [`logic`] computes, in `x`; the flags negate operands first.
pub mod predicate_logic {
    /// `and`
    pub const AND: u64 = 0;
    /// `or`
    pub const OR: u64 = 1;
    /// `xor`
    pub const XOR: u64 = 2;
    /// `mov`
    pub const MOVE: u64 = 3;
    /// Negate `a`.
    pub const NOT_A: u64 = 4;
    /// Negate `b`.
    pub const NOT_B: u64 = 8;
}

/// Predicate logic.
///
/// # Safety
/// The rule on handlers in `lanes`; the operands are predicate rows.
pub unsafe fn logic(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: by contract.
    unsafe {
        let flip = |flag: u64| if inst.x & flag != 0 { ALL } else { 0 };
        let a = lanes.predicate(inst.a) ^ flip(predicate_logic::NOT_A);
        let b = lanes.predicate(inst.b) ^ flip(predicate_logic::NOT_B);
        let value = match inst.x & 3 {
            predicate_logic::AND => a & b,
            predicate_logic::OR => a | b,
            predicate_logic::XOR => a ^ b,
            _ => a,
        };
        lanes.set_predicate(inst.d, value, mask);
    }
    true
}

/// Makes a predicate of a row: true where the word is not zero (`testp`, `isspacep`).
///
/// # Safety
/// The rule on handlers in `lanes`.
pub unsafe fn nonzero(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: by contract.
    unsafe {
        let a = lanes.row::<u32>(inst.a);
        let found = (0..LANES).fold(0, |found, lane| found | u32::from((*a)[lane] != 0) << lane);
        lanes.set_predicate(inst.d, found, mask);
    }
    true
}
