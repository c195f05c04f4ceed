// SPDX-License-Identifier: Apache-2.0
//! The broker's words, once a second, and its answers to keys. Threads of their own ask: a broker that does not answer
//! holds up no key.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use nix::sys::eventfd::EventFd;
use partage_protocol::admin::{Reply, Request};

use crate::commands::set;
use crate::failure::Outcome;
use crate::launch::launch_broker;
use crate::launch::place::Place;
use crate::link::{ask, commands};
use crate::top::state::Shot;
use crate::top::state::mode::{Ask, Verb};

/// Between two questions.
pub const PERIOD: Duration = Duration::from_secs(1);
/// Between the two signals of `stop`, in nanoseconds: what `partage stop` has.
const GRACE_NS: u64 = 10_000_000_000;

/// Something to show.
#[derive(Debug)]
pub enum News {
    /// What the broker says, or why nobody does.
    Shot(Box<Outcome<Shot>>),
    /// What became of a key.
    Answer(Ask, Outcome<Answer>),
}

/// What the broker answered to a key.
#[derive(Debug)]
pub enum Answer {
    /// A sentence.
    Done(String),
    /// What `why` says.
    Why(Vec<String>),
}

/// Asks; keeps the commands that the kernel told, which do not change.
pub struct Source {
    place: Place,
    commands: HashMap<String, Vec<String>>,
}

impl Source {
    /// Of the broker there.
    pub fn new(place: &Place) -> Self {
        Self {
            place: place.clone(),
            commands: HashMap::new(),
        }
    }

    /// What it says now.
    ///
    /// # Errors
    /// Nobody answers, or not to this caller.
    pub fn shoot(&mut self) -> Outcome<Shot> {
        let status = ask::status(&self.place)?;
        let (mut jobs, unmanaged) = ask::jobs(&self.place, false)?;
        for job in jobs.iter_mut().filter(|job| job.command.is_empty()) {
            if let Some(command) = self.commands.get(&job.job) {
                job.command.clone_from(command);
            }
        }
        let is_new = |job: &partage_protocol::admin::JobView| !self.commands.contains_key(&job.job);
        if jobs.iter().any(is_new) {
            commands::fill(&self.place, &mut jobs);
            self.commands = jobs.iter().map(|job| (job.job.clone(), job.command.clone())).collect();
        }
        Ok(Shot {
            status,
            jobs,
            unmanaged,
        })
    }
}

/// Where news go, and what wakes who waits for them.
#[derive(Clone)]
pub struct Mailbox {
    news: Sender<News>,
    wake: Arc<EventFd>,
}

impl Mailbox {
    /// Into this channel, with this bell.
    pub fn new(news: Sender<News>, wake: Arc<EventFd>) -> Self {
        Self { news, wake }
    }

    /// False once nobody reads them any more.
    fn put(&self, news: News) -> bool {
        self.news.send(news).is_ok() && self.wake.write(1).is_ok()
    }
}

/// Asks every second, for as long as somebody reads.
pub fn begin(place: &Place, mailbox: Mailbox) {
    let mut source = Source::new(place);
    std::thread::spawn(move || {
        loop {
            let began = Instant::now();
            if !mailbox.put(News::Shot(Box::new(source.shoot()))) {
                return;
            }
            std::thread::sleep(PERIOD.saturating_sub(began.elapsed()));
        }
    });
}

/// Asks for what a key means. The broker judges who may.
pub fn perform(place: &Place, asked: Ask, mailbox: Mailbox) {
    let place = place.clone();
    std::thread::spawn(move || {
        let answer = answer(&place, &asked);
        mailbox.put(News::Answer(asked, answer));
    });
}

fn answer(place: &Place, asked: &Ask) -> Outcome<Answer> {
    let request = request(asked)?;
    let fail = |error: crate::link::connection::ConnectionError| error.into_failure(&place.dir);
    let mut connection = launch_broker::meet(place)?;
    connection.say(&request).map_err(fail)?;
    loop {
        // How long a driver takes depends on the bytes, and the broker gives up by itself.
        match connection.hear(None).map_err(fail)? {
            Reply::Waiting(_) => {}
            Reply::Done { message } => return Ok(Answer::Done(message)),
            Reply::Job(job) => return Ok(Answer::Done(set::set_text(&job).trim_end().replace('\n', "; "))),
            Reply::Why(why) => return Ok(Answer::Why(why.sentences)),
            Reply::Error(error) => return Err(error.into()),
            other => return Err(ask::unexpected(place, &other)),
        }
    }
}

fn request(asked: &Ask) -> Outcome<Request> {
    let target = asked.job.clone();
    Ok(match &asked.verb {
        Verb::Why => Request::Why { target },
        Verb::Set(settings) => {
            let settings: Vec<String> = settings.split_whitespace().map(str::to_owned).collect();
            set::request(&target, &settings, false)?
        }
        Verb::Suspend => Request::Suspend {
            target,
            drain_timeout_ns: None,
        },
        // A place in the queue would be lost with the window.
        Verb::Resume => Request::Resume {
            target,
            wait: false,
            wait_timeout_ns: None,
        },
        Verb::Stop => Request::Stop {
            target,
            grace_ns: GRACE_NS,
        },
    })
}
