// SPDX-License-Identifier: Apache-2.0
//! `partage ps`, `get`, `set` and `stop`: looking at jobs and changing them.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use partage_protocol::admin::{JobDeviceView, JobView, Reply, Request, TermsChange, UnmanagedView};
use partage_protocol::message::NO_INDEX;
use partage_protocol::size::{NONE, format_bytes, format_duration, parse_amount, parse_duration, parse_request};
use serde_json::json;

use crate::arguments::{Get, Ps, Set, Stop};
use crate::failure::{Failure, Kind, Outcome};
use crate::launch::launch_broker;
use crate::launch::place::{Place, Rule};
use crate::launch::run_settings::check_name;
use crate::link::connection::{Connection, ConnectionError};
use crate::link::idle;
use crate::link::silence::PATIENCE;
use crate::show::job_table;
use crate::show::report::{Report, command_line, timestamp};
use crate::show::terminal::{Style, model};
use crate::show::time;

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

/// The jobs, page by page, with `all` those that ended too; and the processes of no job.
fn listed(place: &Place, all: bool) -> Outcome<(Vec<JobView>, Vec<UnmanagedView>)> {
    let (mut jobs, mut unmanaged): (Vec<JobView>, Vec<UnmanagedView>) = (Vec::new(), Vec::new());
    loop {
        let after = jobs.last().map(|job| job.job.clone());
        let request = Request::Ps {
            all,
            after: after.clone(),
        };
        let reply = if all {
            ask_remembering(place, &request, PATIENCE)
        } else {
            ask(place, &request, PATIENCE)
        };
        match reply? {
            Reply::Ps {
                jobs: page,
                unmanaged: others,
                more,
            } => {
                // A page that leads nowhere is the last one.
                let more = more && page.last().is_some_and(|last| after.as_ref() != Some(&last.job));
                jobs.extend(page);
                unmanaged.extend(others);
                if !more {
                    return Ok((jobs, unmanaged));
                }
            }
            other => return Err(unexpected(place, &other)),
        }
    }
}

/// A reply that answers another question.
pub fn unexpected(place: &Place, reply: &Reply) -> Failure {
    ConnectionError::Unreadable(format!("{reply:?}")).into_failure(&place.dir)
}

/// `partage ps`.
pub fn ps(arguments: &Ps, place: &Place, report: &Report) -> Outcome<u8> {
    let (jobs, unmanaged) = match listed(place, arguments.all) {
        Ok(all) => all,
        Err(failure) => {
            let idle = idle::look(place, failure)?;
            (Vec::new(), idle.unmanaged)
        }
    };
    let jobs = job_table::filtered(jobs, &arguments.filter)?;
    let body = json!({ "jobs": jobs, "unmanaged": unmanaged });
    report.data("ps", body, |style| {
        let style = &Style {
            is_cut: style.is_cut && !arguments.no_trunc,
            ..*style
        };
        ps_text(style, &jobs, &unmanaged, arguments)
    });
    Ok(0)
}

fn ps_text(style: &Style, jobs: &[JobView], unmanaged: &[UnmanagedView], arguments: &Ps) -> String {
    let columns = job_table::columns(&arguments.columns, arguments.all);
    let now_ns = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos();
    let table = job_table::text(style, jobs, &columns, u64::try_from(now_ns).unwrap_or(u64::MAX));
    if !arguments.columns.is_empty() {
        return table;
    }
    let mut text = if jobs.is_empty() { "no jobs\n".to_owned() } else { table };
    text.push_str(&time::table(style, jobs));
    for process in unmanaged {
        text.push_str(&style.text(&unmanaged_text(process)));
        text.push('\n');
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
        "unmanaged: pid {}{command}{user} uses {} on GPU {}{time}{job}",
        process.pid,
        format_bytes(process.used_bytes),
        process.gpu
    )
}

/// The device's number; a job that ended may have had one that is not here any more.
pub fn gpu(device: &JobDeviceView) -> String {
    match device.index {
        NO_INDEX => "?".to_owned(),
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
    let (mut mem, mut mem_request, mut name, mut terms) = (None, None, None, TermsChange::default());
    for setting in &arguments.settings {
        let (key, value) = setting.split_once('=').ok_or_else(|| needs_a_value(setting))?;
        let place = match key {
            "mem" => &mut mem,
            "mem-request" => &mut mem_request,
            "name" => &mut name,
            _ => time::place_of(&mut terms, key).ok_or_else(|| {
                let hint = "what can be set: mem=SIZE|PCT|none, mem-request=SIZE|PCT|none, compute=PCT|none, \
                            compute-max=PCT|none, weight=N, priority=low|normal|high|realtime, time-limit=DUR|none, \
                            name=NAME|none";
                Failure::new(Kind::Invalid, format!("unknown setting {key:?}")).hint(hint)
            })?,
        };
        let checked = match key {
            "mem" | "name" if value == NONE => Ok(()),
            "mem" => parse_amount(value).map(drop).map_err(|e| e.to_string()),
            "mem-request" => parse_request(value).map(drop).map_err(|e| e.to_string()),
            "name" => check_name(value),
            _ => time::check(key, value).map_err(|e| e.to_string()),
        };
        checked.map_err(|why| Failure::new(Kind::Invalid, format!("{key}: {why}")))?;
        *place = Some(value.to_owned());
    }
    let request = Request::Set {
        target: arguments.target.clone(),
        mem,
        name,
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

/// What `set JOB mem` lacks.
fn needs_a_value(key: &str) -> Failure {
    let example = match key {
        "compute" | "compute-max" => "30%",
        "weight" => "200",
        "priority" => "low",
        "mem" | "mem-request" => "8GiB",
        _ => return Failure::new(Kind::Invalid, format!("{key:?} needs a value")).hint("e.g. mem=8GiB"),
    };
    Failure::new(Kind::Invalid, format!("{key} needs a value, e.g. {key}={example}"))
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
    if job.state != "waiting" {
        lines.push(("started", timestamp(UNIX_EPOCH + Duration::from_nanos(job.started_ns))));
    }
    if let Some(ended) = job.ended_ns {
        let why = job.end_reason.as_deref().unwrap_or_default();
        let at = timestamp(UNIX_EPOCH + Duration::from_nanos(ended));
        let ran = format_duration(ended.saturating_sub(job.started_ns));
        lines.push(("ended", format!("{at}, after {ran}, {}", style.text(why))));
        let code = job.exit_code.map_or("unknown".to_owned(), |code| code.to_string());
        lines.push(("exit code", code));
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
    let targets = if arguments.all {
        own_jobs(place)?
    } else {
        arguments.targets.clone()
    };
    // The broker may answer only when the job is gone: all are asked before the first answer is awaited.
    let patience = PATIENCE.saturating_add(Duration::from_nanos(grace_ns));
    let fail = |error: ConnectionError| error.into_failure(&place.dir);
    let begin = |target: &String| {
        let connection = launch_broker::meet(place)?;
        let target = target.clone();
        connection.say(&Request::Stop { target, grace_ns }).map_err(fail)?;
        Ok(connection)
    };
    let begun: Vec<Outcome<Connection>> = targets.iter().map(begin).collect();
    let deadline = Instant::now() + patience;
    let mut messages = Vec::new();
    let mut failures = Vec::new();
    for connection in begun {
        let answer = connection.and_then(|mut connection| connection.hear(Some(deadline)).map_err(fail));
        match answer {
            Ok(Reply::Done { message }) => messages.push(message),
            Ok(Reply::Error(error)) => failures.push(Failure::from(error)),
            Ok(other) => failures.push(unexpected(place, &other)),
            Err(failure) => failures.push(failure),
        }
    }
    if arguments.all && targets.is_empty() {
        messages.push("no jobs".to_owned());
    }
    if !messages.is_empty() {
        let message = messages.join("; ");
        let body = json!({ "message": message, "grace": format_duration(grace_ns), "grace_ns": grace_ns });
        report.data("done", body, |style| {
            messages.iter().map(|message| style.text(message) + "\n").collect()
        });
    }
    let mut failures = failures.into_iter();
    let Some(first) = failures.next() else { return Ok(0) };
    for other in failures {
        report.say(&other.sentence());
    }
    Err(first)
}

/// The caller's own jobs that have not ended.
fn own_jobs(place: &Place) -> Outcome<Vec<String>> {
    match listed(place, false) {
        Ok((jobs, _)) => {
            let me = nix::unistd::Uid::effective().as_raw();
            Ok(jobs
                .into_iter()
                .filter(|job| job.uid == me)
                .map(|job| job.job)
                .collect())
        }
        Err(failure) if failure.kind == Kind::NoBroker && place.rule == Rule::Private => Ok(Vec::new()),
        Err(failure) => Err(failure),
    }
}
