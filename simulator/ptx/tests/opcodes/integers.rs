// SPDX-License-Identifier: Apache-2.0
//! What integer, bit and comparing instructions compute.

use super::*;

pub const INTEGERS: &[Case] = &[
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

pub const BITS: &[Case] = &[
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
    ("vshr.u32.u32.u32.clamp.add %d32, %a32, %b32, %c32;", |a, b, c| {
        ub(u(a).checked_shr(u(b)).unwrap_or(0).wrapping_add(u(c)))
    }),
    ("vshr.s32.s32.u32.clamp %d32, %a32, %b32;", |a, b, _| {
        ib(i(a) >> u(b).min(31))
    }),
    ("vshr.u32.s32.u32.wrap.min %d32, %a32, %b32, %c32;", |a, b, c| {
        ub(((i(a) >> (u(b) & 31)) as u32).min(u(c)))
    }),
    ("vshl.s32.u32.u32.clamp.max %d32, %a32, %b32, %c32;", |a, b, c| {
        ib((u(a).checked_shl(u(b)).unwrap_or(0) as i32).max(i(c)))
    }),
    ("vshl.u32.u32.u32.wrap %d32, %a32, %b32;", |a, b, _| {
        ub(u(a) << (u(b) & 31))
    }),
    ("vshl.s32.s32.u32.sat.wrap %d32, %a32, %b32;", |a, b, _| {
        let whole = i64::from(i(a)) * (1i64 << (u(b) & 31));
        ib(i32::try_from(whole).unwrap_or(if whole < 0 { i32::MIN } else { i32::MAX }))
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

pub const COMPARISONS: &[Case] = &[
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
