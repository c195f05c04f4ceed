// SPDX-License-Identifier: Apache-2.0
//! A preload for programs that ask NVRTC for machine code (`nvrtcGetCUBIN`), which the simulated driver does not
//! execute: they get the PTX of the same compilation instead, which the driver's load functions take as well.
//!
//! Programs reach the two functions by linking with NVRTC, which finds our exports first, or by `dlsym` on its handle:
//! then our `dlsym` answers. Every other look-up goes on to the next `dlsym`, by a jump: libc's looks at its return
//! address, so ours is a naked function that leaves the stack as it was. Where a compilation left no PTX, the program
//! gets what NVRTC has.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

type SizeOf = unsafe extern "C" fn(*mut c_void, *mut usize) -> c_int;
type TextOf = unsafe extern "C" fn(*mut c_void, *mut c_char) -> c_int;
type Lookup = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// `NVRTC_ERROR_INTERNAL_ERROR`: NVRTC is not there although its function was called.
const INTERNAL_ERROR: c_int = 11;
/// PTX that is there is longer than its terminating zero.
const NO_TEXT: usize = 1;

/// The NVRTC that was asked last: a handle of it, or RTLD_NEXT for the one that the program is linked with.
static NVRTC: AtomicPtr<c_void> = AtomicPtr::new(libc::RTLD_NEXT);
static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// What the naked function needs: an answer, or where to jump.
#[repr(C)]
struct Pick {
    answer: *mut c_void,
    next: *mut c_void,
}

/// The program's `dlsym`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        // Two pushes and the return address leave the stack 8 off a call's alignment.
        "sub rsp, 8",
        "call {pick}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jnz 2f",
        "jmp rdx",
        "2:",
        "ret",
        pick = sym pick,
    )
}

/// The program's `dlsym`.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "hint #34", // bti c, where the machine knows it
        "stp x0, x1, [sp, #-32]!",
        "str x30, [sp, #16]",
        "bl {pick}",
        "mov x9, x0",
        "mov x16, x1",
        "ldr x30, [sp, #16]",
        "ldp x0, x1, [sp], #32",
        "cbnz x9, 2f",
        "br x16",
        "2:",
        "mov x0, x9",
        "ret",
        pick = sym pick,
    )
}

unsafe extern "C" fn pick(handle: *mut c_void, name: *const c_char) -> Pick {
    let next = next_lookup();
    let answer = if name.is_null() || next.is_null() || [libc::RTLD_NEXT, libc::RTLD_DEFAULT].contains(&handle) {
        core::ptr::null_mut()
    } else {
        // SAFETY: not null, and the program passes a C string.
        ours(handle, unsafe { CStr::from_ptr(name) })
    };
    Pick { answer, next }
}

/// Our function of a name, if the library behind the handle has the one that it stands for.
fn ours(handle: *mut c_void, name: &CStr) -> *mut c_void {
    let (ours, needs): (*mut c_void, &CStr) = match name.to_bytes() {
        b"nvrtcGetCUBIN" => (nvrtcGetCUBIN as TextOf as *mut c_void, c"nvrtcGetPTX"),
        b"nvrtcGetCUBINSize" => (nvrtcGetCUBINSize as SizeOf as *mut c_void, c"nvrtcGetPTXSize"),
        _ => return core::ptr::null_mut(),
    };
    if look_up(handle, needs).is_null() {
        return core::ptr::null_mut();
    }
    NVRTC.store(handle, Ordering::Release);
    ours
}

/// The `dlsym` behind ours: libc's, or another preload's. Null only where libc has none.
fn next_lookup() -> *mut c_void {
    let known = NEXT.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    // By version, for without one this would ask ourselves; the newest first, then those of older libraries.
    let versions = [c"GLIBC_2.34", c"GLIBC_2.17", c"GLIBC_2.2.5"];
    for version in versions {
        // SAFETY: C strings; libc looks in the objects behind ours.
        let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
        if !found.is_null() {
            NEXT.store(found, Ordering::Release);
            return found;
        }
    }
    core::ptr::null_mut()
}

fn look_up(handle: *mut c_void, name: &CStr) -> *mut c_void {
    let next = next_lookup();
    if next.is_null() {
        return next;
    }
    // SAFETY: `dlsym` itself, with a handle that the program has and a C string.
    unsafe {
        let next: Lookup = core::mem::transmute(next);
        next(handle, name.as_ptr())
    }
}

/// A function of the NVRTC that was asked last.
fn function(name: &CStr) -> Option<*mut c_void> {
    Some(look_up(NVRTC.load(Ordering::Acquire), name)).filter(|found| !found.is_null())
}

fn size(name: &CStr, program: *mut c_void, to: *mut usize) -> c_int {
    let Some(found) = function(name) else {
        return INTERNAL_ERROR;
    };
    // SAFETY: NVRTC's function of this name has this signature.
    unsafe {
        let found: SizeOf = core::mem::transmute(found);
        found(program, to)
    }
}

/// Whether the compilation left PTX.
fn has_ptx(program: *mut c_void) -> bool {
    let mut bytes = 0;
    size(c"nvrtcGetPTXSize", program, &raw mut bytes) == 0 && bytes > NO_TEXT
}

/// Length of the PTX, with its zero.
#[allow(non_snake_case, reason = "NVRTC's name")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetCUBINSize(program: *mut c_void, bytes: *mut usize) -> c_int {
    let name = if has_ptx(program) {
        c"nvrtcGetPTXSize"
    } else {
        c"nvrtcGetCUBINSize"
    };
    size(name, program, bytes)
}

/// The PTX.
#[allow(non_snake_case, reason = "NVRTC's name")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetCUBIN(program: *mut c_void, to: *mut c_char) -> c_int {
    let name = if has_ptx(program) {
        c"nvrtcGetPTX"
    } else {
        c"nvrtcGetCUBIN"
    };
    let Some(found) = function(name) else {
        return INTERNAL_ERROR;
    };
    // SAFETY: NVRTC's function of this name has this signature, and room as `nvrtcGetCUBINSize` said.
    unsafe {
        let found: TextOf = core::mem::transmute(found);
        found(program, to)
    }
}
