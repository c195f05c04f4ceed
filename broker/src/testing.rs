// SPDX-License-Identifier: Apache-2.0
//! For unit tests: folders that vanish with the test, and a kernel that refuses.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of this process, removed on drop.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new empty folder whose name begins with `name`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("partage-{name}-{}-{count}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Self(path),
                // Of a process of this number that was killed.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A left-over folder in the temporary directory harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// From now on the kernel refuses (`EPERM`) this system call, with this first argument, to the calling thread and those
/// that it starts.
pub fn refuse_call(call: libc::c_long, first_argument: u32) {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IS: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const ANSWER: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let line = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let number = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
    let first = std::mem::offset_of!(libc::seccomp_data, args) as u32;
    let mut lines = [
        line(LOAD, 0, 0, number),
        line(IS, 0, 3, call as u32),
        line(LOAD, 0, 0, first),
        line(IS, 0, 1, first_argument),
        line(ANSWER, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        line(ANSWER, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: lines.len() as u16,
        filter: lines.as_mut_ptr(),
    };
    // SAFETY: takes numbers only; the privileges are this thread's.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the program lives, and says how long it is; it binds this thread and its own alone.
    let is_set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(is_set, 0, "{}", std::io::Error::last_os_error());
}
