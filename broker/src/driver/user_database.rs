// SPDX-License-Identifier: Apache-2.0
//! What the user database was last heard of.

/// What the user database was last heard of.
#[derive(Debug, Default)]
pub(super) struct UserDatabase {
    /// Why it does not answer; none where it does, or was not asked.
    pub(super) silent: Option<String>,
    /// The administrators' group is not in the local file: the database is asked for it once.
    pub(super) wants_administrators: bool,
}

impl UserDatabase {
    /// A sentence for `status`, while it does not answer.
    pub(super) fn note(&self) -> Option<String> {
        let why = self.silent.as_ref()?;
        Some(format!(
            "the user database does not answer ({why}): until it does, users and groups that only it knows are \
             numbers, and rules about their names do not hold"
        ))
    }
}
