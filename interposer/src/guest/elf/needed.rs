// SPDX-License-Identifier: Apache-2.0
//! What an object was bound to: the places in its data that hold addresses of functions it does not define itself.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::{Object, Relocation, Symbol};
use crate::guest::sys;
use crate::guest::text::bytes_of;

/// The kinds of entries that are filled in with the address of a symbol alone: in data, in a table for loads, and in
/// one for calls, where it may stand from the first call on only.
#[cfg(target_arch = "x86_64")]
const KINDS: [u32; 3] = [1, 6, 7];
#[cfg(target_arch = "aarch64")]
const KINDS: [u32; 3] = [257, 1025, 1026];

/// A place in an object's data that holds the address of a function of others.
pub struct Needed<'a> {
    object: &'a Object,
    place: *mut *mut (),
    /// The function's name.
    pub name: &'a [u8],
}

impl Object {
    /// Shows each place that holds the address of a symbol that the object does not define.
    pub fn each_needed(&self, mut show: impl FnMut(Needed<'_>)) {
        for (first, bytes) in self.relocations {
            for i in 0..bytes / size_of::<Relocation>() {
                // SAFETY: within the table, whose size the object says.
                let entry = unsafe { &*first.add(i) };
                let (symbol, kind) = ((entry.info >> 32) as usize, entry.info as u32);
                if symbol == 0 || entry.addend != 0 || !KINDS.contains(&kind) {
                    continue;
                }
                // SAFETY: entries name symbols of the object's own table.
                let symbol: &Symbol = unsafe { &*self.symbols.add(symbol) };
                if symbol.section != 0 {
                    continue;
                }
                show(Needed {
                    object: self,
                    place: (self.base + entry.offset) as *mut *mut (),
                    // SAFETY: names are offsets in the string table.
                    name: unsafe { bytes_of(self.strings.add(symbol.name as usize)) },
                });
            }
        }
    }
}

impl Needed<'_> {
    /// What the place holds.
    pub fn address(&self) -> *const () {
        // SAFETY: a place in the object's data, which every thread of the program may read.
        unsafe { AtomicPtr::from_ptr(self.place) }.load(Ordering::Relaxed)
    }

    /// Is the function not looked up yet? Then the place leads to the code of the object itself that does so.
    pub fn is_unbound(&self) -> bool {
        self.object.extent.contains(&(self.address() as usize))
    }

    /// Has the place hold another address from now on. `false`: it could not be made writable.
    pub fn set(&self, address: *const ()) -> bool {
        // SAFETY: a plain question.
        let page = unsafe { libc::getauxval(libc::AT_PAGESZ) } as usize;
        let page = if page.is_power_of_two() { page } else { 4096 };
        let start = self.place as usize & !(page - 1);
        let protected = &self.object.protected;
        // The linker protects whole pages: one that is so in part stayed writable.
        let is_protected = protected.start <= self.place as usize && start + page <= protected.end & !(page - 1);
        let page_start = start as *mut c_void;
        if is_protected && !sys::protect(page_start, page, libc::PROT_READ | libc::PROT_WRITE) {
            return false;
        }
        // SAFETY: as in `address`; writable now. Threads that call meanwhile go to the one or the other function.
        unsafe { AtomicPtr::from_ptr(self.place) }.store(address.cast_mut(), Ordering::Relaxed);
        if is_protected {
            sys::protect(page_start, page, libc::PROT_READ);
        }
        true
    }
}
