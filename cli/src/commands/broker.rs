// SPDX-License-Identifier: Apache-2.0
//! `partage broker`: start, stop and look at the broker by hand. Nothing needs it: `run` starts what it needs.

use std::time::Instant;

use partage_protocol::admin::{Reply, Request, StatusView};
use serde_json::json;

use crate::arguments::BrokerAction;
use crate::commands::status::broker_text;
use crate::failure::{Failure, Kind, Outcome};
use crate::launch::launch_broker;
use crate::launch::place::{Place, Rule};
use crate::link::ask;
use crate::link::connection::ConnectionError;
use crate::link::silence::{self, PATIENCE};
use crate::show::report::Report;

/// Brokers that may end, one after the other, before they say what they are.
const MEETINGS: u32 = 3;

/// `partage broker …`.
pub fn broker(action: BrokerAction, place: &Place, report: &Report) -> Outcome<u8> {
    match action {
        BrokerAction::Start => start(place, report),
        BrokerAction::Status => status(place, report),
        BrokerAction::Stop => {
            let message = match stop(place)? {
                true => format!("ended the broker at {}", place.dir.display()),
                false => format!("no broker at {}", place.dir.display()),
            };
            Ok(report.done(&message))
        }
    }
}

fn start(place: &Place, report: &Report) -> Outcome<u8> {
    if place.rule == Rule::Managed {
        let message = format!("this host's broker at {} is its administrator's", place.dir.display());
        return Err(Failure::new(Kind::NotAllowed, message).hint("they start it: systemctl start partaged"));
    }
    show(&bring_up(place)?, report);
    Ok(0)
}

/// Starts a private broker, unless one is there, and hears from it.
///
/// # Errors
/// None comes up, or it does not answer.
pub(super) fn bring_up(place: &Place) -> Outcome<StatusView> {
    // A broker that was just killed may have taken the connection and be gone before it answers.
    for _ in 0..MEETINGS {
        drop(launch_broker::reach(place)?);
        match ask::status(place) {
            Err(failure) if failure.kind == Kind::NoBroker => {}
            status => return status,
        }
    }
    ask::status(place)
}

fn show(status: &StatusView, report: &Report) {
    let body = json!({ "is_running": true, "broker": status.broker });
    report.data("broker", body, |style| broker_text(style, &status.broker));
}

fn status(place: &Place, report: &Report) -> Outcome<u8> {
    match ask::status(place) {
        Ok(status) => {
            show(&status, report);
            Ok(0)
        }
        Err(failure) if matches!(failure.kind, Kind::NoBroker | Kind::NoAnswer) => {
            let body = json!({ "is_running": false, "socket_dir": place.dir, "reason": failure.message });
            report.data("broker", body, |style| style.text(&failure.sentence()) + "\n");
            Ok(failure.exit_code(false))
        }
        Err(failure) => Err(failure),
    }
}

/// Ends the broker at `place` and waits until it has let go of its socket; `false` when there is none.
///
/// # Errors
/// The broker refuses, or does not end in time.
pub fn stop(place: &Place) -> Outcome<bool> {
    place.check()?;
    let fail = |error: ConnectionError| error.into_failure(&place.dir);
    let mut connection = match launch_broker::open(place) {
        Err(ConnectionError::Absent(_)) => return Ok(false),
        other => other.map_err(fail)?,
    };
    let deadline = Instant::now() + PATIENCE;
    connection.say(&Request::StopBroker).map_err(fail)?;
    loop {
        match connection.hear(Some(deadline)) {
            Ok(Reply::Error(error)) => return Err(error.into()),
            Ok(_) => {}
            // The kernel closes the connection when the broker is gone: it has written what it had to.
            Err(ConnectionError::Ended) => break,
            Err(other) => return Err(fail(other)),
        }
    }
    // Its descriptors close one after the other: a caller that comes before the last is heard by nobody.
    let pid = connection.peer();
    match silence::has_left(&place.dir, pid, deadline) {
        true => Ok(true),
        false => Err(silence::failure(&place.dir, pid)),
    }
}
