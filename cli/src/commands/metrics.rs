// SPDX-License-Identifier: Apache-2.0
//! `partage metrics`: what the broker's listener serves, without a listener.

use partage_metrics::{Seen, exposition};
use serde_json::json;

use crate::arguments::Metrics;
use crate::failure::Outcome;
use crate::launch::place::Place;
use crate::link::ask;
use crate::show::report::Report;

/// `partage metrics`.
pub fn metrics(arguments: &Metrics, place: &Place, report: &Report) -> Outcome<u8> {
    let status = ask::status(place)?;
    let (jobs, unmanaged) = ask::jobs(place, false)?;
    let seen = Seen {
        totals: status.totals.clone(),
        status,
        jobs,
        unmanaged,
        dropped_before: 0,
    };
    let mut labels = arguments.labels.clone();
    labels.sort_unstable();
    labels.dedup();
    let made = exposition(&seen, &labels, arguments.most_series);
    let body = json!({ "text": made.text, "dropped": made.dropped });
    report.data("metrics", body, |_| made.text.clone());
    Ok(0)
}
