// SPDX-License-Identifier: Apache-2.0
//! A control group of a case's own with a process that waits in it, as a container's runtime leaves them, for the cases
//! about membership and registration. No container engine is needed.

use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::ruled_host::SOON;
use super::user::User;
use crate::rig::Rig;

/// A managed host's configuration that says nothing.
pub const NO_RULE: &str = "schema = 1\n";
/// The name of the group, as an engine names one by its container.
pub const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A control group of the test's own, in whichever hierarchy one can be made.
pub struct Group {
    /// Where it is.
    pub folder: PathBuf,
    /// As the kernel names it.
    pub path: String,
}

impl Group {
    /// `None`, with a note: this machine lets us make none, and the case is skipped.
    pub fn make(rig: &Rig, id: &str) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let in_hierarchy = |name: &str| {
            let line = own.lines().find(|line| line.split(':').nth(1) == Some(name))?;
            line.splitn(3, ':').nth(2).map(str::to_owned)
        };
        let mut why = "no hierarchy of control groups is mounted".to_owned();
        for (folder, name) in [("pids", "pids"), ("freezer", "freezer"), ("unified", ""), ("", "")] {
            let Some(at) = in_hierarchy(name) else { continue };
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            // The rig's folder is its own on this machine; a process's number is not, where suites run in pid
            // namespaces.
            let rig = rig.dir.file_name().unwrap_or_default().display();
            let below = format!("partage-test-{rig}-{number}");
            let path = format!("{}/{below}/{id}", at.trim_end_matches('/'));
            let folder = Path::new("/sys/fs/cgroup")
                .join(folder)
                .join(path.trim_start_matches('/'));
            match std::fs::create_dir_all(&folder) {
                Ok(()) if folder.join("cgroup.procs").exists() => return Some(Self { folder, path }),
                Ok(()) => drop(std::fs::remove_dir(&folder)),
                Err(error) => why = format!("{}: {error}", folder.display()),
            }
        }
        rig.note(format!("skipped: this machine lets us make no control group ({why})"));
        None
    }

    /// `command` in this group.
    pub fn inside(&self, command: Command) -> Command {
        let script = format!("echo 0 > '{}/cgroup.procs' && exec \"$@\"", self.folder.display());
        wrapped(&["sh", "-c", &script, "sh"], command)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let procs = std::fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        for pid in procs
            .lines()
            .filter_map(|pid| pid.parse::<i32>().ok())
            .filter(|pid| *pid > 0)
        {
            // SAFETY: only this case's processes are in its group.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        let until = Instant::now() + Duration::from_secs(5);
        while std::fs::remove_dir(&self.folder).is_err() && Instant::now() < until && self.folder.exists() {
            std::thread::sleep(Duration::from_millis(20));
        }
        if let Some(above) = self.folder.parent() {
            let _ = std::fs::remove_dir(above);
        }
    }
}

/// `command` behind these words, with its environment.
pub fn wrapped(words: &[&str], command: Command) -> Command {
    let mut outer = Command::new(words[0]);
    outer
        .args(&words[1..])
        .arg(command.get_program())
        .args(command.get_args());
    outer.env_clear().stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            outer.env(name, value);
        }
    }
    outer
}

/// What a container's runtime leaves when it calls its hooks: a process that waits.
pub struct Waiting {
    process: Child,
    _held: ChildStdin,
}

impl Waiting {
    pub fn start(rig: &Rig, group: &Group) -> Self {
        Self::of(rig, group, rig.command("sh"))
    }

    /// The same of a user.
    pub fn of_user(rig: &Rig, group: &Group, user: &User) -> Self {
        let waits = Self::of(rig, group, user.command(rig, "sh"));
        let status = format!("/proc/{}/status", waits.pid());
        rig.eventually(SOON, "it is the user's", || {
            let status = std::fs::read_to_string(&status).unwrap_or_default();
            status.contains(&format!("\nUid:\t{}\t", user.uid))
        });
        waits
    }

    fn of(rig: &Rig, group: &Group, mut shell: Command) -> Self {
        shell.args(["-c", "read go"]);
        let mut command = group.inside(shell);
        let mut process = command.stdin(Stdio::piped()).spawn().expect("a shell");
        let held = process.stdin.take().expect("piped");
        let waits = Self { process, _held: held };
        let file = group.folder.join("cgroup.procs");
        rig.eventually(SOON, "it is in its group", || {
            let procs = std::fs::read_to_string(&file).unwrap_or_default();
            procs.lines().any(|pid| pid == waits.process.id().to_string())
        });
        waits
    }

    pub fn pid(&self) -> String {
        self.process.id().to_string()
    }

    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `partage register` of this process: its code, and what it said.
pub fn register(rig: &Rig, pid: &str, more: &[&str]) -> (Option<i32>, String) {
    let mut words = vec!["register", "--pid", pid];
    words.extend(more);
    let output = rig.output(rig.partage(&words));
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}
