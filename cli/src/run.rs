// SPDX-License-Identifier: Apache-2.0
//! `partage run`: judge COMMAND, be admitted as a job, become COMMAND.
//!
//! Everything that can be refused is refused before admission, so that a mistake never takes room from others.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use partage_protocol::admin::{Admitted, JobDeviceView, Reply, Request, RunRequest, Waiting};
use partage_protocol::aliases::Variable;
use partage_protocol::size::{format_bytes, format_duration};
use serde_json::{Value, json};

use crate::arguments::Run;
use crate::connection::ConnectionError;
use crate::execute::{Environment, become_command};
use crate::failure::{Failure, Kind, Outcome, holders};
use crate::judge::find::find;
use crate::judge::verdict::{Caller, Unmanaged, judge, own_program};
use crate::place::Place;
use crate::report::Report;
use crate::run_settings::read_settings;
use crate::{installed, launch_broker, library_copy, nested, terminal, time};

/// Variables that `run` reads instead of options. They have done their work: COMMAND does not get them, or a `run`
/// inside would read them again.
const TWINS: &[&str] = &[
    "PARTAGE_MEM",
    "PARTAGE_MEM_REQUEST",
    "PARTAGE_COMPUTE",
    "PARTAGE_COMPUTE_MAX",
    "PARTAGE_WEIGHT",
    "PARTAGE_PRIORITY",
    "PARTAGE_TIME_LIMIT",
    "PARTAGE_GPU",
    "PARTAGE_ON_FULL",
    "PARTAGE_WAIT_TIMEOUT",
    "PARTAGE_NAME",
    "PARTAGE_LABEL",
    "PARTAGE_STRICT",
    "PARTAGE_QUIET",
];
/// A broker that is lost this often, each time within [`QUICK`], is not coming back.
const MOST_LOSSES: u32 = 5;
const QUICK: Duration = Duration::from_secs(1);
/// The broker repeats itself every minute; the same within less is a new broker's first word.
const REPEAT: Duration = Duration::from_secs(50);
/// How much longer than the broker we wait before we call the time ourselves.
const SLACK: Duration = Duration::from_secs(2);

/// `partage run`. Returns only for `--dry-run` and failures.
pub fn run(arguments: &Run, sources: &clap::ArgMatches, place: &Place, report: &Report) -> Outcome<u8> {
    let mut request = read_settings(arguments, sources)?;
    let command = Command::find(&arguments.command)?;
    if let Some(unmanaged) = &command.unmanaged {
        if arguments.strict {
            let message = format!("--strict refuses {}", command.file.display());
            return Err(Failure::new(Kind::Unmanageable, message).hint(unmanaged.sentence()));
        }
        report.say(&unmanaged.sentence());
        if report.is_json {
            let body = json!({ "what": unmanaged.what, "why": unmanaged.why, "instead": unmanaged.instead });
            report.document("unmanaged", json!({ "unmanaged": body }));
        }
    }
    // Before admission: a job that cannot be limited must not take a place.
    installed::find(installed::LIBRARY)?;
    if let Some(job) = nested::enclosing_job(place)? {
        return nested::run(arguments, &job, command, place, report);
    }
    request.visible_devices = command.environment.get("CUDA_VISIBLE_DEVICES").map(lossy);
    request.command = command.shown.clone();
    let admission = Admission {
        place,
        report,
        is_quiet: arguments.quiet,
        longest_ns: request.wait_timeout_ns,
    };
    match admission.ask(&request)? {
        Answer::Said(message) => {
            let data = Report {
                is_launcher: false,
                ..*report
            };
            data.data("dry-run", json!({ "message": message }), |style| {
                style.text(&message) + "\n"
            });
            Ok(0)
        }
        Answer::Admitted(admitted) if arguments.dry_run => {
            let data = Report {
                is_launcher: false,
                ..*report
            };
            let mut text = format!("would run {}", on_devices(&admitted));
            for note in &admitted.notes {
                text.push_str("; ");
                text.push_str(note);
            }
            data.data(
                "dry-run",
                json!({ "message": text, "admitted": without_token(&admitted) }),
                |style| style.text(&text) + "\n",
            );
            Ok(0)
        }
        Answer::Admitted(admitted) => {
            if report.is_json {
                report.document("admitted", json!({ "admitted": without_token(&admitted) }));
            } else if !arguments.quiet && std::io::stderr().is_terminal() {
                report.say(&format!("{} {}", admitted.job, on_devices(&admitted)));
            }
            if !arguments.quiet {
                admitted.notes.iter().for_each(|note| report.say(note));
            }
            start(command, &admitted, place)
        }
    }
}

/// COMMAND: its words, its file, and whether the limit follows it.
pub struct Command {
    /// As typed.
    pub words: Vec<OsString>,
    /// The same for people.
    pub shown: Vec<String>,
    /// What will be executed.
    pub file: PathBuf,
    /// Why the limit does not follow, if so.
    pub unmanaged: Option<Unmanaged>,
    /// The caller's environment.
    pub environment: Environment,
}

impl Command {
    /// Finds and judges COMMAND.
    ///
    /// # Errors
    /// It is not there (127) or cannot be executed (126).
    pub fn find(words: &[OsString]) -> Outcome<Self> {
        let environment = Environment::inherited();
        let path = environment.get("PATH").map(OsStr::to_owned);
        let first = words.first().map_or(OsStr::new(""), OsString::as_os_str);
        let file = match (find(first, path.as_deref()), own_program(first)) {
            (Err(failure), Some(own)) if failure.kind == Kind::NotFound => own,
            (found, _) => found?,
        };
        let shown: Vec<String> = words.iter().map(lossy).collect();
        let unmanaged = judge(&shown, &file, path.as_deref(), Caller::here());
        Ok(Self {
            words: words.to_vec(),
            shown,
            file,
            unmanaged,
            environment,
        })
    }
}

/// When which waiting line was written last.
type Said = Option<(Instant, String)>;

/// What the broker said in the end.
enum Answer {
    Admitted(Box<Admitted>),
    Said(String),
}

/// The conversation that makes this process a job.
struct Admission<'a> {
    place: &'a Place,
    report: &'a Report,
    is_quiet: bool,
    /// `--wait-timeout` as asked.
    longest_ns: Option<u64>,
}

impl Admission<'_> {
    /// Asks until there is an answer; a broker that dies meanwhile is replaced without a word.
    fn ask(&self, request: &RunRequest) -> Outcome<Answer> {
        let mut request = request.clone();
        let began = Instant::now();
        let mut losses = 0;
        let mut said = None;
        loop {
            let asked = Instant::now();
            if let Some(longest) = request.wait_timeout_ns {
                // What an earlier broker kept us waiting counts.
                let left = Duration::from_nanos(longest).saturating_sub(began.elapsed());
                request.wait_timeout_ns = Some(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX));
            }
            let lost = match self.converse(&request, &mut said)? {
                Ok(answer) => return Ok(answer),
                Err(lost) => lost,
            };
            losses = if asked.elapsed() < QUICK { losses + 1 } else { 1 };
            if losses == MOST_LOSSES {
                return Err(lost.into_failure(&self.place.dir));
            }
        }
    }

    /// One conversation; the inner error is a broker that went away.
    fn converse(&self, request: &RunRequest, said: &mut Said) -> Outcome<Result<Answer, ConnectionError>> {
        let fail = |error: ConnectionError| error.into_failure(&self.place.dir);
        let began = Instant::now();
        let mut connection = launch_broker::reach(self.place)?;
        match connection.say(&Request::Run(Box::new(request.clone()))) {
            Ok(()) => {}
            Err(ConnectionError::Ended) => return Ok(Err(ConnectionError::Ended)),
            Err(other) => return Err(fail(other)),
        }
        let longest = request.wait_timeout_ns.map(Duration::from_nanos);
        let deadline = longest.and_then(|longest| began.checked_add(longest)?.checked_add(SLACK));
        loop {
            match connection.hear(deadline) {
                Ok(Reply::Waiting(waiting)) if request.dry_run => {
                    return Ok(Ok(Answer::Said(format!("would wait: {}", wait_text(&waiting)))));
                }
                Ok(Reply::Waiting(waiting)) => self.say_waiting(&waiting, said),
                Ok(Reply::Admitted(admitted)) => return Ok(Ok(Answer::Admitted(Box::new(admitted)))),
                Ok(Reply::Done { message }) if request.dry_run => return Ok(Ok(Answer::Said(message))),
                Ok(Reply::Error(error)) => return Err(error.into()),
                Ok(other) => return Err(fail(ConnectionError::Unreadable(format!("{other:?}")))),
                Err(ConnectionError::Ended) => return Ok(Err(ConnectionError::Ended)),
                Err(ConnectionError::Late) => {
                    let longest = format_duration(self.longest_ns.unwrap_or_default());
                    let message = format!("no room within {longest} (--wait-timeout)");
                    return Err(Failure::new(Kind::NoRoom, message).hint("see who holds it: partage status"));
                }
                Err(other) => return Err(fail(other)),
            }
        }
    }

    /// Passes on what the broker says at once and every minute; a second broker's first word may repeat the first's last.
    fn say_waiting(&self, waiting: &Waiting, said: &mut Said) {
        if self.report.is_json {
            self.report.document("waiting", json!({ "waiting": waiting }));
        }
        let text = wait_text(waiting);
        let is_repeated = said
            .as_ref()
            .is_some_and(|(at, last)| *last == text && at.elapsed() < REPEAT);
        if !self.is_quiet && !is_repeated {
            self.report.say(&format!("waiting: {text}"));
            *said = Some((Instant::now(), text));
        }
    }
}

fn wait_text(waiting: &Waiting) -> String {
    let mut text = format!("{} (place {} in the queue)", waiting.reason, waiting.position);
    if !waiting.holders.is_empty() {
        text.push_str("; held by ");
        text.push_str(&holders(&waiting.holders));
    }
    text
}

/// Becomes COMMAND as the first process of an admitted job.
fn start(command: Command, admitted: &Admitted, place: &Place) -> Outcome<u8> {
    let Command {
        words,
        file,
        unmanaged,
        mut environment,
        ..
    } = command;
    let library = library_copy::provide(&place.dir)?;
    for name in TWINS.iter().chain(&[
        "CUDA_VISIBLE_DEVICES",
        "PARTAGE_BROKER",
        "PARTAGE_DEVICES",
        "PARTAGE_MEM_BYTES",
    ]) {
        environment.remove(name);
    }
    environment.set("PARTAGE_TOKEN", &admitted.token);
    environment.set("PARTAGE_SOCKET_DIR", &place.dir);
    // A process that starts while no broker answers must not see other jobs' devices.
    let devices: Vec<&str> = admitted.devices.iter().map(|device| device.uuid.as_str()).collect();
    environment.set("PARTAGE_DEVICES", devices.join(","));
    // One number for all devices, so the largest: it may only lower, and the broker knows each device's own.
    let limits: Option<Vec<u64>> = admitted.devices.iter().map(|device| device.limit_bytes).collect();
    if let Some(limit) = limits.and_then(|limits| limits.into_iter().max()) {
        environment.set("PARTAGE_MEM_BYTES", limit.to_string());
    }
    if admitted.is_private {
        environment.set("PARTAGE_BROKER", installed::find(installed::BROKER)?);
    }
    // A 32-bit program's loader would complain about our library in the program's own output.
    preload(&mut environment, &library, unmanaged.is_some_and(|u| u.rejects_preload));
    Err(become_command(&file, &words, &environment))
}

/// Puts the library first in `LD_PRELOAD`, in place of other copies of ours.
pub fn preload(environment: &mut Environment, library: &Path, is_rejected: bool) {
    if !is_rejected {
        environment.put_first("LD_PRELOAD", library, b": ", library_copy::is_ours);
    }
}

/// Removes the variables that `run` has read.
pub fn remove_twins(environment: &mut Environment) {
    TWINS.iter().for_each(|name| environment.remove(name));
}

/// `on GPU 3 (H200), limit 35.2 GiB, promise 30 %`, and how far a private broker's word goes.
fn on_devices(admitted: &Admitted) -> String {
    let mut text = format!(
        "on {}{}",
        devices_text(&admitted.devices),
        time::terms_text(&admitted.terms)
    );
    let has_limit = admitted.devices.iter().any(|device| device.limit_bytes.is_some());
    if admitted.is_private && (has_limit || admitted.terms.promise > 0.0) {
        text.push_str("; promised among your own jobs only");
    }
    text
}

/// `GPU 3 (H200), limit 35.2 GiB` or `GPUs 0,1 (H200), limit 8 GiB each`.
pub fn devices_text(devices: &[JobDeviceView]) -> String {
    let indices = devices
        .iter()
        .map(|d| d.index.to_string())
        .collect::<Vec<_>>()
        .join(",");
    let mut models: Vec<&str> = devices.iter().map(|d| terminal::model(&d.model)).collect();
    models.dedup();
    let is_one = devices.len() == 1;
    let mut limits: Vec<Option<u64>> = devices.iter().map(|d| d.limit_bytes).collect();
    limits.dedup();
    let limit = match limits.as_slice() {
        [] | [None] => "no limit".to_owned(),
        [Some(bytes)] if is_one => format!("limit {}", format_bytes(*bytes)),
        [Some(bytes)] => format!("limit {} each", format_bytes(*bytes)),
        several => {
            let one = |limit: &Option<u64>| limit.map_or("none".to_owned(), format_bytes);
            format!("limits {}", several.iter().map(one).collect::<Vec<_>>().join(", "))
        }
    };
    format!(
        "GPU{} {indices} ({}), {limit}{}",
        if is_one { "" } else { "s" },
        models.join(", "),
        aliases_text(devices)
    )
}

/// ` (CUDA_DEVICE_MEMORY_LIMIT=1g)` where other tools' variables set the limits; what one wrote oneself is not repeated.
fn aliases_text(devices: &[JobDeviceView]) -> String {
    let mut said: Vec<&str> = Vec::new();
    for device in devices {
        for words in [&device.limit_from, &device.request_from] {
            let name = words.split('=').next().unwrap_or_default();
            if Variable::of(name.as_bytes()).is_some() && !said.contains(&words.as_str()) {
                said.push(words);
            }
        }
    }
    if said.is_empty() {
        String::new()
    } else {
        format!(" ({})", said.join(", "))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn device(index: u32, limit: Option<u64>) -> JobDeviceView {
        JobDeviceView {
            index,
            uuid: format!("GPU-{index}"),
            model: "NVIDIA H200".to_owned(),
            limit_bytes: limit,
            request_bytes: 0,
            used_bytes: 0,
            peak_bytes: 0,
            granted_bytes: 0,
            denied: partage_protocol::admin::DeniedView::default(),
            limit_from: String::new(),
            request_from: String::new(),
            overhead_bytes: 0,
            managed_bytes: 0,
            time: None,
        }
    }

    #[test]
    fn the_line_on_the_terminal_reads_the_value_back() {
        let limit = (35.2 * (1_u64 << 30) as f64) as u64;
        assert_eq!(devices_text(&[device(3, Some(limit))]), "GPU 3 (H200), limit 35.2 GiB");
        assert_eq!(devices_text(&[device(3, None)]), "GPU 3 (H200), no limit");
        let two = [device(0, Some(8 << 30)), device(1, Some(8 << 30))];
        assert_eq!(devices_text(&two), "GPUs 0,1 (H200), limit 8 GiB each");
        let uneven = [device(0, Some(8 << 30)), device(1, Some(4 << 30))];
        assert_eq!(devices_text(&uneven), "GPUs 0,1 (H200), limits 8 GiB, 4 GiB");
        let mut alias = device(3, Some(1 << 30));
        alias.limit_from = "CUDA_DEVICE_MEMORY_LIMIT=1g".to_owned();
        assert_eq!(
            devices_text(&[alias.clone()]),
            "GPU 3 (H200), limit 1 GiB (CUDA_DEVICE_MEMORY_LIMIT=1g)"
        );
        alias.limit_from = "--mem 1GiB".to_owned();
        assert_eq!(devices_text(&[alias]), "GPU 3 (H200), limit 1 GiB");
    }

    #[test]
    fn every_option_of_run_that_has_a_variable_is_removed_from_the_commands_environment() {
        use clap::CommandFactory;
        let command = crate::arguments::Arguments::command();
        let run = command.find_subcommand("run").expect("run exists");
        let variables: Vec<&OsStr> = run.get_arguments().filter_map(clap::Arg::get_env).collect();
        for name in TWINS {
            assert!(variables.contains(&OsStr::new(name)), "{name} is no variable of run");
        }
        for variable in variables {
            assert!(
                TWINS.iter().any(|name| variable == *name),
                "{variable:?} would reach COMMAND"
            );
        }
    }
}
