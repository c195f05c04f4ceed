// SPDX-License-Identifier: Apache-2.0
//! One question to the broker of this process, over its socket, like anybody's.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, socket};
use partage_protocol::admin::Request;
use partage_protocol::frame::{Assembler, packets};
use partage_protocol::message::MAX_PACKET;
use serde::Deserialize;

/// The broker did not answer, or not that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered;

/// The one reply that is asked for here: to read all of them would bring the code for all into the broker, which writes
/// them alone.
#[derive(Debug, Deserialize)]
pub(super) struct Metrics {
    pub(super) text: String,
    pub(super) dropped: u64,
}

/// The answer to a request for metrics.
///
/// # Errors
/// [`Unanswered`] at the deadline, where the broker leaves, or where it refuses.
pub(super) fn ask(path: &Path, request: &Request, deadline: Instant) -> Result<Metrics, Unanswered> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).map_err(|_| Unanswered)?;
    let address = UnixAddr::new(path).map_err(|_| Unanswered)?;
    // A full queue of connections is the loop's trouble: the next scrape finds out whether it is over.
    connect(socket.as_raw_fd(), &address).map_err(|_| Unanswered)?;
    let document = serde_json::to_vec(request).map_err(|_| Unanswered)?;
    for packet in packets(&document) {
        retried(&socket, PollFlags::POLLOUT, deadline, || {
            send(socket.as_raw_fd(), &packet, MsgFlags::MSG_NOSIGNAL)
        })?;
    }
    let mut assembler = Assembler::default();
    let mut packet = vec![0; MAX_PACKET];
    loop {
        let length = retried(&socket, PollFlags::POLLIN, deadline, || {
            recv(socket.as_raw_fd(), &mut packet, MsgFlags::empty())
        })?;
        let part = packet.get(..length).filter(|part| !part.is_empty());
        if let Some(document) = assembler.push(part.ok_or(Unanswered)?).map_err(|_| Unanswered)? {
            return serde_json::from_slice(&document).map_err(|_| Unanswered);
        }
    }
}

/// Does it once the socket is ready for it.
fn retried<T>(
    socket: &OwnedFd,
    ready: PollFlags,
    deadline: Instant,
    mut act: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Unanswered> {
    loop {
        match act() {
            Ok(done) => return Ok(done),
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(Unanswered);
                }
                // One millisecond more: rounding down would spin during the last one.
                let timeout = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
                let _ = poll(&mut [PollFd::new(socket.as_fd(), ready)], timeout);
            }
            Err(_) => return Err(Unanswered),
        }
    }
}
