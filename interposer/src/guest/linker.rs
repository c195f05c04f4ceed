// SPDX-License-Identifier: Apache-2.0
//! Look-ups and openings that pass our own `dlsym` and `dlopen` by: with those that stand behind them.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::guest::elf;

/// A function of the linker's that we export too, and what stands behind ours.
pub struct Front {
    name: &'static CStr,
    next: AtomicPtr<()>,
    next_start: AtomicUsize,
    next_end: AtomicUsize,
    libc: AtomicPtr<()>,
}

/// `dlsym`.
pub static DLSYM: Front = Front::new(c"dlsym");
/// `dlopen`.
pub static DLOPEN: Front = Front::new(c"dlopen");

impl Front {
    const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            next: AtomicPtr::new(core::ptr::null_mut()),
            next_start: AtomicUsize::new(0),
            next_end: AtomicUsize::new(0),
            libc: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// The function to go on with for a call from `caller`; null only where no libc has one.
    pub fn behind(&self, caller: usize) -> *const () {
        let mut next = self.next.load(Ordering::Acquire);
        if next.is_null() {
            let Some(found) = elf::find_behind(self.name) else {
                return core::ptr::null();
            };
            self.next_start.store(found.next_start, Ordering::Relaxed);
            self.next_end.store(found.next_end, Ordering::Relaxed);
            self.libc.store(found.libc.cast_mut(), Ordering::Release);
            next = found.next.cast_mut();
            self.next.store(next, Ordering::Release);
        }
        let is_from_next =
            caller >= self.next_start.load(Ordering::Relaxed) && caller < self.next_end.load(Ordering::Relaxed);
        if is_from_next {
            self.libc.load(Ordering::Acquire)
        } else {
            next
        }
    }

    /// Is this the function behind ours, or libc's?
    pub fn is_behind(&self, address: *const ()) -> bool {
        core::ptr::eq(address, self.behind(0)) || core::ptr::eq(address, self.libc.load(Ordering::Acquire))
    }
}

/// Looks a symbol up without our own hooks in between. Null when there is none.
pub fn real_dlsym(handle: *mut c_void, name: &CStr) -> *mut c_void {
    ask(DLSYM.behind(0), handle, name)
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

/// `dlopen`, from here, without our own in between; null without one.
///
/// # Safety
/// `file` is null or a C string; the constructors of what is loaded run.
pub unsafe fn open(file: *const c_char, flags: c_int) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe { open_by(DLOPEN.behind(0), file, flags) }
}

/// Opens a library with one `dlopen`; null without one.
///
/// # Safety
/// `dlopen` is null or a function of that name; as for [`open`].
pub unsafe fn open_by(dlopen: *const (), file: *const c_char, flags: c_int) -> *mut c_void {
    if dlopen.is_null() {
        return core::ptr::null_mut();
    }
    type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    // SAFETY: the caller's contract.
    unsafe { core::mem::transmute::<*const (), Dlopen>(dlopen)(file, flags) }
}
