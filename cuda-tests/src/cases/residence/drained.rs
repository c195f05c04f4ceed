// SPDX-License-Identifier: Apache-2.0
//! A device is drained: it takes no job any more, and those on it go where there is room.

use super::super::Case;
use super::moved::{index_of, uuids};
use super::said::{filled, filled_with, kill_broker, no, ok, state};
use crate::client::PATIENCE;
use crate::rig::{MIB, Rig, Spec};

pub fn cases() -> Vec<Case> {
    let two = "needs two devices";
    vec![
        Case {
            spec: Spec {
                gpus: 3,
                ..Spec::DEFAULT
            },
            ..Case::new("residence::a_drained_gpu_is_empty_but_for_what_cannot_move", drained).simulated(two)
        },
        Case::new("residence::a_drained_gpu_outlives_the_broker", outlives).simulated(two),
    ]
}

fn drained(rig: &Rig) {
    // The others have room for 4, 4 and 5 GiB together only.
    let mut tied = filled_with(rig, "tied", "1GiB", 64, &[]);
    tied.expect(&format!("managed {MIB} m"), "managed 0");
    let mut jobs =
        ["a", "b", "c"].map(|name| filled_with(rig, name, if name == "c" { "5GiB" } else { "4GiB" }, 64, &[]));
    let mut full = rig.client(&["-m", "8GiB", "-g", "1", "--name", "full"]);
    full.ready();
    let mut half = rig.client(&["-m", "6GiB", "-g", "2", "--name", "half"]);
    half.ready();
    let (code, said) = {
        let output = rig.output(rig.partage(&["drain", "0"]));
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.starts_with("GPU 0 is drained, and one job stays on it\n"),
        "{said}"
    );
    let line = format!(
        "  j1 stays: pid {} has managed memory, which the driver cannot save; end that",
        tied.pid()
    );
    assert!(said.contains(&line), "{said}");
    let moved = said.lines().filter(|line| line.contains(" moved to GPU ")).count();
    assert_eq!(moved, 3, "{said}");
    for client in &mut jobs {
        client.expect("check a 165", "check 0 0");
        client.expect(&format!("alloc {MIB} b"), "alloc 0");
    }
    for name in ["a", "b", "c"] {
        assert_ne!(index_of(rig, name), 0, "{name}");
    }
    assert_eq!(index_of(rig, "tied"), 0);
    tied.expect("check a 165", "check 0 0");
    // Nothing is admitted there, and all say why.
    let bar = "GPU 0 is drained: partage undrain 0 lets jobs on it again";
    let (code, said) = no(rig, &["run", "-m", "1GiB", "-g", "0", "--on-full", "fail", "true"]);
    assert!(code == Some(124) && said.contains(bar), "{code:?} {said}");
    let (code, said) = no(rig, &["migrate", "a", "--to", "0"]);
    assert!(code == Some(1) && said.contains(bar), "{said}");
    let status = rig.json(&["status"]);
    assert_eq!(status["devices"][0]["is_drained"], true);
    assert!(ok(rig, &["status"]).replace('\n', " ").contains("GPU 0 is drained"));
    assert!(
        ok(rig, &["why", "tied"])
            .replace('\n', " ")
            .contains("GPU 0 is drained")
    );
    let mut auto = rig.client(&["-m", "1GiB", "--mem-request", "none", "--name", "auto"]);
    auto.expect("init 0", "init 0");
    assert_ne!(index_of(rig, "auto"), 0);
    // Once more: what is left is tried again.
    tied.kill();
    rig.eventually(PATIENCE, "it ended", || state(rig, "tied").is_empty());
    let view = rig.json(&["drain", "0"]);
    assert_eq!(view["drain"]["gpu"], uuids(rig)[0], "{view}");
    assert!(view["drain"]["staying"].as_array().is_some_and(Vec::is_empty), "{view}");
    assert_eq!(ok(rig, &["undrain", "0"]), "GPU 0 takes jobs again");
    assert_eq!(ok(rig, &["undrain", "0"]), "GPU 0 is not drained");
    let mut again = rig.client(&["-m", "12GiB", "-g", "0", "--on-full", "fail"]);
    again.ready();
    assert_eq!(no(rig, &["drain", "9"]).0, Some(4));
}

/// The mark; and a job that is away does not come back there.
fn outlives(rig: &Rig) {
    let mut client = filled(rig, "one", "4GiB");
    ok(rig, &["suspend", "one"]);
    assert_eq!(ok(rig, &["drain", "0"]), "GPU 0 is drained, and no job is on it");
    kill_broker(rig);
    let bar = "GPU 0 is drained: partage undrain 0 lets jobs on it again";
    let (code, said) = no(rig, &["run", "-m", "1GiB", "-g", "0", "--on-full", "fail", "true"]);
    assert!(code == Some(124) && said.contains(bar), "{code:?} {said}");
    let (code, said) = no(rig, &["resume", "one", "--on-full", "fail"]);
    assert!(code == Some(1) && said.contains(bar), "{said}");
    let mut resume = rig.partage(&["resume", "one"]).spawn().expect("it starts");
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(resume.try_wait().expect("ours").is_none());
    ok(rig, &["undrain", "0"]);
    assert!(resume.wait().expect("ours").success());
    client.expect("check a 165", "check 0 0");
}
