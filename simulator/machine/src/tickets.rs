// SPDX-License-Identifier: Apache-2.0
//! The files on which processes hold a lock as long as they take part in a machine, and who holds one.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The folder of the tickets, in the machine's folder.
pub const FOLDER: &str = "alive";

/// The number that the holder of a ticket has in the PID namespace of the calling process, 0 when it has none there.
/// `None`: nobody holds it. Precondition: it is not the calling process's own.
pub fn holder(folder: &Path, ticket: u64) -> Option<u32> {
    if ticket == 0 {
        return None;
    }
    let file = File::open(path_of(folder, ticket)).ok()?;
    let mut asked = whole(libc::F_WRLCK);
    // SAFETY: the structure lives during the call, which fills it.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut asked) };
    let is_held = result == 0 && asked.l_type != libc::F_UNLCK as libc::c_short;
    is_held.then(|| u32::try_from(asked.l_pid).unwrap_or(0))
}

/// Removes the file of a ticket that nobody holds any more. Where that is not allowed it stays, and harms nobody.
pub fn tidy(folder: &Path, ticket: u64) {
    if ticket != 0 {
        let _ = std::fs::remove_file(path_of(folder, ticket));
    }
}

/// Where a ticket lies.
pub(crate) fn path_of(folder: &Path, ticket: u64) -> PathBuf {
    folder.join(FOLDER).join(format!("{ticket:016x}"))
}

/// A lock on a whole file.
pub(crate) fn whole(kind: libc::c_int) -> libc::flock {
    // SAFETY: all-zero memory is a lock from the start of the file to its end, however long that is.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}
