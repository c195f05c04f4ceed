// SPDX-License-Identifier: Apache-2.0
//! A helper's socket: one JSON line for each request and each answer, one request at a time, each with a deadline.
//!
//! ```text
//!   idle ── ask ──► under way ── answer, finish ──► idle
//!                       │ is_late, or an error: the owner ends the helper
//! ```

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest line a helper may send: thousands of processes fit.
pub const LONGEST_LINE: usize = 4 << 20;

/// Why no answer will come from this helper.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// Its end of the socket is closed.
    #[error("helper ended")]
    Ended,
    /// Its line is longer than [`LONGEST_LINE`].
    #[error("helper talks without end")]
    Endless,
    /// A line is no answer.
    #[error("helper said nonsense: {0}")]
    Nonsense(serde_json::Error),
    /// The socket failed.
    #[error("{0}")]
    System(std::io::Error),
}

/// A request that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<Q> {
    /// What was asked.
    pub what: Q,
    /// When.
    pub asked_ns: u64,
    /// When the owner stops waiting for the answer.
    pub deadline_ns: u64,
}

/// The broker's end of a helper's socket.
#[derive(Debug)]
pub struct Channel<Q> {
    socket: UnixStream,
    unread: Vec<u8>,
    request: Option<Request<Q>>,
}

impl<Q: Clone + Serialize> Channel<Q> {
    /// A channel with nothing under way.
    ///
    /// # Errors
    /// The system's, when the socket cannot be made to answer at once.
    pub fn new(socket: UnixStream) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            unread: Vec::new(),
            request: None,
        })
    }

    /// Sends a request whose answer is awaited for `patience_ns`.
    pub fn ask(&mut self, what: Q, now_ns: u64, patience_ns: u64) {
        let mut line = serde_json::to_vec(&what).unwrap_or_default();
        line.push(b'\n');
        // One short request at a time fits the socket's buffer; a write that fails is a helper that is gone, which the
        // next read or the deadline finds.
        let _ = self.socket.write_all(&line);
        self.request = Some(Request {
            what,
            asked_ns: now_ns,
            deadline_ns: now_ns + patience_ns,
        });
    }

    /// The request that is under way.
    #[must_use]
    pub fn request(&self) -> Option<&Request<Q>> {
        self.request.as_ref()
    }

    /// Is the deadline of the request that is under way over?
    #[must_use]
    pub fn is_late(&self, now_ns: u64) -> bool {
        self.request
            .as_ref()
            .is_some_and(|request| now_ns >= request.deadline_ns)
    }

    /// The request is answered, or given up. Answers the request.
    pub fn finish(&mut self) -> Option<Request<Q>> {
        self.request.take()
    }

    /// The next whole answer; `None` while none has come.
    ///
    /// # Errors
    /// [`ChannelError`] when the helper is gone or talks nonsense.
    pub fn answer<A: DeserializeOwned>(&mut self) -> Result<Option<A>, ChannelError> {
        let mut buffer = [0; 65536];
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return serde_json::from_slice(&line).map(Some).map_err(ChannelError::Nonsense);
            }
            match self.socket.read(&mut buffer) {
                Ok(0) => return Err(ChannelError::Ended),
                Ok(count) if self.unread.len() + count > LONGEST_LINE => return Err(ChannelError::Endless),
                Ok(count) => self.unread.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ChannelError::System(error)),
            }
        }
    }
}

impl<Q> AsFd for Channel<Q> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The helper's side: answers the requests on standard input, which is a socket, until its other end closes.
pub fn serve<Q: DeserializeOwned, A: Serialize>(answer: impl FnMut(Q) -> A) {
    // The broker may die without closing anything while a call hangs here.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    // SAFETY: descriptor 0 is the socket that the broker gave this process as its standard input; std's own handle for
    // it is never used here.
    let socket = UnixStream::from(unsafe { OwnedFd::from_raw_fd(0) });
    serve_at(socket, answer);
}

/// As [`serve`], at any socket. A line that is no request ends it.
pub fn serve_at<Q: DeserializeOwned, A: Serialize>(socket: UnixStream, mut answer: impl FnMut(Q) -> A) {
    let Ok(reader) = socket.try_clone() else { return };
    let mut writer = socket;
    for line in BufReader::new(reader).lines() {
        let Ok(line) = line else { return };
        let Ok(request) = serde_json::from_str::<Q>(&line) else {
            return;
        };
        let Ok(mut text) = serde_json::to_vec(&answer(request)) else {
            return;
        };
        text.push(b'\n');
        if writer.write_all(&text).is_err() {
            return;
        }
    }
}
