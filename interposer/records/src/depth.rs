// SPDX-License-Identifier: Apache-2.0
//! How much work a program may have in flight under a bound in expected time.
//!
//! What is in flight cannot be taken back: who is to come next waits for it. So no launch is added to more than the bound,
//! with two exceptions that keep the device at work while the program comes back for the next launch:
//!
//! - each stream may have one launch in flight whatever it takes, and one more behind it if the bound is [`WIDE_NS`] or
//!   wider (a tighter one is there for somebody more urgent, who would wait for both);
//! - up to twice the bound launches are let in as long as there are few: what short units are expected to take is often too
//!   much.
//!
//! In either case there are no more than [`MOST`] ahead of one. A bound of 0 is one launch at a time, in whichever stream:
//! somebody is about to come.

/// Launches that may be in flight beyond the bound.
const MOST: u64 = 8;
/// A bound of so many nanoseconds or more has a launch wait on the device behind the one that runs.
const WIDE_NS: u64 = 500_000;

/// Is there too much in flight to add a launch: `all_ns` nanoseconds of the device and `all_units` launches in all streams,
/// of which `own_units` in the stream of the launch?
pub fn is_beyond(depth_ns: u64, all_ns: u64, all_units: u64, own_units: u64) -> bool {
    if depth_ns == 0 {
        return all_units > 0;
    }
    let behind = u64::from(depth_ns >= WIDE_NS);
    let is_short = all_ns <= depth_ns.saturating_mul(2);
    all_ns > depth_ns && (all_units > MOST || !is_short && own_units > behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many launches of one stream are let in.
    fn fits(depth_us: u64, unit_us: u64) -> u64 {
        let beyond = |units: &u64| is_beyond(depth_us * 1000, units * unit_us * 1000, *units, *units);
        (0..1000).take_while(|units| !beyond(units)).count() as u64
    }

    #[test]
    fn one_stream_has_the_bound_and_what_keeps_the_device_at_work() {
        let wide = [20, 100, 200, 400, 500, 5000].map(|unit| fits(500, unit));
        assert_eq!(wide, [26, 9, 6, 3, 3, 2]);
        assert_eq!([1000, 2000, 5000].map(|unit| fits(2000, unit)), [5, 3, 2]);
        let tight = [20, 100, 200, 300, 5000].map(|unit| fits(200, unit));
        assert_eq!(tight, [11, 5, 3, 2, 1]);
        assert_eq!([20, 5000].map(|unit| fits(0, unit)), [1, 1], "one at a time");
    }

    #[test]
    fn streams_beside_each_other_have_one_or_two_each_and_eight_in_all() {
        let long = |depth_us: u64, all: u64, own: u64| is_beyond(depth_us * 1000, all * 5_000_000, all, own);
        assert!(!long(500, 7, 1) && long(500, 7, 2) && long(500, 9, 0));
        assert!(!long(200, 3, 0) && long(200, 3, 1) && long(0, 1, 0));
        assert!(is_beyond(u64::MAX / 2, u64::MAX, 9, 0));
    }
}
