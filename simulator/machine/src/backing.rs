// SPDX-License-Identifier: Apache-2.0
//! The file behind one process's memory on one device, and the room on the file system that holds it.
//!
//! The file is sparse and has no name: offsets in it are the process's own, so nothing has to be agreed between
//! processes, and when the process is killed the kernel gives its blocks back at that instant. Another process
//! reaches it through `/proc/PID/fd`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Descriptors that programs use start at 3 and stay low; ours stay out of their way.
const LOWEST_DESCRIPTOR: libc::c_int = 700;

/// Makes a sparse file without a name in `folder`, `bytes` long, close-on-exec.
pub fn create(folder: &Path, bytes: u64) -> io::Result<File> {
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    let name = format!("{}-{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
    let path = folder.join(name);
    // O_TMPFILE would do both steps in one, but not every file system has it.
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    file.set_len(bytes)?;
    Ok(out_of_the_way(file))
}

/// The same file behind a descriptor that programs do not expect to get, where the limit on descriptors allows it.
pub fn out_of_the_way(file: File) -> File {
    // SAFETY: duplicates a descriptor that is open.
    let high = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR) };
    if high < 0 {
        // A low limit: the low one does as well.
        return file;
    }
    // SAFETY: just made, owned by nobody else.
    unsafe { File::from_raw_fd(high) }
}

/// Bytes that this user can still write on the file system of `folder`.
pub fn available(folder: &Path) -> io::Result<u64> {
    let path = std::ffi::CString::new(folder.as_os_str().as_encoded_bytes())?;
    // SAFETY: the structure is plain data that the call fills; the path is a C string.
    unsafe {
        let mut room: libc::statvfs = std::mem::zeroed();
        if libc::statvfs(path.as_ptr(), &mut room) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(room.f_bavail.saturating_mul(room.f_frsize))
    }
}
