// SPDX-License-Identifier: Apache-2.0
//! `partage ps`, `get`, `set` and `stop`: looking at jobs and changing them.

use std::time::{Duration, Instant};

use partage_protocol::admin::{JobDeviceView, JobView, Reply, Request, UnmanagedView};
use partage_protocol::size::{format_bytes, format_duration, parse_amount, parse_duration};
use serde_json::json;

use crate::arguments::{Get, Ps, Set, Stop};
use crate::connection::ConnectionError;
use crate::failure::{Failure, Kind, Outcome};
use crate::launch_broker;
use crate::place::Place;
use crate::report::{Report, command_line, table};
use crate::terminal::{Style, model};

/// How long a broker may take for an answer that needs no waiting.
const PATIENCE: Duration = Duration::from_secs(10);

/// One request and its answer from the broker that listens.
///
/// # Errors
/// No broker, no answer within `patience`, or the broker's refusal.
pub fn ask(place: &Place, request: &Request, patience: Duration) -> Outcome<Reply> {
    let mut connection = launch_broker::meet(place)?;
    let fail = |error: ConnectionError| error.into_failure(&place.dir);
    connection.say(request).map_err(fail)?;
    match connection.hear(Some(Instant::now() + patience)).map_err(fail)? {
        Reply::Error(error) => Err(error.into()),
        reply => Ok(reply),
    }
}

/// A reply that answers another question.
pub fn unexpected(place: &Place, reply: &Reply) -> Failure {
    ConnectionError::Unreadable(format!("{reply:?}")).into_failure(&place.dir)
}

/// `partage ps`.
pub fn ps(arguments: &Ps, place: &Place, report: &Report) -> Outcome<u8> {
    match ask(place, &Request::Ps { all: arguments.all }, PATIENCE)? {
        Reply::Ps { jobs, unmanaged } => {
            let body = json!({ "jobs": jobs, "unmanaged": unmanaged });
            report.data("ps", body, |style| ps_text(style, &jobs, &unmanaged));
            Ok(0)
        }
        other => Err(unexpected(place, &other)),
    }
}

fn ps_text(style: &Style, jobs: &[JobView], unmanaged: &[UnmanagedView]) -> String {
    let mut rows = Vec::new();
    for job in jobs {
        let first = job.devices.first();
        rows.push(vec![
            job.job.clone(),
            style.fit(job.name.as_deref().unwrap_or("-"), 12),
            style.fit(&job.user, 10),
            style.state(&job.state),
            first.map_or("-".to_owned(), |d| d.index.to_string()),
            first.map_or("-".to_owned(), |d| format_bytes(d.used_bytes)),
            first.map_or("-".to_owned(), limit),
            job.clients.len().to_string(),
            command_line(&job.command),
        ]);
        for device in job.devices.iter().skip(1) {
            let mut row = vec![String::new(); 9];
            row[4] = device.index.to_string();
            row[5] = format_bytes(device.used_bytes);
            row[6] = limit(device);
            rows.push(row);
        }
    }
    let mut text = if jobs.is_empty() {
        "no jobs\n".to_owned()
    } else {
        table(
            style,
            &[
                "JOB", "NAME", "USER", "STATE", "GPU", "USED", "LIMIT", "CLIENTS", "COMMAND",
            ],
            &rows,
        )
    };
    for process in unmanaged {
        text.push_str(&unmanaged_text(process));
    }
    for (job, note) in jobs
        .iter()
        .flat_map(|job| job.notes.iter().map(move |note| (job, note)))
    {
        text.push_str(&style.text(&format!("{}: {note}", job.job)));
        text.push('\n');
    }
    text
}

fn unmanaged_text(process: &UnmanagedView) -> String {
    let user = process.uid.map_or(String::new(), |uid| format!(" of uid {uid}"));
    let job = process
        .job
        .as_ref()
        .map_or(String::new(), |job| format!(", started in {job}"));
    format!(
        "unmanaged: pid {}{user} uses {} on GPU {}{job}\n",
        process.pid,
        format_bytes(process.used_bytes),
        process.gpu
    )
}

fn limit(device: &JobDeviceView) -> String {
    device.limit_bytes.map_or("none".to_owned(), format_bytes)
}

/// `partage get`.
pub fn get(arguments: &Get, place: &Place, report: &Report) -> Outcome<u8> {
    show_job(
        place,
        report,
        &Request::Get {
            target: arguments.target.clone(),
        },
        job_text,
    )
}

/// `partage set`.
pub fn set(arguments: &Set, place: &Place, report: &Report) -> Outcome<u8> {
    let mut mem = None;
    for setting in &arguments.settings {
        match setting.split_once('=') {
            Some(("mem", value)) => {
                let bad = |e| Failure::new(Kind::Invalid, format!("mem: {e}"));
                parse_amount(value).map_err(bad)?;
                mem = Some(value.to_owned());
            }
            Some((key, _)) => {
                return Err(
                    Failure::new(Kind::Invalid, format!("{key} cannot be set")).hint("what can: mem=SIZE, mem=PCT")
                );
            }
            None => {
                return Err(Failure::new(Kind::Invalid, format!("{setting} is no setting")).hint("write mem=8GiB"));
            }
        }
    }
    let request = Request::Set {
        target: arguments.target.clone(),
        mem,
    };
    show_job(place, report, &request, |_, job| {
        let one = |d: &JobDeviceView| {
            let over = d.limit_bytes.is_some_and(|limit| d.used_bytes > limit);
            let note = if over {
                "; it uses more and gets no more until it frees"
            } else {
                ""
            };
            format!(
                "{}: limit {} on GPU {}, in use {}{note}\n",
                job.job,
                limit(d),
                d.index,
                format_bytes(d.used_bytes)
            )
        };
        job.devices.iter().map(one).collect()
    })
}

fn show_job(
    place: &Place,
    report: &Report,
    request: &Request,
    text: impl FnOnce(&Style, &JobView) -> String,
) -> Outcome<u8> {
    match ask(place, request, PATIENCE)? {
        Reply::Job(job) => {
            report.data("job", json!({ "job": job }), |style| text(style, &job));
            Ok(0)
        }
        other => Err(unexpected(place, &other)),
    }
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
        lines.push((
            "labels",
            style.text(&job.labels.iter().map(one).collect::<Vec<_>>().join(" ")),
        ));
    }
    for device in &job.devices {
        lines.push((
            "gpu",
            format!("{} {} {}", device.index, style.text(model(&device.model)), device.uuid),
        ));
        lines.push(("  limit", limit(device)));
        lines.push(("  promised", format_bytes(device.request_bytes)));
        lines.push((
            "  used",
            format!(
                "{}, at most {}",
                format_bytes(device.used_bytes),
                format_bytes(device.peak_bytes)
            ),
        ));
        lines.push(("  granted", format_bytes(device.granted_bytes)));
    }
    let denied = &job.denied;
    lines.push((
        "denied",
        format!(
            "{} by the limit, {} card full, {} without broker",
            denied.limit, denied.card_full, denied.no_broker
        ),
    ));
    for client in &job.clients {
        let used: u64 = client.used_bytes.iter().sum();
        lines.push((
            "process",
            format!("{} {}, {}", client.pid, style.state(&client.state), format_bytes(used)),
        ));
    }
    for note in &job.notes {
        lines.push(("note", style.text(note)));
    }
    lines
        .iter()
        .map(|(name, value)| format!("{name:<11}{value}\n"))
        .collect()
}

/// `partage stop`.
pub fn stop(arguments: &Stop, place: &Place, report: &Report) -> Outcome<u8> {
    let grace_ns =
        parse_duration(&arguments.grace).map_err(|e| Failure::new(Kind::Invalid, format!("--grace: {e}")))?;
    let request = Request::Stop {
        target: arguments.target.clone(),
        grace_ns,
    };
    // The broker may answer only when the job is gone.
    let patience = PATIENCE.saturating_add(Duration::from_nanos(grace_ns));
    match ask(place, &request, patience)? {
        Reply::Done { message } => {
            let body = json!({ "message": message, "grace": format_duration(grace_ns), "grace_ns": grace_ns });
            report.data("done", body, |style| style.text(&message) + "\n");
            Ok(0)
        }
        other => Err(unexpected(place, &other)),
    }
}
