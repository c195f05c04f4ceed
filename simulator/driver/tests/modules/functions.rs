// SPDX-License-Identifier: Apache-2.0
//! Attributes of functions.

use partage_abi::types::*;

use crate::loading::{KERNELS, function, load, text};
use crate::machine::{call, on_machine, refused};

/// `CU_FUNC_ATTRIBUTE_*`.
const MAX_THREADS: c_int = 0;
const SHARED: c_int = 1;
const CONSTANTS: c_int = 2;
const REGISTERS: c_int = 4;
const PTX_VERSION: c_int = 5;
const BINARY_VERSION: c_int = 6;
const MAX_DYNAMIC_SHARED: c_int = 8;
const CARVEOUT: c_int = 9;

on_machine! {
    attributes_describe_the_kernel => |driver| {
        let image = text(KERNELS);
        let reduce = function(driver, load(driver, image.as_ptr().cast()), "sum_reduce");
        let get = |attribute| {
            let mut value = -7;
            call!(driver, cuFuncGetAttribute(&mut value, attribute, reduce));
            value
        };
        assert_eq!(get(MAX_THREADS), 1024);
        assert_eq!(get(SHARED), 4096);
        assert_eq!(get(CONSTANTS), 16, "four factors");
        assert!((16..=64).contains(&get(REGISTERS)));
        assert_eq!(get(PTX_VERSION), 75);
        assert_eq!(get(BINARY_VERSION), 90);
        assert_eq!(get(MAX_DYNAMIC_SHARED), (48 << 10) - 4096);
        let mut value = 0;
        refused!(INVALID_VALUE: driver, cuFuncGetAttribute(&mut value, 99, reduce));
        refused!(INVALID_VALUE: driver, cuFuncGetAttribute(std::ptr::null_mut(), SHARED, reduce));
        refused!(INVALID_HANDLE: driver, cuFuncGetAttribute(&mut value, SHARED, CuFunction::NULL));
    }

    registers_stay_below_what_the_text_allows => |driver| {
        let many: String = (0..80).map(|n| format!("  add.u32 %r{}, %r{n}, {n};\n", n + 1)).collect();
        let kernel = |name: &str, tuning: &str| {
            format!(
                ".visible .entry {name}(.param .u64 p){tuning}\n{{\n  .reg .b32 %r<82>;\n  .reg .b64 %rd<2>;\n  \
                 mov.u32 %r0, 1;\n{many}  ld.param.u64 %rd1, [p];\n  st.global.u32 [%rd1], %r80;\n  ret;\n}}\n"
            )
        };
        let head = ".version 8.0\n.target sm_80\n.address_size 64\n";
        let image = text(&format!("{head}{}{}", kernel("free", ""), kernel("bound", " .maxnreg 24")));
        let module = load(driver, image.as_ptr().cast());
        let registers = |name: &str| {
            let mut value = 0;
            call!(driver, cuFuncGetAttribute(&mut value, REGISTERS, function(driver, module, name)));
            value
        };
        assert_eq!((registers("free"), registers("bound")), (64, 24));
    }

    settings_are_checked_and_kept => |driver| {
        let image = text(KERNELS);
        let reduce = function(driver, load(driver, image.as_ptr().cast()), "sum_reduce");
        call!(driver, cuFuncSetAttribute(reduce, MAX_DYNAMIC_SHARED, 100 << 10));
        let mut value = 0;
        call!(driver, cuFuncGetAttribute(&mut value, MAX_DYNAMIC_SHARED, reduce));
        assert_eq!(value, 100 << 10);
        // A block may have 227 KiB on this model, static memory included.
        call!(driver, cuFuncSetAttribute(reduce, MAX_DYNAMIC_SHARED, (227 << 10) - 4096));
        refused!(INVALID_VALUE: driver, cuFuncSetAttribute(reduce, MAX_DYNAMIC_SHARED, (227 << 10) - 4095));
        refused!(INVALID_VALUE: driver, cuFuncSetAttribute(reduce, MAX_DYNAMIC_SHARED, -1));
        call!(driver, cuFuncSetAttribute(reduce, CARVEOUT, 50));
        refused!(INVALID_VALUE: driver, cuFuncSetAttribute(reduce, CARVEOUT, 101));
        refused!(INVALID_VALUE: driver, cuFuncSetAttribute(reduce, REGISTERS, 32));
        call!(driver, cuFuncSetCacheConfig(reduce, 2));
        refused!(INVALID_VALUE: driver, cuFuncSetCacheConfig(reduce, 4));
        call!(driver, cuFuncSetSharedMemConfig(reduce, 1));
        refused!(INVALID_VALUE: driver, cuFuncSetSharedMemConfig(reduce, 3));
    }

    parameters_and_owners_are_told => |driver| {
        let image = text(KERNELS);
        let module = load(driver, image.as_ptr().cast());
        let saxpy = function(driver, module, "saxpy");
        let mut places = Vec::new();
        for index in 0..4 {
            let (mut offset, mut size) = (0, 0);
            call!(driver, cuFuncGetParamInfo(saxpy, index, &mut offset, &mut size));
            places.push((offset, size));
        }
        assert_eq!(places, [(0, 8), (8, 8), (16, 4), (20, 4)]);
        let mut offset = 0;
        refused!(INVALID_VALUE: driver, cuFuncGetParamInfo(saxpy, 4, &mut offset, std::ptr::null_mut()));
        let mut count = 0;
        call!(driver, cuFuncGetParamCount(saxpy, &mut count));
        assert_eq!(count, 4);
        let mut owner = CuModule::NULL;
        call!(driver, cuFuncGetModule(&mut owner, saxpy));
        assert_eq!(owner, module);
        let mut state = 0;
        call!(driver, cuFuncIsLoaded(&mut state, saxpy));
        call!(driver, cuFuncLoad(saxpy));
        assert_eq!(state, 1);
        let mut mode = 0;
        call!(driver, cuModuleGetLoadingMode(&mut mode));
        assert_eq!(mode, 2);
    }
}
