// SPDX-License-Identifier: Apache-2.0
//! Sizes and frees at the edges: the driver's own codes, and nothing drifts.

use super::{Case, Random, tenth};
use crate::client::Client;
use crate::rig::{GIB, Rig};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("sizes::edges_give_the_drivers_codes", edges),
        Case::new("sizes::frees_give_the_drivers_codes", frees),
        Case::new("sizes::context_end_gives_memory_back", context_end),
        Case::new("sizes::pitch_and_managed_are_charged", pitch_and_managed),
        Case::new("sizes::live_limit_change", live_limit),
        Case::new("sizes::ledger_equals_truth_with_failures_injected", injected)
            .simulated("faults are the simulator's"),
    ]
}

const SECOND: std::time::Duration = std::time::Duration::from_secs(1);

fn edges(rig: &Rig) {
    let mut under = rig.client(&["-m", "2GiB"]);
    let mut bare = rig.bare_client("dlopen");
    under.ready();
    bare.ready();
    for line in ["alloc 0 zero", "allocnull 4096", "managed 0 zero"] {
        assert_eq!(under.say(line), bare.say(line), "{line}");
    }
    for over in [2 * GIB + 1, 1 << 63, u64::MAX, u64::MAX - 511] {
        under.expect(&format!("alloc {over} x"), "alloc 2");
    }
    let room = under.room();
    under.expect(&format!("alloc {} x", room + 1), "alloc 2");
    under.expect(&format!("alloc {room} x"), "alloc 0");
    under.expect("alloc 1 y", "alloc 2");
    under.expect("free x", "free 0");
    under.expect(&format!("alloc {room} x"), "alloc 0");
    under.expect("free x", "free 0");
    assert_eq!(under.room(), room, "nothing drifted: all of it is free again");
}

fn frees(rig: &Rig) {
    let mut under = rig.client(&["-m", "2GiB"]);
    let mut bare = rig.bare_client("dlopen");
    under.ready();
    bare.ready();
    let room = under.room();
    for client in [&mut under, &mut bare] {
        client.expect("alloc 1048576 a", "alloc 0");
    }
    for line in [
        "freeptr 0",
        "freeptr 0x1234",
        "freekeep a",
        "freekeep a",
        "freeptr 0xffffffffffffffff",
    ] {
        assert_eq!(under.say(line), bare.say(line), "{line}");
    }
    assert_eq!(under.room(), room);
}

fn context_end(rig: &Rig) {
    let mut client = rig.client(&["-m", "2GiB"]);
    client.ready();
    let room = client.room();
    for round in 0..20 {
        client.expect("ctx 1 0", "ctx 0");
        client.expect(&format!("alloc {} a{round}", GIB), "alloc 0");
        client.expect("ctxdestroy 1", "ctxdestroy 0");
    }
    client.expect("use 0", "use 0");
    rig.eventually(SECOND, "twenty contexts' memory came back", || client.room() == room);
    client.expect("primary 0", "primary 0");
    client.expect(&format!("alloc {} p", GIB), "alloc 0");
    client.expect("release 0", "release 0");
    client.expect("use 0", "use 0");
    rig.eventually(SECOND, "the primary context's memory came back", || {
        client.room() == room
    });
}

fn pitch_and_managed(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    let before = client.room();
    let pitch = client.numbers("pitch 1000 1024 p");
    assert_eq!(pitch[0], 0);
    let used = before - client.room();
    assert_eq!(used, pitch[1] * 1024, "the driver's pitch times the height");
    client.expect("free p", "free 0");
    client.expect(&format!("managed {} m", before + 1), "managed 2");
    client.expect(&format!("managed {before} m"), "managed 0");
    client.expect("alloc 1 x", "alloc 2");
    client.expect("free m", "free 0");
    assert_eq!(client.room(), before);
}

fn live_limit(rig: &Rig) {
    let mut client = rig.client(&["-m", "4GiB", "--name", "live"]);
    client.ready();
    client.expect(&format!("alloc {} a", 3 * GIB), "alloc 0");
    client.expect(&format!("alloc {} b", 2 * GIB), "alloc 2");
    let output = rig.output(rig.partage(&["set", "live", "mem=8GiB"]));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    rig.eventually(SECOND, "the raised limit", || client.numbers("info")[2] == 8 * GIB);
    client.expect(&format!("alloc {} b", 2 * GIB), "alloc 0");
    let output = rig.output(rig.partage(&["set", "live", "mem=2GiB"]));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    client.expect("alloc 1 c", "alloc 2");
    assert!(
        rig.json(&["ps"])["jobs"].to_string().contains("over limit"),
        "ps names it"
    );
    client.expect("free a", "free 0");
    client.expect("free b", "free 0");
    let room = client.room();
    assert!(room <= 2 * GIB, "the lowered limit holds: {room}");
    client.expect(&format!("alloc {room} c"), "alloc 0");
    client.expect("alloc 1 d", "alloc 2");
}

fn injected(rig: &Rig) {
    let rounds = 2000 / tenth();
    let mut random = Random::new(17);
    let mut command = rig.run(&["-m", "1GiB"], &crate::artefacts::client(), &["dlopen"]);
    // Every seventh allocation and every eleventh free fails inside the driver, with codes that are no denial's.
    command.env(
        "PARTAGE_SIM_FAULTS",
        "code:cuMemAlloc_v2:%7:719;code:cuMemFree_v2:%11:999",
    );
    let mut client = Client::start(command);
    client.ready();
    let mut alive: Vec<u64> = Vec::new();
    let mut failed = (0, 0);
    for step in 0..rounds as u64 {
        if random.below(2) == 0 || alive.is_empty() {
            // The driver's books are in units of 512 bytes; whole units make the two sums comparable.
            let bytes = 512 * (1 + random.below(128 * 1024));
            match client.say(&format!("alloc {bytes} n{step}")).as_str() {
                "alloc 0" => alive.push(step),
                "alloc 719" => failed.0 += 1,
                // The limit may be met in a long run.
                "alloc 2" => assert!(client.room() < bytes, "denied with room for {bytes}"),
                other => panic!("step {step}: {other}"),
            }
        } else {
            let name = alive.swap_remove(random.below(alive.len() as u64) as usize);
            match client.say(&format!("freekeep n{name}")).as_str() {
                "freekeep 0" => client.expect(&format!("forget n{name}"), "forget"),
                "freekeep 999" => {
                    failed.1 += 1;
                    alive.push(name);
                }
                other => panic!("step {step}: {other}"),
            }
        }
        if step % 50 == 0 {
            rig.eventually(SECOND, "ledger = truth", || rig.ledger_used() == rig.truth_allocated());
        }
    }
    assert!(
        failed.0 > 0 && failed.1 > 0,
        "both kinds of failure happened: {failed:?}"
    );
    rig.eventually(SECOND, "ledger = truth at the end", || {
        rig.ledger_used() == rig.truth_allocated()
    });
}
