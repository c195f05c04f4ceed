// SPDX-License-Identifier: Apache-2.0
//! What becomes of a job's connections to outside when it is saved.

use clap::ValueEnum;
use partage_protocol::snapshot::Outside;

/// What to do with connections to outside the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Tcp {
    /// They keep the job from being saved.
    #[default]
    Refuse,
    /// A restored job finds them closed.
    Close,
}

impl From<Tcp> for Outside {
    fn from(tcp: Tcp) -> Self {
        match tcp {
            Tcp::Refuse => Self::Refuse,
            Tcp::Close => Self::Close,
        }
    }
}
