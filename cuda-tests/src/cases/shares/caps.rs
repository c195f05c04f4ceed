// SPDX-License-Identifier: Apache-2.0
//! Caps: a job alone, one with a deep queue, one that has just begun, and one of several processes.

use super::measure::*;
use crate::rig::Rig;
use crate::time_client::TimeClient;
use crate::truth::{Span, Truth};

fn capped(percent: u64) -> String {
    format!("{percent}%")
}

/// One job, alone, with this pattern, under this cap.
fn capped_alone(rig: &Rig, percent: u64, pattern: &str) {
    let truth = Truth::of(rig);
    let cap = capped(percent);
    let (running, pids) = start(rig, &[(&["--compute-max", &cap], pattern)]);
    truth.wait_for_work_of(0, &pids);
    truth.watch(0, 500 * MILLISECOND);
    near_cap(rig, &truth, &pids, percent * POINT);
    for client in running {
        client.stop();
    }
}

pub fn caps(rig: &Rig) {
    for percent in [10, 25, 50, 75] {
        capped_alone(rig, percent, "kernel 500000");
    }
}

/// Whatever the program keeps in the queue, in whichever stream.
pub fn deep_caps(rig: &Rig) {
    for pattern in ["queue 16 200000 0", "queue 16 200000 1"] {
        capped_alone(rig, 30, pattern);
    }
}

/// A program that launches all that a queue holds at once, in a stream of its own and in the legacy default one: from
/// its first launch on it has no more than its budget and what may be in flight, two kernels, however long the launches
/// of which nothing is known yet take.
pub fn first_launches(rig: &Rig) {
    const KERNEL: u64 = 5 * MILLISECOND;
    for stream in [0, 1] {
        let truth = Truth::of(rig);
        let pattern = format!("queue 500 {KERNEL} {stream}");
        let (running, pids) = start(rig, &[(&["--compute-max", "20%"], &pattern)]);
        let before = truth.wait_for_work_of(0, &pids);
        truth.watch(0, 80 * MILLISECOND);
        let span = before.until(truth.sample(0));
        rig.note(span.describe(&pids));
        // A period's end may lie in the window, or two where the device stood still; what was there at its beginning is
        // not in it.
        let periods = span.wall_ns() / (100 * MILLISECOND) + 2;
        let most = periods * 20 * MILLISECOND + 3 * KERNEL;
        let busy = span.busy_ns(pids[0]);
        assert!(busy <= most, "{busy} ns of at most {most} in {}", span.describe(&pids));
        // What is still in the queue is its own affair.
        drop(running);
    }
}

/// Holds the part that jobs got, together, against their cap: no more of the clock's time, whose periods a cap has, and
/// no less of the device's, whose clock stands still while this machine keeps its clients from running.
#[track_caller]
fn near_cap(rig: &Rig, truth: &Truth, pids: &[u32], expected: u64) {
    truth.judge(rig, 0, WINDOW, pids, |span| {
        let sum = |part: fn(&Span, u32) -> u64| pids.iter().map(|pid| part(span, *pid)).sum::<u64>();
        let (of_wall, of_device) = (sum(Span::wall_part_ppm), sum(Span::part_ppm));
        holds(
            of_wall <= expected + TOLERANCE && of_device + TOLERANCE >= expected,
            || {
                format!(
                    "{of_wall} ppm of the wall time and {of_device} of the device's, expected {expected} ± {TOLERANCE}"
                )
            },
        )
    });
}

pub fn live(rig: &Rig) {
    let truth = Truth::of(rig);
    let options: &[&str] = &["--name", "live"];
    let (running, pids) = start(rig, &[(options, "kernel 500000")]);
    truth.wait_for_work_of(0, &pids);
    for percent in [20, 80] {
        let change = format!("compute-max={}", capped(percent));
        let set = rig.output(rig.partage(&["set", "live", &change]));
        assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
        // Two periods, and the one that the change fell into.
        truth.watch(0, SETTLED);
        near_cap(rig, &truth, &pids, percent * POINT);
    }
    for client in running {
        client.stop();
    }
}

pub fn processes(rig: &Rig) {
    let truth = Truth::of(rig);
    let many = TimeClient::several(rig, &["-g", "0", "--compute-max", "30%"], 3, "0", "kernel 500000");
    truth.wait_for_work_of(0, many.pids());
    truth.watch(0, 500 * MILLISECOND);
    near_cap(rig, &truth, many.pids(), 300_000);
}
