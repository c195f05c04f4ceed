// SPDX-License-Identifier: Apache-2.0
//! The host that an installation is made on: its group of administrators, its service manager, the place of its broker.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::unistd::Group;

use super::tree::{SOCKETS, UNIT};
use crate::commands::broker;
use crate::failure::{Failure, Kind, Outcome, reason};
use crate::launch::place::{Place, Rule, SYSTEM_DIR};

/// Whose members are administrators.
pub const GROUP: &str = "partage";

/// The host's broker.
pub fn system_place() -> Place {
    Place {
        dir: SYSTEM_DIR.into(),
        rule: Rule::Managed,
    }
}

/// How the broker was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// As systemd's service.
    Service,
    /// As a process of its own; `is_new`: the socket directory was made for it.
    Process {
        /// Nothing was there before.
        is_new: bool,
    },
}

impl Started {
    /// Ends it.
    ///
    /// # Errors
    /// It does not end, or systemd refuses.
    pub fn undo(self) -> Outcome<()> {
        match self {
            Self::Service => disable(),
            Self::Process { is_new } => {
                broker::stop(&system_place())?;
                match is_new {
                    true => fs::remove_dir_all(SYSTEM_DIR).map_err(|e| Failure::cannot("remove", SYSTEM_DIR, e)),
                    false => Ok(()),
                }
            }
        }
    }
}

/// Does systemd run this host? As sd_booted(3) asks.
pub fn has_systemd() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// Is the administrators' group known?
pub fn has_group() -> bool {
    matches!(Group::from_name(GROUP), Ok(Some(_)))
}

/// Makes the group.
///
/// # Errors
/// Neither of the usual commands does it.
pub fn add_group() -> Outcome<()> {
    either(&[&["groupadd", "--system", GROUP], &["addgroup", "-S", GROUP]])
}

/// Removes the group.
///
/// # Errors
/// Neither of the usual commands does it.
pub fn remove_group() -> Outcome<()> {
    either(&[&["groupdel", GROUP], &["delgroup", GROUP]])
}

/// Lets systemd read its unit files again, where it runs.
pub fn reload() {
    if has_systemd() {
        let _ = systemctl(&["daemon-reload"]);
    }
}

/// Ends the service and its sockets, for good. A host of before the sockets has none.
///
/// # Errors
/// systemd refuses.
pub fn disable() -> Outcome<()> {
    let is_there = |unit: &&str| systemctl(&["cat", unit]).is_ok();
    let mut words = vec!["disable", "--now", UNIT];
    words.extend(SOCKETS.iter().filter(|unit| is_there(unit)));
    systemctl(&words)
}

/// Asks systemd.
///
/// # Errors
/// It refuses, in its own words.
pub fn systemctl(words: &[&str]) -> Outcome<()> {
    call("systemctl", words)
}

/// The first of these commands that the host has.
fn either(commands: &[&[&str]]) -> Outcome<()> {
    let mut missing = Vec::new();
    for command in commands {
        let Some((program, words)) = command.split_first() else {
            continue;
        };
        match call(program, words) {
            Err(failure) if failure.kind == Kind::NotFound => missing.push(*program),
            other => return other,
        }
    }
    let message = format!("this host has neither {}", missing.join(" nor "));
    Err(Failure::failed(message))
}

/// Runs one of the host's commands to its end.
fn call(program: &str, words: &[&str]) -> Outcome<()> {
    // A root shell by `su` may have a user's PATH: what a user may write comes last.
    let mut path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned();
    if let Ok(own) = std::env::var("PATH")
        && !own.is_empty()
    {
        path = path + ":" + &own;
    }
    let mut command = Command::new(program);
    command.args(words).env("PATH", path).env_remove("LD_PRELOAD");
    let output = command.stdin(Stdio::null()).output().map_err(|error| {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => Kind::NotFound,
            _ => Kind::Failed,
        };
        Failure::new(kind, format!("cannot run {program}: {}", reason(&error)))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().map(str::trim).find(|line| !line.is_empty());
    let message = format!(
        "{program} {}: {}",
        words.join(" "),
        said.unwrap_or("it failed without a word")
    );
    Err(Failure::failed(message))
}
