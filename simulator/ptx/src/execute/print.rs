// SPDX-License-Identifier: Apache-2.0
//! Device-side `printf` and `assert`.

use std::fmt::Write;

use super::lanes::{Inst, LANES, Lanes};
use super::spaces::Generic;
use crate::error::FaultKind;

/// Longest text that is read from a device program.
const LONGEST: usize = 4096;

/// `vprintf(format, arguments)`: pointers in rows `a` and `b`; `d` becomes 0, or -1 when a pointer is bad.
///
/// # Safety
/// The rule on handlers in `lanes`.
pub unsafe fn print(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: by contract.
    let (formats, arguments) = unsafe { (*lanes.row::<u64>(inst.a), *lanes.row::<u64>(inst.b)) };
    for lane in (0..LANES).filter(|lane| mask >> lane & 1 == 1) {
        let text = read_text(lanes, formats[lane], lane);
        let mut source = Arguments {
            lanes,
            at: arguments[lane],
            lane,
        };
        let printed = text.as_deref().and_then(|format| format_text(format, &mut source));
        // SAFETY: by contract.
        unsafe { (*lanes.row::<u32>(inst.d))[lane] = if printed.is_some() { 0 } else { u32::MAX } };
        lanes.printed.extend_from_slice(printed.unwrap_or_default().as_bytes());
    }
    true
}

/// `__assertfail(message, file, line, function, size)`: rows in the list at `c`.
///
/// # Safety
/// The rule on handlers in `lanes`.
pub unsafe fn fail_assertion(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    let lane = mask.trailing_zeros() as usize;
    // SAFETY: by contract; the list has five rows, the third of 32-bit words.
    let (message, file, line, function) = unsafe {
        let wide = |lanes: &Lanes, index| (*lanes.row::<u64>(lanes.listed(inst.c, index)))[lane];
        let line = (*lanes.row::<u32>(lanes.listed(inst.c, 2)))[lane];
        (wide(lanes, 0), wide(lanes, 1), line, wide(lanes, 3))
    };
    let mut text = |address| read_text(lanes, address, lane).unwrap_or_default();
    let message = format!("{}:{line}: {}: {}", text(file), text(function), text(message));
    lanes.fail(FaultKind::Assert(message))
}

/// Text up to its zero; `None` when memory ends before.
fn read_text(lanes: &mut Lanes, address: u64, lane: usize) -> Option<String> {
    let mut bytes = Vec::new();
    while bytes.len() < LONGEST {
        let at = lanes.spaces.locate::<Generic>(address + bytes.len() as u64, lane, 1)?;
        // SAFETY: `locate` found one readable byte.
        match unsafe { *at } {
            0 => break,
            byte => bytes.push(byte),
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads the arguments of one lane, each at its natural alignment.
struct Arguments<'l> {
    lanes: &'l mut Lanes,
    at: u64,
    lane: usize,
}

impl Arguments<'_> {
    fn take(&mut self, bytes: u64) -> Option<u64> {
        self.at = self.at.next_multiple_of(bytes);
        let from = self.lanes.spaces.locate::<Generic>(self.at, self.lane, bytes)?;
        self.at += bytes;
        // SAFETY: `locate` found that many readable bytes.
        Some(unsafe {
            if bytes == 8 {
                from.cast::<u64>().read_unaligned()
            } else {
                from.cast::<u32>().read_unaligned().into()
            }
        })
    }
}

/// One conversion of a format.
#[derive(Default)]
struct Conversion {
    left: bool,
    zeros: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
    is_long: bool,
}

fn format_text(format: &str, arguments: &mut Arguments<'_>) -> Option<String> {
    let mut result = String::new();
    let mut rest = format.chars().peekable();
    while let Some(next) = rest.next() {
        if next != '%' {
            result.push(next);
            continue;
        }
        let mut conversion = Conversion::default();
        while let Some(flag) = rest.next_if(|next| "-0+ #".contains(*next)) {
            match flag {
                '-' => conversion.left = true,
                '0' => conversion.zeros = true,
                '+' => conversion.plus = true,
                ' ' => conversion.space = true,
                _ => conversion.alternate = true,
            }
        }
        conversion.width = number(&mut rest, arguments)?.unwrap_or(0);
        if rest.next_if_eq(&'.').is_some() {
            conversion.precision = Some(number(&mut rest, arguments)?.unwrap_or(0));
        }
        while let Some(length) = rest.next_if(|next| "hlLqjzt".contains(*next)) {
            conversion.is_long |= !matches!(length, 'h');
        }
        match rest.next()? {
            '%' => result.push('%'),
            letter => write_conversion(&mut result, &conversion, letter, arguments)?,
        }
    }
    Some(result)
}

fn number(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, arguments: &mut Arguments<'_>) -> Option<Option<usize>> {
    if rest.next_if_eq(&'*').is_some() {
        return Some(Some((arguments.take(4)? as usize).min(LONGEST)));
    }
    let mut value = None;
    while let Some(digit) = rest.next_if(char::is_ascii_digit) {
        let digit = digit as usize - '0' as usize;
        value = Some((value.unwrap_or(0) * 10 + digit).min(LONGEST));
    }
    Some(value)
}

fn write_conversion(
    result: &mut String,
    conversion: &Conversion,
    letter: char,
    arguments: &mut Arguments<'_>,
) -> Option<()> {
    let size = if conversion.is_long { 8 } else { 4 };
    let (sign, digits) = match letter {
        'd' | 'i' => {
            let raw = arguments.take(size)?;
            let value = if conversion.is_long {
                raw as i64
            } else {
                i64::from(raw as u32 as i32)
            };
            (sign_of(conversion, value < 0), value.unsigned_abs().to_string())
        }
        'u' => ("", arguments.take(size)?.to_string()),
        'x' | 'X' | 'o' => {
            let value = arguments.take(size)?;
            let prefix = if conversion.alternate && value != 0 {
                letter
            } else {
                ' '
            };
            match letter {
                'x' => (if prefix == 'x' { "0x" } else { "" }, format!("{value:x}")),
                'X' => (if prefix == 'X' { "0X" } else { "" }, format!("{value:X}")),
                _ => (if prefix == 'o' { "0" } else { "" }, format!("{value:o}")),
            }
        }
        'p' => ("0x", format!("{:x}", arguments.take(8)?)),
        'c' => {
            let value = arguments.take(4)? as u8;
            pad(result, conversion, "", &(value as char).to_string(), false);
            return Some(());
        }
        's' => {
            let at = arguments.take(8)?;
            let mut text = read_text(arguments.lanes, at, arguments.lane)?;
            if let Some(precision) = conversion.precision {
                text = text.chars().take(precision).collect();
            }
            pad(result, conversion, "", &text, false);
            return Some(());
        }
        'f' | 'F' | 'e' | 'E' | 'g' | 'G' | 'a' | 'A' => {
            let value = f64::from_bits(arguments.take(8)?);
            let text = float_text(value.abs(), conversion, letter);
            let zeros = value.is_finite();
            pad(
                result,
                conversion,
                sign_of(conversion, value.is_sign_negative()),
                &text,
                zeros,
            );
            return Some(());
        }
        _ => return None,
    };
    let digits = match conversion.precision {
        Some(precision) => format!("{digits:0>precision$}"),
        None => digits,
    };
    pad(result, conversion, sign, &digits, conversion.precision.is_none());
    Some(())
}

fn sign_of(conversion: &Conversion, negative: bool) -> &'static str {
    match (negative, conversion.plus, conversion.space) {
        (true, ..) => "-",
        (_, true, _) => "+",
        (.., true) => " ",
        _ => "",
    }
}

fn pad(result: &mut String, conversion: &Conversion, sign: &str, text: &str, zeros: bool) {
    let missing = conversion.width.saturating_sub(sign.len() + text.chars().count());
    if conversion.left {
        result.extend([sign, text]);
        result.extend(std::iter::repeat_n(' ', missing));
    } else if conversion.zeros && zeros {
        result.push_str(sign);
        result.extend(std::iter::repeat_n('0', missing));
        result.push_str(text);
    } else {
        result.extend(std::iter::repeat_n(' ', missing));
        result.extend([sign, text]);
    }
}

/// A number that is not negative, in the notation of C.
fn float_text(value: f64, conversion: &Conversion, letter: char) -> String {
    if !value.is_finite() {
        let text = if value.is_nan() { "nan" } else { "inf" };
        return if letter.is_ascii_uppercase() {
            text.to_uppercase()
        } else {
            text.to_owned()
        };
    }
    let precision = conversion.precision.unwrap_or(6);
    let text = match letter.to_ascii_lowercase() {
        'f' => format!("{value:.precision$}"),
        'e' => exponential(value, precision),
        'g' => shortest(value, precision.max(1), conversion.alternate),
        _ => hexadecimal(value, conversion.precision),
    };
    if letter.is_ascii_uppercase() {
        text.to_uppercase()
    } else {
        text
    }
}

fn exponential(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

fn shortest(value: f64, precision: usize, alternate: bool) -> String {
    let rounded = exponential(value, precision - 1);
    let exponent: i32 = rounded
        .split_once('e')
        .and_then(|(_, exponent)| exponent.parse().ok())
        .unwrap_or(0);
    let trim = |text: String| {
        if alternate || !text.contains('.') {
            return text;
        }
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    if exponent < -4 || exponent >= precision as i32 {
        let (digits, tail) = rounded.split_once('e').unwrap_or((&rounded, "+00"));
        return format!("{}e{tail}", trim(digits.to_owned()));
    }
    let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
    trim(format!("{value:.decimals$}"))
}

fn hexadecimal(value: f64, precision: Option<usize>) -> String {
    let bits = value.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i32;
    let mut digits = format!("{:013x}", bits & ((1 << 52) - 1));
    match precision {
        Some(precision) => digits.truncate(precision.min(13)),
        None => digits.truncate(digits.trim_end_matches('0').len()),
    }
    let mut text = String::new();
    let (lead, power) = match (exponent, bits << 12) {
        (0, 0) => (0, 0),
        (0, _) => (0, -1022),
        _ => (1, exponent - 1023),
    };
    let point = if digits.is_empty() { "" } else { "." };
    let _ = write!(text, "0x{lead}{point}{digits}p{power:+}");
    text
}
