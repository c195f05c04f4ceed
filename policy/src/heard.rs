// SPDX-License-Identifier: Apache-2.0
//! What a command is told, as facts. The documents are in `views/said/replies.rs`.

use std::fmt::Display;

use crate::books::room::foreseen::Foreseen;
use crate::caller::Caller;
use crate::holding::Holding;
use crate::job::{Job, JobRecord};
use crate::refusal::Refusal;

/// What a command is told; [`Heard::reply`] makes the document of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard(pub(crate) Word);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Word {
    /// At this place in the queue, for this, which these hold.
    Waiting(u32, String, Vec<Holding>),
    /// With notes.
    Admitted(Box<JobRecord>, Vec<String>),
    Done(String),
    /// The job as it was then, and who sees it.
    Job(Box<(Job, Caller)>),
    Inside(Box<(Job, Caller)>),
    Foreseen(Vec<Foreseen>),
    Refused(Refusal),
}

impl Heard {
    /// Does its command hear more?
    #[must_use]
    pub const fn is_last(&self) -> bool {
        !matches!(self.0, Word::Waiting(..))
    }
}

impl Word {
    pub(crate) fn done(what: impl Display) -> Self {
        Self::Done(what.to_string())
    }
}
