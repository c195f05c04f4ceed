// SPDX-License-Identifier: Apache-2.0
//! What floating instructions need of a type, for halves, singles and doubles.

use super::lanes::Lane;
use super::number::{Bf16, F16, Ftz, Rounding, direct, to_odd, to_single, two_sum};

/// What floating instructions need of a type.
pub trait Float: Lane {
    /// Exact value.
    fn double(self) -> f64;
    /// Rounds a value that is exact or rounded to odd.
    fn round(value: f64, rounding: Rounding) -> Self;
    /// Nearest sum.
    fn add(self, other: Self) -> Self;
    /// Nearest product.
    fn mul(self, other: Self) -> Self;
    /// Nearest quotient.
    fn div(self, other: Self) -> Self;
    /// Nearest fused multiply-add.
    fn fma(self, factor: Self, addend: Self) -> Self;
    /// Nearest square root.
    fn sqrt(self) -> Self;
    /// Sign flipped.
    fn neg(self) -> Self;
    /// Sign cleared.
    fn abs(self) -> Self;
    /// Sum rounded in a direction.
    fn add_directed(self, other: Self, rounding: Rounding) -> Self;
    /// Product rounded in a direction.
    fn mul_directed(self, other: Self, rounding: Rounding) -> Self;
    /// Quotient rounded in a direction.
    fn div_directed(self, other: Self, rounding: Rounding) -> Self;
    /// Fused multiply-add rounded in a direction.
    fn fma_directed(self, factor: Self, addend: Self, rounding: Rounding) -> Self;
    /// Square root rounded in a direction.
    fn sqrt_directed(self, rounding: Rounding) -> Self;
    /// Applies a function of singles or doubles whose result need only be close.
    fn approximate(self, single: fn(f32) -> f32, double: fn(f64) -> f64) -> Self;
    /// True for NaN.
    fn is_nan(self) -> bool;
    /// The NaN that instructions produce.
    fn nan() -> Self;
}

macro_rules! narrow_float {
    ($type:ty, $of:expr, $single:expr, $round:expr, $flip:expr, $nan:expr) => {
        impl Float for $type {
            #[inline(always)]
            fn double(self) -> f64 {
                f64::from($single(self))
            }
            #[inline(always)]
            fn round(value: f64, rounding: Rounding) -> Self {
                $round(value, rounding)
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                $of($single(self) + $single(other))
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                $of($single(self) * $single(other))
            }
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                $of($single(self) / $single(other))
            }
            #[inline(always)]
            fn fma(self, factor: Self, addend: Self) -> Self {
                if size_of::<$type>() == 4 {
                    return $of($single(self).mul_add($single(factor), $single(addend)));
                }
                self.fma_directed(factor, addend, Rounding::Nearest)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                $of($single(self).sqrt())
            }
            #[inline(always)]
            fn neg(self) -> Self {
                $flip(self, true)
            }
            #[inline(always)]
            fn abs(self) -> Self {
                $flip(self, false)
            }
            #[inline(always)]
            fn add_directed(self, other: Self, rounding: Rounding) -> Self {
                let (sum, error) = two_sum(self.double(), other.double());
                $round(
                    signed_zero(to_odd(sum, error), self.double(), other.double(), rounding),
                    rounding,
                )
            }
            #[inline(always)]
            fn mul_directed(self, other: Self, rounding: Rounding) -> Self {
                $round(self.double() * other.double(), rounding)
            }
            #[inline(always)]
            fn div_directed(self, other: Self, rounding: Rounding) -> Self {
                let (a, b) = (self.double(), other.double());
                let quotient = a / b;
                $round(to_odd(quotient, (-quotient).mul_add(b, a) * b), rounding)
            }
            #[inline(always)]
            fn fma_directed(self, factor: Self, addend: Self, rounding: Rounding) -> Self {
                let product = self.double() * factor.double();
                let (sum, error) = two_sum(product, addend.double());
                $round(
                    signed_zero(to_odd(sum, error), product, addend.double(), rounding),
                    rounding,
                )
            }
            #[inline(always)]
            fn sqrt_directed(self, rounding: Rounding) -> Self {
                let root = self.double().sqrt();
                $round(to_odd(root, (-root).mul_add(root, self.double())), rounding)
            }
            #[inline(always)]
            fn approximate(self, single: fn(f32) -> f32, _: fn(f64) -> f64) -> Self {
                $of(single($single(self)))
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                $single(self).is_nan()
            }
            #[inline(always)]
            fn nan() -> Self {
                $nan
            }
        }
    };
}

/// An exact sum of zero from unlike signs is minus zero when rounding down, plus zero otherwise.
#[inline(always)]
fn signed_zero(sum: f64, a: f64, b: f64, rounding: Rounding) -> f64 {
    if sum == 0.0 && rounding == Rounding::Down && (a.is_sign_negative() || b.is_sign_negative()) {
        -0.0
    } else {
        sum
    }
}

narrow_float!(
    f32,
    |value| value,
    |value: f32| value,
    to_single,
    |value: f32, flip: bool| if flip { -value } else { value.abs() },
    f32::from_bits(0x7fff_ffff)
);
narrow_float!(
    Ftz,
    Ftz,
    |value: Ftz| value.0,
    |value, rounding| Ftz(to_single(value, rounding)),
    |value: Ftz, flip: bool| Ftz(if flip { -value.0 } else { value.0.abs() }),
    Ftz(f32::from_bits(0x7fff_ffff))
);
narrow_float!(
    F16,
    F16::from_single,
    F16::single,
    F16::from_double,
    |value: F16, flip: bool| F16(if flip { value.0 ^ 0x8000 } else { value.0 & 0x7fff }),
    F16(0x7fff)
);
narrow_float!(
    Bf16,
    Bf16::from_single,
    Bf16::single,
    Bf16::from_double,
    |value: Bf16, flip: bool| Bf16(if flip { value.0 ^ 0x8000 } else { value.0 & 0x7fff }),
    Bf16(0x7fff)
);

impl Float for f64 {
    #[inline(always)]
    fn double(self) -> f64 {
        self
    }
    #[inline(always)]
    fn round(value: f64, _: Rounding) -> Self {
        value
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self + other
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self * other
    }
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        self / other
    }
    #[inline(always)]
    fn fma(self, factor: Self, addend: Self) -> Self {
        self.mul_add(factor, addend)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        f64::sqrt(self)
    }
    #[inline(always)]
    fn neg(self) -> Self {
        -self
    }
    #[inline(always)]
    fn abs(self) -> Self {
        f64::abs(self)
    }
    fn add_directed(self, other: Self, rounding: Rounding) -> Self {
        let (sum, error) = two_sum(self, other);
        direct(signed_zero(sum, self, other, rounding), error, rounding)
    }
    fn mul_directed(self, other: Self, rounding: Rounding) -> Self {
        let product = self * other;
        direct(product, self.mul_add(other, -product), rounding)
    }
    fn div_directed(self, other: Self, rounding: Rounding) -> Self {
        let quotient = self / other;
        direct(quotient, (-quotient).mul_add(other, self) * other.signum(), rounding)
    }
    fn fma_directed(self, factor: Self, addend: Self, rounding: Rounding) -> Self {
        let nearest = self.mul_add(factor, addend);
        let product = self * factor;
        let low = self.mul_add(factor, -product);
        let (upper, upper_error) = two_sum(addend, low);
        let (total, total_error) = two_sum(product, upper);
        let error = ((total - nearest) + total_error) + upper_error;
        direct(signed_zero(nearest, product, addend, rounding), error, rounding)
    }
    fn sqrt_directed(self, rounding: Rounding) -> Self {
        let root = f64::sqrt(self);
        direct(root, (-root).mul_add(root, self), rounding)
    }
    #[inline(always)]
    fn approximate(self, _: fn(f32) -> f32, double: fn(f64) -> f64) -> Self {
        double(self)
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        f64::is_nan(self)
    }
    #[inline(always)]
    fn nan() -> Self {
        f64::NAN
    }
}
