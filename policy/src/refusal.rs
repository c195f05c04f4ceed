// SPDX-License-Identifier: Apache-2.0
//! Refusals that several files make.

use partage_protocol::admin::{ErrorCode, ErrorView};
use partage_protocol::aliases::AliasError;
use partage_protocol::terms::format_part;

use crate::rules::NotAllowed;

/// A refusal as its caller gets it.
pub(crate) type Refused = ErrorView;

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

/// What the rules do not allow, or what contradicts itself under them.
pub(crate) fn not_allowed(why: NotAllowed) -> ErrorView {
    let forbidden = |message: String, hint: String| ErrorView {
        code: ErrorCode::NotAllowed,
        ..invalid(message, Some(hint))
    };
    match why {
        NotAllowed::Above { words, rule, most } => forbidden(
            format!("{words} is not allowed here: the {rule} holds"),
            format!("ask for at most {most}, or ask an administrator"),
        ),
        NotAllowed::RequestAboveLimit { request, limit } => invalid(
            format!("{request} is more than the limit {limit}"),
            Some("a promise cannot exceed the limit: raise --mem or lower --mem-request".into()),
        ),
        NotAllowed::PromiseAboveCap { promise_ppm, cap_ppm } => invalid(
            format!(
                "a promise of {} is more than the cap of {}",
                format_part(promise_ppm),
                format_part(cap_ppm)
            ),
            Some("promise at most the cap: lower compute, or raise compute-max".into()),
        ),
        NotAllowed::Barred { rule } => forbidden(
            format!("no job of this user may use a GPU here: the {rule} holds"),
            "ask an administrator".to_owned(),
        ),
        NotAllowed::Force => forbidden(
            "--force is for administrators".to_owned(),
            "leave it out, or ask an administrator".to_owned(),
        ),
        NotAllowed::UnknownPreset { name, known } => {
            let hint = match known.as_slice() {
                [] => "none is configured: leave out --class".to_owned(),
                known => format!("there are: {}", known.join(", ")),
            };
            invalid(format!("no class is called {name:?} here"), Some(hint))
        }
        NotAllowed::PresetNotAllowed { name, rule } => forbidden(
            format!("class {name} is not allowed here: the {rule} holds"),
            "name another class, or none".to_owned(),
        ),
        NotAllowed::GpuNotAllowed { gpu, rule } => forbidden(
            format!("{gpu} is not allowed here: the {rule} holds"),
            "name another GPU, or none".to_owned(),
        ),
    }
}
