// SPDX-License-Identifier: Apache-2.0
//! Numbers that Rust lacks (half precisions, flushed singles) and rounding in a chosen direction.
//!
//! Directed rounding goes through *rounding to odd*: an inexact double whose last bit is set to 1 rounds to any
//! narrower format, in any direction, as the exact value would (Boldo and Melquiond, 2008).

use super::lanes::Lane;

/// Rounding direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Rounding {
    /// To nearest, ties to even.
    Nearest = 0,
    /// Towards zero.
    Zero = 1,
    /// Towards minus infinity.
    Down = 2,
    /// Towards plus infinity.
    Up = 3,
    /// To nearest, ties away from zero.
    Away = 4,
}

impl Rounding {
    /// The rounding stored in the low bits of an immediate.
    #[inline(always)]
    pub fn of(x: u64) -> Self {
        match x & 7 {
            0 => Self::Nearest,
            1 => Self::Zero,
            2 => Self::Down,
            3 => Self::Up,
            _ => Self::Away,
        }
    }

    /// Rounds to an integral value.
    #[inline(always)]
    pub fn integral(self, value: f64) -> f64 {
        match self {
            Self::Nearest => value.round_ties_even(),
            Self::Zero => value.trunc(),
            Self::Down => value.floor(),
            Self::Up => value.ceil(),
            Self::Away => value.round(),
        }
    }
}

/// Rounds a double to a binary format with `precision` significant bits and exponents down to `least`.
#[inline(always)]
pub fn round_to(value: f64, precision: i32, least: i32, largest: f64, rounding: Rounding) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let exponent = (((value.to_bits() >> 52) & 0x7ff) as i32 - 1023).max(least);
    let quantum = exponent - (precision - 1);
    let rounded = rounding.integral(value * power(-quantum)) * power(quantum);
    if rounded.abs() > largest {
        let to_infinity = match rounding {
            Rounding::Nearest | Rounding::Away => true,
            Rounding::Zero => false,
            Rounding::Down => value < 0.0,
            Rounding::Up => value > 0.0,
        };
        return if to_infinity {
            f64::INFINITY.copysign(value)
        } else {
            largest.copysign(value)
        };
    }
    rounded.copysign(value)
}

/// Two to the `exponent`, which a double can hold.
#[inline(always)]
fn power(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// Rounds a double to a single.
#[inline(always)]
pub fn to_single(value: f64, rounding: Rounding) -> f32 {
    if rounding == Rounding::Nearest {
        return value as f32;
    }
    round_to(value, 24, -126, f64::from(f32::MAX), rounding) as f32
}

/// `sum` rounded to odd, where the exact value is `sum + error`.
#[inline(always)]
pub fn to_odd(sum: f64, error: f64) -> f64 {
    if error == 0.0 || !sum.is_finite() || !error.is_finite() || sum.to_bits() & 1 == 1 {
        return sum;
    }
    let outward = (error > 0.0) == (sum > 0.0);
    f64::from_bits(if outward { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

/// `a + b` as a rounded sum and its exact error.
#[inline(always)]
pub fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let part = sum - a;
    (sum, (a - (sum - part)) + (b - part))
}

/// Moves a nearest result by one place where its error says that the direction demands it.
#[inline(always)]
pub fn direct(nearest: f64, error: f64, rounding: Rounding) -> f64 {
    if error == 0.0 || error.is_nan() || nearest.is_nan() {
        return nearest;
    }
    if nearest.is_infinite() {
        return match rounding {
            Rounding::Zero => f64::MAX.copysign(nearest),
            Rounding::Down if nearest > 0.0 => f64::MAX,
            Rounding::Up if nearest < 0.0 => -f64::MAX,
            _ => nearest,
        };
    }
    match rounding {
        Rounding::Nearest | Rounding::Away => nearest,
        Rounding::Down if error < 0.0 => nearest.next_down(),
        Rounding::Up if error > 0.0 => nearest.next_up(),
        Rounding::Zero if nearest > 0.0 && error < 0.0 => nearest.next_down(),
        Rounding::Zero if nearest < 0.0 && error > 0.0 => nearest.next_up(),
        _ => nearest,
    }
}

/// IEEE half precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct F16(pub u16);

impl F16 {
    /// The nearest half; halves an eighth of singles exactly, so this is the only conversion the fast path needs.
    #[inline(always)]
    pub fn from_single(value: f32) -> Self {
        let bits = value.to_bits();
        let sign = ((bits >> 16) & 0x8000) as u16;
        let magnitude = bits & 0x7fff_ffff;
        if magnitude > 0x7f80_0000 {
            return Self(0x7fff);
        }
        if magnitude >= 0x4780_0000 {
            return Self(sign | 0x7c00);
        }
        if magnitude < 0x3880_0000 {
            // Below 2^-14: adding a half makes the unit in the last place 2^-24, the step of subnormal halves.
            let rounded = f32::from_bits(magnitude) + 0.5;
            return Self(sign | (rounded.to_bits() - 0x3f00_0000) as u16);
        }
        let odd = (magnitude >> 13) & 1;
        let rounded = magnitude + 0xfff + odd - (112 << 23);
        Self(sign | (rounded >> 13) as u16)
    }

    /// Rounds a double.
    #[inline(always)]
    pub fn from_double(value: f64, rounding: Rounding) -> Self {
        Self::from_single(round_to(value, 11, -14, 65504.0, rounding) as f32)
    }

    /// Exact.
    #[inline(always)]
    pub fn single(self) -> f32 {
        let sign = u32::from(self.0 & 0x8000) << 16;
        let magnitude = u32::from(self.0 & 0x7fff);
        let value = if magnitude >= 0x7c00 {
            f32::from_bits((magnitude << 13) | 0x7f80_0000)
        } else {
            // Scaling by 2^112 moves the exponent to its new bias and makes subnormals normal.
            f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000)
        };
        f32::from_bits(value.to_bits() | sign)
    }
}

/// The upper half of a single.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bf16(pub u16);

impl Bf16 {
    /// The nearest value.
    #[inline(always)]
    pub fn from_single(value: f32) -> Self {
        let bits = value.to_bits();
        if value.is_nan() {
            return Self(0x7fff);
        }
        Self(((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16)
    }

    /// Rounds a double.
    #[inline(always)]
    pub fn from_double(value: f64, rounding: Rounding) -> Self {
        let largest = f64::from(f32::from_bits(0x7f7f_0000));
        Self::from_single(round_to(value, 8, -126, largest, rounding) as f32)
    }

    /// Exact.
    #[inline(always)]
    pub fn single(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

/// A single whose subnormal operands and results are zero (`.ftz`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ftz(pub f32);

/// Replaces a subnormal by a zero of its sign.
#[inline(always)]
pub fn flush(value: f32) -> f32 {
    let bits = value.to_bits();
    if bits & 0x7f80_0000 == 0 {
        f32::from_bits(bits & 0x8000_0000)
    } else {
        value
    }
}

impl Lane for F16 {
    type Raw = u32;
    #[inline(always)]
    fn of(raw: u32) -> Self {
        Self(raw as u16)
    }
    #[inline(always)]
    fn raw(self) -> u32 {
        u32::from(self.0)
    }
}

impl Lane for Bf16 {
    type Raw = u32;
    #[inline(always)]
    fn of(raw: u32) -> Self {
        Self(raw as u16)
    }
    #[inline(always)]
    fn raw(self) -> u32 {
        u32::from(self.0)
    }
}

impl Lane for Ftz {
    type Raw = u32;
    #[inline(always)]
    fn of(raw: u32) -> Self {
        Self(flush(f32::from_bits(raw)))
    }
    #[inline(always)]
    fn raw(self) -> u32 {
        flush(self.0).to_bits()
    }
}
