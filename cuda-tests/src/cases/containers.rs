// SPDX-License-Identifier: Apache-2.0
//! Real containers: podman and runc get the library, the broker's folder and the hook from the file that `partage cdi
//! generate` writes, and whatever enters a container is under its limit.

mod away;
mod hook;
mod places;
pub(super) mod podman;
mod tenant;
mod time;

use serde_json::json;

use podman::{CLASSES, Podman, describe, has_one_gib, stderr};

use super::Case;
use super::ruled_host::Host;
use crate::client::Client;
use crate::rig::{GIB, MIB, Rig};

const WHY: &str = "runs containers on the simulated machine";

pub fn cases() -> Vec<Case> {
    let simulated = |name, body| Case::new(name, body).simulated(WHY);
    vec![
        simulated("containers::a_cap_holds_for_whatever_enters_a_container", entering),
        simulated(
            "containers::a_cap_holds_however_a_container_is_locked_down",
            locked_down,
        ),
        simulated(
            "containers::two_share_a_gpu_and_a_third_without_room_does_not_start",
            sharing,
        ),
        simulated("containers::a_cap_holds_for_another_uid_inside", places::another_uid),
        simulated(
            "containers::a_cap_holds_in_a_mapped_user_namespace",
            places::user_namespace,
        ),
        simulated(
            "containers::two_that_share_a_pid_namespace_are_two_jobs",
            places::one_pid_namespace,
        ),
        simulated(
            "containers::one_of_two_gpus_is_the_first_and_only_one_inside",
            places::gpu_one,
        ),
        simulated(
            "containers::a_hook_without_a_broker_starts_no_container",
            hook::no_broker,
        ),
        simulated(
            "containers::a_hook_that_fails_or_is_killed_starts_no_container",
            hook::fails,
        ),
        simulated(
            "containers::none_is_without_a_limit_while_the_broker_is_away",
            away::broker_away,
        ),
        simulated(
            "containers::root_inside_claims_no_more_than_it_was_given",
            tenant::claims,
        ),
        simulated(
            "containers::who_leaves_its_control_group_stays_in_its_job",
            tenant::group,
        ),
        simulated(
            "containers::weights_decide_between_two_that_always_want_the_gpu",
            time::weights,
        )
        .alone(),
    ]
}

fn entering(rig: &Rig) {
    let Some(podman) = Podman::start(rig) else { return };
    let _host = Host::start(rig, CLASSES);
    describe(rig);
    podman.waiting("web", "small", &[]);
    let job = rig.jobs()[0].clone();
    let id = job["container"]["id"].as_str().expect("a container").to_owned();
    assert_eq!(
        rig.json(&["get", &format!("container:{}", &id[..12])])["job"]["job"],
        job["job"]
    );
    let variables = podman.variables();
    for options in [
        &["exec", "-i", "web", "/bin/client", "dlopen"][..],
        &[
            "exec",
            "-i",
            "-e",
            "LD_PRELOAD=",
            "-e",
            "PARTAGE_MEM_BYTES=8589934592",
            "web",
            "/bin/client",
            "dlopen",
        ],
        &[
            "exec",
            "-i",
            "web",
            "/bin/env",
            "-i",
            &variables[0],
            &variables[1],
            "/bin/client",
            "dlopen",
        ],
    ] {
        let mut member = Client::start(podman.command(options));
        has_one_gib(&mut member);
        assert_eq!(rig.jobs().len(), 1, "{options:?}: {:?}", rig.jobs());
        member.kill();
    }
    // Nothing is changed from inside.
    podman.is_refused_a_change("web", "j1");
    let _ = podman.output(&["kill", "web"]);
    rig.eventually(crate::client::PATIENCE, "the job ends with its container", || {
        rig.jobs().is_empty()
    });
}

fn locked_down(rig: &Rig) {
    let Some(podman) = Podman::start(rig) else { return };
    let _host = Host::start(rig, CLASSES);
    describe(rig);
    let locked = ["--read-only", "--cap-drop=all", "--security-opt=no-new-privileges"];
    for options in [
        &locked[..],
        &["--pid=host"],
        &["-e=LD_PRELOAD=", "-e=CUDA_DEVICE_MEMORY_LIMIT=8g"],
    ] {
        let mut client = podman.client("small", options);
        has_one_gib(&mut client);
        client.kill();
        rig.eventually(crate::client::PATIENCE, "the job ends", || rig.jobs().is_empty());
    }
    let mut lowered = podman.client("small", &["--annotation=partage.dev/mem=512MiB"]);
    lowered.ready();
    assert_eq!(lowered.numbers("info").get(2), Some(&(512 * MIB)));
    lowered.kill();
}

fn sharing(rig: &Rig) {
    let Some(podman) = Podman::start(rig) else { return };
    let _host = Host::start(rig, CLASSES);
    describe(rig);
    let mut pair = [podman.client("small", &[]), podman.client("small", &[])];
    for client in &mut pair {
        client.ready();
        let room = client.room();
        client.expect(&format!("alloc {room} all"), "alloc 0");
        client.expect("alloc 512 more", "alloc 2");
    }
    assert!(rig.truth_allocated() <= 2 * GIB, "the driver's own count");
    assert_eq!(rig.jobs().len(), 2);
    podman.waiting("big", "large", &[]);
    let output = rig.output(podman.run("large", &["--rm"], &["/bin/true"]));
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(126), "{said}");
    assert!(said.contains("the container does not start: needs 10 GiB"), "{said}");
    assert!(rig.jobs().iter().all(|job| job["state"] != json!("waiting")));
    for client in &mut pair {
        client.kill();
    }
}
