// SPDX-License-Identifier: Apache-2.0
//! `partage stop`: ends jobs, after a grace.

use std::time::{Duration, Instant};

use partage_protocol::admin::{ErrorView, Reply, Request};
use partage_protocol::size::{format_duration, parse_duration};
use serde_json::json;

use crate::arguments::Stop;
use crate::failure::{Failure, Kind, Outcome};
use crate::launch::launch_broker;
use crate::launch::place::{Place, Rule};
use crate::link::ask::{self, unexpected};
use crate::link::connection::{Connection, ConnectionError};
use crate::link::silence::PATIENCE;
use crate::show::report::Report;

/// `partage stop`.
pub fn stop(arguments: &Stop, place: &Place, report: &Report) -> Outcome<u8> {
    let grace_ns = parse_duration(&arguments.grace).map_err(|e| Failure::invalid(format!("--grace: {e}")))?;
    let targets = if arguments.all {
        own_jobs(place)?
    } else {
        arguments.targets.clone()
    };
    // The broker may answer only when the job is gone: all are asked before the first answer is awaited.
    let patience = PATIENCE.saturating_add(Duration::from_nanos(grace_ns));
    let fail = |error: ConnectionError| error.into_failure(&place.dir);
    let begin = |target: &String| {
        let connection = launch_broker::meet(place)?;
        let target = target.clone();
        connection.say(&Request::Stop { target, grace_ns }).map_err(fail)?;
        Ok(connection)
    };
    let begun: Vec<Outcome<Connection>> = targets.iter().map(begin).collect();
    let deadline = Instant::now() + patience;
    let mut messages = Vec::new();
    let mut failures = Vec::new();
    for (target, connection) in targets.iter().zip(begun) {
        let answer = connection.and_then(|mut connection| connection.hear(Some(deadline)).map_err(fail));
        match answer {
            Ok(Reply::Done { message }) => messages.push(message),
            Ok(Reply::Error(error)) => failures.push(refused(target, error)),
            Ok(other) => failures.push(unexpected(place, &other)),
            Err(failure) => failures.push(failure),
        }
    }
    if arguments.all && targets.is_empty() {
        messages.push("no jobs".to_owned());
    }
    if !messages.is_empty() {
        let message = messages.join("; ");
        let body = json!({ "message": message, "grace": format_duration(grace_ns), "grace_ns": grace_ns });
        report.data("done", body, |style| {
            messages.iter().map(|message| style.text(message) + "\n").collect()
        });
    }
    let mut failures = failures.into_iter();
    let Some(first) = failures.next() else { return Ok(0) };
    for other in failures {
        report.say(&other.sentence());
    }
    Err(first)
}

/// A refusal to stop; of several jobs of the caller, `--all` is likely what was meant.
fn refused(target: &str, error: ErrorView) -> Failure {
    let failure = Failure::from(error);
    let is_own = |user: &str| {
        let me = nix::unistd::User::from_uid(nix::unistd::Uid::effective());
        me.is_ok_and(|me| me.is_some_and(|me| me.name == user))
    };
    if failure.kind == Kind::Ambiguous && target.strip_prefix('@').is_some_and(is_own) {
        return failure.hint("name one by its id, or all of your own: partage stop --all");
    }
    failure
}

/// The caller's own jobs that have not ended.
fn own_jobs(place: &Place) -> Outcome<Vec<String>> {
    match ask::jobs(place, false) {
        Ok((jobs, _)) => {
            let me = nix::unistd::Uid::effective().as_raw();
            Ok(jobs
                .into_iter()
                .filter(|job| job.uid == me)
                .map(|job| job.job)
                .collect())
        }
        Err(failure) if failure.kind == Kind::NoBroker && place.rule == Rule::Private => Ok(Vec::new()),
        Err(failure) => Err(failure),
    }
}
