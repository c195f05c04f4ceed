// SPDX-License-Identifier: Apache-2.0
//! CRIU as a caller has it: its program, and the right to run it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use partage_protocol::snapshot::{LEAST_CRIU, will_do};

use crate::failure::{Failure, Kind, Outcome};

/// The variable that names another CRIU than the one in `PATH`.
const VARIABLE: &str = "PARTAGE_CRIU";
/// The bit of CAP_SYS_ADMIN.
const SYS_ADMIN: u64 = 1 << 21;

/// CRIU's program.
///
/// # Errors
/// There is none.
pub fn find() -> Outcome<PathBuf> {
    if let Some(named) = env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        return Ok(named.into());
    }
    let paths = env::var_os("PATH").unwrap_or_default();
    let mut found = env::split_paths(&paths).map(|folder| folder.join("criu"));
    let absent = || Failure::failed("CRIU is not installed, and a job's processes are saved with it");
    let hint = format!("install CRIU 4.2 or later, or name its program in {VARIABLE}");
    found.find(|path| path.is_file()).ok_or_else(|| absent().hint(hint))
}

/// A program's version, if it is a CRIU that can be used.
///
/// # Errors
/// It does not start, is no CRIU, or is too old.
pub fn version(criu: &Path) -> Outcome<String> {
    let output = Command::new(criu).arg("--version").stdin(Stdio::null()).output();
    let text = output.map_or_else(|_| Vec::new(), |output| output.stdout);
    let text = String::from_utf8_lossy(&text).into_owned();
    let version = text.lines().find_map(|line| line.strip_prefix("Version:"));
    let version = version.map(|version| version.trim().to_owned());
    let absent = || Failure::failed(format!("{} is no CRIU that starts here", criu.display()));
    let version = version.ok_or_else(absent)?;
    if will_do(&version) {
        return Ok(version);
    }
    let (major, minor) = LEAST_CRIU;
    let message = format!(
        "{} is CRIU {version}, and {major}.{minor} or later is needed",
        criu.display()
    );
    Err(Failure::failed(message).hint(format!("name a newer one in {VARIABLE}")))
}

/// May this process restore processes? It makes namespaces and mounts for them.
///
/// # Errors
/// It may not.
pub fn may_restore() -> Outcome<()> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = line
        .and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok())
        .unwrap_or(0);
    if effective & SYS_ADMIN != 0 {
        return Ok(());
    }
    let message = "no right to restore processes: it needs root or CAP_SYS_ADMIN";
    let hint = "root restores root's jobs; for another user give this command that capability";
    Err(Failure::new(Kind::NotAllowed, message).hint(hint))
}
