// SPDX-License-Identifier: Apache-2.0
//! `partage run`: judge COMMAND, be admitted as a job, become COMMAND.
//!
//! Everything that can be refused is refused before admission, so that a mistake never takes room from others.

use std::ffi::OsStr;
use std::path::Path;

use partage_protocol::admin::{Admitted, JobView, RunRequest};
use partage_protocol::size::format_duration;
use serde_json::{Value, json};

use crate::arguments::Run;
use crate::commands::snapshot;
use crate::failure::{Failure, Kind, Outcome};
use crate::launch::admission::{Admission, Answer};
use crate::launch::command::Command;
use crate::launch::container;
use crate::launch::place::Place;
use crate::launch::preflight::verdict::Unmanaged;
use crate::launch::run_settings::read_settings;
use crate::launch::start::start;
use crate::launch::{installed, lazy, nested, variables};
use crate::link::other_brokers;
use crate::show::devices::devices_text;
use crate::show::report::Report;
use crate::show::{terminal, time};

/// How COMMAND comes to its job.
enum Mode {
    /// It is of the job that it was started in.
    Nested(Box<JobView>),
    /// Started inside a command that waits for its first use of a GPU, as that one.
    StillLazy,
    /// It is a job from its first use of a GPU on.
    Lazy,
    /// Its caller hides every GPU from it: it is no job.
    WithoutGpu,
    /// It is a job from its start on, or would be.
    Plain,
}

impl Mode {
    fn of(arguments: &Run, command: &Command, place: &Place) -> Outcome<Self> {
        if arguments.lazy {
            lazy::check(arguments)?;
            if lazy::is_inside() {
                return Ok(Self::StillLazy);
            }
        }
        if let Some(job) = nested::enclosing_job(place)? {
            return Ok(Self::Nested(Box::new(job)));
        }
        let is_begun_later = arguments.lazy && !arguments.dry_run;
        // What is lazy keeps the variable, and is no job while it is so.
        Ok(match is_begun_later {
            true => Self::Lazy,
            false if hides_every_gpu(visible_devices(command)) => Self::WithoutGpu,
            false => Self::Plain,
        })
    }
}

/// `partage run`. Returns only for `--dry-run`, `--summary` and failures.
pub fn run(arguments: &Run, sources: &clap::ArgMatches, place: &Place, report: &Report) -> Outcome<u8> {
    let request = read_settings(arguments, sources)?;
    let command = judged(arguments, report)?;
    match Mode::of(arguments, &command, place)? {
        Mode::Nested(job) => nested::run(arguments, &job, command, place, report),
        Mode::StillLazy => lazy::stay(command, arguments, place, report),
        Mode::WithoutGpu => run_without_gpu(command, arguments, place, report),
        Mode::Lazy => {
            let request = with_command(request, &command, arguments)?;
            lazy::start(command, request, arguments, place, report)
        }
        Mode::Plain => {
            let request = with_command(request, &command, arguments)?;
            run_as_job(command, request, arguments, place, report)
        }
    }
}

/// COMMAND, where it can be found and bound, or may run although it cannot.
fn judged(arguments: &Run, report: &Report) -> Outcome<Command> {
    let command = Command::find(&arguments.command)?;
    if let Some(unmanaged) = &command.unmanaged {
        say_unmanaged(unmanaged, &command.file, arguments, report)?;
    }
    // Before admission: a job that cannot be limited must not take a place.
    installed::find(installed::LIBRARY)?;
    // With `-q` too: a job whose limit is misspelt would run without one.
    variables::unknown().iter().for_each(|text| report.say(text));
    Ok(command)
}

/// What the broker hears of COMMAND and of where it was started.
fn with_command(request: RunRequest, command: &Command, arguments: &Run) -> Outcome<RunRequest> {
    let saved = request.saved;
    let visible = visible_devices(command);
    Ok(RunRequest {
        saved: saved
            .map(|saved| snapshot::prepare(saved, arguments.dry_run))
            .transpose()?,
        visible_devices: visible.filter(|_| !hides_every_gpu(visible)).map(lossy),
        nodes: container::given_nodes(),
        command: command.shown.clone(),
        quiet: arguments.quiet || arguments.summary,
        ..request
    })
}

/// Asks for a job and becomes COMMAND in it; a dry run says what the answer was.
fn run_as_job(command: Command, request: RunRequest, arguments: &Run, place: &Place, report: &Report) -> Outcome<u8> {
    let admission = Admission {
        place,
        report,
        is_quiet: arguments.quiet,
        longest_ns: request.wait_timeout_ns,
    };
    let (answer, waited) = admission.ask(&request)?;
    match answer {
        Answer::Inside(job) => nested::run(arguments, &job, command, place, report),
        Answer::Said(message) => {
            let message = if arguments.lazy { lazy::later(&message) } else { message };
            Ok(report.dry_run(&message, json!({ "message": message })))
        }
        Answer::Admitted(admitted) if arguments.dry_run => Ok(say_would_run(&admitted, report)),
        Answer::Admitted(admitted) => {
            say_admitted(&admitted, waited, arguments.quiet, report);
            if !arguments.quiet {
                say_others(&admitted, place, report);
            }
            start(command, &admitted, place, arguments, report)
        }
    }
}

fn visible_devices(command: &Command) -> Option<&OsStr> {
    command.environment.get("CUDA_VISIBLE_DEVICES").map(AsRef::as_ref)
}

/// What would run, and where.
fn say_would_run(admitted: &Admitted, report: &Report) -> u8 {
    let mut text = format!("would run {}", on_devices(admitted));
    for note in &admitted.notes {
        text.push_str("; ");
        text.push_str(note);
    }
    let body = json!({ "message": text, "admitted": without_token(admitted) });
    report.dry_run(&text, body)
}

/// Says that no limit follows COMMAND, or with `--strict` refuses it.
fn say_unmanaged(unmanaged: &Unmanaged, file: &Path, arguments: &Run, report: &Report) -> Outcome<()> {
    if arguments.strict {
        let message = format!("--strict refuses {}", file.display());
        return Err(Failure::new(Kind::Unmanageable, message).hint(unmanaged.sentence()));
    }
    report.say(&unmanaged.sentence());
    if report.is_json {
        let body = json!({ "what": unmanaged.what, "why": unmanaged.why, "instead": unmanaged.instead });
        report.document("unmanaged", json!({ "unmanaged": body }));
    }
    Ok(())
}

/// Reads back what was admitted: on a terminal or in a log, and anywhere after a wait.
fn say_admitted(admitted: &Admitted, waited: Option<u64>, is_quiet: bool, report: &Report) {
    if report.is_json {
        report.document("admitted", json!({ "admitted": without_token(admitted) }));
    } else if !is_quiet && (waited.is_some() || terminal::stderr_is_for_people()) {
        let waited = waited.map_or(String::new(), |time| format!("; waited {}", format_duration(time)));
        report.say(&format!("{} {}{waited}", admitted.job, on_devices(admitted)));
    }
    if !is_quiet {
        admitted.notes.iter().for_each(|note| report.say(note));
    }
}

/// What a private broker promised, another user's may have promised as well.
fn say_others(admitted: &Admitted, place: &Place, report: &Report) {
    if admitted.is_private
        && let Some(sentence) = other_brokers::sentence(&other_brokers::beside(place))
    {
        report.say(&sentence);
    }
}

/// Is every GPU hidden from COMMAND? What follows the first entry that names none is hidden as well.
fn hides_every_gpu(visible: Option<&OsStr>) -> bool {
    let Some(visible) = visible.map(OsStr::to_string_lossy) else {
        return false;
    };
    let first = visible.split(',').next().unwrap_or_default().trim();
    first.is_empty() || first.starts_with('-') || first == "NoDevFiles"
}

/// A COMMAND from which its caller hides every GPU takes no place among those that use one. The library goes with it:
/// should one of its children see a GPU after all, that is known.
fn run_without_gpu(command: Command, arguments: &Run, place: &Place, report: &Report) -> Outcome<u8> {
    let visible = visible_devices(&command).map(lossy).unwrap_or_default();
    let text = format!("CUDA_VISIBLE_DEVICES={visible} hides every GPU from COMMAND: it runs without a job");
    if arguments.dry_run {
        return Ok(report.dry_run(&text, json!({ "message": text })));
    }
    if !arguments.quiet {
        report.say(&text);
    }
    place.prepare()?;
    command.become_without_job(place)
}

/// `on GPU 3 (H200), limit 35.2 GiB, promise 30 %`, and how far a private broker's word goes.
fn on_devices(admitted: &Admitted) -> String {
    let (devices, terms) = (devices_text(&admitted.devices), time::terms_text(&admitted.terms));
    let mut text = format!("on {devices}{terms}");
    let has_limit = admitted.devices.iter().any(|device| device.limit_bytes.is_some());
    if admitted.is_private && (has_limit || admitted.terms.promise > 0.0) {
        text.push_str("; promised among your own jobs only");
    }
    text
}

/// The token is COMMAND's alone: it never goes to a terminal or a log.
fn without_token(admitted: &Admitted) -> Value {
    json!({
        "job": admitted.job,
        "devices": admitted.devices,
        "is_private": admitted.is_private,
        "notes": admitted.notes,
        "terms": admitted.terms,
    })
}

fn lossy(text: impl AsRef<OsStr>) -> String {
    text.as_ref().to_string_lossy().into_owned()
}
