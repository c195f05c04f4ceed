// SPDX-License-Identifier: Apache-2.0
//! The processes of a restored job: the first of its namespaces, and the wait for it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::Pid;
use serde_json::json;

use crate::failure::{Failure, Kind, Outcome};
use crate::launch::installed;

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
        let cannot = |error: nix::Error| format!("cannot make {}: {}", template.display(), error.desc().to_lowercase());
        Ok(Self(made.map_err(|error| Failure::new(Kind::Failed, cannot(error)))?))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // In the temporary folder it harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What is to be restored.
pub struct Order<'a> {
    /// CRIU's program.
    pub criu: &'a Path,
    /// The generation's folder.
    pub generation: &'a Path,
}

/// Starts the first process of new namespaces, and waits until it says that the others run.
///
/// # Errors
/// What it says instead, or the system's.
pub fn begin(order: &Order<'_>, work: &Work) -> Outcome<Pid> {
    let system = |what: &'static str| {
        move |error: nix::Error| Failure::new(Kind::Failed, format!("cannot {what}: {}", error.desc().to_lowercase()))
    };
    let program = installed::find(installed::BROKER)?;
    let (hears, says) = pipe().map_err(system("make a pipe"))?;
    let order = json!({
        "criu": order.criu,
        "generation": order.generation,
        "work": work.0,
        "report": says.as_raw_fd(),
    });
    let mut command = Command::new(program);
    command.arg("--restore-helper").arg(order.to_string());
    for name in ["LD_PRELOAD", "LD_AUDIT", "PARTAGE_TOKEN"] {
        command.env_remove(name);
    }
    let own = File::open("/proc/self/ns/pid")
        .map_err(|error| Failure::new(Kind::Failed, format!("cannot find this pid namespace: {error}")))?;
    unshare(CloneFlags::CLONE_NEWPID).map_err(system("make a pid namespace"))?;
    let spawned = command.spawn();
    // A thread of ours could not begin otherwise.
    setns(own, CloneFlags::CLONE_NEWPID).map_err(system("come back to this pid namespace"))?;
    let child = spawned.map_err(|error| Failure::new(Kind::Failed, format!("the broker's program: {error}")))?;
    drop(says);
    let mut said = String::new();
    let _ = BufReader::new(File::from(hears)).read_line(&mut said);
    let pid = Pid::from_raw(child.id().cast_signed());
    if said.trim() == RESTORED {
        return Ok(pid);
    }
    let _ = nix::sys::wait::waitpid(pid, None);
    let why = match said.trim() {
        "" => "the first process ended without a word",
        said => said,
    };
    Err(Failure::new(
        Kind::Failed,
        format!("the processes could not be restored: {why}"),
    ))
}

/// A pipe whose second end a child gets.
fn pipe() -> nix::Result<(OwnedFd, OwnedFd)> {
    let (hears, says) = nix::unistd::pipe()?;
    fcntl(&hears, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok((hears, says))
}
