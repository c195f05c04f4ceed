// SPDX-License-Identifier: Apache-2.0
//! `partage why`: one job in sentences. The broker writes them; it knows who may read what.
//!
//! A job that ended answers for a day. A private broker leaves a minute after its last job, so a broker is started for
//! the question where one remembered something.

use partage_protocol::admin::{Reply, Request, WhyView};
use serde_json::json;

use crate::arguments::Why;
use crate::failure::Outcome;
use crate::launch::place::Place;
use crate::link::ask::{ask_remembering, unexpected};
use crate::show::report::Report;
use crate::show::tables::wrapped;
use crate::show::terminal::Style;

/// `partage why`.
pub fn why(arguments: &Why, place: &Place, report: &Report) -> Outcome<u8> {
    let target = arguments.target.clone();
    match ask_remembering(place, &Request::Why { target })? {
        Reply::Why(why) => {
            let body = json!({
                "job": why.job, "sentences": why.sentences, "denials": why.denials, "causes": why.causes,
            });
            report.data("why", body, |style| text(style, &why));
            Ok(0)
        }
        other => Err(unexpected(place, &other)),
    }
}

fn text(style: &Style, why: &WhyView) -> String {
    let mut name = why.job.job.clone();
    if let Some(given) = &why.job.name {
        name.push_str(&format!(" ({})", style.text(given)));
    }
    let mut text = format!("{name}: {}\n", style.state(&why.job.state));
    for sentence in &why.sentences {
        text.push_str("- ");
        text.push_str(&wrapped(&style.text(sentence), style.width, 2));
    }
    text
}
