// SPDX-License-Identifier: Apache-2.0
//! A suspended job that another program restores, as the vendor's own `cuda-checkpoint` does: it is taken in where
//! there is room, and sent away again where others were promised it.

use partage_abi::types::CuResult;

use super::super::Case;
use super::said::{filled, no, ok, state, used_by};
use crate::artefacts::client as client_program;
use crate::client::{Client, PATIENCE};
use crate::rig::{GIB, Rig};

pub fn cases() -> Vec<Case> {
    const SIZE: &str = "its numbers are those of a GPU of 16 GiB";
    vec![
        Case::new("residence::a_job_restored_by_another_program_is_taken_in", taken_in).simulated(SIZE),
        Case::new(
            "residence::a_job_restored_by_another_program_keeps_nobody_from_a_promise",
            sent_away,
        )
        .simulated(SIZE),
    ]
}

/// A program without the library restores a process, and lets it go on. Between its two calls the broker may already
/// have unlocked the process, or sent it away again: then the second one is refused.
fn restore_behind(rig: &Rig, of: &Client) {
    let mut command = rig.command(client_program());
    command.arg("dlopen");
    let mut other = Client::start(command);
    other.expect("init 0", "init 0");
    let answers = other.numbers(&format!("restore {}", of.pid()));
    assert_eq!(answers.first(), Some(&0), "stderr: {}", other.stderr());
    let refused = u64::from(CuResult::ILLEGAL_STATE.0.unsigned_abs());
    assert!([0, refused].contains(&answers[1]), "unlock {}", answers[1]);
    assert!(other.finish().success());
}

/// What a command says, without its line breaks.
fn flat(rig: &Rig, arguments: &[&str]) -> String {
    let said = ok(rig, arguments);
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn taken_in(rig: &Rig) {
    let mut client = filled(rig, "one", "10GiB");
    ok(rig, &["suspend", "one"]);
    client.tell("check a 165");
    restore_behind(rig, &client);
    // Nobody asked for it: NVML shows it.
    rig.eventually(PATIENCE, "it is taken in", || state(rig, "one") == "running");
    assert_eq!(client.answer(), "check 0 0");
    let text = format!("j1 runs again: another program restored pid {} of it", client.pid());
    for command in [&["events"][..], &["why", "one"]] {
        let said = flat(rig, command);
        assert!(said.contains(&text), "{said}");
    }
    assert_eq!(ok(rig, &["resume", "one"]), "j1 is not suspended");
    client.expect(&format!("alloc {} b", 8 * GIB), "alloc 0");
    ok(rig, &["suspend", "one"]);
    assert_eq!((state(rig, "one").as_str(), used_by(rig, "one")), ("suspended", 0));
    ok(rig, &["resume", "one"]);
    client.expect("check a 165", "check 0 0");
    assert!(client.finish().success());
}

fn sent_away(rig: &Rig) {
    let mut client = filled(rig, "one", "10GiB");
    let pid = client.pid();
    ok(rig, &["suspend", "one"]);
    let mut other = rig.client(&["-m", "12GiB", "-g", "0", "--name", "other", "--on-full", "fail"]);
    other.ready();
    let mut resume = rig.partage(&["resume", "one"]).spawn().expect("it starts");
    client.tell("check a 165");
    restore_behind(rig, &client);
    let text = format!("j1 was sent away again: another program restored pid {pid} of it, and the job needs 10 GiB");
    rig.eventually(PATIENCE, "it is sent away again", || {
        flat(rig, &["events"]).contains(&text)
    });
    assert_eq!(state(rig, "one"), "suspended");
    assert_eq!(client.try_answer(), None, "it runs while it is suspended");
    // What the other was promised is there.
    other.expect(&format!("alloc {} b", 11 * GIB), "alloc 0");
    let why = flat(rig, &["why", "one"]);
    assert!(
        why.contains(&format!("another program restored pid {pid} of it")),
        "{why}"
    );
    let why = flat(rig, &["why", "other"]);
    assert!(
        why.contains("another program brought j1, which was suspended, back"),
        "{why}"
    );
    let (code, said) = no(rig, &["resume", "one", "--on-full", "fail"]);
    assert!(code == Some(1) && said.contains("needs 10 GiB on GPU 0"), "{said}");
    assert!(other.finish().success());
    assert!(resume.wait().expect("ours").success());
    assert_eq!(client.answer(), "check 0 0");
    assert!(client.finish().success());
}
