// SPDX-License-Identifier: Apache-2.0
//! `partage checkpoint`.

use std::os::unix::fs::DirBuilderExt;

use partage_protocol::admin::Request;

use super::criu;
use crate::arguments::Checkpoint;
use crate::commands::residence::{converse, drain_timeout};
use crate::failure::{Failure, Kind, Outcome};
use crate::launch::place::{Place, reason};
use crate::show::report::Report;

/// Generations that are kept where nobody said how many: one can be damaged.
const KEEP: u64 = 2;

/// `partage checkpoint`.
pub fn checkpoint(arguments: &Checkpoint, place: &Place, report: &Report) -> Outcome<u8> {
    let drain_timeout_ns = drain_timeout(arguments.drain_timeout.as_deref())?;
    let criu = criu::find()?;
    let out = &arguments.out;
    let fail = |what: &str, error: &std::io::Error| {
        Failure::new(
            Kind::Failed,
            format!("cannot {what} {}: {}", out.display(), reason(error)),
        )
    };
    if !out.exists() {
        let made = std::fs::DirBuilder::new().mode(0o700).create(out);
        made.map_err(|error| fail("make", &error))?;
    }
    let out = out.canonicalize().map_err(|error| fail("find", &error))?;
    let request = Request::Checkpoint {
        target: arguments.target.clone(),
        out: out.to_string_lossy().into_owned(),
        stop: arguments.stop,
        keep: arguments.keep.unwrap_or(KEEP),
        criu: Some(criu.to_string_lossy().into_owned()),
        drain_timeout_ns,
    };
    converse(&request, place, report)
}
