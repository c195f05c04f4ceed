// SPDX-License-Identifier: Apache-2.0
//! What is wrong with an amount, and what to write instead.

use std::fmt;

/// Why a text is no amount. Each names the value; where there is one, the fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SizeError {
    /// Nothing was written; what is accepted.
    Empty(&'static str),
    /// A number without unit.
    NoUnit {
        /// As written.
        value: String,
        /// What was probably meant.
        meant: String,
    },
    /// Zero, of something or of nothing.
    Zero {
        /// As written.
        value: String,
        /// What is accepted.
        accepts: &'static str,
    },
    /// A duration with decimals.
    PartOfUnit {
        /// As written.
        value: String,
    },
    /// Less than zero.
    Negative {
        /// As written.
        value: String,
    },
    /// More than 100 %.
    OverWhole {
        /// As written.
        value: String,
    },
    /// More than four decimals of a percent, or nine of a size.
    TooFine {
        /// As written.
        value: String,
    },
    /// More than fits 64 bits.
    TooLarge {
        /// As written.
        value: String,
    },
    /// White space within or around it.
    Space {
        /// As written.
        value: String,
        /// Without it.
        meant: String,
    },
    /// No number at its start, or a number we do not read (`1e3`, `.5`).
    NotANumber {
        /// As written.
        value: String,
        /// What is accepted.
        accepts: &'static str,
    },
    /// A unit we do not know.
    UnknownUnit {
        /// As written.
        value: String,
        /// The unknown part.
        unit: String,
        /// What is accepted.
        accepts: &'static str,
    },
}

pub(super) const SIZES: &str = "8GiB, 8192MiB or 25%";
pub(super) const PERCENTS: &str = "30% or 12.5%";
/// Durations as they are written, for messages.
pub const DURATIONS: &str = "90s, 90m or 1h30m";

impl fmt::Display for SizeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty(accepts) => write!(out, "the value is empty: write {accepts}"),
            Self::NoUnit { value, meant } => write!(out, "{value} has no unit: did you mean {meant}?"),
            Self::Zero { value, accepts } => write!(out, "{value} is zero: write {accepts}"),
            Self::PartOfUnit { value } => {
                write!(
                    out,
                    "{value} has decimals, and durations have whole units: write {DURATIONS}"
                )
            }
            Self::Negative { value } => write!(out, "{value} is negative: use an amount above 0"),
            Self::OverWhole { value } => write!(out, "{value} is more than the whole: at most 100%"),
            Self::TooFine { value } => {
                write!(
                    out,
                    "{value} has too many decimals: at most 4 of a percent, 9 of a size"
                )
            }
            Self::TooLarge { value } => write!(out, "{value} is more than 64 bits can hold"),
            Self::Space { value, meant } => write!(out, "{value} contains a blank: write {meant}"),
            Self::NotANumber { value, accepts } => write!(out, "{value} does not start with a number: write {accepts}"),
            Self::UnknownUnit { value, unit, accepts } => {
                write!(out, "{value} has an unknown unit {unit}: write {accepts}")
            }
        }
    }
}

impl std::error::Error for SizeError {}
