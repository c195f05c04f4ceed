// SPDX-License-Identifier: Apache-2.0
//! `partage ps`, `get`, `set` and `stop`: looking at jobs and changing them.

use std::time::{Duration, Instant, UNIX_EPOCH};

use partage_protocol::admin::{JobDeviceView, JobView, Reply, Request, TermsChange, UnmanagedView};
use partage_protocol::size::{format_bytes, format_duration, parse_amount, parse_duration};
use serde_json::json;

use crate::arguments::{Get, Ps, Set, Stop};
use crate::connection::{Connection, ConnectionError};
use crate::failure::{Failure, Kind, Outcome};
use crate::launch_broker;
use crate::place::{Place, Rule};
use crate::report::{Report, command_line, table, timestamp};
use crate::terminal::{Style, model};
use crate::time;

/// How long a broker may take for an answer that needs no waiting.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// One request and its answer from the broker that listens.
///
/// # Errors
/// No broker, no answer within `patience`, or the broker's refusal.
pub fn ask(place: &Place, request: &Request, patience: Duration) -> Outcome<Reply> {
    converse(launch_broker::meet(place)?, place, request, patience)
}

/// [`ask`] about jobs that may have ended: a private broker that has left is started again where it left a record of
/// some. Where there is none, looking makes nothing.
///
/// # Errors
/// As [`ask`].
pub fn ask_remembering(place: &Place, request: &Request, patience: Duration) -> Outcome<Reply> {
    let remembers = place.rule == Rule::Private && place.dir.join("state/ended.jsonl").exists();
    let connection = if remembers {
        launch_broker::reach(place)?
    } else {
        launch_broker::meet(place)?
    };
    converse(connection, place, request, patience)
}

fn converse(mut connection: Connection, place: &Place, request: &Request, patience: Duration) -> Outcome<Reply> {
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
    let request = Request::Ps { all: arguments.all };
    let reply = if arguments.all {
        ask_remembering(place, &request, PATIENCE)?
    } else {
        ask(place, &request, PATIENCE)?
    };
    match reply {
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
            first.map_or("-".to_owned(), gpu),
            first.map_or("-".to_owned(), |d| format_bytes(d.used_bytes)),
            first.map_or("-".to_owned(), limit),
            job.clients.len().to_string(),
            command_line(&job.command),
        ]);
        for device in job.devices.iter().skip(1) {
            let mut row = vec![String::new(); 9];
            row[4] = gpu(device);
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
    text.push_str(&time::table(style, jobs));
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
    let user = match (&process.user, process.uid) {
        (Some(user), _) => format!(" of {user}"),
        (None, Some(uid)) => format!(" of uid {uid}"),
        (None, None) => String::new(),
    };
    let command = process
        .command
        .as_ref()
        .map_or(String::new(), |command| format!(" ({command})"));
    let job = process
        .job
        .as_ref()
        .map_or(String::new(), |job| format!(", started in {job}"));
    let time = process.busy.filter(|part| *part > 0.0).map_or(String::new(), |part| {
        format!(" and {} of its time", time::percent(part))
    });
    format!(
        "unmanaged: pid {}{command}{user} uses {} on GPU {}{time}{job}\n",
        process.pid,
        format_bytes(process.used_bytes),
        process.gpu
    )
}

/// The device's number; a job that ended may have had one that is not here any more.
pub fn gpu(device: &JobDeviceView) -> String {
    match device.index {
        u32::MAX => "?".to_owned(),
        index => index.to_string(),
    }
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
    let (mut mem, mut mem_request, mut terms) = (None, None, TermsChange::default());
    for setting in &arguments.settings {
        let (key, value) = setting
            .split_once('=')
            .ok_or_else(|| Failure::new(Kind::Invalid, format!("{setting} is no setting")).hint("write mem=8GiB"))?;
        let place = match key {
            "mem" => &mut mem,
            "mem-request" => &mut mem_request,
            _ => time::place_of(&mut terms, key).ok_or_else(|| {
                let hint = "what can: mem=SIZE|PCT, mem-request=SIZE|PCT, compute=PCT, compute-max=PCT, weight=N, \
                            priority=low|normal|high|realtime";
                Failure::new(Kind::Invalid, format!("{key} cannot be set")).hint(hint)
            })?,
        };
        let checked = match key {
            "mem" | "mem-request" => parse_amount(value).map(drop).map_err(|e| e.to_string()),
            _ => time::check(key, value).map_err(|e| e.to_string()),
        };
        checked.map_err(|why| Failure::new(Kind::Invalid, format!("{key}: {why}")))?;
        *place = Some(value.to_owned());
    }
    let request = Request::Set {
        target: arguments.target.clone(),
        mem,
        mem_request,
        terms,
    };
    show_job(place, report, &request, |_, job| {
        let one = |d: &JobDeviceView| {
            let over = d.limit_bytes.is_some_and(|limit| d.used_bytes > limit);
            let note = if over {
                "; it uses more and gets no more until it frees"
            } else {
                ""
            };
            let promised = match d.request_bytes {
                bytes if bytes == d.limit_bytes.unwrap_or(0) => String::new(),
                0 => ", nothing promised".to_owned(),
                bytes => format!(", promised {}", format_bytes(bytes)),
            };
            format!(
                "{}: limit {} on GPU {}{promised}, in use {}{}{note}\n",
                job.job,
                limit(d),
                gpu(d),
                format_bytes(d.used_bytes),
                time::terms_text(&job.terms)
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
    lines.extend(time::terms_lines(style, &job.terms));
    for device in &job.devices {
        lines.push((
            "gpu",
            format!("{} {} {}", gpu(device), style.text(model(&device.model)), device.uuid),
        ));
        let by = |words: &str| match words {
            "" => String::new(),
            words => format!(", by {}", style.text(words)),
        };
        lines.push(("  limit", limit(device) + &by(&device.limit_from)));
        let request = format_bytes(device.request_bytes);
        lines.push(("  promised", request + &by(&device.request_from)));
        lines.push((
            "  used",
            format!(
                "{}, at most {}",
                format_bytes(device.used_bytes),
                format_bytes(device.peak_bytes)
            ),
        ));
        lines.push(("  granted", format_bytes(device.granted_bytes)));
        lines.extend(time::time_lines(style, device));
    }
    let denied = &job.denied;
    lines.push((
        "denied",
        format!(
            "{} by the limit, {} card full, {} without broker, {} for overhead",
            denied.limit, denied.card_full, denied.no_broker, denied.overhead
        ),
    ));
    for client in &job.clients {
        let used: u64 = client.used_bytes.iter().sum();
        lines.push((
            "process",
            format!("{} {}, {}", client.pid, style.state(&client.state), format_bytes(used)),
        ));
    }
    if let Some(ended) = job.ended_ns {
        let why = job.end_reason.as_deref().unwrap_or_default();
        let at = timestamp(UNIX_EPOCH + Duration::from_nanos(ended));
        lines.push(("ended", format!("{at}, {}", style.text(why))));
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
