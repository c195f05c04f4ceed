// SPDX-License-Identifier: Apache-2.0
//! `sock_diag(7)`: the unix sockets of a net namespace with their peers, which no file of `/proc` has, and the end of
//! TCP connections.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};
use partage_protocol::snapshot::Carries;

/// A unix socket.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Unix {
    /// What it carries.
    pub carries: Carries,
    /// The other end; 0 without one.
    pub peer: u64,
    /// Its name; an abstract one begins with `@`.
    pub name: String,
}

/// With `NLM_F_REQUEST | NLM_F_DUMP`.
const SOCK_DIAG_BY_FAMILY: (u16, u16) = (20, 0x301);
/// With `NLM_F_REQUEST | NLM_F_ACK`.
const SOCK_DESTROY: (u16, u16) = (21, 5);
const DONE: u16 = 3;
const ERROR: u16 = 2;
/// `UDIAG_SHOW_NAME | UDIAG_SHOW_PEER`.
const SHOWN: u32 = 0b101;
const NAME: u16 = 0;
const PEER: u16 = 2;
/// Of a message, of what it says of a socket, of an attribute.
const HEADS: (usize, usize, usize) = (16, 16, 4);
/// `1 << TCP_LISTEN`.
const LISTENING: u32 = 1 << 10;
/// Bytes by which the kernel names a TCP socket.
const ID: usize = 48;
/// The kernel never sends more at once.
const MOST: usize = 1 << 16;

/// The unix sockets of this process's net namespace, by inode. Nothing where the kernel does not say.
pub fn unix() -> BTreeMap<u64, Unix> {
    ask().unwrap_or_default()
}

fn ask() -> nix::Result<BTreeMap<u64, Unix>> {
    let mut body = vec![libc::AF_UNIX as u8, 0, 0, 0];
    // In every state, of every inode.
    body.extend(u32::MAX.to_ne_bytes());
    body.extend(0_u32.to_ne_bytes());
    body.extend(SHOWN.to_ne_bytes());
    body.extend([0; 8]);
    let mut found = BTreeMap::new();
    dump(&body, |message| found.extend(one(message)))?;
    Ok(found)
}

/// Hands over what the kernel says of each socket that was asked for.
fn dump(body: &[u8], mut take: impl FnMut(&[u8])) -> nix::Result<()> {
    let socket = request(SOCK_DIAG_BY_FAMILY, body)?;
    let mut buffer = vec![0; MOST];
    loop {
        let length = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        if length == 0 || !take_all(buffer.get(..length).unwrap_or_default(), &mut take) {
            return Ok(());
        }
    }
}

/// Has the kernel end a TCP connection of this process's net namespace. Not every kernel can.
///
/// # Errors
/// The system's; `ENOENT`: there is none.
pub fn destroy(local: SocketAddr, remote: SocketAddr) -> nix::Result<()> {
    let mut result = Err(Errno::ENOENT);
    // One of IPv4 may be an IPv6 socket's.
    for family in [libc::AF_INET as u8, libc::AF_INET6 as u8] {
        // By addresses alone the kernel would take a listening socket for a connection that is not there any more. With
        // what it said of this very socket it does not.
        for id in connections(family)?
            .iter()
            .filter(|id| ends(family, id.as_slice()) == Some((local, remote)))
        {
            result = destroy_one(family, id);
        }
    }
    result
}

/// The kernel's names of all TCP sockets of a family that do not listen (`inet_diag_sockid`).
fn connections(family: u8) -> nix::Result<Vec<[u8; ID]>> {
    let mut body = vec![family, libc::IPPROTO_TCP as u8, 0, 0];
    body.extend((!LISTENING).to_ne_bytes());
    body.extend([0; ID]);
    let mut found = Vec::new();
    dump(&body, |message| {
        let id: Option<[u8; ID]> = message.get(4..4 + ID).and_then(|id| id.try_into().ok());
        found.extend(id);
    })?;
    Ok(found)
}

/// Both addresses of such a name: ports, sixteen bytes for each address, an interface, a number of this socket alone.
fn ends(family: u8, id: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let port = |at: usize| Some(u16::from_be_bytes(id.get(at..at + 2)?.try_into().ok()?));
    let ip = |at: usize| {
        let bytes: [u8; 16] = id.get(at..at + 16)?.try_into().ok()?;
        Some(match i32::from(family) {
            libc::AF_INET => IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]]),
            _ => Ipv6Addr::from(bytes).to_canonical(),
        })
    };
    Some((SocketAddr::new(ip(4)?, port(0)?), SocketAddr::new(ip(20)?, port(2)?)))
}

fn destroy_one(family: u8, id: &[u8; ID]) -> nix::Result<()> {
    let mut body = vec![family, libc::IPPROTO_TCP as u8, 0, 0];
    body.extend((!LISTENING).to_ne_bytes());
    body.extend(id);
    let socket = request(SOCK_DESTROY, &body)?;
    let mut answer = [0; 512];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    // An error of zero is none.
    match u32_at(answer.get(..length).unwrap_or_default(), HEADS.0) {
        Some(0) => Ok(()),
        Some(code) => match Errno::from_raw(code.cast_signed().wrapping_neg()) {
            // It ended meanwhile, and somebody else is there.
            Errno::ESTALE => Err(Errno::ENOENT),
            other => Err(other),
        },
        None => Err(Errno::EBADMSG),
    }
}

/// Does the kernel do that? It is tried with a connection of our own.
pub fn can_destroy() -> bool {
    let tried = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| {
        let stream = TcpStream::connect(listener.local_addr()?)?;
        Ok((stream.local_addr()?, stream.peer_addr()?, listener, stream))
    });
    tried.is_ok_and(|(local, remote, ..)| destroy(local, remote).is_ok())
}

/// A socket on which the kernel was asked for that.
fn request((kind, flags): (u16, u16), body: &[u8]) -> nix::Result<OwnedFd> {
    let (family, protocol) = (AddressFamily::Netlink, SockProtocol::NetlinkSockDiag);
    let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
    let mut text = ((HEADS.0 + body.len()) as u32).to_ne_bytes().to_vec();
    text.extend(kind.to_ne_bytes());
    text.extend(flags.to_ne_bytes());
    text.extend([0; 8]);
    text.extend(body);
    send(socket.as_raw_fd(), &text, MsgFlags::empty())?;
    Ok(socket)
}

/// Takes the messages of one datagram. `false`: it was the last.
fn take_all(mut rest: &[u8], take: &mut impl FnMut(&[u8])) -> bool {
    while let Some((length, kind)) = u32_at(rest, 0).zip(u16_at(rest, 4)) {
        let length = length as usize;
        if kind == DONE || kind == ERROR || length < HEADS.0 {
            return false;
        }
        if let Some(message) = rest.get(HEADS.0..length) {
            take(message);
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    true
}

fn one(message: &[u8]) -> Option<(u64, Unix)> {
    let mut unix = Unix {
        carries: match i32::from(*message.get(1)?) {
            libc::SOCK_DGRAM => Carries::Messages,
            libc::SOCK_SEQPACKET => Carries::Packets,
            _ => Carries::Bytes,
        },
        ..Unix::default()
    };
    let inode = u32_at(message, 4)?;
    let mut rest = message.get(HEADS.1..)?;
    while let Some((length, kind)) = u16_at(rest, 0).zip(u16_at(rest, 2)) {
        let Some(value) = rest.get(HEADS.2..usize::from(length)) else {
            break;
        };
        match kind {
            PEER => unix.peer = u32_at(value, 0).map_or(0, u64::from),
            NAME => {
                let text = String::from_utf8_lossy(value).into_owned();
                unix.name = text
                    .strip_prefix('\0')
                    .map_or_else(|| text.clone(), |name| format!("@{name}"));
            }
            _ => {}
        }
        rest = rest.get(usize::from(length).next_multiple_of(4)..).unwrap_or_default();
    }
    unix.name.truncate(unix.name.trim_end_matches('\0').len());
    Some((u64::from(inode), unix))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

    use super::*;

    fn inode(of: &impl AsRawFd) -> u64 {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", of.as_raw_fd())).expect("a link");
        let text = link.to_string_lossy();
        let number = text.trim_start_matches("socket:[").trim_end_matches(']');
        number.parse().expect("a socket")
    }

    #[test]
    fn a_connection_is_ended_where_the_kernel_can() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let mut stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let ends = (
            stream.local_addr().expect("bound"),
            stream.peer_addr().expect("connected"),
        );
        if can_destroy() {
            destroy(ends.0, ends.1).expect("it can");
            assert!(std::io::Write::write(&mut stream, b"x").is_err());
            // The listening socket of that address stays.
            assert_eq!(destroy(ends.1, ends.0), Err(Errno::ENOENT));
            assert!(TcpStream::connect(ends.1).is_ok());
        } else {
            assert!(std::io::Write::write(&mut stream, b"x").is_ok());
        }
    }

    #[test]
    fn both_ends_and_their_names_are_found() {
        let path = std::env::temp_dir().join(format!("partage-diag-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("bound");
        let here = UnixStream::connect(&path).expect("connected");
        let (there, _) = listener.accept().expect("accepted");
        let (one, _other) = UnixDatagram::pair().expect("a pair");
        let table = unix();
        std::fs::remove_file(&path).expect("ours");
        let (a, b) = (&table[&inode(&here)], &table[&inode(&there)]);
        assert_eq!((a.peer, b.peer), (inode(&there), inode(&here)));
        assert_eq!(
            (a.carries, b.name.as_str()),
            (Carries::Bytes, path.to_string_lossy().as_ref())
        );
        assert_eq!(table[&inode(&one)].carries, Carries::Messages);
        assert_eq!(table[&inode(&listener)].peer, 0);
    }
}
