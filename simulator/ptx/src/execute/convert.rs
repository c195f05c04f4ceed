// SPDX-License-Identifier: Apache-2.0
//! `cvt`: conversions between integer and floating types.
//!
//! The immediate holds the rounding direction in its low three bits and the flags below.

use std::marker::PhantomData;

use super::float_types::Float;
use super::integer::Integer;
use super::lanes::{Binary, Unary};
use super::number::{Bf16, F16, Rounding, round_to};

/// `.relu`
pub const RELU: u64 = 16;

/// Integer to integer.
pub struct Resize<S, D>(PhantomData<(S, D)>);
impl<S: Integer, D: Integer> Unary for Resize<S, D> {
    type A = S;
    type D = D;
    #[inline(always)]
    fn apply(a: S, _: u64) -> D {
        let bits = a.bits();
        if S::SIGNED {
            D::from_bits((((bits << (64 - S::BITS)) as i64) >> (64 - S::BITS)) as u64)
        } else {
            D::from_bits(bits)
        }
    }
}

/// Integer to integer, clamped to the destination.
pub struct ResizeSaturated<S, D>(PhantomData<(S, D)>);
impl<S: Integer, D: Integer> Unary for ResizeSaturated<S, D> {
    type A = S;
    type D = D;
    #[inline(always)]
    fn apply(a: S, _: u64) -> D {
        let (least, most) = bounds::<D>();
        D::wrap(a.extend().clamp(least, most))
    }
}

#[inline(always)]
fn bounds<D: Integer>() -> (i128, i128) {
    if D::SIGNED {
        (-(1i128 << (D::BITS - 1)), (1i128 << (D::BITS - 1)) - 1)
    } else {
        (0, (1i128 << D::BITS) - 1)
    }
}

/// Integer to floating.
pub struct ToFloat<S, D>(PhantomData<(S, D)>);
impl<S: Integer, D: Float> Unary for ToFloat<S, D> {
    type A = S;
    type D = D;
    #[inline(always)]
    fn apply(a: S, x: u64) -> D {
        let rounding = Rounding::of(x);
        if S::BITS <= 32 {
            return D::round(
                if S::SIGNED {
                    f64::from(a.extend() as i32)
                } else {
                    f64::from(a.bits() as u32)
                },
                rounding,
            );
        }
        // A 64-bit integer may not fit a double: split it, so that the double is the sum rounded to odd.
        let exact = a.extend();
        let low = (exact & 0xffff_ffff) as u32;
        let upper = (exact - i128::from(low)) as f64;
        if size_of::<D>() == 8 {
            return D::round(0.0, rounding)
                .add_directed(D::round(upper, rounding), rounding)
                .add_directed(D::round(f64::from(low), rounding), rounding);
        }
        let (sum, error) = super::number::two_sum(upper, f64::from(low));
        D::round(super::number::to_odd(sum, error), rounding)
    }
}

/// Floating to integer, clamped to the destination; NaN gives zero.
pub struct ToInteger<S, D>(PhantomData<(S, D)>);
impl<S: Float, D: Integer> Unary for ToInteger<S, D> {
    type A = S;
    type D = D;
    #[inline(always)]
    fn apply(a: S, x: u64) -> D {
        let value = Rounding::of(x).integral(a.double());
        // A cast clamps to the type it names and maps NaN to zero.
        match (D::SIGNED, D::BITS) {
            (true, 64) => D::from_bits(value as i64 as u64),
            (false, 64) => D::from_bits(value as u64),
            (true, 32) => D::from_bits(value as i32 as u64),
            (false, 32) => D::from_bits(u64::from(value as u32)),
            (true, 16) => D::from_bits(value as i16 as u64),
            (false, 16) => D::from_bits(u64::from(value as u16)),
            (true, _) => D::from_bits(value as i8 as u64),
            (false, _) => D::from_bits(u64::from(value as u8)),
        }
    }
}

/// Floating to floating.
pub struct Refloat<S, D>(PhantomData<(S, D)>);
impl<S: Float, D: Float> Unary for Refloat<S, D> {
    type A = S;
    type D = D;
    #[inline(always)]
    fn apply(a: S, x: u64) -> D {
        if a.is_nan() {
            D::nan()
        } else {
            D::round(a.double(), Rounding::of(x))
        }
    }
}

/// Single to half, to nearest: the conversion that kernels use most.
pub struct ToHalf;
impl Unary for ToHalf {
    type A = f32;
    type D = F16;
    #[inline(always)]
    fn apply(a: f32, _: u64) -> F16 {
        F16::from_single(a)
    }
}

/// Half to single.
pub struct FromHalf;
impl Unary for FromHalf {
    type A = F16;
    type D = f32;
    #[inline(always)]
    fn apply(a: F16, _: u64) -> f32 {
        a.single()
    }
}

/// Single to the upper half of a single, to nearest.
pub struct ToBrain;
impl Unary for ToBrain {
    type A = f32;
    type D = Bf16;
    #[inline(always)]
    fn apply(a: f32, _: u64) -> Bf16 {
        Bf16::from_single(a)
    }
}

/// Rounds to an integral value of the same type (`cvt.rni.f32.f32`).
pub struct Integral<T>(PhantomData<T>);
impl<T: Float> Unary for Integral<T> {
    type A = T;
    type D = T;
    #[inline(always)]
    fn apply(a: T, x: u64) -> T {
        if a.is_nan() {
            T::nan()
        } else {
            T::round(Rounding::of(x).integral(a.double()), Rounding::Nearest)
        }
    }
}

/// `cvt.rna.tf32.f32` and its kin: 11 significant bits in a single.
pub struct ToTf32;
impl Unary for ToTf32 {
    type A = f32;
    type D = f32;
    #[inline(always)]
    fn apply(a: f32, x: u64) -> f32 {
        let value = round_to(f64::from(a), 11, -126, f64::from(f32::MAX), Rounding::of(x)) as f32;
        if x & RELU != 0 && value < 0.0 { 0.0 } else { value }
    }
}

/// `cvt.f16x2.f32 d, a, b`: `a` becomes the upper half.
pub struct PackFloats<D>(PhantomData<D>);
impl<D: Float<Raw = u32>> Binary for PackFloats<D> {
    type A = f32;
    type B = f32;
    type D = u32;
    #[inline(always)]
    fn apply(a: f32, b: f32, x: u64) -> u32 {
        let convert = |value: f32| {
            if value.is_nan() {
                return D::nan().raw() & 0xffff;
            }
            let value = if x & RELU != 0 && value < 0.0 { 0.0 } else { value };
            D::round(f64::from(value), Rounding::of(x)).raw() & 0xffff
        };
        (convert(a) << 16) | convert(b)
    }
}
