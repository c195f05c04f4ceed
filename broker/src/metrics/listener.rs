// SPDX-License-Identifier: Apache-2.0
//! Accepts connections, reads a head, writes an answer, closes. Nobody keeps a connection.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use tracing::{info, warn};

use super::names::own_names;
use super::request::{LONGEST, Refusal, Rules};
use super::scrape::Scraper;
use crate::config::{Listen, MetricsSettings, read_guarded};

/// Connections at a time; more are turned away.
pub(super) const MOST_CONNECTIONS: usize = 16;
/// So long a connection may take, from its first byte to its last.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// A thread of a connection has no deep calls.
const STACK: usize = 256 * 1024;
/// After an accept that failed: the system may have no descriptor for a while.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens, and answers nobody yet.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    rules: Rules,
    settings: MetricsSettings,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection.
trait Stream: Read + Write + Send {
    fn set_timeout(&self, left: Duration) -> io::Result<()>;
    fn end_writing(&self) -> io::Result<()>;
}

macro_rules! stream {
    ($type:ty) => {
        impl Stream for $type {
            fn set_timeout(&self, left: Duration) -> io::Result<()> {
                self.set_read_timeout(Some(left))?;
                self.set_write_timeout(Some(left))
            }

            fn end_writing(&self) -> io::Result<()> {
                self.shutdown(Shutdown::Write)
            }
        }
    };
}
stream!(TcpStream);
stream!(UnixStream);

impl Listener {
    /// Listens where the settings say; nowhere where they say nothing. What stands in the way is said beside it: it
    /// costs the metrics, never the broker.
    #[must_use]
    pub fn bind(settings: &MetricsSettings) -> (Option<Self>, Option<String>) {
        let Some(at) = &settings.listen else {
            return (None, None);
        };
        match Self::bind_at(at, settings) {
            Ok(listener) => (Some(listener), None),
            Err(why) => {
                let why = format!("metrics are not served at {at}: {why}");
                warn!(why, "no metrics");
                (None, Some(why))
            }
        }
    }

    fn bind_at(at: &Listen, settings: &MetricsSettings) -> Result<Self, String> {
        let token = settings.token_file.as_deref().map(read_token).transpose()?;
        let socket = match at {
            Listen::Tcp(address) => TcpListener::bind(address).map(Socket::Tcp),
            Listen::Unix(path) => listen_at(path).map(Socket::Unix),
        };
        let socket = socket.map_err(|why| match why.kind() {
            io::ErrorKind::AddrInUse => "another program listens there".to_owned(),
            _ => why.to_string(),
        })?;
        let rules = Rules {
            names: own_names(),
            token,
        };
        Ok(Self {
            socket,
            rules,
            settings: settings.clone(),
        })
    }

    /// Serves what the broker at this socket shows, from threads of its own, to the end of the process.
    pub fn start(self, broker: PathBuf) {
        let MetricsSettings {
            labels, most_series, ..
        } = self.settings.clone();
        let scraper = Scraper::new(broker, labels, most_series);
        let thread = std::thread::Builder::new().name("metrics".to_owned());
        if let Err(error) = thread.stack_size(STACK).spawn(move || self.serve(scraper)) {
            warn!(%error, "no metrics");
        }
    }

    fn serve(self, scraper: Scraper) {
        info!(at = ?self.settings.listen, "serves metrics");
        let shared = Arc::new((self.rules, scraper));
        // Each connection holds a copy, until it ends.
        let seats = Arc::new(());
        loop {
            let stream: io::Result<Box<dyn Stream>> = match &self.socket {
                Socket::Tcp(socket) => socket.accept().map(|(stream, _)| Box::new(stream) as Box<dyn Stream>),
                Socket::Unix(socket) => socket.accept().map(|(stream, _)| Box::new(stream) as Box<dyn Stream>),
            };
            let mut stream = match stream {
                Ok(stream) => stream,
                Err(error) => {
                    warn!(%error, "no connection for metrics");
                    std::thread::sleep(PAUSE);
                    continue;
                }
            };
            let (shared, seat) = (Arc::clone(&shared), Arc::clone(&seats));
            if Arc::strong_count(&seats) > MOST_CONNECTIONS + 1 {
                // A short answer lies in the socket's buffer: nobody is waited for.
                let _ = stream.set_timeout(PAUSE);
                let _ = stream.write_all(&refused(Refusal::Busy));
                continue;
            }
            let thread = std::thread::Builder::new().name("metrics".to_owned()).stack_size(STACK);
            // Without a thread the connection is dropped.
            let _ = thread.spawn(move || {
                let _seat = seat;
                let (rules, scraper) = &*shared;
                // Who leaves early is nobody's trouble.
                let _ = answer(stream.as_mut(), rules, scraper);
            });
        }
    }
}

/// Reads a head, and writes the answer.
fn answer(stream: &mut dyn Stream, rules: &Rules, scraper: &Scraper) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let judged = loop {
        if let Some(judged) = rules.judge(&head) {
            break judged;
        }
        let mut piece = [0; 1024];
        let room = (LONGEST - head.len()).min(piece.len());
        let length = timed(stream, deadline)?.read(&mut piece[..room])?;
        if length == 0 {
            return Ok(());
        }
        head.extend_from_slice(&piece[..length]);
    };
    let text = judged.and_then(|()| scraper.text(deadline).map_err(|_| Refusal::Silent));
    let bytes = match text {
        Ok(text) => {
            let head = head_of("200 OK", "text/plain; version=0.0.4; charset=utf-8", text.len(), "");
            [head.as_bytes(), text.as_bytes()].concat()
        }
        Err(refusal) => refused(refusal),
    };
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let length = timed(stream, deadline)?.write(rest)?;
        rest = &rest[length..];
    }
    stream.end_writing()?;
    // What was sent and not read would take the answer with it when the connection closes.
    let mut unread = [0; 1024];
    for _ in 0..LONGEST / unread.len() {
        if timed(stream, deadline)?.read(&mut unread)? == 0 {
            break;
        }
    }
    Ok(())
}

/// The stream, with what is left of its time.
fn timed(stream: &mut dyn Stream, deadline: Instant) -> io::Result<&mut dyn Stream> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    stream.set_timeout(left)?;
    Ok(stream)
}

fn refused(refusal: Refusal) -> Vec<u8> {
    let (status, sentence) = refusal.said();
    let more = match refusal {
        Refusal::Method => "Allow: GET\r\n",
        Refusal::Token => "WWW-Authenticate: Bearer\r\n",
        _ => "",
    };
    let head = head_of(status, "text/plain; charset=utf-8", sentence.len() + 1, more);
    format!("{head}{sentence}\n").into_bytes()
}

fn head_of(status: &str, kind: &str, length: usize, more: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\n{more}Connection: close\r\n\r\n"
    )
}

/// The token, from a file that nobody else may read or change.
fn read_token(path: &Path) -> Result<String, String> {
    let text = read_guarded(path).map_err(|error| error.to_string())?;
    let mode = std::fs::metadata(path).map_or(0, |facts| facts.permissions().mode());
    if mode & 0o077 != 0 {
        return Err(format!(
            "{} has mode {:04o}: others may read the token; chmod 0600 it",
            path.display(),
            mode & 0o7777
        ));
    }
    match text.trim() {
        "" => Err(format!("{} is empty: write a token into it", path.display())),
        token => Ok(token.to_owned()),
    }
}

/// Listens at a path that its group may use. A socket that was left there by a broker that died goes.
fn listen_at(path: &Path) -> io::Result<UnixListener> {
    if is_left(path) {
        std::fs::remove_file(path)?;
    }
    let socket = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(socket)
}

/// Is this a socket that nobody has any more? One of another kind is somebody's, and so is one whose owner is busy: who
/// waited for that one would never start.
fn is_left(path: &Path) -> bool {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let try_it = || -> Result<(), Errno> {
        let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        connect(socket.as_raw_fd(), &UnixAddr::new(path)?)
    };
    let is_socket = path.symlink_metadata().is_ok_and(|facts| facts.file_type().is_socket());
    is_socket && try_it() == Err(Errno::ECONNREFUSED)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use nix::sys::socket::{Backlog, bind, listen};

    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn only_a_socket_that_nobody_has_is_replaced() {
        let folder = Scratch::new("metrics-socket");
        let at = |name: &str| folder.path().join(name);
        drop(UnixListener::bind(at("left")).expect("bound"));
        assert!(listen_at(&at("left")).is_ok());
        // Such as the system's log.
        let log = UnixDatagram::bind(at("log")).expect("bound");
        assert!(listen_at(&at("log")).is_err());
        assert!(at("log").exists(), "it is somebody's");
        drop(log);
        let busy = socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None).expect("a socket");
        bind(busy.as_raw_fd(), &UnixAddr::new(&at("busy")).expect("short")).expect("bound");
        listen(&busy, Backlog::new(0).expect("a number")).expect("it listens");
        let waits = UnixStream::connect(at("busy")).expect("the one that it has room for");
        assert!(listen_at(&at("busy")).is_err(), "and nobody was waited for");
        assert!(at("busy").exists(), "it is somebody's");
        drop(waits);
    }
}
