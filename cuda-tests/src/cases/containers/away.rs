// SPDX-License-Identifier: Apache-2.0
//! Containers while the broker is away: none starts, what enters one gets no memory, and all are under their limit when
//! the next broker is there.

use super::podman::{CLASSES, Podman, describe, has_one_gib, jobs_and_clients, stderr, with_timeout};
use crate::cases::ruled_host::{Host, SOON};
use crate::cases::tenth;
use crate::client::Client;
use crate::rig::{GIB, MIB, Rig};

/// What all processes hold on all GPUs, by the driver's own account.
fn held(rig: &Rig) -> u64 {
    let machine = partage_machine::Machine::open(&rig.sim_dir()).expect("the machine is there");
    machine.used(0) + machine.used(1)
}

/// Containers that start and stop in the meantime, and how long each hook looks for a broker: half a minute in all, or
/// a few seconds.
fn extent() -> (usize, &'static str) {
    if tenth() == 1 { (10, "3s") } else { (3, "300ms") }
}

pub fn broker_away(rig: &Rig) {
    let Some(podman) = Podman::start(rig) else { return };
    let host = Host::start(rig, CLASSES);
    describe(rig);
    podman.waiting("web", "small", &[]);
    podman.waiting("other", "small", &[]);
    let mut before = podman.enter("web", &[]);
    before.ready();
    before.expect(&format!("alloc {} a", 256 * MIB), "alloc 0");
    drop(host);
    let (count, timeout) = extent();
    with_timeout(rig, timeout);
    let at_first = held(rig);
    let mut entered: Vec<Client> = Vec::new();
    for _ in 0..count {
        let mut member = podman.enter("web", &["-e", "PARTAGE_MEM_BYTES=17179869184"]);
        member.tell("init 0");
        entered.push(member);
        let output = rig.output(podman.run("small", &["--rm"], &["/bin/client", "dlopen"]));
        let said = stderr(&output);
        assert!(
            !output.status.success() && said.contains("the container does not start: "),
            "{said}"
        );
        before.expect(&format!("alloc {GIB} b"), "alloc 2");
        assert_eq!(held(rig), at_first, "nobody has got anything meanwhile");
    }
    let _ = podman.output(&["rm", "-f", "-t", "0", "other"]);
    let _host = Host::start(rig, CLASSES);
    for member in &mut entered {
        assert_eq!(member.answer(), "init 0");
        rig.eventually(SOON, "it attaches", || member.say("ctx 0 0") == "ctx 0");
        assert_eq!(
            member.numbers("info").get(2),
            Some(&GIB),
            "its limit is its container's"
        );
    }
    // One container is left, with all that entered it.
    jobs_and_clients(rig, 1, count + 1);
    for member in &mut entered {
        member.expect(&format!("alloc {} a", 769 * MIB), "alloc 2");
    }
    assert!(rig.truth_allocated() <= GIB, "the driver's own count");
    describe(rig);
    let mut after = podman.client("small", &[]);
    has_one_gib(&mut after);
    let unmanaged = rig.json(&["ps"])["unmanaged"].clone();
    assert_eq!(unmanaged.as_array().map_or(0, Vec::len), 0, "{unmanaged}");
}
