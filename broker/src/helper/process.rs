// SPDX-License-Identifier: Apache-2.0
//! A helper's process: how it is started, how it is killed, and when the next one is started.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde::Serialize;

use super::channel::Channel;

/// The number of no user: below it are all that systems give away, and above it those with a meaning (-1 and -2).
pub const NOBODYS: u32 = 0xFFFF_FFF0;

/// A user of the system, as a process runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Primary group's id.
    pub gid: u32,
    /// Supplementary groups: the GPU's device files may be open to one of them alone.
    pub groups: Vec<u32>,
}

impl User {
    /// The user of this process.
    #[must_use]
    pub fn own() -> Self {
        Self {
            uid: nix::unistd::geteuid().as_raw(),
            gid: nix::unistd::getegid().as_raw(),
            groups: Vec::new(),
        }
    }

    /// As the argument of a helper: `UID:GID:GROUP,…`.
    #[must_use]
    pub fn text(&self) -> String {
        let groups: Vec<String> = self.groups.iter().map(ToString::to_string).collect();
        format!("{}:{}:{}", self.uid, self.gid, groups.join(","))
    }

    /// From that text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let (uid, gid, groups) = (parts.next()?, parts.next()?, parts.next()?);
        let groups = groups.split(',').filter(|group| !group.is_empty()).map(str::parse);
        let found = Self {
            uid: uid.parse().ok()?,
            gid: gid.parse().ok()?,
            groups: groups.collect::<Result<_, _>>().ok()?,
        };
        parts.next().is_none().then_some(found)
    }

    /// Makes this process, which is root's, the user's: the effective user, by whom files, sockets and drivers judge.
    /// It stays one that the user can neither trace nor read: the kernel makes it so where a process changes its user
    /// without `exec`. Nor can the user signal it: kill(2) asks for the target's real or saved user, and both are
    /// [`NOBODYS`]. Nothing of root's is left to it.
    ///
    /// # Errors
    /// The system's: it is not root's.
    pub fn become_it(&self) -> std::io::Result<()> {
        use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
        let groups: Vec<Gid> = self.groups.iter().copied().map(Gid::from_raw).collect();
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        setgroups(&groups)?;
        setresgid(gid, gid, gid)?;
        let nobodys = Uid::from_raw(NOBODYS);
        match setresuid(nobodys, uid, nobodys) {
            // A user namespace that has no such number.
            Err(nix::errno::Errno::EINVAL) => setresuid(uid, uid, uid)?,
            done => done?,
        }
        Ok(())
    }
}

/// The real and saved user of this process become the effective one. Answers whether they were not: its user can signal
/// it from now on.
///
/// # Errors
/// The system's.
pub fn be_wholly_the_user() -> std::io::Result<bool> {
    let now = nix::unistd::getresuid()?;
    if now.real == now.effective && now.saved == now.effective {
        return Ok(false);
    }
    nix::unistd::setresuid(now.effective, now.effective, now.effective)?;
    Ok(true)
}

/// How helpers are started: the program and its arguments.
#[derive(Clone, Debug)]
pub struct HelperCommand {
    /// Program.
    pub program: PathBuf,
    /// Arguments.
    pub arguments: Vec<OsString>,
}

impl HelperCommand {
    /// This very program again, even when its file was replaced since, as the helper that `option` says. `driver_file`
    /// may say where the driver is.
    #[must_use]
    pub fn own(option: &str, driver_file: Option<&Path>) -> Self {
        let mut arguments: Vec<OsString> = vec![option.into()];
        if let Some(file) = driver_file {
            arguments.extend(["--driver-file".into(), file.into()]);
        }
        Self {
            program: "/proc/self/exe".into(),
            arguments,
        }
    }

    /// The same as a user's process. Only root can start one of another user.
    ///
    /// It becomes the user's after its `exec`. Before, it has what the broker has open, and the broker waits for it:
    /// its user could stop both.
    #[must_use]
    pub fn of_user(mut self, user: &User) -> Self {
        if user.uid != User::own().uid {
            self.arguments.extend(["--as".into(), user.text().into()]);
        }
        self
    }
}

/// A helper that runs.
#[derive(Debug)]
pub struct Helper<Q> {
    child: Child,
    /// What it is asked, and what it answers.
    pub channel: Channel<Q>,
}

impl<Q: Clone + Serialize> Helper<Q> {
    /// Starts a helper with a socket as its standard input.
    ///
    /// # Errors
    /// The system's.
    pub fn start(command: &HelperCommand) -> std::io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let channel = Channel::new(ours)?;
        let mut start = Command::new(&command.program);
        start
            .args(&command.arguments)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // A helper is no client: a preloaded library would hook what it calls. It has to see all devices.
        for name in ["LD_PRELOAD", "LD_AUDIT", "PARTAGE_TOKEN", "CUDA_VISIBLE_DEVICES"] {
            start.env_remove(name);
        }
        let child = start.spawn()?;
        Ok(Self { child, channel })
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// Helpers that were killed and may not have ended: one that is stuck in a driver ends when it can.
#[derive(Debug, Default)]
pub struct Killed(Vec<Child>);

impl Killed {
    /// Kills a helper without waiting for its end.
    pub fn kill<Q>(&mut self, mut helper: Helper<Q>) {
        let _ = helper.child.kill();
        self.0.push(helper.child);
    }

    /// Is it one of them, and not gone?
    #[must_use]
    pub fn has(&self, pid: u32) -> bool {
        self.0.iter().any(|child| child.id() == pid)
    }

    /// Forgets those that have ended. Answers how many have not: at the broker's end they are left to init.
    pub fn reap(&mut self) -> usize {
        self.0.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
        self.0.len()
    }
}

/// When a helper may be started again: after a pause that doubles with each failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOff {
    at_ns: u64,
    pause_ns: u64,
    first_ns: u64,
    longest_ns: u64,
}

impl BackOff {
    /// The first start at `at_ns`; pauses from `first_ns` to `longest_ns`.
    #[must_use]
    pub fn new(at_ns: u64, (first_ns, longest_ns): (u64, u64)) -> Self {
        Self {
            at_ns,
            pause_ns: first_ns,
            first_ns,
            longest_ns,
        }
    }

    /// When the next start is due.
    #[must_use]
    pub fn at_ns(&self) -> u64 {
        self.at_ns
    }

    /// Is the pause over?
    #[must_use]
    pub fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.at_ns
    }

    /// A helper failed: the next one comes after the pause, and the pause after that is twice as long.
    pub fn fail(&mut self, now_ns: u64) {
        self.at_ns = now_ns + self.pause_ns;
        self.pause_ns = (self.pause_ns * 2).min(self.longest_ns);
    }

    /// A helper works: the next pause is the first one again.
    pub fn succeed(&mut self) {
        self.pause_ns = self.first_ns;
    }

    /// The next start is due at `at_ns`, however long the pause would be.
    pub fn start_at(&mut self, at_ns: u64) {
        self.at_ns = at_ns;
    }

    /// Somebody waits: the next start is due after the first pause at the latest.
    pub fn hurry(&mut self, now_ns: u64) {
        self.at_ns = self.at_ns.min(now_ns + self.first_ns);
    }
}
