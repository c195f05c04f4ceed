// SPDX-License-Identifier: Apache-2.0
//! A job's terms of device time as people write them: promise and cap (`30%`), weight (`1` to `10000`), class
//! (`low`, `normal`, `high`, `realtime`), time limit (`1h30m`).
//!
//! *Promise*: the part of a device's time that a job gets whenever it wants it. *Cap*: the part that it never exceeds.
//! *Weight*: how jobs without a promise split what is not promised. *Class*: whose turn comes sooner and counts for
//! more. *Time limit*: how long a job may run by the clock on the wall. Parts are millionths of a device's time
//! ("ppm"), so that sums are exact; a cap of the whole is none. Percentages and durations are read by [`crate::size`].

use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::size::{DURATIONS, SizeError, parse_duration, parse_share, quote};
use crate::units::{SECOND_NS, Share};

/// Millionths in all of a device's time.
pub const WHOLE_PPM: u32 = Share::WHOLE;
/// The weight of a job that names none.
pub const DEFAULT_WEIGHT: u32 = 100;
/// The greatest weight; the least is 1.
pub const MAX_WEIGHT: u32 = 10_000;
/// What `--drain-timeout` takes, in nanoseconds: the driver counts whole milliseconds and waits without end at 0; and
/// for as long as work in flight is waited for, no other thread of the job gets to its device.
pub const DRAIN_TIMEOUT_NS: RangeInclusive<u64> = SECOND_NS / 1_000..=3_600 * SECOND_NS;

/// Whose work goes first; a later one goes before an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// What nobody else wants.
    Low,
    /// Where nothing is said.
    #[default]
    Normal,
    /// Before the others, which keep a floor.
    High,
    /// At once.
    Realtime,
}

impl Class {
    /// Every class, the last goes first.
    pub const ALL: [Self; 4] = [Self::Low, Self::Normal, Self::High, Self::Realtime];

    /// The word that users write and see.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
            Self::Realtime => "realtime",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.word())
    }
}

/// Why a text is no term. Each names the value and what is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TermError {
    /// A part or a duration that cannot be read.
    Size(SizeError),
    /// No class.
    Class {
        /// As written.
        value: String,
    },
    /// No weight.
    Weight {
        /// As written.
        value: String,
    },
    /// No time at all.
    NoTime {
        /// As written.
        value: String,
    },
}

impl fmt::Display for TermError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(why) => why.fmt(out),
            Self::Class { value } => write!(out, "unknown priority {value} (use low, normal, high or realtime)"),
            Self::Weight { value } => write!(
                out,
                "bad weight {value} (use a whole number from 1 to {MAX_WEIGHT}; the default is {DEFAULT_WEIGHT})"
            ),
            Self::NoTime { value } => write!(out, "{value} leaves no time to run (use {DURATIONS})"),
        }
    }
}

impl std::error::Error for TermError {}

impl From<SizeError> for TermError {
    fn from(why: SizeError) -> Self {
        Self::Size(why)
    }
}

/// Reads a promise: `30%`, in millionths of a device's time.
///
/// # Errors
/// [`TermError`]; a bare `30` or `0.3` is told the spelling meant.
pub fn parse_promise(text: &str) -> Result<u32, TermError> {
    Ok(parse_share(text)?.millionths())
}

/// Reads a cap: `50%`, in millionths of a device's time; none for the whole, which caps nothing.
///
/// # Errors
/// As [`parse_promise`].
pub fn parse_cap(text: &str) -> Result<Option<u32>, TermError> {
    Ok(cap_of(parse_share(text)?))
}

/// A share as a cap: the whole is none.
#[must_use]
pub fn cap_of(share: Share) -> Option<u32> {
    Some(share.millionths()).filter(|ppm| *ppm < WHOLE_PPM)
}

/// Reads a weight.
///
/// # Errors
/// [`TermError::Weight`] for everything but a whole number from 1 to [`MAX_WEIGHT`].
pub fn parse_weight(text: &str) -> Result<u32, TermError> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let weight = text.parse::<u32>().ok().filter(|_| is_digits);
    weight
        .filter(|weight| (1..=MAX_WEIGHT).contains(weight))
        .ok_or_else(|| TermError::Weight { value: quote(text) })
}

/// Reads a class.
///
/// # Errors
/// [`TermError::Class`].
pub fn parse_class(text: &str) -> Result<Class, TermError> {
    let known = Class::ALL.into_iter().find(|class| class.word() == text);
    known.ok_or_else(|| TermError::Class { value: quote(text) })
}

/// Reads a time limit in nanoseconds.
///
/// # Errors
/// [`TermError`]; `0s` is refused.
pub fn parse_time_limit(text: &str) -> Result<u64, TermError> {
    match parse_duration(text)? {
        0 => Err(TermError::NoTime { value: quote(text) }),
        ns => Ok(ns),
    }
}

/// A part as it was said, exactly: `30 %`, `12.5 %`, `0 %`.
#[must_use]
pub fn format_part(ppm: u32) -> String {
    Share::new(ppm.min(WHOLE_PPM)).map_or_else(|| "0 %".to_owned(), |share| share.to_string())
}

/// A part as it was measured, to a tenth: `29.8 %`, `100.0 %`.
#[must_use]
pub fn format_measured(ppm: u32) -> String {
    let tenths = (u64::from(ppm) + 500) / 1_000;
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// Millionths as the ratio that documents hold.
#[must_use]
pub fn ratio(ppm: u32) -> f64 {
    f64::from(ppm) / f64::from(WHOLE_PPM)
}

/// The millionths of a document's ratio; nothing for what is no part.
#[must_use]
pub fn ppm(ratio: f64) -> u32 {
    // A float becomes the nearest integer that fits, and NaN 0.
    (ratio * f64::from(WHOLE_PPM)).round() as u32
}
