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
