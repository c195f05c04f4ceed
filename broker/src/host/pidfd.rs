// SPDX-License-Identifier: Apache-2.0
//! Processes held by descriptor: a number that is reused cannot be mistaken for them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout};

/// `SO_PEERPIDFD` (Linux 6.5): the pidfd of a connection's other end.
const SO_PEERPIDFD: libc::c_int = 77;

/// One process.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// Opens a process by number; `None` when there is none. The caller compares start times if the number is older
    /// than this call.
    #[must_use]
    pub fn open(pid: u32) -> Option<Self> {
        let pid = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0)?;
        // SAFETY: pidfd_open takes two integers and returns a new descriptor or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = libc::c_int::try_from(fd).ok().filter(|fd| *fd >= 0)?;
        // SAFETY: the kernel just made this descriptor (close-on-exec by itself); nobody else owns it.
        Some(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The process at the other end of a connection, which said it was `pid`; `None` when it is gone or not visible.
    #[must_use]
    pub fn of_peer(socket: BorrowedFd<'_>, pid: u32) -> Option<Self> {
        let mut fd: libc::c_int = -1;
        let mut length = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: both pointers are to live locals, and `length` is the size of the first.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_PEERPIDFD,
                (&raw mut fd).cast(),
                &raw mut length,
            )
        };
        if result == 0 && fd >= 0 {
            // SAFETY: the kernel just made this descriptor; nobody else owns it.
            return Some(Self(unsafe { OwnedFd::from_raw_fd(fd) }));
        }
        // Before 6.5. The number could have been reused since `connect` if the peer is dead already: then its
        // connection is closed too, and the first read finds that.
        Self::open(pid)
    }

    /// Has it ended (all threads gone, its files closed)?
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        matches!(nix::poll::poll(&mut polled, PollTimeout::ZERO), Ok(count) if count > 0)
    }

    /// Sends a signal; answers whether the process was there to take it.
    pub fn signal(&self, signal: libc::c_int) -> bool {
        let no_info: *const libc::siginfo_t = std::ptr::null();
        // SAFETY: a live pidfd, a signal number, no siginfo, no flags; the call reads nothing of ours.
        let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal, no_info, 0) };
        result == 0
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_seen_to_end_and_cannot_be_signalled_afterwards() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep runs");
        let held = PidFd::open(child.id()).expect("it is alive");
        assert!(!held.has_ended());
        assert!(held.signal(libc::SIGKILL));
        child.wait().expect("reaped");
        assert!(held.has_ended());
        assert!(!held.signal(libc::SIGTERM));
    }
}
