// SPDX-License-Identifier: Apache-2.0
//! One text for everybody who asks within a short time, made of what the broker shows an administrator.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
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
    /// One scrape at a time.
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    text: Option<(Instant, Arc<str>)>,
    /// Series that were summed so far.
    dropped: u64,
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
        }
    }

    /// What is shown now.
    ///
    /// # Errors
    /// The broker does not answer before the deadline.
    pub fn text(&self, deadline: Instant) -> Result<Arc<str>, Unanswered> {
        // A thread that panics ends the broker: nothing is half written here.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, text)) = &last.text
            && at.elapsed() < FRESH
        {
            return Ok(Arc::clone(text));
        }
        let asked = Request::Metrics(MetricsRequest {
            labels: self.labels.iter().map(|label| label.word().to_owned()).collect(),
            most_series: Some(self.most_series as u64),
            dropped_before: last.dropped,
        });
        let made = ask(&self.socket, &asked, deadline)?;
        last.dropped = last.dropped.saturating_add(made.dropped);
        let text: Arc<str> = made.text.into();
        last.text = Some((Instant::now(), Arc::clone(&text)));
        Ok(text)
    }
}
