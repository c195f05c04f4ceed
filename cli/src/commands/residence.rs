// SPDX-License-Identifier: Apache-2.0
//! `partage suspend`, `partage resume` and `partage migrate`: take a job's memory off its devices, bring it back, and
//! bring it to another device.

use std::time::{Duration, Instant};

use partage_protocol::admin::{DrainView, MoveView, Reply, Request};
use partage_protocol::size::{format_bytes, format_duration, parse_duration};
use partage_protocol::terms::DRAIN_TIMEOUT_NS;
use serde_json::json;

use crate::arguments::{Drain, Migrate, OnFull, Resume, Suspend, Undrain};
use crate::commands::broker;
use crate::failure::{Failure, Kind, Outcome};
use crate::launch::admission::wait_text;
use crate::launch::launch_broker;
use crate::launch::place::{Place, Rule};
use crate::link::ask::unexpected;
use crate::link::connection::{Connection, ConnectionError};
use crate::link::silence;
use crate::show::report::Report;
use crate::show::terminal::Style;

/// A broker that ends closes its connections, and within this time its lock.
const LEAVING: Duration = Duration::from_secs(1);

/// `partage suspend`.
pub fn suspend(arguments: &Suspend, place: &Place, report: &Report) -> Outcome<u8> {
    let request = Request::Suspend {
        target: arguments.target.clone(),
        drain_timeout_ns: drain_timeout(arguments.drain_timeout.as_deref())?,
    };
    converse(&request, place, report)
}

/// `--drain-timeout` in nanoseconds.
pub(super) fn drain_timeout(text: Option<&str>) -> Outcome<Option<u64>> {
    let Some(text) = text else { return Ok(None) };
    let bad = |why: String| Failure::invalid(format!("--drain-timeout: {why}"));
    let ns = parse_duration(text).map_err(|why| bad(why.to_string()))?;
    let (least, most) = (*DRAIN_TIMEOUT_NS.start(), *DRAIN_TIMEOUT_NS.end());
    match ns {
        ns if ns < least => Err(bad(format!("{text:?} is less than {}", format_duration(least)))),
        ns if ns > most => Err(bad(format!("{text:?} is more than {}", format_duration(most)))
            .hint("the job's other threads wait as long as that")),
        ns => Ok(Some(ns)),
    }
}

/// `partage resume`.
pub fn resume(arguments: &Resume, place: &Place, report: &Report) -> Outcome<u8> {
    let timeout = arguments.wait_timeout.as_deref().map(parse_duration).transpose();
    let wait_timeout_ns = timeout.map_err(|e| Failure::invalid(format!("--wait-timeout: {e}")))?;
    let wait = arguments.on_full.unwrap_or_default() == OnFull::Wait;
    if !wait && wait_timeout_ns.is_some() {
        let failure = Failure::invalid("--wait-timeout with --on-full fail, which does not wait");
        return Err(failure.hint("leave one of them out"));
    }
    let request = Request::Resume {
        target: arguments.target.clone(),
        wait,
        wait_timeout_ns,
    };
    converse(&request, place, report)
}

/// `partage migrate`.
pub fn migrate(arguments: &Migrate, place: &Place, report: &Report) -> Outcome<u8> {
    let request = Request::Migrate {
        target: arguments.target.clone(),
        to: arguments.to.clone(),
        from: arguments.from.clone(),
        dry_run: arguments.dry_run,
        drain_timeout_ns: drain_timeout(arguments.drain_timeout.as_deref())?,
    };
    converse(&request, place, report)
}

/// `partage drain`.
pub fn drain(arguments: &Drain, place: &Place, report: &Report) -> Outcome<u8> {
    let request = Request::Drain {
        gpu: arguments.gpu.clone(),
        drain_timeout_ns: drain_timeout(arguments.drain_timeout.as_deref())?,
    };
    converse(&request, place, report)
}

/// `partage undrain`.
pub fn undrain(arguments: &Undrain, place: &Place, report: &Report) -> Outcome<u8> {
    let gpu = arguments.gpu.clone();
    converse(&Request::Undrain { gpu }, place, report)
}

/// What became of a device's jobs, for people: a line for each.
fn drain_lines(view: &DrainView) -> Vec<String> {
    let gpu = gpu_name(view.gpu_index, &view.gpu);
    let mut lines = vec![match view.staying.len() {
        _ if !view.is_drained => format!("{gpu} takes jobs again: partage undrain came before it was empty"),
        0 => format!("{gpu} is drained, and no job is on it"),
        1 => format!("{gpu} is drained, and one job stays on it"),
        staying => format!("{gpu} is drained, and {staying} jobs stay on it"),
    }];
    for moved in &view.moved {
        lines.push(format!(
            "  {} moved to {}",
            moved.job,
            gpu_name(moved.to_index, &moved.to)
        ));
    }
    for staying in &view.staying {
        let hint = staying.hint.as_ref().map_or(String::new(), |hint| format!("; {hint}"));
        lines.push(format!("  {} stays: {}{hint}", staying.job, staying.why));
    }
    lines
}

fn shown(style: &Style, lines: &[String]) -> String {
    lines.iter().map(|line| style.text(line) + "\n").collect()
}

fn gpu_name(index: Option<u32>, uuid: &str) -> String {
    index.map_or_else(|| uuid.to_owned(), |index| format!("GPU {index}"))
}

/// What a move would do, for people: a line, and one for each step.
fn move_lines(view: &MoveView) -> Vec<String> {
    let from = gpu_name(view.from_index, &view.from);
    let to = gpu_name(view.to_index, &view.to);
    let known = match view.is_measured {
        true => "as its last suspend took",
        false => "by published figures; this job was not measured",
    };
    let bytes = format_bytes(view.bytes);
    let pause = format_duration(view.pause_ns);
    let mut lines = vec![format!(
        "{} would move from {from} to {to}: {bytes} by way of host memory, a pause of about {pause} ({known})",
        view.job
    )];
    let steps = (1..).zip(&view.steps);
    lines.extend(steps.map(|(number, step)| format!("{number:>3}. {step}")));
    lines
}

/// The broker died or was stopped meanwhile. A job may stand until the next one goes on with it, and perhaps nobody
/// else starts a private one: it is started here.
fn broker_ended(connection: &Connection, place: &Place, request: &Request) -> Failure {
    if !silence::has_left(&place.dir, connection.peer(), Instant::now() + LEAVING) {
        return silence::hung_up(&place.dir);
    }
    let ended = "the broker ended before it answered";
    let next = match place.rule {
        Rule::Managed => Ok("the next one"),
        Rule::Private => broker::bring_up(place).map(|_| "another one is there, and"),
    };
    match next {
        Ok(next) => {
            let (does, hint) = after_a_death(request);
            Failure::new(Kind::NoBroker, format!("{ended}; {next} {does}")).hint(hint)
        }
        Err(why) => {
            let why = why.message;
            let message = format!("{ended}, and no other came, so what was begun may stand still: {why}");
            Failure::new(Kind::NoBroker, message).hint("once that is mended: partage broker start")
        }
    }
}

/// What the next broker does about a request whose answer the last one did not give, and what is left to do.
fn after_a_death(request: &Request) -> (&'static str, String) {
    match request {
        Request::Resume { target, .. } => (
            "finishes a return that had begun, and keeps no place in the queue",
            format!("see: partage ps; while it is suspended: partage resume {target}"),
        ),
        Request::Drain { gpu, .. } => (
            "keeps the GPU drained, and moves no more jobs by itself",
            format!("for the jobs that are left: partage drain {gpu}"),
        ),
        _ => ("finishes or undoes what was begun", "see: partage ps".to_owned()),
    }
}

/// Asks, says what is waited for, and waits for the answer for as long as the broker lives: how long a driver takes
/// depends on the bytes, and the broker gives up by itself.
pub(super) fn converse(request: &Request, place: &Place, report: &Report) -> Outcome<u8> {
    let mut connection = launch_broker::meet(place)?;
    connection
        .say(request)
        .map_err(|error| error.into_failure(&place.dir))?;
    loop {
        let heard = match connection.hear(None) {
            Err(ConnectionError::Ended) => return Err(broker_ended(&connection, place, request)),
            other => other.map_err(|error| error.into_failure(&place.dir))?,
        };
        match heard {
            Reply::Waiting(waiting) => {
                if report.is_json {
                    report.document("waiting", json!({ "waiting": waiting }));
                }
                report.say(&format!("waiting: {}", wait_text(&waiting)));
            }
            Reply::Done { message } => {
                return Ok(report.done(&message));
            }
            Reply::Move(view) => {
                report.data("move", json!({ "move": view }), |style| {
                    shown(style, &move_lines(&view))
                });
                return Ok(0);
            }
            Reply::Drained(view) => {
                report.data("drain", json!({ "drain": view }), |style| {
                    shown(style, &drain_lines(&view))
                });
                return Ok(u8::from(!view.is_drained || !view.staying.is_empty()));
            }
            Reply::Error(error) => return Err(error.into()),
            other => return Err(unexpected(place, &other)),
        }
    }
}
