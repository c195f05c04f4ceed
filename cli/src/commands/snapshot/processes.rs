// SPDX-License-Identifier: Apache-2.0
//! The processes of a restored job: the first of its namespaces, and the wait for it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::Mode;
use nix::unistd::Pid;
use partage_protocol::size::format_duration;
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::launch::installed;
use crate::show::report::nanoseconds;

/// Above what CRIU opens for itself.
const FIRST_KEPT: i32 = 100;

/// What the first process says once the others run.
const RESTORED: &str = "restored";

/// A folder for what CRIU writes, gone with this value.
pub struct Work(PathBuf);

impl Work {
    /// A new one.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> Outcome<Self> {
        let template = std::env::temp_dir().join("partage-restore-XXXXXX");
        let made = nix::unistd::mkdtemp(&template);
        Ok(Self(made.map_err(|errno| Failure::cannot("make", &template, errno))?))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // In the temporary folder it harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A snapshot's folder, opened once: it is this one whatever its name means later.
pub struct Folder(OwnedFd);

impl Folder {
    /// Opens it.
    ///
    /// # Errors
    /// It is no folder, or cannot be read.
    pub fn open(path: &Path) -> Outcome<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let opened = nix::fcntl::open(path, flags, Mode::empty());
        Ok(Self(opened.map_err(|errno| Failure::cannot("open", path, errno))?))
    }

    /// A copy that the next child inherits, above the numbers that CRIU has for itself.
    ///
    /// # Errors
    /// The system's.
    pub fn for_child(&self) -> Outcome<OwnedFd> {
        for_child(self.0.as_fd())
    }
}

fn for_child(fd: BorrowedFd<'_>) -> Outcome<OwnedFd> {
    let copy = fcntl(fd, FcntlArg::F_DUPFD(FIRST_KEPT));
    let copy = copy.map_err(|errno| Failure::failed(format!("cannot keep a descriptor: {}", errno.desc())));
    // SAFETY: just made, and nobody else's.
    copy.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What is to be restored.
pub struct Order<'a> {
    /// CRIU's program.
    pub criu: &'a Path,
    /// The snapshot's folder.
    pub folder: &'a Folder,
    /// The generation's name in it.
    pub generation: &'a str,
    /// The folder of the broker's sockets.
    pub sockets: &'a Path,
    /// For how long its processes may take to come back.
    pub within: Duration,
}

/// Starts the first process of new namespaces, and waits until it says that the others run, or gives it up at `until`.
/// They do not run before their pages are verified, which is said on the pipe `verified`.
///
/// # Errors
/// What it says instead, or the system's.
pub fn begin(order: &Order<'_>, until: Instant, work: &Work, verified: BorrowedFd<'_>) -> Outcome<Pid> {
    let system = |what: &'static str| {
        move |error: nix::Error| Failure::failed(format!("cannot {what}: {}", error.desc().to_lowercase()))
    };
    let program = installed::find(installed::BROKER)?;
    let (hears, says) = pipe().map_err(system("make a pipe"))?;
    let (folder, verified) = (order.folder.for_child()?, for_child(verified)?);
    let words = json!({
        "criu": order.criu,
        "folder": folder.as_raw_fd(),
        "generation": order.generation,
        "sockets": order.sockets,
        "work": work.0,
        "report": says.as_raw_fd(),
        "verified": verified.as_raw_fd(),
    });
    let mut command = Command::new(program);
    command.arg("--restore-helper").arg(words.to_string());
    for name in ["LD_PRELOAD", "LD_AUDIT", "PARTAGE_TOKEN"] {
        command.env_remove(name);
    }
    let own = File::open("/proc/self/ns/pid")
        .map_err(|error| Failure::failed(format!("cannot find this pid namespace: {error}")))?;
    unshare(CloneFlags::CLONE_NEWPID).map_err(system("make a pid namespace"))?;
    let spawned = command.spawn();
    // A thread of ours could not begin otherwise.
    setns(own, CloneFlags::CLONE_NEWPID).map_err(system("come back to this pid namespace"))?;
    let child = spawned.map_err(|error| Failure::failed(format!("the broker's program: {error}")))?;
    drop((says, folder, verified));
    let pid = Pid::from_raw(child.id().cast_signed());
    let is_in_time = wait_for_word(&hears, until);
    let mut said = String::new();
    if is_in_time {
        let _ = BufReader::new(File::from(hears)).read_line(&mut said);
        if said.trim() == RESTORED {
            return Ok(pid);
        }
    } else {
        // Whatever CRIU has made by now ends with the namespace.
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    }
    let _ = nix::sys::wait::waitpid(pid, None);
    let within = format_duration(nanoseconds(order.within));
    let why = match said.trim() {
        _ if !is_in_time => format!("CRIU did not end within {within}; --timeout gives it longer"),
        "" => "the first process ended without a word".to_owned(),
        said => said.to_owned(),
    };
    Err(Failure::failed(format!("the processes could not be restored: {why}")))
}

/// Waits until something is said, or the other end is closed; `false` when the time is over before.
fn wait_for_word(hears: &OwnedFd, until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        // Rounded up: no time that is left is none.
        let wait = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        let mut one = [PollFd::new(hears.as_fd(), PollFlags::POLLIN)];
        match poll(&mut one, wait) {
            Ok(0) if Instant::now() >= until => return false,
            Ok(0) | Err(nix::Error::EINTR) => {}
            // What went wrong the read says.
            Ok(_) | Err(_) => return true,
        }
    }
}

/// A pipe whose second end a child gets.
fn pipe() -> nix::Result<(OwnedFd, OwnedFd)> {
    let (hears, says) = nix::unistd::pipe()?;
    fcntl(&hears, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok((hears, says))
}
