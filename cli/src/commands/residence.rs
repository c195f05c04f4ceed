// SPDX-License-Identifier: Apache-2.0
//! `partage suspend` and `partage resume`: take a job's memory off its devices, and bring it back.

use partage_protocol::admin::{Reply, Request};
use partage_protocol::size::parse_duration;
use serde_json::json;

use crate::arguments::{OnFull, Resume, Suspend};
use crate::failure::{Failure, Kind, Outcome};
use crate::launch::admission::wait_text;
use crate::launch::launch_broker;
use crate::launch::place::Place;
use crate::link::ask::unexpected;
use crate::link::connection::ConnectionError;
use crate::show::report::Report;

/// `partage suspend`.
pub fn suspend(arguments: &Suspend, place: &Place, report: &Report) -> Outcome<u8> {
    let target = arguments.target.clone();
    converse(&Request::Suspend { target }, place, report)
}

/// `partage resume`.
pub fn resume(arguments: &Resume, place: &Place, report: &Report) -> Outcome<u8> {
    let timeout = arguments.wait_timeout.as_deref().map(parse_duration).transpose();
    let wait_timeout_ns = timeout.map_err(|e| Failure::new(Kind::Invalid, format!("--wait-timeout: {e}")))?;
    let wait = arguments.on_full.unwrap_or_default() == OnFull::Wait;
    if !wait && wait_timeout_ns.is_some() {
        let failure = Failure::new(Kind::Invalid, "--wait-timeout with --on-full fail, which does not wait");
        return Err(failure.hint("leave one of them out"));
    }
    let request = Request::Resume {
        target: arguments.target.clone(),
        wait,
        wait_timeout_ns,
    };
    converse(&request, place, report)
}

/// Asks, says what is waited for, and waits for the answer for as long as the broker lives: how long a driver takes
/// depends on the bytes, and the broker gives up by itself.
pub(super) fn converse(request: &Request, place: &Place, report: &Report) -> Outcome<u8> {
    let mut connection = launch_broker::meet(place)?;
    connection
        .say(request)
        .map_err(|error| error.into_failure(&place.dir))?;
    loop {
        let heard = connection.hear(None).map_err(|error| match error {
            ConnectionError::Ended => {
                let message = "the broker ended before it answered; the next one goes on with what was begun";
                Failure::new(Kind::NoBroker, message).hint("see: partage ps")
            }
            other => other.into_failure(&place.dir),
        });
        match heard? {
            Reply::Waiting(waiting) => {
                if report.is_json {
                    report.document("waiting", json!({ "waiting": waiting }));
                }
                report.say(&format!("waiting: {}", wait_text(&waiting)));
            }
            Reply::Done { message } => {
                report.data("done", json!({ "message": message }), |style| {
                    style.text(&message) + "\n"
                });
                return Ok(0);
            }
            Reply::Error(error) => return Err(error.into()),
            other => return Err(unexpected(place, &other)),
        }
    }
}
