// SPDX-License-Identifier: Apache-2.0
//! `partage get @alice`: the rules about a user, and what the user's jobs have of what these allow.

use std::collections::BTreeMap;

use partage_protocol::admin::{JobDeviceView, JobView, TotalUnit, TotalView};
use partage_protocol::size::format_bytes;
use partage_protocol::terms::{WHOLE_PPM, format_part};
use serde::Serialize;
use serde_json::{Value, json};

use crate::failure::Outcome;
use crate::launch::place::Place;
use crate::link::ask;
use crate::show::devices::{gpu, limit};
use crate::show::report::Report;
use crate::show::tables::{count, described, headed};
use crate::show::terminal::Style;
use crate::show::time;

/// What the jobs of a user have together on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Together {
    /// As `ps` has it.
    pub gpu: String,
    /// How many are on it.
    pub jobs: usize,
    /// Memory in use.
    pub used_bytes: u64,
    request_bytes: u64,
    /// None: a job has the whole card.
    limit_bytes: Option<u64>,
}

/// `partage get @USER`.
pub fn get(user: &str, place: &Place, report: &Report) -> Outcome<u8> {
    let is_theirs = |job: &JobView| (job.user == user || user.parse() == Ok(job.uid)) && job.ended_ns.is_none();
    let (jobs, _) = ask::jobs(place, false)?;
    let jobs: Vec<JobView> = jobs.into_iter().filter(is_theirs).collect();
    let view = ask::config(place, Some(format!("@{user}")))?;
    let together = together(&jobs);
    let totals: Vec<Value> = view.totals.iter().map(total_json).collect();
    let body = json!({
        "user": user, "rules": view.lines, "totals": totals, "devices": together, "jobs": jobs
    });
    report.data("user", body, |style| {
        let mut said = text(style, user, &view.lines);
        said.push_str(&totals_text(style, &view.totals));
        said + &jobs_text(style, &together, &jobs)
    });
    Ok(0)
}

/// Parts of a GPU's time are numbers from 0 to 1 there, as everywhere.
fn total_json(total: &TotalView) -> Value {
    let unit = match total.unit {
        TotalUnit::Millionths => "part",
        TotalUnit::Bytes => "bytes",
        TotalUnit::Count => "count",
    };
    let number = |value: u64| match total.unit {
        TotalUnit::Millionths => json!(value as f64 / f64::from(WHOLE_PPM)),
        TotalUnit::Bytes | TotalUnit::Count => json!(value),
    };
    json!({
        "rule": total.rule, "file": total.file, "line": total.line, "key": total.key, "text": total.text,
        "uuid": total.device, "gpu": total.index.map(|index| index.to_string()), "unit": unit,
        "limit": number(total.limit), "used": number(total.used), "held": number(total.held)
    })
}

/// A line for each total and GPU; GPUs of which nothing is used are one.
fn totals_text(style: &Style, totals: &[TotalView]) -> String {
    let is_same = |a: &TotalView, b: &TotalView| (&a.rule, &a.key) == (&b.rule, &b.key);
    let mut text = String::new();
    for (number, total) in totals.iter().enumerate() {
        let others = || totals.iter().filter(|other| is_same(other, total));
        let is_first = !totals[..number].iter().any(|other| is_same(other, total));
        let is_unused = others().all(|other| other.held == 0);
        if total.held == 0 && !(is_first && is_unused) {
            continue;
        }
        let amount = |value: u64| match total.unit {
            TotalUnit::Bytes => format_bytes(value),
            TotalUnit::Millionths => format_part(u32::try_from(value).unwrap_or(WHOLE_PPM)),
            TotalUnit::Count => value.to_string(),
        };
        let gpu = match total.index {
            Some(index) if !is_unused => format!(", GPU {index}"),
            Some(_) => ", each GPU".to_owned(),
            None => String::new(),
        };
        let TotalView {
            rule, file, line, key, ..
        } = total;
        let (mut used, limit) = (amount(total.used), amount(total.limit));
        if total.held > total.used {
            used = format!("{used} used, {} held,", amount(total.held));
        }
        let said = format!(
            "{} together{gpu}: {used} of {limit}, by rule {rule}, {key} = {} ({file}:{line})",
            what(key),
            total.text
        );
        text.push_str(&headed(style, "total", &said));
    }
    text
}

/// What a total counts, by its key: `each_user.mem`.
fn what(key: &str) -> &str {
    match key.rsplit('.').next() {
        Some("mem") => "memory",
        Some("compute") => "promised time",
        Some("gpus") => "GPUs",
        Some(other) => other,
        None => key,
    }
}

/// What these jobs have together, device by device.
pub fn together(jobs: &[JobView]) -> Vec<Together> {
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

fn text(style: &Style, user: &str, rules: &[String]) -> String {
    let mut text = style.text(&format!("user       {user}")) + "\n";
    for rule in rules {
        text.push_str(&headed(style, "rule", rule));
    }
    text
}

fn jobs_text(style: &Style, together: &[Together], jobs: &[JobView]) -> String {
    let mut text = String::new();
    for sum in together {
        let limit = sum.limit_bytes.map_or_else(|| "whole card".to_owned(), format_bytes);
        let said = format!(
            "{} used by {}, limits {limit}, promised {}",
            format_bytes(sum.used_bytes),
            count(sum.jobs, "job"),
            format_bytes(sum.request_bytes)
        );
        text.push_str(&described(style, &format!("gpu {}", sum.gpu), 11, &said));
    }
    for job in jobs {
        for device in &job.devices {
            text.push_str(&headed(style, &job.job, &device_text(device)));
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
