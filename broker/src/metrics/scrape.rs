// SPDX-License-Identifier: Apache-2.0
//! One text for everybody who asks within a short time, made of what the broker shows an administrator.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use partage_metrics::JobLabel;
use partage_protocol::admin::{MetricsRequest, Request};

use super::ask::{Unanswered, ask};

/// A text is new enough for so long: a thousand scrapes cost two a second.
const FRESH: Duration = Duration::from_millis(500);

/// Makes the text.
#[derive(Debug)]
pub struct Scraper {
    /// The broker's own socket for administrators.
    socket: PathBuf,
    labels: Vec<JobLabel>,
    most_series: usize,
    last: Mutex<Last>,
    /// Nobody asks the broker any more.
    answered: Condvar,
}

#[derive(Debug, Default)]
struct Last {
    text: Option<(Instant, Arc<str>)>,
    /// Series that were summed so far.
    dropped: u64,
    /// Somebody asks the broker: one at a time.
    is_asked: bool,
}

impl Scraper {
    /// Of the broker at this socket.
    #[must_use]
    pub fn new(socket: PathBuf, labels: Vec<JobLabel>, most_series: usize) -> Self {
        Self {
            socket,
            labels,
            most_series,
            last: Mutex::default(),
            answered: Condvar::new(),
        }
    }

    /// What is shown now.
    ///
    /// # Errors
    /// The broker does not answer before the deadline.
    pub fn text(&self, deadline: Instant) -> Result<Arc<str>, Unanswered> {
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self
            .answered
            .wait_timeout_while(self.last(), left, |last| last.is_asked);
        let (mut last, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if last.is_asked {
            // Whoever asks may wait for longer than this one.
            return Err(Unanswered);
        }
        if let Some((at, text)) = &last.text
            && at.elapsed() < FRESH
        {
            return Ok(Arc::clone(text));
        }
        last.is_asked = true;
        let asked = Request::Metrics(MetricsRequest {
            labels: self.labels.iter().map(|label| label.word().to_owned()).collect(),
            most_series: Some(self.most_series as u64),
            dropped_before: last.dropped,
        });
        drop(last);
        let made = ask(&self.socket, &asked, deadline);
        let mut last = self.last();
        last.is_asked = false;
        self.answered.notify_all();
        let made = made?;
        last.dropped = last.dropped.saturating_add(made.dropped);
        let text: Arc<str> = made.text.into();
        last.text = Some((Instant::now(), Arc::clone(&text)));
        Ok(text)
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        // A thread that panics ends the broker: nothing is half written here.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};

    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn nobody_waits_beyond_its_own_time_for_who_asked_before() {
        let folder = Scratch::new("metrics-silent");
        let path = folder.path().join("admin.sock");
        let silent = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::empty(), None).expect("a socket");
        bind(silent.as_raw_fd(), &UnixAddr::new(&path).expect("short")).expect("bound");
        listen(&silent, Backlog::new(4).expect("a number")).expect("it listens");
        let scraper = Scraper::new(path, Vec::new(), 1);
        let after = |time| Instant::now() + time;
        std::thread::scope(|scope| {
            let first = scope.spawn(|| scraper.text(after(Duration::from_secs(600))));
            while !scraper.last().is_asked {
                std::thread::yield_now();
            }
            assert_eq!(scraper.text(after(Duration::from_millis(1))), Err(Unanswered));
            assert!(!first.is_finished(), "it waits still");
            // The broker is gone, and whoever waits hears it.
            drop(silent);
            assert_eq!(first.join().expect("no panic"), Err(Unanswered));
        });
    }
}
