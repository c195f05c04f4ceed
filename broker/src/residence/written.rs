// SPDX-License-Identifier: Apache-2.0
//! How far the process is that has a job dumped, as its desk says.

use partage_protocol::units::JobId;

use super::code;
use super::way::Way;
use crate::site::Site;
use crate::snapshot::dump::{Desk, Standing};
use crate::snapshot::order::DumpOutcome;

/// How far a dump is.
pub(super) enum Written {
    /// CRIU has not all of the job.
    Runs,
    /// It has, and the files are being made whole.
    Dumped,
    /// The snapshot is whole: the way knows which.
    Whole,
    /// It failed, by this code: the way knows why.
    Failed(i32),
}

/// Looks how far a dump is, and takes its outcome.
pub(super) fn what_became(site: &Site, job: JobId, way: &mut Way) -> Written {
    let desk = desk(site, job);
    let standing = desk.standing();
    match standing {
        Standing::Runs => return Written::Runs,
        Standing::Dumped => return Written::Dumped,
        Standing::Over(_) | Standing::Nothing => {}
    }
    if let Some(child) = &mut way.dumping {
        // It let go of its lock as it ended, and is not to stay as a dead one.
        match child.try_wait() {
            Ok(None) => return Written::Runs,
            Ok(Some(_)) | Err(_) => way.dumping = None,
        }
    }
    desk.clear();
    match standing {
        Standing::Over(DumpOutcome::Saved { generation, bytes }) => {
            way.saved = Some((generation, bytes));
            Written::Whole
        }
        Standing::Over(DumpOutcome::Failed { why }) => {
            way.why = Some(why);
            Written::Failed(code::NOT_SUPPORTED)
        }
        _ => {
            way.why = Some("the process that saves it died".to_owned());
            Written::Failed(code::OPERATING_SYSTEM)
        }
    }
}

/// Is a snapshot of the job being written, for this broker or for one before it?
pub(super) fn is_being_written(site: &Site, job: JobId) -> bool {
    desk(site, job).is_taken()
}

/// The desk of a job's dump.
pub(super) fn desk(site: &Site, job: JobId) -> Desk {
    Desk::new(&site.directory.snapshots(), &job.to_string())
}
