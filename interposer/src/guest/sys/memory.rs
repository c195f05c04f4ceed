// SPDX-License-Identifier: Apache-2.0
//! Memory at an address that is given.

use core::ffi::c_void;

use super::{call, pad};

/// Moves a mapping over another one of the same length, in one step for whoever uses that. `false`: the kernel failed,
/// and may have taken away what lay there.
///
/// # Safety
/// What lies at `to` is not used but through addresses that mean the new mapping as well.
pub unsafe fn move_over(from: *mut c_void, length: usize, to: *mut c_void) -> bool {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    call!(SYS_mremap, from, length, length, flags, to) == to as isize
}

/// Changes what may be done with whole pages.
pub fn protect(address: *mut c_void, length: usize, protection: i32) -> bool {
    call!(SYS_mprotect, address, length, protection) == 0
}

/// Is there a mapping everywhere in this range?
pub fn is_mapped(address: *mut c_void, length: usize) -> bool {
    call!(SYS_madvise, address, length, libc::MADV_NORMAL) != -(libc::ENOMEM as isize)
}

/// Private zeroed memory at an address where nothing lies. `None`: something does; else whether the kernel had it.
pub fn map_private_at(address: *mut c_void, length: usize) -> Option<bool> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let result = call!(
        SYS_mmap,
        address,
        length,
        libc::PROT_READ | libc::PROT_WRITE,
        flags,
        usize::MAX,
        0
    );
    if result > 0 && result != address as isize {
        // A kernel before 4.17 takes the address for a wish.
        let _ = call!(SYS_munmap, result, length);
    }
    match result {
        _ if result == address as isize => Some(true),
        _ if result > 0 || result == -(libc::EEXIST as isize) => None,
        _ => Some(false),
    }
}
