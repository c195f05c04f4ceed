// SPDX-License-Identifier: Apache-2.0
//! `partage config`: check files, show the rules that hold, make the broker read them again.

use std::path::PathBuf;

use partage_protocol::admin::{ConfigView, ReadingView};
use serde_json::json;

use crate::arguments::ConfigAction;
use crate::failure::{Failure, Outcome};
use crate::launch::installed;
use crate::launch::place::Place;
use crate::link::ask;
use crate::show::report::{Report, moment, timestamp};
use crate::show::tables::wrapped;
use crate::show::terminal::Style;

/// `partage config`.
pub fn config(action: &ConfigAction, place: &Place, report: &Report) -> Outcome<u8> {
    match action {
        ConfigAction::Check { files } => check(files, report),
        ConfigAction::Show { target } => {
            let view = ask::config(place, target.clone())?;
            let body = match &view.reading {
                Some(reading) => json!({ "reading": reading, "lines": view.lines }),
                None => json!({ "lines": view.lines }),
            };
            report.data("config", body, |style| text(style, &view));
            Ok(0)
        }
        ConfigAction::Reload => Ok(report.done(&ask::reload(place)?)),
    }
}

/// The broker's own program reads the files: what it says is what the broker would say.
fn check(files: &[PathBuf], report: &Report) -> Outcome<u8> {
    let text = installed::check_configuration(files)?.map_err(Failure::failed)?;
    let lines: Vec<&str> = text.lines().collect();
    let shown = |style: &Style| {
        lines
            .iter()
            .map(|line| wrapped(&style.text(line), style.width, 2))
            .collect()
    };
    report.data("config", json!({ "lines": lines }), shown);
    Ok(0)
}

fn text(style: &Style, view: &ConfigView) -> String {
    let mut text = view
        .reading
        .as_ref()
        .map_or(String::new(), |reading| reading_text(style, reading));
    for line in &view.lines {
        text.push_str(&wrapped(&style.text(line), style.width, 2));
    }
    text
}

/// Which configuration holds, and why the last attempt to change it failed.
pub fn reading_text(style: &Style, reading: &ReadingView) -> String {
    let at = timestamp(moment(reading.read_ns));
    let line = format!("configuration {} of {at}, {}", reading.generation, reading.file);
    let mut text = wrapped(&style.text(&line), style.width, 0);
    if let Some(why) = &reading.error {
        let line = format!("the last reload changed nothing: {why}");
        text.push_str(&wrapped(&style.text(&line), style.width, 0));
    }
    text
}
