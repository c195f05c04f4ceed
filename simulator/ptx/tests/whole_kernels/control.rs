// SPDX-License-Identifier: Apache-2.0
//! Kernels whose lanes and blocks part, call and wait.

use super::*;

#[test]
fn diverging_loops_end_with_the_right_counts() {
    let (memory, n) = (Memory::default(), 1000);
    let module = memory.load(KERNELS);
    let steps = memory.allocate(4 * n);
    let call = [steps.into(), (n as i32).into()];
    run(&memory, &module, "collatz", [8, 1, 1], [128, 1, 1], &call, 2).unwrap();
    let expected: Vec<u32> = (1..=n as u64)
        .map(|start| {
            let (mut value, mut count) = (start, 0);
            while value != 1 {
                value = if value % 2 == 1 { 3 * value + 1 } else { value / 2 };
                count += 1;
            }
            count
        })
        .collect();
    assert_eq!(memory.download::<u32>(steps, n), expected);
}

#[test]
fn recursive_functions_return() {
    let memory = Memory::default();
    let module = memory.load(KERNELS);
    let result = memory.allocate(8 * 40);
    run(
        &memory,
        &module,
        "recursion",
        [1, 1, 1],
        [40, 1, 1],
        &[result.into()],
        1,
    )
    .unwrap();
    let expected: Vec<u64> = (0..40u64).map(|thread| (1..=thread % 20).product()).collect();
    assert_eq!(memory.download::<u64>(result, 40), expected);
}

#[test]
fn functions_are_called_through_pointers() {
    let memory = Memory::default();
    let module = memory.load(KERNELS);
    let result = memory.allocate(4 * 64);
    let call = [result.into(), 100i32.into(), 3i32.into()];
    run(&memory, &module, "function_pointers", [1, 1, 1], [64, 1, 1], &call, 1).unwrap();
    let expected: Vec<i32> = (0..64)
        .map(|thread| match thread % 3 {
            0 => 100 + (3 + thread),
            1 => 100 - (3 + thread),
            _ => 100 * (3 + thread),
        })
        .collect();
    assert_eq!(memory.download::<i32>(result, 64), expected);
}

#[test]
fn lock_within_a_warp_is_passed_on() {
    let memory = Memory::default();
    let module = memory.load(KERNELS);
    let (lock, counter) = (memory.allocate(4), memory.allocate(4));
    run(
        &memory,
        &module,
        "spin_lock",
        [4, 1, 1],
        [64, 1, 1],
        &[lock.into(), counter.into()],
        2,
    )
    .unwrap();
    assert_eq!(memory.download::<u32>(counter, 1), [256]);
}

#[test]
fn blocks_that_wait_for_each_other_all_run() {
    let memory = Memory::default();
    let module = memory.load(KERNELS);
    for workers in [1, 2] {
        let (arrived, seen) = (memory.allocate(4), memory.allocate(4 * 20));
        run(
            &memory,
            &module,
            "grid_barrier",
            [20, 1, 1],
            [32, 1, 1],
            &[arrived.into(), seen.into()],
            workers,
        )
        .unwrap();
        assert_eq!(memory.download::<u32>(seen, 20), [20; 20]);
    }
}

#[test]
fn every_case_of_a_switch_is_taken() {
    let memory = Memory::default();
    let module = memory.load(KERNELS);
    let result = memory.allocate(4 * 96);
    let n = 0x1234i32;
    run(
        &memory,
        &module,
        "many_cases",
        [1, 1, 1],
        [96, 1, 1],
        &[result.into(), n.into()],
        1,
    )
    .unwrap();
    let expected: Vec<i32> = (0..96)
        .map(|i| match i % 11 {
            0 => i + n,
            1 => i * n,
            2 => i - n,
            3 => i ^ n,
            4 => i | n,
            5 => i & n,
            6 => n / (i + 1),
            7 => n % (i + 1),
            8 => n << (i & 7),
            9 => n >> (i & 7),
            _ => -1,
        })
        .collect();
    assert_eq!(memory.download::<i32>(result, 96), expected);
}
