// SPDX-License-Identifier: Apache-2.0
//! Packets between this process and the broker: connecting, sending, waiting with an end.

use core::ffi::c_int;

use partage_protocol::message::{ToClient, Welcome};

use crate::guest::descriptor::Kept;
use crate::guest::sys;
use crate::guest::text::Text;
use crate::managed;
use crate::settings::{PATH_BYTES, Settings};

/// Why a conversation did not happen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody listens there.
    Absent,
    /// Somebody listens and does not serve now.
    Busy,
    /// This process has no descriptor or no memory left to find out, or to attach.
    Unable,
    /// The connection broke.
    Lost,
    /// This process may not enter the broker's folder.
    Barred,
    /// Not now and not later.
    Final,
}

/// Longest path that fits a socket address.
const ADDRESS_BYTES: usize = 107;
/// Errors of `connect` that pass: a full backlog, a signal.
const LATER: [c_int; 2] = [libc::EAGAIN, libc::EINTR];
/// Errors of this process, or of its machine, and not of the broker: no descriptor or memory left.
const UNABLE: [c_int; 4] = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS];
const LEAF: &str = "/client/client.sock";

/// Connects to the broker of the folder and checks who listens there.
pub fn connect(settings: &Settings, deadline_ns: u64) -> Result<c_int, Refusal> {
    let fd = c_int::try_from(sys::socket()).ok().filter(|fd| *fd >= 0);
    let fd = fd.ok_or(Refusal::Unable)?;
    // A full backlog makes `connect` wait; at least a millisecond, or a late caller could never succeed.
    sys::set_send_timeout(fd, deadline_ns.saturating_sub(sys::now_ns()).max(1_000_000));
    let result = connect_to(fd, settings.socket_dir.as_bytes());
    let refusal = match -result {
        0 if is_trusted(fd, settings) => return Ok(fd),
        0 => Refusal::Final,
        error if error == libc::ENOENT as isize || error == libc::ECONNREFUSED as isize => {
            // A managed host's broker is away and will be back: as one that is there and does not serve.
            if managed::is_closed(settings) {
                Refusal::Busy
            } else {
                Refusal::Absent
            }
        }
        error if LATER.contains(&(error as c_int)) => Refusal::Busy,
        error if UNABLE.contains(&(error as c_int)) => Refusal::Unable,
        error if error == libc::EACCES as isize || error == libc::EPERM as isize => Refusal::Barred,
        _ => Refusal::Final,
    };
    sys::close(fd);
    Err(refusal)
}

fn connect_to(fd: c_int, folder: &[u8]) -> isize {
    let mut path = Text::<PATH_BYTES>::new();
    path.push(folder).push(LEAF);
    if path.as_bytes().len() <= ADDRESS_BYTES {
        return sys::connect(fd, path.as_bytes());
    }
    // A longer path is reached through the folder's descriptor.
    let mut long = Text::<PATH_BYTES>::new();
    long.push(folder);
    let folder = sys::open(long.as_c_str(), libc::O_PATH | libc::O_DIRECTORY, 0);
    if folder < 0 {
        return folder;
    }
    path.clear();
    path.push("/proc/thread-self/fd/").push_number(folder as u64).push(LEAF);
    let result = sys::connect(fd, path.as_bytes());
    sys::close(folder as c_int);
    result
}

/// A folder that somebody named is meant, whoever serves it (user namespaces show other numbers); in the guessed one
/// of this user only this user or root may listen.
fn is_trusted(fd: c_int, settings: &Settings) -> bool {
    settings.is_socket_dir_named || sys::peer_uid(fd).is_some_and(|uid| uid == 0 || uid == sys::effective_uid())
}

/// Sends one packet without waiting.
///
/// # Errors
/// [`Refusal::Busy`] when the other end does not read, [`Refusal::Unable`] when the machine has no memory for the
/// packet, [`Refusal::Lost`] when the other end is gone.
pub fn send(socket: &Kept, packet: &[u8]) -> Result<(), Refusal> {
    send_with(socket, packet, &[])
}

/// [`send`] with descriptors.
///
/// # Errors
/// As for [`send`].
pub fn send_with(socket: &Kept, packet: &[u8], descriptors: &[c_int]) -> Result<(), Refusal> {
    let fd = socket.fd().ok_or(Refusal::Lost)?;
    match sys::send(fd, packet, descriptors) {
        sent if sent == packet.len() as isize => Ok(()),
        error if LATER.contains(&(-error as c_int)) => Err(Refusal::Busy),
        error if UNABLE.contains(&(-error as c_int)) => Err(Refusal::Unable),
        _ => Err(Refusal::Lost),
    }
}

/// Waits for one message until the deadline.
pub fn receive(socket: &Kept, deadline_ns: u64) -> Result<(ToClient, [c_int; 2]), Refusal> {
    // The longest message of this direction, and some: a newer broker may have longer ones.
    let mut buffer = [0_u8; size_of::<Welcome>() + 512];
    loop {
        let fd = socket.fd().ok_or(Refusal::Lost)?;
        let left = deadline_ns.saturating_sub(sys::now_ns());
        if sys::poll(fd, libc::POLLIN, left) == 0 {
            return Err(Refusal::Busy);
        }
        let (length, descriptors) = sys::receive(fd, &mut buffer);
        if length == -(libc::EAGAIN as isize) {
            continue;
        }
        let packet = usize::try_from(length)
            .ok()
            .and_then(|length| buffer.get(..length))
            .unwrap_or(&[]);
        return match ToClient::decode(packet) {
            Ok(message) => Ok((message, descriptors)),
            Err(_) => {
                discard(descriptors);
                Err(Refusal::Lost)
            }
        };
    }
}

/// Closes descriptors that came with a message that needed none.
pub fn discard(descriptors: [c_int; 2]) {
    for fd in descriptors {
        if fd >= 0 {
            sys::close(fd);
        }
    }
}
