// SPDX-License-Identifier: Apache-2.0
//! `partage metrics`: what the broker's listener serves, without a listener.

use partage_protocol::admin::{MetricsRequest, Reply, Request};
use serde_json::json;

use crate::arguments::Metrics;
use crate::failure::Outcome;
use crate::launch::place::Place;
use crate::link::ask;
use crate::show::report::Report;

/// `partage metrics`.
pub fn metrics(arguments: &Metrics, place: &Place, report: &Report) -> Outcome<u8> {
    let mut labels = arguments.labels.clone();
    labels.sort_unstable();
    labels.dedup();
    let asked = MetricsRequest {
        labels: labels.into_iter().map(|label| label.word().to_owned()).collect(),
        ..MetricsRequest::default()
    };
    match ask::ask(place, &Request::Metrics(asked))? {
        Reply::Metrics { text, dropped } => {
            let body = json!({ "text": text, "dropped": dropped });
            report.data("metrics", body, |_| text.clone());
            Ok(0)
        }
        other => Err(ask::unexpected(place, &other)),
    }
}
