// SPDX-License-Identifier: Apache-2.0
//! Pools of processes that fail: killed, forked, and with failures in the driver.

use std::time::Duration;

use super::books::even;
use crate::cases::{Random, tenth};
use crate::client::Client;
use crate::rig::{MIB, Rig};

pub fn killed(rig: &Rig) {
    let mut first = rig.client(&["-m", "1GiB", "--name", "shared"]);
    first.ready();
    first.expect("pool mine", "pool 0");
    first.expect(&format!("poolkeep mine {}", u64::MAX), "poolkeep 0");
    let mut held = 0;
    while first.say(&format!("allocpool {} a{held} mine", 32 * MIB)) == "allocpool 0" && held < 28 {
        held += 1;
    }
    assert!(held >= 8, "only {held}");
    first.signal(libc::SIGKILL);
    first.kill();
    let mut second = rig.client(&["-m", "1GiB"]);
    second.ready();
    second.expect("pool mine", "pool 0");
    rig.eventually(Duration::from_secs(1), "the memory of the killed", || {
        let answer = second.say(&format!("allocpool {} all mine", held * 32 * MIB));
        answer == "allocpool 0"
    });
}

pub fn injected(rig: &Rig) {
    let mut random = Random::new(29);
    let mut command = rig.run(&["-m", "1GiB"], &crate::artefacts::client(), &["dlopen"]);
    command.env(
        "PARTAGE_SIM_FAULTS",
        "oom:cuMemAllocAsync:%7;oom:cuMemAllocFromPoolAsync:%5;code:cuMemFreeAsync:%11:999;code:cuMemPoolTrimTo:%3:999",
    );
    let mut client = Client::start(command);
    client.ready();
    client.expect("pool mine", "pool 0");
    let mut alive: Vec<u64> = Vec::new();
    let mut failed = (0, 0);
    for step in 0..2000 / tenth() as u64 {
        if random.below(2) == 0 || alive.is_empty() {
            let bytes = 1 + random.below(32 * MIB);
            let line = match random.below(2) {
                0 => format!("allocpool {bytes} n{step} mine"),
                _ => format!("allocasync {bytes} n{step}"),
            };
            if client.say(&line).ends_with(" 0") {
                alive.push(step);
            } else {
                failed.0 += 1;
            }
        } else {
            let name = alive.swap_remove(random.below(alive.len() as u64) as usize);
            if client.say(&format!("freeasync n{name}")) != "freeasync 0" {
                failed.1 += 1;
                alive.push(name);
            }
        }
        if step % 20 == 0 {
            let _ = client.say("pooltrim mine 0");
            client.expect("ctxsync", "ctxsync 0");
            even(rig, &format!("step {step}"));
        }
    }
    assert!(
        failed.0 > 0 && failed.1 > 0,
        "both kinds of failure happened: {failed:?}"
    );
}

pub fn forked(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.expect("init 0", "init 0");
    client.expect("ctx 0", "ctx 0");
    client.expect(&format!("allocasync {} a", 512 * MIB), "allocasync 0");
    even(rig, "before the fork");
    client.tell("fork");
    // The child has no driver of its own and no pools; its attempts change nothing for the parent.
    let answer = client.say(&format!("allocasync {MIB} child"));
    assert_ne!(answer, "allocasync 0", "a child cannot use its parent's driver");
    client.expect("exit 0", "forked 0");
    even(rig, "after the child");
    client.expect("freeasync a", "freeasync 0");
    client.expect("ctxsync", "ctxsync 0");
    even(rig, "the parent goes on");
    assert_eq!(rig.ledger_used(), 0);
}
