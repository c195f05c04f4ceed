// SPDX-License-Identifier: Apache-2.0
//! A client: one process of a job that attached.

use partage_protocol::units::JobId;

use crate::caller::Process;

/// A client as the policy sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its job.
    pub job: JobId,
    /// Its process.
    pub process: Process,
    /// Its connection and pages.
    pub presence: Presence,
    /// It has no share of the limit.
    pub is_nvml_only: bool,
}

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Connected.
    Attached,
    /// Alive without a connection; after a broker's restart, not yet back.
    Away,
    /// Killed and not gone.
    Dying,
}

impl Presence {
    /// The word that users see.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Attached => "attached",
            Self::Away => "away",
            Self::Dying => "dying",
        }
    }
}
