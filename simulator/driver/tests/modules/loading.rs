// SPDX-License-Identifier: Apache-2.0
//! Loading of images in every form, global variables, and what is refused.

use std::ffi::{CStr, CString};

use partage_abi::types::*;

use crate::machine::{Driver, Value, call, code, on_machine, pointers, refused, run_on_changed};
use partage_machine::MachineCode;

/// PTX of the kernels that many tests launch.
pub const KERNELS: &str = include_str!("../../../../cuda-tests/kernels/test_kernels.ptx");
const ZSTD: &[u8] = include_bytes!("../../../../cuda-tests/kernels/images/zstd.fatbin");
const CUBIN: &[u8] = include_bytes!("../../../../cuda-tests/kernels/images/sm_90.cubin");

/// `CU_JIT_*`.
const WALL_TIME: c_int = 2;
const ERROR_LOG: c_int = 5;
const ERROR_LOG_BYTES: c_int = 6;

/// A text with its zero.
pub fn text(of: &str) -> CString {
    CString::new(of).expect("no NUL")
}

/// Loads an image.
pub fn load(driver: &Driver, image: *const c_void) -> CuModule {
    let mut module = CuModule::NULL;
    call!(driver, cuModuleLoadData(&mut module, image));
    module
}

/// A function of a module.
pub fn function(driver: &Driver, module: CuModule, name: &str) -> CuFunction {
    let mut function = CuFunction::NULL;
    call!(driver, cuModuleGetFunction(&mut function, module, text(name).as_ptr()));
    function
}

/// Launches one block.
pub fn launch(driver: &Driver, function: CuFunction, threads: u32, parameters: &[Value]) -> CuResult {
    let mut parameters = pointers(parameters);
    let none = std::ptr::null_mut();
    code!(
        driver,
        cuLaunchKernel(
            function,
            1,
            1,
            1,
            threads,
            1,
            1,
            0,
            CuStream::NULL,
            parameters.as_mut_ptr(),
            none
        )
    )
}

/// Fills 64 words with a value through a function called `fill_u32`.
pub fn fills(driver: &Driver, function: CuFunction, value: u32) {
    let memory = driver.memory(256);
    let parameters = [Value::Long(memory), Value::Word(value), Value::Word(64)];
    assert_eq!(launch(driver, function, 64, &parameters), CuResult::SUCCESS);
    assert_eq!(driver.words(memory, 64), [value; 64]);
}

/// Two kernels, one of which uses an instruction that is not executed.
const HALF_SUPPORTED: &str = ".version 8.0\n.target sm_80\n.address_size 64\n\
    .visible .entry strange(.param .u64 p)\n{\n  wgmma.fence.sync.aligned;\n  ret;\n}\n\
    .visible .entry one(.param .u64 p)\n{\n  .reg .b64 %rd<2>;\n  .reg .b32 %r<2>;\n  ld.param.u64 %rd1, [p];\n\
      mov.u32 %r1, 1;\n  st.global.u32 [%rd1], %r1;\n  ret;\n}\n";

#[test]
fn machine_code_has_functions_that_do_nothing_where_the_machine_takes_it() {
    let takes = |spec: &mut partage_machine::Spec| spec.machine_code = MachineCode::NoOp;
    let said = |errors: &str| {
        assert!(
            errors.contains("fill_u32 is machine code, which is not executed"),
            "{errors}"
        )
    };
    let test = "loading::machine_code_has_functions_that_do_nothing_where_the_machine_takes_it";
    run_on_changed(test, takes, said, |driver| {
        let module = load(driver, CUBIN.as_ptr().cast());
        let function = function(driver, module, "fill_u32");
        let memory = driver.memory(16);
        let parameters = [Value::Long(memory), Value::Word(9), Value::Word(4)];
        assert_eq!(launch(driver, function, 4, &parameters), CuResult::SUCCESS);
        assert_eq!(driver.words(memory, 4), [0; 4]);
        let (mut offset, mut size) = (0, 0);
        call!(driver, cuFuncGetParamInfo(function, 2, &mut offset, &mut size));
        assert_eq!((offset, size), (12, 4));
    });
}

#[test]
fn machine_code_is_refused_with_a_line_that_says_how_to_get_ptx() {
    let said = |errors: &str| {
        let lines: Vec<&str> = errors.lines().filter(|line| line.contains("machine code")).collect();
        assert_eq!(lines.len(), 1, "{errors}");
        for part in ["and 4 more", "209", "compute_90", "--nvrtc-ptx", "--machine-code no-op"] {
            assert!(lines[0].contains(part), "{part}: {errors}");
        }
    };
    let test = "loading::machine_code_is_refused_with_a_line_that_says_how_to_get_ptx";
    run_on_changed(
        test,
        |_| (),
        said,
        |driver| {
            let (mut module, mut library) = (CuModule::NULL, CuLibrary::NULL);
            let none = std::ptr::null_mut();
            refused!(NO_BINARY_FOR_GPU: driver, cuModuleLoadData(&mut module, CUBIN.as_ptr().cast()));
            refused!(NO_BINARY_FOR_GPU: driver, cuLibraryLoadData(
                &mut library, CUBIN.as_ptr().cast(), std::ptr::null_mut(), std::ptr::null_mut(), 0,
                std::ptr::null_mut(), none, 0
            ));
        },
    );
}

#[test]
fn a_kernel_that_is_not_supported_is_refused_by_name_and_its_neighbours_run() {
    let said = |errors: &str| {
        let lines: Vec<&str> = errors.lines().filter(|line| line.contains("strange")).collect();
        assert_eq!(lines.len(), 1, "{errors}");
        assert!(
            lines[0].contains("wgmma.fence.sync.aligned") && lines[0].contains("line 6"),
            "{errors}"
        );
        assert!(!errors.contains("kernel one"), "{errors}");
    };
    let test = "loading::a_kernel_that_is_not_supported_is_refused_by_name_and_its_neighbours_run";
    run_on_changed(
        test,
        |_| (),
        said,
        |driver| {
            let image = text(HALF_SUPPORTED);
            let module = load(driver, image.as_ptr().cast());
            let memory = driver.memory(4);
            let strange = function(driver, module, "strange");
            assert_eq!(
                launch(driver, strange, 1, &[Value::Long(memory)]),
                CuResult::NOT_SUPPORTED
            );
            assert_eq!(
                launch(driver, strange, 1, &[Value::Long(memory)]),
                CuResult::NOT_SUPPORTED
            );
            assert_eq!(
                launch(driver, function(driver, module, "one"), 1, &[Value::Long(memory)]),
                CuResult::SUCCESS
            );
            assert_eq!(driver.words(memory, 1), [1]);
        },
    );
}

on_machine! {
    images_of_every_form_are_loaded => |driver| {
        let plain = text(KERNELS);
        let wrapper = [0x0000_0001_4662_43b1u64, ZSTD.as_ptr() as u64, 0];
        for image in [plain.as_ptr().cast(), ZSTD.as_ptr().cast(), wrapper.as_ptr().cast()] {
            let module = load(driver, image);
            fills(driver, function(driver, module, "fill_u32"), 7);
            call!(driver, cuModuleUnload(module));
        }
        let path = std::env::temp_dir().join(format!("partage-module-{}.ptx", std::process::id()));
        std::fs::write(&path, KERNELS).expect("a file can be written");
        let mut module = CuModule::NULL;
        call!(driver, cuModuleLoad(&mut module, text(path.to_str().expect("a plain path")).as_ptr()));
        std::fs::remove_file(&path).expect("it was there");
        fills(driver, function(driver, module, "fill_u32"), 8);
        refused!(FILE_NOT_FOUND: driver, cuModuleLoad(&mut module, c"/nowhere/at.all".as_ptr()));
    }

    variables_keep_their_values_between_launches => |driver| {
        let image = text(KERNELS);
        let module = load(driver, image.as_ptr().cast());
        let scale = function(driver, module, "scale_by_constant");
        let values = driver.memory(8);
        call!(driver, cuMemcpyHtoD_v2(values, [1.0f32, 3.0].as_ptr().cast(), 8));
        let (mut factors, mut bytes) = (0, 0);
        call!(driver, cuModuleGetGlobal_v2(&mut factors, &mut bytes, module, c"factors".as_ptr()));
        assert_eq!(bytes, 16);
        let parameters = [Value::Long(values), Value::Word(2), Value::Word(2)];
        assert_eq!(launch(driver, scale, 32, &parameters), CuResult::SUCCESS);
        assert_eq!(driver.words(values, 2), [4.0f32, 12.0].map(f32::to_bits));
        call!(driver, cuMemcpyHtoD_v2(factors + 8, [0.5f32].as_ptr().cast(), 4));
        assert_eq!(launch(driver, scale, 32, &parameters), CuResult::SUCCESS);
        assert_eq!(driver.words(values, 2), [2.0f32, 6.0].map(f32::to_bits));
        let mut launches = 0;
        call!(driver, cuModuleGetGlobal_v2(&mut launches, std::ptr::null_mut(), module, c"launches".as_ptr()));
        assert_eq!(driver.words(launches, 1), [2]);
        refused!(NOT_FOUND: driver, cuModuleGetGlobal_v2(&mut launches, &mut bytes, module, c"nothing".as_ptr()));
        let nobody = std::ptr::null_mut();
        refused!(INVALID_VALUE: driver,
            cuModuleGetGlobal_v2(nobody, std::ptr::null_mut(), module, c"launches".as_ptr()));
    }

    unloading_frees_variables_and_makes_handles_stale => |driver| {
        let free = || {
            let (mut free, mut total) = (0, 0);
            call!(driver, cuMemGetInfo_v2(&mut free, &mut total));
            free
        };
        let image = text(".version 8.0\n.target sm_80\n.address_size 64\n\
            .visible .global .align 4 .b8 table[1048576];\n.visible .entry k() { ret; }");
        let before = free();
        let module = load(driver, image.as_ptr().cast());
        assert_eq!(free(), before - (1 << 20) - (1 << 20), "the variable, and a page for the image");
        let mut kernel = function(driver, module, "k");
        assert_eq!(function(driver, module, "k"), kernel, "the same function each time");
        call!(driver, cuModuleUnload(module));
        assert_eq!(free(), before);
        refused!(INVALID_HANDLE: driver, cuModuleUnload(module));
        refused!(INVALID_HANDLE: driver, cuModuleGetFunction(&mut kernel, module, c"k".as_ptr()));
        assert_eq!(launch(driver, kernel, 1, &[]), CuResult::INVALID_HANDLE);
        refused!(INVALID_HANDLE: driver, cuModuleUnload(CuModule::NULL));
    }

    all_functions_are_listed => |driver| {
        let image = text(KERNELS);
        let module = load(driver, image.as_ptr().cast());
        let mut count = 0;
        call!(driver, cuModuleGetFunctionCount(&mut count, module));
        assert_eq!(count, 7);
        let mut functions = vec![CuFunction::NULL; 7];
        call!(driver, cuModuleEnumerateFunctions(functions.as_mut_ptr(), count, module));
        let name = |function: &CuFunction| {
            let mut name = std::ptr::null();
            call!(driver, cuFuncGetName(&mut name, *function));
            // SAFETY: the driver gave a text that lives as long as the module.
            unsafe { CStr::from_ptr(name) }.to_str().expect("a plain name").to_owned()
        };
        let mut names: Vec<String> = functions.iter().map(name).collect();
        names.sort();
        let expected =
            ["fill_u32", "illegal_write", "saxpy", "scale_by_constant", "spin_ns", "sum_reduce", "vector_add"];
        assert_eq!(names, expected);
    }

    bad_images_are_refused_with_their_codes => |driver| {
        let mut module = CuModule::NULL;
        let mut load = |of: &str| code!(driver, cuModuleLoadData(&mut module, text(of).as_ptr().cast()));
        let head = ".version 8.0\n.target sm_80\n.address_size 64\n";
        assert_eq!(load("no such thing"), CuResult::INVALID_IMAGE);
        assert_eq!(load(&format!("{head}.visible .entry k() {{ mov.u32 %r1, 0; }}")), CuResult::INVALID_PTX);
        // A texture belongs to the module, not to a kernel of it.
        assert_eq!(load(&format!("{head}.tex .u64 image;")), CuResult::NOT_SUPPORTED);
        assert_eq!(load(".version 8.0\n.target sm_120\n.address_size 64\n"), CuResult::INVALID_PTX);
        assert_eq!(load(".version 99.0\n.target sm_80\n.address_size 64\n"), CuResult::UNSUPPORTED_PTX_VERSION);
        assert_eq!(load(&format!("{head}.visible .global .b8 much[8589934592];")), CuResult::OUT_OF_MEMORY);
        refused!(INVALID_VALUE: driver, cuModuleLoadData(&mut module, std::ptr::null()));
        let good = text(head);
        refused!(INVALID_VALUE: driver, cuModuleLoadData(std::ptr::null_mut(), good.as_ptr().cast()));
    }

    what_the_readme_lists_is_refused_as_it_says => |driver| {
        let head = ".version 8.0\n.target sm_90\n.address_size 64\n";
        let declared = ".extern .func (.param .b64 result) malloc (.param .b64 bytes);\n";
        let allocates = "{ .param .b64 bytes; .param .b64 result; st.param.b64 [bytes], 8; \
                         call.uni (result), malloc, (bytes); }";
        let mut module = CuModule::NULL;
        let mut load = |of: &str| code!(driver, cuModuleLoadData(&mut module, text(of).as_ptr().cast()));
        assert_eq!(load(&format!("{head}{declared}.visible .entry k() {{ {allocates} ret; }}")), CuResult::INVALID_PTX);
        for reference in [".tex .u64 t;", ".global .texref t;", ".global .surfref t;"] {
            assert_eq!(load(&format!("{head}{reference}")), CuResult::NOT_SUPPORTED, "{reference}");
        }
        for body in [
            "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f2}];",
            "suld.b.2d.b32.trap {%r1}, [%rd1, {%r1, %r2}];",
            "wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {%f1}, {%r1}, {%r2}, {%f2};",
            "mbarrier.init.shared.b64 [%rd1], 1;",
            "cp.async.bulk.commit_group;",
            "cvt.rn.satfinite.e4m3x2.f32 %rs1, %f1, %f2;",
            "vadd4.u32.u32.u32 %r1, %r2, %r3, %r4;",
        ] {
            let registers = ".reg .f32 %f<5>; .reg .b32 %r<5>; .reg .b64 %rd<5>; .reg .b16 %rs<5>;";
            let image = text(&format!("{head}.visible .entry k() {{ {registers} {body} ret; }}"));
            let mut module = CuModule::NULL;
            // Some have a form of their own, which the reader of the whole text refuses.
            let loaded = code!(driver, cuModuleLoadData(&mut module, image.as_ptr().cast()));
            let refused = match loaded {
                CuResult::SUCCESS => launch(driver, function(driver, module, "k"), 1, &[]),
                code => code,
            };
            assert_eq!(refused, CuResult::NOT_SUPPORTED, "{body}");
        }
    }

    the_error_log_says_where_and_why => |driver| {
        let image = text(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n  bra NOWHERE;\n}");
        let mut log = [1u8; 200];
        let mut options = [ERROR_LOG, ERROR_LOG_BYTES, WALL_TIME];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), log.len() as *mut c_void, std::ptr::null_mut()];
        let mut module = CuModule::NULL;
        let load = |module: &mut CuModule, image: &CStr, options: &mut [c_int], values: &mut [*mut c_void]| {
            let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
            code!(driver, cuModuleLoadDataEx(module, image.as_ptr().cast(), 3, options, values))
        };
        assert_eq!(load(&mut module, &image, &mut options, &mut values), CuResult::INVALID_PTX);
        let written = values[1] as usize;
        let message = CStr::from_bytes_until_nul(&log).expect("a text with its zero").to_str().expect("plain text");
        assert_eq!(message, "ptxas application ptx input, line 6; error : NOWHERE is not declared");
        assert_eq!(written, message.len() + 1);
        // A short buffer gets what fits; a success leaves an empty log and a time.
        values[1] = 10 as *mut c_void;
        assert_eq!(load(&mut module, &image, &mut options, &mut values), CuResult::INVALID_PTX);
        assert_eq!((&log[..10], values[1] as usize), (b"ptxas app\0".as_slice(), 10));
        values[1] = log.len() as *mut c_void;
        let good = text(KERNELS);
        assert_eq!(load(&mut module, &good, &mut options, &mut values), CuResult::SUCCESS);
        assert_eq!((log[0], values[1] as usize), (0, 0));
        assert!(f32::from_bits(values[2] as u32) > 0.0);
        options[2] = 99;
        assert_eq!(load(&mut module, &good, &mut options, &mut values), CuResult::INVALID_VALUE);
    }

    modules_end_with_their_context => |driver| {
        let mut other = CuContext::NULL;
        call!(driver, cuCtxCreate_v2(&mut other, 0, 0));
        let image = text(KERNELS);
        let module = load(driver, image.as_ptr().cast());
        let kernel = function(driver, module, "fill_u32");
        call!(driver, cuCtxSetCurrent(driver.context));
        // Another context's function cannot be launched here.
        assert_eq!(launch(driver, kernel, 1, &[Value::Long(0); 3]), CuResult::INVALID_HANDLE);
        call!(driver, cuCtxDestroy_v2(other));
        refused!(INVALID_HANDLE: driver, cuModuleUnload(module));
        let again = load(driver, image.as_ptr().cast());
        fills(driver, function(driver, again, "fill_u32"), 3);
    }
}
