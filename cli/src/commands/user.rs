// SPDX-License-Identifier: Apache-2.0
//! `partage get @alice`: the rules about a user, and what the user's jobs have of what these allow.

use std::collections::BTreeMap;

use partage_protocol::admin::{JobDeviceView, JobView, Reply, Request};
use partage_protocol::size::format_bytes;
use serde::Serialize;
use serde_json::json;

use crate::failure::Outcome;
use crate::launch::place::Place;
use crate::link::ask::{self, ask, unexpected};
use crate::link::silence::PATIENCE;
use crate::show::devices::{gpu, limit};
use crate::show::report::Report;
use crate::show::tables::wrapped;
use crate::show::terminal::Style;
use crate::show::time;

/// What the jobs of a user have together on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Together {
    /// As `ps` has it.
    gpu: String,
    jobs: usize,
    used_bytes: u64,
    request_bytes: u64,
    /// None: a job has the whole card.
    limit_bytes: Option<u64>,
}

/// `partage get @USER`.
pub fn get(user: &str, place: &Place, report: &Report) -> Outcome<u8> {
    let is_theirs = |job: &JobView| (job.user == user || user.parse() == Ok(job.uid)) && job.ended_ns.is_none();
    let (jobs, _) = ask::jobs(place, false)?;
    let jobs: Vec<JobView> = jobs.into_iter().filter(is_theirs).collect();
    let request = Request::ShowConfig {
        target: Some(format!("@{user}")),
    };
    let rules = match ask(place, &request, PATIENCE)? {
        Reply::Config(view) => view.lines,
        other => return Err(unexpected(place, &other)),
    };
    let together = together(&jobs);
    let body = json!({ "user": user, "rules": rules, "devices": together, "jobs": jobs });
    report.data("user", body, |style| text(style, user, &rules, (&together, &jobs)));
    Ok(0)
}

fn together(jobs: &[JobView]) -> Vec<Together> {
    let mut devices: BTreeMap<String, Together> = BTreeMap::new();
    for device in jobs.iter().flat_map(|job| &job.devices) {
        let sum = devices.entry(device.uuid.clone()).or_insert_with(|| Together {
            gpu: gpu(device),
            limit_bytes: Some(0),
            ..Together::default()
        });
        sum.jobs += 1;
        sum.used_bytes += device.used_bytes;
        sum.request_bytes += device.request_bytes;
        let both = sum.limit_bytes.zip(device.limit_bytes);
        sum.limit_bytes = both.map(|(sum, limit)| sum + limit);
    }
    let mut devices: Vec<Together> = devices.into_values().collect();
    devices.sort_by(|a, b| a.gpu.cmp(&b.gpu));
    devices
}

fn text(style: &Style, user: &str, rules: &[String], (together, jobs): (&[Together], &[JobView])) -> String {
    let mut text = style.text(&format!("user       {user}")) + "\n";
    for rule in rules {
        text.push_str("rule       ");
        text.push_str(&wrapped(&style.text(rule), style.width, 11));
    }
    for sum in together {
        let limit = sum.limit_bytes.map_or_else(|| "whole card".to_owned(), format_bytes);
        let count = if sum.jobs == 1 {
            "1 job".to_owned()
        } else {
            format!("{} jobs", sum.jobs)
        };
        text.push_str(&format!(
            "gpu {:<7}{} used by {count}, limits {limit}, promised {}\n",
            sum.gpu,
            format_bytes(sum.used_bytes),
            format_bytes(sum.request_bytes)
        ));
    }
    for job in jobs {
        for device in &job.devices {
            text.push_str(&format!("{:<11}", job.job));
            text.push_str(&wrapped(&style.text(&device_text(device)), style.width, 11));
        }
        let terms = time::terms_text(&job.terms);
        if !terms.is_empty() {
            text.push_str(&style.text(&format!("{:<11}{}", job.job, terms.trim_start_matches([',', ' ']))));
            text.push('\n');
        }
    }
    if jobs.is_empty() {
        text.push_str("jobs       none\n");
    }
    text
}

fn device_text(device: &JobDeviceView) -> String {
    let by = match device.limit_from.as_str() {
        "" => String::new(),
        words => format!(", by {words}"),
    };
    let used = format_bytes(device.used_bytes);
    format!("GPU {}: {used} of {}{by}", gpu(device), limit(device))
}
