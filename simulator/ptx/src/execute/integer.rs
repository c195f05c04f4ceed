// SPDX-License-Identifier: Apache-2.0
//! Integer and bit operations.

use std::marker::PhantomData;

use super::lanes::{Binary, Inst, LANES, Lane, Lanes, Ternary, Unary, each_lane, handler};

/// What integer instructions need of a type.
pub trait Integer: Lane + Ord {
    /// Width.
    const BITS: u32;
    /// True for a signed type.
    const SIGNED: bool;
    /// Twice as wide, for `.wide`.
    type Wide: Lane;
    /// Sign- or zero-extended.
    fn extend(self) -> i128;
    /// Wrapped to the type.
    fn wrap(value: i128) -> Self;
    /// The bits, zero-extended.
    fn bits(self) -> u64;
    /// From the low bits.
    fn from_bits(bits: u64) -> Self;
    /// Wrapping sum.
    fn add(self, other: Self) -> Self;
    /// Wrapping difference.
    fn sub(self, other: Self) -> Self;
    /// Wrapping product.
    fn mul(self, other: Self) -> Self;
    /// Product of the double width.
    fn widening(self, other: Self) -> Self::Wide;
    /// Quotient; all ones for a zero divisor, as the hardware gives.
    fn div(self, other: Self) -> Self;
    /// Remainder; the dividend for a zero divisor.
    fn rem(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($type:ty, $bits:ty, $wide:ty, $signed:expr;)*) => {$(
        impl Integer for $type {
            const BITS: u32 = <$type>::BITS;
            const SIGNED: bool = $signed;
            type Wide = $wide;
            #[inline(always)]
            fn extend(self) -> i128 { self as i128 }
            #[inline(always)]
            fn wrap(value: i128) -> Self { value as $type }
            #[inline(always)]
            fn bits(self) -> u64 { u64::from(self as $bits) }
            #[inline(always)]
            fn from_bits(bits: u64) -> Self { bits as $type }
            #[inline(always)]
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn sub(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn widening(self, other: Self) -> $wide { (self as $wide).wrapping_mul(other as $wide) }
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                if other == 0 { Self::from_bits(u64::MAX) } else { self.wrapping_div(other) }
            }
            #[inline(always)]
            fn rem(self, other: Self) -> Self { if other == 0 { self } else { self.wrapping_rem(other) } }
        }
    )*};
}
// `.wide` exists for 16 and 32 bits only; 64-bit types name themselves to complete the trait.
integers! {
    u8, u8, u16, false;
    i8, u8, i16, true;
    u16, u16, u32, false;
    i16, u16, i32, true;
    u32, u32, u64, false;
    i32, u32, i64, true;
    u64, u64, u64, false;
    i64, u64, i64, true;
}

/// Declares operations on every integer type.
macro_rules! operations {
    ($kind:ident: $($(#[$doc:meta])* $name:ident = |$($value:ident),+; $x:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        pub struct $name<T>(PhantomData<T>);
        operations!(@$kind $name |$($value),+; $x| $body);
    )*};
    (@unary $name:ident |$a:ident; $x:ident| $body:expr) => {
        impl<T: Integer> Unary for $name<T> {
            type A = T;
            type D = T;
            #[inline(always)]
            fn apply($a: T, $x: u64) -> T { let _ = $x; $body }
        }
    };
    (@binary $name:ident |$a:ident, $b:ident; $x:ident| $body:expr) => {
        impl<T: Integer> Binary for $name<T> {
            type A = T;
            type B = T;
            type D = T;
            #[inline(always)]
            fn apply($a: T, $b: T, $x: u64) -> T { let _ = $x; $body }
        }
    };
    (@shift $name:ident |$a:ident, $b:ident; $x:ident| $body:expr) => {
        impl<T: Integer> Binary for $name<T> {
            type A = T;
            type B = u32;
            type D = T;
            #[inline(always)]
            fn apply($a: T, $b: u32, $x: u64) -> T { let _ = $x; $body }
        }
    };
    (@wide $name:ident |$a:ident, $b:ident; $x:ident| $body:expr) => {
        impl<T: Integer> Binary for $name<T> {
            type A = T;
            type B = T;
            type D = T::Wide;
            #[inline(always)]
            fn apply($a: T, $b: T, $x: u64) -> T::Wide { let _ = $x; $body }
        }
    };
    (@ternary $name:ident |$a:ident, $b:ident, $c:ident; $x:ident| $body:expr) => {
        impl<T: Integer> Ternary for $name<T> {
            type A = T;
            type B = T;
            type C = T;
            type D = T;
            #[inline(always)]
            fn apply($a: T, $b: T, $c: T, $x: u64) -> T { let _ = $x; $body }
        }
    };
    (@count $name:ident |$a:ident; $x:ident| $body:expr) => {
        impl<T: Integer> Unary for $name<T> {
            type A = T;
            type D = u32;
            #[inline(always)]
            fn apply($a: T, $x: u64) -> u32 { let _ = $x; $body }
        }
    };
    (@field $name:ident |$a:ident, $b:ident, $c:ident; $x:ident| $body:expr) => {
        impl<T: Integer> Ternary for $name<T> {
            type A = T;
            type B = u32;
            type C = u32;
            type D = T;
            #[inline(always)]
            fn apply($a: T, $b: u32, $c: u32, $x: u64) -> T { let _ = $x; $body }
        }
    };
}

operations! { unary:
    /// `mov`, `cvta` between spaces that share addresses.
    Move = |a; x| a;
    /// `neg`
    Negate = |a; x| T::from_bits(0).sub(a);
    /// `abs`
    Absolute = |a; x| if a < T::from_bits(0) { T::from_bits(0).sub(a) } else { a };
    /// `not`
    Not = |a; x| T::from_bits(!a.bits());
    /// `cnot`: 1 for zero, 0 otherwise
    IsZero = |a; x| T::from_bits(u64::from(a.bits() == 0));
    /// `brev`
    Reverse = |a; x| T::from_bits(a.bits().reverse_bits() >> (64 - T::BITS));
    /// Adds the immediate: address arithmetic.
    AddImmediate = |a; x| a.add(T::from_bits(x));
}

operations! { binary:
    /// `add`
    Add = |a, b; x| a.add(b);
    /// `sub`
    Subtract = |a, b; x| a.sub(b);
    /// `add.sat`
    AddSaturated = |a, b; x| saturate::<T>(a.extend() + b.extend());
    /// `sub.sat`
    SubtractSaturated = |a, b; x| saturate::<T>(a.extend() - b.extend());
    /// `mul.lo`
    Multiply = |a, b; x| a.mul(b);
    /// `mul.hi`
    MultiplyHigh = |a, b; x| high(a, b);
    /// `mul24.lo`; `x` is 16 for `.hi`
    Multiply24 = |a, b; x| T::wrap((low24(a) * low24(b)) >> x);
    /// `div`
    Divide = |a, b; x| a.div(b);
    /// `rem`
    Remainder = |a, b; x| a.rem(b);
    /// `min`
    Minimum = |a, b; x| a.min(b);
    /// `max`
    Maximum = |a, b; x| a.max(b);
    /// `and`
    And = |a, b; x| T::from_bits(a.bits() & b.bits());
    /// `or`
    Or = |a, b; x| T::from_bits(a.bits() | b.bits());
    /// `xor`
    Xor = |a, b; x| T::from_bits(a.bits() ^ b.bits());
    /// `mov` of two halves: `a` is the low one, `x` its width
    Pack = |a, b; x| T::from_bits((a.bits() & ((1 << x) - 1)) | (b.bits() << x));
}

operations! { shift:
    /// `shl`
    ShiftLeft = |a, b; x| if b >= T::BITS { T::from_bits(0) } else { T::from_bits(a.bits() << b) };
    /// `shr`
    ShiftRight = |a, b; x| shift_right(a, b);
    /// `szext`: sign- or zero-extends from bit `b`; `x` is 1 to wrap the position
    ExtendFrom = |a, b; x| {
        let width = if x == 1 { b & 31 } else { b };
        if width == 0 {
            T::from_bits(0)
        } else if width >= T::BITS {
            a
        } else {
            shift_right(T::from_bits(a.bits() << (T::BITS - width)), T::BITS - width)
        }
    };
}

operations! { wide:
    /// `mul.wide`
    MultiplyWide = |a, b; x| a.widening(b);
}

operations! { ternary:
    /// `mad.lo`
    MultiplyAdd = |a, b, c; x| a.mul(b).add(c);
    /// `mad.hi`
    MultiplyHighAdd = |a, b, c; x| high(a, b).add(c);
    /// `mad.hi.sat`
    MultiplyHighAddSaturated = |a, b, c; x| saturate::<T>(high(a, b).extend() + c.extend());
    /// `mad24.lo`; `x` is 16 for `.hi`
    Multiply24Add = |a, b, c; x| T::wrap((low24(a) * low24(b)) >> x).add(c);
    /// `sad`: the distance of two values, plus a third
    DistanceAdd = |a, b, c; x| T::wrap((a.extend() - b.extend()).abs()).add(c);
    /// `lop3`: `x` is the truth table
    Lookup3 = |a, b, c; x| T::from_bits(lookup3(a.bits(), b.bits(), c.bits(), x));
}

operations! { count:
    /// `popc`
    Ones = |a; x| a.bits().count_ones();
    /// `clz`
    LeadingZeros = |a; x| a.bits().leading_zeros() - (64 - T::BITS);
    /// `bfind`; `x` is 1 for `.shiftamt`
    FindHighest = |a; x| {
        let bits = if T::SIGNED && a < T::from_bits(0) { T::from_bits(!a.bits()).bits() } else { a.bits() };
        if bits == 0 {
            u32::MAX
        } else {
            let found = 63 - bits.leading_zeros();
            if x == 1 { T::BITS - 1 - found } else { found }
        }
    };
}

operations! { field:
    /// `bfe`: extracts `c` bits from bit `b`
    Extract = |a, b, c; x| extract(a, b & 0xff, c & 0xff);
}

#[inline(always)]
fn saturate<T: Integer>(value: i128) -> T {
    let (least, most) = if T::SIGNED {
        (-(1i128 << (T::BITS - 1)), (1i128 << (T::BITS - 1)) - 1)
    } else {
        (0, (1i128 << T::BITS) - 1)
    };
    T::wrap(value.clamp(least, most))
}

#[inline(always)]
fn high<T: Integer>(a: T, b: T) -> T {
    // For u64 the product needs all 128 bits as unsigned; wrapping keeps exactly those.
    let product = a.extend().wrapping_mul(b.extend());
    if T::SIGNED {
        T::wrap(product >> T::BITS)
    } else {
        T::wrap(((product as u128) >> T::BITS) as i128)
    }
}

#[inline(always)]
fn low24<T: Integer>(value: T) -> i128 {
    if T::SIGNED {
        i128::from(((value.bits() as u32) << 8) as i32 >> 8)
    } else {
        i128::from(value.bits() & 0xff_ffff)
    }
}

#[inline(always)]
fn shift_right<T: Integer>(a: T, by: u32) -> T {
    if T::SIGNED {
        let signed = ((a.bits() << (64 - T::BITS)) as i64) >> (64 - T::BITS);
        T::from_bits((signed >> by.min(T::BITS - 1)) as u64)
    } else if by >= T::BITS {
        T::from_bits(0)
    } else {
        T::from_bits(a.bits() >> by)
    }
}

#[inline(always)]
fn lookup3(a: u64, b: u64, c: u64, table: u64) -> u64 {
    let mut result = 0;
    for index in 0..8u64 {
        if table >> index & 1 == 1 {
            let pick = |value: u64, bit: u64| if index & bit != 0 { value } else { !value };
            result |= pick(a, 4) & pick(b, 2) & pick(c, 1);
        }
    }
    result
}

#[inline(always)]
fn extract<T: Integer>(a: T, position: u32, length: u32) -> T {
    let last = T::BITS - 1;
    let sign_at = (position + length).saturating_sub(1).min(last);
    let negative = T::SIGNED && length != 0 && a.bits() >> sign_at & 1 == 1;
    let kept = length.min(T::BITS.saturating_sub(position));
    let field = if kept == 0 {
        0
    } else {
        (a.bits() >> position) & (u64::MAX >> (64 - kept))
    };
    let sign = if negative && kept < 64 { u64::MAX << kept } else { 0 };
    T::from_bits(field | sign)
}

/// `mad.wide`
pub struct MultiplyWideAdd<T>(PhantomData<T>);
impl<T: Integer> Ternary for MultiplyWideAdd<T>
where
    T::Wide: Integer,
{
    type A = T;
    type B = T;
    type C = T::Wide;
    type D = T::Wide;
    #[inline(always)]
    fn apply(a: T, b: T, c: T::Wide, _: u64) -> T::Wide {
        a.widening(b).add(c)
    }
}

/// A part of a wider value: shifts right by `x` and keeps the destination's width.
pub struct Part<S, D>(PhantomData<(S, D)>);
impl<S: Integer, D: Integer> Unary for Part<S, D> {
    type A = S;
    type D = D;
    #[inline(always)]
    fn apply(a: S, x: u64) -> D {
        D::from_bits(a.bits() >> x)
    }
}

handler!(/// `bfi`: inserts `m` bits of `a` into `b` at bit `c`.
    insert, insert_lanes<T: Integer>);

#[inline(always)]
unsafe fn insert_lanes<T: Integer>(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: the rule on handlers in `lanes`.
    unsafe {
        let (a, b) = (lanes.row::<T::Raw>(inst.a), lanes.row::<T::Raw>(inst.b));
        let (position, length) = (lanes.row::<u32>(inst.c), lanes.row::<u32>(inst.m));
        let d = lanes.row::<T::Raw>(inst.d);
        each_lane(mask, |lane| {
            let (at, count) = ((*position)[lane] & 0xff, (*length)[lane] & 0xff);
            let kept = count.min(T::BITS.saturating_sub(at));
            let field = if kept == 0 { 0 } else { (u64::MAX >> (64 - kept)) << at };
            let inserted = if kept == 0 { 0 } else { T::of((*a)[lane]).bits() << at };
            let old = T::of((*b)[lane]).bits();
            (*d)[lane] = T::from_bits((old & !field) | (inserted & field)).raw();
        });
    }
    true
}

/// What a carrying instruction does, in `x`: the low bits choose, the flags say where carries go.
pub mod carry {
    /// `a + b`
    pub const ADD: u64 = 0;
    /// `a - b`
    pub const SUBTRACT: u64 = 1;
    /// low part of `a * b`, plus `c`
    pub const MULTIPLY_LOW: u64 = 2;
    /// high part of `a * b`, plus `c`
    pub const MULTIPLY_HIGH: u64 = 3;
    /// Takes the carry in.
    pub const IN: u64 = 4;
    /// Writes the carry out.
    pub const OUT: u64 = 8;
}

handler!(
    /// The carrying instructions (`add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc`, `madc`); the flag is predicate `m`.
    carrying, carrying_lanes<T: Integer>);

#[inline(always)]
unsafe fn carrying_lanes<T: Integer>(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: the rule on handlers in `lanes`; `m` is a predicate row.
    unsafe {
        let (a, b, c) = (
            lanes.row::<T::Raw>(inst.a),
            lanes.row::<T::Raw>(inst.b),
            lanes.row::<T::Raw>(inst.c),
        );
        let d = lanes.row::<T::Raw>(inst.d);
        let flag = lanes.predicate(inst.m);
        let mut out = 0u32;
        let ones = u128::from(u64::MAX >> (64 - T::BITS));
        for lane in (0..LANES).filter(|lane| mask >> lane & 1 == 1) {
            let (left, right) = (T::of((*a)[lane]), T::of((*b)[lane]));
            let carried = u128::from(inst.x & carry::IN != 0 && flag >> lane & 1 == 1);
            let total = match inst.x & 3 {
                carry::ADD => u128::from(left.bits()) + u128::from(right.bits()) + carried,
                carry::SUBTRACT => u128::from(left.bits())
                    .wrapping_sub(u128::from(right.bits()))
                    .wrapping_sub(carried),
                which => {
                    let part = if which == carry::MULTIPLY_LOW {
                        left.mul(right)
                    } else {
                        high(left, right)
                    };
                    u128::from(part.bits()) + u128::from(T::of((*c)[lane]).bits()) + carried
                }
            };
            out |= u32::from(total & !ones != 0) << lane;
            (*d)[lane] = T::from_bits((total & ones) as u64).raw();
        }
        if inst.x & carry::OUT != 0 {
            lanes.set_predicate(inst.m, out, mask);
        }
    }
    true
}
