// SPDX-License-Identifier: Apache-2.0
//! The words of what a job waits for, and of why one ends.

use std::fmt::{Display, Formatter, Result};

use partage_protocol::size::format_duration;
use partage_protocol::units::JobId;

use crate::job::EndedBy;
use crate::notice::Awaits;

impl Display for Awaits {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        match self {
            Self::Going => {
                out.write_str("is stopped: it keeps its place, and others pass it until it goes on (fg, or kill -CONT)")
            }
            Self::Unused(gpu) => write!(out, "{gpu}: jobs without a promise use what was to be promised"),
            Self::Leaving(jobs) => {
                let verb = if jobs.len() == 1 { "leaves" } else { "leave" };
                let jobs: Vec<String> = jobs.iter().map(JobId::to_string).collect();
                write!(out, "{} {verb} the GPU", jobs.join(", "))
            }
            Self::Run => out.write_str("this broker has just begun, and the run that it left for may ask again"),
        }
    }
}

impl Display for EndedBy {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        match self {
            Self::NameWanted => out.write_str("its name was wanted and nothing of it runs"),
            Self::PlaceWanted => out.write_str("its place was wanted and nothing of it runs"),
            Self::Restored => out.write_str("it is restored and nothing of it runs"),
            Self::LastProcess => out.write_str("its last process is gone"),
            Self::Container => out.write_str("its container is gone"),
            Self::Stop => out.write_str("it was stopped"),
            Self::TimeLimit(limit_ns, words) => {
                write!(
                    out,
                    "its time limit of {} was over ({words})",
                    format_duration(*limit_ns)
                )
            }
        }
    }
}
