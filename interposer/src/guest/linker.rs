// SPDX-License-Identifier: Apache-2.0
//! Look-ups that pass our own `dlsym` by: with the one that stands behind it.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::guest::elf;

static NEXT: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
static NEXT_START: AtomicUsize = AtomicUsize::new(0);
static NEXT_END: AtomicUsize = AtomicUsize::new(0);
static LIBC: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// The `dlsym` to go on with for a call from `caller`; null only where no libc has one.
pub fn behind(caller: usize) -> *const () {
    let mut next = NEXT.load(Ordering::Acquire);
    if next.is_null() {
        let Some(found) = elf::find_dlsym() else {
            return core::ptr::null();
        };
        NEXT_START.store(found.next_start, Ordering::Relaxed);
        NEXT_END.store(found.next_end, Ordering::Relaxed);
        LIBC.store(found.libc.cast_mut(), Ordering::Release);
        next = found.next.cast_mut();
        NEXT.store(next, Ordering::Release);
    }
    let is_from_next = caller >= NEXT_START.load(Ordering::Relaxed) && caller < NEXT_END.load(Ordering::Relaxed);
    if is_from_next {
        LIBC.load(Ordering::Acquire)
    } else {
        next
    }
}

/// Looks a symbol up without our own hooks in between. Null when there is none.
pub fn real_dlsym(handle: *mut c_void, name: &CStr) -> *mut c_void {
    ask(behind(0), handle, name)
}

/// Looks a symbol up with one `dlsym`; null without one.
pub fn ask(dlsym: *const (), handle: *mut c_void, name: &CStr) -> *mut c_void {
    if dlsym.is_null() {
        return core::ptr::null_mut();
    }
    type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    // SAFETY: the address of a function of that name and type; the name is a C string.
    unsafe { core::mem::transmute::<*const (), Dlsym>(dlsym)(handle, name.as_ptr()) }
}
