// SPDX-License-Identifier: Apache-2.0
//! The thread of a process that is asked to lock it, to take it off its devices, and the like. Its name, `cuda` and
//! eleven hexadecimal digits, is that of the abstract socket on which it listens, so a caller finds it in
//! `/proc/PID/task`.
//!
//! It serves one operation at a time, to its end, whatever becomes of the caller: the next caller waits meanwhile, with
//! whatever it asks.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

use partage_abi::types::{CuResult, c_int};
use partage_machine::backing::{Kept, out_of_the_way};

use super::packet::{BYTES, MOST_BYTES, Operation, join};
use super::states::Process;
use crate::state::Answer;

/// How the name of such a thread begins.
pub const PREFIX: &str = "cuda";
/// Digits after it. Together they fill the fifteen bytes that the kernel keeps of a thread's name.
pub const DIGITS: usize = 11;

/// Callers that may wait to be served.
const BACKLOG: c_int = 64;
/// A caller that connects says at once what it wants, or is not waited for.
const SILENCE: Duration = Duration::from_secs(1);

/// Starts the thread, once in a process. OPERATING_SYSTEM: no descriptor or no thread is to be had.
pub fn start() -> Answer {
    static IS_STARTED: OnceLock<bool> = OnceLock::new();
    let is_started = IS_STARTED.get_or_init(|| try_start().is_ok());
    if *is_started {
        Ok(())
    } else {
        Err(CuResult::OPERATING_SYSTEM)
    }
}

fn try_start() -> io::Result<()> {
    let mut random = [0_u8; 8];
    // SAFETY: room for as many bytes. So few come whole.
    let length = unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) };
    if length != random.len() as isize {
        return Err(io::Error::last_os_error());
    }
    let number = u64::from_le_bytes(random) & ((1 << (4 * DIGITS)) - 1);
    let name = format!("{PREFIX}{number:0DIGITS$x}");
    let listener = Listener {
        socket: ManuallyDrop::new(listen(&name)?),
        name: name.clone(),
    };
    let (begun, is_named) = std::sync::mpsc::channel();
    crate::thread::start(name, move || {
        // Sealed when the caller goes on.
        let process = Process::new();
        let _ = begun.send(());
        serve(&listener, process);
    })?;
    // A thread names itself: before that no caller finds it.
    is_named.recv().map_err(io::Error::other)
}

/// The address of the socket of a name.
pub fn address(name: &str) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: all-zero memory is an address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // The first byte stays 0: an abstract name.
    for (to, from) in address.sun_path.iter_mut().skip(1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let length = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    (address, length as libc::socklen_t)
}

/// A socket of the kind that both sides use.
pub fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no memory involved; the descriptor is ours alone.
    unsafe {
        let fd = checked(libc::socket(
            libc::AF_UNIX,
            libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC,
            0,
        ))?;
        Ok(out_of_the_way(OwnedFd::from_raw_fd(fd).into()).into())
    }
}

fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn listen(name: &str) -> io::Result<OwnedFd> {
    let listener = socket()?;
    let (address, length) = address(name);
    // SAFETY: the address lives during the call, and is as long as it says.
    unsafe {
        checked(libc::bind(listener.as_raw_fd(), (&raw const address).cast(), length))?;
        checked(libc::listen(listener.as_raw_fd(), BACKLOG))?;
    }
    Ok(listener)
}

/// The listening socket, in a program that may close what it does not know. It is told by its name, which it keeps when
/// the process is restored, and not by its inode as other descriptors are.
struct Listener {
    socket: ManuallyDrop<OwnedFd>,
    name: String,
}

impl Listener {
    /// The socket, if it is still ours.
    fn get(&self) -> Option<&OwnedFd> {
        let (own, _) = address(&self.name);
        // SAFETY: all-zero memory is an address, and there is room for as many bytes as the call is told.
        let found = unsafe {
            let mut found: libc::sockaddr_un = std::mem::zeroed();
            let mut length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
            let result = libc::getsockname(self.socket.as_raw_fd(), (&raw mut found).cast(), &mut length);
            (result == 0).then_some(found)
        };
        // What it accepted has its name, too, and may have got its number.
        if !listens(&self.socket) {
            return None;
        }
        found
            .is_some_and(|found| found.sun_family == own.sun_family && found.sun_path == own.sun_path)
            .then_some(&self.socket)
    }
}

fn listens(socket: &OwnedFd) -> bool {
    let mut answer: c_int = 0;
    let mut length = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: room for the answer, as long as it says.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ACCEPTCONN,
            (&raw mut answer).cast(),
            &mut length,
        )
    };
    result == 0 && answer == 1
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.get().is_some() {
            // SAFETY: ours, and not used after this.
            unsafe { ManuallyDrop::drop(&mut self.socket) };
        }
    }
}

/// Serves until the listener is ours no more; the process is unlocked then, and answers as one without a driver.
fn serve(listener: &Listener, mut process: Process) {
    while let Some(socket) = listener.get() {
        // SAFETY: our own listener; the address of the other end is not asked for.
        let fd = unsafe {
            let flags = libc::SOCK_CLOEXEC;
            libc::accept4(socket.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags)
        };
        if fd < 0 {
            // Without a descriptor nobody can be served now.
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        // SAFETY: just made, ours alone.
        let caller: Kept<OwnedFd> = Kept::new(out_of_the_way(unsafe { File::from_raw_fd(fd) }).into());
        // It may have been closed while this thread waited, which the kernel does not end.
        if listener.get().is_none() {
            break;
        }
        let code = match caller.get().and_then(asked) {
            Some(operation) => process.carry_out(&operation),
            None => CuResult::OPERATING_SYSTEM,
        };
        let answer = join(code.0 as u32, process.state());
        if let Some(caller) = caller.get() {
            // SAFETY: the packet lives during the call. A caller that is gone gets no answer, this process no signal.
            unsafe { libc::send(caller.as_raw_fd(), answer.as_ptr().cast(), BYTES, libc::MSG_NOSIGNAL) };
        }
    }
    process.end();
}

/// What a caller wants; `None` if it may not, or does not say.
fn asked(caller: &OwnedFd) -> Option<Operation> {
    let uid = peer(caller)?.uid;
    // SAFETY: no memory involved.
    if uid != 0 && uid != unsafe { libc::geteuid() } {
        return None;
    }
    let limit = libc::timeval {
        tv_sec: SILENCE.as_secs() as libc::time_t,
        tv_usec: 0,
    };
    let mut packet = [0; MOST_BYTES];
    // SAFETY: the option and the room for the packet live during the calls.
    let length = unsafe {
        libc::setsockopt(
            caller.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const limit).cast(),
            size_of::<libc::timeval>() as libc::socklen_t,
        );
        libc::recv(
            caller.as_raw_fd(),
            packet.as_mut_ptr().cast(),
            MOST_BYTES,
            libc::MSG_TRUNC,
        )
    };
    Operation::read(packet.get(..usize::try_from(length).ok()?)?)
}

/// The process at the other end of a connection.
pub fn peer(connection: &OwnedFd) -> Option<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: room for the credentials, as long as it says.
    let result = unsafe {
        libc::getsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &mut length,
        )
    };
    (result == 0).then_some(peer)
}
