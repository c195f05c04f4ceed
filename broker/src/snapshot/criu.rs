// SPDX-License-Identifier: Apache-2.0
//! CRIU by its command line: which one, how it is called, and what it says when it fails.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use partage_protocol::snapshot::{LEAST_CRIU, Manifest, will_do};

use super::order::RestoreOrder;
use super::{last_step, sockets};

/// The variable that names another CRIU than the one in `PATH`.
pub const VARIABLE: &str = "PARTAGE_CRIU";
/// The bits of CAP_SYS_ADMIN and CAP_CHECKPOINT_RESTORE.
const CAPABILITIES: u64 = 1 << 21 | 1 << 40;
/// Unlinked files that are saved with the processes, at most, in bytes.
const GHOST_BYTES: u64 = 1 << 30;
/// Above what CRIU opens for itself.
const FIRST_KEPT: i32 = 100;
/// Seconds for the collecting of a tree's processes; nothing is killed by it.
const COLLECT_SECONDS: u32 = 120;

/// The CRIU of this process's environment.
///
/// # Errors
/// A sentence: there is none.
pub fn find() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        return Ok(named.into());
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).map(|folder| folder.join("criu"));
    let mut found = found.filter(|path| path.is_file());
    found
        .next()
        .ok_or_else(|| format!("CRIU is not installed: install 4.2 or later, or name its program in {VARIABLE}"))
}

/// May this process run CRIU? It has CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE.
#[must_use]
pub fn may_run() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = line.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    effective.unwrap_or(0) & CAPABILITIES != 0
}

/// A program's version, if it is a CRIU that can be used.
///
/// # Errors
/// A sentence: it does not start, or is too old.
pub fn version(criu: &Path) -> Result<String, String> {
    let output = bare(criu)
        .arg("--version")
        .output()
        .map_err(|error| format!("{} does not start: {error}", criu.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.lines().find_map(|line| line.strip_prefix("Version:"));
    let Some(version) = version.map(str::trim) else {
        return Err(format!("{} --version does not say a version of CRIU", criu.display()));
    };
    match will_do(version) {
        true => Ok(version.to_owned()),
        false => Err(format!(
            "{} is CRIU {version}, and {}.{} or later is needed: an older one silently loses what a forked child must \
             not inherit",
            criu.display(),
            LEAST_CRIU.0,
            LEAST_CRIU.1
        )),
    }
}

/// Nothing of a job's environment goes to CRIU.
fn bare(criu: &Path) -> Command {
    let mut command = Command::new(criu);
    for name in ["LD_PRELOAD", "LD_AUDIT", "PARTAGE_TOKEN"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// The command that dumps a tree and lacks its folders, which a caller adds. The one of plugins has to be empty: an
/// installed plugin would drive the devices itself. Once all is dumped, and before a process goes on, CRIU runs its
/// action script (`ACT_POST_DUMP` in its `cr-dump.c`) for [`shared::Call`](super::shared::Call).
pub(super) fn dump(criu: &Path, tree: u32, is_to_stop: bool) -> Command {
    let mut command = bare(criu);
    command
        .args(["dump", "--tree"])
        .arg(tree.to_string())
        .args(["--log-file", DUMP_LOG, "--link-remap", "--file-locks", "--shell-job"])
        .arg(format!("--ghost-limit={GHOST_BYTES}"))
        .arg(format!("--timeout={COLLECT_SECONDS}"))
        .arg(if is_to_stop {
            "--leave-stopped"
        } else {
            "--leave-running"
        });
    command
}

/// The log of [`dump`] in the folder of images.
pub(super) const DUMP_LOG: &str = "dump.log";

/// Restores a tree as siblings of CRIU, which ends. Answers the first process's number.
///
/// # Errors
/// CRIU's own words. Whatever it had made ends with the namespace.
pub(super) fn restore(order: &RestoreOrder, images: &Path, manifest: &Manifest) -> Result<i32, String> {
    let work = &order.work;
    let none = work.join("none");
    std::fs::create_dir_all(&none).map_err(|error| format!("cannot make {}: {error}", none.display()))?;
    let mut command = bare(&order.criu);
    command
        .args(["restore", "--images-dir"])
        .arg(images)
        .arg("--work-dir")
        .arg(work)
        .arg("--libdir")
        .arg(&none)
        .args(["--log-file", "restore.log", "--pidfile", "pid"])
        .args(["--restore-detached", "--restore-sibling", "--file-locks", "--shell-job"])
        .args(sockets::restore_words(&manifest.sockets))
        .args(["--action-script", "/proc/1/exe"])
        .env(last_step::WHAT, last_step::leave(manifest, order.verified, work)?);
    let mut given: Vec<(String, OwnedFd)> = Vec::new();
    let of = |inode: u64| format!("socket:[{inode}]");
    for socket in &manifest.sockets.closed {
        let end = sockets::closed(socket.carries).and_then(|end| for_child(end.as_fd()));
        let end = end.map_err(|errno| format!("cannot make a socket: {}", errno.desc()))?;
        inherit(&mut command, &of(socket.inode), &end);
        given.push((of(socket.inode), end));
    }
    let is_given = |stream: &str| {
        stream.starts_with("pipe:[") || manifest.sockets.streams.iter().any(|inode| of(*inode) == stream)
    };
    for (stream, own) in manifest.streams.iter().zip(0..) {
        // Each pipe once: what was one pipe stays one.
        if is_given(stream) && given.iter().all(|(known, _)| known != stream) {
            // SAFETY: borrowed for the call; a number that is closed makes it fail.
            let open = unsafe { BorrowedFd::borrow_raw(own) };
            let ours = for_child(open).map_err(|error| format!("cannot keep descriptor {own}: {error}"))?;
            inherit(&mut command, stream, &ours);
            given.push((stream.clone(), ours));
        }
    }
    finish(command, &work.join("restore.log"))?;
    if !last_step::is_done(work) {
        return Err("its last step was killed before the pages were verified".to_owned());
    }
    let pid = std::fs::read_to_string(work.join("pid")).map_err(|error| format!("CRIU left no pid file: {error}"))?;
    pid.trim()
        .parse()
        .map_err(|_| format!("CRIU's pid file says {:?}", pid.trim()))
}

/// Has CRIU take one of our descriptors for what the images call so.
fn inherit(command: &mut Command, called: &str, ours: &OwnedFd) {
    command
        .arg("--inherit-fd")
        .arg(format!("fd[{}]:{called}", ours.as_raw_fd()));
}

/// A copy of a descriptor that children inherit, above the numbers that CRIU has for itself and closes.
///
/// # Errors
/// The system's.
pub(super) fn for_child(fd: BorrowedFd<'_>) -> nix::Result<OwnedFd> {
    let copy = nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_DUPFD(FIRST_KEPT))?;
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

fn finish(mut command: Command, log: &Path) -> Result<(), String> {
    let status = command
        .status()
        .map_err(|error| format!("CRIU does not start: {error}"))?;
    judge(status, log)
}

/// What the end of CRIU means.
///
/// # Errors
/// CRIU's own words, from its log.
pub(super) fn judge(status: ExitStatus, log: &Path) -> Result<(), String> {
    if status.success() {
        return Ok(());
    }
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    Err(
        match (
            error_line(&text),
            std::os::unix::process::ExitStatusExt::signal(&status),
        ) {
            (_, Some(signal)) => format!("CRIU was killed by signal {signal}"),
            (Some(line), None) => format!("CRIU: {line}"),
            (None, None) => match std::fs::write(log.with_extension("tried"), log.as_os_str().as_encoded_bytes()) {
                Ok(()) => format!("CRIU failed ({status}) and wrote no reason to {}", log.display()),
                Err(error) => format!(
                    "CRIU failed ({status}), and {} cannot be written: {error}",
                    log.display()
                ),
            },
        },
    )
}

/// The first error of a log, without its time and place: what follows is mostly its consequence.
fn error_line(log: &str) -> Option<String> {
    // CRIU wants more descriptors than it may have, and does without.
    let is_error = |line: &&str| line.contains("Error (") && !line.contains("RLIMIT_NOFILE");
    let line = log.lines().find(is_error)?;
    let text = line.split_once("Error (").map_or(line, |(_, rest)| rest);
    let text = text.split_once("): ").map_or(text, |(_, rest)| rest);
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_the_reason() {
        let log = "(00.01) Warn  (criu/x.c:1): careful\n\
                   (00.02) Error (criu/sk-unix.c:857): unix: External socket is used. Consider using --ext-unix-sk\n\
                   (00.03) Error (criu/cr-dump.c:2098): Dumping FAILED.\n";
        let line = error_line(log).expect("one");
        assert_eq!(line, "unix: External socket is used. Consider using --ext-unix-sk");
        assert_eq!(error_line("all is well"), None);
    }
}
