// SPDX-License-Identifier: Apache-2.0
//! `partage restore`: verify, be admitted as a job, have CRIU restore its processes, stay their parent.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{ForkResult, Pid, fork};
use partage_protocol::admin::{Admitted, Reply, Request, RunRequest};
use partage_protocol::size::parse_duration;
use partage_protocol::snapshot::{Manifest, Needs, RestoreRequest, SavedDevice, SavedEvery, SavedSockets, Unfit};
use partage_protocol::units::SECOND_NS;

use super::checkpoint::prepare;
use super::criu;
use super::files::{self, Care};
use super::pages::{self, Pages};
use super::processes::{self, Folder, Order, Work};
use crate::arguments::{GpuPair, OnFull, Restore};
use crate::failure::{Failure, Kind, Outcome};
use crate::launch::admission::{Admission, Answer, wait_text};
use crate::launch::place::Place;
use crate::launch::run_settings::{files_max, saved_every};
use crate::launch::{launch_broker, supervise};
use crate::link::connection::{Connection, ConnectionError};
use crate::show::report::Report;
use crate::show::tables::joined;

/// The caller may not run CRIU, whatever else `restore` answers.
const NO_RIGHT: u8 = 3;

/// The processes could not be restored.
const FAILED: u8 = 125;

/// A snapshot's processes are back within this, and so much more for each GiB of its files: CRIU alone reads some
/// 1 GiB/s, and the slowest disk some 50 MB/s.
const LEAST: Duration = Duration::from_secs(120);
const PER_GIB: Duration = Duration::from_secs(20);

/// How the listener ends a job that could not come back.
const KILLED: u8 = 128 + libc::SIGKILL as u8;

/// For how long a job may be about to end by itself when the broker says that it does not come back.
const ENDING: Duration = Duration::from_secs(2);

/// `partage restore`.
pub fn restore(arguments: &Restore, place: &Place, report: &Report) -> Outcome<u8> {
    if let Err(failure) = criu::may_restore() {
        report.failure(&failure);
        return Ok(NO_RIGHT);
    }
    let criu = criu::find()?;
    let folder = &arguments.dir;
    let found = folder
        .canonicalize()
        .map_err(|error| Failure::cannot("find", folder, error))?;
    let opened = Folder::open(&found)?;
    let (generation, manifest) = open(&found, &opened, arguments.generation)?;
    let care = Care {
        folder: &opened,
        shown: &found,
        generation: &generation,
        mode: files::mode(arguments.files),
    };
    care.check()?;
    let saved = saved(arguments, &found)?;
    let request = as_run(arguments, &manifest, saved)?;
    let order = Order {
        criu: &criu,
        folder: &opened,
        generation: &generation,
        sockets: &place.dir,
        within: within(arguments, &manifest)?,
    };
    if !arguments.detach {
        return run((&order, &care), &manifest, &request, place, report, None);
    }
    let (hears, says) = nix::unistd::pipe2(OFlag::O_CLOEXEC)
        .map_err(|error| Failure::failed(format!("cannot make a pipe: {}", error.desc())))?;
    // SAFETY: this process has one thread, so the child may use everything that the parent may.
    match unsafe { fork() } {
        Ok(ForkResult::Child) => {
            drop(hears);
            let _ = nix::unistd::setsid();
            let mut told = says.try_clone().map(std::fs::File::from);
            let done = run((&order, &care), &manifest, &request, place, report, Some(says));
            if let (Err(failure), Ok(told)) = (&done, &mut told) {
                // Nobody may be there to hear it.
                let _ = told.write_all(&[failure.exit_code(true)]);
            }
            done
        }
        Ok(ForkResult::Parent { .. }) => {
            drop(says);
            let mut code = [1];
            // Without a word it was killed.
            let is_said = std::fs::File::from(hears).read_exact(&mut code).is_ok();
            Ok(if is_said { code[0] } else { FAILED })
        }
        Err(error) => Err(Failure::failed(format!("cannot start a process: {}", error.desc()))),
    }
}

/// For how long the processes may take to come back.
fn within(arguments: &Restore, manifest: &Manifest) -> Outcome<Duration> {
    if let Some(text) = &arguments.timeout {
        let given = parse_duration(text).map_err(|e| Failure::invalid(format!("--timeout: {e}")))?;
        return Ok(Duration::from_nanos(given));
    }
    let bytes = manifest
        .files
        .iter()
        .fold(0, |sum: u64, file| sum.saturating_add(file.bytes));
    Ok(LEAST + PER_GIB * u32::try_from(bytes >> 30).unwrap_or(u32::MAX))
}

/// Has the broker's program verify the snapshot but for its pages; answers the generation's name.
fn open(path: &Path, folder: &Folder, generation: Option<u64>) -> Outcome<(String, Manifest)> {
    let fail = |why: String| Failure::failed(why);
    let (mut command, _given) = pages::opening(path, folder)?;
    if let Some(generation) = generation {
        command.arg("--generation").arg(generation.to_string());
    }
    let output = command
        .output()
        .map_err(|error| fail(format!("the broker's program: {error}")))?;
    if !output.status.success() {
        return Err(pages::damaged(path, &String::from_utf8_lossy(&output.stderr)));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (name, manifest) = text.split_once('\n').unwrap_or((&text, ""));
    let unfit = |unfit: Unfit| fail(format!("{} cannot be restored: {unfit}", path.display()));
    Ok((name.to_owned(), Manifest::parse(manifest.as_bytes()).map_err(unfit)?))
}

/// Everything from the admission on; `says` hears the code of a detached one.
fn run(
    (order, care): (&Order<'_>, &Care<'_>),
    manifest: &Manifest,
    request: &RunRequest,
    place: &Place,
    report: &Report,
    says: Option<OwnedFd>,
) -> Outcome<u8> {
    let mut pages = Pages::verify(care.shown, care.folder, manifest.generation)?;
    let admission = Admission {
        place,
        report,
        is_quiet: false,
        longest_ns: request.wait_timeout_ns,
    };
    let admitted = match admission.ask(request)?.0 {
        Answer::Admitted(admitted) => admitted,
        Answer::Said(said) => return Err(Failure::failed(said)),
        Answer::Inside(job) => {
            let message = format!("this is inside {}, which was registered", job.job);
            return Err(Failure::new(Kind::NotAllowed, message).hint("restore it outside the container"));
        }
    };
    let until = Instant::now() + order.within;
    let files = care.apply(&mut pages, until)?;
    files.iter().for_each(|note| report.say(note));
    let mut connection = launch_broker::reach(place)?;
    expect(&mut connection, (manifest, order.within), files, place)?;
    let signals = supervise::block().map_err(|error| Failure::failed(error.desc()))?;
    let work = Work::new()?;
    let first = pages.judge(processes::begin(order, until, &work, pages.word()), until)?;
    if let Some(broken) = broken(&manifest.sockets) {
        report.say(&broken);
    }
    // Now: SIGKILL, as of `checkpoint --stop`, leaves no moment for it.
    drop((work, pages));
    let failed = Arc::new(AtomicU8::new(0));
    let listener = Listener {
        connection,
        place: place.clone(),
        report: *report,
        admitted,
        first,
        says,
        failed: Arc::clone(&failed),
    };
    std::thread::spawn(move || listener.listen());
    let ended = supervise::wait(first, &signals).map_err(|error| Failure::failed(error.desc()))?;
    Ok(match failed.load(Ordering::Acquire) {
        code if code != 0 && ended == KILLED => code,
        // It came back, and ended by itself before the broker's answer was read, or while it was.
        _ => ended,
    })
}

/// What came back broken, as its save was told by `--tcp close`.
fn broken(sockets: &SavedSockets) -> Option<String> {
    let peers: Vec<String> = sockets.ended.iter().map(|(_, peer)| peer.to_string()).collect();
    let tcp = match (sockets.is_tcp_closed, peers.as_slice()) {
        (true, _) => Some("the TCP connections".to_owned()),
        (false, []) => None,
        (false, peers) => Some(format!("TCP to {}", peers.join(", "))),
    };
    let unix = match sockets.closed.len() {
        0 => None,
        1 => Some("1 unix socket to outside".to_owned()),
        count => Some(format!("{count} unix sockets to outside")),
    };
    let all: Vec<String> = tcp.into_iter().chain(unix).collect();
    (!all.is_empty()).then(|| format!("broken as by a lost network (--tcp close): {}", all.join(", ")))
}

/// `--checkpoint-every` and `--checkpoint-out`; the folder is the one that is restored from, unless another is named.
fn saved(arguments: &Restore, from: &Path) -> Outcome<Option<SavedEvery>> {
    let Some(text) = &arguments.checkpoint_every else {
        return Ok(None);
    };
    let out = arguments.checkpoint_out.as_deref().unwrap_or(from);
    let bad = |why: String| Failure::invalid(format!("--checkpoint-every: {why}"));
    let saved = saved_every(text, out, arguments.tcp).map_err(bad)?;
    let files_max = files_max(arguments.files_max.as_deref())?;
    prepare(SavedEvery { files_max, ..saved }, false).map(Some)
}

/// The request of a `run` with the snapshot's limits, on its devices.
fn as_run(arguments: &Restore, manifest: &Manifest, saved: Option<SavedEvery>) -> Outcome<RunRequest> {
    let timeout = arguments.wait_timeout.as_deref().map(parse_duration).transpose();
    let wait_timeout_ns = timeout.map_err(|e| Failure::invalid(format!("--wait-timeout: {e}")))?;
    let job = &manifest.job;
    let terms = &job.terms;
    let onto = onto(&arguments.gpu_map, &manifest.devices)?;
    let devices = match onto.is_empty() {
        true => manifest.devices.iter().map(|device| device.uuid.clone()).collect(),
        false => onto.clone(),
    };
    let part = |ppm: u32| format!("{}%", f64::from(ppm) / 10_000.0);
    Ok(RunRequest {
        mem: job.limit_bytes.map(|bytes| format!("{bytes}B")),
        mem_request: job.limit_bytes.map(|_| format!("{}B", job.request_bytes)),
        compute: (job.promise_ppm > 0).then(|| part(job.promise_ppm)),
        compute_max: job.cap_ppm.map(part),
        weight: Some(job.weight.to_string()),
        priority: Some(job.class.clone()),
        gpu: Some(devices.join(",")),
        name: job.name.clone(),
        process_mem: terms.process_bytes.map(|bytes| format!("{bytes}B")),
        time_limit_ns: terms.time_left_ns.map(|left| left.max(SECOND_NS)),
        preemptible: terms.preemptible,
        idle_release_ns: terms.idle_release_ns,
        strict: terms.strict,
        labels: terms.labels.clone(),
        saved,
        wait: arguments.on_full.unwrap_or_default() == OnFull::Wait,
        wait_timeout_ns,
        token: Some(job.token.clone()),
        restored: Some(Box::new(Needs {
            devices: manifest.devices.clone(),
            driver: manifest.driver.clone(),
            root: manifest.root,
            machine: manifest.machine.clone(),
            onto,
        })),
        command: job.command.clone(),
        ..RunRequest::default()
    })
}

/// Which device takes the place of each one of the snapshot, as `--gpu-map` says; nothing without it. The broker knows
/// what the new ones are.
fn onto(map: &[GpuPair], saved: &[SavedDevice]) -> Outcome<Vec<String>> {
    let fail = |why: String| Failure::failed(format!("--gpu-map: {why}"));
    if map.is_empty() {
        return Ok(Vec::new());
    }
    let mut onto: Vec<Option<&str>> = vec![None; saved.len()];
    for GpuPair { old, new } in map {
        let is_meant =
            |(slot, device): (usize, &SavedDevice)| old.parse() == Ok(slot) || device.uuid.eq_ignore_ascii_case(old);
        let Some(slot) = saved.iter().enumerate().position(is_meant) else {
            let list: Vec<String> = saved.iter().enumerate().map(listed).collect();
            let list = joined(&list, ", ", "none");
            return Err(fail(format!("{old} is no GPU of the snapshot, which has {list}")));
        };
        if let Some(before) = onto[slot].replace(new) {
            return Err(fail(format!("{old} becomes {before} and {new}: name each GPU once")));
        }
    }
    let whole = onto.iter().zip(saved);
    Ok(whole
        .map(|(new, saved)| new.unwrap_or(&saved.uuid).to_owned())
        .collect())
}

fn listed((slot, device): (usize, &SavedDevice)) -> String {
    format!("{slot} ({}, {})", device.uuid, device.name)
}

/// Says who will come back, until the broker is ready for them.
fn expect(
    connection: &mut Connection,
    (manifest, within): (&Manifest, Duration),
    files: Vec<String>,
    place: &Place,
) -> Outcome<()> {
    let request = Request::Restore(Box::new(RestoreRequest {
        saved_job: manifest.job.id.clone(),
        devices: manifest.devices.clone(),
        machine: manifest.machine.clone(),
        clients: manifest.clients.clone(),
        within_ns: u64::try_from(within.as_nanos()).ok(),
        files,
    }));
    let fail = |error: ConnectionError| error.into_failure(&place.dir);
    connection.say(&request).map_err(fail)?;
    match connection.hear(None).map_err(fail)? {
        Reply::Waiting(_) => Ok(()),
        Reply::Error(error) => Err(error.into()),
        other => Err(fail(ConnectionError::Unreadable(format!("{other:?}")))),
    }
}

/// Puts nothing where standard input, output and error are: the job has its own.
fn let_go_of_streams() -> nix::Result<()> {
    let null = nix::fcntl::open(
        c"/dev/null",
        OFlag::O_RDWR | OFlag::O_CLOEXEC,
        nix::sys::stat::Mode::empty(),
    )?;
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    nix::unistd::dup2_stderr(&null)
}

/// Hears how the job comes back, while its processes are waited for.
struct Listener {
    connection: Connection,
    place: Place,
    report: Report,
    admitted: Box<Admitted>,
    first: Pid,
    says: Option<OwnedFd>,
    /// The exit code, where it was ended because it could not come back.
    failed: Arc<AtomicU8>,
}

impl Listener {
    fn listen(mut self) {
        let job = self.admitted.job.clone();
        let code = loop {
            match self.connection.hear(None) {
                Ok(Reply::Waiting(waiting)) => self.report.say(&format!("waiting: {}", wait_text(&waiting))),
                Ok(Reply::Done { .. }) => {
                    self.report.say(&format!("{job} runs again"));
                    break 0;
                }
                Ok(Reply::Error(error)) => {
                    // It came back, and ended before this was answered: its first process has the code.
                    if let Some(code) = self.code_of_its_own() {
                        break code;
                    }
                    let failure = Failure::from(error);
                    self.report.failure(&failure);
                    let code = failure.exit_code(true);
                    self.failed.store(code, Ordering::Release);
                    // It waits, suspended: nobody could say when to bring it back.
                    let _ = nix::sys::signal::kill(self.first, nix::sys::signal::Signal::SIGKILL);
                    break code;
                }
                Ok(_) => {}
                // Another broker goes on with it.
                Err(_) => match self.ask_the_next(&job) {
                    Some(connection) => self.connection = connection,
                    None => break FAILED,
                },
            }
        };
        if let Some(says) = self.says {
            // Nobody may be there to hear it.
            let _ = std::fs::File::from(says).write_all(&[code]);
            // Nobody waits for it; whoever reads its output would wait for its end.
            let _ = let_go_of_streams();
        }
        launch_broker::keep(&self.place);
    }

    /// The code for a job whose first process ends while it is looked at; that of one that is suspended does not.
    fn code_of_its_own(&self) -> Option<u8> {
        let until = Instant::now() + ENDING;
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        while Instant::now() < until {
            match waitid(Id::Pid(self.first), look) {
                Ok(WaitStatus::StillAlive) => std::thread::sleep(Duration::from_millis(10)),
                // It ran; how it ended is nothing to whoever asked for it alone.
                Ok(WaitStatus::Exited(_, code)) if code != i32::from(FAILED) => return Some(0),
                // Waited for already, among others.
                _ => return Some(FAILED),
            }
        }
        None
    }

    fn ask_the_next(&self, job: &str) -> Option<Connection> {
        let connection = launch_broker::reach(&self.place).ok()?;
        let request = Request::Resume {
            target: job.to_owned(),
            wait: true,
            wait_timeout_ns: None,
        };
        connection.say(&request).ok()?;
        Some(connection)
    }
}
