// SPDX-License-Identifier: Apache-2.0
//! Our `dlopen`: in libraries that are opened with RTLD_DEEPBIND, what we export is bound as without that flag.
//!
//! The flag has a library find the names that it needs in itself and its own dependencies first, so before us: its
//! `dlsym` is libc's, its `cuMemAlloc_v2` the driver's. Libraries ask for it with good reason (each of two LLVMs in one
//! process must find its own symbols), so it stays, for all other names.
//!
//! Rules:
//! - A call without the flag jumps on, as our `dlsym` does: libc looks at its return address, for the caller's
//!   search path.
//! - With the flag we call libc ourselves, because something is to be done afterwards. The caller's search path is then
//!   searched by us, where it differs from ours; a path with `$ORIGIN` jumps on and stays as it is.
//! - Afterwards the places that hold addresses of functions that we export are set to ours, in what was just loaded. Of
//!   `dlsym` and `dlopen` only where they lead to libc: a library's own dependency may stand in front of that.
//! - What the library's constructors did, they did before: [`bypass`](crate::bypass) says so.

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::guest::elf::needed::Needed;
use crate::guest::elf::{self, Object, objects};
use crate::guest::linker;
use crate::guest::sys;
use crate::guest::text::{Text, bytes_of};
use crate::guest::weak;
use crate::pick::{Pick, answer_or_jump};

/// The longest path that the kernel takes, with its zero.
const LONGEST_PATH: usize = 4096;

/// The program's `dlopen`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void {
    answer_or_jump!(pick)
}

unsafe extern "C" fn pick(file: *const c_char, flags: c_int, caller: usize) -> Pick {
    let next = linker::DLOPEN.behind(caller);
    let loads_deep = flags & libc::RTLD_DEEPBIND != 0 && flags & libc::RTLD_NOLOAD == 0;
    if !loads_deep || file.is_null() || next.is_null() {
        return Pick::jump(next);
    }
    // SAFETY: not null, so the program's C string.
    open_deep(next, unsafe { CStr::from_ptr(file) }, flags, caller)
}

#[cold]
fn open_deep(next: *const (), file: &CStr, flags: c_int, caller: usize) -> Pick {
    let mut path = Text::<LONGEST_PATH>::new();
    let name = file.to_bytes();
    if name.contains(&b'$') {
        return Pick::jump(next);
    }
    let is_path = name.contains(&b'/');
    if !is_path && !is_loaded(next, file) {
        find_for(caller, name, &mut path);
    }
    let found = if path.as_bytes().is_empty() {
        file
    } else {
        path.as_c_str()
    };
    // SAFETY: what the program asked for; the constructors that run are its business.
    let handle = unsafe { linker::open_by(next, found.as_ptr(), flags) };
    if !handle.is_null() {
        bind_to_us(handle);
    }
    Pick::answer(handle.cast_const().cast())
}

/// Is a library of that name there already? Then it is the one that is meant, wherever files of that name are.
fn is_loaded(next: *const (), file: &CStr) -> bool {
    // SAFETY: loads nothing.
    let handle = unsafe { linker::open_by(next, file.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    if !handle.is_null() {
        // SAFETY: just opened.
        unsafe { weak::dlclose(handle) };
    }
    !handle.is_null()
}

/// The path by which the caller's own search finds the file, where ours would not come to the same; else nothing.
fn find_for(caller: usize, name: &[u8], path: &mut Text<LONGEST_PATH>) {
    let (mut theirs, mut ours) = (SearchPath::new(), SearchPath::new());
    if !theirs.ask(caller) || !ours.ask(find_for as *const () as usize) {
        return;
    }
    for folder in theirs.folders() {
        path.clear();
        path.push(folder).push("/").push(name);
        if path.is_complete() && sys::exists(path.as_c_str()) {
            if ours.folders().any(|own| own == folder) {
                break;
            }
            return;
        }
    }
    path.clear();
}

/// The folders that the linker searches for an object, as it tells them. It writes pointers into this very place.
#[repr(C, align(8))]
struct SearchPath {
    size: usize,
    count: u32,
    room: [u8; 8192],
}

/// One of them.
#[repr(C)]
struct Folder {
    name: *const c_char,
    flags: u32,
}

impl SearchPath {
    fn new() -> Self {
        Self {
            size: 0,
            count: 0,
            room: [0; 8192],
        }
    }

    /// Asks for that of the object that holds an address. `false` where the linker does not tell, or more than we have
    /// room for.
    fn ask(&mut self, address: usize) -> bool {
        const RTLD_DI_SERINFO: c_int = 4;
        const RTLD_DI_SERINFOSIZE: c_int = 5;
        let Some(info) = weak::dladdr(address as *const c_void).filter(|info| !info.dli_fname.is_null()) else {
            return false;
        };
        let flags = libc::RTLD_NOLOAD | libc::RTLD_LAZY;
        // SAFETY: the name that the linker gives is a C string, of an object that is loaded. The program itself goes by
        // no name but null. The first request writes the head, the second fills in what the first said.
        unsafe {
            let mut handle = linker::open(info.dli_fname, flags);
            if handle.is_null() {
                handle = linker::open(core::ptr::null(), flags);
            }
            let place: *mut c_void = (&raw mut *self).cast();
            let is_told = weak::dlinfo(handle, RTLD_DI_SERINFOSIZE, place)
                && self.size <= size_of::<Self>()
                && weak::dlinfo(handle, RTLD_DI_SERINFO, place);
            weak::dlclose(handle);
            if !is_told {
                self.count = 0;
            }
            is_told
        }
    }

    fn folders(&self) -> impl Iterator<Item = &[u8]> {
        const HEAD: usize = 16;
        let first = core::ptr::from_ref(self).wrapping_byte_add(HEAD).cast::<Folder>();
        // SAFETY: as many entries as the linker wrote, each with a C string.
        (0..self.count as usize).map(move |at| unsafe { bytes_of((*first.add(at)).name) })
    }
}

/// Sets what was just opened, and whatever came with it, to our functions.
fn bind_to_us(handle: *mut c_void) {
    let (Some(first), Some(ours)) = (objects::name_of(handle), elf::ours()) else {
        return;
    };
    // Found before the linker's lock is held.
    linker::DLSYM.behind(0);
    // Whatever was loaded for it, or by its constructors, comes after it.
    let mut is_new = false;
    objects::each_object(|name, object| {
        is_new |= core::ptr::eq(name, first);
        if is_new {
            object.each_needed(|needed| bind_one(&ours, &needed));
        }
        false
    });
}

fn bind_one(ours: &Object, needed: &Needed<'_>) {
    let is_linkers = match needed.name {
        [b'd', b'l', b's' | b'o', ..] => true,
        [b'c', b'u', third, ..] if third.is_ascii_uppercase() => false,
        [b'n', b'v', b'm', b'l', ..] => false,
        _ => return,
    };
    let Some(own) = ours.function_named(needed.name) else {
        return;
    };
    let address = needed.address();
    let is_of_libc = || linker::DLSYM.is_behind(address) || linker::DLOPEN.is_behind(address);
    if !core::ptr::eq(address, own) && (!is_linkers || needed.is_unbound() || is_of_libc()) {
        // What stays as it is leads past us: `bypass` says so once it is used.
        needed.set(own);
    }
}
