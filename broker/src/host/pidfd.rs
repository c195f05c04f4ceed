// SPDX-License-Identifier: Apache-2.0
//! Processes held by descriptor (pidfd), so that a reused pid is never taken for one of them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use partage_policy::Process;

/// `SO_PEERPIDFD` (Linux 6.5): the pidfd of a connection's other end.
const SO_PEERPIDFD: libc::c_int = 77;
/// `PIDFD_GET_INFO` (Linux 6.13) for the structure's first form, and in its mask `PIDFD_INFO_EXIT` (Linux 6.15).
const PIDFD_GET_INFO: libc::c_ulong = 0xC040_FF0B;
const PIDFD_INFO_EXIT: u64 = 1 << 3;

/// `struct pidfd_info` of linux/pidfd.h, version 0.
#[repr(C)]
#[derive(Debug, Default)]
struct PidFdInfo {
    mask: u64,
    cgroup: u64,
    /// pid, tgid, ppid; ruid, rgid, euid, egid, suid, sgid, fsuid, fsgid.
    numbers: [u32; 11],
    /// As `wait` gives it.
    exit_code: u32,
}
const _: () = assert!(size_of::<PidFdInfo>() == 64);

/// The wait status of a process that ended and was not waited for: the last field of its stat.
fn status_of_zombie(id: Process) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", id.pid)).ok()?;
    // The name may hold blanks and parentheses; the state is the third field of all.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_whitespace().collect();
    let is_it = fields.first() == Some(&"Z") && fields.get(19)?.parse() == Ok(id.start);
    // 52 of 52. A reader that may not trace it reads 0, which would be a lie.
    if !is_it || !may_trace(id.pid) {
        return None;
    }
    fields.get(49)?.parse().ok()
}

/// Does the kernel show this process what only a tracer of the other may see?
fn may_trace(pid: u32) -> bool {
    // Its links are guarded by the same right; a zombie's lead nowhere, which is another error.
    match std::fs::read_link(format!("/proc/{pid}/cwd")) {
        Ok(_) => true,
        Err(error) => error.raw_os_error() == Some(libc::ENOENT),
    }
}

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

    /// Which of these have ended, in their order.
    #[must_use]
    pub fn ended_of(processes: &[&Self]) -> Vec<bool> {
        let mut polled: Vec<PollFd<'_>> = processes
            .iter()
            .map(|process| PollFd::new(process.0.as_fd(), PollFlags::POLLIN))
            .collect();
        match nix::poll::poll(&mut polled, PollTimeout::ZERO) {
            Ok(count) if count > 0 => polled.iter().map(|polled| polled.any() == Some(true)).collect(),
            _ => vec![false; processes.len()],
        }
    }

    /// How it ended, as a shell has it: its code, or 128 and the number of the signal that ended it. `None` while it
    /// lives, and where the kernel does not tell: before Linux 6.15 a process that was waited for is forgotten, and
    /// what is not reaped yet tells only those who could trace it. `id` is the process that the descriptor was opened
    /// for.
    #[must_use]
    pub fn exit_code(&self, id: Process) -> Option<u32> {
        let status = self
            .status_of_reaped()
            .or_else(|| status_of_zombie(id))
            // Its parent may have waited for it between the two questions.
            .or_else(|| self.status_of_reaped())?;
        Some(match status & 0x7f {
            0 => (status >> 8) & 0xff,
            signal => 128 + signal,
        })
    }

    fn status_of_reaped(&self) -> Option<u32> {
        let mut info = PidFdInfo {
            mask: PIDFD_INFO_EXIT,
            ..PidFdInfo::default()
        };
        // SAFETY: the request carries the structure's size, and the pointer is to a live one of it.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), PIDFD_GET_INFO, &raw mut info) };
        (result == 0 && info.mask & PIDFD_INFO_EXIT != 0).then_some(info.exit_code)
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

    #[test]
    fn how_a_process_ended_is_known_before_anybody_waited_for_it() {
        use crate::host::proc::{Proc, Processes};
        for (script, code) in [("exit 7", 7), ("kill -9 $$", 137), ("exit 0", 0)] {
            let mut child = std::process::Command::new("sh")
                .args(["-c", script])
                .spawn()
                .expect("sh runs");
            let held = PidFd::open(child.id()).expect("not reaped");
            let mut polled = [PollFd::new(held.as_fd(), PollFlags::POLLIN)];
            assert_eq!(nix::poll::poll(&mut polled, PollTimeout::NONE), Ok(1));
            let id = Proc.stat(child.id()).expect("a zombie").id;
            assert_eq!(held.exit_code(id), Some(code), "{script}");
            child.wait().expect("reaped");
            // From Linux 6.15 on it is known afterwards too; never wrongly.
            assert!(held.exit_code(id).is_none_or(|later| later == code), "{script}");
        }
    }
}
