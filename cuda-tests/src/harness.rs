// SPDX-License-Identifier: Apache-2.0
//! Runs the cases as a test program: each in a session of its own, whose group is killed when the case does not end.
//!
//! ```text
//!  the runner (libtest's arguments) ── starts itself again with CASE=name ──► one case: its rig, clients, broker
//!        │ waits, at most LIMIT                                                │ verdict: exit code, words on stderr
//!        └─ too late: kills the group, and every other process with the case's folder in its environment;
//!           fails the case by name
//! ```

use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::panic::AssertUnwindSafe;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};

use crate::cases::{Case, all, parts, seed};
use crate::rig::{Driver, Rig};
use crate::variables::{CASE, LIMIT, PARTS, TABLE};

/// Some three times what the longest case takes on a machine that is busy with other work; ten times that for full
/// counts.
const DEFAULT_LIMIT: Duration = Duration::from_secs(300);

/// Runs the cases as a test program (the arguments are libtest's).
pub fn main() -> ExitCode {
    // A case and all that it starts begin as from a terminal, whatever `nohup` or `&` left us, and with no descriptor
    // that our caller left open: CRIU refuses one of another mount namespace.
    partage_machine::signals::pass_none_on();
    // SAFETY: changes flags of descriptors alone; a kernel without the call (before 5.11) leaves them as they are.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if let Some(name) = std::env::var_os(CASE) {
        return judge(name.to_str().expect("names are ASCII"));
    }
    let mut arguments = Arguments::from_args();
    // A case is several processes that wait most of the time: three of them keep two cores busy.
    arguments.test_threads.get_or_insert(3);
    let driver = Driver::chosen();
    // The parts are for the cases about this runner alone.
    let cases = if std::env::var_os(PARTS).is_some() {
        parts()
    } else {
        all()
    };
    if driver == Driver::Real || std::env::var_os(TABLE).is_some() {
        let skipped = cases.iter().filter(|case| case.simulated_only.is_some()).count();
        println!(
            "{}{skipped} of {} cases need the simulated driver\n",
            table(&cases),
            cases.len()
        );
    }
    // Last those that want the machine for themselves: amid the others each would wait for some and keep some waiting.
    let (alone, mut cases): (Vec<_>, Vec<_>) = cases.into_iter().partition(|case| case.is_alone);
    cases.extend(alone);
    let trials = cases.into_iter().map(|case| trial(case, driver)).collect();
    println!("seed {} (PARTAGE_SEED sets another)", seed());
    let conclusion = libtest_mimic::run(&arguments, trials);
    say_slowest();
    conclusion.exit_code()
}

/// Seconds and names of the cases that ended.
static TIMES: Mutex<Vec<(f64, &'static str)>> = Mutex::new(Vec::new());

fn say_slowest() {
    let mut times = TIMES.lock().unwrap_or_else(PoisonError::into_inner);
    if times.len() > 20 {
        times.sort_by(|one, other| other.0.total_cmp(&one.0));
        println!("the slowest cases:");
        for (seconds, name) in &times[..20] {
            println!("  {seconds:6.1} s  {name}");
        }
    }
}

/// Which chapters run on a real driver, and why the others do not. docs/real-driver.md holds it.
fn table(cases: &[Case]) -> String {
    let mut text = "| chapter | on a real driver | why not the others |\n|---|---|---|\n".to_owned();
    for cases in cases.chunk_by(|one, next| chapter(one) == chapter(next)) {
        let mut reasons: Vec<_> = cases.iter().filter_map(|case| case.simulated_only).collect();
        let runs = match reasons.len() {
            0 => "all",
            skipped if skipped == cases.len() => "none",
            _ => "some",
        };
        reasons.sort_unstable();
        reasons.dedup();
        text.push_str(&format!(
            "| {} | {runs} | {} |\n",
            chapter(&cases[0]),
            reasons.join("; ")
        ));
    }
    text
}

fn chapter(case: &Case) -> &str {
    case.name.split("::").next().unwrap_or_default()
}

fn trial(case: Case, driver: Driver) -> Trial {
    let skip = case.simulated_only.filter(|_| driver == Driver::Real);
    if let Some(why) = skip {
        println!("SKIPPED: {}: {why}", case.name);
    }
    Trial::test(case.name, move || run(&case)).with_ignored_flag(skip.is_some())
}

/// Held by every case that runs: alone by those that want this machine for themselves.
static TURN: RwLock<()> = RwLock::new(());

/// In the runner: the case in a process of its own.
fn run(case: &Case) -> Result<(), Failed> {
    let (_alone, _beside) = match case.is_alone {
        true => (TURN.write().ok(), None),
        false => (None, TURN.read().ok()),
    };
    let program = std::env::current_exe().expect("the kernel knows this program's path");
    // A file and no pipe: what the case leaves behind may hold its end of a pipe for ever.
    let mut words = nameless_file();
    let mut command = Command::new(program);
    command
        .env(CASE, case.name)
        .env_remove(PARTS)
        .env_remove(LIMIT)
        .stderr(words.try_clone().expect("one more descriptor"));
    // A session is a group as well; where ours began outside this pid namespace, no process of it could be saved.
    // SAFETY: setsid is async-signal-safe, and touches the child alone.
    unsafe {
        command.pre_exec(|| match libc::setsid() {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        })
    };
    let mut child = command.spawn().expect("this program starts again");
    let limit = limit();
    let start = Instant::now();
    let ended = wait(&mut child, limit);
    if let Ok(mut times) = TIMES.lock() {
        times.push((start.elapsed().as_secs_f64(), case.name));
    }
    if ended.is_none() {
        end_all_of(&mut child);
    }
    let mut text = String::new();
    let _ = words.rewind().and_then(|()| words.read_to_string(&mut text));
    let why = match ended {
        Some(status) if status.success() => return Ok(()),
        Some(status) => format!("{text}\n{status}"),
        None => format!("{text}\nhung: did not end within {} s and was killed", limit.as_secs()),
    };
    let again = "cargo test -p partage-tests --test cases -- --exact";
    Err(format!("{why}\nrepeat: PARTAGE_SEED={} {again} {}", seed(), case.name).into())
}

/// In the process of its own: the body's verdict is the exit code.
fn judge(name: &str) -> ExitCode {
    // The runner's end is this one's, too.
    // SAFETY: sets a number of this process.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let case = all().into_iter().chain(parts()).find(|case| case.name == name);
    let case = case.expect("the runner knows the names");
    // The hook has said what and where before the rig goes.
    let verdict = std::panic::catch_unwind(AssertUnwindSafe(|| (case.body)(&Rig::new(case.spec))));
    if verdict.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn limit() -> Duration {
    let given = std::env::var(LIMIT).ok().and_then(|text| text.parse().ok());
    let soak = if std::env::var_os("PARTAGE_SOAK").is_some() {
        10
    } else {
        1
    };
    given.map_or(DEFAULT_LIMIT * soak, Duration::from_secs)
}

fn wait(child: &mut std::process::Child, limit: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("our own child") {
            return Some(status);
        }
        if start.elapsed() >= limit {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Kills a case: its group, and those of its processes that made groups or sessions of their own (they carry its folder
/// in their environment). Its folders go, too.
fn end_all_of(child: &mut std::process::Child) {
    let pid = child.id() as libc::pid_t;
    // SAFETY: the group of our own unreaped child: it cannot be another's.
    unsafe { libc::kill(-pid, libc::SIGKILL) };
    let _ = child.wait();
    let prefix = Rig::prefix(child.id());
    let mark = std::env::temp_dir().join(&prefix).into_os_string().into_encoded_bytes();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes.filter_map(|entry| entry.file_name().to_str()?.parse::<libc::pid_t>().ok()) {
        let environment = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        if environment.windows(mark.len()).any(|bytes| bytes == mark) {
            // SAFETY: no memory is touched; the process was started by the case, whose folder is in its environment.
            unsafe { libc::kill(process, libc::SIGKILL) };
        }
    }
    let folders = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    for folder in folders.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes())) {
        let _ = std::fs::remove_dir_all(folder.path());
    }
}

fn nameless_file() -> std::fs::File {
    use std::os::fd::FromRawFd;
    // SAFETY: a literal name; the descriptor is new and nobody else's.
    unsafe {
        let descriptor = libc::memfd_create(c"what a case said".as_ptr(), libc::MFD_CLOEXEC);
        assert!(descriptor >= 0, "memfd_create: {}", std::io::Error::last_os_error());
        std::fs::File::from_raw_fd(descriptor)
    }
}
