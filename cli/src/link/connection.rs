// SPDX-License-Identifier: Apache-2.0
//! One conversation with a broker: connect, say one request, hear replies.
//!
//! The socket is CLOEXEC and never lands on descriptors 0 to 2, so COMMAND inherits nothing of it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, getsockopt, recv, send, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use nix::unistd::Uid;
use partage_protocol::admin::{JobView, Reply, Request, UnmanagedView};
use partage_protocol::frame::{Assembler, packets};
use partage_protocol::message::MAX_PACKET;
use serde::Deserialize;

use crate::failure::{Failure, Kind};
use crate::launch::place::{SYSTEM_DIR, foreign_root};
use crate::link::silence;
use crate::show::report::write_err;

/// Why a conversation did not go on.
#[derive(Debug)]
pub enum ConnectionError {
    /// Nobody listens.
    Absent(Errno),
    /// The broker went away before its last reply.
    Ended,
    /// Nothing in time; its process, where the connection told.
    Late(Option<u32>),
    /// The socket belongs to somebody who is neither the caller nor root.
    Stranger(u32),
    /// The caller may not use the socket, or its path is too long, or the system refuses.
    Refused(Errno),
    /// The broker says something that is no reply of this version.
    Unreadable(String),
}

impl ConnectionError {
    /// In words for the user, about the broker at `dir`.
    pub fn into_failure(self, dir: &Path) -> Failure {
        let path = dir;
        let dir = dir.display();
        let (kind, message, hint) = match self {
            Self::Ended => return silence::hung_up(path),
            Self::Late(pid) => return silence::failure(path, pid),
            Self::Absent(_) => return Failure::new(Kind::NoBroker, format!("no broker at {dir}")),
            Self::Stranger(uid) => (
                Kind::NotAllowed,
                format!("the broker at {dir} runs as uid {uid}, which is neither you nor root"),
                "choose another: --socket-dir DIR",
            ),
            Self::Refused(Errno::ENAMETOOLONG) => (
                Kind::Invalid,
                format!("the path of the socket in {dir} is too long: it may have at most 107 bytes"),
                "choose a shorter --socket-dir",
            ),
            Self::Refused(errno) => (
                if errno == Errno::EACCES {
                    Kind::NotAllowed
                } else {
                    Kind::NoBroker
                },
                format!("cannot connect to the broker at {dir}: {}", errno.desc().to_lowercase()),
                "see: partage doctor",
            ),
            Self::Unreadable(what) => (
                Kind::Internal,
                format!("the broker at {dir} speaks another version: {what}"),
                "compare: partage version; partage broker status",
            ),
        };
        Failure::new(kind, message).hint(hint)
    }
}

/// This command explained a silence: once is enough, however often it connects.
static HAS_EXPLAINED: AtomicBool = AtomicBool::new(false);

/// Whose socket `path` is: who listens, but for a service manager that listens for its broker. The socket directory's
/// lock says which process that is, if any is there.
fn broker_process(listener: i32, path: &Path) -> Option<u32> {
    let mut folders = path.ancestors().skip(1).take(2);
    match u32::try_from(listener) {
        Ok(0) | Err(_) => None,
        Ok(1) => folders.find_map(silence::broker_of),
        Ok(pid) => Some(pid),
    }
}

/// How the answer to `ps` begins.
const PAGE: &[u8] = br#"{"reply":"ps","#;

/// The answer to `ps`, see [`Reply::Ps`].
#[derive(Debug, Deserialize)]
pub struct Page {
    /// The jobs, oldest first.
    pub jobs: Vec<JobView>,
    /// GPU processes that no job owns.
    pub unmanaged: Vec<UnmanagedView>,
    /// There are jobs after these.
    #[serde(default)]
    pub more: bool,
}

fn read<T: serde::de::DeserializeOwned>(document: &[u8]) -> Result<T, ConnectionError> {
    serde_json::from_slice(document).map_err(|error| ConnectionError::Unreadable(error.to_string()))
}

/// A connection to a broker.
pub struct Connection {
    socket: OwnedFd,
    assembler: Assembler,
    /// The broker's process, where this namespace shows it.
    pid: Option<u32>,
}

impl Connection {
    /// Connects to a socket.
    ///
    /// # Errors
    /// [`ConnectionError`] `Absent`, `Stranger`, `Refused`, or `Late` where the broker does not take connections.
    pub fn open(path: &Path) -> Result<Self, ConnectionError> {
        let address = UnixAddr::new(path).map_err(ConnectionError::Refused)?;
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)
            .map_err(ConnectionError::Refused)?;
        // A full queue of connections would keep `connect` waiting for ever, a full buffer `send`.
        let patience = TimeVal::new(silence::PATIENCE.as_secs().cast_signed(), 0);
        setsockopt(&socket, sockopt::SendTimeout, &patience).map_err(ConnectionError::Refused)?;
        connect(socket.as_raw_fd(), &address).map_err(|errno| match errno {
            Errno::EAGAIN => ConnectionError::Late(None),
            Errno::ENOENT | Errno::ECONNREFUSED | Errno::ENOTDIR => ConnectionError::Absent(errno),
            other => ConnectionError::Refused(other),
        })?;
        // Whoever answers gives us a token and hears our command line: it must be our own broker or the system's.
        let peer = getsockopt(&socket, sockopt::PeerCredentials).map_err(ConnectionError::Refused)?;
        let is_ours = peer.uid() == Uid::effective().as_raw() || peer.uid() == 0;
        // In a user namespace root of the host shows as nobody: in the folder that only root makes it is meant.
        let is_of_host = || path.starts_with(SYSTEM_DIR) && foreign_root() == Some(peer.uid());
        if !is_ours && !is_of_host() {
            return Err(ConnectionError::Stranger(peer.uid()));
        }
        Ok(Self {
            socket,
            assembler: Assembler::default(),
            pid: broker_process(peer.pid(), path),
        })
    }

    /// The broker's process, where this namespace shows it.
    pub fn peer(&self) -> Option<u32> {
        self.pid
    }

    /// Says a request.
    ///
    /// # Errors
    /// `Ended` when the broker is gone, `Late` when it takes nothing, `Refused` otherwise.
    pub fn say(&self, request: &Request) -> Result<(), ConnectionError> {
        let document = serde_json::to_vec(request).map_err(|e| ConnectionError::Unreadable(e.to_string()))?;
        for packet in packets(&document) {
            loop {
                match send(self.socket.as_raw_fd(), &packet, MsgFlags::MSG_NOSIGNAL) {
                    Ok(_) => break,
                    Err(Errno::EINTR) => {}
                    Err(Errno::EPIPE | Errno::ECONNRESET) => return Err(ConnectionError::Ended),
                    Err(Errno::EAGAIN) => return Err(ConnectionError::Late(self.pid)),
                    Err(errno) => return Err(ConnectionError::Refused(errno)),
                }
            }
        }
        Ok(())
    }

    /// Hears the next reply; without `deadline` waits as long as the broker lives.
    ///
    /// # Errors
    /// `Ended`, `Late` or `Unreadable`.
    pub fn hear(&mut self, deadline: Option<Instant>) -> Result<Reply, ConnectionError> {
        read(&self.hear_document(deadline)?)
    }

    /// The same, for a reply that is likely a page of jobs. Read as a [`Reply`], each of its fields would be made
    /// twice: once to find out which reply it is.
    ///
    /// # Errors
    /// As [`Connection::hear`].
    pub fn hear_page(&mut self, deadline: Option<Instant>) -> Result<Result<Page, Reply>, ConnectionError> {
        let document = self.hear_document(deadline)?;
        if document.starts_with(PAGE) {
            read(&document).map(Ok)
        } else {
            read(&document).map(Err)
        }
    }

    fn hear_document(&mut self, deadline: Option<Instant>) -> Result<Vec<u8>, ConnectionError> {
        let mut packet = vec![0; MAX_PACKET];
        loop {
            self.wait(deadline)?;
            let length = match recv(self.socket.as_raw_fd(), &mut packet, MsgFlags::empty()) {
                Ok(0) | Err(Errno::ECONNRESET) => return Err(ConnectionError::Ended),
                Ok(length) => length,
                Err(Errno::EINTR | Errno::EAGAIN) => continue,
                Err(errno) => return Err(ConnectionError::Refused(errno)),
            };
            let whole = self.assembler.push(&packet[..length]);
            match whole.map_err(|e| ConnectionError::Unreadable(e.to_string()))? {
                None => {}
                Some(document) => return Ok(document),
            }
        }
    }

    fn wait(&self, deadline: Option<Instant>) -> Result<(), ConnectionError> {
        let began = Instant::now();
        loop {
            let has_word = !HAS_EXPLAINED.load(Ordering::Relaxed) && began.elapsed() >= silence::WORDLESS;
            if has_word && let Some(text) = silence::waiting(self.pid) {
                HAS_EXPLAINED.store(true, Ordering::Relaxed);
                write_err(&format!("partage: {text}\n"));
            }
            let word_at = (!HAS_EXPLAINED.load(Ordering::Relaxed)).then(|| Instant::now() + silence::WORDLESS);
            let until = deadline.into_iter().chain(word_at).min();
            let timeout = match until {
                None => PollTimeout::NONE,
                Some(deadline) => {
                    // One millisecond more: rounding down would spin during the last one.
                    let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
                    PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
                }
            };
            match poll(&mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(0) if deadline.is_some_and(|d| Instant::now() >= d) => {
                    return Err(ConnectionError::Late(self.pid));
                }
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(ConnectionError::Refused(errno)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_jobs_is_known_by_its_beginning() {
        let page = Reply::Ps {
            jobs: Vec::new(),
            unmanaged: Vec::new(),
            more: true,
        };
        let document = serde_json::to_vec(&page).expect("serialises");
        assert!(document.starts_with(PAGE));
        assert!(read::<Page>(&document).expect("reads").more);
    }
}
