// SPDX-License-Identifier: Apache-2.0
//! How long a device is drained before others are let in: as long as docs/scheduling.md says, not less and not more.

mod model;

use model::programs::{hanging, saturating};
use model::{MS, S, US, World};
use partage_scheduling::Action;

/// A drain ends after so long; where the longest unit takes longer, after one and a half times as long.
const DRAIN: u64 = 50 * MS;
/// Looks, commands and the threads that run again.
const ROOM: u64 = 2 * MS;

/// Two jobs that must take turns, one with units of this length of which one, after some, never ends.
fn beside_a_hung_unit(length_ns: u64) -> World {
    let mut world = World::new(6, 1, true);
    world.isolate(0, true);
    world.weighted(100, hanging(length_ns, 30));
    world.weighted(100, saturating(200 * US));
    world.run_until(10 * S);
    world
}

#[test]
fn a_unit_that_never_ends_is_waited_for_as_long_as_a_drain_may_take() {
    for length_ns in [100 * US, 500 * US, 2 * MS] {
        let world = beside_a_hung_unit(length_ns);
        let stall = world.worst_stall_ns;
        println!("units of {length_ns} ns, one of which hangs: waited for {stall} ns");
        assert!(world.not_draining >= 1);
        assert!(
            (DRAIN - ROOM..=DRAIN + ROOM).contains(&stall),
            "{length_ns}: {stall} ns"
        );
    }
}

#[test]
fn where_units_are_long_a_drain_may_take_one_and_a_half_of_them() {
    let stall = beside_a_hung_unit(60 * MS).worst_stall_ns;
    println!("units of 60 ms, one of which hangs: waited for {stall} ns");
    assert!((90 * MS - ROOM..=90 * MS + ROOM).contains(&stall), "{stall} ns");
}

#[test]
fn a_unit_that_ends_before_that_is_waited_for() {
    // The first long one comes when only short ones are known.
    let mut world = World::new(7, 1, true);
    world.isolate(0, true);
    let mut launched = 0;
    world.log = Some(Vec::new());
    world.weighted(
        100,
        Box::new(move |_, _| {
            launched += 1;
            model::kernel(if launched % 40 == 0 { 45 * MS } else { 100 * US })
        }),
    );
    world.weighted(100, saturating(200 * US));
    world.run_until(S);
    let log = world.log.take().unwrap_or_default();
    let given_up = log
        .iter()
        .find(|(_, command)| matches!(command.action, Action::NotDraining { .. }));
    assert!(given_up.is_none(), "{given_up:?}");
    assert!(world.busy_ns(0) > 0 && world.busy_ns(1) > 0);
}
