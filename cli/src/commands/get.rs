// SPDX-License-Identifier: Apache-2.0
//! `partage get`: everything about one job, a user's limits, or a GPU.

use partage_protocol::admin::{JobDeviceView, JobView, Request};
use partage_protocol::size::{format_bytes, format_duration};
use serde_json::json;

use crate::arguments::Get;
use crate::commands::{get_gpu, user};
use crate::failure::Outcome;
use crate::launch::place::Place;
use crate::link::{ask, commands};
use crate::show::devices::{gpu, limit};
use crate::show::job_table::engine_text;
use crate::show::report::{Report, command_line, moment, timestamp};
use crate::show::tables::described;
use crate::show::terminal::{Style, model};
use crate::show::time;

/// Where the values begin.
const INDENT: usize = 11;

/// A heading and what it says.
type Line = (&'static str, String);

/// `partage get`.
pub fn get(arguments: &Get, place: &Place, report: &Report) -> Outcome<u8> {
    if let Some(user) = arguments.target.strip_prefix('@') {
        return user::get(user, place, report);
    }
    if let Some(gpu) = arguments.target.strip_prefix("gpu:") {
        return get_gpu::get(gpu, place, report);
    }
    let target = arguments.target.clone();
    let mut job = ask::job(place, &Request::Get { target })?;
    commands::fill(place, std::slice::from_mut(&mut job));
    report.data("job", json!({ "job": job }), |style| job_text(style, &job));
    Ok(0)
}

fn job_text(style: &Style, job: &JobView) -> String {
    let mut lines = vec![
        ("job", job.job.clone()),
        ("name", style.text(job.name.as_deref().unwrap_or("-"))),
        ("user", format!("{} ({})", style.text(&job.user), job.uid)),
        ("state", style.state(&job.state)),
        ("pid", job.pid.to_string()),
        ("command", style.text(&command_line(&job.command))),
        ("strict", if job.is_strict { "yes" } else { "no" }.to_owned()),
    ];
    if !job.labels.is_empty() {
        let one = |(key, value): &(String, String)| format!("{key}={value}");
        let labels: Vec<String> = job.labels.iter().map(one).collect();
        lines.push(("labels", style.text(&labels.join(" "))));
    }
    if let Some(container) = &job.container {
        let mut text = container.id.clone();
        if let Some(name) = &container.name {
            text = format!("{text} ({name})");
        }
        if let Some(cgroup) = &container.cgroup {
            text = format!("{text}, control group {cgroup}");
        }
        let is_containers = !container.id.is_empty() || container.name.is_some();
        let label = if is_containers { "container" } else { "registered" };
        let text = text.trim_start_matches([',', ' ']);
        if !text.is_empty() {
            lines.push((label, style.text(text)));
        }
    }
    if let Some(engine) = &job.engine {
        lines.push(("engine", style.text(&engine_text(engine))));
    }
    lines.extend(time::terms_lines(style, &job.terms));
    for device in &job.devices {
        lines.extend(device_lines(style, device));
    }
    let denied = &job.denied;
    lines.push((
        "denied",
        format!(
            "{} by the limit, {} card full, {} without broker, {} for overhead{}",
            denied.limit,
            denied.card_full,
            denied.no_broker,
            denied.overhead,
            denied.recovered_text()
        ),
    ));
    for client in &job.clients {
        let used: u64 = client.used_bytes.iter().sum();
        let text = format!("{} {}, {}", client.pid, style.state(&client.state), format_bytes(used));
        lines.push(("process", text));
    }
    lines.extend(time_of(style, job));
    for note in &job.notes {
        lines.push(("note", style.text(note)));
    }
    let lines = lines.iter().map(|(name, value)| described(style, name, INDENT, value));
    lines.collect()
}

/// What a job has on one device.
fn device_lines(style: &Style, device: &JobDeviceView) -> Vec<Line> {
    let by = |words: &str| time::by(style, words);
    let request = format_bytes(device.request_bytes);
    let name = format!("{} {} {}", gpu(device), style.text(model(&device.model)), device.uuid);
    let (used, peak) = (format_bytes(device.used_bytes), format_bytes(device.peak_bytes));
    let used = format!("{used}, at most {peak}");
    let mut lines = vec![
        ("gpu", name),
        ("  limit", limit(device) + &by(&device.limit_from)),
        ("  promised", request + &by(&device.request_from)),
        ("  used", used),
        ("  granted", format_bytes(device.granted_bytes)),
    ];
    lines.extend(time::time_lines(style, device));
    lines
}

/// When it started, and when and how it ended.
fn time_of(style: &Style, job: &JobView) -> Vec<Line> {
    let mut lines = Vec::new();
    if job.state != "waiting" {
        lines.push(("started", timestamp(moment(job.started_ns))));
    }
    if let Some(ended) = job.ended_ns {
        let why = job.end_reason.as_deref().unwrap_or_default();
        let at = timestamp(moment(ended));
        let ran = format_duration(ended.saturating_sub(job.started_ns));
        lines.push(("ended", format!("{at}, after {ran}, {}", style.text(why))));
        let code = job.exit_code.map_or("unknown".to_owned(), |code| code.to_string());
        lines.push(("exit code", code));
    }
    lines
}
