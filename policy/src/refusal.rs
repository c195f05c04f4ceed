// SPDX-License-Identifier: Apache-2.0
//! Refusals that several files make.

use partage_protocol::admin::{ErrorCode, ErrorView};
use partage_protocol::aliases::AliasError;

/// What was asked makes no sense.
pub(crate) fn invalid(message: String, hint: Option<String>) -> ErrorView {
    ErrorView {
        code: ErrorCode::Invalid,
        message,
        hint,
        holders: Vec::new(),
    }
}

/// Another tool's variable that cannot be followed. `instead` is the option that makes the variable count for nothing.
pub(crate) fn unusable_alias(why: &AliasError, instead: &str) -> ErrorView {
    invalid(
        why.to_string(),
        Some(format!("unset it, or say it yourself: {instead}")),
    )
}
