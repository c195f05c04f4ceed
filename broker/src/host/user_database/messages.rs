// SPDX-License-Identifier: Apache-2.0
//! What the broker asks the helper of the user database, and what the helper answers: each a JSON line.

use serde::{Deserialize, Serialize};

/// What the broker asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// The account of a uid.
    User(u32),
    /// The gid of a group's name.
    Group(String),
}

/// What the helper answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The account; none: the database has no such user.
    User(Option<Account>),
    /// The gid; none: the database has no such group.
    Group(Option<u32>),
    /// The database answers with an error: which.
    Failed(String),
}

/// A user as the database has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Login name.
    pub name: String,
    /// Gids of the user's groups, with their names where the database has them.
    pub groups: Vec<(u32, Option<String>)>,
}
