// SPDX-License-Identifier: Apache-2.0
//! Whole kernels as NVRTC compiles them, against results computed here.

mod control;
#[path = "../support/mod.rs"]
mod support;

use std::sync::atomic::{AtomicBool, Ordering};

use partage_ptx::{FaultKind, Launch, Module};
use support::{Memory, arguments, run};

const TEST_KERNELS: &str = include_str!("../../../../cuda-tests/kernels/test_kernels.ptx");
const KERNELS: &str = include_str!("../../../../cuda-tests/kernels/interpreter_kernels.ptx");

fn floats(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 22) as f32 - 2.0
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn vectors_are_added() {
    let (memory, n) = (Memory::default(), 10_001);
    let module = memory.load(TEST_KERNELS);
    let (a, b) = (floats(n, 1), floats(n, 2));
    let (at_a, at_b, sum) = (memory.upload(&a), memory.upload(&b), memory.allocate(4 * n));
    let values = [sum.into(), at_a.into(), at_b.into(), (n as i32).into()];
    let stats = run(&memory, &module, "vector_add", [79, 1, 1], [128, 1, 1], &values, 2).unwrap();
    assert_eq!(stats.threads, 79 * 128);
    let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    assert_eq!(memory.download::<f32>(sum, n), expected);
}

#[test]
fn reduction_with_shared_memory_and_barriers() {
    let (memory, n) = (Memory::default(), 100_000);
    let module = memory.load(TEST_KERNELS);
    let values: Vec<f32> = (0..n).map(|index| (index % 17) as f32).collect();
    let (from, total) = (memory.upload(&values), memory.allocate(4));
    let call = [total.into(), from.into(), n.into()];
    run(&memory, &module, "sum_reduce", [30, 1, 1], [256, 1, 1], &call, 2).unwrap();
    // Whole numbers below 2^24: exact in any order.
    assert_eq!(memory.download::<f32>(total, 1), [values.iter().sum::<f32>()]);
}

#[test]
fn variables_and_constants_have_addresses() {
    let memory = Memory::default();
    let module = memory.load(TEST_KERNELS);
    let names: Vec<&str> = module
        .variables()
        .iter()
        .map(|variable| variable.name.as_str())
        .collect();
    assert!(names.contains(&"launches") && names.contains(&"factors"), "{names:?}");
    let values = memory.upload(&[1.0f32, 2.0, 3.0]);
    for _ in 0..2 {
        let call = [values.into(), 3i32.into(), 3i32.into()];
        run(&memory, &module, "scale_by_constant", [1, 1, 1], [32, 1, 1], &call, 1).unwrap();
    }
    assert_eq!(memory.download::<f32>(values, 3), [64.0, 128.0, 192.0]);
}

#[test]
fn illegal_write_is_a_fault_with_its_line() {
    let memory = Memory::default();
    let module = memory.load(TEST_KERNELS);
    let fault = run(&memory, &module, "illegal_write", [1, 1, 1], [1, 1, 1], &[], 1).unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalAddress(0x10));
    assert!(
        TEST_KERNELS
            .lines()
            .nth(fault.line as usize - 1)
            .unwrap()
            .contains("st.volatile")
    );
}

#[test]
fn access_one_past_the_end_faults() {
    let (memory, n) = (Memory::default(), 64);
    let module = memory.load(TEST_KERNELS);
    let to = memory.allocate(4 * (n - 1));
    let call = [to.into(), 7u32.into(), (n as i32).into()];
    let fault = run(&memory, &module, "fill_u32", [1, 1, 1], [64, 1, 1], &call, 1).unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalAddress(to + 4 * (n as u64 - 1)));
    let call = [(to + 2).into(), 7u32.into(), 4i32.into()];
    let fault = run(&memory, &module, "fill_u32", [1, 1, 1], [64, 1, 1], &call, 1).unwrap_err();
    assert_eq!(fault.kind, FaultKind::MisalignedAddress(to + 2));
}

#[test]
fn spinning_kernel_ends_when_stopped() {
    let memory = Memory::default();
    let module = memory.load(TEST_KERNELS);
    let kernel = module.kernel("spin_ns").unwrap();
    let parameters = arguments(&kernel, &[u64::MAX.into()]);
    let stop = AtomicBool::new(false);
    let launch = Launch {
        grid: [2, 1, 1],
        block: [32, 1, 1],
        dynamic_shared: 0,
        parameters: &parameters,
        stop: Some(&stop),
    };
    std::thread::scope(|scope| {
        let running = scope.spawn(|| kernel.run(&launch, &memory, 2));
        stop.store(true, Ordering::Relaxed);
        assert_eq!(running.join().unwrap().unwrap_err().kind, FaultKind::Stopped);
    });
}

#[test]
fn spinning_kernel_lasts_as_long_as_asked() {
    let memory = Memory::default();
    let module = memory.load(TEST_KERNELS);
    let stats = run(
        &memory,
        &module,
        "spin_ns",
        [1, 1, 1],
        [1, 1, 1],
        &[5_000_000u64.into()],
        1,
    )
    .unwrap();
    assert!(stats.elapsed.as_nanos() >= 5_000_000);
}

#[test]
fn matrices_are_multiplied_by_tiles() {
    let (memory, n) = (Memory::default(), 64);
    let module = memory.load(KERNELS);
    let (a, b) = (floats(n * n, 3), floats(n * n, 4));
    let (at_a, at_b, c) = (memory.upload(&a), memory.upload(&b), memory.allocate(4 * n * n));
    let call = [c.into(), at_a.into(), at_b.into(), (n as i32).into()];
    run(&memory, &module, "matmul_tile", [4, 4, 1], [16, 16, 1], &call, 2).unwrap();
    let mut expected = vec![0f32; n * n];
    for row in 0..n {
        for column in 0..n {
            expected[row * n + column] = (0..n).fold(0f32, |sum, k| a[row * n + k].mul_add(b[k * n + column], sum));
        }
    }
    assert_eq!(memory.download::<f32>(c, n * n), expected);
}

#[test]
fn shuffles_add_a_warp() {
    let memory = Memory::default();
    let module = memory.load(KERNELS);
    let values: Vec<f32> = (0..256).map(|index| index as f32).collect();
    let (from, sums) = (memory.upload(&values), memory.allocate(4 * 8));
    run(
        &memory,
        &module,
        "shuffle_sum",
        [2, 1, 1],
        [128, 1, 1],
        &[sums.into(), from.into()],
        1,
    )
    .unwrap();
    let expected: Vec<f32> = values.chunks(32).map(|warp| warp.iter().sum()).collect();
    assert_eq!(memory.download::<f32>(sums, 8), expected);
}

#[test]
fn histogram_with_shared_and_global_atomics() {
    let (memory, n) = (Memory::default(), 50_000u64);
    let module = memory.load(KERNELS);
    let values: Vec<u8> = (0..n).map(|index: u64| (index * index / 7) as u8).collect();
    let (from, bins) = (memory.upload(&values), memory.allocate(4 * 256));
    let call = [bins.into(), from.into(), (n as i32).into()];
    run(&memory, &module, "histogram", [16, 1, 1], [96, 1, 1], &call, 2).unwrap();
    let mut expected = vec![0u32; 256];
    values.iter().for_each(|value| expected[*value as usize] += 1);
    assert_eq!(memory.download::<u32>(bins, 256), expected);
}

#[test]
fn math_functions_are_accurate() {
    let (memory, n) = (Memory::default(), 500);
    let module = memory.load(KERNELS);
    let mut values = floats(n, 9);
    // Large arguments take the long reduction of sine and cosine.
    values.iter_mut().step_by(7).for_each(|value| *value *= 12.5);
    values.iter_mut().step_by(31).for_each(|value| *value *= 1e6);
    let (from, result) = (memory.upload(&values), memory.allocate(4 * 8 * n));
    let call = [result.into(), from.into(), (n as i32).into()];
    run(&memory, &module, "math_functions", [4, 1, 1], [128, 1, 1], &call, 2).unwrap();
    for (x, found) in values.iter().zip(memory.download::<f32>(result, 8 * n).chunks(8)) {
        let wide = f64::from(*x);
        let expected = [
            wide.sin(),
            f64::from(x * 1000.0).cos(),
            wide.exp(),
            (wide.abs() + 1.0).ln(),
            wide.abs().powf(f64::from(1.7f32)),
            wide.tanh(),
            wide.abs().sqrt() / (1.0 + wide * wide),
        ];
        for (which, (expected, found)) in expected.iter().zip(found).enumerate() {
            let expected = *expected as f32;
            let error = (expected - found).abs();
            let bound = 4e-6 * expected.abs().max(1e-3);
            assert!(
                expected == *found || error <= bound,
                "function {which} of {x}: {found}, expected {expected}"
            );
        }
        assert!(
            (f64::from(found[7]) - erf(wide)).abs() < 1e-6,
            "erf of {x}: {}",
            found[7]
        );
    }
}

/// The error function by its series, or one beyond 4.
fn erf(x: f64) -> f64 {
    if x.abs() > 4.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

#[test]
fn structures_are_passed_by_value() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    #[repr(C)]
    struct Point {
        place: [f32; 3],
        tag: i32,
    }
    let (memory, n) = (Memory::default(), 50);
    let module = memory.load(KERNELS);
    let points: Vec<Point> = (0..n)
        .map(|i| Point {
            place: [i as f32, 2.0 * i as f32, 1.0],
            tag: i,
        })
        .collect();
    let (from, result) = (memory.upload(&points), memory.allocate(16 * n as usize));
    let kernel = module.kernel("structures").unwrap();
    let sizes: Vec<u32> = kernel.parameters().iter().map(|parameter| parameter.size).collect();
    assert_eq!(sizes, [8, 16, 8, 4]);
    let mut parameters = Vec::new();
    parameters.extend_from_slice(&result.to_le_bytes());
    for value in [0.5f32, 3.0, 4.0] {
        parameters.extend_from_slice(&value.to_le_bytes());
    }
    parameters.extend_from_slice(&0x55i32.to_le_bytes());
    parameters.extend_from_slice(&from.to_le_bytes());
    parameters.extend_from_slice(&n.to_le_bytes());
    let launch = Launch {
        grid: [1, 1, 1],
        block: [64, 1, 1],
        dynamic_shared: 0,
        parameters: &parameters,
        stop: None,
    };
    kernel.run(&launch, &memory, 1).unwrap();
    let expected: Vec<Point> = points
        .iter()
        .map(|point| Point {
            place: [point.place[0] + 0.5, point.place[1] * 3.0, point.place[2] - 4.0],
            tag: point.tag ^ 0x55,
        })
        .collect();
    assert_eq!(memory.download::<Point>(result, n as usize), expected);
}

#[test]
fn votes_and_block_wide_reductions() {
    let memory = Memory::default();
    let module = memory.load(KERNELS);
    let (threads, n) = (96, 40);
    let result = memory.allocate(4 * 6 * threads);
    run(
        &memory,
        &module,
        "votes",
        [1, 1, 1],
        [96, 1, 1],
        &[result.into(), n.into()],
        1,
    )
    .unwrap();
    let found = memory.download::<u32>(result, 6 * threads);
    let mask = |holds: &dyn Fn(u32) -> bool| (0..32).fold(0, |mask, lane| mask | u32::from(holds(lane)) << lane);
    for thread in 0..threads as u32 {
        let lane = thread % 32;
        let expected = [
            mask(&|lane| lane % 3 == 0),
            // Every lane number is below 40, and none is 40.
            1,
            mask(&|other| other / 5 == lane / 5),
            if lane < 7 { 0x7f } else { 0 },
            24,
            2,
        ];
        assert_eq!(found[thread as usize * 6..][..6], expected, "thread {thread}");
    }
}

#[test]
fn printf_formats_as_c_does() {
    let memory = Memory::default();
    let module = memory.load(KERNELS);
    let stats = run(
        &memory,
        &module,
        "print_and_check",
        [1, 1, 1],
        [3, 1, 1],
        &[3i32.into()],
        1,
    )
    .unwrap();
    assert_eq!(
        String::from_utf8(stats.printed).unwrap(),
        "thread 0 of 3:  0.00 text|a   |a 0\n\
         thread 1 of 3:  1.50 text|b   |b 1099511627776\n\
         thread 2 of 3:  3.00 text|c   |c 2199023255552\n"
    );
    let fault = run(
        &memory,
        &module,
        "print_and_check",
        [1, 1, 1],
        [3, 1, 1],
        &[2i32.into()],
        1,
    )
    .unwrap_err();
    assert_eq!(fault.kind, FaultKind::Trap);
}

#[test]
fn carries_reach_the_upper_half() {
    let memory = Memory::default();
    let module = memory.load(KERNELS);
    let result = memory.allocate(16);
    let (a, b) = (0xfedc_ba98_7654_3210u64, 0x0fed_cba9_8765_4321u64);
    run(
        &memory,
        &module,
        "wide_product",
        [1, 1, 1],
        [1, 1, 1],
        &[result.into(), a.into(), b.into()],
        1,
    )
    .unwrap();
    let expected = (u128::from(a) * u128::from(b))
        .wrapping_add(u128::from(b) << 64)
        .wrapping_sub(u128::from(a));
    assert_eq!(
        memory.download::<u64>(result, 2),
        [expected as u64, (expected >> 64) as u64]
    );
}

#[test]
fn dynamic_shared_memory_follows_the_static() {
    let memory = Memory::default();
    let module = memory.load(KERNELS);
    let values: Vec<i32> = (0..128).collect();
    let at = memory.upload(&values);
    let kernel = module.kernel("reverse_dynamic").unwrap();
    assert_eq!(kernel.shared_bytes(), 16);
    let parameters = arguments(&kernel, &[at.into()]);
    let launch = Launch {
        grid: [2, 1, 1],
        block: [64, 1, 1],
        dynamic_shared: 256,
        parameters: &parameters,
        stop: None,
    };
    kernel.run(&launch, &memory, 2).unwrap();
    let expected: Vec<i32> = (0..64).rev().chain((64..128).rev()).collect();
    assert_eq!(memory.download::<i32>(at, 128), expected);
    let without = Launch {
        dynamic_shared: 0,
        ..launch
    };
    assert!(matches!(
        kernel.run(&without, &memory, 1).unwrap_err().kind,
        FaultKind::IllegalAddress(_)
    ));
}

#[test]
fn local_arrays_belong_to_their_thread() {
    let memory = Memory::default();
    let module = memory.load(KERNELS);
    let order: Vec<i32> = (0..32).map(|index| index * 5 % 32).collect();
    let (at, result) = (memory.upload(&order), memory.allocate(4 * 64));
    run(
        &memory,
        &module,
        "local_array",
        [1, 1, 1],
        [64, 1, 1],
        &[result.into(), at.into()],
        1,
    )
    .unwrap();
    let expected: Vec<i32> = (0..64)
        .map(|thread: i32| {
            let mut table = [0i32; 32];
            order
                .iter()
                .enumerate()
                .for_each(|(index, place)| table[*place as usize] = (index * index) as i32 + thread);
            table
                .iter()
                .fold(0i32, |sum, value| sum.wrapping_mul(3).wrapping_add(*value))
        })
        .collect();
    assert_eq!(memory.download::<i32>(result, 64), expected);
}

#[test]
fn results_do_not_depend_on_the_number_of_workers() {
    let n = 64;
    let (a, b) = (floats(n * n, 5), floats(n * n, 6));
    let results: Vec<Vec<u32>> = [1, 2, 3]
        .iter()
        .map(|workers| {
            let memory = Memory::default();
            let module = Module::from_ptx(KERNELS);
            assert!(module.is_ok());
            let module = memory.load(KERNELS);
            let (at_a, at_b, c) = (memory.upload(&a), memory.upload(&b), memory.allocate(4 * n * n));
            let call = [c.into(), at_a.into(), at_b.into(), (n as i32).into()];
            run(&memory, &module, "matmul_tile", [4, 4, 1], [16, 16, 1], &call, *workers).unwrap();
            memory.download(c, n * n)
        })
        .collect();
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
}
