// SPDX-License-Identifier: Apache-2.0
//! Refusals and failures, as a caller gets them.

use serde::{Deserialize, Serialize};

use super::views::Holder;

/// A refusal or failure with what to do about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorView {
    /// Machine-readable kind.
    pub code: ErrorCode,
    /// What failed, with the numbers.
    pub message: String,
    /// What this caller may do, a command where there is one.
    pub hint: Option<String>,
    /// Who holds what was asked.
    #[serde(default)]
    pub holders: Vec<Holder>,
}

/// Kinds of [`ErrorView`]; the command line maps them to exit codes (design: Command line).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// The request is malformed or a value is out of range (2; `run`: 125).
    Invalid,
    /// The caller may not do this (3; `run`: 125).
    NotAllowed,
    /// No such job (4).
    NoTarget,
    /// The target matches several jobs (4).
    Ambiguous,
    /// No room now and none was waited for, or the wait ran out (`run`: 124).
    NoRoom,
    /// Nothing on this machine can ever satisfy it (`run`: 125).
    Impossible,
    /// It was tried and could not be done, or something is in the way (1; `run`: 125).
    Failed,
    /// No such device (`run`: 125).
    NoDevice,
    /// No driver here (`run`: 125).
    NoDriver,
    /// The broker failed inside (5; `run`: 125).
    Internal,
}
