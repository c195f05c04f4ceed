// SPDX-License-Identifier: Apache-2.0
//! What is refused, with which code, and what is said about it; versions; the names.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_void};
use std::path::Path;

use crate::lt::{Operation, heuristic, layout};
use crate::machine::{Blas, call, on_machine, run_on_machine};
use crate::numbers::*;

const SUCCESS: i32 = 0;
const NOT_INITIALIZED: i32 = 1;
const INVALID_VALUE: i32 = 7;
const NOT_SUPPORTED: i32 = 15;

/// `cublasSgemm` of 4 by 4 matrices at one address, but for what the caller changes.
fn product(
    blas: &Blas,
    handle: *mut c_void,
    [ta, tb, m, n, k, lda, ldb, ldc]: [i32; 8],
    scalars: [*const f32; 2],
) -> i32 {
    let memory = blas.memory(&[0; 64]);
    let [alpha, beta] = scalars;
    let status = call!(blas, cublasSgemm_v2(
        handle => *mut c_void, ta => i32, tb => i32, m => i32, n => i32, k => i32, alpha => *const f32, memory => u64,
        lda => i32, memory => u64, ldb => i32, beta => *const f32, memory => u64, ldc => i32
    ));
    blas.free(&[memory]);
    status
}

/// A product of types that are not built, and an attribute; each twice.
fn refusals(blas: &Blas) {
    let one = 1f32;
    for _ in 0..2 {
        assert_eq!(
            call!(blas, cublasGemmEx(
                blas.handle => *mut c_void, 0 => i32, 0 => i32, 4 => i32, 4 => i32, 4 => i32, &one => *const f32,
                0 => u64, 3 => i32, 4 => i32, 0 => u64, 3 => i32, 4 => i32, &one => *const f32, 0 => u64, 10 => i32,
                4 => i32, 72 => i32, -1 => i32
            )),
            NOT_SUPPORTED
        );
        let operation = Operation::new(blas, 68, F32);
        assert_eq!(operation.set(blas, 7, &128u32.to_le_bytes()), SUCCESS);
        let shape = Shape {
            rows: 4,
            columns: 4,
            leading: 4,
        };
        let layouts = [0; 4].map(|_| layout(blas, F32, shape, 1, 0));
        assert_eq!(heuristic(blas, &operation, layouts), (NOT_SUPPORTED, 0));
        assert_eq!(operation.set(blas, 17, &[0; 8]), NOT_SUPPORTED);
    }
}

on_machine! {
    arguments_are_checked => |blas| {
        let (one, none) = (1f32, std::ptr::null());
        let both: [*const f32; 2] = [&one, &one];
        let good = [0, 0, 4, 4, 4, 4, 4, 4];
        assert_eq!(product(blas, blas.handle, good, both), SUCCESS);
        for (place, value) in [(0, 3), (1, -1), (2, -1), (3, -1), (4, -1), (5, 3), (6, 3), (7, 3), (5, 0)] {
            let mut changed = good;
            changed[place] = value;
            assert_eq!(product(blas, blas.handle, changed, both), INVALID_VALUE, "argument {place} is {value}");
        }
        assert_eq!(product(blas, blas.handle, [1, 0, 4, 4, 3, 3, 4, 4], both), SUCCESS, "A transposed has k rows");
        assert_eq!(product(blas, blas.handle, [0, 0, 0, 4, 4, 4, 4, 4], both), SUCCESS, "nothing to do");
        assert_eq!(product(blas, blas.handle, good, [none, &one]), INVALID_VALUE);
        assert_eq!(product(blas, blas.handle, good, [&one, none]), INVALID_VALUE);
        assert_eq!(product(blas, std::ptr::null_mut(), good, both), NOT_INITIALIZED);
        assert_eq!(product(blas, (&raw const one).cast_mut().cast(), good, both), NOT_INITIALIZED);
        assert_eq!(call!(blas, cublasSetPointerMode_v2(blas.handle => *mut c_void, 2 => i32)), INVALID_VALUE);
        assert_eq!(call!(blas, cublasDestroy_v2(blas.handle => *mut c_void)), SUCCESS);
        assert_eq!(call!(blas, cublasDestroy_v2(blas.handle => *mut c_void)), NOT_INITIALIZED);
        assert_eq!(product(blas, blas.handle, good, both), NOT_INITIALIZED);
    }

    handles_keep_what_they_are_told => |blas| {
        let mut stream = std::ptr::null_mut();
        let handle = blas.handle;
        assert_eq!(call!(blas, cublasSetStream_v2(handle => *mut c_void, 64 => usize)), SUCCESS);
        assert_eq!(call!(blas, cublasGetStream_v2(handle => *mut c_void, &mut stream => *mut *mut c_void)), SUCCESS);
        assert_eq!(stream as usize, 64);
        let mut value = -1;
        assert_eq!(call!(blas, cublasGetMathMode(handle => *mut c_void, &mut value => *mut i32)), SUCCESS);
        assert_eq!(value, 0);
        assert_eq!(call!(blas, cublasSetMathMode(handle => *mut c_void, 3 | 16 => i32)), SUCCESS);
        assert_eq!(call!(blas, cublasGetMathMode(handle => *mut c_void, &mut value => *mut i32)), SUCCESS);
        assert_eq!(value, 3 | 16);
        assert_eq!(call!(blas, cublasGetPointerMode_v2(handle => *mut c_void, &mut value => *mut i32)), SUCCESS);
        assert_eq!(value, 0);
        assert_eq!(call!(blas, cublasSetWorkspace_v2(handle => *mut c_void, 0 => usize, 0 => usize)), SUCCESS);
        assert_eq!(call!(blas, cublasGetVersion_v2(handle => *mut c_void, &mut value => *mut i32)), SUCCESS);
        assert_eq!(value / 10_000, 13);
        assert_eq!(call!(blas, cublasGetVersion_v2_v12(handle => *mut c_void, &mut value => *mut i32)), SUCCESS);
        assert_eq!(value / 10_000, 12);
    }

    versions_and_texts_are_told => |blas| {
        let version = blas.symbol::<extern "C" fn() -> usize>("cudnnGetVersion")();
        let part = |which: i32| {
            let mut part = -1;
            (call!(blas, cudnnGetProperty(which => i32, &mut part => *mut i32)), part as usize)
        };
        assert_eq!(version / 10_000, 9);
        assert_eq!([part(0), part(1), part(2)], [(0, 9), (0, version / 100 % 100), (0, version % 100)]);
        assert_eq!(part(3).0, 2000);
        let text = |name: &str, code: i32| {
            let text = blas.symbol::<extern "C" fn(i32) -> *const std::ffi::c_char>(name)(code);
            // SAFETY: a constant C string.
            unsafe { CStr::from_ptr(text) }.to_str().expect("ASCII").to_owned()
        };
        assert_eq!(text("cublasGetStatusName", 15), "CUBLAS_STATUS_NOT_SUPPORTED");
        assert_eq!(text("cublasLtGetStatusString", 99), "unknown status");
        assert_eq!(text("cudnnGetErrorString", 3000), "CUDNN_STATUS_NOT_SUPPORTED");
    }

    every_name_that_is_answered_is_in_a_list => |blas| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut listed = BTreeSet::new();
        for list in ["cublas", "cublasLt", "cudnn"] {
            let path = root.join(format!("../stand-ins/names/{list}.txt"));
            let text = std::fs::read_to_string(&path).expect("a list of names");
            listed.extend(text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned));
        }
        let mut sources = vec![root.join("src")];
        let mut found = 0;
        while let Some(path) = sources.pop() {
            if path.is_dir() {
                sources.extend(std::fs::read_dir(&path).expect("a folder").flatten().map(|entry| entry.path()));
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a source");
            for name in text.split(|letter: char| !letter.is_alphanumeric() && letter != '_') {
                let Some(name) = name.strip_prefix("partage_cu") else { continue };
                let exported = format!("cu{name}");
                let name = exported.strip_suffix("_v12").unwrap_or(&exported);
                assert!(blas.has(&exported), "{exported} is not exported");
                assert!(listed.iter().any(|listed| listed.split(' ').next() == Some(name)), "{name} is in no list");
                found += 1;
            }
        }
        assert!(found > 90, "{found} names in the sources");
    }
}

#[test]
fn what_is_not_built_is_named_once() {
    let test = "answers::what_is_not_built_is_named_once";
    let Some(said) = run_on_machine(test, refusals) else {
        return;
    };
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("partage sim: ")).collect();
    assert_eq!(
        lines,
        [
            "partage sim: cublasGemmEx: a product of types 3, 3 into 10 with computation 72 is not built",
            "partage sim: cublasLtMatmul: epilogue 128 for types [0, 0, 0, 0] is not built",
            "partage sim: cublasLtMatmulDesc: attribute 17 is not built",
        ]
    );
}
