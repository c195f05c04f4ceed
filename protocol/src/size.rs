// SPDX-License-Identifier: Apache-2.0
//! Amounts as people write them: sizes (`8GiB`, `8G`, `8192M`), parts of a device (`25%`), durations (`1h30m`).
//!
//! Memory is base 1024 whatever the spelling: `G`, `GB`, `Gi` and `GiB` are one unit, in upper or lower case. A number
//! without a unit is refused, because `-m 8` has been read as bytes, MiB and GiB by different tools; the error says
//! which spelling was probably meant. Decimals are exact: `1.5GiB` is 1536 MiB, and what is left of a byte is dropped.

mod error;

use std::fmt;

use crate::units::{GIB, KIB, MIB, SECOND_NS, Share, TIB};
use error::{PERCENTS, SIZES};

pub use error::{DURATIONS, SizeError};

/// A memory amount as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Amount {
    /// Bytes, at least 1.
    Bytes(u64),
    /// Part of each device's usable memory.
    Share(Share),
}

impl Amount {
    /// Bytes on a device with `usable` bytes (see [`Share::of`] for the rounding).
    #[must_use]
    pub fn on(self, usable: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(share) => share.of(usable),
        }
    }
}

impl fmt::Display for Amount {
    /// The shortest exact spelling, which [`parse_amount`] reads back to the same value.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Bytes(bytes) => {
                let (unit, name) = [(TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")]
                    .into_iter()
                    .find(|(unit, _)| bytes >= *unit && bytes % unit == 0)
                    .unwrap_or((1, "B"));
                write!(out, "{}{name}", bytes / unit)
            }
            Self::Share(share) => write!(out, "{}", share.to_string().replace(' ', "")),
        }
    }
}

/// Reads a memory amount: `8GiB`, `1.5G`, `25%`.
///
/// # Errors
/// [`SizeError`] naming the value and the fix.
pub fn parse_amount(text: &str) -> Result<Amount, SizeError> {
    let number = Number::split(text, SIZES)?;
    match number.unit {
        "" if number.scaled(9) == Ok(0) => Err(number.zero(SIZES)),
        "" => Err(SizeError::NoUnit {
            value: quote(text),
            meant: number.meant_size(),
        }),
        "%" => number.share(SIZES).map(Amount::Share),
        unit => {
            let Some(factor) = size_unit(unit) else {
                return Err(number.unknown_unit(SIZES));
            };
            number.bytes(factor).map(Amount::Bytes)
        }
    }
}

/// How a limit or a promise that there is not to be is written.
pub const NONE: &str = "none";

/// Reads a promise of memory: as [`parse_amount`], and `none` or `0` for none at all, which is no bytes.
///
/// # Errors
/// As [`parse_amount`].
pub fn parse_request(text: &str) -> Result<Amount, SizeError> {
    match text {
        NONE | "0" => Ok(Amount::Bytes(0)),
        text => parse_amount(text),
    }
}

/// A promise as it is written: `4GiB`, `none`.
#[must_use]
pub fn format_request(amount: Amount) -> String {
    match amount {
        Amount::Bytes(0) => NONE.to_owned(),
        amount => amount.to_string(),
    }
}

/// Reads a part of a whole: `30%`, `12.5%`.
///
/// # Errors
/// [`SizeError`] naming the value and the fix.
pub fn parse_share(text: &str) -> Result<Share, SizeError> {
    let number = Number::split(text, PERCENTS)?;
    match number.unit {
        "" if number.scaled(9) == Ok(0) => Err(number.zero(PERCENTS)),
        "" => Err(SizeError::NoUnit {
            value: quote(text),
            meant: number.meant_percent(),
        }),
        "%" => number.share(PERCENTS),
        _ => Err(number.unknown_unit(PERCENTS)),
    }
}

/// Reads a duration in nanoseconds: `90s`, `10m`, `1h30m`, `2d`, `500ms`; units fall from left to right. `0s` is a
/// duration (no grace, no wait).
///
/// # Errors
/// [`SizeError`] naming the value and the fix.
pub fn parse_duration(text: &str) -> Result<u64, SizeError> {
    let mut rest = text;
    let (mut total_ns, mut last_unit_ns) = (0u64, u64::MAX);
    loop {
        let number = Number::split(rest, DURATIONS).map_err(|why| why.about(text))?;
        if !number.decimals.is_empty() {
            return Err(SizeError::PartOfUnit { value: quote(text) });
        }
        let end = number
            .unit
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(number.unit.len());
        let (unit, tail) = number.unit.split_at(end);
        let unit_ns = match unit {
            "d" => 86_400 * SECOND_NS,
            "h" => 3_600 * SECOND_NS,
            "m" | "min" => 60 * SECOND_NS,
            "s" => SECOND_NS,
            "ms" => SECOND_NS / 1000,
            "" => {
                return Err(SizeError::NoUnit {
                    value: quote(text),
                    meant: format!("{}s", clip(text)),
                });
            }
            other => {
                let unit = quote(other);
                return Err(SizeError::UnknownUnit {
                    value: quote(text),
                    unit,
                    accepts: DURATIONS,
                });
            }
        };
        if unit_ns >= last_unit_ns {
            return Err(SizeError::UnknownUnit {
                value: quote(text),
                unit: quote(unit),
                accepts: DURATIONS,
            });
        }
        last_unit_ns = unit_ns;
        let too_large = || SizeError::TooLarge { value: quote(text) };
        let whole = number.whole.parse::<u64>().map_err(|_| too_large())?;
        total_ns = whole
            .checked_mul(unit_ns)
            .and_then(|part| total_ns.checked_add(part))
            .ok_or_else(too_large)?;
        if tail.is_empty() {
            return Ok(total_ns);
        }
        rest = tail;
    }
}

/// Bytes for people: `35.2 GiB`, `512 MiB`, `0 B`; one decimal where it is not exact, rounded to the nearest.
#[must_use]
pub fn format_bytes(bytes: u64) -> String {
    const NAMES: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut power = 0;
    // 1023.95 and more would be rounded to "1024.0" of the smaller unit.
    while power + 1 < NAMES.len() && tenths(bytes, power) >= 10_240 {
        power += 1;
    }
    let (tenths, name) = (tenths(bytes, power), NAMES[power]);
    if bytes.is_multiple_of(1 << (10 * power)) {
        format!("{} {name}", tenths / 10)
    } else {
        format!("{}.{} {name}", tenths / 10, tenths % 10)
    }
}

/// The limit that would let `asked` bytes more than `used` through, in steps of 256 MiB: what a denial advises.
#[must_use]
pub fn raised_limit(used: u64, asked: u64) -> u64 {
    let needed = used.saturating_add(asked);
    needed.checked_next_multiple_of(256 * MIB).unwrap_or(u64::MAX)
}

fn tenths(bytes: u64, power: usize) -> u64 {
    let unit = 1u128 << (10 * power);
    ((u128::from(bytes) * 10 + unit / 2) / unit) as u64
}

/// Nanoseconds for people: `1h30m`, `90s`, `1.5s`, `20ms`; at most two units, the rest dropped.
#[must_use]
pub fn format_duration(ns: u64) -> String {
    let seconds = ns / SECOND_NS;
    let pair = |big: u64, big_name: &str, small: u64, small_name: &str| {
        if small == 0 {
            format!("{big}{big_name}")
        } else {
            format!("{big}{big_name}{small}{small_name}")
        }
    };
    match seconds {
        0 => format!("{}ms", ns / 1_000_000),
        1..10 if ns % SECOND_NS >= SECOND_NS / 10 => format!("{seconds}.{}s", ns % SECOND_NS / (SECOND_NS / 10)),
        1..120 => format!("{seconds}s"),
        120..3_600 => pair(seconds / 60, "m", seconds % 60, "s"),
        3_600..86_400 => pair(seconds / 3_600, "h", seconds % 3_600 / 60, "m"),
        _ => pair(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

/// A text cut into its number and its unit.
struct Number<'a> {
    text: &'a str,
    whole: &'a str,
    decimals: &'a str,
    unit: &'a str,
}

impl<'a> Number<'a> {
    fn split(text: &'a str, accepts: &'static str) -> Result<Self, SizeError> {
        if text.is_empty() {
            return Err(SizeError::Empty(accepts));
        }
        if text.contains(char::is_whitespace) {
            let meant = text.split_whitespace().collect::<String>();
            return Err(SizeError::Space {
                value: quote(text),
                meant: clip(&meant),
            });
        }
        if let Some(positive) = text.strip_prefix(['-', '\u{2212}'])
            && positive.starts_with(|c: char| c.is_ascii_digit())
        {
            return Err(SizeError::Negative { value: quote(text) });
        }
        let not_digit = |c: char| !c.is_ascii_digit();
        let (whole, rest) = text.split_at(text.find(not_digit).unwrap_or(text.len()));
        let (decimals, unit) = match rest.strip_prefix('.') {
            Some(tail) => tail.split_at(tail.find(not_digit).unwrap_or(tail.len())),
            None => ("", rest),
        };
        if whole.is_empty() || (decimals.is_empty() && rest.starts_with('.')) {
            return Err(SizeError::NotANumber {
                value: quote(text),
                accepts,
            });
        }
        Ok(Self {
            text,
            whole,
            decimals,
            unit,
        })
    }

    /// The number times 10^`places`, exactly.
    fn scaled(&self, places: usize) -> Result<u128, SizeError> {
        let decimals = self.decimals.trim_end_matches('0');
        if decimals.len() > places {
            return Err(SizeError::TooFine {
                value: quote(self.text),
            });
        }
        let whole = self.whole.trim_start_matches('0');
        // 20 digits hold every 64-bit number, and 20 + 9 digits fit 128 bits.
        if whole.len() > 20 {
            return Err(SizeError::TooLarge {
                value: quote(self.text),
            });
        }
        let digits = whole
            .bytes()
            .chain(decimals.bytes())
            .chain(std::iter::repeat_n(b'0', places - decimals.len()));
        Ok(digits.fold(0, |sum: u128, digit| sum * 10 + u128::from(digit - b'0')))
    }

    fn bytes(&self, factor: u64) -> Result<u64, SizeError> {
        const PLACES: usize = 9;
        let too_large = || SizeError::TooLarge {
            value: quote(self.text),
        };
        let scaled = self
            .scaled(PLACES)?
            .checked_mul(u128::from(factor))
            .ok_or_else(too_large)?;
        match u64::try_from(scaled / 10u128.pow(PLACES as u32)) {
            Ok(0) => Err(self.zero(SIZES)),
            Ok(bytes) => Ok(bytes),
            Err(_) => Err(too_large()),
        }
    }

    fn share(&self, accepts: &'static str) -> Result<Share, SizeError> {
        let millionths = self.scaled(4)?;
        if millionths == 0 {
            return Err(self.zero(accepts));
        }
        u32::try_from(millionths)
            .ok()
            .and_then(Share::new)
            .ok_or_else(|| SizeError::OverWhole {
                value: quote(self.text),
            })
    }

    fn zero(&self, accepts: &'static str) -> SizeError {
        SizeError::Zero {
            value: quote(self.text),
            accepts,
        }
    }

    fn unknown_unit(&self, accepts: &'static str) -> SizeError {
        SizeError::UnknownUnit {
            value: quote(self.text),
            unit: quote(self.unit),
            accepts,
        }
    }

    /// The size that a bare number was probably meant as.
    fn meant_size(&self) -> String {
        let written = clip(self.text);
        match self.whole.parse::<u64>() {
            // A fraction was meant as a part.
            Ok(0) => self.meant_percent(),
            // What could be a percentage is more often meant as one than as gibibytes.
            Ok(1..=100) if self.share(PERCENTS).is_ok() => format!("{written}% or {written}GiB"),
            // No card has ten thousand GiB, and nobody asks for less than a MiB.
            Ok(1..=1_024) => format!("{written}GiB"),
            Ok(1_025..1_048_576) => format!("{written}MiB"),
            _ => format!("{}B", clip(self.whole)),
        }
    }

    /// The percentage that a bare number was probably meant as: 0.3 and 30 are both 30%.
    fn meant_percent(&self) -> String {
        match self.scaled(6) {
            Ok(millionths @ 1..1_000_000) => {
                Share::new(millionths as u32).map_or_else(|| "30%".into(), |share| Amount::Share(share).to_string())
            }
            Ok(1_000_000..=100_000_000) => format!("{}%", clip(self.text)),
            _ => "30%".into(),
        }
    }
}

impl SizeError {
    /// The same error about the whole text of which a part was read.
    fn about(self, text: &str) -> Self {
        match self {
            Self::NotANumber { accepts, .. } => Self::NotANumber {
                value: quote(text),
                accepts,
            },
            Self::Negative { .. } => Self::Negative { value: quote(text) },
            other => other,
        }
    }
}

fn size_unit(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    let (prefix, rest) = unit.split_at_checked(1)?;
    let factor = match prefix {
        "b" if rest.is_empty() => return Some(1),
        "k" => KIB,
        "m" => MIB,
        "g" => GIB,
        "t" => TIB,
        _ => return None,
    };
    matches!(rest, "" | "b" | "i" | "ib").then_some(factor)
}

/// What was written, safe for a terminal: control characters escaped, at most 40 characters.
pub(crate) fn quote(text: &str) -> String {
    format!("{:?}", clip(text))
}

fn clip(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
