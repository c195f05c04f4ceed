// SPDX-License-Identifier: Apache-2.0
//! Every family of allocations beside linear memory: allocate to the limit, one unit over gives exactly 2, free,
//! reallocate; the ledger is the driver's truth after each step.

mod books;
mod failures;

use books::*;
use failures::{injected, mixed_with_failures, own_codes};

use super::overhead::{CONTEXT, comes_to, truth};
use super::{Case, Random, tenth};
use crate::client::Client;
use crate::rig::{GIB, MIB, Rig};

const BOOKS: &str = "the simulator's books say what a family costs to the byte";

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("families::each_fits_to_the_limit_and_not_a_unit_more", to_the_limit).simulated(BOOKS),
        Case::new(
            "families::refused_arguments_are_refused_as_without_us",
            refused_arguments,
        ),
        Case::new(
            "families::physical_memory_lives_as_long_as_handle_or_mapping",
            physical_life,
        )
        .simulated(BOOKS),
        Case::new(
            "families::physical_memory_is_charged_where_its_properties_say",
            physical_place,
        )
        .simulated(BOOKS),
        Case::new("families::cycles_of_mapping_end_at_zero", mapping_cycles),
        Case::new("families::opened_memory_costs_its_exporter_alone", opened).simulated(BOOKS),
        Case::new("families::events_of_another_process_are_waited_for", events),
        Case::new("families::imported_memory_costs_its_exporter_alone", imported).simulated(BOOKS),
        Case::new("families::the_drivers_own_codes_reach_the_program", own_codes)
            .simulated("faults are the simulator's"),
        Case::new("families::arrays_end_with_their_context", arrays_end).simulated(BOOKS),
        Case::new("families::ledger_equals_truth_with_failures_injected", injected)
            .simulated("faults are the simulator's"),
        Case::new("families::sixteen_threads_mix_all_families", mixed).simulated(BOOKS),
        Case::new(
            "families::all_families_with_every_call_failing_now_and_then",
            mixed_with_failures,
        )
        .simulated("faults are the simulator's"),
    ]
}

/// Name, command without the name of what it makes, command that frees, bytes.
const FAMILIES: &[(&str, &str, &str, u64)] = &[
    ("one dimension", "array 65536 0 0 32 2 0", "arrayfree", 65536 * 8),
    ("two dimensions", "array 1000 1024 0 32 1 0", "arrayfree", 4_096_000),
    ("two, in bytes", "array 1000 1024 0 1 1 0", "arrayfree", 1_024_000),
    (
        "three dimensions",
        "array 128 64 32 16 4 0",
        "arrayfree",
        128 * 64 * 32 * 8,
    ),
    ("layers of one", "array 1024 0 16 3 1 1", "arrayfree", 1024 * 16 * 4),
    (
        "layers of two",
        "array 256 256 10 3 1 1",
        "arrayfree",
        256 * 256 * 10 * 4,
    ),
    ("a cube", "array 128 128 6 32 4 4", "arrayfree", 128 * 128 * 6 * 16),
    ("layered cubes", "array 64 64 18 32 4 5", "arrayfree", 64 * 64 * 18 * 16),
    ("video", "array 1920 1080 0 176 3 0", "arrayfree", 1920 * 1080 * 3 / 2),
    (
        "compressed squares",
        "array 1022 1022 0 145 4 0",
        "arrayfree",
        256 * 256 * 8,
    ),
    ("levels", "mipmap 512 256 0 32 1 0 10", "mipmapfree", 4 * 174_763),
    (
        "layered levels",
        "mipmap 64 64 5 1 4 1 3",
        "mipmapfree",
        4 * 5 * (4096 + 1024 + 256),
    ),
    ("a plain array", "array1 640 480 32 4", "arrayfree", 640 * 480 * 16),
    ("physical memory", "create 6291456", "vrelease", 6 * MIB),
];

fn to_the_limit(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    let whole = client.room();
    for (name, make, free, bytes) in FAMILIES {
        let cost = bytes.next_multiple_of(512);
        let (verb, freed) = (make.split(' ').next().expect("a verb"), format!("{free} 0"));
        let made = format!("{verb} 0");
        // `create` names what it makes second, all others last; both put it after the sizes.
        let make = |thing: &str| format!("{make} {thing}");
        client.expect(&format!("alloc {} pad", whole - cost), "alloc 0");
        client.expect(&make("it"), &made);
        assert_eq!(client.room(), 0, "{name}: costs {cost}");
        books_agree(rig, name);
        client.expect("alloc 1 more", "alloc 2");
        client.expect(&make("other"), &format!("{verb} 2"));
        books_agree(rig, name);
        client.expect(&format!("{free} it"), &freed);
        assert_eq!(client.room(), cost, "{name}: came back");
        client.expect(&make("it"), &made);
        client.expect(&format!("{free} it"), &freed);
        client.expect("free pad", "free 0");
        // One unit over.
        client.expect(&format!("alloc {} pad", whole - cost + 512), "alloc 0");
        client.expect(&make("it"), &format!("{verb} 2"));
        client.expect("free pad", "free 0");
        client.expect(&make("it"), &made);
        books_agree(rig, name);
        client.expect(&format!("{free} it"), &freed);
        assert_eq!(client.room(), whole, "{name}: nothing drifted");
    }
    books_agree(rig, "at the end");
}

fn refused_arguments(rig: &Rig) {
    let mut under = rig.client(&["-m", "1GiB"]);
    let mut bare = rig.bare_client("dlopen");
    under.ready();
    bare.ready();
    let room = under.room();
    for line in [
        format!("createnull {}", 4 * MIB),
        format!("createnull {}", 4 * GIB),
        // Not in units of the driver's, within the limit and beyond it.
        format!("create {} x", 4 * MIB + 1),
        format!("create {} x", GIB + 1),
        "arraynull".into(),
        "vrelease nothing".into(),
        "vretain it nothing".into(),
        "vmap nothing 0 nothing 2097152".into(),
        "vunmap nothing 0 2097152".into(),
        "arrayfree nothing".into(),
        "mipmapfree nothing".into(),
        // Beyond what any device can address.
        "array 0 0 0 32 1 0 x".into(),
        "array 64 64 0 32 3 0 x".into(),
        "array 64 64 0 7 1 0 x".into(),
        "array 64 0 4 32 1 0 x".into(),
        "array 64 32 6 32 1 4 x".into(),
    ] {
        assert_eq!(under.say(&line), bare.say(&line), "{line}");
    }
    under.expect("mipmap 64 64 0 32 1 0 3 levels", "mipmap 0");
    under.expect("level levels 1 second", "level 0");
    assert_ne!(under.say("arrayfree second"), "arrayfree 0", "a level is not destroyed");
    under.expect("mipmapfree levels", "mipmapfree 0");
    assert_eq!(under.room(), room);
}

fn physical_life(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    let room = client.room();
    let unit = 4 * MIB;
    let held = |client: &mut Client, units: u64, what: &str| {
        assert_eq!(room - client.room(), units * unit, "{what}");
        books_agree(rig, what);
    };
    done(&mut client, &format!("vreserve {} range", 8 * unit));
    held(&mut client, 0, "addresses are free");
    done(&mut client, &format!("create {unit} a"));
    done(&mut client, "vmap range 0 a");
    done(&mut client, "vrelease a");
    held(&mut client, 1, "released first, the mapping keeps it");
    done(&mut client, &format!("vretain b range {}", unit / 2));
    done(&mut client, &format!("vunmap range 0 {unit}"));
    held(&mut client, 1, "retained by its address, the handle keeps it");
    for place in 0..3 {
        done(&mut client, &format!("vmap range {} b {unit}", place * unit));
    }
    done(&mut client, "vrelease b");
    held(&mut client, 1, "three mappings, one memory");
    done(&mut client, &format!("create {unit} c"));
    done(&mut client, &format!("vmap range {} c", 3 * unit));
    done(&mut client, &format!("vunmap range {unit} {}", 2 * unit));
    held(&mut client, 2, "two of three mappings went");
    assert_ne!(client.say(&format!("vunmap range 0 {}", 4 * unit)), "vunmap 0", "a gap");
    held(&mut client, 2, "a refused unmapping changes nothing");
    done(&mut client, &format!("vunmap range 0 {unit}"));
    held(&mut client, 1, "the last mapping went");
    done(&mut client, "vrelease c");
    held(&mut client, 1, "still mapped");
    done(&mut client, &format!("vunmap range {} {unit}", 3 * unit));
    held(&mut client, 0, "all gone");
    // Memories side by side, unmapped by one call.
    for place in 0..8 {
        done(&mut client, &format!("create {unit} m{place}"));
        done(&mut client, &format!("vmap range {} m{place}", place * unit));
        done(&mut client, &format!("vrelease m{place}"));
    }
    held(&mut client, 8, "eight memories");
    done(&mut client, &format!("vunmap range 0 {}", 8 * unit));
    held(&mut client, 0, "one call ended eight");
    done(&mut client, "vunreserve range");
}

fn physical_place(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB", "-g", "auto:2"]);
    // No context anywhere yet, and none needed.
    client.expect("init 0", "init 0");
    done(&mut client, &format!("create {} first 0", 256 * MIB));
    books_agree(rig, "charged without a context");
    done(&mut client, &format!("create {} second 1", 512 * MIB));
    books_agree(rig, "charged to the other device");
    client.expect("ctx 0", "ctx 0");
    let first = client.room();
    client.expect("ctx 1", "ctx 0");
    let second = client.room();
    assert_eq!(first - second, 256 * MIB, "each device was charged its own");
    client.expect(&format!("create {} third 1", 514 * MIB), "create 2");
    done(&mut client, &format!("create {} third 0", 514 * MIB));
    // Memory on the host side is not device memory, whatever its size; a driver without it says so itself.
    for place in ["host", "numa"] {
        let line = format!("create {} place {place}", 4 * GIB);
        let answer = client.say(&line);
        assert_ne!(answer, "create 2", "{line} is not charged");
        if answer == "create 0" {
            assert_eq!(client.room(), second, "{place} memory costs nothing");
            done(&mut client, "vrelease place");
        }
    }
    for name in ["first", "second", "third"] {
        done(&mut client, &format!("vrelease {name}"));
    }
    books_agree(rig, "at the end");
}

/// The first form of sharing, between two jobs.
fn opened(rig: &Rig) {
    let mut exporter = rig.client(&["-m", "1GiB", "-g", "0"]);
    let mut importer = rig.client(&["-m", "128MiB", "-g", "0"]);
    exporter.ready();
    importer.ready();
    exporter.expect(&format!("alloc {} shared", 256 * MIB), "alloc 0");
    comes_to(rig, 2 * CONTEXT + 256 * MIB, "allocated");
    let room = importer.room();
    let handle = exporter.say("ipcget shared");
    let handle = handle.strip_prefix("ipcget 0 ").expect("exported").to_owned();
    for _ in 0..20 {
        importer.expect(&format!("ipcopen {handle} it"), "ipcopen 0");
        assert_eq!(importer.room(), room, "four times what is left of its limit, and free");
        importer.expect("ipcclose it", "ipcclose 0");
    }
    importer.expect(&format!("ipcopen {handle} it"), "ipcopen 0");
    comes_to(rig, 2 * CONTEXT + 256 * MIB, "the exporter alone is charged");
    importer.expect(&format!("alloc {room} mine"), "alloc 0");
    importer.expect("free mine", "free 0");
    // The exporter dies first: what it shared is seen at whoever still has it open, and nobody dies of it.
    exporter.kill();
    rig.eventually(SECOND, "the exporter is gone", || truth(rig) <= CONTEXT + 256 * MIB);
    comes_to(rig, truth(rig), "what is left is counted");
    importer.expect("ipcclose it", "ipcclose 0");
    comes_to(rig, CONTEXT, "closed");
    rig.eventually(SECOND, "its room is back", || importer.room() == room);
}

/// Events of one process, waited for and recorded by another one: without Partage, and in jobs with limits.
fn events(rig: &Rig) {
    let options = ["-m", "1GiB", "-g", "0"];
    let pairs: [[Client; 2]; 2] = [
        std::array::from_fn(|_| rig.bare_client("dlopen")),
        std::array::from_fn(|_| rig.client(&options)),
    ];
    for [mut maker, mut opener] in pairs {
        maker.ready();
        opener.ready();
        maker.expect("stream s", "stream 0");
        opener.expect("stream s", "stream 0");
        opener.expect("stream free", "stream 0");
        maker.expect("hold s", "hold 0");
        let made = maker.say("eventmake e s");
        let handle = made.strip_prefix("eventmake 0 ").expect("exported").to_owned();
        opener.expect(&format!("eventopen {handle} e"), "eventopen 0");
        opener.expect("eventask e", "eventask 600");
        opener.expect("eventafter e s", "eventafter 0");
        opener.expect("streamsync free", "streamsync 0");
        opener.expect("streamask s", "streamask 600");
        maker.expect("unhold", "unhold");
        opener.expect("eventwait e", "eventwait 0");
        opener.expect("streamsync s", "streamsync 0");
        // The other way.
        opener.expect("hold s", "hold 0");
        opener.expect("eventrecord e s", "eventrecord 0");
        maker.expect("eventask e", "eventask 600");
        maker.expect("eventafter e s", "eventafter 0");
        opener.expect("unhold", "unhold");
        maker.expect("streamsync s", "streamsync 0");
        // Who waits for a process that dies does not wait for ever.
        maker.expect("hold s", "hold 0");
        maker.expect("eventrecord e s", "eventrecord 0");
        opener.expect("eventafter e s", "eventafter 0");
        maker.kill();
        opener.expect("streamsync s", "streamsync 0");
        opener.expect("eventask e", "eventask 0");
        opener.expect(&format!("eventopen {handle} late"), "eventopen 400");
    }
}

/// Exported physical memory, between processes of one job.
fn imported(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB", "-g", "0"]);
    client.ready();
    let unit = 256 * MIB;
    done(&mut client, &format!("createfd {unit} a"));
    let exported = client.say("vexport a");
    let descriptor = exported.strip_prefix("vexport 0 ").expect("exported").to_owned();
    comes_to(rig, CONTEXT + unit, "exported");
    client.tell("spawn");
    client.ready();
    let room = client.room();
    for round in 0..10 {
        done(&mut client, &format!("vimport {descriptor} b"));
        done(&mut client, &format!("vreserve {unit} range"));
        done(&mut client, &format!("vmap range 0 b {unit}"));
        done(&mut client, "vrelease b");
        assert_eq!(client.room(), room, "round {round}: the exporter is charged");
        done(&mut client, &format!("vunmap range 0 {unit}"));
        done(&mut client, "vunreserve range");
    }
    comes_to(rig, 2 * CONTEXT + unit, "once, whoever has it");
    client.expect("exit 0", "spawned 0");
    comes_to(rig, CONTEXT + unit, "the child is gone");
    // Back in the process that it came from: one memory, whatever its handles are.
    let again = client.say(&format!("vimport {descriptor} again"));
    assert!(again.starts_with("vimport 0"), "{again}");
    comes_to(rig, CONTEXT + unit, "imported by its exporter");
    done(&mut client, "vrelease a");
    comes_to(rig, truth(rig), "released once");
    done(&mut client, "vrelease again");
    rig.eventually(SECOND, "nothing but the descriptor is left", || {
        truth(rig) == CONTEXT || truth(rig) == CONTEXT + unit
    });
    comes_to(rig, truth(rig), "released twice");
}

fn mapping_cycles(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    let room = client.room();
    // At half the limit a cycle that leaked would be denied at the third.
    client.expect(&format!("vcycles {} {}", 10_000 / tenth(), 256 * MIB), "vcycles 0");
    assert_eq!(client.room(), room);
    rig.eventually(SECOND, "the ledger is empty", || rig.ledger_used() == 0);
}

fn arrays_end(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    let room = client.room();
    for _ in 0..5 {
        client.expect("ctx 1 0", "ctx 0");
        done(&mut client, "array 1024 1024 0 32 4 0 plain");
        done(&mut client, "mipmap 1024 1024 0 32 4 0 11 levels");
        client.expect("ctxdestroy 1", "ctxdestroy 0");
        client.expect("use 0", "use 0");
        rig.eventually(SECOND, "what the context held came back", || client.room() == room);
        books_agree(rig, "after the context");
    }
}

/// Threads of one process, every family, a limit that denies some: at the end nothing is left, in the ledger as in the
/// driver.
fn mixed(rig: &Rig) {
    let rounds = 4_000 / tenth();
    let mut random = Random::new(53);
    let mut client = rig.client(&["-m", "512MiB"]);
    client.ready();
    let (mut denied, mut room) = (0, None);
    for turn in 0..3 {
        let answer = client.say(&format!("mix 16 {rounds} {} {}", 8 * MIB, random.below(1 << 30)));
        let numbers: Vec<u64> = answer.split(['=', ' ']).filter_map(|word| word.parse().ok()).collect();
        assert_eq!(numbers[1..], [0, 0], "only denials, no other code: {answer}");
        denied += numbers[0];
        books_agree(rig, &format!("after turn {turn}"));
        // The default pool exists after the first turn; from then on nothing drifts.
        let now = client.room();
        assert_eq!(
            *room.get_or_insert(now),
            now,
            "turn {turn}: the same room as after the first"
        );
    }
    assert!(denied > 0, "the limit was met");
    rig.note(format!("3 times 16 threads of {rounds} steps, {denied} denials"));
}
