// SPDX-License-Identifier: Apache-2.0
//! How much work a program may have in flight under a bound in expected time.
//!
//! Work in flight cannot be taken back, and the next job waits for it. So no launch is added while more than the bound
//! is in flight, with two exceptions that keep the device at work while the program comes back for the next launch:
//!
//! - each stream may have one launch in flight whatever it takes, and one more behind it if the bound is [`WIDE_NS`] or
//!   wider (a tighter bound protects a more urgent job, which would wait for both);
//! - up to twice the bound launches are let in as long as there are few: the expected time of short units is often too
//!   high.
//!
//! In both cases at most [`MOST`] launches are ahead of a launch. A bound of 0 allows one launch at a time over all
//! streams: a more urgent job is about to come.
//!
//! A launch of unknown length may take any time, so each stream has no more of these in flight than of long ones: the
//! first one that retires shows its length. Where lengths are never told (fills, copies, kernels that overlap the one
//! before) it has up to [`MOST`]. In all streams together there are never more than [`MOST`].

/// Launches that may be in flight beyond the bound, and launches of unknown length.
pub const MOST: u64 = 8;
/// A bound of so many nanoseconds or more has a launch wait on the device behind the one that runs.
const WIDE_NS: u64 = 500_000;

/// What is in flight in one stream, or in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// What it is expected to take, in nanoseconds of the device.
    pub ns: u64,
    /// Launches.
    pub units: u64,
    /// Of them, those of unknown length.
    pub unknown: u64,
}

/// What is known of the length of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// It is expected to take what was measured.
    Known,
    /// Nothing yet: events will tell.
    Unknown,
    /// Nothing, and no event will.
    Untold,
}

/// Is there too much in flight to add a launch: in all streams, and of that in its own?
pub fn is_beyond(depth_ns: u64, all: InFlight, own: InFlight, launch: Knowledge) -> bool {
    if depth_ns == 0 {
        return all.units > 0;
    }
    let behind = u64::from(depth_ns >= WIDE_NS);
    let is_short = all.ns <= depth_ns.saturating_mul(2);
    let is_long = all.ns > depth_ns && (all.units > MOST || !is_short && own.units > behind);
    let is_unknown = match launch {
        Knowledge::Known => false,
        Knowledge::Unknown => own.unknown > behind || all.unknown >= MOST,
        Knowledge::Untold => all.unknown >= MOST,
    };
    is_long || is_unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_flight(units: u64, unit_ns: u64) -> InFlight {
        InFlight {
            ns: units.saturating_mul(unit_ns),
            units,
            unknown: 0,
        }
    }

    /// How many launches of one stream are let in.
    fn fits(depth_us: u64, unit_us: u64) -> u64 {
        let there = |units: u64| in_flight(units, unit_us * 1000);
        let beyond = |units: &u64| is_beyond(depth_us * 1000, there(*units), there(*units), Knowledge::Known);
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
        let long = |depth_us: u64, all: u64, own: u64| {
            let there = |units: u64| in_flight(units, 5_000_000);
            is_beyond(depth_us * 1000, there(all), there(own), Knowledge::Known)
        };
        assert!(!long(500, 7, 1) && long(500, 7, 2) && long(500, 9, 0));
        assert!(!long(200, 3, 0) && long(200, 3, 1) && long(0, 1, 0));
        let most = in_flight(9, u64::MAX);
        assert!(is_beyond(u64::MAX / 2, most, InFlight::default(), Knowledge::Known));
    }

    /// How many launches are let in whose length nobody knows, over so many streams in turn.
    fn unknown_fits(depth_us: u64, streams: usize, launch: Knowledge) -> u64 {
        let (mut own, mut all) = ([InFlight::default(); 16], InFlight::default());
        for stream in (0..streams).cycle().take(1000) {
            if !is_beyond(depth_us * 1000, all, own[stream], launch) {
                for sum in [&mut own[stream], &mut all] {
                    (sum.units, sum.unknown) = (sum.units + 1, sum.unknown + 1);
                }
            }
        }
        all.units
    }

    #[test]
    fn of_unknown_length_there_are_no_more_than_of_long_units() {
        for depth_us in [500, 2_000, 10_000] {
            assert_eq!(
                [1, 2, 3, 16].map(|streams| unknown_fits(depth_us, streams, Knowledge::Unknown)),
                [2, 4, 6, 8]
            );
        }
        assert_eq!(
            [1, 2, 16].map(|streams| unknown_fits(200, streams, Knowledge::Unknown)),
            [1, 2, 8]
        );
        assert_eq!(
            [1, 2, 16].map(|streams| unknown_fits(500, streams, Knowledge::Untold)),
            [8, 8, 8]
        );
        assert_eq!(unknown_fits(0, 2, Knowledge::Untold), 1, "one at a time");
    }
}
