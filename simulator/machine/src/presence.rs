// SPDX-License-Identifier: Apache-2.0
//! That a process takes part in a machine, as the kernel vouches for it: a record lock on a file of its own, the
//! *ticket*, in the machine's folder `alive/`.
//!
//! A record lock belongs to the process. The kernel gives it up when the process ends, however it ends, and when it
//! executes another program (the descriptor is close-on-exec); a forked child does not have it. It is lost, too, when
//! the process closes *any* descriptor of the file: so each run has a file of its own, and nobody opens that of the own
//! run. What is lost so is made up for by `/proc` ([`ProcessId::number`]).

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::backing::{Kept, out_of_the_way};
use crate::process::ProcessId;
use crate::tickets::{path_of, whole};

/// The lock of this process in a machine. Given up when this is dropped.
#[derive(Debug)]
pub struct Presence {
    id: ProcessId,
    path: PathBuf,
    _lock: Kept<File>,
}

impl Presence {
    /// Takes part in the machine in `folder`.
    ///
    /// Fails with the operating system's error.
    pub fn take(folder: &Path) -> io::Result<Self> {
        let ticket = random()?;
        let path = path_of(folder, ticket);
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        // Others of the machine ask who holds its lock, whatever the umask here.
        file.set_permissions(Permissions::from_mode(0o644))?;
        // Moved before it is locked: closing the other descriptor would give the lock up.
        let file = out_of_the_way(file);
        if let Err(error) = lock(&file) {
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        Ok(Self {
            id: ProcessId {
                ticket,
                ..ProcessId::current()
            },
            path,
            _lock: Kept::new(file),
        })
    }

    /// This process, with its ticket.
    pub fn id(&self) -> ProcessId {
        self.id
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        // A forked child has this, too, and it is not the child's.
        if self.id.is_same_run(&ProcessId::current()) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn lock(file: &File) -> io::Result<()> {
    let asked = whole(libc::F_WRLCK);
    // SAFETY: the structure lives during the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const asked) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A random number that is not 0.
///
/// Fails with the operating system's error.
pub(crate) fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    // SAFETY: room for as many bytes as the call is told.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got != bytes.len() as isize {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::from_ne_bytes(bytes).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tickets::{FOLDER, holder, tidy};

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("partage-presence-{name}-{}", std::process::id()));
            std::fs::create_dir_all(path.join(FOLDER)).expect("writable");
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Runs `body` in a forked child and gives what it returns, at most 255.
    fn in_child(body: impl FnOnce() -> i32) -> i32 {
        // SAFETY: the child runs the body, which only looks at files, and ends without unwinding.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let code = body();
            // SAFETY: ends the child.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: our own child.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        libc::WEXITSTATUS(status)
    }

    #[test]
    fn a_ticket_is_held_as_long_as_its_process_lives_and_named_to_others() {
        let folder = Folder::new("held");
        let presence = Presence::take(&folder.0).expect("taken");
        let (own, ticket) = (std::process::id(), presence.id().ticket);
        let path = folder.0.clone();
        let found = in_child(|| i32::from(holder(&path, ticket) == Some(own)));
        assert_eq!(found, 1, "a child sees its parent, and does not hold the lock itself");
        // The child's end has not given the lock up.
        assert_eq!(in_child(|| i32::from(holder(&path, ticket).is_some())), 1);
        drop(presence);
        assert_eq!(holder(&folder.0, ticket), None);
        assert!(!path_of(&folder.0, ticket).exists(), "and is tidied away");
    }

    #[test]
    fn a_process_that_ends_without_a_word_holds_nothing() {
        let folder = Folder::new("ended");
        let path = folder.0.clone();
        in_child(|| {
            let taken = Presence::take(&path);
            let code = i32::from(taken.is_ok());
            std::mem::forget(taken);
            code
        });
        let mut left = std::fs::read_dir(folder.0.join(FOLDER)).expect("there").flatten();
        let name = left.next().expect("its ticket is still there").file_name();
        let ticket = u64::from_str_radix(name.to_str().expect("hexadecimal"), 16).expect("hexadecimal");
        assert_eq!(holder(&folder.0, ticket), None);
        tidy(&folder.0, ticket);
        assert!(left.next().is_none() && !path_of(&folder.0, ticket).exists());
    }
}
