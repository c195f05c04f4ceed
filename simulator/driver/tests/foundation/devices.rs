// SPDX-License-Identifier: Apache-2.0
//! Initialisation, visible devices, and what devices are called.

use partage_abi::types::*;
use partage_machine::Spec;

use crate::child::{Cuda, Folder, in_child, ok, refused, role};

#[test]
fn without_a_machine_there_is_no_device() {
    const TEST: &str = "devices::without_a_machine_there_is_no_device";
    if role().is_some() {
        let cuda = Cuda::load();
        refused!(NO_DEVICE: cuda, cuInit(0));
        refused!(NOT_INITIALIZED: cuda, cuDeviceGetCount(&mut 0));
        let mut version = 0;
        ok!(cuda, cuDriverGetVersion(&mut version));
        assert_eq!(version, 13_000);
        return;
    }
    let machine = Folder::new(1);
    // An empty name is no name; a folder without a machine is no machine.
    for folder in ["", "/nonexistent"] {
        machine.run(TEST, "body", &[("PARTAGE_SIM_DIR", folder)]);
    }
}

#[test]
fn nothing_works_before_init_except_what_may() {
    in_child("devices::nothing_works_before_init_except_what_may", |cuda| {
        refused!(NOT_INITIALIZED: cuda, cuDeviceGet(&mut 0, 0));
        refused!(NOT_INITIALIZED: cuda, cuMemAlloc_v2(&mut 0, 1));
        refused!(NOT_INITIALIZED: cuda, cuMemFree_v2(0));
        refused!(NOT_INITIALIZED: cuda, cuCtxGetCurrent(&mut CuContext::default()));
        refused!(INVALID_VALUE: cuda, cuInit(1));
        let mut text = std::ptr::null();
        ok!(cuda, cuGetErrorName(CuResult::OUT_OF_MEMORY, &mut text));
        // SAFETY: the driver gives a C string that lives for ever.
        assert_eq!(unsafe { std::ffi::CStr::from_ptr(text) }, c"CUDA_ERROR_OUT_OF_MEMORY");
        refused!(INVALID_VALUE: cuda, cuGetErrorName(CuResult(12_345), &mut text));
        assert!(text.is_null());
        ok!(cuda, cuInit(0));
        ok!(cuda, cuInit(0));
        refused!(INVALID_CONTEXT: cuda, cuMemAlloc_v2(&mut 0, 1));
    });
}

#[test]
fn visible_devices_are_those_that_the_variable_leaves() {
    const TEST: &str = "devices::visible_devices_are_those_that_the_variable_leaves";
    if role().is_some() {
        let cuda = Cuda::load();
        let expected = std::env::var("EXPECTED").expect("set by the test");
        if expected.is_empty() {
            refused!(NO_DEVICE: cuda, cuInit(0));
            return;
        }
        ok!(cuda, cuInit(0));
        let mut count = 0;
        ok!(cuda, cuDeviceGetCount(&mut count));
        let mut seen = Vec::new();
        for device in 0..count {
            let mut uuid = CuUuid::default();
            ok!(cuda, cuDeviceGetUuid_v2(&mut uuid, device));
            seen.push(uuid.bytes.map(|byte| format!("{byte:02x}")).concat());
        }
        assert_eq!(seen.join(","), expected);
        refused!(INVALID_DEVICE: cuda, cuDeviceGet(&mut 0, count));
        refused!(INVALID_DEVICE: cuda, cuDeviceGet(&mut 0, -1));
        return;
    }
    let folder = Folder::new(3);
    let machine = folder.machine();
    let texts: Vec<String> = machine.devices().iter().map(|device| device.uuid_text()).collect();
    let hex = |index: &usize| {
        machine.devices()[*index]
            .uuid
            .map(|byte| format!("{byte:02x}"))
            .concat()
    };
    let prefix = &texts[1][..12];
    let cases: &[(&str, &[usize])] = &[
        ("0", &[0]),
        ("2,0", &[2, 0]),
        ("", &[]),
        ("-1", &[]),
        ("1,1", &[]),
        ("0,7,1", &[0]),
        (&texts[2], &[2]),
        (prefix, &[1]),
        ("GPU-", &[]),
    ];
    for (value, visible) in cases {
        let expected: Vec<String> = visible.iter().map(hex).collect();
        folder.run(
            TEST,
            "body",
            &[("CUDA_VISIBLE_DEVICES", value), ("EXPECTED", &expected.join(","))],
        );
    }
    let all: Vec<String> = [0, 1, 2].iter().map(hex).collect();
    folder.run(TEST, "body", &[("EXPECTED", &all.join(","))]);
}

#[test]
fn the_fastest_device_comes_first_unless_the_bus_decides() {
    const TEST: &str = "devices::the_fastest_device_comes_first_unless_the_bus_decides";
    if role().is_some() {
        let cuda = Cuda::load();
        ok!(cuda, cuInit(0));
        let mut name = [0; 64];
        ok!(cuda, cuDeviceGetName(name.as_mut_ptr(), 64, 0));
        let name: String = name.iter().take_while(|c| **c != 0).map(|c| *c as u8 as char).collect();
        assert_eq!(name, std::env::var("EXPECTED").expect("set by the test"));
        return;
    }
    let mut spec = Spec::new(2, "t4", Some(1 << 30));
    "a100".clone_into(&mut spec.devices[1].profile);
    let folder = Folder::of(&spec);
    folder.run(TEST, "body", &[("EXPECTED", "NVIDIA A100-SXM4-80GB")]);
    folder.run(
        TEST,
        "body",
        &[("EXPECTED", "Tesla T4"), ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")],
    );
}

#[test]
fn a_device_is_found_by_its_bus_address() {
    in_child("devices::a_device_is_found_by_its_bus_address", |cuda| {
        ok!(cuda, cuInit(0));
        let mut text = [0; 16];
        ok!(cuda, cuDeviceGetPCIBusId(text.as_mut_ptr(), 16, 0));
        let mut device = -1;
        ok!(cuda, cuDeviceGetByPCIBusId(&mut device, text.as_ptr()));
        assert_eq!(device, 0);
        refused!(INVALID_DEVICE: cuda, cuDeviceGetByPCIBusId(&mut device, c"0000:ff:00.0".as_ptr()));
        refused!(INVALID_VALUE: cuda, cuDeviceGetByPCIBusId(&mut device, c"nonsense".as_ptr()));
        let mut warp = 0;
        ok!(cuda, cuDeviceGetAttribute(&mut warp, 10, 0));
        assert_eq!(warp, 32);
        refused!(INVALID_VALUE: cuda, cuDeviceGetAttribute(&mut warp, 9999, 0));
    });
}

#[test]
fn a_forked_child_has_no_driver_and_does_not_hang() {
    in_child("devices::a_forked_child_has_no_driver_and_does_not_hang", |cuda| {
        cuda.context(0);
        let address = cuda.allocate(1 << 20).expect("room");
        // SAFETY: the child only calls the driver and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let codes = [
                crate::child::code!(cuda, cuInit(0)),
                crate::child::code!(cuda, cuCtxGetCurrent(&mut CuContext::default())),
                crate::child::code!(cuda, cuMemAlloc_v2(&mut 0, 1)),
                crate::child::code!(cuda, cuMemFree_v2(address)),
            ];
            let is_right = codes.iter().all(|code| *code == CuResult::NOT_INITIALIZED);
            // SAFETY: ends the child without running what belongs to its parent.
            unsafe { libc::_exit(if is_right { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: our own child.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0, "the forked child saw other codes than NOT_INITIALIZED");
        ok!(cuda, cuMemFree_v2(address));
    });
}
