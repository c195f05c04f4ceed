// SPDX-License-Identifier: Apache-2.0
//! The pages of a snapshot: verified by a process of their own, while CRIU reads them.
//!
//! ```text
//!   verified but for its pages ──► Pages::verify ──► admitted ──► files ──► CRIU ──► the word is heard ──► they run
//!                                    └── reads all pages ── says the word ────────────┘
//! ```
//! The word goes through a pipe of which the first process of the restored namespaces has the reading end. Without it
//! the tree ends before its first instruction.

use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::processes::Folder;
use crate::failure::{Failure, Outcome};
use crate::launch::installed;

/// Between two looks whether it has ended.
const GLANCE: Duration = Duration::from_millis(10);

/// The process that verifies them; it ends with this value.
pub struct Pages {
    process: Child,
    word: OwnedFd,
    shown: PathBuf,
}

impl Pages {
    /// Begins with those of a generation.
    ///
    /// # Errors
    /// The system's.
    pub fn verify(shown: &Path, folder: &Folder, generation: u64) -> Outcome<Self> {
        let (mut command, _given) = opening(shown, folder)?;
        command
            .args(["--pages", "--generation", &generation.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let fail = |why: String| Failure::failed(format!("the broker's program: {why}"));
        let mut process = command.spawn().map_err(|error| fail(error.to_string()))?;
        let word = process.stdout.take().map(OwnedFd::from);
        let word = word.ok_or_else(|| fail("it has no output".to_owned()))?;
        Ok(Self {
            process,
            word,
            shown: shown.to_owned(),
        })
    }

    /// The pipe on which the word comes.
    pub fn word(&self) -> BorrowedFd<'_> {
        self.word.as_fd()
    }

    /// Waits until all are verified, at most until then; the word stays in the pipe.
    ///
    /// # Errors
    /// What is damaged, or that the time is over.
    pub fn wait(&mut self, until: Instant) -> Outcome<()> {
        loop {
            let ended = self.process.try_wait();
            let ended = ended.map_err(|error| Failure::failed(format!("the broker's program: {error}")))?;
            match ended {
                Some(status) => return self.judged(status),
                None if Instant::now() >= until => {
                    let message = format!("the pages of {} were not verified in time", self.shown.display());
                    return Err(Failure::failed(message).hint("--timeout gives it longer"));
                }
                None => std::thread::sleep(GLANCE),
            }
        }
    }

    /// What became of a restore that was given up at `until`: damage is the reason of whatever went wrong before.
    ///
    /// # Errors
    /// The damage, or that of the restore.
    pub fn judge<T>(&mut self, restored: Outcome<T>, until: Instant) -> Outcome<T> {
        if restored.is_err() && Instant::now() >= until {
            return restored;
        }
        // Where the processes run, it has said the word and ends now.
        self.wait(until).and(restored)
    }

    fn judged(&mut self, status: ExitStatus) -> Outcome<()> {
        if status.success() {
            return Ok(());
        }
        let mut said = String::new();
        if let Some(stderr) = &mut self.process.stderr {
            // Without it the damage has no name.
            let _ = stderr.read_to_string(&mut said);
        }
        if said.trim().is_empty() {
            let message = format!("the verification of {} was ended ({status})", self.shown.display());
            return Err(Failure::failed(message).hint("restore it again"));
        }
        Err(damaged(&self.shown, &said))
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // It has mostly ended, and been waited for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The broker's program, told which snapshot to open, and the descriptor that it is given.
///
/// # Errors
/// The system's.
pub fn opening(shown: &Path, folder: &Folder) -> Outcome<(Command, OwnedFd)> {
    let mut command = Command::new(installed::find(installed::BROKER)?);
    let given = folder.for_child()?;
    command.arg("--open-snapshot").arg(shown);
    command.arg("--folder-fd").arg(given.as_raw_fd().to_string());
    Ok((command, given))
}

/// What a snapshot's reader said of it.
pub fn damaged(shown: &Path, why: &str) -> Failure {
    let failure = Failure::failed(format!("{} cannot be restored: {}", shown.display(), why.trim()));
    failure.hint("the generation before may be whole: --generation N")
}
