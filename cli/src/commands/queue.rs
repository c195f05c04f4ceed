// SPDX-License-Identifier: Apache-2.0
//! `partage queue`: who waits, in which order, for what, and a guess of how long still.

use partage_protocol::admin::{PlaceView, QueueView, Reply, Request};
use partage_protocol::size::format_duration;
use serde_json::json;

use crate::failure::Outcome;
use crate::launch::place::Place;
use crate::link::{ask, idle};
use crate::show::report::Report;
use crate::show::tables::{Column, REASON_WIDTH, asks, table, wrapped};
use crate::show::terminal::Style;

/// What the column EXPECTED is.
const GUESS: &str = "EXPECTED is a guess, from time limits and from how long jobs like those that run took within the \
                     last day; unknown where neither says anything";

/// `partage queue`.
pub fn queue(place: &Place, report: &Report) -> Outcome<u8> {
    let view = match ask::ask(place, &Request::Queue) {
        Ok(Reply::Queue(view)) => view,
        Ok(other) => return Err(ask::unexpected(place, &other)),
        Err(failure) => {
            let idle = idle::read_machine(place, failure)?;
            report.data("queue", json!({ "queue": [] }), |style| {
                wrapped(&style.text(&idle.broker), style.width, 0)
            });
            return Ok(0);
        }
    };
    let body = json!({ "order": view.order, "queue": view.jobs });
    report.data("queue", body, |style| text(style, &view));
    Ok(0)
}

fn text(style: &Style, view: &QueueView) -> String {
    if view.jobs.is_empty() {
        return "nothing waits\n".to_owned();
    }
    // A guess of which nothing is known is no column.
    let has_guess = view.jobs.iter().any(|job| job.expected_wait_ns.is_some());
    let rows: Vec<Vec<String>> = view.jobs.iter().map(|job| row(style, job, has_guess)).collect();
    let column = Column::new;
    let mut columns = vec![
        column("PLACE"),
        column("JOB"),
        column("USER").cut_in_the_middle(8),
        column("PRIORITY").leaves(1),
        column("ASKS"),
        column("WAITED"),
    ];
    columns.extend(has_guess.then(|| column("EXPECTED")));
    columns.push(column("FOR").wrapped(REASON_WIDTH));
    let order = match view.order.as_str() {
        "fair" => "order: fair (priority, then the user's GPU time of late, then age)",
        _ => "order: arrival",
    };
    let mut text = table(style, &columns, &rows);
    text.push('\n');
    text.push_str(&wrapped(order, style.width, 0));
    if has_guess {
        text.push_str(&wrapped(GUESS, style.width, 0));
    }
    text
}

fn row(style: &Style, job: &PlaceView, has_guess: bool) -> Vec<String> {
    let expected = job
        .expected_wait_ns
        .map_or("unknown".to_owned(), |ns| format!("about {}", format_duration(ns)));
    let reason = match (job.comes_back, job.reason.is_empty()) {
        (true, true) => "to come back".to_owned(),
        (true, false) => format!("to come back: {}", job.reason),
        (false, _) => job.reason.clone(),
    };
    let mut cells = vec![
        job.place.to_string(),
        job.job.clone(),
        style.text(&job.user),
        job.priority.clone(),
        asks(job.mem.as_deref(), job.compute.as_deref()),
        format_duration(job.waited_ns),
    ];
    cells.extend(has_guess.then_some(expected));
    cells.push(style.text(&reason));
    cells
}
