// SPDX-License-Identifier: Apache-2.0
//! `partage checkpoint`.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use partage_protocol::admin::Request;
use partage_protocol::snapshot::SavedEvery;

use super::criu;
use crate::arguments::Checkpoint;
use crate::commands::residence::{converse, drain_timeout};
use crate::failure::{Failure, Outcome};
use crate::launch::place::Place;
use crate::launch::run_settings::files_max;
use crate::show::report::Report;

/// Generations that are kept where nobody said how many: one can be damaged.
const KEEP: u64 = 2;

/// `partage checkpoint`.
pub fn checkpoint(arguments: &Checkpoint, place: &Place, report: &Report) -> Outcome<u8> {
    let drain_timeout_ns = drain_timeout(arguments.drain_timeout.as_deref())?;
    let files_max = files_max(arguments.files_max.as_deref())?;
    let criu = criu::find()?;
    let out = folder(&arguments.out)?;
    let request = Request::Checkpoint {
        target: arguments.target.clone(),
        out: out.to_string_lossy().into_owned(),
        stop: arguments.stop,
        keep: arguments.keep.unwrap_or(KEEP),
        criu: Some(criu.to_string_lossy().into_owned()),
        files_max,
        drain_timeout_ns,
        outside: arguments.tcp.unwrap_or_default().into(),
    };
    converse(&request, place, report)
}

/// What a job that is saved again and again needs, before it is asked for: CRIU, and the folder, which is made where it
/// is missing and this is no dry run.
///
/// # Errors
/// There is no CRIU, or no such folder.
pub fn prepare(saved: SavedEvery, is_dry: bool) -> Outcome<SavedEvery> {
    let criu = criu::find()?;
    let out = Path::new(&saved.out);
    let out = match is_dry && !out.exists() {
        true => std::path::absolute(out).unwrap_or_else(|_| out.to_owned()),
        false => folder(out)?,
    };
    Ok(SavedEvery {
        out: out.to_string_lossy().into_owned(),
        keep: KEEP,
        criu: Some(criu.to_string_lossy().into_owned()),
        ..saved
    })
}

/// A snapshot's folder by its whole path; made where it is missing.
fn folder(out: &Path) -> Outcome<PathBuf> {
    if !out.exists() {
        let made = std::fs::DirBuilder::new().mode(0o700).create(out);
        made.map_err(|error| Failure::cannot("make", out, error))?;
    }
    out.canonicalize().map_err(|error| Failure::cannot("find", out, error))
}
