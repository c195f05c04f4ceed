// SPDX-License-Identifier: Apache-2.0
//! `partage events`: what happened, and with `-f` what happens.

use nix::unistd::User;
use partage_protocol::admin::{EVENT_KINDS, EventView, EventsRequest, Reply, Request, event_kind};
use partage_protocol::size::parse_duration;
use partage_protocol::units::SECOND_NS;
use serde_json::json;

use crate::arguments::Events;
use crate::commands::audit;
use crate::failure::{Failure, Outcome};
use crate::launch::launch_broker;
use crate::launch::place::Place;
use crate::link::ask;
use crate::link::connection::ConnectionError;
use crate::link::idle;
use crate::mistakes::nearest;
use crate::show::report::{Report, moment, now_ns, timestamp};
use crate::show::tables::described;
use crate::show::terminal::Style;

/// Without `--since`, so long ago at most.
const USUAL_NS: u64 = 24 * 3600 * SECOND_NS;

/// `partage events`: one line, or one JSON document, each.
pub fn events(arguments: &Events, place: &Place, report: &Report) -> Outcome<u8> {
    let now_ns = now_ns();
    let since_ns = moment_before("--since", arguments.since.as_deref(), now_ns)?;
    if arguments.audit {
        return audit::audit(place, since_ns.unwrap_or(0), report);
    }
    // Who goes on from a number wants all after it.
    let usual = arguments.after.is_none().then(|| now_ns.saturating_sub(USUAL_NS));
    let mut request = EventsRequest {
        follow: false,
        after: arguments.after,
        since_ns: since_ns.or(usual),
        until_ns: moment_before("--until", arguments.until.as_deref(), now_ns)?,
        uid: arguments.user.as_deref().map(uid_of).transpose()?,
        job: arguments.job.clone(),
        kinds: kinds(&arguments.kinds)?,
    };
    loop {
        let (page, more) = match ask::ask(place, &Request::Events(request.clone())) {
            Ok(Reply::Events { events, more }) => (events, more),
            Ok(other) => return Err(ask::unexpected(place, &other)),
            Err(failure) if request.after == arguments.after => {
                let idle = idle::without_broker(place, failure)?;
                report.say(&format!("no events: {idle}"));
                return Ok(0);
            }
            Err(failure) => return Err(failure),
        };
        page.iter().for_each(|event| show(event, report));
        // A page that leads nowhere is the last one.
        let Some(more) = more.filter(|more| Some(*more) > request.after) else {
            request.after = page.last().map(|event| event.number).max(request.after);
            break;
        };
        request.after = Some(more);
    }
    match arguments.follow {
        true => follow(request, place, report),
        false => Ok(0),
    }
}

/// Each new event until the broker leaves, and those since the last page.
fn follow(request: EventsRequest, place: &Place, report: &Report) -> Outcome<u8> {
    let mut connection = launch_broker::meet(place)?;
    let fail = |error: ConnectionError| error.into_failure(&place.dir);
    let asked = EventsRequest {
        follow: true,
        after: request.after,
        ..EventsRequest::default()
    };
    connection.say(&Request::Events(asked)).map_err(fail)?;
    loop {
        match connection.hear(None) {
            Ok(Reply::Event(event)) if request.wants(&event) => show(&event, report),
            Ok(Reply::Event(_)) => {}
            Ok(Reply::Error(error)) => return Err(error.into()),
            Ok(other) => return Err(ask::unexpected(place, &other)),
            // A broker that leaves ends the story.
            Err(ConnectionError::Ended) => return Ok(0),
            Err(other) => return Err(fail(other)),
        }
    }
}

/// So long before `now_ns`, in nanoseconds of Unix time.
fn moment_before(option: &str, text: Option<&str>, now_ns: u64) -> Outcome<Option<u64>> {
    let span = text.map(parse_duration).transpose();
    let span = span.map_err(|why| Failure::invalid(format!("{option}: {why}")))?;
    Ok(span.map(|span| now_ns.saturating_sub(span)))
}

/// A user's number.
fn uid_of(name: &str) -> Outcome<u32> {
    if let Ok(uid) = name.parse() {
        return Ok(uid);
    }
    let found = User::from_name(name).map_err(|why| Failure::failed(format!("--user {name}: {why}")))?;
    let found = found.map(|user| user.uid.as_raw());
    found.ok_or_else(|| Failure::invalid(format!("--user: there is no user {name:?} here")))
}

/// Kinds that there are.
fn kinds(words: &[String]) -> Outcome<Vec<String>> {
    for word in words {
        if event_kind(word).is_none() {
            let all = EVENT_KINDS.iter().map(|kind| kind.word);
            let hint = match nearest(word, all.clone()) {
                Some(near) => format!("--kind {near}"),
                None => format!("one of {}", all.collect::<Vec<_>>().join(", ")),
            };
            return Err(Failure::invalid(format!("--kind: there are no events of kind {word:?}")).hint(hint));
        }
    }
    Ok(words.to_vec())
}

fn show(event: &EventView, report: &Report) {
    let time = moment(event.time_ns);
    report.data_at(time, "event", json!({ "event": event }), |style| line(style, event));
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
