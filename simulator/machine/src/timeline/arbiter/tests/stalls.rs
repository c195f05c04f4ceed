// SPDX-License-Identifier: Apache-2.0
//! For how long the clock stands still at most.

use super::*;

/// Nothing new comes: from now on the clock stalls no longer, all together, than once for the effects of each request,
/// for what was announced to follow it and for whoever is to learn of it, and for the threads that each seat's owner
/// wakes. When it stalls depends on how fast requests are served: of a priority below others' one may have three parts
/// of the device.
#[track_caller]
pub fn assert_nobody_is_waited_for_beyond_his_limit(arbiter: &mut Small, wall: u64) {
    let limits = arbiter.settings;
    let of_request = limits.effects_limit_ns + limits.transit_limit_ns + 2 * limits.wake_limit_ns;
    let of_seat = limits.transit_limit_ns + 2 * limits.wake_limit_ns;
    let most = SEATS as u64 * (REQUESTS as u64 * of_request + of_seat);
    let begun = arbiter.clock();
    let rounds = 3 * most / limits.effects_limit_ns;
    for round in 1..=rounds {
        arbiter.advance(wall + round * limits.effects_limit_ns);
    }
    let passed = arbiter.clock() - begun;
    let stalled = rounds * limits.effects_limit_ns - passed;
    assert!(stalled <= most, "stalled for {stalled} of {most}");
}

/// A request of seat 0 has three parts of 1024 of the upload engine beside one of a higher priority that never ends,
/// and takes turns with another seat's: it has had its ten nanoseconds after more than 6,000, and its owner is late
/// only then.
#[test]
fn a_request_that_is_served_slowly_stalls_the_clock_late_and_no_longer_than_any() {
    let settings = Settings {
        switch_tax_ns: 3,
        ..SETTINGS
    };
    let mut arbiter = with_seats(settings, 2);
    let begin = |arbiter: &mut Small, seat: usize, engine: Engine, need_ns: Option<u64>, demand: u32, priority: i32| {
        let ask = Ask {
            engine,
            need_ns,
            demand,
            priority,
        };
        let _ = arbiter.begin(seat, ask);
    };
    let _ = arbiter.join(owner(9), 1);
    begin(&mut arbiter, 0, Engine::Download, None, 0, 0);
    begin(&mut arbiter, 1, Engine::Compute, Some(0), 0, 0);
    begin(&mut arbiter, 2, Engine::Compute, None, 0, 0);
    begin(&mut arbiter, 1, Engine::Upload, None, 0, 0);
    begin(&mut arbiter, 0, Engine::Upload, Some(10), 615, 0);
    begin(&mut arbiter, 1, Engine::Compute, Some(1), 0, 0);
    begin(&mut arbiter, 0, Engine::Upload, None, 1021, -1);
    let mut late = arbiter.clone();
    assert_nobody_is_waited_for_beyond_his_limit(&mut arbiter, 0);
    // The stall that comes late lasts as long as any.
    let stalls: Vec<u64> = (1..=200)
        .map(|part| part * 100)
        .filter(|wall| {
            late.advance(*wall);
            late.is_stalled()
        })
        .collect();
    let last = stalls
        .iter()
        .rev()
        .take_while(|wall| stalls[stalls.len() - 1] - **wall <= 2 * settings.effects_limit_ns);
    assert!(stalls.last().is_some_and(|wall| *wall > 6_000), "{stalls:?}");
    assert!(
        last.count() as u64 * 100 <= settings.effects_limit_ns + 100,
        "{stalls:?}"
    );
    assert!(!late.is_stalled());
}
