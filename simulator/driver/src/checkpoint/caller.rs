// SPDX-License-Identifier: Apache-2.0
//! The side that asks: finds the thread of a process and has it do something.
//!
//! | target | answer |
//! |---|---|
//! | no such process, or it dies during the call, or its user is another | OPERATING_SYSTEM (304) |
//! | a process without such a thread: it never used the driver, or is a zombie | NOT_INITIALIZED (3) |
//! | a stopped process | none until it goes on |

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use partage_abi::types::{CuResult, c_int};

use super::packet::{BYTES, Operation, split};
use super::thread::{DIGITS, PREFIX, address, peer, socket};
use crate::state::Answer;

/// The thread of a process, by id and name.
pub struct Thread {
    /// Its id.
    pub id: c_int,
    name: String,
}

/// Finds the thread of a process.
pub fn find(pid: c_int) -> Answer<Thread> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).map_err(|_| CuResult::OPERATING_SYSTEM)?;
    let mut threads = tasks.flatten().filter_map(|task| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        let id = task.file_name().to_str()?.parse().ok()?;
        let name = name.trim_end().to_owned();
        is_name(&name).then_some(Thread { id, name })
    });
    threads.next().ok_or(CuResult::NOT_INITIALIZED)
}

fn is_name(name: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    name.strip_prefix(PREFIX)
        .is_some_and(|digits| digits.len() == DIGITS && digits.bytes().all(is_digit))
}

/// Has a process do something. Returns its state after that.
pub fn ask(pid: c_int, operation: &Operation) -> Answer<u32> {
    let thread = find(pid)?;
    let connection = connect(pid, &thread).ok_or(CuResult::OPERATING_SYSTEM)?;
    let packet = operation.packet();
    // SAFETY: the packet lives during the call.
    let sent = unsafe {
        libc::send(
            connection.as_raw_fd(),
            packet.as_ptr().cast(),
            packet.len(),
            libc::MSG_NOSIGNAL,
        )
    };
    if sent != packet.len() as isize {
        return Err(CuResult::OPERATING_SYSTEM);
    }
    if !waits_for_answer(pid, &connection) {
        return Err(CuResult::OPERATING_SYSTEM);
    }
    let mut answer = [0; BYTES];
    // SAFETY: room for the packet.
    let length = until_whole(|| unsafe {
        libc::recv(
            connection.as_raw_fd(),
            answer.as_mut_ptr().cast(),
            BYTES,
            libc::MSG_TRUNC,
        )
    });
    // It died, or another process has its name.
    if length != BYTES as isize {
        return Err(CuResult::OPERATING_SYSTEM);
    }
    match split(&answer) {
        (0, state) => Ok(state),
        (code, _) => Err(CuResult(code as i32)),
    }
}

/// Waits until an answer is there. `false`: the process died. A child that it forked holds the connection open, so that
/// alone would not tell.
fn waits_for_answer(pid: c_int, connection: &OwnedFd) -> bool {
    // SAFETY: takes numbers only; a non-negative answer is a descriptor of ours alone.
    let process = unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        c_int::try_from(fd)
            .ok()
            .filter(|fd| *fd >= 0)
            .map(|fd| OwnedFd::from_raw_fd(fd))
    };
    let watch = |fd: c_int| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // A negative descriptor is left out: a kernel before 5.3 has none for processes.
    let of_process = process.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    let mut watched = [watch(connection.as_raw_fd()), watch(of_process)];
    // SAFETY: two entries, which live during the call.
    until_whole(|| unsafe { libc::poll(watched.as_mut_ptr(), 2, -1) } as isize);
    // What it said before it died counts.
    watched[0].revents != 0
}

/// The result of a system call that no signal interrupts.
fn until_whole(mut call: impl FnMut() -> isize) -> isize {
    loop {
        let result = call();
        if result >= 0 || io::Error::last_os_error().kind() != ErrorKind::Interrupted {
            return result;
        }
    }
}

/// A connection to the thread. `None`: the process is gone, or another one has taken the name.
fn connect(pid: c_int, thread: &Thread) -> Option<OwnedFd> {
    let connection = socket().ok()?;
    let (address, length) = address(&thread.name);
    // SAFETY: the address lives during the call, and is as long as it says.
    let result =
        until_whole(|| unsafe { libc::connect(connection.as_raw_fd(), (&raw const address).cast(), length) } as isize);
    if result != 0 {
        return None;
    }
    (peer(&connection)?.pid == pid).then_some(connection)
}
