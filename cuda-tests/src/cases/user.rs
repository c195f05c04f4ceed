// SPDX-License-Identifier: Apache-2.0
//! Other users of the host, for the cases that root alone can run.

use std::process::Command;

use crate::rig::Rig;

/// A user of the host, as `setpriv` makes it.
pub struct User {
    /// User id.
    pub uid: &'static str,
    groups: &'static str,
}

/// The owner of jobs.
pub const OWNER: User = User {
    uid: "65534",
    groups: "--clear-groups",
};
/// Somebody else.
pub const OTHER: User = User {
    uid: "65533",
    groups: "--clear-groups",
};
/// In the group that may connect to the administrators' socket.
pub const MEMBER: User = User {
    uid: "65532",
    groups: "--groups=65531",
};
/// That group.
pub const GROUP: u32 = 65_531;

impl User {
    /// The user id as a number.
    pub fn number(&self) -> u32 {
        self.uid.parse().expect("a number")
    }

    /// A program as this user's.
    pub fn command(&self, rig: &Rig, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = rig.command("/usr/bin/setpriv");
        command
            .arg(format!("--reuid={}", self.uid))
            .args(["--regid=65534", self.groups])
            .arg(program);
        command
    }

    /// `partage` as this user's.
    pub fn partage(&self, rig: &Rig) -> Command {
        self.command(rig, rig.installed())
    }

    /// The exit code of a command, and what it said.
    pub fn say(&self, rig: &Rig, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = self.partage(rig);
        command.args(arguments);
        let output = rig.output(command);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    }
}

/// Only root can act as another user.
pub fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// Every user may use the rig's machine. Answers where a copy of the client's program is, for the build folder may lie
/// below a home folder that is shut to others.
///
/// # Panics
/// When it cannot be copied.
pub fn open_to_all(rig: &Rig) -> std::path::PathBuf {
    // The first process that submits work makes them.
    let machine = partage_machine::Machine::open(&rig.sim_dir()).expect("the machine is there");
    machine.timeline().expect("its timelines");
    let _ = Command::new("/bin/chmod")
        .args(["-R", "a+rwX"])
        .arg(rig.sim_dir())
        .status();
    let client = rig.dir.join("client");
    std::fs::copy(crate::artefacts::client(), &client).expect("writable");
    client
}
