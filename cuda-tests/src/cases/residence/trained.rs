// SPDX-License-Identifier: Apache-2.0
//! A training that is suspended, or moved, again and again has the losses of one that is not, bit by bit, and neither
//! its process nor the broker nor the books grow.

use std::time::Duration;

use super::super::{Case, tenth};
use super::said::{ok, state, train, trains};
use crate::client::PATIENCE;
use crate::rig::{GIB, Rig};

pub fn cases() -> Vec<Case> {
    const BITS: &str = "the vendor's driver gives no promise of equal bits to tinygrad's kernels";
    vec![
        Case::new("residence::training_goes_on_bit_by_bit", training).simulated(BITS),
        Case::new("residence::training_moves_bit_by_bit", training_moves).simulated(BITS),
    ]
}

fn training(rig: &Rig) {
    let suspend = |rig: &Rig, _: u64| {
        // One that ended, or has not begun, is not suspended.
        let is_done = rig.output(rig.partage(&["suspend", "moved"])).status.success();
        if is_done {
            fills_the_room(rig);
            ok(rig, &["resume", "moved"]);
        }
        is_done
    };
    trained(rig, 50 / tenth() + 3, suspend);
}

/// Another job takes nearly all of the device, which the one that left was promised a part of.
fn fills_the_room(rig: &Rig) {
    let mut other = rig.client(&["-m", "15GiB", "-g", "0", "--name", "other", "--on-full", "fail"]);
    other.ready();
    other.expect(&format!("alloc {} all", 14 * GIB), "alloc 0");
    assert!(other.finish().success());
    rig.eventually(PATIENCE, "it ended", || state(rig, "other").is_empty());
}

/// What a process of a job and the broker have open and running, and what the books say of the job once they agree
/// with the driver's.
#[derive(Debug)]
pub(super) struct Held {
    descriptors: usize,
    threads: usize,
    resident_mib: u64,
    broker_descriptors: usize,
    broker_threads: usize,
    used: u64,
}

impl Held {
    pub(super) fn of(rig: &Rig, job: &str, pid: u32) -> Self {
        rig.eventually(PATIENCE, "the ledger says what the driver says", || rig.books_agree());
        let jobs = rig.jobs();
        let job = jobs.iter().find(|view| view["name"] == job).expect("it is listed");
        let used = job["devices"][0]["used_bytes"].as_u64().expect("bytes");
        let (descriptors, threads) = open_in(pid);
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        let (broker_descriptors, broker_threads) = open_in(rig.broker_pid_quick().expect("a broker"));
        Self {
            descriptors,
            threads,
            resident_mib: kib.expect("a number") / 1024,
            broker_descriptors,
            broker_threads,
            used,
        }
    }

    /// Asserts that nothing has grown since then.
    pub(super) fn is_flat(&self, early: &Self) {
        let grown = [
            (self.descriptors, early.descriptors + 2),
            (self.threads, early.threads + 2),
            // A copy of the device's memory that stayed would be more than this, each time.
            (self.resident_mib as usize, early.resident_mib as usize + 96),
            // Those of connections and helpers that come and go.
            (self.broker_descriptors, early.broker_descriptors + 4),
            (self.broker_threads, early.broker_threads + 4),
        ];
        assert!(grown.iter().all(|(late, most)| late <= most), "{early:?}, {self:?}");
        assert_eq!(self.used, early.used, "what it holds");
    }
}

/// Descriptors and threads.
fn open_in(pid: u32) -> (usize, usize) {
    let folder = |what: &str| std::fs::read_dir(format!("/proc/{pid}/{what}"));
    ["fd", "task"]
        .map(|what| folder(what).expect("it lives").count())
        .into()
}

/// Between two devices.
fn training_moves(rig: &Rig) {
    let go = |rig: &Rig, times: u64| {
        let to = ["1", "0"][times as usize % 2];
        let moved = rig.output(rig.partage(&["migrate", "moved", "--to", to]));
        moved.status.success()
    };
    trained(rig, 50 / tenth() + 3, go);
}

/// Trains alone and while `disturb` is called again and again with how often it did something: the losses are equal.
fn trained(rig: &Rig, rounds: usize, disturb: impl Fn(&Rig, u64) -> bool) {
    let steps = 400 / tenth() * 2;
    let Some(alone) = train(rig, "alone", steps) else {
        return;
    };
    let alone = rig.output(alone);
    assert!(alone.status.success(), "{}", String::from_utf8_lossy(&alone.stderr));
    let Some(mut moved) = train(rig, "moved", steps) else {
        return;
    };
    let stops = rig.dir.join("stops");
    std::fs::create_dir(&stops).expect("ours");
    moved.env("STOPS", &stops);
    let moved = moved.spawn().expect("it starts");
    let pid = moved.id();
    trains(rig, "moved");
    let mut times = 0;
    let mut some = |rounds: usize| {
        for _ in 0..rounds {
            times += u64::from(disturb(rig, times));
            std::thread::sleep(Duration::from_millis(60));
        }
    };
    // While its kernels are built, and once it has all that it will ever have.
    some(rounds / 2);
    rig.eventually(PATIENCE, "its graph is captured", || stops.join("settled").exists());
    let early = Held::of(rig, "moved", pid);
    std::fs::write(stops.join("settled.go"), b"").expect("ours");
    some(rounds - rounds / 2);
    rig.eventually(PATIENCE, "its last step is done", || stops.join("done").exists());
    let late = Held::of(rig, "moved", pid);
    std::fs::write(stops.join("done.go"), b"").expect("ours");
    rig.note(format!("{early:?} early, {late:?} at the end"));
    late.is_flat(&early);
    let output = moved.wait_with_output().expect("ours");
    assert!(output.status.success());
    rig.eventually(PATIENCE, "nothing is left", || {
        rig.ledger_used() == 0 && rig.books_agree()
    });
    rig.note(format!("disturbed {times} times"));
    assert!(times >= 3, "it was disturbed {times} times only");
    let (alone, moved) = (
        String::from_utf8_lossy(&alone.stdout),
        String::from_utf8_lossy(&output.stdout),
    );
    assert_eq!(alone, moved, "the losses differ");
}
