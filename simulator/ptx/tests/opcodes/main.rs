// SPDX-License-Identifier: Apache-2.0
//! Every arithmetic, logic and conversion instruction against what the processor computes, on random and awkward
//! operands.

mod floats;
mod integers;
#[path = "../support/mod.rs"]
mod support;

use floats::{CONVERSIONS, FLOATS};
use integers::{BITS, COMPARISONS, INTEGERS};
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
