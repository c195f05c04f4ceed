// SPDX-License-Identifier: Apache-2.0
//! What contexts hold beside allocations: images of modules and libraries, and limits beyond their defaults.

use std::ffi::CString;

use partage_abi::types::*;
use partage_abi::values::*;
use partage_machine::Spec;

use crate::child::{Cuda, Folder, MIB, code, in_child, ok, refused, role};

const NONE: *mut *mut c_void = std::ptr::null_mut();
/// The page of images on a device of 1 GiB.
const PAGE: u64 = MIB;

/// An image of at least `bytes` with a variable of `variable` bytes.
fn image(bytes: usize, variable: u64) -> CString {
    let head = ".version 8.0\n.target sm_80\n.address_size 64\n";
    let body = format!(".visible .global .align 4 .b8 table[{variable}];\n.visible .entry k() {{ ret; }}\n//");
    let filler = "x".repeat(bytes.saturating_sub(head.len() + body.len()));
    CString::new(format!("{head}{body}{filler}")).expect("no NUL")
}

fn load(cuda: &Cuda, image: &CString) -> Result<CuModule, CuResult> {
    let mut module = CuModule::NULL;
    match code!(cuda, cuModuleLoadData(&mut module, image.as_ptr().cast())) {
        CuResult::SUCCESS => Ok(module),
        code => Err(code),
    }
}

fn limit(cuda: &Cuda, number: c_int) -> usize {
    let mut value = 0;
    ok!(cuda, cuCtxGetLimit(&mut value, number));
    value
}

#[test]
fn a_module_costs_its_image_in_pages_and_its_variables() {
    in_child(
        "overhead::a_module_costs_its_image_in_pages_and_its_variables",
        |cuda| {
            cuda.context(0);
            let before = cuda.used();
            let small = load(cuda, &image(0, 1000)).expect("room");
            assert_eq!(cuda.used(), before + PAGE + 1024);
            let large = load(cuda, &image(3 * MIB as usize + 1, 512)).expect("room");
            assert_eq!(cuda.used(), before + PAGE + 1024 + 4 * PAGE + 512);
            ok!(cuda, cuModuleUnload(small));
            assert_eq!(cuda.used(), before + 4 * PAGE + 512);
            ok!(cuda, cuModuleUnload(large));
            assert_eq!(cuda.used(), before);
            refused!(INVALID_HANDLE: cuda, cuModuleUnload(large));
            assert_eq!(cuda.used(), before, "given back once");
        },
    );
}

#[test]
fn a_module_that_does_not_fit_leaves_nothing() {
    in_child("overhead::a_module_that_does_not_fit_leaves_nothing", |cuda| {
        cuda.context(0);
        let before = cuda.used();
        let rest = 1024 * MIB - before;
        // No room for the image; room for it but not for the variable; room for both, exactly.
        for (kept, fits) in [(PAGE - 512, false), (PAGE + MIB - 512, false), (PAGE + MIB, true)] {
            let filler = cuda.allocate(rest - kept).expect("room");
            let full = cuda.used();
            let loaded = load(cuda, &image(0, MIB));
            match loaded {
                Ok(module) => {
                    assert!(fits);
                    assert_eq!(cuda.used(), 1024 * MIB);
                    ok!(cuda, cuModuleUnload(module));
                }
                Err(code) => assert_eq!((code, fits), (CuResult::OUT_OF_MEMORY, false)),
            }
            assert_eq!(cuda.used(), full, "{kept} bytes were left");
            ok!(cuda, cuMemFree_v2(filler));
        }
    });
}

#[test]
fn a_library_costs_in_each_context_that_uses_it() {
    in_child("overhead::a_library_costs_in_each_context_that_uses_it", |cuda| {
        let first = cuda.context(0);
        let before = cuda.used();
        let (text, mut library) = (image(0, 512), CuLibrary::NULL);
        let none = std::ptr::null_mut;
        let loaded = code!(
            cuda,
            cuLibraryLoadData(&mut library, text.as_ptr().cast(), none(), NONE, 0, none(), NONE, 0)
        );
        assert_eq!(loaded, CuResult::SUCCESS);
        assert_eq!(cuda.used(), before, "no context uses it yet");
        let mut module = CuModule::NULL;
        ok!(cuda, cuLibraryGetModule(&mut module, library));
        ok!(cuda, cuLibraryGetModule(&mut module, library));
        assert_eq!(cuda.used(), before + PAGE + 512, "once, however often");
        let second = cuda.context(0);
        assert_ne!(first, second);
        let with_second = cuda.used();
        ok!(cuda, cuLibraryGetModule(&mut module, library));
        assert_eq!(cuda.used(), with_second + PAGE + 512);
        ok!(cuda, cuCtxDestroy_v2(second));
        ok!(cuda, cuCtxSetCurrent(first));
        assert_eq!(cuda.used(), before + PAGE + 512, "the context took its part along");
        ok!(cuda, cuLibraryUnload(library));
        assert_eq!(cuda.used(), before);
    });
}

#[test]
fn limits_beyond_their_defaults_cost_at_once() {
    in_child("overhead::limits_beyond_their_defaults_cost_at_once", |cuda| {
        let context = cuda.context(0);
        let before = cuda.used();
        let (fifo, heap) = (CU_LIMIT_PRINTF_FIFO_SIZE, CU_LIMIT_MALLOC_HEAP_SIZE);
        let defaults = [fifo, heap, CU_LIMIT_STACK_SIZE].map(|number| limit(cuda, number));
        ok!(cuda, cuCtxSetLimit(fifo, defaults[0] + 5 * MIB as usize));
        ok!(cuda, cuCtxSetLimit(heap, defaults[1] + 7 * MIB as usize));
        assert_eq!(cuda.used(), before + 12 * MIB);
        ok!(cuda, cuCtxSetLimit(fifo, defaults[0] + MIB as usize));
        assert_eq!(cuda.used(), before + 8 * MIB);
        // The simulated H200 has 132 multiprocessors with 2048 threads each.
        ok!(cuda, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, defaults[2] + 1024));
        assert_eq!(cuda.used(), before + 8 * MIB + 1024 * 132 * 2048);
        // What does not fit changes nothing.
        for (number, value) in [
            (CU_LIMIT_STACK_SIZE, 1 << 20),
            (CU_LIMIT_STACK_SIZE, usize::MAX),
            (heap, usize::MAX),
            (fifo, 1 << 30),
        ] {
            let kept = limit(cuda, number);
            refused!(OUT_OF_MEMORY: cuda, cuCtxSetLimit(number, value));
            assert_eq!(limit(cuda, number), kept);
        }
        assert_eq!(cuda.used(), before + 8 * MIB + 1024 * 132 * 2048);
        // Defaults, and less, are part of what a context costs anyway.
        ok!(cuda, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 512));
        ok!(cuda, cuCtxSetLimit(heap, defaults[1]));
        assert_eq!(cuda.used(), before + MIB);
        // Limits that keep nothing aside cost nothing.
        ok!(cuda, cuCtxSetLimit(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 1 << 20));
        assert_eq!(cuda.used(), before + MIB);
        let other = cuda.context(0);
        assert_eq!(limit(cuda, fifo), defaults[0], "each context has its own");
        ok!(cuda, cuCtxDestroy_v2(context));
        assert_eq!(cuda.used(), before, "one context like the first");
        ok!(cuda, cuCtxDestroy_v2(other));
    });
}

#[test]
fn small_devices_have_small_pages() {
    const TEST: &str = "overhead::small_devices_have_small_pages";
    if role().is_some() {
        let cuda = Cuda::load();
        cuda.context(0);
        let before = cuda.used();
        let modules = [0; 3].map(|_| load(&cuda, &image(0, 512)).expect("room"));
        assert_eq!(cuda.used(), before + 3 * ((64 << 10) + 512));
        for module in modules {
            ok!(cuda, cuModuleUnload(module));
        }
        return;
    }
    Folder::of(&Spec::new(1, "h200", Some(64 * MIB))).run(TEST, "body", &[]);
}

#[test]
fn all_of_it_is_held_by_the_process_and_gone_with_it() {
    const TEST: &str = "overhead::all_of_it_is_held_by_the_process_and_gone_with_it";
    if role().is_some() {
        let cuda = Cuda::load();
        cuda.context(0);
        load(&cuda, &image(0, 512)).expect("room");
        ok!(cuda, cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 16 << 20));
        crate::child::say(0xf1);
        crate::child::listen();
        return;
    }
    let folder = Folder::new(1);
    let mut holder = folder.start(TEST, "holder");
    holder.hear(0xf1);
    let held: Vec<u64> = folder
        .machine()
        .occupants(0)
        .iter()
        .map(|process| process.used)
        .collect();
    assert_eq!(held, [16 * MIB + PAGE + 512 + 8 * MIB]);
    holder.kill();
    assert_eq!(folder.machine().used(0), 0);
}
