// SPDX-License-Identifier: Apache-2.0
//! The dynamic linker's functions and threads, as weak references. For `dlsym` and `dlopen`, which we export ourselves,
//! see [`linker`](super::linker).
//!
//! Before glibc 2.34 they live in libdl and libpthread. Needing those files would map two more into every process of a
//! job, for some 50 µs an exec, although only processes that use the driver ever get here, and the driver brings both
//! along. Where the linker's are absent, so is every way to a driver. Threads may arrive later than we, with a driver
//! that is opened while the program runs: then they are looked up in its scope.

use core::ffi::{CStr, c_char, c_int, c_void};

core::arch::global_asm!(
    ".weak dlclose",
    ".weak dlerror",
    ".weak dladdr",
    ".weak dlinfo",
    ".weak pthread_create",
    ".weak pthread_attr_init",
    ".weak pthread_attr_destroy",
    ".weak pthread_attr_setstacksize",
    ".weak pthread_attr_setdetachstate",
    ".pushsection .data.rel.ro.partage_weak,\"aw\",%progbits",
    ".balign 8",
    ".globl partage_weak",
    ".hidden partage_weak",
    ".type partage_weak, %object",
    ".size partage_weak, 72",
    "partage_weak:",
    ".quad dlclose",
    ".quad dlerror",
    ".quad dladdr",
    ".quad dlinfo",
    ".quad pthread_create",
    ".quad pthread_attr_init",
    ".quad pthread_attr_destroy",
    ".quad pthread_attr_setstacksize",
    ".quad pthread_attr_setdetachstate",
    ".popsection",
);

type Start = extern "C" fn(*mut c_void) -> *mut c_void;

type Create = unsafe extern "C" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Start, *mut c_void) -> c_int;
type Init = unsafe extern "C" fn(*mut libc::pthread_attr_t) -> c_int;
type SetSize = unsafe extern "C" fn(*mut libc::pthread_attr_t, usize) -> c_int;
type SetState = unsafe extern "C" fn(*mut libc::pthread_attr_t, c_int) -> c_int;

/// The table above, in its order.
#[derive(Clone, Copy)]
#[repr(C)]
struct Table {
    dlclose: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    dlerror: Option<unsafe extern "C" fn() -> *mut c_char>,
    dladdr: Option<unsafe extern "C" fn(*const c_void, *mut libc::Dl_info) -> c_int>,
    dlinfo: Option<unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int>,
    create: Option<Create>,
    attr_init: Option<Init>,
    attr_destroy: Option<Init>,
    attr_set_stack_size: Option<SetSize>,
    attr_set_detach_state: Option<SetState>,
}

const _: () = assert!(size_of::<Table>() == 72);

fn table() -> &'static Table {
    unsafe extern "C" {
        static partage_weak: Table;
    }
    // SAFETY: the table above; the linker filled it before any code of ours ran, and protects it since.
    unsafe { &partage_weak }
}

/// `dlclose`.
///
/// # Safety
/// `handle` is one that `dlopen` gave.
pub unsafe fn dlclose(handle: *mut c_void) {
    if let Some(dlclose) = table().dlclose {
        // SAFETY: the caller's contract.
        unsafe { dlclose(handle) };
    }
}

/// `dlerror`, for its effect: the error is forgotten.
pub fn forget_dlerror() {
    if let Some(dlerror) = table().dlerror {
        // SAFETY: no precondition.
        unsafe { dlerror() };
    }
}

/// `dladdr`; `None` when the address lies in no object.
pub fn dladdr(address: *const c_void) -> Option<libc::Dl_info> {
    // SAFETY: `Dl_info` is plain pointers; zero is a value of each.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: any address may be asked for.
    let found = unsafe { table().dladdr?(address, &raw mut info) };
    (found != 0).then_some(info)
}

/// `dlinfo`; `false` on failure.
///
/// # Safety
/// `handle` is a live handle and `information` what the request writes.
pub unsafe fn dlinfo(handle: *mut c_void, request: c_int, information: *mut c_void) -> bool {
    // SAFETY: the caller's contract.
    table()
        .dlinfo
        .is_some_and(|dlinfo| unsafe { dlinfo(handle, request, information) } == 0)
}

/// The table, with what `find` finds for the thread functions where we had none at load.
fn threads(find: &dyn Fn(&CStr) -> *mut c_void) -> Table {
    let mut threads = *table();
    if threads.create.is_some() {
        return threads;
    }
    // SAFETY: functions of those names have those types in every libc; null is `None`.
    unsafe {
        threads.create = core::mem::transmute::<*mut c_void, Option<Create>>(find(c"pthread_create"));
        threads.attr_init = core::mem::transmute::<*mut c_void, Option<Init>>(find(c"pthread_attr_init"));
        threads.attr_destroy = core::mem::transmute::<*mut c_void, Option<Init>>(find(c"pthread_attr_destroy"));
        threads.attr_set_stack_size =
            core::mem::transmute::<*mut c_void, Option<SetSize>>(find(c"pthread_attr_setstacksize"));
        threads.attr_set_detach_state =
            core::mem::transmute::<*mut c_void, Option<SetState>>(find(c"pthread_attr_setdetachstate"));
    }
    forget_dlerror();
    threads
}

/// Starts a detached thread; `false` when there is none to be had. `find` looks in the scope of a library that came
/// after us, and may have brought threads along.
///
/// # Safety
/// `argument` is what `run` takes, for as long as it runs.
pub unsafe fn start_thread(
    run: Start,
    argument: *mut c_void,
    stack_bytes: usize,
    find: &dyn Fn(&CStr) -> *mut c_void,
) -> bool {
    let threads = threads(find);
    let (Some(init), Some(create), Some(destroy)) = (threads.attr_init, threads.create, threads.attr_destroy) else {
        return false;
    };
    // SAFETY: plain pthread use; attributes and id are plain data that the calls fill.
    unsafe {
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        let mut thread: libc::pthread_t = core::mem::zeroed();
        init(&raw mut attributes);
        if let Some(set) = threads.attr_set_detach_state {
            set(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        }
        if let Some(set) = threads.attr_set_stack_size {
            set(&raw mut attributes, stack_bytes);
        }
        let result = create(&raw mut thread, &raw const attributes, run, argument);
        destroy(&raw mut attributes);
        result == 0
    }
}
