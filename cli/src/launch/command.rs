// SPDX-License-Identifier: Apache-2.0
//! COMMAND: its words, its file, and whether a limit can follow it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Kind, Outcome};
use crate::launch::environment;
use crate::launch::execute::{Environment, become_command};
use crate::launch::library_copy;
use crate::launch::place::Place;
use crate::launch::preflight::find::find;
use crate::launch::preflight::verdict::{Caller, Unmanaged, judge, own_program};

/// COMMAND: its words, its file, and whether the limit follows it.
pub struct Command {
    /// As typed.
    pub words: Vec<OsString>,
    /// The same for people.
    pub shown: Vec<String>,
    /// What will be executed.
    pub file: PathBuf,
    /// Why the limit does not follow, if so.
    pub unmanaged: Option<Unmanaged>,
    /// The caller's environment.
    pub environment: Environment,
}

impl Command {
    /// Finds and judges COMMAND.
    ///
    /// # Errors
    /// It is not there (127) or cannot be executed (126).
    pub fn find(words: &[OsString]) -> Outcome<Self> {
        let environment = Environment::inherited();
        let path = environment.get("PATH").map(OsStr::to_owned);
        let first = words.first().map_or(OsStr::new(""), OsString::as_os_str);
        let file = match (find(first, path.as_deref()), own_program(first)) {
            (Err(failure), Some(own)) if failure.kind == Kind::NotFound => own,
            (found, _) => found?,
        };
        let shown: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let unmanaged = judge(&shown, &file, path.as_deref(), Caller::here());
        Ok(Self {
            words: words.to_vec(),
            shown,
            file,
            unmanaged,
            environment,
        })
    }

    /// Becomes it, as a program that begins no job of its own: with the library, without what `run` has read.
    ///
    /// # Errors
    /// The library is not installed, or it cannot be run.
    pub fn become_without_job(mut self, place: &Place) -> Outcome<u8> {
        let library = library_copy::provide(&place.dir)?;
        environment::remove_twins(&mut self.environment);
        self.preload(&library);
        Err(self.become_it())
    }

    /// Puts the library into its environment. A 32-bit program's loader would complain about it in the program's own
    /// output.
    pub fn preload(&mut self, library: &Path) {
        if !self
            .unmanaged
            .as_ref()
            .is_some_and(|unmanaged| unmanaged.rejects_preload)
        {
            environment::preload(&mut self.environment, library);
        }
    }

    /// Becomes it. Returns only when that fails.
    pub fn become_it(self) -> Failure {
        become_command(&self.file, &self.words, &self.environment)
    }
}
