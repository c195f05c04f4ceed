// SPDX-License-Identifier: Apache-2.0
//! One question to the broker that listens, and its answer.

use std::time::Instant;

use partage_protocol::admin::{ConfigView, JobView, Reply, Request, StatusView, UnmanagedView};

use crate::failure::{Failure, Outcome};
use crate::launch::launch_broker;
use crate::launch::place::{Place, Rule};
use crate::link::connection::{Connection, ConnectionError};
use crate::link::silence::PATIENCE;

/// One request and its answer from the broker that listens.
///
/// # Errors
/// No broker, no answer in time, or the broker's refusal.
pub fn ask(place: &Place, request: &Request) -> Outcome<Reply> {
    converse(launch_broker::meet(place)?, place, request)
}

/// [`ask`] about jobs that may have ended: a private broker that has left is started again where it left a record of
/// some. Where there is none, looking makes nothing.
///
/// # Errors
/// As [`ask`].
pub fn ask_remembering(place: &Place, request: &Request) -> Outcome<Reply> {
    converse(remembering(place)?, place, request)
}

fn remembering(place: &Place) -> Outcome<Connection> {
    let remembers = place.rule == Rule::Private && place.dir.join("state/ended.jsonl").exists();
    if remembers {
        launch_broker::reach(place)
    } else {
        launch_broker::meet(place)
    }
}

/// [`ask`] over this connection.
///
/// # Errors
/// No answer in time, or the broker's refusal.
pub fn converse(mut connection: Connection, place: &Place, request: &Request) -> Outcome<Reply> {
    let fail = |error: ConnectionError| error.into_failure(&place.dir);
    connection.say(request).map_err(fail)?;
    match connection.hear(Some(Instant::now() + PATIENCE)).map_err(fail)? {
        Reply::Error(error) => Err(error.into()),
        reply => Ok(reply),
    }
}

/// What the broker says of itself and its devices.
///
/// # Errors
/// No broker, or none that answers.
pub fn status(place: &Place) -> Outcome<StatusView> {
    match ask(place, &Request::Status)? {
        Reply::Status(status) => Ok(status),
        other => Err(unexpected(place, &other)),
    }
}

/// The configuration and rules that hold, for `target` where one is named.
///
/// # Errors
/// As [`ask`].
pub fn config(place: &Place, target: Option<String>) -> Outcome<ConfigView> {
    match ask(place, &Request::ShowConfig { target })? {
        Reply::Config(view) => Ok(view),
        other => Err(unexpected(place, &other)),
    }
}

/// Makes the broker read its configuration again; answers what it says of that.
///
/// # Errors
/// As [`ask`].
pub fn reload(place: &Place) -> Outcome<String> {
    match ask(place, &Request::ReloadConfig)? {
        Reply::Done { message } => Ok(message),
        other => Err(unexpected(place, &other)),
    }
}

/// The one job that the answer to `request` shows.
///
/// # Errors
/// As [`ask`].
pub fn job(place: &Place, request: &Request) -> Outcome<JobView> {
    match ask(place, request)? {
        Reply::Job(job) => Ok(job),
        other => Err(unexpected(place, &other)),
    }
}

/// The jobs, page by page, with `all` those that ended too; and the processes of no job.
///
/// # Errors
/// As [`ask`].
pub fn jobs(place: &Place, all: bool) -> Outcome<(Vec<JobView>, Vec<UnmanagedView>)> {
    let (mut jobs, mut unmanaged): (Vec<JobView>, Vec<UnmanagedView>) = (Vec::new(), Vec::new());
    loop {
        let after = jobs.last().map(|job| job.job.clone());
        let request = Request::Ps {
            all,
            after: after.clone(),
        };
        let mut connection = if all {
            remembering(place)?
        } else {
            launch_broker::meet(place)?
        };
        let fail = |error: ConnectionError| error.into_failure(&place.dir);
        connection.say(&request).map_err(fail)?;
        let page = match connection.hear_page(Some(Instant::now() + PATIENCE)).map_err(fail)? {
            Ok(page) => page,
            Err(Reply::Error(error)) => return Err(error.into()),
            Err(other) => return Err(unexpected(place, &other)),
        };
        // A page that leads nowhere is the last one.
        let more = page.more && page.jobs.last().is_some_and(|last| after.as_ref() != Some(&last.job));
        jobs.extend(page.jobs);
        unmanaged.extend(page.unmanaged);
        if !more {
            return Ok((jobs, unmanaged));
        }
    }
}

/// A reply that answers another question.
pub fn unexpected(place: &Place, reply: &Reply) -> Failure {
    ConnectionError::Unreadable(format!("{reply:?}")).into_failure(&place.dir)
}
