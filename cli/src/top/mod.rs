// SPDX-License-Identifier: Apache-2.0
//! `partage top`: GPUs and jobs, every second.
//!
//! - `fields`: the one list of what is shown of a job. `source`: asks the broker. `keys`: bytes as keys.
//! - `state`: what is known and chosen. `view`: frames of it. `screen`: the terminal. `window`: the loop.

mod fields;
mod keys;
mod screen;
mod source;
mod state;
#[cfg(test)]
mod testing;
mod view;
mod window;

use std::io::IsTerminal;
use std::time::Instant;

use serde_json::{Value, json};

use crate::arguments::Top;
use crate::failure::{Failure, Outcome};
use crate::launch::place::Place;
use crate::show::report::{Report, write_out};

use source::{PERIOD, Source};
use state::State;
use state::rows::Row;

/// `partage top`.
///
/// # Errors
/// An argument that cannot be read; with `--once`, no broker answers; a terminal that cannot be used.
pub fn top(arguments: &Top, place: &Place, report: &Report) -> Outcome<u8> {
    let mut state = State::new(arguments.sort.as_deref(), arguments.filter.as_deref(), arguments.tree)?;
    let mut source = Source::new(place);
    if report.is_json && !arguments.once {
        return follow(&mut state, &mut source, report);
    }
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if arguments.once || !is_terminal || is_dumb {
        state.take(source.shoot()?);
        if report.is_json {
            report.document("top", document(&state, None));
        } else {
            write_out(&view::text(&mut state, report.style));
        }
        return Ok(0);
    }
    window::open(state, place, report.style)
}

/// A document a second, until somebody ends it.
fn follow(state: &mut State, source: &mut Source, report: &Report) -> Outcome<u8> {
    loop {
        let began = Instant::now();
        let failure = match source.shoot() {
            Ok(shot) => {
                state.take(shot);
                None
            }
            Err(failure) => {
                state.miss(&failure.sentence(), &window::clock());
                Some(failure)
            }
        };
        report.document("top", document(state, failure.as_ref()));
        std::thread::sleep(PERIOD.saturating_sub(began.elapsed()));
    }
}

/// All that is known, for programs: nothing old.
fn document(state: &State, failure: Option<&Failure>) -> Value {
    let shot = state.shot.as_ref().filter(|_| failure.is_none());
    let jobs: Vec<Value> = match shot {
        None => Vec::new(),
        Some(_) => {
            let rows = state.rows();
            let jobs = rows.iter().filter_map(|row| match row {
                Row::Job(seen) => Some(fields::document(seen)),
                Row::User { .. } => None,
            });
            jobs.collect()
        }
    };
    let mut body = json!({
        "trouble": failure.map(Failure::sentence),
        "devices": shot.map_or(&[][..], |shot| &shot.status.devices),
        "jobs": jobs,
        "queue": shot.map_or(&[][..], |shot| &shot.status.queue),
        "unmanaged": shot.map_or(&[][..], |shot| &shot.unmanaged),
    });
    if let Some(shot) = shot {
        body["broker"] = json!(shot.status.broker);
    }
    body
}
