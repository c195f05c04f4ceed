// SPDX-License-Identifier: Apache-2.0
//! Typed numbers: identifiers, and amounts that a person may write.
//!
//! Bytes are `u64`, times are `u64` nanoseconds with names ending in `_ns`, parts of a whole are [`Share`].

use core::fmt;

/// A client (one process of a job that attached), unique for the life of the ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// A job; written `j42`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "j{}", self.0)
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "c{}", self.0)
    }
}

/// One kibibyte in bytes; memory is base 1024 everywhere.
pub const KIB: u64 = 1 << 10;
/// One mebibyte in bytes.
pub const MIB: u64 = 1 << 20;
/// One gibibyte in bytes.
pub const GIB: u64 = 1 << 30;
/// One tebibyte in bytes.
pub const TIB: u64 = 1 << 40;
/// One second in nanoseconds.
pub const SECOND_NS: u64 = 1_000_000_000;

/// A part of a whole in millionths (`12.5%` is 125,000): exact for every percentage with four decimals, and integer
/// arithmetic gives the same limit on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u32);

impl Share {
    /// Millionths in a whole.
    pub const WHOLE: u32 = 1_000_000;
    /// Limits made from a share are multiples of this: the granularity in which the driver hands out physical memory
    /// (`cuMemGetAllocationGranularity`), so that a share promises nothing that an allocation could not use.
    pub const STEP_BYTES: u64 = 2 * MIB;

    /// A share of `millionths`; `None` for 0 and for more than the whole.
    #[must_use]
    pub const fn new(millionths: u32) -> Option<Self> {
        if millionths == 0 || millionths > Self::WHOLE {
            None
        } else {
            Some(Self(millionths))
        }
    }

    /// Millionths, 1 to [`Share::WHOLE`].
    #[must_use]
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// This part of `whole` bytes, rounded down to [`Share::STEP_BYTES`] (below one step: to a byte), so that shares
    /// which add up to a whole always fit together: four jobs of 25 % never find the last one a byte short.
    #[must_use]
    pub fn of(self, whole: u64) -> u64 {
        // whole * share < 2^64 * 2^20 fits 128 bits, and the quotient is at most `whole`.
        let exact = (u128::from(whole) * u128::from(self.0) / u128::from(Self::WHOLE)) as u64;
        if exact < Self::STEP_BYTES {
            exact
        } else {
            exact - exact % Self::STEP_BYTES
        }
    }
}

impl fmt::Display for Share {
    /// `25 %`, `12.5 %`: as many decimals as it has.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, mut rest) = (self.0 / 10_000, self.0 % 10_000);
        write!(out, "{whole}")?;
        if rest != 0 {
            let mut digits = 4;
            while rest % 10 == 0 {
                rest /= 10;
                digits -= 1;
            }
            write!(out, ".{rest:0digits$}")?;
        }
        write!(out, " %")
    }
}

/// A physical GPU's or MIG instance's UUID; written `GPU-…` or `MIG-…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceUuid {
    /// As `cuDeviceGetUuid` gives them.
    pub bytes: [u8; 16],
    /// A MIG instance.
    pub is_mig: bool,
}

/// Positions of the hyphens, counted in bytes of the UUID before them.
const HYPHENS: [usize; 4] = [4, 6, 8, 10];

impl fmt::Display for DeviceUuid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", if self.is_mig { "MIG-" } else { "GPU-" })?;
        for (at, byte) in self.bytes.iter().enumerate() {
            if HYPHENS.contains(&at) {
                write!(out, "-")?;
            }
            write!(out, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl DeviceUuid {
    /// Reads `GPU-8-4-4-4-12` or `MIG-8-4-4-4-12` hexadecimal digits, in upper or lower case; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (is_mig, digits) = match text.split_at_checked(4)? {
            ("GPU-", digits) => (false, digits),
            ("MIG-", digits) => (true, digits),
            _ => return None,
        };
        let mut bytes = [0u8; 16];
        let mut rest = digits.as_bytes();
        for (at, byte) in bytes.iter_mut().enumerate() {
            if HYPHENS.contains(&at) {
                rest = rest.strip_prefix(b"-")?;
            }
            let (pair, tail) = rest.split_at_checked(2)?;
            let digit = |c: u8| char::from(c).to_digit(16);
            *byte = (digit(*pair.first()?)? * 16 + digit(*pair.last()?)?) as u8;
            rest = tail;
        }
        rest.is_empty().then_some(Self { bytes, is_mig })
    }
}
