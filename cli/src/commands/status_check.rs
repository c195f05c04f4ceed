// SPDX-License-Identifier: Apache-2.0
//! `partage status --check`: one line and a status for Nagios and monitors like it.

use partage_protocol::admin::{DeviceView, StatusView};
use partage_protocol::size::{format_bytes, format_duration};
use partage_protocol::units::SECOND_NS;
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::launch::place::Place;
use crate::link::ask;
use crate::show::report::Report;
use crate::show::tables::count;

/// A job that waits for longer is a finding.
const LONG_WAIT_NS: u64 = 24 * 3_600 * SECOND_NS;

/// What a monitor is told, by its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Ok,
    Warning,
    Critical,
}

impl Level {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
        }
    }
}

/// A level, and a sentence about it.
type Finding = (Level, String);

/// `partage status --check`.
pub fn check(place: &Place, report: &Report) -> Outcome<u8> {
    let status = ask::status(place);
    let (findings, summary) = match &status {
        Ok(status) => (findings(status), summary(status)),
        Err(failure) => (vec![silent(failure)], String::new()),
    };
    let level = findings.iter().map(|(level, _)| *level).max().unwrap_or(Level::Ok);
    let mut said: Vec<&Finding> = findings.iter().collect();
    said.sort_by_key(|(level, _)| std::cmp::Reverse(*level));
    let said: Vec<&str> = said.into_iter().map(|(_, text)| text.as_str()).collect();
    let text = if said.is_empty() { summary } else { said.join("; ") };
    let body = json!({ "level": level.word(), "findings": said });
    report.data("check", body, |style| {
        format!("PARTAGE {}: {}\n", level.word(), style.text(&text))
    });
    Ok(level as u8)
}

fn silent(failure: &Failure) -> Finding {
    (Level::Critical, failure.message.clone())
}

fn summary(status: &StatusView) -> String {
    let waiting = match status.queue.len() {
        1 => "1 waits".to_owned(),
        many => format!("{many} wait"),
    };
    let gpus = count(status.devices.len(), "GPU");
    format!("{gpus}, {}, {waiting}", count(status.broker.jobs as usize, "job"))
}

fn findings(status: &StatusView) -> Vec<Finding> {
    let broker = &status.broker;
    let mut found = Vec::new();
    if broker.driver != "ok" && !broker.driver.starts_with("adopting") {
        found.push((Level::Critical, broker.driver.clone()));
    }
    found.extend(status.devices.iter().flat_map(of_device));
    if broker.invariant_violations > 0 {
        let count = broker.invariant_violations;
        let text = format!("the broker found {count} of its own numbers wrong: please report it, with its log");
        found.push((Level::Critical, text));
    }
    let refused = broker.config.as_ref().and_then(|reading| reading.error.as_ref());
    found.extend(refused.map(|error| (Level::Warning, format!("the configuration was not taken: {error}"))));
    let notes = broker.notes.iter().chain(&broker.errors);
    found.extend(notes.map(|note| (Level::Warning, note.clone())));
    let longest = status.queue.iter().max_by_key(|queued| queued.waited_ns);
    if let Some(queued) = longest.filter(|queued| queued.waited_ns > LONG_WAIT_NS) {
        let text = format!("{} has waited for {}", queued.job, format_duration(queued.waited_ns));
        found.push((Level::Warning, text));
    }
    found
}

fn of_device(device: &DeviceView) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(sick) = &device.sick {
        let text = format!("GPU {} is sick: it {}", device.index, sick.text);
        found.push((Level::Critical, text));
    } else if device.state != "ok" {
        found.push((Level::Critical, format!("GPU {} is {}", device.index, device.state)));
    }
    if device.unmanaged_bytes > 0 {
        let used = format_bytes(device.unmanaged_bytes);
        let text = format!("GPU {}: {used} in use by unmanaged processes", device.index);
        found.push((Level::Warning, text));
    }
    let notes = device.unmanaged_notes.iter();
    found.extend(notes.map(|note| (Level::Warning, note.clone())));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_is_the_status() {
        assert!(Level::Critical > Level::Warning && Level::Warning > Level::Ok);
        assert_eq!(
            [Level::Ok, Level::Warning, Level::Critical].map(|level| level as u8),
            [0, 1, 2]
        );
    }
}
