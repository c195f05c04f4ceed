// SPDX-License-Identifier: Apache-2.0
//! The result of one check of `partage doctor`.

use serde::Serialize;

use crate::failure::Failure;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    Ok,
    /// What one can do without is not there.
    Off,
    /// Partage works; something will not.
    Warn,
    /// Partage does not work, or a limit would not hold.
    Fail,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at, one word or two.
    pub name: &'static str,
    /// How it ended.
    pub state: State,
    /// What was found.
    pub text: String,
    /// What mends it.
    pub fix: Option<String>,
}

impl Check {
    /// All is well.
    pub fn ok(name: &'static str, text: impl Into<String>) -> Self {
        Self {
            name,
            state: State::Ok,
            text: text.into(),
            fix: None,
        }
    }

    /// One can do without it, and it is not there.
    pub fn off(name: &'static str, text: impl Into<String>) -> Self {
        Self {
            state: State::Off,
            ..Self::ok(name, text)
        }
    }

    /// Something will not work.
    pub fn warn(name: &'static str, text: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            state: State::Warn,
            fix: Some(fix.into()),
            ..Self::ok(name, text)
        }
    }

    /// Partage does not work.
    pub fn fail(name: &'static str, text: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            state: State::Fail,
            ..Self::warn(name, text, fix)
        }
    }

    /// Partage does not work, as a failure says.
    pub fn failed(name: &'static str, failure: &Failure) -> Self {
        Self::fail(name, &failure.message, failure.hint.as_deref().unwrap_or_default())
    }
}
