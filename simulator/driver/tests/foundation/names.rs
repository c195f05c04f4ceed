// SPDX-License-Identifier: Apache-2.0
//! `cuGetProcAddress`, exports, and entry points that are not built.

use std::ffi::CString;

use partage_abi::entry_points::PROC_ADDRESS;
use partage_abi::types::*;
use partage_abi::values::*;
use partage_abi::{ROWS, Symbol};
use partage_machine::entry_counts::Table;

use crate::child::{Cuda, Folder, code, in_child, ok, refused, role};

fn exported(cuda: &Cuda, symbol: Symbol) -> usize {
    cuda.symbol::<unsafe extern "C" fn()>(symbol.row().name()) as usize
}

/// Code, address and status of a request.
fn ask(cuda: &Cuda, name: &str, version: c_int, flags: c_uint) -> (CuResult, usize, c_int) {
    let name = CString::new(name).expect("no NUL");
    let (mut address, mut status) = (std::ptr::dangling_mut(), -1);
    let flags = u64::from(flags);
    let code = code!(
        cuda,
        cuGetProcAddress_v2(name.as_ptr(), &mut address, version, flags, &mut status)
    );
    let (mut first, flags) = (std::ptr::dangling_mut(), flags);
    assert_eq!(
        code!(cuda, cuGetProcAddress(name.as_ptr(), &mut first, version, flags)),
        code,
        "both versions agree"
    );
    assert_eq!(first, address);
    (code, address as usize, status)
}

#[test]
fn every_row_is_exported() {
    in_child("names::every_row_is_exported", |cuda| {
        for row in ROWS {
            cuda.symbol::<unsafe extern "C" fn()>(row.name());
        }
    });
}

#[test]
fn every_entry_is_found_under_its_version_and_flavour() {
    in_child("names::every_entry_is_found_under_its_version_and_flavour", |cuda| {
        for entry in PROC_ADDRESS.iter().filter(|entry| entry.version <= 13_000) {
            let flags = if entry.per_thread {
                CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
            } else {
                CU_GET_PROC_ADDRESS_LEGACY_STREAM
            };
            let answer = ask(cuda, entry.name, entry.version as c_int, flags);
            let expected = (
                CuResult::SUCCESS,
                exported(cuda, entry.symbol),
                CU_GET_PROC_ADDRESS_SUCCESS,
            );
            assert_eq!(answer, expected, "{entry:?}");
            if !entry.per_thread {
                assert_eq!(
                    ask(cuda, entry.name, entry.version as c_int, CU_GET_PROC_ADDRESS_DEFAULT),
                    expected
                );
            }
        }
    });
}

#[test]
fn what_cannot_be_found_is_said_and_why() {
    in_child("names::what_cannot_be_found_is_said_and_why", |cuda| {
        let unknown = (CuResult::NOT_FOUND, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
        let too_old = (CuResult::NOT_FOUND, 0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
        for name in ["", "cuNothing", "cuMemAlloc_v2", "cudaMalloc"] {
            assert_eq!(ask(cuda, name, 12_000, 0), unknown, "{name}");
        }
        assert_eq!(ask(cuda, "cuLaunchKernelEx", 11_000, 0), too_old);
        let mut address = std::ptr::null_mut();
        for (version, flags) in [(12_000, 4), (12_000, 1 << 40), (13_010, 0), (-1, 0)] {
            refused!(INVALID_VALUE: cuda, cuGetProcAddress(c"cuInit".as_ptr(), &mut address, version, flags));
        }
        refused!(INVALID_VALUE: cuda, cuGetProcAddress(std::ptr::null(), &mut address, 12_000, 0));
        refused!(INVALID_VALUE: cuda, cuGetProcAddress(c"cuInit".as_ptr(), std::ptr::null_mut(), 12_000, 0));
        let mut table = std::ptr::null();
        refused!(NOT_FOUND: cuda, cuGetExportTable(&mut table, &CuUuid::default()));
    });
}

#[test]
fn what_is_not_built_says_so_and_is_counted() {
    const TEST: &str = "names::what_is_not_built_says_so_and_is_counted";
    if role().is_some() {
        let cuda = Cuda::load();
        ok!(cuda, cuInit(0));
        for _ in 0..3 {
            refused!(NOT_SUPPORTED: cuda, cuMulticastCreate(&mut 0, std::ptr::null()));
        }
        return;
    }
    let folder = Folder::new(1);
    folder.run(TEST, "body", &[]);
    assert_eq!(
        folder.machine().unbuilt(Table::Driver),
        [(Symbol::cuMulticastCreate as usize, 3)]
    );
    let report = std::fs::read_to_string(folder.path().join("unbuilt.txt")).expect("written");
    assert!(report.starts_with("cuMulticastCreate first called by pid "), "{report}");
}

#[test]
fn a_switched_on_fault_answers_instead() {
    const TEST: &str = "names::a_switched_on_fault_answers_instead";
    if role().is_some() {
        let cuda = Cuda::load();
        cuda.context(0);
        cuda.allocate(1).expect("the first");
        assert_eq!(cuda.allocate(1), Err(CuResult::OUT_OF_MEMORY));
        cuda.allocate(1).expect("the third");
        refused!(LAUNCH_FAILED: cuda, cuMemFree_v2(0));
        return;
    }
    Folder::new(1).run(
        TEST,
        "body",
        &[("PARTAGE_SIM_FAULTS", "oom:cuMemAlloc_v2:2; code:cuMemFree_v2:*:719")],
    );
}
