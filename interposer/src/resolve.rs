// SPDX-License-Identifier: Apache-2.0
//! Our `dlsym`: hands out hooks for the functions we stand in front of, and is otherwise not there.
//!
//! Rules, each from a defect seen in the field:
//! - libc's `dlsym` looks at its return address (RTLD_NEXT and RTLD_DEFAULT mean "as seen from the caller"), so ours is
//!   a naked function that leaves the stack as it was and jumps.
//! - RTLD_NEXT is left alone. RTLD_DEFAULT is, too, where the caller would find the name without us: our exports are in
//!   the global scope and are found first. Where it would not (no driver loaded, or only for others), neither does it
//!   with us: programs decide by such a look-up whether there is CUDA.
//! - Names are compared exactly with the tables; `curl_easy_init`, `cudnnCreate`, `cublasCreate` cost a compare.
//! - The handle decides: what it does not hold stays unfound, what it holds of another library than the driver is not
//!   ours, and a driver that is inside a `dlmopen` namespace gets the hooks that call that driver.
//! - Look-ups from inside a hook (the driver's own) get the real function.
//! - Behind ours is the next `dlsym` in load order, so that other hooking libraries keep working; its own look-ups go
//!   to libc, so that two of them never call each other in a circle.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::guard;
use crate::guest::linker;
use crate::guest::text::bytes_of;
use crate::guest::weak;
use crate::pick::{Pick, answer_or_jump};
use crate::real::{self, Adopted, DRIVER, Library, NVML, SECOND_DRIVER};

/// The program's `dlsym`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    answer_or_jump!(pick)
}

/// A driver was seen that none of our hooks serves.
static SAW_FOREIGN: AtomicBool = AtomicBool::new(false);

/// Was a driver looked up that none of our hooks serves?
pub fn saw_foreign_driver() -> bool {
    SAW_FOREIGN.load(Ordering::Relaxed)
}

unsafe extern "C" fn pick(handle: *mut c_void, name: *const c_char, caller: usize) -> Pick {
    let next = linker::DLSYM.behind(caller);
    // SAFETY: the program passes a C string, or the null that libc would refuse.
    if !may_be_ours(handle, unsafe { bytes_of(name) }) {
        return Pick::jump(next);
    }
    match choose(handle, name, next, caller) {
        Choice::Hook(answer) => Pick::answer(answer),
        Choice::Decline => Pick::jump(next),
        Choice::Nothing => Pick::answer(core::ptr::null()),
    }
}

/// What a look-up that may be ours comes to.
enum Choice {
    /// Our function.
    Hook(*const ()),
    /// Whatever the `dlsym` behind ours says.
    Decline,
    /// Nothing, with the linker's error of our own look-up.
    Nothing,
}

/// Cheap test first: most look-ups of most programs end here.
fn may_be_ours(handle: *mut c_void, name: &[u8]) -> bool {
    let is_shaped = match name {
        [b'c', b'u', third, ..] => third.is_ascii_uppercase(),
        [b'n', b'v', b'm', b'l', fifth, ..] => fifth.is_ascii_uppercase(),
        _ => false,
    };
    is_shaped && handle != libc::RTLD_NEXT && !guard::is_inside()
}

#[cold]
fn choose(handle: *mut c_void, name: *const c_char, next: *const (), caller: usize) -> Choice {
    // SAFETY: `may_be_ours` read the name; it is a C string.
    let text = unsafe { CStr::from_ptr(name) };
    let is_nvml = text.to_bytes().starts_with(b"nvml");
    let Some(place) = if is_nvml { &NVML } else { &DRIVER }.hooked_named(text.to_bytes()) else {
        return Choice::Decline;
    };
    if handle == libc::RTLD_DEFAULT {
        let is_there = is_there_without_us(text, next) || is_near(caller, text, next);
        return if is_there { Choice::Decline } else { Choice::Nothing };
    }
    let address = linker::ask(next, handle, text);
    if address.is_null() {
        return Choice::Decline;
    }
    let Some(base) = real::base_of(address.cast()) else {
        return Choice::Decline;
    };
    if real::base_of(dlsym as *const ()) == Some(base) {
        // The handle is the program's own, whose scope begins with us.
        return if is_there_without_us(text, next) {
            Choice::Decline
        } else {
            Choice::Nothing
        };
    }
    library_at(base, handle, is_nvml)
        .and_then(|library| library.hook(place))
        .map_or(Choice::Decline, Choice::Hook)
}

/// Does the global scope hold the name behind us? This is a look-up of ours, so RTLD_NEXT means "after libpartage.so".
fn is_there_without_us(name: &CStr, next: *const ()) -> bool {
    !linker::ask(next, libc::RTLD_NEXT, name).is_null()
}

/// Does the caller's library, or one it was linked with, hold the name? Its scope reaches further than the global one.
fn is_near(caller: usize, name: &CStr, next: *const ()) -> bool {
    let Some(info) = weak::dladdr(caller as *const c_void).filter(|info| !info.dli_fname.is_null()) else {
        return false;
    };
    // SAFETY: the name the linker gives is a C string, of an object that is loaded.
    let handle = unsafe { linker::open(info.dli_fname, libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    if handle.is_null() {
        return false;
    }
    let address = linker::ask(next, handle, name);
    // SAFETY: just opened.
    unsafe { weak::dlclose(handle) };
    !address.is_null() && real::base_of(address.cast()) != real::base_of(dlsym as *const ())
}

/// The library of ours that is the object at `base`, adopting it if it is a driver (or NVML) not seen before.
fn library_at(base: usize, handle: *mut c_void, is_nvml: bool) -> Option<&'static Library> {
    let candidates: &[&Library] = if is_nvml { &[&NVML] } else { &[&DRIVER, &SECOND_DRIVER] };
    if let Some(known) = candidates
        .iter()
        .find(|library| library.is_adopted() && library.is_at(base))
    {
        return Some(known);
    }
    if !candidates.first()?.is_copy(base) {
        return None;
    }
    let start = usize::from(!is_nvml && !is_in_base_namespace(handle));
    for library in candidates.iter().skip(start) {
        if library.adopt(base, handle) == Adopted::Yes {
            return Some(library);
        }
    }
    SAW_FOREIGN.store(true, Ordering::Relaxed);
    None
}

/// Does the handle belong to the namespace that the program itself runs in?
fn is_in_base_namespace(handle: *mut c_void) -> bool {
    const RTLD_DI_LMID: c_int = 1;
    let mut namespace: libc::c_long = 0;
    // SAFETY: the handle just answered a look-up, so it is one; the request writes one long.
    if !unsafe { weak::dlinfo(handle, RTLD_DI_LMID, (&raw mut namespace).cast()) } {
        // A libc without namespaces.
        weak::forget_dlerror();
        return true;
    }
    namespace == 0
}
