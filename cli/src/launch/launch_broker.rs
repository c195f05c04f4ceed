// SPDX-License-Identifier: Apache-2.0
//! Reaching the broker, and starting a private one when none answers.
//!
//! A broker that we start must never be COMMAND's child, hold its pipes or live in its session: double fork, own
//! session, no inherited descriptor, `/` as folder, none of the job's variables. What it says before its log is open
//! goes to `partaged.stderr`. Commands that start together agree through a lock on `start.lock`; the broker's own lock
//! is the last word.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork, pipe2, read, setsid};
use partage_protocol::driver_place;
use partage_protocol::message::RESTORE_NAME;

use crate::failure::{Failure, Kind, Outcome};
use crate::launch::broker_process::BrokerProcess;
use crate::launch::installed;
use crate::launch::place::{Place, Rule};
use crate::link::connection::{Connection, ConnectionError};
use crate::link::silence;

/// How long `run` waits for the broker of a managed host, and for a private one to come up.
const PATIENCE: Duration = Duration::from_secs(10);

/// A broker that meets one that is leaving ends with it; meeting several in a row is no accident.
const MOST_STARTS: u32 = 3;
/// Between two attempts to have a broker stand: at first, and after several that failed.
const LEAST_PAUSE: Duration = Duration::from_secs(1);
const MOST_PAUSE: Duration = Duration::from_secs(60);
/// The broker's standard error, in its directory.
const STDERR: &str = "partaged.stderr";
/// Seconds after its last job that a private broker leaves; 60 without it.
const IDLE_EXIT: &str = "PARTAGE_IDLE_EXIT";

/// Connects to the broker that listens, without starting one.
///
/// # Errors
/// Nobody listens, or it may not be used.
pub fn meet(place: &Place) -> Outcome<Connection> {
    place.check()?;
    open(place).map_err(|error| {
        let is_absent = matches!(error, ConnectionError::Absent(_));
        let failure = error.into_failure(&place.dir);
        match (is_absent, place.rule) {
            (true, Rule::Private) => failure.hint("the next `partage run` starts one; or: partage broker start"),
            (true, Rule::Managed) => failure.hint("this host's administrator starts it: systemctl start partaged"),
            (false, _) => failure,
        }
    })
}

/// Connects to the broker that listens: as an administrator where the kernel lets the caller, else as everyone.
///
/// # Errors
/// As [`Connection::open`].
pub fn open(place: &Place) -> Result<Connection, ConnectionError> {
    if let Some(socket) = place.admin_socket() {
        match Connection::open(&socket) {
            // Not for this user; or the broker is gone, and its socket left.
            Err(ConnectionError::Refused(_) | ConnectionError::Absent(_)) => {}
            other => return other,
        }
    }
    Connection::open(&place.client_socket())
}

/// Connects to the broker; starts a private one, or waits for a managed one.
///
/// # Errors
/// None came up in time, or it may not be used.
pub fn reach(place: &Place) -> Outcome<Connection> {
    match place.rule {
        Rule::Managed => {
            place.check()?;
            let result = attempts(place, Instant::now() + PATIENCE, || false);
            result.map_err(|error| match error {
                ConnectionError::Absent(errno) => Failure::new(
                    Kind::NoBroker,
                    format!(
                        "this host's broker does not answer at {} (waited {} s: {})",
                        place.client_socket().display(),
                        PATIENCE.as_secs(),
                        errno.desc().to_lowercase()
                    ),
                )
                .hint("its administrator starts it: systemctl start partaged"),
                other => other.into_failure(&place.dir),
            })
        }
        Rule::Private => reach_private(place),
    }
}

/// Has a private broker stand as long as this process lives: starts the next one where one ended. For the processes of
/// a namespace that has none of its own.
pub fn keep(place: &Place) {
    if place.rule != Rule::Private {
        return;
    }
    let mut pause = LEAST_PAUSE;
    loop {
        match reach(place).ok().and_then(|connection| connection.peer()) {
            Some(pid) => {
                BrokerProcess::of(pid.cast_signed()).wait_for_its_end();
                pause = LEAST_PAUSE;
            }
            // Its folder or its program is gone, the disk is full, or nobody can tell which process it is.
            None => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(MOST_PAUSE);
            }
        }
    }
}

/// Writes down for the broker where this process finds the driver, if the loader alone would not: the broker gets none
/// of the caller's `LD_LIBRARY_PATH`. A broker that runs reads it when it looks for the driver again.
pub fn remember_driver(place: &Place) -> Outcome<()> {
    let Some(folder) = driver_folder().filter(|_| env::var_os("PARTAGE_SIM_DIR").is_none()) else {
        return Ok(());
    };
    place.prepare()?;
    let path = place.dir.join(driver_place::FILE);
    let bytes = folder.as_os_str().as_bytes();
    if std::fs::read(&path).is_ok_and(|now| now == bytes) {
        return Ok(());
    }
    // In one piece: a broker may be reading.
    let beside = place.dir.join(format!("{}.{}", driver_place::FILE, std::process::id()));
    let result = open_own(&beside, true)?
        .write_all(bytes)
        .and_then(|()| std::fs::rename(&beside, &path));
    result.map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        Failure::cannot("write", path, error)
    })
}

/// The folder of this process's `LD_LIBRARY_PATH` that has NVML.
pub fn driver_folder() -> Option<std::path::PathBuf> {
    let value = env::var_os("LD_LIBRARY_PATH")?;
    driver_place::in_search_path(driver_place::NVML, &value, Path::is_file)
}

fn reach_private(place: &Place) -> Outcome<Connection> {
    place.check()?;
    // A hint that cannot be written (full disk) matters only to a broker that is not there yet.
    let remembered = remember_driver(place);
    match open(place) {
        Err(ConnectionError::Absent(_)) => {}
        other => return other.map_err(|error| error.into_failure(&place.dir)),
    }
    start_private(place).map_err(|mut failure| {
        if let Err(first) = remembered
            && first.message != failure.message
        {
            failure.message = format!("{}; also: {}", failure.message, first.message);
        }
        failure
    })
}

fn start_private(place: &Place) -> Outcome<Connection> {
    place.prepare()?;
    let deadline = Instant::now() + PATIENCE;
    if is_among_restored() {
        // It would see no process outside of this namespace; `restore` starts the next one.
        return attempts(place, deadline, || false).map_err(|error| error.into_failure(&place.dir));
    }
    // Held until the broker listens: who comes second finds it listening.
    let _lock = start_lock(&place.dir)?;
    match open(place) {
        Err(ConnectionError::Absent(_)) => {}
        other => return other.map_err(|error| error.into_failure(&place.dir)),
    }
    for _ in 0..MOST_STARTS {
        let broker = start_beside(&place.dir)?;
        // One that found another broker's lock ends at once and rightly: the other one will listen, or leave.
        let is_gone = || broker.has_ended() && !is_broker_alive(&place.dir);
        match attempts(place, deadline, is_gone) {
            Err(ConnectionError::Absent(_)) if Instant::now() >= deadline => {
                return Err(start_failure(&place.dir, "does not listen after 10 s"));
            }
            Err(ConnectionError::Absent(_)) if last_words(&place.dir).is_some() => break,
            // It met one that was leaving: now the place is free.
            Err(ConnectionError::Absent(_)) => {}
            other => return other.map_err(|error| error.into_failure(&place.dir)),
        }
    }
    Err(start_failure(&place.dir, "ended at once"))
}

/// Is this process in a pid namespace that `restore` made?
fn is_among_restored() -> bool {
    let name = std::fs::read("/proc/1/comm").unwrap_or_default();
    name.strip_suffix(b"\n") == Some(RESTORE_NAME.to_bytes())
}

fn start_failure(dir: &Path, what: &str) -> Failure {
    let mut message = format!("the broker started for {} {what}", dir.display());
    if let Some(words) = last_words(dir) {
        message.push_str(": ");
        message.push_str(&words);
    }
    Failure::new(Kind::NoBroker, message).hint(format!("its log: {}/log/partaged.log", dir.display()))
}

/// What the broker wrote to its standard error: the first line, and the last one of several. A fault in a file comes
/// as place, picture and reason.
fn last_words(dir: &Path) -> Option<String> {
    let text = std::fs::read_to_string(dir.join(STDERR)).ok()?;
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines.next()?;
    let first = line.strip_prefix("partaged: ").unwrap_or(line);
    Some(match lines.next_back() {
        Some(last) => format!("{first}: {last}"),
        None => first.to_owned(),
    })
}

/// Does anybody hold the broker's own lock?
fn is_broker_alive(dir: &Path) -> bool {
    let Ok(file) = File::open(dir.join(silence::BROKER_LOCK)) else {
        return false;
    };
    matches!(
        Flock::lock(file, FlockArg::LockSharedNonblock),
        Err((_, Errno::EWOULDBLOCK))
    )
}

/// Connects again and again until the deadline, or until `is_hopeless`.
fn attempts(
    place: &Place,
    deadline: Instant,
    mut is_hopeless: impl FnMut() -> bool,
) -> Result<Connection, ConnectionError> {
    let mut pause = Duration::from_millis(1);
    loop {
        match open(place) {
            Err(ConnectionError::Absent(errno)) => {
                if Instant::now() >= deadline || is_hopeless() {
                    return Err(ConnectionError::Absent(errno));
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(20));
            }
            other => return other,
        }
    }
}

/// Longer than whoever has the lock waits for the broker that it starts.
const LOCK_PATIENCE: Duration = Duration::from_secs(15);

fn start_lock(dir: &Path) -> Outcome<Flock<File>> {
    let path = dir.join("start.lock");
    silence::lock(open_own(&path, false)?, &path, LOCK_PATIENCE, "starting the broker")
}

/// Opens a file that is this user's alone; makes it where it is missing.
///
/// # Errors
/// The system's.
pub fn open_own(path: &Path, is_emptied: bool) -> Outcome<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(is_emptied)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path);
    file.map_err(|error| Failure::cannot("open", path, error))
}

/// Starts the host's broker where no service manager does, and waits until it listens. Its directory is there.
///
/// # Errors
/// It ends, or does not listen in time.
pub fn start_managed(place: &Place, program: &Path) -> Outcome<()> {
    let broker = start(&place.dir, program, &[OsStr::new("--managed")])?;
    match attempts(place, Instant::now() + PATIENCE, || broker.has_ended()) {
        Err(ConnectionError::Absent(_)) if broker.has_ended() => Err(start_failure(&place.dir, "ended at once")),
        Err(ConnectionError::Absent(_)) => Err(start_failure(&place.dir, "does not listen after 10 s")),
        other => other.map(drop).map_err(|error| error.into_failure(&place.dir)),
    }
}

/// Starts a private broker for `dir`.
fn start_beside(dir: &Path) -> Outcome<BrokerProcess> {
    let program = installed::find(installed::BROKER)?;
    let idle_exit = env::var_os(IDLE_EXIT);
    let mut words = vec![OsStr::new("--private"), OsStr::new("--socket-dir"), dir.as_os_str()];
    if let Some(seconds) = &idle_exit {
        words.extend([OsStr::new("--idle-exit"), seconds]);
    }
    start(dir, &program, &words)
}

/// Starts a broker with its first words going into `dir`, and gives what is known of it.
fn start(dir: &Path, program: &Path, words: &[&OsStr]) -> Outcome<BrokerProcess> {
    let fail = |errno: Errno| Failure::cannot("start", program, errno);
    let word = |w: &OsStr| CString::new(w.as_bytes()).map_err(|_| fail(Errno::EINVAL));
    let path = word(program.as_os_str())?;
    let mut arguments = vec![path.clone()];
    for argument in words {
        arguments.push(word(argument)?);
    }
    let environment = broker_environment(env::vars_os());

    let errors = open_own(&dir.join(STDERR), true)?;
    // The reader learns the broker's pid, and then either an errno or (by CLOEXEC) that exec succeeded.
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).map_err(fail)?;
    // SAFETY: the child takes no lock that another thread (`restore` has one) may hold: it makes system calls, and
    // allocates, which glibc allows after a fork.
    match unsafe { fork() }.map_err(fail)? {
        ForkResult::Child => {
            drop(reader);
            become_broker(&writer, &errors, &path, &arguments, &environment)
        }
        ForkResult::Parent { child } => {
            drop(writer);
            let mut said = [0; 8];
            let mut length = 0;
            let mut broker = BrokerProcess::Unknown;
            let number =
                |said: &[u8; 8], at: usize| i32::from_ne_bytes([said[at], said[at + 1], said[at + 2], said[at + 3]]);
            while length < said.len() {
                match read(&reader, &mut said[length..]) {
                    Ok(0) => break,
                    Ok(n) => length += n,
                    Err(Errno::EINTR) => {}
                    Err(errno) => return Err(fail(errno)),
                }
                if length == 4 {
                    // Now: one that ends at once may be gone, pid and all, after its exec.
                    broker = BrokerProcess::of(number(&said, 0));
                }
            }
            // ECHILD where the caller ignores SIGCHLD: the kernel has collected it already.
            while waitpid(child, None) == Err(Errno::EINTR) {}
            match length {
                8 => Err(fail(Errno::from_raw(number(&said, 4)))),
                4 => Ok(broker),
                _ => Err(fail(Errno::EAGAIN)),
            }
        }
    }
}

/// First child: makes the session, forks again, says the pid, leaves. Second child: becomes the broker.
fn become_broker(report: &OwnedFd, errors: &File, path: &CString, arguments: &[CString], environment: &[CString]) -> ! {
    let say = |number: i32| {
        let _ = nix::unistd::write(report, &number.to_ne_bytes());
    };
    let _ = setsid();
    // SAFETY: one thread, as above.
    match unsafe { fork() } {
        Ok(ForkResult::Parent { .. }) => {}
        Err(_) => {}
        Ok(ForkResult::Child) => {
            say(std::process::id().cast_signed());
            let errno = match detach(report, errors) {
                Ok(()) => match nix::unistd::execve(path, arguments, environment) {
                    Ok(never) => match never {},
                    Err(errno) => errno,
                },
                Err(errno) => errno,
            };
            say(errno as i32);
        }
    }
    // SAFETY: `_exit` only ends the process; atexit functions and buffers belong to the parent.
    unsafe { libc::_exit(0) }
}

/// Lets go of everything that the caller's terminal, pipes and shell gave us.
fn detach(report: &OwnedFd, errors: &File) -> Result<(), Errno> {
    nix::unistd::chdir(c"/")?;
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: SIG_DFL is no code of ours; EINVAL for SIGKILL, SIGSTOP and libc's own signals is expected.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    nix::sys::signal::SigSet::empty().thread_set_mask()?;
    let null = nix::fcntl::open(c"/dev/null", OFlag::O_RDWR, nix::sys::stat::Mode::empty())?;
    for (from, standard) in [(null.as_raw_fd(), 0), (null.as_raw_fd(), 1), (errors.as_raw_fd(), 2)] {
        // SAFETY: dup2 onto a standard descriptor replaces what the caller gave; nothing here uses it any more. `main`
        // saw to it that none of ours has such a number.
        Errno::result(unsafe { libc::dup2(from, standard) })?;
    }
    let keep = report.as_raw_fd();
    close_range(3, keep - 1);
    close_range(keep + 1, i32::MAX);
    // Closed with the rest.
    std::mem::forget(null);
    Ok(())
}

/// Closes descriptors by number, these two and all between.
pub fn close_range(first: i32, last: i32) {
    if first > last {
        return;
    }
    // SAFETY: close_range takes numbers only; the descriptors belong to this process, which is about to exec.
    let answer = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if answer != 0 {
        // Kernels before 5.9, or a seccomp filter that does not know the call.
        let most = nix::unistd::sysconf(nix::unistd::SysconfVar::OPEN_MAX)
            .ok()
            .flatten()
            .unwrap_or(1024);
        let most = i32::try_from(most).unwrap_or(i32::MAX).min(1 << 20);
        for fd in first..=last.min(most) {
            // SAFETY: as above.
            unsafe { libc::close(fd) };
        }
    }
}

/// The caller's environment without what belongs to the loader, to a job, or to a choice of devices.
fn broker_environment(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<CString> {
    variables
        .filter(|(name, _)| {
            let name = name.to_string_lossy();
            let is_for_broker = name.starts_with("PARTAGE_SIM_")
                || ["PARTAGE_LOG", "PARTAGE_PID_NAMESPACE", IDLE_EXIT].contains(&&*name);
            let is_ours = name.starts_with("PARTAGE_") && !is_for_broker;
            !name.starts_with("LD_") && !is_ours && name != "CUDA_VISIBLE_DEVICES"
        })
        .filter_map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            CString::new(name.into_vec()).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_broker_inherits_nothing_of_a_job() {
        let of = |pairs: &[(&str, &str)]| {
            broker_environment(pairs.iter().map(|(n, v)| (OsString::from(n), OsString::from(v))))
        };
        let kept = of(&[
            ("PATH", "/bin"),
            ("LD_PRELOAD", "x"),
            ("LD_LIBRARY_PATH", "x"),
            ("PARTAGE_TOKEN", "x"),
            ("PARTAGE_MEM_BYTES", "1"),
            ("PARTAGE_SIM_DIR", "/m"),
            ("CUDA_VISIBLE_DEVICES", "1"),
        ]);
        assert_eq!(kept, [c"PATH=/bin".to_owned(), c"PARTAGE_SIM_DIR=/m".to_owned()]);
    }
}
