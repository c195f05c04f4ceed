// SPDX-License-Identifier: Apache-2.0
//! Every arithmetic, logic and conversion instruction against what the processor computes, on random and awkward
//! operands.

mod support;

use proptest::prelude::*;
use support::operation::results;

/// An instruction and what it should come close to.
type Approximation = (&'static str, fn(f64) -> f64);
/// An instruction and what it computes.
type Case = (&'static str, fn(u64, u64, u64) -> u64);

fn f(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn fb(value: f32) -> u64 {
    u64::from(value.to_bits())
}

fn d(bits: u64) -> f64 {
    f64::from_bits(bits)
}

fn i(bits: u64) -> i32 {
    bits as i32
}

fn ib(value: i32) -> u64 {
    u64::from(value as u32)
}

fn u(bits: u64) -> u32 {
    bits as u32
}

fn ub(value: u32) -> u64 {
    u64::from(value)
}

fn flag(value: bool) -> u64 {
    u64::from(value)
}

const INTEGERS: &[Case] = &[
    ("add.s32 %d32, %a32, %b32;", |a, b, _| ub(u(a).wrapping_add(u(b)))),
    ("add.u64 %d64, %a64, %b64;", |a, b, _| a.wrapping_add(b)),
    ("add.s16 %d16, %a16, %b16;", |a, b, _| {
        u64::from((a as u16).wrapping_add(b as u16))
    }),
    ("add.sat.s32 %d32, %a32, %b32;", |a, b, _| ib(i(a).saturating_add(i(b)))),
    ("sub.sat.s32 %d32, %a32, %b32;", |a, b, _| ib(i(a).saturating_sub(i(b)))),
    ("sub.s64 %d64, %a64, %b64;", |a, b, _| a.wrapping_sub(b)),
    ("sub.u32 %d32, 7, %b32;", |_, b, _| ub(7u32.wrapping_sub(u(b)))),
    ("mul.lo.s32 %d32, %a32, %b32;", |a, b, _| ub(u(a).wrapping_mul(u(b)))),
    ("mul.lo.u64 %d64, %a64, %b64;", |a, b, _| a.wrapping_mul(b)),
    ("mul.hi.u32 %d32, %a32, %b32;", |a, b, _| (ub(u(a)) * ub(u(b))) >> 32),
    ("mul.hi.s32 %d32, %a32, %b32;", |a, b, _| {
        ib(((i64::from(i(a)) * i64::from(i(b))) >> 32) as i32)
    }),
    ("mul.hi.u64 %d64, %a64, %b64;", |a, b, _| {
        ((u128::from(a) * u128::from(b)) >> 64) as u64
    }),
    ("mul.hi.s64 %d64, %a64, %b64;", |a, b, _| {
        ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64
    }),
    ("mul.hi.s16 %d16, %a16, %b16;", |a, b, _| {
        u64::from(((i32::from(a as i16) * i32::from(b as i16)) >> 16) as u16)
    }),
    ("mul.wide.s32 %d64, %a32, %b32;", |a, b, _| {
        (i64::from(i(a)) * i64::from(i(b))) as u64
    }),
    ("mul.wide.u32 %d64, %a32, %b32;", |a, b, _| ub(u(a)) * ub(u(b))),
    ("mul.wide.u16 %d32, %a16, %b16;", |a, b, _| {
        ub(u32::from(a as u16) * u32::from(b as u16))
    }),
    ("mul.wide.s16 %d32, %a16, %b16;", |a, b, _| {
        ib(i32::from(a as i16) * i32::from(b as i16))
    }),
    ("mul24.lo.s32 %d32, %a32, %b32;", |a, b, _| {
        ub(((i64::from(i(a) << 8 >> 8)) * i64::from(i(b) << 8 >> 8)) as u32)
    }),
    ("mul24.hi.u32 %d32, %a32, %b32;", |a, b, _| {
        ((a & 0xff_ffff) * (b & 0xff_ffff)) >> 16 & 0xffff_ffff
    }),
    ("mad.lo.s32 %d32, %a32, %b32, %c32;", |a, b, c| {
        ub(u(a).wrapping_mul(u(b)).wrapping_add(u(c)))
    }),
    ("mad.lo.s64 %d64, %a64, %b64, %c64;", |a, b, c| {
        a.wrapping_mul(b).wrapping_add(c)
    }),
    ("mad.hi.u32 %d32, %a32, %b32, %c32;", |a, b, c| {
        ub((((ub(u(a)) * ub(u(b))) >> 32) as u32).wrapping_add(u(c)))
    }),
    ("mad.wide.s32 %d64, %a32, %b32, %c64;", |a, b, c| {
        (i64::from(i(a)) * i64::from(i(b))).wrapping_add(c as i64) as u64
    }),
    ("mad24.lo.u32 %d32, %a32, %b32, %c32;", |a, b, c| {
        ub((((a & 0xff_ffff) * (b & 0xff_ffff)) as u32).wrapping_add(u(c)))
    }),
    ("sad.s32 %d32, %a32, %b32, %c32;", |a, b, c| {
        ub(i(a).abs_diff(i(b)).wrapping_add(u(c)))
    }),
    ("sad.u64 %d64, %a64, %b64, %c64;", |a, b, c| {
        a.abs_diff(b).wrapping_add(c)
    }),
    ("div.s32 %d32, %a32, %b32;", |a, b, _| {
        if u(b) == 0 {
            ub(u32::MAX)
        } else {
            ib(i(a).wrapping_div(i(b)))
        }
    }),
    ("div.u64 %d64, %a64, %b64;", |a, b, _| {
        a.checked_div(b).unwrap_or(u64::MAX)
    }),
    ("rem.s32 %d32, %a32, %b32;", |a, b, _| {
        if u(b) == 0 {
            ub(u(a))
        } else {
            ib(i(a).wrapping_rem(i(b)))
        }
    }),
    ("rem.u32 %d32, %a32, %b32;", |a, b, _| {
        ub(u(a).checked_rem(u(b)).unwrap_or(u(a)))
    }),
    ("rem.s64 %d64, %a64, %b64;", |a, b, _| {
        if b == 0 {
            a
        } else {
            (a as i64).wrapping_rem(b as i64) as u64
        }
    }),
    ("abs.s32 %d32, %a32;", |a, _, _| ib(i(a).wrapping_abs())),
    ("neg.s64 %d64, %a64;", |a, _, _| a.wrapping_neg()),
    ("min.s32 %d32, %a32, %b32;", |a, b, _| ib(i(a).min(i(b)))),
    ("max.u32 %d32, %a32, %b32;", |a, b, _| ub(u(a).max(u(b)))),
    ("min.u16 %d16, %a16, %b16;", |a, b, _| {
        u64::from((a as u16).min(b as u16))
    }),
    ("max.s64 %d64, %a64, %b64;", |a, b, _| (a as i64).max(b as i64) as u64),
    ("add.cc.u32 %e32, %a32, %b32; addc.u32 %d32, %c32, 0;", |a, b, c| {
        ub(u(c).wrapping_add(u32::from(u(a).checked_add(u(b)).is_none())))
    }),
    ("sub.cc.u64 %e64, %a64, %b64; subc.u64 %d64, %c64, 5;", |a, b, c| {
        c.wrapping_sub(5).wrapping_sub(u64::from(a < b))
    }),
    (
        "mad.lo.cc.u32 %e32, %a32, %b32, %c32; madc.hi.u32 %d32, %a32, %b32, 0;",
        |a, b, c| (ub(u(a)) * ub(u(b)) + ub(u(c))) >> 32,
    ),
];

const BITS: &[Case] = &[
    ("and.b32 %d32, %a32, %b32;", |a, b, _| ub(u(a) & u(b))),
    ("or.b64 %d64, %a64, %b64;", |a, b, _| a | b),
    ("xor.b16 %d16, %a16, %b16;", |a, b, _| u64::from((a ^ b) as u16)),
    ("not.b32 %d32, %a32;", |a, _, _| ub(!u(a))),
    ("cnot.b32 %d32, %a32;", |a, _, _| flag(u(a) == 0)),
    ("shl.b32 %d32, %a32, %b32;", |a, b, _| {
        ub(u(a).checked_shl(u(b)).unwrap_or(0))
    }),
    ("shl.b64 %d64, %a64, %b32;", |a, b, _| a.checked_shl(u(b)).unwrap_or(0)),
    ("shl.b16 %d16, %a16, %b32;", |a, b, _| {
        u64::from((a as u16).checked_shl(u(b)).unwrap_or(0))
    }),
    ("shr.u32 %d32, %a32, %b32;", |a, b, _| {
        ub(u(a).checked_shr(u(b)).unwrap_or(0))
    }),
    ("shr.s32 %d32, %a32, %b32;", |a, b, _| ib(i(a) >> u(b).min(31))),
    ("shr.s64 %d64, %a64, %b32;", |a, b, _| {
        ((a as i64) >> u(b).min(63)) as u64
    }),
    ("shr.s16 %d16, %a16, %b32;", |a, b, _| {
        u64::from(((a as i16) >> u(b).min(15)) as u16)
    }),
    ("and.b32 %e32, %b32, 63; shl.b64 %d64, %a64, %e32;", |a, b, _| {
        a << (b & 63)
    }),
    ("and.b32 %e32, %b32, 31; shr.s32 %d32, %a32, %e32;", |a, b, _| {
        ib(i(a) >> (b & 31))
    }),
    ("shf.l.wrap.b32 %d32, %a32, %b32, %c32;", |a, b, c| {
        ub((((ub(u(b)) << 32 | ub(u(a))) << (c & 31)) >> 32) as u32)
    }),
    ("shf.r.clamp.b32 %d32, %a32, %b32, %c32;", |a, b, c| {
        ub(((ub(u(b)) << 32 | ub(u(a))) >> u(c).min(32)) as u32)
    }),
    ("popc.b64 %d32, %a64;", |a, _, _| ub(a.count_ones())),
    ("clz.b32 %d32, %a32;", |a, _, _| ub(u(a).leading_zeros())),
    ("clz.b64 %d32, %a64;", |a, _, _| ub(a.leading_zeros())),
    ("brev.b32 %d32, %a32;", |a, _, _| ub(u(a).reverse_bits())),
    ("bfind.u32 %d32, %a32;", |a, _, _| {
        ub(31u32.wrapping_sub(u(a).leading_zeros()))
    }),
    ("bfind.s32 %d32, %a32;", |a, _, _| {
        ub(31u32.wrapping_sub((if i(a) < 0 { !u(a) } else { u(a) }).leading_zeros()))
    }),
    ("bfind.shiftamt.u64 %d32, %a64;", |a, _, _| {
        ub(if a == 0 { u32::MAX } else { a.leading_zeros() })
    }),
    ("and.b32 %e32, %b32, 31; bfe.u32 %d32, %a32, %e32, 7;", |a, b, _| {
        ub((u(a) >> (b & 31)) & 127)
    }),
    ("bfe.s32 %d32, %a32, 4, 12;", |a, _, _| ib(i(a) << 16 >> 20)),
    ("bfe.s64 %d64, %a64, 60, 12;", |a, _, _| ((a as i64) >> 60) as u64),
    ("bfe.u64 %d64, %a64, 8, 0;", |_, _, _| 0),
    ("bfi.b32 %d32, %a32, %b32, 8, 5;", |a, b, _| {
        ub((u(b) & !0x1f00) | (u(a) & 0x1f) << 8)
    }),
    ("bfi.b64 %d64, %a64, %b64, 32, 32;", |a, b, _| {
        (b & 0xffff_ffff) | a << 32
    }),
    ("bfi.b32 %d32, %a32, %b32, 30, 9;", |a, b, _| {
        ub((u(b) & 0x3fff_ffff) | u(a) << 30)
    }),
    ("prmt.b32 %d32, %a32, %b32, 0x5410;", |a, b, _| {
        ub((u(a) & 0xffff) | u(b) << 16)
    }),
    ("prmt.b32 %d32, %a32, %b32, 0xb3d7;", |a, b, _| {
        let bytes: Vec<u8> = u(a).to_le_bytes().into_iter().chain(u(b).to_le_bytes()).collect();
        let sign = |byte: u8| if byte >= 0x80 { 0xff } else { 0 };
        ub(u32::from_le_bytes([bytes[7], sign(bytes[5]), bytes[3], sign(bytes[3])]))
    }),
    ("prmt.b32.f4e %d32, %a32, %b32, %c32;", |a, b, c| {
        ub(((ub(u(b)) << 32 | ub(u(a))) >> (8 * (c & 3))) as u32)
    }),
    ("lop3.b32 %d32, %a32, %b32, %c32, 0x96;", |a, b, c| {
        ub(u(a) ^ u(b) ^ u(c))
    }),
    ("lop3.b32 %d32, %a32, %b32, %c32, 0xe8;", |a, b, c| {
        ub((u(a) & u(b)) | (u(b) & u(c)) | (u(a) & u(c)))
    }),
    ("dp4a.u32.s32 %d32, %a32, %b32, %c32;", |a, b, c| {
        let pairs = u(a).to_le_bytes().into_iter().zip(u(b).to_le_bytes());
        ib(pairs.fold(i(c), |sum, (a, b)| sum.wrapping_add(i32::from(a) * i32::from(b as i8))))
    }),
    ("dp2a.hi.s32.u32 %d32, %a32, %b32, %c32;", |a, b, c| {
        let bytes = u(b).to_le_bytes();
        let part = |at: u32| i32::from((u(a) >> (16 * at)) as i16) * i32::from(bytes[2 + at as usize]);
        ib(i(c).wrapping_add(part(0)).wrapping_add(part(1)))
    }),
    ("bmsk.wrap.b32 %d32, %a32, %b32;", |a, b, _| {
        ub((((1u64 << (b & 31)) - 1) << (a & 31)) as u32)
    }),
    ("szext.wrap.s32 %d32, %a32, %b32;", |a, b, _| match b & 31 {
        0 => 0,
        width => ib(i(a) << (32 - width) >> (32 - width)),
    }),
    ("mov.b64 %d64, {%a32, %b32};", |a, b, _| ub(u(a)) | ub(u(b)) << 32),
    ("mov.b32 %d32, {%a16, %b16};", |a, b, _| {
        (a & 0xffff) | (b & 0xffff) << 16
    }),
    ("mov.b64 {%e32, %d32}, %a64;", |a, _, _| a >> 32),
    ("mov.b32 {%d16, %e16}, %a32;", |a, _, _| a & 0xffff),
    ("mov.b64 %d64, {%a16, %b16, %c16, %a16};", |a, b, c| {
        (a & 0xffff) | (b & 0xffff) << 16 | (c & 0xffff) << 32 | a << 48
    }),
    ("and.pred %pd, %pa, %pb;", |a, b, _| a & b & 1),
    ("xor.pred %pd, %pa, %pb; not.pred %pd, %pd;", |a, b, _| !(a ^ b) & 1),
    ("or.pred %pd, %pa, %pb;", |a, b, _| (a | b) & 1),
    ("selp.b32 %d32, %a32, %b32, %pc;", |a, b, c| {
        if c & 1 == 1 { ub(u(a)) } else { ub(u(b)) }
    }),
    (
        "selp.b64 %d64, %a64, %b64, !%pc;",
        |a, b, c| if c & 1 == 0 { a } else { b },
    ),
    ("slct.b32.s32 %d32, %a32, %b32, %c32;", |a, b, c| {
        if i(c) >= 0 { ub(u(a)) } else { ub(u(b)) }
    }),
    ("@%pc mov.b64 %d64, %a64; @!%pc mov.b64 %d64, %b64;", |a, b, c| {
        if c & 1 == 1 { a } else { b }
    }),
];

const COMPARISONS: &[Case] = &[
    ("setp.lt.s32 %pd, %a32, %b32;", |a, b, _| flag(i(a) < i(b))),
    ("setp.lo.u32 %pd, %a32, %b32;", |a, b, _| flag(u(a) < u(b))),
    ("setp.ge.s64 %pd, %a64, %b64;", |a, b, _| flag(a as i64 >= b as i64)),
    ("setp.hs.u64 %pd, %a64, %b64;", |a, b, _| flag(a >= b)),
    ("setp.ne.b16 %pd, %a16, %b16;", |a, b, _| flag(a as u16 != b as u16)),
    ("setp.gt.and.u32 %pd, %a32, %b32, %pc;", |a, b, c| flag(u(a) > u(b)) & c),
    ("setp.le.or.s32 %pd|%pe, %a32, %b32, !%pc;", |a, b, c| {
        flag(i(a) <= i(b)) | (!c & 1)
    }),
    ("setp.eq.xor.s32 %pe|%pd, %a32, %b32, %pc;", |a, b, c| {
        flag(i(a) != i(b)) ^ (c & 1)
    }),
    ("setp.lt.f32 %pd, %a32, %b32;", |a, b, _| flag(f(a) < f(b))),
    ("setp.ge.f64 %pd, %a64, %b64;", |a, b, _| flag(d(a) >= d(b))),
    ("setp.ne.f32 %pd, %a32, %b32;", |a, b, _| {
        flag(f(a) < f(b) || f(a) > f(b))
    }),
    ("setp.neu.f32 %pd, %a32, %b32;", |a, b, _| flag(f(a) != f(b))),
    ("setp.equ.f32 %pd, %a32, %b32;", |a, b, _| {
        flag(f(a) == f(b) || f(a).is_nan() || f(b).is_nan())
    }),
    ("setp.ltu.f64 %pd, %a64, %b64;", |a, b, _| {
        flag(d(a) < d(b) || d(a).is_nan() || d(b).is_nan())
    }),
    ("setp.num.f32 %pd, %a32, %b32;", |a, b, _| {
        flag(!f(a).is_nan() && !f(b).is_nan())
    }),
    ("setp.nan.f64 %pd, %a64, %b64;", |a, b, _| {
        flag(d(a).is_nan() || d(b).is_nan())
    }),
    ("set.gt.u32.s32 %d32, %a32, %b32;", |a, b, _| {
        if i(a) > i(b) { ub(u32::MAX) } else { 0 }
    }),
    ("set.le.f32.f32 %d32, %a32, %b32;", |a, b, _| {
        if f(a) <= f(b) { fb(1.0) } else { 0 }
    }),
    ("testp.infinite.f32 %pd, %a32;", |a, _, _| flag(f(a).is_infinite())),
    ("testp.subnormal.f64 %pd, %a64;", |a, _, _| flag(d(a).is_subnormal())),
    ("testp.normal.f32 %pd, %a32;", |a, _, _| flag(f(a).is_normal())),
];

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

const FLOATS: &[Case] = &[
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

const CONVERSIONS: &[Case] = &[
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

fn awkward() -> impl Strategy<Value = u64> {
    let singles = [
        0f32,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1.5,
        2.5,
        -2.5,
        f32::MAX,
        f32::MIN_POSITIVE,
        1e-40,
        3e9,
        f32::INFINITY,
    ]
    .map(|value| u64::from(value.to_bits()) | 0x7ff8_0000_0000_0000);
    let doubles = [
        0f64,
        -0.0,
        1.0,
        -1.5,
        0.1,
        4.5,
        1e300,
        f64::MIN_POSITIVE,
        5e-324,
        2e9,
        -9.3e18,
        f64::INFINITY,
        f64::NAN,
    ]
    .map(f64::to_bits);
    let integers = [
        0,
        1,
        2,
        3,
        31,
        32,
        33,
        63,
        64,
        255,
        256,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        1 << 63,
        u64::MAX,
    ];
    prop_oneof![
        4 => any::<u64>(),
        2 => any::<f32>().prop_map(|value| u64::from(value.to_bits()) | 0x3ff0_0000_0000_0000),
        2 => any::<f64>().prop_map(f64::to_bits),
        2 => (-1000f32..1000.0).prop_map(|value| u64::from(value.to_bits()) | 0x4008_0000_0000_0000),
        1 => proptest::sample::select(singles.to_vec()),
        1 => proptest::sample::select(doubles.to_vec()),
        2 => proptest::sample::select(integers.to_vec()),
        1 => 0u64..100,
    ]
}

fn operands() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    proptest::collection::vec((awkward(), awkward(), awkward()), 96)
}

/// Equal, or NaN in both: which NaN is nobody's promise.
fn agree(found: u64, expected: u64, instruction: &str) -> bool {
    let wide = instruction.contains("%d64");
    let both_nan = if wide {
        d(found).is_nan() && d(expected).is_nan()
    } else {
        f(found).is_nan() && f(expected).is_nan()
    };
    found == expected || both_nan
}

fn check(cases: &[Case], operands: &[(u64, u64, u64)]) -> Result<(), TestCaseError> {
    for (instruction, reference) in cases {
        for (&(a, b, c), found) in operands.iter().zip(results(instruction, operands)) {
            let expected = reference(a, b, c);
            prop_assert!(
                agree(found, expected, instruction),
                "{instruction} of {a:#x}, {b:#x}, {c:#x}: {found:#x}, expected {expected:#x}"
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn integer_arithmetic(operands in operands()) {
        check(INTEGERS, &operands)?;
    }

    #[test]
    fn bits_and_selections(operands in operands()) {
        check(BITS, &operands)?;
    }

    #[test]
    fn comparisons(operands in operands()) {
        check(COMPARISONS, &operands)?;
    }

    #[test]
    fn floating_arithmetic(operands in operands()) {
        check(FLOATS, &operands)?;
    }

    #[test]
    fn conversions(operands in operands()) {
        check(CONVERSIONS, &operands)?;
    }
}

#[test]
fn halves_of_every_bit_pattern_convert() {
    let all: Vec<(u64, u64, u64)> = (0..1 << 16).map(|bits| (bits, 0, 0)).collect();
    let found = results("cvt.f32.f16 %d32, %a16;", &all);
    for (bits, found) in found.iter().enumerate() {
        let (sign, exponent, fraction) = (bits >> 15, bits >> 10 & 31, bits & 1023);
        let magnitude = match exponent {
            31 if fraction != 0 => f64::NAN,
            31 => f64::INFINITY,
            0 => fraction as f64 * 2f64.powi(-24),
            _ => (1024 + fraction) as f64 * 2f64.powi(exponent as i32 - 25),
        };
        let expected = fb(if sign == 1 { -magnitude } else { magnitude } as f32);
        assert!(
            agree(*found, expected, "%d32"),
            "{bits:#x}: {found:#x}, expected {expected:#x}"
        );
    }
    let back: Vec<(u64, u64, u64)> = found.iter().map(|single| (*single, 0, 0)).collect();
    for (bits, again) in results("cvt.rn.f16.f32 %d16, %a32;", &back).into_iter().enumerate() {
        assert!(
            again == bits as u64 || f(found[bits]).is_nan(),
            "{bits:#x} became {again:#x}"
        );
    }
}

#[test]
fn halves_round_to_nearest_even() {
    let value = |single: f32| (fb(single), 0, 0);
    let cases = [
        (1.0 + 2f32.powi(-11), 0x3c00),
        (1.0 + 3.0 * 2f32.powi(-11), 0x3c02),
        (1.0 + 2f32.powi(-11) + 2f32.powi(-20), 0x3c01),
        (65519.0, 0x7bff),
        (65520.0, 0x7c00),
        (2f32.powi(-25), 0x0000),
        (2f32.powi(-25) * 1.5, 0x0001),
        (2f32.powi(-14) - 2f32.powi(-26), 0x0400),
        (-1e-10, 0x8000),
        (f32::NEG_INFINITY, 0xfc00),
    ];
    let operands: Vec<_> = cases.iter().map(|(single, _)| value(*single)).collect();
    let found = results("cvt.rn.f16.f32 %d16, %a32;", &operands);
    assert_eq!(found, cases.map(|(_, half)| half));
    let found = results(
        "cvt.rz.f16.f32 %d16, %a32;",
        &[value(65535.0), value(1.0 + 2f32.powi(-11) * 1.9), value(-65535.0)],
    );
    assert_eq!(found, [0x7bff, 0x3c00, 0xfbff]);
}

#[test]
fn pairs_of_halves_are_computed_apart() {
    // 1.5 and 2 in the low and high half; 0.25 and -4.
    let operands = [(0x4000_3e00, 0xc400_3400, 0x3c00_3c00)];
    let cases = [
        ("add.f16x2 %d32, %a32, %b32;", 0xc000_3f00),
        ("mul.f16x2 %d32, %a32, %b32;", 0xc800_3600),
        ("fma.rn.f16x2 %d32, %a32, %b32, %c32;", 0xc700_3d80),
        ("max.f16x2 %d32, %a32, %b32;", 0x4000_3e00),
        ("neg.f16x2 %d32, %a32;", 0xc000_be00),
        ("set.gt.f16x2.f16x2 %d32, %a32, %b32;", 0x3c00_3c00),
        (
            "cvt.f32.f16 %e32, %a16; cvt.rn.f16x2.f32 %d32, %e32, %e32;",
            0x3e00_3e00,
        ),
        ("add.f16 %d16, %a16, %b16;", 0x3f00),
        ("setp.lt.f16 %pd, %b16, %a16;", 1),
        ("setp.lt.f16x2 %pe|%pd, %a32, %b32;", 0),
    ];
    for (instruction, expected) in cases {
        assert_eq!(results(instruction, &operands), [expected], "{instruction}");
    }
}

#[test]
fn approximations_are_close() {
    let inputs: Vec<f32> = (-200..200).map(|step| step as f32 * 0.037).collect();
    let operands: Vec<_> = inputs.iter().map(|value| (fb(*value), 0, 0)).collect();
    let cases: [Approximation; 7] = [
        ("ex2.approx.ftz.f32 %d32, %a32;", f64::exp2),
        ("lg2.approx.f32 %d32, %a32;", f64::log2),
        ("sin.approx.f32 %d32, %a32;", f64::sin),
        ("cos.approx.f32 %d32, %a32;", f64::cos),
        ("tanh.approx.f32 %d32, %a32;", f64::tanh),
        ("rsqrt.approx.f32 %d32, %a32;", |value| 1.0 / value.sqrt()),
        ("rcp.approx.ftz.f32 %d32, %a32;", |value| 1.0 / value),
    ];
    for (instruction, reference) in cases {
        for (input, found) in inputs.iter().zip(results(instruction, &operands)) {
            let (found, expected) = (f64::from(f(found)), reference(f64::from(*input)));
            let close = (found - expected).abs() <= 1e-6 * expected.abs().max(1e-6);
            assert!(
                close || found == expected || (found.is_nan() && expected.is_nan()),
                "{instruction} {input}: {found}"
            );
        }
    }
}
