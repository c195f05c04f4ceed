// SPDX-License-Identifier: Apache-2.0
//! One question to the broker that listens, and its answer.

use std::time::{Duration, Instant};

use partage_protocol::admin::{JobView, Reply, Request, StatusView, UnmanagedView};

use crate::failure::{Failure, Outcome};
use crate::launch::launch_broker;
use crate::launch::place::{Place, Rule};
use crate::link::connection::{Connection, ConnectionError};
use crate::link::silence::PATIENCE;

/// One request and its answer from the broker that listens.
///
/// # Errors
/// No broker, no answer within `patience`, or the broker's refusal.
pub fn ask(place: &Place, request: &Request, patience: Duration) -> Outcome<Reply> {
    converse(launch_broker::meet(place)?, place, request, patience)
}

/// [`ask`] about jobs that may have ended: a private broker that has left is started again where it left a record of
/// some. Where there is none, looking makes nothing.
///
/// # Errors
/// As [`ask`].
pub fn ask_remembering(place: &Place, request: &Request, patience: Duration) -> Outcome<Reply> {
    let remembers = place.rule == Rule::Private && place.dir.join("state/ended.jsonl").exists();
    let connection = if remembers {
        launch_broker::reach(place)?
    } else {
        launch_broker::meet(place)?
    };
    converse(connection, place, request, patience)
}

fn converse(mut connection: Connection, place: &Place, request: &Request, patience: Duration) -> Outcome<Reply> {
    let fail = |error: ConnectionError| error.into_failure(&place.dir);
    connection.say(request).map_err(fail)?;
    match connection.hear(Some(Instant::now() + patience)).map_err(fail)? {
        Reply::Error(error) => Err(error.into()),
        reply => Ok(reply),
    }
}

/// What the broker says of itself and its devices.
///
/// # Errors
/// No broker, or none that answers.
pub fn status(place: &Place) -> Outcome<StatusView> {
    match ask(place, &Request::Status, PATIENCE)? {
        Reply::Status(status) => Ok(status),
        other => Err(unexpected(place, &other)),
    }
}

/// The one job that the answer to `request` shows.
///
/// # Errors
/// As [`ask`].
pub fn job(place: &Place, request: &Request) -> Outcome<JobView> {
    match ask(place, request, PATIENCE)? {
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
        let reply = if all {
            ask_remembering(place, &request, PATIENCE)
        } else {
            ask(place, &request, PATIENCE)
        };
        match reply? {
            Reply::Ps {
                jobs: page,
                unmanaged: others,
                more,
            } => {
                // A page that leads nowhere is the last one.
                let more = more && page.last().is_some_and(|last| after.as_ref() != Some(&last.job));
                jobs.extend(page);
                unmanaged.extend(others);
                if !more {
                    return Ok((jobs, unmanaged));
                }
            }
            other => return Err(unexpected(place, &other)),
        }
    }
}

/// A reply that answers another question.
pub fn unexpected(place: &Place, reply: &Reply) -> Failure {
    ConnectionError::Unreadable(format!("{reply:?}")).into_failure(&place.dir)
}
