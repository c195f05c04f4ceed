// SPDX-License-Identifier: Apache-2.0
//! The files that a restored job writes: checked before it is admitted, and put back before its processes are.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use partage_protocol::snapshot::{FilesAnswer, FilesMode, FilesOrder};

use super::pages::Pages;
use super::processes::Folder;
use crate::arguments::Files;
use crate::failure::{Failure, Outcome};
use crate::launch::installed;

/// Which snapshot's files, and what to do with them.
pub struct Care<'a> {
    /// The snapshot's folder.
    pub folder: &'a Folder,
    /// Its name.
    pub shown: &'a Path,
    /// The generation's name in it.
    pub generation: &'a str,
    /// As the command says.
    pub mode: FilesMode,
}

impl Care<'_> {
    /// Changes nothing.
    ///
    /// # Errors
    /// What is in the way.
    pub fn check(&self) -> Outcome<()> {
        self.ask(false, false).map(drop)
    }

    /// Makes the files what the job knows. Answers what was done, a sentence each. No file is changed before all of the
    /// snapshot is verified.
    ///
    /// # Errors
    /// What is in the way, or the damage.
    pub fn apply(&self, pages: &mut Pages, until: Instant) -> Outcome<Vec<String>> {
        let mut notes = self.ask(true, false)?;
        if notes.is_none() {
            pages.wait(until)?;
            notes = self.ask(true, true)?;
        }
        Ok(notes.unwrap_or_default())
    }

    /// `None`: the snapshot has to be verified first.
    fn ask(&self, is_to_apply: bool, is_verified: bool) -> Outcome<Option<Vec<String>>> {
        let folder = self.folder.for_child()?;
        let order = FilesOrder {
            folder: folder.as_raw_fd(),
            shown: self.shown.to_string_lossy().into_owned(),
            generation: self.generation.to_owned(),
            mode: self.mode,
            is_to_apply,
            is_verified,
        };
        let fail = |why: String| Failure::failed(format!("the broker's program: {why}"));
        let order = serde_json::to_string(&order).map_err(|error| fail(error.to_string()))?;
        let mut command = Command::new(installed::find(installed::BROKER)?);
        command.arg("--restore-files").arg(order);
        let output = command.output().map_err(|error| fail(error.to_string()))?;
        let answer = serde_json::from_slice(&output.stdout);
        let answer = answer.map_err(|_| fail(String::from_utf8_lossy(&output.stderr).trim().to_owned()))?;
        match answer {
            FilesAnswer::Ready(notes) => Ok(Some(notes)),
            FilesAnswer::ToVerify => Ok(None),
            FilesAnswer::Refused { message, hint } => {
                let message = format!("{} cannot be restored: {message}", self.shown.display());
                Err(Failure::failed(message).hint(hint))
            }
        }
    }
}

/// What `--files` means.
pub fn mode(files: Option<Files>) -> FilesMode {
    match files.unwrap_or_default() {
        Files::Cut => FilesMode::Cut,
        Files::Keep => FilesMode::Keep,
        Files::Refuse => FilesMode::Refuse,
    }
}
