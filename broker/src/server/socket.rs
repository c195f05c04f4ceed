// SPDX-License-Identifier: Apache-2.0
//! SEQPACKET sockets: listening, packets with descriptors, and the process at the other end.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    self, AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr,
};

use crate::error::Error;

/// Most descriptors the kernel lets one packet carry (`SCM_MAX_FD`): room for all of them means that none is ever lost
/// in a truncated control message, and all beyond the two we want are closed.
const MAX_DESCRIPTORS: usize = 253;

/// Listens at `path` with `mode`. The socket appears under its name only when it is ready: bound beside it and renamed,
/// so a starter never meets a half-made one, and a dead broker's socket is replaced.
///
/// # Errors
/// [`Error::File`].
pub fn listen(path: &Path, mode: u32) -> Result<OwnedFd, Error> {
    let beside = path.with_extension("new");
    let _ = std::fs::remove_file(&beside);
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket::socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
        .map_err(Error::system("make a socket"))?;
    let address = UnixAddr::new(&beside).map_err(Error::file("bind", path))?;
    socket::bind(fd.as_raw_fd(), &address).map_err(Error::file("bind", path))?;
    std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(mode)).map_err(Error::file("chmod", path))?;
    // 4096 is capped by net.core.somaxconn: 300 workers that start at once do not get EAGAIN.
    let backlog = Backlog::new(4096).unwrap_or(Backlog::MAXCONN);
    socket::listen(&fd, backlog).map_err(Error::file("listen at", path))?;
    std::fs::rename(&beside, path).map_err(Error::file("name", path))?;
    Ok(fd)
}

/// How long a socket may be heard that is nobody's: a broker that was killed lets go of its lock first.
const DYING: Duration = Duration::from_millis(500);

/// Refuses to take the place of somebody who listens at `path` and is no broker, for the caller has the broker's lock:
/// a service manager, whose clients would wait for ever.
///
/// # Errors
/// [`Error::Held`].
pub fn wait_until_free(path: &Path) -> Result<(), Error> {
    let deadline = Instant::now() + DYING;
    while is_heard(path) {
        if Instant::now() >= deadline {
            return Err(Error::Held(path.to_owned()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn is_heard(path: &Path) -> bool {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let Ok(address) = UnixAddr::new(path) else { return false };
    let socket = socket::socket(AddressFamily::Unix, SockType::SeqPacket, flags, None);
    // A queue that is full is somebody's, too.
    socket.is_ok_and(|socket| {
        matches!(
            socket::connect(socket.as_raw_fd(), &address),
            Ok(()) | Err(nix::Error::EAGAIN)
        )
    })
}

/// The next waiting connection.
///
/// # Errors
/// The system's; `EAGAIN` when none waits, `EMFILE` when this process has no descriptor left.
pub fn accept(listener: BorrowedFd<'_>) -> Result<OwnedFd, nix::Error> {
    let fd = socket::accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK)?;
    // SAFETY: accept4 just returned this descriptor; nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Pid and uid of the other end as of `connect`; pid 0 when that process is not visible here.
///
/// # Errors
/// The system's, when the socket has no credentials.
pub fn credentials(fd: &OwnedFd) -> Result<(u32, u32), nix::Error> {
    let credentials = socket::getsockopt(fd, socket::sockopt::PeerCredentials)?;
    Ok((u32::try_from(credentials.pid()).unwrap_or(0), credentials.uid()))
}

/// What a read brought.
#[derive(Debug)]
pub enum Received {
    /// A whole packet of this length, with its descriptors.
    Packet(usize, Vec<OwnedFd>),
    /// Nothing now.
    Nothing,
    /// The other end closed, or sent what cannot be a packet of ours.
    Closed,
}

/// What waits at a connection, as the event loop reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// A whole packet of this length was taken.
    Packet(usize),
    /// A whole packet of this length, which came with descriptors: it waits still, and its descriptors with it.
    WithDescriptors(usize),
    /// Nothing now.
    Nothing,
    /// The other end closed, or sent what cannot be a packet of ours.
    Closed,
}

/// Reads one packet into `buffer` and takes it if no descriptor came with it. Looked at first: to take descriptors is
/// to have to close them.
pub fn receive_plain(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Waiting {
    let look = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK;
    let mut slices = [IoSliceMut::new(buffer)];
    let (length, flags) = match socket::recvmsg::<()>(fd.as_raw_fd(), &mut slices, None, look) {
        Ok(message) => (message.bytes, message.flags),
        Err(nix::Error::EAGAIN | nix::Error::EINTR) => return Waiting::Nothing,
        Err(_) => return Waiting::Closed,
    };
    if length == 0 || flags.contains(MsgFlags::MSG_TRUNC) {
        return Waiting::Closed;
    }
    // Control data for which no room was given: only descriptors are sent unasked.
    if flags.contains(MsgFlags::MSG_CTRUNC) {
        return Waiting::WithDescriptors(length);
    }
    match socket::recv(fd.as_raw_fd(), &mut [], MsgFlags::MSG_DONTWAIT) {
        Ok(_) => Waiting::Packet(length),
        Err(_) => Waiting::Closed,
    }
}

/// `SO_PASSRIGHTS` (Linux 6.16, `asm-generic/socket.h`): may the other end send descriptors?
const SO_PASSRIGHTS: libc::c_int = 83;

/// Lets the kernel refuse descriptors that are sent here from now on. A kernel that does not know how leaves it to
/// [`receive_plain`].
pub fn refuse_descriptors(fd: BorrowedFd<'_>) {
    let no: libc::c_int = 0;
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the pointer is to a live local of the given length.
    let _ = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const no).cast(),
            length,
        )
    };
}

/// Reads one packet into `buffer` with its descriptors. Not for the event loop: see `foreign.rs`.
pub fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Received {
    let mut control = nix::cmsg_space!([RawFd; MAX_DESCRIPTORS]);
    let mut slices = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = match socket::recvmsg::<()>(fd.as_raw_fd(), &mut slices, Some(&mut control), flags) {
        Ok(message) => message,
        Err(nix::Error::EAGAIN | nix::Error::EINTR) => return Received::Nothing,
        Err(_) => return Received::Closed,
    };
    let mut descriptors = Vec::new();
    if let Ok(messages) = message.cmsgs() {
        for message in messages {
            if let ControlMessageOwned::ScmRights(raw) = message {
                // SAFETY: the kernel just installed these descriptors for us; nobody else owns them.
                descriptors.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
            }
        }
    }
    if message.bytes == 0 || message.flags.contains(MsgFlags::MSG_TRUNC) {
        return Received::Closed;
    }
    Received::Packet(message.bytes, descriptors)
}

/// What a write came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The packet is on its way.
    Done,
    /// The other end's buffer is full: try when it is writable.
    Full,
    /// The other end is gone.
    Gone,
}

/// Writes one packet without waiting.
pub fn send(fd: BorrowedFd<'_>, packet: &[u8], descriptors: &[OwnedFd]) -> Sent {
    let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    match socket::sendmsg::<()>(fd.as_raw_fd(), &[IoSlice::new(packet)], control, flags, None) {
        Ok(_) => Sent::Done,
        Err(nix::Error::EAGAIN | nix::Error::EINTR | nix::Error::ENOBUFS | nix::Error::ETOOMANYREFS) => Sent::Full,
        Err(_) => Sent::Gone,
    }
}
