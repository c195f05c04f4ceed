// SPDX-License-Identifier: Apache-2.0
//! Sockets that a service manager listens at for the broker, and hands over (`LISTEN_FDS`, sd_listen_fds(3)).
//!
//! They outlive each broker: a client that comes while none is there waits in their queues for the next one. The broker
//! neither makes nor removes their names, and leaves mode and group as the manager set them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::socket::{SockType, UnixAddr, getsockname, getsockopt, sockopt};

use crate::error::Error;
use crate::state::directory::SocketDir;

/// The first descriptor that is handed over (`SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;
/// What the manager calls the socket for everyone (`FileDescriptorName=`).
const CLIENT: &str = "client";
/// What it calls the administrators' socket.
const ADMIN: &str = "admin";

/// The two listening sockets.
#[derive(Debug)]
pub struct Given {
    /// For everyone.
    pub client: OwnedFd,
    /// For administrators.
    pub admin: OwnedFd,
}

/// Takes the sockets that this process was given; `None` where it was given none.
///
/// # Errors
/// [`Error::Given`]: a set that is not the two that a broker at `directory` needs.
pub fn take(directory: &SocketDir) -> Result<Option<Given>, Error> {
    let variables = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"].map(|name| std::env::var(name).ok());
    let [pid, count, names] = variables.each_ref().map(Option::as_deref);
    let Some(numbers) = numbers(std::process::id(), pid, count, names).map_err(Error::Given)? else {
        return Ok(None);
    };
    for (name, fd) in [(CLIENT, numbers.client), (ADMIN, numbers.admin)] {
        // SAFETY: a question about a number, whether or not it is that of a descriptor.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            return Err(Error::Given(format!("`{name}` is not open")));
        }
    }
    // SAFETY: they are open, and the manager's own gift to this process alone (LISTEN_PID): nothing here opened them.
    let [client, admin] = [numbers.client, numbers.admin].map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    let paths = [directory.client_socket(), directory.admin_socket()];
    for (name, fd, path) in [(CLIENT, &client, &paths[0]), (ADMIN, &admin, &paths[1])] {
        check(fd.as_fd(), path).map_err(|why| Error::Given(format!("`{name}` {why}")))?;
        prepare(fd.as_fd()).map_err(Error::system("take a socket over"))?;
    }
    Ok(Some(Given { client, admin }))
}

/// Which descriptor is which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    client: RawFd,
    admin: RawFd,
}

/// Reads the three variables; `None` where they are not there, or meant for another process.
fn numbers(own: u32, pid: Option<&str>, count: Option<&str>, names: Option<&str>) -> Result<Option<Numbers>, String> {
    let Some(pid) = pid else { return Ok(None) };
    let pid: u32 = number(pid).ok_or_else(|| format!("LISTEN_PID is no process: {pid:?}"))?;
    // Left over from a parent, which was given some.
    if pid != own {
        return Ok(None);
    }
    let count = count.ok_or("LISTEN_PID without LISTEN_FDS")?;
    match number(count).ok_or_else(|| format!("LISTEN_FDS is no number: {count:?}"))? {
        0 => return Ok(None),
        2 => {}
        other => {
            return Err(format!(
                "a broker takes two, `{CLIENT}` and `{ADMIN}`, and was given {other}"
            ));
        }
    }
    let names = names.ok_or("they have no names: FileDescriptorName= in the socket units")?;
    match names.split(':').collect::<Vec<_>>().as_slice() {
        [CLIENT, ADMIN] => Ok(Some(Numbers {
            client: FIRST,
            admin: FIRST + 1,
        })),
        [ADMIN, CLIENT] => Ok(Some(Numbers {
            client: FIRST + 1,
            admin: FIRST,
        })),
        _ => Err(format!(
            "a broker takes `{CLIENT}` and `{ADMIN}`, and was given {names:?}"
        )),
    }
}

/// Plain digits: no sign, no blank.
fn number(text: &str) -> Option<u32> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

/// Does it listen for whole packets at this path?
fn check(fd: BorrowedFd<'_>, path: &Path) -> Result<(), String> {
    let kind = getsockopt(&fd, sockopt::SockType).map_err(|_| "is no socket".to_owned())?;
    if kind != SockType::SeqPacket {
        return Err(format!("is a {kind:?} socket (ListenSequentialPacket= in its unit)"));
    }
    if !getsockopt(&fd, sockopt::AcceptConn).unwrap_or(false) {
        return Err("does not listen (Accept=no in its unit)".to_owned());
    }
    let address: UnixAddr = getsockname(fd.as_raw_fd()).map_err(|_| "is no unix socket".to_owned())?;
    let at = address.path().map(resolved);
    match at {
        Some(at) if at == path => Ok(()),
        Some(at) => Err(format!("listens at {}, not at {}", at.display(), path.display())),
        None => Err(format!("has no path, not {}", path.display())),
    }
}

/// The path with the links on its way resolved, as the socket directory's is.
fn resolved(path: &Path) -> PathBuf {
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

/// A listener of the loop's own: never waited for, never handed on.
fn prepare(fd: BorrowedFd<'_>) -> Result<(), nix::Error> {
    fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::socket;
    use crate::testing::Scratch;

    const OWN: u32 = 77;

    fn read(pid: &str, count: &str, names: &str) -> Result<Option<Numbers>, String> {
        numbers(OWN, Some(pid), Some(count), Some(names))
    }

    #[test]
    fn two_sockets_are_known_by_their_names_in_either_order() {
        let (client, admin) = (3, 4);
        assert_eq!(read("77", "2", "client:admin"), Ok(Some(Numbers { client, admin })));
        let (client, admin) = (4, 3);
        assert_eq!(read("77", "2", "admin:client"), Ok(Some(Numbers { client, admin })));
    }

    #[test]
    fn what_is_meant_for_others_is_left_alone() {
        assert_eq!(numbers(OWN, None, None, None), Ok(None));
        assert_eq!(numbers(OWN, None, Some("2"), Some("client:admin")), Ok(None));
        assert_eq!(read("78", "2", "client:admin"), Ok(None));
        assert_eq!(read("77", "0", ""), Ok(None));
    }

    #[test]
    fn a_wrong_set_is_named() {
        for (pid, count, names, said) in [
            ("", "2", "client:admin", "LISTEN_PID is no process"),
            ("+77", "2", "client:admin", "LISTEN_PID is no process"),
            ("77", "-2", "client:admin", "LISTEN_FDS is no number"),
            ("77", " 2", "client:admin", "LISTEN_FDS is no number"),
            ("77", "99999999999", "client:admin", "LISTEN_FDS is no number"),
            ("77", "1", "client", "was given 1"),
            ("77", "3", "client:admin:more", "was given 3"),
            ("77", "2", "client:client", "was given \"client:client\""),
            ("77", "2", "client", "was given \"client\""),
            ("77", "2", "client:admin:", "was given \"client:admin:\""),
            ("77", "2", "partaged.socket:partaged-admin.socket", "was given"),
        ] {
            let why = read(pid, count, names).expect_err("refused");
            assert!(why.contains(said), "{why}");
        }
        assert!(numbers(OWN, Some("77"), None, None).is_err());
        assert!(numbers(OWN, Some("77"), Some("2"), None).is_err());
    }

    #[test]
    fn only_a_listener_for_packets_at_the_right_path_is_taken() {
        let scratch = Scratch::new("given");
        let folder = scratch.path().canonicalize().expect("there");
        let path = folder.join("s");
        let listener = socket::listen(&path, 0o600).expect("listens");
        // It was bound beside its name and renamed: the kernel knows the first name, as it would a stranger's.
        let why = check(listener.as_fd(), &path).expect_err("another path");
        assert!(why.contains("listens at") && why.contains("not at"), "{why}");
        assert_eq!(check(listener.as_fd(), &folder.join("s.new")), Ok(()));

        let stream = std::os::unix::net::UnixListener::bind(folder.join("t")).expect("bound");
        let why = check(stream.as_fd(), &folder.join("t")).expect_err("a stream");
        assert!(why.contains("ListenSequentialPacket="), "{why}");
        let file = std::fs::File::open("/dev/null").expect("there");
        assert_eq!(check(file.as_fd(), &path), Err("is no socket".to_owned()));
        let (one, _other) = std::os::unix::net::UnixDatagram::pair().expect("a pair");
        assert!(check(one.as_fd(), &path).is_err());
    }
}
