// SPDX-License-Identifier: Apache-2.0
//! A command's failure, for people and for scripts.
//!
//! A failure says what failed with its numbers, who holds what was asked, and what this caller may do. It has two exit
//! codes: `run` and `sim` keep 125 (124 no room, 126 not executable, 127 not found) for themselves because every other
//! code belongs to COMMAND; all other commands use 1 to 5.

use std::path::Path;

use partage_protocol::admin::{ErrorCode, ErrorView, Holder};
use partage_protocol::size::format_bytes;
use partage_protocol::terms::{format_part, ppm};

use crate::show::terminal::clean;

/// Result of a command.
pub type Outcome<T> = Result<T, Failure>;

/// Kinds of failure; [`Kind::row`] gives the word in JSON and the two exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bad argument, setting or value.
    Invalid,
    /// The answer is no, or the thing asked failed.
    Failed,
    /// The caller may not do this.
    NotAllowed,
    /// Nothing has this name, or several things have.
    NoTarget,
    /// Several jobs match.
    Ambiguous,
    /// No broker is there.
    NoBroker,
    /// A broker is there and does not answer.
    NoAnswer,
    /// No room now.
    NoRoom,
    /// Never any room on this machine.
    Impossible,
    /// No such device.
    NoDevice,
    /// No driver.
    NoDriver,
    /// The broker failed inside.
    Internal,
    /// `--strict` and a command that the limit cannot follow.
    Unmanageable,
    /// COMMAND is there and cannot be run.
    NotExecutable,
    /// COMMAND is not there.
    NotFound,
}

impl Kind {
    /// Word in JSON, exit code of most commands, exit code of `run` and `sim`.
    fn row(self) -> (&'static str, u8, u8) {
        match self {
            Self::Invalid => ("invalid", 2, 125),
            Self::Failed => ("failed", 1, 125),
            Self::NotAllowed => ("not-allowed", 3, 125),
            Self::NoTarget => ("no-target", 4, 125),
            Self::Ambiguous => ("ambiguous", 4, 125),
            Self::NoBroker => ("no-broker", 5, 125),
            Self::NoAnswer => ("no-answer", 5, 125),
            Self::NoRoom => ("no-room", 1, 124),
            Self::Impossible => ("impossible", 1, 125),
            Self::NoDevice => ("no-device", 4, 125),
            Self::NoDriver => ("no-driver", 1, 125),
            Self::Internal => ("internal", 5, 125),
            Self::Unmanageable => ("unmanageable", 1, 125),
            Self::NotExecutable => ("not-executable", 1, 126),
            Self::NotFound => ("not-found", 1, 127),
        }
    }

    /// Word in JSON.
    pub fn word(self) -> &'static str {
        self.row().0
    }
}

impl From<ErrorCode> for Kind {
    fn from(code: ErrorCode) -> Self {
        match code {
            ErrorCode::Invalid => Self::Invalid,
            ErrorCode::NotAllowed => Self::NotAllowed,
            ErrorCode::NoTarget => Self::NoTarget,
            ErrorCode::Ambiguous => Self::Ambiguous,
            ErrorCode::NoRoom => Self::NoRoom,
            ErrorCode::Impossible => Self::Impossible,
            ErrorCode::Failed => Self::Failed,
            ErrorCode::NoDevice => Self::NoDevice,
            ErrorCode::NoDriver => Self::NoDriver,
            ErrorCode::Internal => Self::Internal,
        }
    }
}

/// Something that could not be done.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Which kind.
    pub kind: Kind,
    /// What failed, with the numbers; lower case, no full stop.
    pub message: String,
    /// What this caller may do.
    pub hint: Option<String>,
    /// Who holds what was asked.
    pub holders: Vec<Holder>,
}

impl Failure {
    /// A failure without hint.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
            holders: Vec::new(),
        }
    }

    /// Bad argument, setting or value.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, message)
    }

    /// The thing asked failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Kind::Failed, message)
    }

    /// `cannot write /x: no space left on device`.
    pub fn cannot(verb: &str, path: impl AsRef<Path>, error: impl Into<std::io::Error>) -> Self {
        Self::failed(format!(
            "cannot {verb} {}: {}",
            path.as_ref().display(),
            reason(&error.into())
        ))
    }

    /// Adds what the caller may do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The process's exit code; `is_launcher` for `run` and `sim`.
    pub fn exit_code(&self, is_launcher: bool) -> u8 {
        let (_, other, launcher) = self.kind.row();
        if is_launcher { launcher } else { other }
    }

    /// One sentence for people, without the leading `partage: `.
    pub fn sentence(&self) -> String {
        let mut text = self.message.clone();
        if !self.holders.is_empty() {
            text.push_str("; held by ");
            text.push_str(&holders(&self.holders));
        }
        if let Some(hint) = &self.hint {
            text.push_str("; ");
            text.push_str(hint);
        }
        clean(&text)
    }
}

/// The system's words for an error, in our lower case and without its number.
pub fn reason(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => nix::errno::Errno::from_raw(number).desc().to_lowercase(),
        None => error.to_string(),
    }
}

const NO_DRIVER: &str = "no NVIDIA driver here";

impl From<ErrorView> for Failure {
    fn from(view: ErrorView) -> Self {
        let mut message = view.message;
        if view.code == ErrorCode::NoDriver && message.starts_with(NO_DRIVER) {
            // The loader's reason is for `doctor`; here it would stand between the finding and the way out.
            message = NO_DRIVER.to_owned();
        }
        let way_out = (view.code == ErrorCode::NoDriver).then(|| "try: partage sim -- partage run …".to_owned());
        Self {
            kind: view.code.into(),
            message,
            hint: view.hint.or(way_out),
            holders: view.holders,
        }
    }
}

/// `j41 20 GiB on GPU 0, j42 60 % of the time on GPU 1, pid 7 1 GiB on GPU 1`.
pub fn holders(holders: &[Holder]) -> String {
    let one = |holder: &Holder| {
        let memory = Some(format_bytes(holder.bytes)).filter(|_| holder.bytes > 0 || holder.compute.is_none());
        let time = holder
            .compute
            .map(|part| format!("{} of the time", format_part(ppm(part))));
        let held: Vec<String> = memory.into_iter().chain(time).collect();
        format!("{} {} on {}", holder.who, held.join(" and "), holder.gpu())
    };
    holders.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_has_numbers_holders_and_advice() {
        let failure = Failure::from(ErrorView {
            code: ErrorCode::NoRoom,
            message: "64 GiB asked, 12 GiB free of 140 GiB on GPU 0".to_owned(),
            hint: Some("wait: partage run --on-full wait".to_owned()),
            holders: vec![Holder {
                who: "j41".to_owned(),
                gpu: 0,
                bytes: 128 << 30,
                compute: None,
            }],
        });
        assert_eq!(
            failure.sentence(),
            "64 GiB asked, 12 GiB free of 140 GiB on GPU 0; held by j41 128 GiB on GPU 0; wait: partage run --on-full \
             wait"
        );
        assert_eq!((failure.exit_code(true), failure.exit_code(false)), (124, 1));
    }

    #[test]
    fn holders_are_named_with_what_is_short() {
        let holder = |bytes, compute| Holder {
            who: "j41".to_owned(),
            gpu: 0,
            bytes,
            compute,
        };
        for (bytes, compute, text) in [
            (0, Some(0.6), "j41 60 % of the time on GPU 0"),
            (1 << 30, Some(0.125), "j41 1 GiB and 12.5 % of the time on GPU 0"),
            (1 << 30, None, "j41 1 GiB on GPU 0"),
            (0, None, "j41 0 B on GPU 0"),
        ] {
            assert_eq!(holders(&[holder(bytes, compute)]), text);
        }
    }

    #[test]
    fn a_machine_without_driver_is_told_about_sim() {
        let view = ErrorView {
            code: ErrorCode::NoDriver,
            message: "no NVIDIA driver here (libnvidia-ml.so.1: no such file)".to_owned(),
            hint: None,
            holders: vec![],
        };
        let failure = Failure::from(view);
        assert_eq!(
            failure.sentence(),
            "no NVIDIA driver here; try: partage sim -- partage run …"
        );
        assert_eq!(failure.exit_code(true), 125);
    }
}
