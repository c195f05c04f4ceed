// SPDX-License-Identifier: Apache-2.0
//! A broker's process, and its end.

use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Between two looks at a broker of which the kernel says nothing.
const LOOK: Duration = Duration::from_secs(1);

/// A broker, as its process is known.
pub enum BrokerProcess {
    /// A pidfd of it.
    Known(OwnedFd),
    /// It had ended, and its parent had collected it, before it could be looked at.
    Gone,
    /// The kernel gives no pidfd.
    Unknown,
}

impl BrokerProcess {
    /// The process of this number.
    pub fn of(pid: i32) -> Self {
        // SAFETY: pidfd_open takes numbers only.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        match i32::try_from(fd) {
            // SAFETY: a non-negative answer is a descriptor that nobody else owns.
            Ok(fd) if fd >= 0 => Self::Known(unsafe { OwnedFd::from_raw_fd(fd) }),
            // EINVAL: its number is a thread's by now.
            _ if matches!(Errno::last(), Errno::ESRCH | Errno::EINVAL) => Self::Gone,
            _ => Self::Unknown,
        }
    }

    /// Has it ended? Of one that is not known: no.
    pub fn has_ended(&self) -> bool {
        match self {
            Self::Known(fd) => poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO) == Ok(1),
            Self::Gone => true,
            Self::Unknown => false,
        }
    }

    /// Returns once it has ended; of one that is not known, after a while.
    pub fn wait_for_its_end(&self) {
        match self {
            Self::Known(fd) => {
                let ended = poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE);
                if ended.is_err() {
                    std::thread::sleep(LOOK);
                }
            }
            Self::Gone | Self::Unknown => std::thread::sleep(LOOK),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_ended_is_known_to_have_whoever_looks_when() {
        let mut child = std::process::Command::new("true").spawn().expect("it starts");
        let pid = i32::try_from(child.id()).expect("a pid");
        let looked = BrokerProcess::of(pid);
        assert!(matches!(looked, BrokerProcess::Known(_)));
        child.wait().expect("ours");
        assert!(looked.has_ended() && BrokerProcess::of(pid).has_ended());
        let own = i32::try_from(std::process::id()).expect("a pid");
        assert!(!BrokerProcess::of(own).has_ended());
    }
}
