// SPDX-License-Identifier: Apache-2.0
//! `partage run`: judge COMMAND, be admitted as a job, become COMMAND.
//!
//! Everything that can be refused is refused before admission, so that a mistake never takes room from others.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use partage_protocol::admin::{Admitted, JobDeviceView, Reply, Request, RunRequest, Waiting};
use partage_protocol::aliases::Variable;
use partage_protocol::size::{format_bytes, format_duration};
use partage_protocol::summary::Summary;
use serde_json::{Value, json};

use crate::arguments::Run;
use crate::commands::jobs;
use crate::commands::status;
use crate::failure::{Failure, Kind, Outcome, holders};
use crate::launch::execute::{Environment, become_command};
use crate::launch::installed;
use crate::launch::launch_broker;
use crate::launch::lazy;
use crate::launch::library_copy;
use crate::launch::nested;
use crate::launch::place::Place;
use crate::launch::preflight::elf;
use crate::launch::preflight::find::find;
use crate::launch::preflight::verdict::{Caller, Unmanaged, judge, own_program};
use crate::launch::run_settings::read_settings;
use crate::launch::supervise;
use crate::launch::variables;
use crate::link::connection::ConnectionError;
use crate::link::silence;
use crate::show::report::Report;
use crate::show::terminal;
use crate::show::time;

/// Variables that `run` reads instead of options. They have done their work: COMMAND does not get them, or a `run`
/// inside would read them again.
pub const TWINS: &[&str] = &[
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
    "PARTAGE_SUMMARY",
    "PARTAGE_LAZY",
];
/// A broker that is lost this often, each time within [`QUICK`], is not coming back.
const MOST_LOSSES: u32 = 5;
const QUICK: Duration = Duration::from_secs(1);
/// The broker repeats itself every minute; the same within less is a new broker's first word.
const REPEAT: Duration = Duration::from_secs(50);
/// How much longer than the broker we wait before we call the time ourselves.
const SLACK: Duration = Duration::from_secs(2);
/// A broker that first has to open the driver answers later than any other: NVML has half a minute for that.
const LATEST_ANSWER: Duration = Duration::from_secs(45);
/// Who waits in the queue hears every minute.
const LONGEST_SILENCE: Duration = Duration::from_secs(75);
/// The broker is given this long to hear that a job's clients left.
const CLIENTS_LEAVE: Duration = Duration::from_secs(1);

/// `partage run`. Returns only for `--dry-run`, `--summary` and failures.
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
    if !arguments.quiet {
        variables::unknown().iter().for_each(|text| report.say(text));
    }
    if arguments.lazy {
        lazy::check(arguments)?;
        if lazy::is_inside() {
            return lazy::stay(command, arguments, place, report);
        }
    }
    if let Some(job) = nested::enclosing_job(place)? {
        return nested::run(arguments, &job, command, place, report);
    }
    let visible = command.environment.get("CUDA_VISIBLE_DEVICES");
    let is_hidden = hides_every_gpu(visible);
    // What is lazy keeps the variable, and is no job while it is so.
    if is_hidden && (arguments.dry_run || !arguments.lazy) {
        return run_without_gpu(command, arguments, place, report);
    }
    request.visible_devices = visible.filter(|_| !is_hidden).map(lossy);
    request.command = command.shown.clone();
    request.quiet = arguments.quiet || arguments.summary;
    if arguments.lazy && !arguments.dry_run {
        return lazy::start(command, request, arguments, place, report);
    }
    let admission = Admission {
        place,
        report,
        is_quiet: arguments.quiet,
        longest_ns: request.wait_timeout_ns,
    };
    let (answer, waited) = admission.ask(&request)?;
    match answer {
        Answer::Said(message) => {
            let data = Report {
                is_launcher: false,
                ..*report
            };
            let message = if arguments.lazy { lazy::later(&message) } else { message };
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
            } else if !arguments.quiet && (waited.is_some() || std::io::stderr().is_terminal()) {
                let waited = waited.map_or(String::new(), |time| format!("; waited {}", format_duration(time)));
                report.say(&format!("{} {}{waited}", admitted.job, on_devices(&admitted)));
            }
            if !arguments.quiet {
                admitted.notes.iter().for_each(|note| report.say(note));
            }
            let words_of = Launch {
                is_quiet: arguments.quiet,
                has_summary: arguments.summary,
            };
            start(command, &admitted, place, words_of, report)
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
    /// Answers how long it waited, in nanoseconds, where it did.
    fn ask(&self, request: &RunRequest) -> Outcome<(Answer, Option<u64>)> {
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
                Ok(answer) => {
                    let waited = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    return Ok((answer, said.map(|_| waited)));
                }
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
        let mut silence = Silence::begin();
        loop {
            let look = silence.deadline();
            match connection.hear(Some(deadline.map_or(look, |deadline| deadline.min(look)))) {
                Ok(Reply::Waiting(waiting)) if request.dry_run => {
                    return Ok(Ok(Answer::Said(format!("would wait: {}", wait_text(&waiting)))));
                }
                Ok(Reply::Waiting(waiting)) => {
                    silence.broken();
                    self.say_waiting(&waiting, said);
                }
                Ok(Reply::Admitted(admitted)) => return Ok(Ok(Answer::Admitted(Box::new(admitted)))),
                Ok(Reply::Done { message }) if request.dry_run => return Ok(Ok(Answer::Said(message))),
                Ok(Reply::Error(error)) => return Err(error.into()),
                Ok(other) => return Err(fail(ConnectionError::Unreadable(format!("{other:?}")))),
                Err(ConnectionError::Ended) => return Ok(Err(ConnectionError::Ended)),
                Err(ConnectionError::Late(_)) if deadline.is_none_or(|deadline| Instant::now() < deadline) => {
                    self.look_after(&mut silence)?;
                }
                Err(ConnectionError::Late(_)) => {
                    let longest = format_duration(self.longest_ns.unwrap_or_default());
                    let message = format!("no room within {longest} (--wait-timeout)");
                    return Err(Failure::new(Kind::NoRoom, message).hint("see who holds it: partage status"));
                }
                Err(other) => return Err(fail(other)),
            }
        }
    }

    /// The broker was silent for longer than one that works: does it answer anybody? Who waits in the queue is told and
    /// waits on; who never had an answer gives up.
    fn look_after(&self, silence: &mut Silence) -> Outcome<()> {
        silence.is_looked_at();
        match status::ask(self.place) {
            Err(failure) if silence.has_spoken => self.say_silence(&failure.sentence()),
            Err(failure) => return Err(failure),
            Ok(_) if silence.has_spoken => {}
            Ok(status) if silence.since.elapsed() >= LATEST_ANSWER => {
                let message = format!(
                    "the broker at {} (pid {}) did not say within {} s whether there is room; its driver: {}",
                    self.place.dir.display(),
                    status.broker.pid,
                    LATEST_ANSWER.as_secs(),
                    status.broker.driver
                );
                return Err(Failure::new(Kind::NoAnswer, message).hint("see: partage doctor"));
            }
            Ok(_) => self.say_silence("the broker is looking for the GPUs; the driver takes its time"),
        }
        Ok(())
    }

    fn say_silence(&self, text: &str) {
        if !self.is_quiet {
            self.report.say(text);
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

/// How long the broker has said nothing to a `run`.
struct Silence {
    since: Instant,
    looked_at: Instant,
    /// It said that the job waits.
    has_spoken: bool,
}

impl Silence {
    fn begin() -> Self {
        let now = Instant::now();
        Self {
            since: now,
            looked_at: now,
            has_spoken: false,
        }
    }

    /// When to look whether the broker answers anybody.
    fn deadline(&self) -> Instant {
        self.looked_at
            + if self.has_spoken {
                LONGEST_SILENCE
            } else {
                silence::PATIENCE
            }
    }

    fn is_looked_at(&mut self) {
        self.looked_at = Instant::now();
    }

    fn broken(&mut self) {
        *self = Self::begin();
        self.has_spoken = true;
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
    let visible = command
        .environment
        .get("CUDA_VISIBLE_DEVICES")
        .map(lossy)
        .unwrap_or_default();
    let text = format!("CUDA_VISIBLE_DEVICES={visible} hides every GPU from COMMAND: it runs without a job");
    if arguments.dry_run {
        let data = Report {
            is_launcher: false,
            ..*report
        };
        data.data("dry-run", json!({ "message": text }), |style| style.text(&text) + "\n");
        return Ok(0);
    }
    if !arguments.quiet {
        report.say(&text);
    }
    place.prepare()?;
    let library = library_copy::provide(&place.dir)?;
    let mut environment = command.environment;
    remove_twins(&mut environment);
    preload(
        &mut environment,
        &library,
        command.unmanaged.is_some_and(|u| u.rejects_preload),
    );
    Err(become_command(&command.file, &command.words, &environment))
}

/// What is said while COMMAND runs and after it.
#[derive(Clone, Copy, Debug)]
struct Launch {
    /// `-q`.
    is_quiet: bool,
    /// `--summary`.
    has_summary: bool,
}

/// Says which file the library may tell of a denial: none with `-q`.
pub(crate) fn set_told(environment: &mut Environment, is_quiet: bool) {
    environment.remove("PARTAGE_STDERR");
    let told = if is_quiet {
        Some("quiet".to_owned())
    } else {
        standard_error()
    };
    if let Some(told) = told {
        environment.set("PARTAGE_STDERR", told);
    }
}

/// The file that standard error is, so that the library speaks there and nowhere else.
pub fn standard_error() -> Option<String> {
    let facts = nix::sys::stat::fstat(std::io::stderr()).ok()?;
    Some(format!("{}:{}", facts.st_dev, facts.st_ino))
}

/// Becomes COMMAND as the first process of an admitted job, or with `--summary` its parent.
fn start(command: Command, admitted: &Admitted, place: &Place, launch: Launch, report: &Report) -> Outcome<u8> {
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
        lazy::REQUEST,
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
    set_told(&mut environment, launch.is_quiet);
    // A 32-bit program's loader would complain about our library in the program's own output.
    preload(&mut environment, &library, unmanaged.is_some_and(|u| u.rejects_preload));
    let_sanitizer_start(&mut environment, &file);
    if launch.has_summary {
        let code = supervise::run(&file, &words, &environment)?;
        summarise(admitted, u32::from(code), place, report);
        return Ok(code);
    }
    Err(become_command(&file, &words, &environment))
}

/// The last line of `run --summary`. What a broker that does not answer would have told is left out.
fn summarise(admitted: &Admitted, code: u32, place: &Place, report: &Report) {
    let target = admitted.job.clone();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    let mut answer = jobs::ask(place, &Request::Get { target }, silence::PATIENCE);
    if report.is_json {
        answer = ended(answer, admitted, place, (code, now_ns));
    }
    let summary = match &answer {
        Ok(Reply::Job(job)) => Summary {
            exit_code: Some(code),
            ..Summary::of(job, now_ns)
        },
        _ => Summary {
            exit_code: Some(code),
            ..Summary::default()
        },
    };
    if let (true, Ok(Reply::Job(job))) = (report.is_json, &answer) {
        report.document("job", json!({ "job": job }));
    }
    report.say(&format!("{} {}", admitted.job, summary.sentence()));
}

/// The job as it is without this process, which is its first and about to leave: it ended with COMMAND, unless other
/// clients of it live on. The broker hears of COMMAND's end a moment after us.
fn ended(mut answer: Outcome<Reply>, admitted: &Admitted, place: &Place, (code, now_ns): (u32, u64)) -> Outcome<Reply> {
    let until = Instant::now() + CLIENTS_LEAVE;
    while let Ok(Reply::Job(job)) = &answer
        && !job.clients.is_empty()
        && Instant::now() < until
    {
        std::thread::sleep(CLIENTS_LEAVE / 50);
        let target = admitted.job.clone();
        answer = jobs::ask(place, &Request::Get { target }, silence::PATIENCE);
    }
    if let Ok(Reply::Job(job)) = &mut answer
        && job.clients.is_empty()
    {
        job.state = "ended".to_owned();
        job.exit_code = Some(code);
        job.ended_ns.get_or_insert(now_ns);
        job.end_reason
            .get_or_insert_with(|| "its last process is gone".to_owned());
    }
    answer
}

/// Puts the library first in `LD_PRELOAD`, in place of other copies of ours.
pub fn preload(environment: &mut Environment, library: &Path, is_rejected: bool) {
    if !is_rejected {
        environment.put_first("LD_PRELOAD", library, b": ", library_copy::is_ours);
    }
}

/// A program with the address sanitizer in a library of its own refuses to start when another library is loaded before
/// that one. Ours defines nothing that the sanitizer does, so it may come first; the sanitizer is told so. Not by putting
/// it before ours in `LD_PRELOAD`: then every program that this one starts would be checked for leaks.
pub fn let_sanitizer_start(environment: &mut Environment, file: &Path) {
    let is_sanitizer = |name: &str| {
        let name = name.rsplit('/').next().unwrap_or(name);
        name.starts_with("libasan.so") || name.starts_with("libclang_rt.asan")
    };
    let preloaded = environment
        .get("LD_PRELOAD")
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let is_needed = elf::libraries_needed(file).iter().any(|name| is_sanitizer(name));
    if is_needed || preloaded.split([' ', ':']).any(is_sanitizer) {
        let mut options = environment.get("ASAN_OPTIONS").unwrap_or_default().to_owned();
        if !options.is_empty() {
            options.push(":");
        }
        options.push("verify_asan_link_order=0");
        environment.set("ASAN_OPTIONS", options);
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
    let indices = devices.iter().map(JobDeviceView::place).collect::<Vec<_>>().join(",");
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
