// SPDX-License-Identifier: Apache-2.0
//! Which refused allocations are told as failures: not those that a caching allocator recovers from.

use std::path::Path;

use super::Case;
use crate::rig::{GIB, Rig};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("refusals::one_that_is_recovered_from_is_silent", recovered),
        Case::new("refusals::many_that_are_recovered_from_are_silent", many),
        Case::new("refusals::the_second_in_a_row_is_said_at_once", twice),
        Case::new("refusals::the_last_of_a_program_is_said_at_its_exit", at_exit),
        Case::new(
            "refusals::the_last_of_a_program_without_an_exit_is_in_the_summary",
            without_exit,
        ),
        Case::new("refusals::a_child_of_a_fork_does_not_say_its_parents", in_a_child),
        Case::new("refusals::another_device_is_no_recovery", on_another_device),
    ]
}

const LINE: &str = "partage: 3 GiB asked, limit 2 GiB";
const REMEDY: &str = "raise with: partage set ";

/// Standard output and error of a program that does what the lines say, under a limit of 2 GiB.
fn heard(rig: &Rig, name: &str, lines: &[&str]) -> (String, String) {
    heard_with(rig, &["-m", "2GiB", "--name", name, "--summary"], lines)
}

fn heard_with(rig: &Rig, options: &[&str], lines: &[&str]) -> (String, String) {
    let client = crate::artefacts::client();
    let script = format!("printf '%s\\n' {} | \"$0\" dlopen", quoted(lines));
    let words = ["-c", script.as_str(), client.to_str().expect("utf-8")];
    let output = rig.output(rig.run(options, Path::new("/bin/sh"), &words));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn quoted(lines: &[&str]) -> String {
    let all: Vec<String> = ["init 0", "ctx 0"]
        .iter()
        .chain(lines)
        .map(|line| format!("'{line}'"))
        .collect();
    all.join(" ")
}

fn denied(rig: &Rig, name: &str) -> (u64, u64) {
    let denied = rig.json(&["get", name])["job"]["denied"].clone();
    let count = |name: &str| denied[name].as_u64().expect("a count");
    (count("limit"), count("recovered"))
}

fn too_much() -> String {
    format!("alloc {} much", 3 * GIB)
}

fn recovered(rig: &Rig) {
    let [cached, again] = ["cached", "again"].map(|name| format!("alloc {GIB} {name}"));
    let (out, errors) = heard(rig, "trainer", &[&cached, &too_much(), "free cached", &again]);
    assert!(out.contains("alloc 2\nfree 0\nalloc 0"), "{out}");
    assert!(!errors.contains("denied") && !errors.contains(" asked, "), "{errors}");
    assert!(errors.contains("ended 0 after "), "{errors}");
    assert_eq!(denied(rig, "trainer"), (1, 1));
    let why = rig.json(&["why", "trainer"]);
    let text = why["sentences"].to_string();
    assert!(
        text.contains("it was short of memory on GPU 0 once and got some after that, as a caching allocator does"),
        "{text}"
    );
    assert!(!text.contains("raise") && !text.contains("was denied"), "{text}");
    assert_eq!(why["denials"].as_array().map(Vec::len), Some(0));
    // The record for machines keeps it.
    let events = rig.output(rig.partage(&["events"]));
    let events = String::from_utf8_lossy(&events.stdout);
    assert!(events.contains("was denied 3 GiB on GPU 0"), "{events}");
}

fn many(rig: &Rig) {
    let (much, small) = (too_much(), format!("alloc {} small", 1 << 20));
    let lines: Vec<&str> = [much.as_str(), &small, "free small"].repeat(20);
    let (out, errors) = heard(rig, "loop", &lines);
    assert_eq!(out.matches("alloc 2").count(), 20, "{out}");
    assert!(!errors.contains("denied") && !errors.contains(" asked, "), "{errors}");
    assert_eq!(denied(rig, "loop"), (20, 20));
}

fn twice(rig: &Rig) {
    let mut client = rig.client(&["-m", "2GiB", "--name", "twice"]);
    client.ready();
    client.expect(&too_much(), "alloc 2");
    client.expect(&format!("alloc {} more", 4 * GIB), "alloc 2");
    // The numbers are the second one's, and the program still runs.
    let line = client.wait_for_stderr(" asked, ");
    assert!(
        line.starts_with("partage: 4 GiB asked, limit 2 GiB") && line.contains(REMEDY),
        "{line}"
    );
    assert_eq!(client.numbers("info")[0], 0);
    assert!(client.finish().success());
    assert_eq!(denied(rig, "twice"), (2, 0));
}

fn at_exit(rig: &Rig) {
    let (out, errors) = heard(rig, "plain", &[&too_much(), "leave 1"]);
    assert!(out.ends_with("alloc 2\n"), "{out}");
    assert_eq!(errors.matches(LINE).count(), 1, "{errors}");
    let said = errors.find(REMEDY).expect("the remedy");
    assert!(
        errors[said..].contains("ended 1 after ") && errors.contains("denied once"),
        "{errors}"
    );
    assert_eq!(denied(rig, "plain"), (1, 0));
}

fn without_exit(rig: &Rig) {
    let (_, errors) = heard(rig, "gone", &[&too_much(), "exit 1"]);
    assert!(!errors.contains(" asked, "), "{errors}");
    assert!(
        errors.contains("ended 1 after ") && errors.contains(", denied once"),
        "{errors}"
    );
    let why = rig.json(&["why", "gone"])["sentences"].to_string();
    assert!(
        why.contains("3 GiB was denied on GPU 0") && why.contains("start the next one with"),
        "{why}"
    );
}

fn in_a_child(rig: &Rig) {
    let small = format!("alloc {} small", 1 << 20);
    let (_, errors) = heard(rig, "parent", &[&too_much(), "forkleave 0", &small]);
    assert!(!errors.contains(" asked, ") && !errors.contains("denied"), "{errors}");
}

fn on_another_device(rig: &Rig) {
    let small = format!("alloc {} small", 1 << 20);
    // Refused on the second, granted on the first: the one is told at the end, by its own name.
    let lines = ["ctx 1", &too_much(), "use 0", &small, "leave 1"];
    let options = ["-g", "0,1", "-m", "2GiB", "--name", "both", "--summary"];
    let (out, errors) = heard_with(rig, &options, &lines);
    assert!(out.ends_with("alloc 2\nuse 0\nalloc 0\n"), "{out}");
    assert_eq!(errors.matches(LINE).count(), 1, "{errors}");
    assert!(
        errors.contains("(GPU 1), raise with") && errors.contains("denied once"),
        "{errors}"
    );
    assert_eq!(denied(rig, "both"), (1, 0));
    // The same on both devices, and the second recovers alone.
    let lines = [&too_much(), "ctx 1", &too_much(), &small, "leave 1"];
    let options = ["-g", "0,1", "-m", "2GiB", "--name", "first", "--summary"];
    let (_, errors) = heard_with(rig, &options, &lines);
    assert_eq!(errors.matches(LINE).count(), 1, "{errors}");
    assert!(
        errors.contains("(GPU 0), raise with") && errors.contains("denied once"),
        "{errors}"
    );
    assert_eq!(denied(rig, "first"), (2, 1));
}
