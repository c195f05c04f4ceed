// SPDX-License-Identifier: Apache-2.0
//! The file behind one process's memory on one device, and the room on the file system that holds it.
//!
//! The file is sparse and has no name: offsets in it are the process's own, so nothing has to be agreed between
//! processes, and when the process is killed the kernel gives its blocks back at that instant. Another process
//! reaches it through `/proc/PID/fd`.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
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

/// A descriptor inside a program that may close all it does not know, and have a file of its own under the number then.
#[derive(Debug)]
pub struct Kept<T: AsRawFd> {
    descriptor: ManuallyDrop<T>,
    identity: Option<(libc::dev_t, libc::ino_t)>,
}

impl<T: AsRawFd> Kept<T> {
    /// A descriptor that is open and nobody else's.
    pub fn new(descriptor: T) -> Self {
        Self {
            identity: identity(&descriptor),
            descriptor: ManuallyDrop::new(descriptor),
        }
    }

    /// The descriptor, if it is still ours.
    pub fn get(&self) -> Option<&T> {
        let known = self.identity?;
        (identity(&*self.descriptor) == Some(known)).then_some(&self.descriptor)
    }
}

impl<T: AsRawFd> Drop for Kept<T> {
    fn drop(&mut self) {
        if self.get().is_some() {
            // SAFETY: ours, and not used after this.
            unsafe { ManuallyDrop::drop(&mut self.descriptor) };
        }
    }
}

/// What a descriptor leads to: device and inode.
fn identity(descriptor: &impl AsRawFd) -> Option<(libc::dev_t, libc::ino_t)> {
    // SAFETY: all-zero memory is a status, and it lives during the call.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::fstat(descriptor.as_raw_fd(), &mut status) == 0).then_some((status.st_dev, status.st_ino))
    }
}

/// The parts of a file's first `bytes` that are not holes, as start and length, in order. A file system without holes
/// has one part.
pub fn data_in(file: &File, bytes: u64) -> io::Result<Vec<(u64, u64)>> {
    let seek = |from: u64, whence| {
        // SAFETY: no memory involved.
        let at = unsafe { libc::lseek(file.as_raw_fd(), from as i64, whence) };
        u64::try_from(at).map_err(|_| io::Error::last_os_error())
    };
    let mut parts = Vec::new();
    let mut at = 0;
    while at < bytes {
        let start = match seek(at, libc::SEEK_DATA) {
            Ok(start) if start < bytes => start,
            Ok(_) => break,
            // Nothing but a hole is left.
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => break,
            Err(error) => return Err(error),
        };
        at = seek(start, libc::SEEK_HOLE)?.min(bytes);
        parts.push((start, at - start));
    }
    Ok(parts)
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
