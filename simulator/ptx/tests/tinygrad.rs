// SPDX-License-Identifier: Apache-2.0
//! Kernels exactly as tinygrad's PTX renderer writes them, against results computed here.

mod support;

use support::{Argument, Memory, run};

/// Runs the only kernel of a text, whose second line says `// grid x y z block x y z`.
fn launch(memory: &Memory, text: &str, values: &[u64]) {
    let module = memory.load(text);
    let name = module.kernels().next().expect("one kernel").name().to_owned();
    let sizes: Vec<u32> = text
        .lines()
        .nth(1)
        .unwrap()
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    let [grid, block] = [[sizes[0], sizes[1], sizes[2]], [sizes[3], sizes[4], sizes[5]]];
    let values: Vec<Argument> = values.iter().map(|value| (*value).into()).collect();
    run(memory, &module, &name, grid, block, &values, 2).unwrap_or_else(|fault| panic!("{fault}"));
}

fn floats(count: usize) -> Vec<f32> {
    (0..count)
        .map(|index| ((index * 7919) % 2003) as f32 / 1001.5 - 1.0)
        .collect()
}

fn close(found: &[f32], expected: &[f32], tolerance: f32) {
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            (found - expected).abs() <= tolerance,
            "{index}: {found}, expected {expected}"
        );
    }
}

#[test]
fn addition_of_a_constant() {
    let memory = Memory::default();
    let a = floats(64 * 48);
    let (from, to) = (memory.upload(&a), memory.allocate(4 * a.len()));
    launch(
        &memory,
        include_str!("../../../cuda-tests/kernels/tinygrad/add.ptx"),
        &[to, from],
    );
    let expected: Vec<f32> = a.iter().map(|value| value + 1.5).collect();
    assert_eq!(memory.download::<f32>(to, a.len()), expected);
}

#[test]
fn matrix_product() {
    let memory = Memory::default();
    let (a, b) = (floats(64 * 48), floats(48 * 32));
    let (left, right, to) = (memory.upload(&a), memory.upload(&b), memory.allocate(4 * 64 * 32));
    launch(
        &memory,
        include_str!("../../../cuda-tests/kernels/tinygrad/matmul.ptx"),
        &[to, left, right],
    );
    let expected: Vec<f32> = (0..64 * 32)
        .map(|place| (0..48).map(|k| a[place / 32 * 48 + k] * b[k * 32 + place % 32]).sum())
        .collect();
    close(&memory.download(to, 64 * 32), &expected, 1e-5);
}

#[test]
fn half_precision_product_with_matrix_instructions() {
    let memory = Memory::default();
    // Multiples of 1/8 below 2: exact in half precision, and so are their sums in single precision.
    let small: Vec<u32> = (0..64 * 64).map(|index| (index * 37) % 16).collect();
    let half = |eighths: u32| -> u16 {
        if eighths == 0 {
            return 0;
        }
        let power = eighths.ilog2();
        ((12 + power) << 10) as u16 | (((eighths << 10) >> power) as u16 & 0x3ff)
    };
    let halves: Vec<u16> = small.iter().map(|eighths| half(*eighths)).collect();
    let (from, to) = (memory.upload(&halves), memory.allocate(4 * 64 * 64));
    launch(
        &memory,
        include_str!("../../../cuda-tests/kernels/tinygrad/half_matmul.ptx"),
        &[to, from],
    );
    let expected: Vec<f32> = (0..64 * 64)
        .map(|place| {
            (0..64)
                .map(|k| small[place / 64 * 64 + k] * small[k * 64 + place % 64])
                .sum::<u32>() as f32
                / 64.0
        })
        .collect();
    assert_eq!(memory.download::<f32>(to, 64 * 64), expected);
}

#[test]
fn sums_over_shared_memory() {
    let memory = Memory::default();
    let a = floats(64 * 48);
    let (from, to) = (memory.upload(&a), memory.allocate(4 * 64));
    launch(
        &memory,
        include_str!("../../../cuda-tests/kernels/tinygrad/relu_sum.ptx"),
        &[to, from],
    );
    let expected: Vec<f32> = a
        .chunks(48)
        .map(|row| row.iter().map(|value| value.max(0.0)).sum())
        .collect();
    close(&memory.download(to, 64), &expected, 1e-5);
}

#[test]
fn sine() {
    let memory = Memory::default();
    let a = floats(64 * 48);
    let (from, to) = (memory.upload(&a), memory.allocate(4 * a.len()));
    launch(
        &memory,
        include_str!("../../../cuda-tests/kernels/tinygrad/sine.ptx"),
        &[to, from],
    );
    let expected: Vec<f32> = a.iter().map(|value| (value * 10.0).sin()).collect();
    close(&memory.download(to, a.len()), &expected, 1e-6);
}

#[test]
fn integer_division_and_remainder() {
    let memory = Memory::default();
    let values: Vec<i32> = (0..256).map(|index| index - 128).collect();
    let (from, to) = (memory.upload(&values), memory.allocate(4 * 256));
    launch(
        &memory,
        include_str!("../../../cuda-tests/kernels/tinygrad/divide.ptx"),
        &[to, from],
    );
    let expected: Vec<i32> = values
        .iter()
        .map(|value| value.div_euclid(7) + value.rem_euclid(5))
        .collect();
    assert_eq!(memory.download::<i32>(to, 256), expected);
}
