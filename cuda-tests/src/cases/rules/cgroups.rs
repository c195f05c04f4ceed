// SPDX-License-Identifier: Apache-2.0
//! A rule by control group, of a process whose group is in one hierarchy alone, as Slurm's jobs are under cgroup v1.

use crate::cases::control_group::Group;
use crate::cases::ruled_host::{Host, bare_command};
use crate::client::Client;
use crate::rig::{GIB, Rig};

pub fn hierarchies(rig: &Rig) {
    let Some(group) = Group::make(rig, "slurm_node1") else {
        return;
    };
    let above = group.path.trim_end_matches("/slurm_node1");
    let rule = format!(
        "schema = 1\n\n[[rule]]\nname = \"slurm\"\nmatch = {{ cgroup = [\"/system.slice/slurmstepd.scope\", \
         \"{above}/slurm*\"] }}\nmax = {{ mem = \"1GiB\" }}\n"
    );
    let _host = Host::start(rig, &rule);
    let client = crate::artefacts::client();
    let inside = [
        group.inside(rig.run(&["-g", "0"], &client, &["dlopen"])),
        group.inside(bare_command(rig, &[])),
    ];
    for command in inside {
        let mut client = Client::start(command);
        client.ready();
        assert_eq!(client.numbers("info")[2], GIB, "what the rule allows");
        client.kill();
    }
    let mut outside = rig.client(&["-g", "0"]);
    outside.ready();
    assert!(outside.numbers("info")[2] > GIB, "the rule is about the group alone");
}
