// SPDX-License-Identifier: Apache-2.0
//! Admission: asking the broker for a place, waiting in its queue, and bearing with a broker that is slow or goes away.

use std::time::{Duration, Instant};

use partage_protocol::admin::{Admitted, JobView, Reply, Request, RunRequest, Waiting};
use partage_protocol::size::format_duration;
use serde_json::json;

use crate::failure::{Failure, Kind, Outcome, holders};
use crate::launch::launch_broker;
use crate::launch::place::Place;
use crate::link::connection::ConnectionError;
use crate::link::{ask, silence};
use crate::show::report::{Report, nanoseconds};

/// A broker that is lost this often, each time within [`QUICK`], is not coming back.
const MOST_LOSSES: u32 = 5;
const QUICK: Duration = Duration::from_secs(1);
/// The broker repeats itself every minute; the same within less is a new broker's first word.
const REPEAT: Duration = Duration::from_secs(50);
/// How much longer than the broker we wait before we call the time ourselves.
const SLACK: Duration = Duration::from_secs(2);
/// A broker that first has to open the driver answers later than any other: NVML has half a minute for that.
const LATEST_ANSWER: Duration = Duration::from_secs(45);
/// Who waits in the queue hears every minute.
const LONGEST_SILENCE: Duration = Duration::from_secs(75);

/// When which waiting line was written last.
type Said = Option<(Instant, String)>;

/// What the broker said in the end.
pub enum Answer {
    /// The job is admitted.
    Admitted(Box<Admitted>),
    /// What a dry run is answered.
    Said(String),
    /// This is inside a container that is this job: COMMAND is of it.
    Inside(Box<JobView>),
}

/// The conversation that makes this process a job.
pub struct Admission<'a> {
    /// Where the broker is.
    pub place: &'a Place,
    /// Where waiting is said.
    pub report: &'a Report,
    /// `-q`.
    pub is_quiet: bool,
    /// `--wait-timeout` as asked.
    pub longest_ns: Option<u64>,
}

impl Admission<'_> {
    /// Asks until there is an answer; a broker that dies meanwhile is replaced without a word.
    /// Answers how long it waited, in nanoseconds, where it did.
    ///
    /// # Errors
    /// The broker refuses, does not answer, or has no room in time.
    pub fn ask(&self, request: &RunRequest) -> Outcome<(Answer, Option<u64>)> {
        let mut request = request.clone();
        let began = Instant::now();
        let mut losses = 0;
        let mut said = None;
        loop {
            let asked = Instant::now();
            if let Some(longest) = request.wait_timeout_ns {
                // What an earlier broker kept us waiting counts.
                let left = Duration::from_nanos(longest).saturating_sub(began.elapsed());
                request.wait_timeout_ns = Some(nanoseconds(left));
            }
            let lost = match self.converse(&request, &mut said)? {
                Ok(answer) => {
                    let waited = nanoseconds(began.elapsed());
                    return Ok((answer, said.map(|_| waited)));
                }
                Err(lost) => lost,
            };
            losses = if asked.elapsed() < QUICK { losses + 1 } else { 1 };
            if losses == MOST_LOSSES {
                return Err(lost.into_failure(&self.place.dir));
            }
        }
    }

    /// One conversation; the inner error is a broker that went away.
    fn converse(&self, request: &RunRequest, said: &mut Said) -> Outcome<Result<Answer, ConnectionError>> {
        let fail = |error: ConnectionError| error.into_failure(&self.place.dir);
        let began = Instant::now();
        let mut connection = launch_broker::reach(self.place)?;
        match connection.say(&Request::Run(Box::new(request.clone()))) {
            Ok(()) => {}
            Err(ConnectionError::Ended) => return Ok(Err(ConnectionError::Ended)),
            Err(other) => return Err(fail(other)),
        }
        let longest = request.wait_timeout_ns.map(Duration::from_nanos);
        let deadline = longest.and_then(|longest| began.checked_add(longest)?.checked_add(SLACK));
        let mut silence = Silence::begin();
        loop {
            let check_at = silence.deadline();
            match connection.hear(Some(deadline.map_or(check_at, |deadline| deadline.min(check_at)))) {
                Ok(Reply::Waiting(waiting)) if request.dry_run => {
                    return Ok(Ok(Answer::Said(format!("would wait: {}", wait_text(&waiting)))));
                }
                Ok(Reply::Waiting(waiting)) => {
                    silence.broken();
                    self.say_waiting(&waiting, said);
                }
                Ok(Reply::Admitted(admitted)) => return Ok(Ok(Answer::Admitted(Box::new(admitted)))),
                Ok(Reply::Inside(job)) => return Ok(Ok(Answer::Inside(job))),
                Ok(Reply::Done { message }) if request.dry_run => return Ok(Ok(Answer::Said(message))),
                Ok(Reply::Error(error)) => return Err(error.into()),
                Ok(other) => return Err(fail(ConnectionError::Unreadable(format!("{other:?}")))),
                Err(ConnectionError::Ended) => return Ok(Err(ConnectionError::Ended)),
                Err(ConnectionError::Late(_)) if deadline.is_none_or(|deadline| Instant::now() < deadline) => {
                    self.check_broker(&mut silence)?;
                }
                Err(ConnectionError::Late(_)) => {
                    let longest = format_duration(self.longest_ns.unwrap_or_default());
                    let message = format!("no room within {longest} (--wait-timeout)");
                    return Err(Failure::new(Kind::NoRoom, message).hint("see who holds it: partage status"));
                }
                Err(other) => return Err(fail(other)),
            }
        }
    }

    /// The broker was silent for longer than one that works: does it answer anybody? Who waits in the queue is told and
    /// waits on; who never had an answer gives up.
    fn check_broker(&self, silence: &mut Silence) -> Outcome<()> {
        silence.checked_at = Instant::now();
        match ask::status(self.place) {
            Err(failure) if silence.has_spoken => self.say_silence(&failure.sentence()),
            Err(failure) => return Err(failure),
            Ok(_) if silence.has_spoken => {}
            Ok(status) if silence.since.elapsed() >= LATEST_ANSWER => {
                let message = format!(
                    "the broker at {} (pid {}) did not say within {} s whether there is room; its driver: {}",
                    self.place.dir.display(),
                    status.broker.pid,
                    LATEST_ANSWER.as_secs(),
                    status.broker.driver
                );
                return Err(Failure::new(Kind::NoAnswer, message).hint("see: partage doctor"));
            }
            Ok(_) => self.say_silence("the broker is looking for the GPUs; the driver takes its time"),
        }
        Ok(())
    }

    fn say_silence(&self, text: &str) {
        if !self.is_quiet {
            self.report.say(text);
        }
    }

    /// Passes on what the broker says at once and every minute; a second broker's first word may repeat the first's
    /// last.
    fn say_waiting(&self, waiting: &Waiting, said: &mut Said) {
        if self.report.is_json {
            self.report.document("waiting", json!({ "waiting": waiting }));
        }
        let text = wait_text(waiting);
        let is_repeated = said
            .as_ref()
            .is_some_and(|(at, last)| *last == text && at.elapsed() < REPEAT);
        if !self.is_quiet && !is_repeated {
            self.report.say(&format!("waiting: {text}"));
            *said = Some((Instant::now(), text));
        }
    }
}

/// How long the broker has said nothing to a `run`.
struct Silence {
    since: Instant,
    checked_at: Instant,
    /// It said that the job waits.
    has_spoken: bool,
}

impl Silence {
    fn begin() -> Self {
        let now = Instant::now();
        Self {
            since: now,
            checked_at: now,
            has_spoken: false,
        }
    }

    /// When to look whether the broker answers anybody.
    fn deadline(&self) -> Instant {
        let patience = if self.has_spoken {
            LONGEST_SILENCE
        } else {
            silence::PATIENCE
        };
        self.checked_at + patience
    }

    fn broken(&mut self) {
        *self = Self::begin();
        self.has_spoken = true;
    }
}

/// What is waited for, in a line.
pub fn wait_text(waiting: &Waiting) -> String {
    let mut text = format!("{} (place {} in the queue)", waiting.reason, waiting.position);
    if !waiting.holders.is_empty() {
        text.push_str("; held by ");
        text.push_str(&holders(&waiting.holders));
    }
    text
}
