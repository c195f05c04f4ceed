// SPDX-License-Identifier: Apache-2.0
//! What keeps CRIU from a process that is not checkpointed, as a real driver's descriptors do: it would write device
//! memory into its images that nobody's books show after a restore.
//!
//! It is the descriptor of an empty Landlock ruleset, a kind of file that CRIU cannot write down and that does nothing
//! as long as no process restricts itself by it. A kernel before 5.13, or one with Landlock switched off, has none:
//! there nothing keeps CRIU from anything.

use std::fs::read_link;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use partage_machine::backing::out_of_the_way;

/// There, or not.
#[derive(Default)]
pub struct Seal {
    descriptor: Option<i32>,
}

/// `struct landlock_ruleset_attr` as of its first version.
#[repr(C)]
struct Attributes {
    handled_access_fs: u64,
}

/// `LANDLOCK_ACCESS_FS_EXECUTE`: a ruleset must be about something.
const EXECUTE: u64 = 1;

impl Seal {
    /// From here on the process cannot be dumped.
    pub fn set(&mut self) {
        if self.descriptor.is_some() {
            return;
        }
        let attributes = Attributes {
            handled_access_fs: EXECUTE,
        };
        // SAFETY: the attributes live during the call; a non-negative answer is a descriptor of ours alone.
        let made = unsafe {
            let fd = libc::syscall(
                libc::SYS_landlock_create_ruleset,
                &raw const attributes,
                size_of::<Attributes>(),
                0,
            );
            i32::try_from(fd)
                .ok()
                .filter(|fd| *fd >= 0)
                .map(|fd| OwnedFd::from_raw_fd(fd))
        };
        self.descriptor = made.map(|made| out_of_the_way(made.into()).into_raw_fd());
    }

    /// It can be, as far as this driver is concerned.
    pub fn lift(&mut self) {
        let Some(fd) = self.descriptor.take() else { return };
        // The program may have closed it, and have a file of its own under the number. All files of this kind, and of
        // others, have one inode, so what it is called has to tell.
        let is_ours = read_link(format!("/proc/thread-self/fd/{fd}"));
        if is_ours.is_ok_and(|name| name.to_string_lossy().contains("landlock")) {
            // SAFETY: ours, and not used after this.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }

    /// The number of the descriptor; `None` where there is none.
    #[cfg(test)]
    fn number(&self) -> Option<i32> {
        self.descriptor
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_seal_is_a_ruleset_and_goes_with_its_word() {
        let mut seal = Seal::default();
        seal.set();
        let Some(number) = seal.number() else {
            println!("skipped: this kernel has no Landlock");
            return;
        };
        let name = |number: i32| read_link(format!("/proc/self/fd/{number}"));
        assert!(name(number).is_ok_and(|name| name.to_string_lossy().contains("landlock")));
        seal.lift();
        assert!(name(number).is_err());
    }

    #[test]
    fn what_took_the_number_of_a_closed_seal_stays_open() {
        let mut seal = Seal::default();
        seal.set();
        let Some(number) = seal.number() else { return };
        // SAFETY: what a program does that closes all it does not know, and then opens something without a name.
        let other = unsafe {
            libc::close(number);
            let other = OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC));
            libc::dup2(other.as_raw_fd(), number);
            OwnedFd::from_raw_fd(number)
        };
        seal.lift();
        // SAFETY: no memory involved.
        assert!(unsafe { libc::fcntl(other.as_raw_fd(), libc::F_GETFD) } >= 0);
    }
}
