// SPDX-License-Identifier: Apache-2.0
//! A device is drained: it takes no job any more, and those on it go where there is room.

use super::super::Case;
use partage_protocol::utc::minute;

use super::faults::set_faults;
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
        Case::new(
            "residence::a_drain_that_is_called_off_midway_lets_the_move_arrive",
            called_off,
        )
        .simulated(two),
        Case::new("residence::a_drain_answers_beside_a_job_that_stands_on_its_way", stands).simulated(two),
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
    assert_eq!(status["devices"][0]["state"], "draining");
    is_marked(rig, "tied");
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

/// `status`, `why` and `ps` say who drained GPU 0 and since when; so do their documents.
fn is_marked(rig: &Rig, job: &str) {
    let words = |arguments: &[&str]| ok(rig, arguments).split_whitespace().collect::<Vec<_>>().join(" ");
    // SAFETY: geteuid has no preconditions.
    let me = unsafe { libc::geteuid() };
    // A broker that has just begun has not seen the device yet.
    rig.eventually(PATIENCE, "the device is there", || {
        rig.json(&["status"])["devices"][0]["is_drained"] == true
    });
    let mark = rig.json(&["status"])["devices"][0]["drained"].clone();
    assert_eq!(mark["uid"], me, "{mark}");
    let since = minute(mark["since_unix_ns"].as_u64().expect("a time"));
    let text = format!("GPU 0 is drained since {since}, by uid {me}: partage undrain 0 lets jobs on it again");
    for command in [&["status"][..], &["why", job], &["ps"]] {
        let said = words(command);
        assert!(said.contains(&text), "{command:?}: {said}");
    }
    let notes = rig.json(&["ps"])["jobs"][0]["notes"].clone();
    assert!(
        notes
            .as_array()
            .is_some_and(|notes| notes.iter().any(|note| note == &text)),
        "{notes}"
    );
}

/// The mark; and a job that is away does not come back there.
fn outlives(rig: &Rig) {
    let mut client = filled(rig, "one", "4GiB");
    ok(rig, &["suspend", "one"]);
    assert_eq!(ok(rig, &["drain", "0"]), "GPU 0 is drained, and no job is on it");
    assert_eq!(rig.json(&["status"])["devices"][0]["state"], "drained");
    kill_broker(rig);
    is_marked(rig, "one");
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

/// One job is on its way when `undrain` comes: it arrives, and the other one is not sent.
fn called_off(rig: &Rig) {
    let mut clients = ["one", "two"].map(|name| filled_with(rig, name, "3GiB", 64, &[]));
    // The broker's first move tries a map on a process of its own; the next one stands in the job.
    ok(rig, &["migrate", "one", "--to", "1"]);
    ok(rig, &["migrate", "one", "--to", "0"]);
    set_faults(rig, "stands:checkpoint");
    let mut drain = rig.partage(&["drain", "0"]);
    drain.stdout(std::process::Stdio::piped());
    let drain = drain.spawn().expect("it starts");
    rig.eventually(PATIENCE, "one is on its way", || {
        ["one", "two"].iter().any(|name| state(rig, name) == "moving")
    });
    assert_eq!(ok(rig, &["undrain", "0"]), "GPU 0 takes jobs again");
    assert_eq!(rig.json(&["status"])["devices"][0]["is_drained"], false);
    set_faults(rig, "");
    let output = drain.wait_with_output().expect("ours");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert_eq!(
        lines[0],
        "GPU 0 takes jobs again: partage undrain came before it was empty"
    );
    assert!(
        lines[1].ends_with(" moved to GPU 1") && lines[2].contains(" stays: "),
        "{said}"
    );
    let mut gpus = ["one", "two"].map(|name| index_of(rig, name));
    gpus.sort_unstable();
    assert_eq!(gpus, [0, 1], "{said}");
    for client in &mut clients {
        client.expect("check a 165", "check 0 0");
        client.expect(&format!("alloc {MIB} b"), "alloc 0");
    }
    // The next one tries who is left.
    let view = rig.json(&["drain", "0"]);
    assert_eq!(view["drain"]["moved"].as_array().map(Vec::len), Some(1), "{view}");
    rig.eventually(PATIENCE, "the books agree", || rig.books_agree());
}

/// A job that nobody can bring to the other GPU: the drain says so, and does not wait for it.
fn stands(rig: &Rig) {
    let mut client = filled_with(rig, "one", "3GiB", 64, &[]);
    // The broker's first move tries a map on a process of its own.
    ok(rig, &["migrate", "one", "--to", "1"]);
    ok(rig, &["migrate", "one", "--to", "0"]);
    set_faults(rig, "code:cuCheckpointProcessRestore:*:999");
    let output = rig.output(rig.partage(&["drain", "0"]));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.starts_with("GPU 0 is drained, and one job stays on it\n")
            && said.contains("j1 stays: j1 stands on its way"),
        "{said}"
    );
    set_faults(rig, "");
    rig.eventually(PATIENCE, "it runs again", || state(rig, "one") == "running");
    client.expect("check a 165", "check 0 0");
}
