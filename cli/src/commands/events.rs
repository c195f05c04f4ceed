// SPDX-License-Identifier: Apache-2.0
//! `partage events`: what happened, and with `-f` what happens.

use std::time::Instant;

use partage_protocol::admin::{EventView, Reply, Request};
use partage_protocol::size::parse_duration;
use serde_json::json;

use crate::arguments::Events;
use crate::commands::audit;
use crate::failure::{Failure, Outcome};
use crate::launch::launch_broker;
use crate::launch::place::Place;
use crate::link::ask;
use crate::link::connection::ConnectionError;
use crate::link::idle;
use crate::link::silence::PATIENCE;
use crate::show::report::{Report, moment, now_ns, timestamp};
use crate::show::tables::described;
use crate::show::terminal::Style;

/// `partage events`: one line, or one JSON document, each.
pub fn events(arguments: &Events, place: &Place, report: &Report) -> Outcome<u8> {
    let since = arguments.since.as_deref().map(parse_duration).transpose();
    let since = since.map_err(|why| Failure::invalid(format!("--since: {why}")))?;
    let from_ns = since.map_or(0, |since| now_ns().saturating_sub(since));
    if arguments.audit {
        return audit::audit(place, from_ns, report);
    }
    if arguments.follow {
        // The first event may be long in coming; whether anybody will tell of it is known at once.
        ask::status(place)?;
    }
    let mut connection = match launch_broker::meet(place) {
        Ok(connection) => connection,
        Err(failure) => {
            let idle = idle::without_broker(place, failure)?;
            report.say(&format!("no events: {idle}"));
            return Ok(0);
        }
    };
    let fail = |error: ConnectionError| error.into_failure(&place.dir);
    connection
        .say(&Request::Events {
            follow: arguments.follow,
        })
        .map_err(fail)?;
    loop {
        let deadline = (!arguments.follow).then(|| Instant::now() + PATIENCE);
        match connection.hear(deadline) {
            Ok(Reply::Event(event)) if event.time_ns < from_ns => {}
            Ok(Reply::Event(event)) => {
                let time = moment(event.time_ns);
                report.data_at(time, "event", json!({ "event": event }), |style| line(style, &event));
            }
            Ok(Reply::Done { .. }) => return Ok(0),
            Ok(Reply::Error(error)) => return Err(error.into()),
            Ok(other) => return Err(ask::unexpected(place, &other)),
            // A broker that leaves ends the story; without -f it should have said so.
            Err(ConnectionError::Ended) if arguments.follow => return Ok(0),
            Err(other) => return Err(fail(other)),
        }
    }
}

/// The sentence usually names job and process; where it does not, they come first.
fn line(style: &Style, event: &EventView) -> String {
    let mut text = event.text.clone();
    if let Some(pid) = event
        .pid
        .map(|pid| pid.to_string())
        .filter(|pid| !text.contains(pid.as_str()))
    {
        text = format!("pid {pid} {text}");
    }
    if let Some(job) = event.job.as_ref().filter(|job| !text.contains(job.as_str())) {
        text = format!("{job} {text}");
    }
    let time = timestamp(moment(event.time_ns));
    let said = style.text(&format!("{:<16} {text}", event.kind));
    described(style, &format!("{time} "), time.len() + 1, &said)
}
