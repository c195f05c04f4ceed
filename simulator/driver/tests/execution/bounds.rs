// SPDX-License-Identifier: Apache-2.0
//! Kernels that leave their allocations: what is said about it, and how exactly they are kept inside.

use partage_abi::types::*;
use partage_machine::{Bounds, Spec};

use crate::machine::{Driver, Value, code, pointers, run_on_changed};

/// Fills `count` words of an allocation of `bytes` bytes; gives its address and what the driver says afterwards.
fn fill(driver: &Driver, bytes: usize, count: u32) -> (u64, CuResult) {
    // Its module has variables: loaded before, they do not lie behind the memory.
    let kernel = driver.kernel("fill_u32");
    let memory = driver.memory(bytes);
    (memory, fill_at(driver, kernel, memory, count))
}

fn fill_at(driver: &Driver, kernel: CuFunction, memory: u64, count: u32) -> CuResult {
    let list = [Value::Long(memory), Value::Word(7), Value::Word(count)];
    let mut parameters = pointers(&list);
    let none = std::ptr::null_mut();
    let launch = code!(
        driver,
        cuLaunchKernel(
            kernel,
            1,
            1,
            1,
            128,
            1,
            1,
            0,
            CuStream::NULL,
            parameters.as_mut_ptr(),
            none
        )
    );
    assert_eq!(launch, CuResult::SUCCESS);
    code!(driver, cuCtxSynchronize())
}

#[test]
fn an_access_out_of_bounds_names_kernel_allocation_and_offset() {
    let said = |errors: &str| {
        let line = errors
            .lines()
            .find(|line| line.contains("illegal address"))
            .unwrap_or_default();
        assert!(
            line.contains("kernel fill_u32") && line.contains("offset 400 of"),
            "{errors}"
        );
        assert!(
            line.contains("the allocation of 400 bytes") && line.contains("0 bytes behind its end"),
            "{errors}"
        );
    };
    let test = "bounds::an_access_out_of_bounds_names_kernel_allocation_and_offset";
    run_on_changed(
        test,
        |_| (),
        said,
        |driver| {
            assert_eq!(fill(driver, 400, 101).1, CuResult::ILLEGAL_ADDRESS);
        },
    );
}

#[test]
fn a_null_pointer_is_called_one() {
    let said = |errors: &str| assert!(errors.contains("a null pointer with an offset of"), "{errors}");
    run_on_changed(
        "bounds::a_null_pointer_is_called_one",
        |_| (),
        said,
        |driver| {
            driver.launch(
                "fill_u32",
                CuStream::NULL,
                &[Value::Long(0), Value::Word(7), Value::Word(1)],
            );
            assert_eq!(code!(driver, cuCtxSynchronize()), CuResult::ILLEGAL_ADDRESS);
        },
    );
}

#[test]
fn a_machine_with_granules_lets_kernels_use_the_rest_of_one() {
    let granules = |spec: &mut Spec| spec.bounds = Bounds::Granule;
    let said = |errors: &str| assert!(errors.contains("112 bytes behind its end"), "{errors}");
    let test = "bounds::a_machine_with_granules_lets_kernels_use_the_rest_of_one";
    run_on_changed(test, granules, said, |driver| {
        let (memory, result) = fill(driver, 400, 128);
        assert_eq!(result, CuResult::SUCCESS, "512 bytes are the allocation's own");
        assert_eq!(driver.words(memory, 100), [7; 100]);
        // The granule behind it is not.
        let list = [Value::Long(memory + 512), Value::Word(7), Value::Word(1)];
        driver.launch("fill_u32", CuStream::NULL, &list);
        assert_eq!(code!(driver, cuCtxSynchronize()), CuResult::ILLEGAL_ADDRESS);
    });
}

/// A GB10 goes through the host's page tables: a kernel works on the program's own memory, not on what lies nowhere.
#[test]
fn a_device_that_shares_the_hosts_memory_reaches_the_programs_own() {
    let words = |driver: &Driver, address: u64| fill_at(driver, driver.kernel("fill_u32"), address, 100);
    let test = "bounds::a_device_that_shares_the_hosts_memory_reaches_the_programs_own";
    let shared = |spec: &mut Spec| "gb10".clone_into(&mut spec.devices[0].profile);
    run_on_changed(
        test,
        shared,
        |_| (),
        |driver| {
            let mut own = vec![0_u32; 101];
            assert_eq!(words(driver, own.as_mut_ptr() as u64), CuResult::SUCCESS);
            assert_eq!((&own[..100], own[100]), (&[7; 100][..], 0));
            let mut available = 0;
            assert_eq!(
                code!(driver, cuMemGetInfo_v2(&mut available, &mut 0)),
                CuResult::SUCCESS
            );
            let host: extern "C" fn() -> u64 = driver.symbol("partage_sim_host_available");
            assert_eq!(host(), available as u64);
            // Addresses of the driver that nothing was allocated at.
            let unused = driver.memory(512) + (512 << 20);
            assert_eq!(words(driver, unused), CuResult::ILLEGAL_ADDRESS);
        },
    );
}
