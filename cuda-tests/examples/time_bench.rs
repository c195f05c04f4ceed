// SPDX-License-Identifier: Apache-2.0
//! What sharing a device's time costs, on the simulated driver: rows for `scripts/bench`, cells separated by tabs.
//!
//! - *hand-over*: device time that is lost, idle or switching, each time a device passes from one saturating job to
//!   another; the same jobs beside it without Partage, by the device's own slices.
//! - *broker*: processor time that the broker takes, in percent of one processor, with so many clients attached.
//! - *share*: what each of several saturating jobs got of the device's work in one second of its time, per device
//!   account.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use partage_tests::artefacts::program;
use partage_tests::rig::{Rig, Spec};
use partage_tests::time_client::TimeClient;
use partage_tests::truth::Truth;

const MILLISECOND: u64 = 1_000_000;
/// Device time before anything is measured: jobs that saturate a device take turns after a quarter of a second.
const WARM_UP: u64 = 1_500 * MILLISECOND;
/// After which clients that have attached are idle: their memory is measured, and the broker looks less and less often
/// at devices on which nobody wants anything.
const SETTLE: Duration = Duration::from_secs(8);
/// For how long the broker's processor time is measured.
const WINDOW: Duration = Duration::from_secs(4);

fn main() {
    handovers();
    for (name, terms) in [
        ("1:1", &[(100, "kernel 20000"), (100, "kernel 5000000")][..]),
        ("3:1", &[(300, "kernel 100000"), (100, "kernel 5000000")]),
        ("9:1", &[(900, "kernel 500000"), (100, "kernel 100000")]),
        (
            "5/15/30/50",
            &[
                (5, "kernel 500000"),
                (15, "kernel 100000"),
                (30, "kernel 1000000"),
                (50, "streams 4 200000"),
            ],
        ),
    ] {
        shares(name, terms);
    }
    for clients in [1, 64, 1_000] {
        broker(clients);
    }
}

fn rig() -> Rig {
    Rig::new(Spec {
        gpus: 1,
        ..Spec::default()
    })
}

fn row(cells: [String; 5]) {
    println!("{}", cells.join("\t"));
}

/// Two equal jobs with kernels of half a millisecond.
fn handovers() {
    const PATTERN: &str = "kernel 500000";
    let lost_us = |is_managed: bool| {
        let rig = rig();
        let truth = Truth::of(&rig);
        let start = || match is_managed {
            true => TimeClient::under(&rig, &["-m", "2GiB"], "0", PATTERN),
            false => TimeClient::bare(&rig, "0", PATTERN),
        };
        let clients = [start(), start()];
        let pids = clients.each_ref().map(TimeClient::pid);
        truth.wait_for_work_of(0, &pids);
        truth.watch(0, WARM_UP);
        let span = truth.watch(0, 2_000 * MILLISECOND);
        eprintln!("note: {}", span.describe(&pids));
        let lost_ppm = span.idle_ppm() + span.switching_ppm();
        let lost_us = (lost_ppm * span.elapsed_ns / 1_000_000) as f64 / 1e3;
        (lost_us / span.handovers().max(1) as f64, lost_ppm as f64 / 1e4)
    };
    let ((bare, bare_part), (ours, our_part)) = (lost_us(false), lost_us(true));
    row([
        "hand-over between two saturating jobs, device time lost".into(),
        format!("{bare:.1} µs"),
        format!("{ours:.1} µs"),
        format!("{:+.1} µs", ours - bare),
        format!("{:.2}", ours / bare.max(0.1)),
    ]);
    row([
        "the same, part of the device's time".into(),
        format!("{bare_part:.2} %"),
        format!("{our_part:.2} %"),
        format!("{:+.2} %", our_part - bare_part),
        String::new(),
    ]);
}

/// Jobs of these weights, saturating.
fn shares(name: &str, terms: &[(u64, &str)]) {
    let rig = rig();
    let truth = Truth::of(&rig);
    let start = |(weight, pattern): &(u64, &str)| {
        let weight = weight.to_string();
        TimeClient::under(&rig, &["-m", "2GiB", "--weight", &weight], "0", pattern)
    };
    let clients: Vec<TimeClient> = terms.iter().map(start).collect();
    let pids: Vec<u32> = clients.iter().map(TimeClient::pid).collect();
    truth.wait_for_work_of(0, &pids);
    truth.watch(0, WARM_UP);
    let span = truth.watch(0, 4_000 * MILLISECOND);
    let sum: u64 = terms.iter().map(|(weight, _)| weight).sum();
    let mut worst: f64 = 0.0;
    let mut got = Vec::new();
    for ((weight, _), pid) in terms.iter().zip(&pids) {
        let part = span.share_ppm(*pid) as f64 / 1e4;
        worst = worst.max((part - *weight as f64 * 100.0 / sum as f64).abs());
        got.push(format!("{part:.1}"));
    }
    row([
        format!("shares by weight {name}, 4 s of device time"),
        String::new(),
        format!("{} %", got.join("/")),
        format!("worst {worst:.2} points off"),
        String::new(),
    ]);
}

/// The broker's processor time with so many clients: all idle, and with two of them saturating the device.
fn broker(clients: usize) {
    let rig = rig();
    let crowd = |count: usize| (count > 0).then(|| Crowd::start(&rig, count));
    {
        // Of two jobs where there are two: a job alone has nobody to be judged against.
        let _crowds = [crowd(clients.div_ceil(2)), crowd(clients / 2)];
        std::thread::sleep(SETTLE);
        report(&rig, &format!("broker, {clients} client(s), idle"));
    }
    if clients < 2 {
        let client = TimeClient::under(&rig, &["-m", "1GiB"], "0", "kernel 500000");
        Truth::of(&rig).wait_for_work_of(0, &[client.pid()]);
        report(&rig, "broker, 1 client, saturating, alone");
        return;
    }
    let _crowds = [crowd(clients / 2 - 1), crowd(clients.div_ceil(2) - 1)];
    let start = || TimeClient::under(&rig, &["-m", "1GiB"], "0", "kernel 500000");
    let busy = [start(), start()];
    let truth = Truth::of(&rig);
    truth.wait_for_work_of(0, &busy.each_ref().map(TimeClient::pid));
    truth.watch(0, WARM_UP);
    report(&rig, &format!("broker, {clients} clients, two of them saturating"));
}

/// Measures the broker for a while.
fn report(rig: &Rig, name: &str) {
    let broker = rig.broker_pid().expect("a broker");
    let (before, begun) = (processor_time(broker), Instant::now());
    std::thread::sleep(WINDOW);
    let used = processor_time(broker) - before;
    let part = used.as_secs_f64() / begun.elapsed().as_secs_f64() * 100.0;
    row([
        format!("{name}: processor time"),
        String::new(),
        format!("{part:.2} %"),
        String::new(),
        String::new(),
    ]);
}

/// What a process and its threads have used, by the kernel's account in its clock ticks of a hundredth of a second.
fn processor_time(pid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the broker lives");
    // The name, in parentheses, may hold spaces; utime and stime are the fields 14 and 15 (proc_pid_stat(5)).
    let after_name = text.rsplit_once(')').expect("a name").1;
    let fields: Vec<i64> = after_name
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    // The state is no number: of what is left, field 4 is the first.
    Duration::from_millis(10 * (fields[10] + fields[11]).unsigned_abs())
}

/// Clients of one job that do nothing. They end with their parent.
struct Crowd(Child);

impl Crowd {
    fn start(rig: &Rig, count: usize) -> Self {
        let path = program("crowd", "crowd.c", &["-ldl"]);
        let mut command = rig.run(&["-m", "1GiB"], &path, &[&count.to_string()]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("partage runs");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        assert_eq!(line.trim(), "ready", "{count} clients attach");
        Self(child)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
