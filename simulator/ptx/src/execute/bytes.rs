// SPDX-License-Identifier: Apache-2.0
//! Instructions on bytes and bit fields of words: permutations, funnel shifts, dot products, masks.

use super::lanes::{Binary, Ternary};

/// `prmt`: chooses bytes of `b:a` by the nibbles of `c`; `x` is the mode.
pub struct Permute;
impl Ternary for Permute {
    type A = u32;
    type B = u32;
    type C = u32;
    type D = u32;
    #[inline(always)]
    fn apply(a: u32, b: u32, c: u32, x: u64) -> u32 {
        let bytes = (u64::from(b) << 32) | u64::from(a);
        let low = c & 3;
        let mut result = 0u32;
        for at in 0..4u32 {
            let selector = match x {
                0 => c >> (at * 4) & 15,
                1 => (low + at) & 7,           // f4e
                2 => low.wrapping_sub(at) & 7, // b4e
                3 => low,                      // rc8
                4 => low.max(at),              // ecl
                5 => low.min(at),              // ecr
                _ => (low & 1) * 2 + (at & 1), // rc16
            };
            let byte = (bytes >> ((selector & 7) * 8)) as u8;
            let byte = if selector & 8 != 0 {
                ((byte as i8) >> 7) as u8
            } else {
                byte
            };
            result |= u32::from(byte) << (at * 8);
        }
        result
    }
}

/// `shf.l`; `x` is 1 for `.wrap`.
pub struct FunnelLeft;
/// `shf.r`; `x` is 1 for `.wrap`.
pub struct FunnelRight;
macro_rules! funnel {
    ($name:ident, |$pair:ident, $by:ident| $body:expr) => {
        impl Ternary for $name {
            type A = u32;
            type B = u32;
            type C = u32;
            type D = u32;
            #[inline(always)]
            fn apply(a: u32, b: u32, c: u32, x: u64) -> u32 {
                let $pair = (u64::from(b) << 32) | u64::from(a);
                let $by = if x == 1 { c & 31 } else { c.min(32) };
                $body
            }
        }
    };
}
funnel!(FunnelLeft, |pair, by| ((pair << by) >> 32) as u32);
funnel!(FunnelRight, |pair, by| (pair >> by) as u32);

/// `dp4a`; `x`: bit 0 `a` signed, bit 1 `b` signed.
pub struct Dot4;
/// `dp2a`; `x` as for [`Dot4`], bit 2 for `.hi`.
pub struct Dot2;

#[inline(always)]
fn part(value: u32, at: u32, bits: u32, signed: bool) -> i32 {
    let field = (value >> (at * bits)) << (32 - bits);
    if signed {
        (field as i32) >> (32 - bits)
    } else {
        (field >> (32 - bits)) as i32
    }
}

impl Ternary for Dot4 {
    type A = u32;
    type B = u32;
    type C = u32;
    type D = u32;
    #[inline(always)]
    fn apply(a: u32, b: u32, c: u32, x: u64) -> u32 {
        (0..4).fold(c as i32, |sum, at| {
            sum.wrapping_add(part(a, at, 8, x & 1 != 0).wrapping_mul(part(b, at, 8, x & 2 != 0)))
        }) as u32
    }
}

impl Ternary for Dot2 {
    type A = u32;
    type B = u32;
    type C = u32;
    type D = u32;
    #[inline(always)]
    fn apply(a: u32, b: u32, c: u32, x: u64) -> u32 {
        let from = if x & 4 != 0 { 2 } else { 0 };
        (0..2).fold(c as i32, |sum, at| {
            sum.wrapping_add(part(a, at, 16, x & 1 != 0).wrapping_mul(part(b, from + at, 8, x & 2 != 0)))
        }) as u32
    }
}

/// What a [`VideoShift`] does, as bits of its `x`.
pub mod video {
    /// `vshl`; else `vshr`.
    pub const LEFT: u64 = 1;
    /// `.wrap`: the amount counts by its five low bits; else `.clamp`.
    pub const WRAP: u64 = 2;
    /// `a` is signed.
    pub const SIGNED_SOURCE: u64 = 4;
    /// The result is signed.
    pub const SIGNED_RESULT: u64 = 8;
    /// `.sat`
    pub const SATURATED: u64 = 16;
    /// What becomes of the shifted value and `c`: nothing without one of these.
    pub const ADD: u64 = 32;
    /// See [`ADD`].
    pub const MINIMUM: u64 = 64;
    /// See [`ADD`].
    pub const MAXIMUM: u64 = 128;
}

/// `vshl` and `vshr` of whole words; `x` is made of the bits in [`video`].
pub struct VideoShift;
impl Ternary for VideoShift {
    type A = u32;
    type B = u32;
    type C = u32;
    type D = u32;
    #[inline(always)]
    fn apply(a: u32, b: u32, c: u32, x: u64) -> u32 {
        let has = |bit| x & bit != 0;
        let wide = |value: u32, signed: bool| match signed {
            true => i64::from(value as i32),
            false => i64::from(value),
        };
        let by = if has(video::WRAP) { b & 31 } else { b.min(32) };
        let a = wide(a, has(video::SIGNED_SOURCE));
        let is_signed = has(video::SIGNED_RESULT);
        let mut shifted = if has(video::LEFT) { a << by } else { a >> by };
        if has(video::SATURATED) {
            shifted = match is_signed {
                true => shifted.clamp(i64::from(i32::MIN), i64::from(i32::MAX)),
                false => shifted.clamp(0, i64::from(u32::MAX)),
            };
        }
        let (shifted, c) = (wide(shifted as u32, is_signed), wide(c, is_signed));
        let result = match x & (video::ADD | video::MINIMUM | video::MAXIMUM) {
            video::ADD => shifted + c,
            video::MINIMUM => shifted.min(c),
            video::MAXIMUM => shifted.max(c),
            _ => shifted,
        };
        result as u32
    }
}

/// `bmsk`: `b` ones from bit `a`; `x` is 1 for `.wrap`.
pub struct BitMask;
impl Binary for BitMask {
    type A = u32;
    type B = u32;
    type D = u32;
    #[inline(always)]
    fn apply(a: u32, b: u32, x: u64) -> u32 {
        let (a, b) = if x == 1 {
            (a & 31, b & 31)
        } else {
            (a.min(32), b.min(32))
        };
        (((1u64 << b) - 1) << a) as u32
    }
}
