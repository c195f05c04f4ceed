// SPDX-License-Identifier: Apache-2.0
//! What floating and converting instructions compute.

use super::*;

/// Clears what `.ftz` clears.
fn ftz(value: f32) -> f32 {
    if value.is_subnormal() {
        0f32.copysign(value)
    } else {
        value
    }
}

fn smaller(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a == b => {
            if a.is_sign_negative() {
                a
            } else {
                b
            }
        }
        _ => a.min(b),
    }
}

pub const FLOATS: &[Case] = &[
    ("add.f32 %d32, %a32, %b32;", |a, b, _| fb(f(a) + f(b))),
    ("add.rn.ftz.f32 %d32, %a32, %b32;", |a, b, _| {
        fb(ftz(ftz(f(a)) + ftz(f(b))))
    }),
    ("sub.f64 %d64, %a64, %b64;", |a, b, _| (d(a) - d(b)).to_bits()),
    ("mul.rn.f32 %d32, %a32, %b32;", |a, b, _| fb(f(a) * f(b))),
    ("mul.sat.f32 %d32, %a32, %b32;", |a, b, _| {
        let product = f(a) * f(b);
        fb(if product > 1.0 {
            1.0
        } else if product > 0.0 {
            product
        } else {
            0.0
        })
    }),
    ("mul.f64 %d64, %a64, %b64;", |a, b, _| (d(a) * d(b)).to_bits()),
    ("fma.rn.f32 %d32, %a32, %b32, %c32;", |a, b, c| {
        fb(f(a).mul_add(f(b), f(c)))
    }),
    ("fma.rn.f64 %d64, %a64, %b64, %c64;", |a, b, c| {
        d(a).mul_add(d(b), d(c)).to_bits()
    }),
    (
        "mad.f32 %d32, %a32, %b32, %c32;",
        |a, b, c| fb(f(a).mul_add(f(b), f(c))),
    ),
    ("div.rn.f32 %d32, %a32, %b32;", |a, b, _| fb(f(a) / f(b))),
    ("div.rn.f64 %d64, %a64, %b64;", |a, b, _| (d(a) / d(b)).to_bits()),
    ("rcp.rn.f32 %d32, %a32;", |a, _, _| fb(1.0 / f(a))),
    ("sqrt.rn.f32 %d32, %a32;", |a, _, _| fb(f(a).sqrt())),
    ("sqrt.rn.f64 %d64, %a64;", |a, _, _| d(a).sqrt().to_bits()),
    ("neg.f32 %d32, %a32;", |a, _, _| fb(-f(a))),
    ("abs.f64 %d64, %a64;", |a, _, _| d(a).abs().to_bits()),
    ("min.f32 %d32, %a32, %b32;", |a, b, _| fb(smaller(f(a), f(b)))),
    ("max.f32 %d32, %a32, %b32;", |a, b, _| fb(-smaller(-f(a), -f(b)))),
    ("min.NaN.f32 %d32, %a32, %b32;", |a, b, _| {
        fb(if f(a).is_nan() || f(b).is_nan() {
            f32::NAN
        } else {
            smaller(f(a), f(b))
        })
    }),
    ("copysign.f32 %d32, %a32, %b32;", |a, b, _| fb(f(b).copysign(f(a)))),
    ("add.rz.f32 %d32, %a32, %b32;", |a, b, _| {
        fb(towards_zero(f64::from(f(a)), f64::from(f(b)), |a, b| a + b))
    }),
    ("mul.rz.f32 %d32, %a32, %b32;", |a, b, _| {
        fb(towards_zero(f64::from(f(a)), f64::from(f(b)), |a, b| a * b))
    }),
    (
        "add.rm.f64 %d64, %a64, %b64; add.rp.f64 %e64, %a64, %b64; sub.f64 %d64, %e64, %d64;",
        |a, b, _| {
            // Rounding down and up differ by one place exactly where the sum is inexact.
            let sum = d(a) + d(b);
            let part = sum - d(a);
            let error = (d(a) - (sum - part)) + (d(b) - part);
            let (low, high) = if sum.is_infinite() && d(a).is_finite() && d(b).is_finite() {
                if sum > 0.0 { (f64::MAX, sum) } else { (sum, f64::MIN) }
            } else if error < 0.0 {
                (sum.next_down(), sum)
            } else if error > 0.0 {
                (sum, sum.next_up())
            } else {
                (sum, sum)
            };
            (high - low).to_bits()
        },
    ),
];

/// A sum or product of singles, which a double holds exactly or to well beyond a single's place, cut towards zero.
fn towards_zero(a: f64, b: f64, operation: fn(f64, f64) -> f64) -> f32 {
    let (exact, nearest) = (operation(a, b), operation(a, b) as f32);
    // A sum of singles far apart is inexact in a double too: then the smaller one only says in which direction.
    let part = exact - a;
    let lost = if operation(1.0, 1.0) == 2.0 {
        (a - (exact - part)) + (b - part)
    } else {
        0.0
    };
    if !exact.is_finite() {
        return nearest;
    }
    let wide = f64::from(nearest);
    let beyond = if wide == exact {
        lost * exact < 0.0
    } else {
        wide.abs() > exact.abs()
    };
    match (beyond, nearest.is_infinite()) {
        (true, true) => f32::MAX.copysign(nearest),
        (true, false) if nearest > 0.0 => nearest.next_down(),
        (true, false) => nearest.next_up(),
        _ => nearest,
    }
}

pub const CONVERSIONS: &[Case] = &[
    ("cvt.s64.s32 %d64, %a32;", |a, _, _| i64::from(i(a)) as u64),
    ("cvt.u64.u16 %d64, %a16;", |a, _, _| a & 0xffff),
    ("cvt.s32.s16 %d32, %a16;", |a, _, _| ib(i32::from(a as i16))),
    ("cvt.s32.s8 %d32, %a32;", |a, _, _| ib(i32::from(a as i8))),
    ("cvt.s8.s32 %d32, %a32;", |a, _, _| ib(i32::from(a as i8))),
    ("cvt.u8.u32 %d32, %a32;", |a, _, _| a & 0xff),
    ("cvt.u16.u64 %d16, %a64;", |a, _, _| a & 0xffff),
    ("cvt.sat.u8.s32 %d32, %a32;", |a, _, _| ib(i(a).clamp(0, 255))),
    ("cvt.sat.s16.s64 %d16, %a64;", |a, _, _| {
        u64::from((a as i64).clamp(-32768, 32767) as u16)
    }),
    ("cvt.rn.f32.s32 %d32, %a32;", |a, _, _| fb(i(a) as f32)),
    ("cvt.rn.f32.u64 %d32, %a64;", |a, _, _| fb(a as f32)),
    ("cvt.rn.f64.s64 %d64, %a64;", |a, _, _| (a as i64 as f64).to_bits()),
    ("cvt.rn.f64.u32 %d64, %a32;", |a, _, _| f64::from(u(a)).to_bits()),
    ("cvt.rzi.s32.f32 %d32, %a32;", |a, _, _| ib(f(a) as i32)),
    ("cvt.rni.s32.f32 %d32, %a32;", |a, _, _| {
        ib(f(a).round_ties_even() as i32)
    }),
    ("cvt.rmi.u64.f64 %d64, %a64;", |a, _, _| d(a).floor() as u64),
    ("cvt.rpi.s64.f32 %d64, %a32;", |a, _, _| f(a).ceil() as i64 as u64),
    ("cvt.rzi.u8.f32 %d32, %a32;", |a, _, _| u64::from(f(a) as u8)),
    ("cvt.f64.f32 %d64, %a32;", |a, _, _| f64::from(f(a)).to_bits()),
    ("cvt.rn.f32.f64 %d32, %a64;", |a, _, _| fb(d(a) as f32)),
    ("cvt.rz.f32.f64 %d32, %a64;", |a, _, _| {
        let nearest = d(a) as f32;
        fb(match f64::from(nearest).abs() > d(a).abs() {
            true if nearest.is_infinite() && d(a).is_finite() => f32::MAX.copysign(nearest),
            true if nearest > 0.0 => nearest.next_down(),
            true => nearest.next_up(),
            false => nearest,
        })
    }),
    ("cvt.rmi.f32.f32 %d32, %a32;", |a, _, _| fb(f(a).floor())),
    ("cvt.rni.f64.f64 %d64, %a64;", |a, _, _| {
        d(a).round_ties_even().to_bits()
    }),
    ("cvt.sat.f32.f32 %d32, %a32;", |a, _, _| {
        fb(if f(a) > 0.0 { f(a).min(1.0) } else { 0.0 })
    }),
    ("cvt.rn.bf16.f32 %d16, %a32; mov.b32 %d32, {0, %d16};", |a, _, _| {
        let bits = u(a);
        if f(a).is_nan() {
            fb(f32::NAN)
        } else {
            ub((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
        }
    }),
];
