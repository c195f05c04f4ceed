// SPDX-License-Identifier: Apache-2.0
//! `partage why` of a job that is slow: each cause staged with real processes, asked for as text and as a document.
//!
//! An answer has to become right in time, and to be right again a moment later.

use std::time::Duration;

use serde_json::Value;

use super::Case;
use crate::rig::{GIB, Rig};
use crate::time_client::TimeClient;
use crate::truth::Truth;

pub fn cases() -> Vec<Case> {
    let simulated = |name, body| Case::new(name, body).simulated("what else a real GPU does is not known");
    vec![
        simulated("why::a_cap_is_named_with_its_words", cap),
        simulated("why::neighbours_name_each_other", neighbour),
        simulated("why::a_higher_priority_is_named", priority),
        simulated("why::a_program_without_partage_is_named", unmanaged),
        simulated("why::a_program_without_partage_is_counted_beside_a_cap", counted),
        simulated("why::a_program_that_asks_for_little_is_told_so", program),
        simulated("why::a_neighbour_whose_work_does_not_end_is_named", hung),
        simulated("why::a_denial_comes_before_what_is_slow", denial),
    ]
}

/// How long an answer may take to become right.
const PATIENCE: Duration = Duration::from_secs(60);
/// Device time to the second look: views are a second old at most.
const LATER: u64 = 1_200_000_000;
const SATURATE: &str = "kernel 4000000";

/// A job on device 0 with a name.
fn start(rig: &Rig, name: &str, options: &[&str], pattern: &str) -> TimeClient {
    TimeClient::under(rig, &[&["-g", "0", "--name", name], options].concat(), "0", pattern)
}

/// The job's id.
fn id(rig: &Rig, name: &str) -> String {
    rig.json(&["get", name])["job"]["job"]
        .as_str()
        .expect("an id")
        .to_owned()
}

/// The cause that `why` names on the job's only device, by whom, and everything it says.
fn ask(rig: &Rig, name: &str) -> (String, Vec<String>, String) {
    let document = rig.json(&["why", name]);
    let texts = |value: &Value| -> Vec<String> {
        let values = value.as_array().into_iter().flatten();
        values.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let cause = &document["causes"][0];
    let word = cause["cause"].as_str().unwrap_or("not known").to_owned();
    (word, texts(&cause["by"]), texts(&document["sentences"]).join("\n"))
}

/// Waits until `why` names the cause in these words, and looks again later.
#[track_caller]
fn names(rig: &Rig, truth: &Truth, name: &str, cause: &str, by: &[&str], words: &[&str]) {
    let is_right = |(word, who, text): &(String, Vec<String>, String)| {
        word == cause && who == by && words.iter().all(|part| text.contains(part))
    };
    let (started, mut in_a_row) = (std::time::Instant::now(), 0);
    while in_a_row < 2 {
        let answer = ask(rig, name);
        in_a_row = if is_right(&answer) { in_a_row + 1 } else { 0 };
        if in_a_row == 0 {
            assert!(
                started.elapsed() < PATIENCE,
                "{name}: not {cause} by {by:?} with {words:?}, but {answer:#?}"
            );
            continue;
        }
        rig.note(format!("{name}: {cause} after {:?}: {}", started.elapsed(), answer.2));
        if in_a_row < 2 {
            truth.watch(0, LATER);
        }
    }
    // The text says the same, in lines of the terminal's width.
    let text = rig.output(rig.partage(&["why", name])).stdout;
    let text = String::from_utf8_lossy(&text)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(words.iter().all(|part| text.contains(part)), "{words:?}: {text}");
}

fn cap(rig: &Rig) {
    let truth = Truth::of(rig);
    let client = start(rig, "slow", &["--compute-max", "25%"], SATURATE);
    truth.wait_for_work_of(0, &[client.pid()]);
    let more = format!("partage set {} compute-max=PCT, or none", id(rig, "slow"));
    let words = [
        "its cap of 25 % (--compute-max 25%)",
        "in the last minute; it waited",
        &more,
    ];
    names(rig, &truth, "slow", "cap", &[], &words);
    assert_eq!(
        rig.json(&["get", "slow"])["job"]["devices"][0]["time"]["held_by"],
        "cap"
    );
}

fn neighbour(rig: &Rig) {
    let truth = Truth::of(rig);
    let clients = ["one", "two"].map(|name| start(rig, name, &[], SATURATE));
    truth.wait_for_work_of(0, &clients.each_ref().map(TimeClient::pid));
    for (name, other) in [("one", "two"), ("two", "one")] {
        let (id, other_id) = (id(rig, name), id(rig, other));
        let (who, more) = (
            format!("/{other}): its share is"),
            format!("partage set {id} compute=PCT, or weight=N"),
        );
        let words = ["it shares the device with", &who, "it waited", &more];
        names(rig, &truth, name, "neighbour", &[&other_id], &words);
    }
}

fn priority(rig: &Rig) {
    let truth = Truth::of(rig);
    let clients = [
        start(rig, "low", &["--priority", "low"], SATURATE),
        start(rig, "high", &["--priority", "high"], SATURATE),
    ];
    truth.wait_for_work_of(0, &clients.each_ref().map(TimeClient::pid));
    let more = format!("partage set {} priority=high", id(rig, "low"));
    let words = ["/high) has priority high, this job low", "it waited", &more];
    names(rig, &truth, "low", "priority", &[&id(rig, "high")], &words);
}

fn unmanaged(rig: &Rig) {
    let truth = Truth::of(rig);
    let mut stranger = TimeClient::bare(rig, "0", SATURATE);
    let client = start(rig, "slow", &[], SATURATE);
    truth.wait_for_work_of(0, &[client.pid(), stranger.pid()]);
    let who = format!("pid {}", stranger.pid());
    let words = [
        who.as_str(),
        "of its time without Partage",
        "it got",
        "start that program with `partage run` as well, or end it",
    ];
    names(rig, &truth, "slow", "unmanaged", &[&who], &words);
    let busy = |document: &Value, field: &str| document[field].as_f64().unwrap_or(0.0);
    let shown = rig.json(&["ps"])["unmanaged"][0].clone();
    assert_eq!(shown["pid"], stranger.pid());
    assert!(busy(&shown, "busy") >= 0.2, "{shown}");
    let device = rig.json(&["status"])["devices"][0].clone();
    assert!(busy(&device, "unmanaged_time") >= 0.2, "{device}");
    assert!(device["unmanaged_notes"].to_string().contains(&who), "{device}");
    let events = rig.output(rig.partage(&["events", "--json"])).stdout;
    assert!(String::from_utf8_lossy(&events).contains("unmanaged-busy"));
    // Beside another job it is named, whatever else there is to say.
    let other = start(rig, "other", &[], SATURATE);
    truth.wait_for_work_of(0, &[other.pid()]);
    rig.eventually(PATIENCE, "a stranger beside two jobs", || {
        let answers = ["slow", "other"].map(|name| ask(rig, name).2);
        let is_named = |text: &String| text.contains(&who) && text.contains("of its time without Partage");
        answers.iter().all(is_named)
    });
    drop(other);
    stranger.kill();
    rig.eventually(PATIENCE, "nobody is named any more", || {
        let (cause, _, text) = ask(rig, "slow");
        cause != "unmanaged" && text.contains("no other job has a program there")
    });
    drop(client);
}

fn counted(rig: &Rig) {
    let truth = Truth::of(rig);
    let stranger = TimeClient::bare(rig, "0", SATURATE);
    let client = start(rig, "capped", &["--compute-max", "25%"], "kernel 500000");
    truth.wait_for_work_of(0, &[client.pid(), stranger.pid()]);
    // Charged for what the stranger had, it would get half of its cap. It hardly gets more in any case.
    let mut in_a_row = 0;
    rig.eventually(PATIENCE, "all of a cap", || {
        let span = truth.watch(0, LATER);
        rig.note(span.describe(&[client.pid(), stranger.pid()]));
        // No more of the clock's time, and no less of the device's, which stands still while this machine is busy.
        let (part, of_device) = (span.wall_part_ppm(client.pid()), span.part_ppm(client.pid()));
        assert!(part < 350_000, "more than a cap: {part} ppm");
        in_a_row = if part < 270_000 && of_device >= 220_000 {
            in_a_row + 1
        } else {
            0
        };
        in_a_row == 2
    });
    assert_eq!(ask(rig, "capped").0, "cap");
}

fn program(rig: &Rig) {
    let truth = Truth::of(rig);
    let alone = start(rig, "alone", &[], "burst 500000 9500000");
    truth.wait_for_work_of(0, &[alone.pid()]);
    let own = [
        "nothing of Partage holds it back",
        "The GPU waits for the program",
        "CPU side",
    ];
    let shown = [&own[..], &["NVML shows it at work for this job"]].concat();
    names(rig, &truth, "alone", "program", &[], &shown);
    drop(alone);
    // What is measured says it with its own numbers.
    let capped = start(rig, "capped", &["--compute-max", "90%"], "burst 500000 9500000");
    truth.wait_for_work_of(0, &[capped.pid()]);
    let measured = [&own[..], &["it may have 90.0 %, it got", "it wanted the GPU for"]].concat();
    names(rig, &truth, "capped", "program", &[], &measured);
}

fn hung(rig: &Rig) {
    let truth = Truth::of(rig);
    // Work that was launched while somebody else was there is known; what was launched before is seen by NVML alone.
    let client = start(rig, "slow", &[], SATURATE);
    truth.wait_for_work_of(0, &[client.pid()]);
    let first = start(rig, "stuck", &[], "hang");
    truth.wait_for_work_of(0, &[first.pid()]);
    let (other, stop) = (id(rig, "stuck"), format!("partage stop {}", id(rig, "stuck")));
    let words = ["/stuck) does not end", "whose share is", stop.as_str()];
    names(rig, &truth, "slow", "neighbour", &[&other], &words);
    names(rig, &truth, "stuck", "not-draining", &[], &["its work does not end"]);
    drop((client, first));
    let second = start(rig, "before", &[], "hang");
    truth.wait_for_work_of(0, &[second.pid()]);
    let client = start(rig, "late", &[], SATURATE);
    truth.wait_for_work_of(0, &[client.pid()]);
    let (other, stop) = (id(rig, "before"), format!("partage stop {}", id(rig, "before")));
    let words = ["/before) has work there from before this job came", stop.as_str()];
    names(rig, &truth, "late", "neighbour", &[&other], &words);
}

fn denial(rig: &Rig) {
    let mut client = rig.client(&["-g", "0", "-m", "1GiB", "--name", "full"]);
    client.ready();
    client.expect(&format!("alloc {} a", 2 * GIB), "alloc 2");
    rig.eventually(PATIENCE, "what is slow comes after the denial", || {
        let (cause, _, text) = ask(rig, "full");
        let found = |part| text.find(part);
        let denied =
            found("it is more than the limit of 1 GiB").filter(|_| text.starts_with("2 GiB was denied on GPU 0"));
        cause == "program" && denied.is_some() && denied < found("nothing of Partage holds it back")
    });
}
