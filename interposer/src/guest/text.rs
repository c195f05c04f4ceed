// SPDX-License-Identifier: Apache-2.0
//! Text without allocation and without `core::fmt`, whose padding code can panic.

use core::ffi::{CStr, c_char};

/// A line or path under construction: what does not fit is dropped and [`Text::is_complete`] says so.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
    complete: bool,
}

impl<const N: usize> Text<N> {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self {
            bytes: [0; N],
            length: 0,
            complete: true,
        }
    }

    /// Appends bytes as they are.
    pub fn push(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        for byte in bytes.as_ref() {
            // The last place stays zero, so that the text is always a C string.
            match self.bytes.get_mut(self.length) {
                Some(place) if self.length + 1 < N => {
                    *place = *byte;
                    self.length += 1;
                }
                _ => self.complete = false,
            }
        }
        self
    }

    /// Appends a number in digits.
    pub fn push_number(&mut self, value: u64) -> &mut Self {
        let mut digits = [0_u8; 20];
        let mut left = value;
        let mut used = 0;
        for place in digits.iter_mut().rev() {
            *place = b'0' + (left % 10) as u8;
            left /= 10;
            used += 1;
            if left == 0 {
                break;
            }
        }
        self.push(digits.get(20 - used..).unwrap_or(&[]))
    }

    /// Appends bytes as hexadecimal digits.
    pub fn push_hex(&mut self, bytes: &[u8]) -> &mut Self {
        let digit = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
        for byte in bytes {
            self.push([digit(byte >> 4), digit(byte & 15)]);
        }
        self
    }

    /// Appends an amount as people read it: `512 MiB`, `35.2 GiB`; rounded as the broker rounds (`format_bytes`).
    pub fn push_amount(&mut self, bytes: u64) -> &mut Self {
        let mut shift = 0;
        for name in [" B", " KiB", " MiB", " GiB", " TiB", " PiB"] {
            let rest = bytes & ((1 << shift) - 1);
            let half = (1u64 << shift) >> 1;
            let tenths = (bytes >> shift)
                .saturating_mul(10)
                .saturating_add((rest * 10 + half) >> shift);
            // 1023.95 and more would be rounded to "1024.0" of the smaller unit.
            if tenths < 10_240 || shift == 50 {
                self.push_number(tenths / 10);
                if rest != 0 {
                    self.push(".").push_number(tenths % 10);
                }
                return self.push(name);
            }
            shift += 10;
        }
        self
    }

    /// What was written.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }

    /// What was written, as a C string.
    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }

    /// Nothing was dropped.
    pub const fn is_complete(&self) -> bool {
        self.complete
    }

    /// Nothing was written.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Forgets what was written.
    pub fn clear(&mut self) {
        self.bytes = [0; N];
        self.length = 0;
        self.complete = true;
    }
}

/// The bytes of a C string; empty for null.
///
/// # Safety
/// `text` is null or ends with a zero, and stays as it is for `'a`.
pub unsafe fn bytes_of<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: the caller's contract.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}

/// A number written in digits only.
pub fn parse_number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |value, digit| {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            None
        } else {
            value.checked_mul(10)?.checked_add(u64::from(digit))
        }
    })
}

/// The value of a hexadecimal digit.
pub fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Sixteen bytes as a device name is written: `GPU-` or `MIG-` and 8-4-4-4-12 digits.
pub fn push_uuid<const N: usize>(text: &mut Text<N>, uuid: &[u8; 16], is_mig: bool) {
    text.push(if is_mig { "MIG-" } else { "GPU-" });
    let (a, rest) = uuid.split_at(4);
    text.push_hex(a);
    for part in [rest.get(..2), rest.get(2..4), rest.get(4..6), rest.get(6..)] {
        text.push("-").push_hex(part.unwrap_or(&[]));
    }
}

/// Reads what [`push_uuid`] writes, without regard to case; `None` for anything else, abbreviations included.
pub fn parse_uuid(name: &[u8]) -> Option<[u8; 16]> {
    let digits = name.strip_prefix(b"GPU-").or_else(|| name.strip_prefix(b"MIG-"))?;
    if digits.len() != 36 {
        return None;
    }
    let mut uuid = [0_u8; 16];
    let mut nibbles = digits.iter().filter(|digit| **digit != b'-');
    for byte in &mut uuid {
        *byte = hex_digit(*nibbles.next()?)? << 4 | hex_digit(*nibbles.next()?)?;
    }
    nibbles.next().is_none().then_some(uuid)
}

/// The offset of the monotonic clock in `/proc/self/timens_offsets`: its line is the name, seconds and nanoseconds.
pub fn monotonic_offset(text: &[u8]) -> Option<i64> {
    let line = text
        .split(|byte| *byte == b'\n')
        .find(|line| line.starts_with(b"monotonic"))?;
    let mut words = line
        .split(|byte| *byte == b' ' || *byte == b'\t')
        .filter(|word| !word.is_empty())
        .skip(1);
    let (seconds, nanoseconds) = (words.next()?, parse_number(words.next()?)?);
    let (is_negative, digits) = match seconds.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, seconds),
    };
    let seconds = i64::try_from(parse_number(digits)?).ok()?.checked_mul(1_000_000_000)?;
    let whole = if is_negative { seconds.wrapping_neg() } else { seconds };
    whole.checked_add_unsigned(nanoseconds)
}
