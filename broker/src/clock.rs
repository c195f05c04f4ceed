// SPDX-License-Identifier: Apache-2.0
//! The time of one turn of the loop.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use partage_protocol::units::SECOND_NS;

/// The time of one turn of the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Monotonic, in nanoseconds.
    pub ns: u64,
    /// Since 1970, in nanoseconds.
    pub unix_ns: u64,
}

/// The time now, by the machine's clocks: clients may be in another time namespace.
#[must_use]
pub fn now() -> Now {
    static AHEAD_NS: OnceLock<i64> = OnceLock::new();
    let ahead_ns = *AHEAD_NS.get_or_init(|| clock_offset_ns().unwrap_or(0));
    let monotonic = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| {
        let own = (time.tv_sec() as u64).saturating_mul(SECOND_NS) + time.tv_nsec() as u64;
        own.wrapping_sub(ahead_ns as u64)
    });
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now {
        ns: monotonic,
        unix_ns: u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX),
    }
}

/// By how much the monotonic clock of this process's time namespace is ahead of the machine's.
fn clock_offset_ns() -> Option<i64> {
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").ok()?;
    let words = offsets.lines().find_map(|line| line.strip_prefix("monotonic"))?;
    let (seconds, nanoseconds) = words.trim().split_once(char::is_whitespace)?;
    let seconds: i64 = seconds.parse().ok()?;
    let nanoseconds: i64 = nanoseconds.trim().parse().ok()?;
    // The offsets are those of the children, which may be born into another namespace.
    let is_same =
        std::fs::read_link("/proc/self/ns/time").ok()? == std::fs::read_link("/proc/self/ns/time_for_children").ok()?;
    is_same.then(|| seconds.saturating_mul(SECOND_NS as i64).saturating_add(nanoseconds))
}
