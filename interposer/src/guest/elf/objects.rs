// SPDX-License-Identifier: Apache-2.0
//! The objects that the linker has mapped, one by one.

use core::ffi::{c_char, c_int, c_void};

use super::{Loaded, Object, debug};
use crate::guest::weak;

/// Shows each object of this library's own namespace in load order, with its path as the linker keeps it, until one is
/// enough. The linker's lock is held: none of them goes meanwhile, and nothing is called that takes its other locks.
pub fn each_object(mut show: impl FnMut(*const c_char, &Object) -> bool) {
    unsafe extern "C" fn one<F: FnMut(*const c_char, &Object) -> bool>(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        show: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker passes a description of a mapped object, `each_object` its closure.
        let (info, show) = unsafe { (&*info, &mut *show.cast::<F>()) };
        let (base, headers, count) = (info.dlpi_addr as usize, info.dlpi_phdr, info.dlpi_phnum.into());
        // SAFETY: as the linker says.
        let object = unsafe { Object::from_headers(base, headers, count) };
        object.is_some_and(|object| show(info.dlpi_name, &object)).into()
    }
    fn visit<F: FnMut(*const c_char, &Object) -> bool>(show: &mut F) {
        // SAFETY: `one` takes what the linker hands it and the closure.
        unsafe { libc::dl_iterate_phdr(Some(one::<F>), core::ptr::from_mut(show).cast()) };
    }
    visit(&mut show);
}

/// Shows the objects of other namespaces, until one is enough; none with a linker before glibc 2.35. Nothing keeps them
/// from going meanwhile: for a process that ends.
pub fn each_object_of_namespaces(mut show: impl FnMut(&Object) -> bool) {
    let mut namespace = debug();
    while let Some(known) = namespace.filter(|known| known.version > 1) {
        // SAFETY: the linker's own list, which has a next one from version 2 on, or null.
        let Some(next) = (unsafe { known.next.as_ref() }) else {
            return;
        };
        let mut place = next.first;
        // SAFETY: as above.
        while let Some(loaded) = unsafe { place.as_ref() } {
            // SAFETY: as the linker says.
            let object = unsafe { Object::from_dynamic(loaded.base, loaded.dynamic) };
            if object.is_some_and(|object| show(&object)) {
                return;
            }
            place = loaded.next;
        }
        namespace = Some(next);
    }
}

/// The path of an opened object as the linker keeps it: the same pointer as [`each_object`] shows.
pub fn name_of(handle: *mut c_void) -> Option<*const c_char> {
    const RTLD_DI_LINKMAP: c_int = 2;
    let mut loaded: *const Loaded = core::ptr::null();
    // SAFETY: the caller's open handle; the request writes one pointer.
    let is_told = unsafe { weak::dlinfo(handle, RTLD_DI_LINKMAP, (&raw mut loaded).cast()) };
    // SAFETY: an object of the linker's list, which its handle keeps there.
    unsafe { loaded.as_ref() }.filter(|_| is_told).map(|loaded| loaded.name)
}
