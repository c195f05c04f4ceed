// SPDX-License-Identifier: Apache-2.0
//! COMMAND: its words, its file, and whether a limit can follow it.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::failure::{Kind, Outcome};
use crate::launch::execute::Environment;
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
}
