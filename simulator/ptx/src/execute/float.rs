// SPDX-License-Identifier: Apache-2.0
//! Floating-point operations, alone and on packed pairs.

use std::marker::PhantomData;

use super::float_types::Float;
use super::lanes::{Binary, Lane, Ternary, Unary};
use super::number::Rounding;

/// Bit of `x`: a NaN operand makes `min` and `max` NaN.
pub const PROPAGATE_NAN: u64 = 1;

macro_rules! operations {
    ($kind:ident: $($(#[$doc:meta])* $name:ident = |$($value:ident),+; $x:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        pub struct $name<T>(PhantomData<T>);
        operations!(@$kind $name |$($value),+; $x| $body);
    )*};
    (@unary $name:ident |$a:ident; $x:ident| $body:expr) => {
        impl<T: Float> Unary for $name<T> {
            type A = T;
            type D = T;
            #[inline(always)]
            fn apply($a: T, $x: u64) -> T { let _ = $x; $body }
        }
    };
    (@binary $name:ident |$a:ident, $b:ident; $x:ident| $body:expr) => {
        impl<T: Float> Binary for $name<T> {
            type A = T;
            type B = T;
            type D = T;
            #[inline(always)]
            fn apply($a: T, $b: T, $x: u64) -> T { let _ = $x; $body }
        }
    };
    (@ternary $name:ident |$a:ident, $b:ident, $c:ident; $x:ident| $body:expr) => {
        impl<T: Float> Ternary for $name<T> {
            type A = T;
            type B = T;
            type C = T;
            type D = T;
            #[inline(always)]
            fn apply($a: T, $b: T, $c: T, $x: u64) -> T { let _ = $x; $body }
        }
    };
}

operations! { unary:
    /// `neg`
    Negate = |a; x| a.neg();
    /// `abs`
    Absolute = |a; x| a.abs();
    /// `sqrt.rn`
    SquareRoot = |a; x| a.sqrt();
    /// `sqrt` in direction `x`
    SquareRootDirected = |a; x| a.sqrt_directed(Rounding::of(x));
    /// `rcp.rn`
    Reciprocal = |a; x| T::round(1.0, Rounding::Nearest).div(a);
    /// `rcp` in direction `x`
    ReciprocalDirected = |a; x| T::round(1.0, Rounding::Nearest).div_directed(a, Rounding::of(x));
    /// `rsqrt.approx`
    ReciprocalRoot = |a; x| a.approximate(|v| (1.0 / f64::from(v).sqrt()) as f32, |v| 1.0 / v.sqrt());
    /// `ex2.approx`
    Exponential = |a; x| a.approximate(f32::exp2, f64::exp2);
    /// `lg2.approx`
    Logarithm = |a; x| a.approximate(f32::log2, f64::log2);
    /// `sin.approx`
    Sine = |a; x| a.approximate(f32::sin, f64::sin);
    /// `cos.approx`
    Cosine = |a; x| a.approximate(f32::cos, f64::cos);
    /// `tanh.approx`
    Tangent = |a; x| a.approximate(f32::tanh, f64::tanh);
    /// `.sat`: into [0, 1], NaN to zero
    Saturate = |a; x| {
        let value = a.double();
        if value > 1.0 {
            T::round(1.0, Rounding::Nearest)
        } else if value > 0.0 {
            a
        } else {
            T::round(0.0, Rounding::Nearest)
        }
    };
    /// `.relu`: negative values to zero, NaN kept
    Relu = |a; x| if a.double() < 0.0 { T::round(0.0, Rounding::Nearest) } else { a };
}

operations! { binary:
    /// `add`
    Add = |a, b; x| a.add(b);
    /// `add` in direction `x`
    AddDirected = |a, b; x| a.add_directed(b, Rounding::of(x));
    /// `sub`
    Subtract = |a, b; x| a.add(b.neg());
    /// `sub` in direction `x`
    SubtractDirected = |a, b; x| a.add_directed(b.neg(), Rounding::of(x));
    /// `mul`
    Multiply = |a, b; x| a.mul(b);
    /// `mul` in direction `x`
    MultiplyDirected = |a, b; x| a.mul_directed(b, Rounding::of(x));
    /// `div`
    Divide = |a, b; x| a.div(b);
    /// `div` in direction `x`
    DivideDirected = |a, b; x| a.div_directed(b, Rounding::of(x));
    /// `min`
    Minimum = |a, b; x| choose(a, b, x, true);
    /// `max`
    Maximum = |a, b; x| choose(a, b, x, false);
    /// `copysign`: the sign of `a` on `b`
    CopySign = |a, b; x| if a.double().is_sign_negative() { b.abs().neg() } else { b.abs() };
}

operations! { ternary:
    /// `fma`, `mad`
    MultiplyAdd = |a, b, c; x| a.fma(b, c);
    /// `fma` in direction `x`
    MultiplyAddDirected = |a, b, c; x| a.fma_directed(b, c, Rounding::of(x));
    /// `min` of three
    Minimum3 = |a, b, c; x| choose(choose(a, b, x, true), c, x, true);
    /// `max` of three
    Maximum3 = |a, b, c; x| choose(choose(a, b, x, false), c, x, false);
}

/// The smaller or larger value; a NaN loses against a number unless it is to propagate; -0 is below +0.
#[inline(always)]
fn choose<T: Float>(a: T, b: T, x: u64, smaller: bool) -> T {
    if a.is_nan() || b.is_nan() {
        return if x & PROPAGATE_NAN != 0 || (a.is_nan() && b.is_nan()) {
            T::nan()
        } else if a.is_nan() {
            b
        } else {
            a
        };
    }
    let (left, right) = (a.double(), b.double());
    let a_is_less = left < right || (left == right && left.is_sign_negative());
    if a_is_less == smaller { a } else { b }
}

/// `testp`: bit `x` chooses finite, infinite, number, notanumber, normal, subnormal.
pub struct Classify<T>(PhantomData<T>);
impl<T: Float> Unary for Classify<T> {
    type A = T;
    type D = u32;
    #[inline(always)]
    fn apply(a: T, x: u64) -> u32 {
        let value = a.double();
        let least = if size_of::<T>() == 8 {
            f64::MIN_POSITIVE
        } else {
            f64::from(f32::MIN_POSITIVE)
        };
        u32::from(match x {
            0 => value.is_finite(),
            1 => value.is_infinite(),
            2 => !value.is_nan(),
            3 => value.is_nan(),
            4 => value.is_finite() && value.abs() >= least,
            _ => value != 0.0 && value.abs() < least,
        })
    }
}

/// Two 16-bit values in one word: applies an operation to both.
pub struct Pair<O>(PhantomData<O>);

#[inline(always)]
fn halves<T: Lane<Raw = u32>>(word: u32) -> (T, T) {
    (T::of(word & 0xffff), T::of(word >> 16))
}

#[inline(always)]
fn join<T: Lane<Raw = u32>>(low: T, high: T) -> u32 {
    (low.raw() & 0xffff) | (high.raw() << 16)
}

impl<T: Lane<Raw = u32>, O: Unary<A = T, D = T>> Unary for Pair<O> {
    type A = u32;
    type D = u32;
    #[inline(always)]
    fn apply(a: u32, x: u64) -> u32 {
        let (low, high) = halves::<T>(a);
        join(O::apply(low, x), O::apply(high, x))
    }
}

impl<T: Lane<Raw = u32>, O: Binary<A = T, B = T, D = T>> Binary for Pair<O> {
    type A = u32;
    type B = u32;
    type D = u32;
    #[inline(always)]
    fn apply(a: u32, b: u32, x: u64) -> u32 {
        let ((a0, a1), (b0, b1)) = (halves::<T>(a), halves::<T>(b));
        join(O::apply(a0, b0, x), O::apply(a1, b1, x))
    }
}

impl<T: Lane<Raw = u32>, O: Ternary<A = T, B = T, C = T, D = T>> Ternary for Pair<O> {
    type A = u32;
    type B = u32;
    type C = u32;
    type D = u32;
    #[inline(always)]
    fn apply(a: u32, b: u32, c: u32, x: u64) -> u32 {
        let ((a0, a1), (b0, b1), (c0, c1)) = (halves::<T>(a), halves::<T>(b), halves::<T>(c));
        join(O::apply(a0, b0, c0, x), O::apply(a1, b1, c1, x))
    }
}
