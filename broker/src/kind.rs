// SPDX-License-Identifier: Apache-2.0
//! What a broker serves: one user, or the host.

/// What a broker serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One user, started on demand, leaving when idle.
    Private,
    /// The host, started by the system.
    Managed,
}

impl Kind {
    /// The word in `status`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Managed => "managed",
        }
    }
}
