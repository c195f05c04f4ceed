// SPDX-License-Identifier: Apache-2.0
//! System calls about what this process may do, and as whom.

use core::ffi::CStr;

use super::{call, pad};

/// Would the kernel let this process read and write there? For a device node it asks the device cgroup, too.
///
/// # Errors
/// The kernel's error number.
pub fn can_read_and_write(path: &CStr) -> Result<(), i32> {
    let result = call!(SYS_faccessat, libc::AT_FDCWD, path.as_ptr(), libc::R_OK | libc::W_OK);
    if result == 0 { Ok(()) } else { Err(-result as i32) }
}

/// The groups of this process, the effective one first. `None`: there are more than there is room for.
pub fn groups(room: &mut [u32; 64]) -> Option<&[u32]> {
    let [effective, others @ ..] = room;
    *effective = call!(SYS_getegid) as u32;
    let count = call!(SYS_getgroups, others.len(), others.as_mut_ptr());
    room.get(..usize::try_from(count).ok()?.saturating_add(1))
}
