// SPDX-License-Identifier: Apache-2.0
//! Whose word a configuration is: root's or the broker's user's alone. Whoever could change the file, or a folder on
//! the way to it, would make the host's rules.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use nix::sys::stat::{FileStat, fstat, stat};

use super::error::ConfigError;
use crate::snapshot::folder::who_else;

/// A file's text, if nobody else can change it.
pub(crate) fn read(path: &Path) -> Result<String, ConfigError> {
    let fail = |why: io::Error| ConfigError::Read {
        path: path.to_owned(),
        why,
    };
    folder(path.parent().unwrap_or(Path::new("/")))?;
    let whole = path.canonicalize().map_err(fail)?;
    folder(whole.parent().unwrap_or(Path::new("/")))?;
    let mut file = File::open(&whole).map_err(fail)?;
    judge(path, &fstat(&file).map_err(|errno| fail(errno.into()))?)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(fail)?;
    Ok(text)
}

/// Can nobody else change which files are in this folder, or which folder this is? A missing one holds nothing.
pub(super) fn folder(path: &Path) -> Result<(), ConfigError> {
    let Ok(whole) = path.canonicalize() else { return Ok(()) };
    for part in whole.ancestors() {
        let facts = stat(part).map_err(|errno| ConfigError::Read {
            path: part.to_owned(),
            why: errno.into(),
        })?;
        judge(part, &facts)?;
    }
    Ok(())
}

/// Is this a program that root and the broker's user alone can change? Not the file, and no folder on the way to it.
///
/// # Errors
/// What it is instead, and what to do.
pub(crate) fn judge_program(path: &Path) -> Result<(), String> {
    /// Somebody may execute it.
    const EXECUTABLE: u32 = 0o111;
    let fail = |path: &Path, why: io::Error| format!("{}: {why}", path.display());
    if !path.is_absolute() {
        return Err(format!(
            "{:?} is no whole path: write one that begins with /",
            path.display()
        ));
    }
    let whole = path.canonicalize().map_err(|why| fail(path, why))?;
    let facts = |path: &Path| stat(path).map_err(|errno| fail(path, errno.into()));
    let program = facts(&whole)?;
    if program.st_mode & libc::S_IFMT != libc::S_IFREG || program.st_mode & EXECUTABLE == 0 {
        return Err(format!("{} is no program", path.display()));
    }
    let before = path.parent().into_iter().flat_map(Path::ancestors);
    for part in whole.ancestors().chain(before) {
        if let Some(who) = who_else(&facts(part)?) {
            return Err(format!(
                "{0} {who}: a program that the broker runs is root's alone: chown root {0} && chmod go-w {0}",
                part.display()
            ));
        }
    }
    Ok(())
}

fn judge(path: &Path, facts: &FileStat) -> Result<(), ConfigError> {
    match who_else(facts) {
        None => Ok(()),
        Some(who) => Err(ConfigError::Open {
            path: path.to_owned(),
            who,
            remedy: format!("chown root {0} && chmod go-w {0}", path.display()),
        }),
    }
}
