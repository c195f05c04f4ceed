// SPDX-License-Identifier: Apache-2.0
//! Processes that share a device: judged by the timeline's own account of device time, never by wall time.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;
use std::sync::Arc;

use partage_abi::types::*;
use partage_machine::Machine;
use partage_machine::timeline::{SeatTruth, Timeline};

use crate::machine::{Driver, Value, call, finish, make, role, start, until};

const COMPUTE: usize = 0;

/// A client that keeps the device busy with kernels of `length` until its input ends. It says when it has begun.
fn client(length: u64) {
    let driver = Driver::open();
    let stream = driver.stream(0);
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
        let events: Vec<CuEvent> = (0..4).map(|_| driver.event()).collect();
        let mut is_begun = false;
        // Never more than a few batches ahead, and never without work: 30 ms of it lie there while this thread has to
        // wait for a processor.
        let batch = (10_000_000 / length).clamp(8, 200);
        while !ended.is_finished() {
            for &event in &events {
                call!(driver, cuEventSynchronize(event));
                for _ in 0..batch {
                    driver.launch("spin_ns", stream, &[Value::Long(length)]);
                }
                call!(driver, cuEventRecord(event, stream));
            }
            if !std::mem::replace(&mut is_begun, true) {
                println!("begun");
            }
        }
    });
    call!(driver, cuCtxSynchronize());
}

fn wait_begun(child: &mut Child) {
    let output = child.stdout.take().expect("piped");
    let mut lines = BufReader::new(output).lines();
    assert!(
        lines.any(|line| line.is_ok_and(|line| line.contains("begun"))),
        "the client began"
    );
    // The rest is read, so that the client never waits for room in the pipe.
    std::thread::spawn(move || lines.for_each(drop));
}

fn timeline(folder: &std::path::Path) -> Arc<Timeline> {
    Arc::new(
        Machine::open(folder)
            .expect("the machine opens")
            .timeline()
            .expect("the timelines open"),
    )
}

fn of(timeline: &Timeline, child: &Child) -> Option<SeatTruth> {
    timeline
        .truth(0)
        .seats
        .into_iter()
        .find(|seat| seat.owner.pid == u64::from(child.id()))
}

fn share(test: &str, lengths: [u64; 2]) {
    if let Some(role) = role() {
        return client(role.parse().expect("a length"));
    }
    let folder = make(1);
    let mut children = lengths.map(|length| start(test, &folder.0, &length.to_string()));
    children.iter_mut().for_each(wait_begun);
    let timeline = timeline(&folder.0);
    let clock = || timeline.truth(0);
    let busy = |child| of(&timeline, child).expect("it has a seat").busy_ns[COMPUTE];
    // Beyond a limit the device waits for no thread: a machine that stands still disturbs a window now and then.
    let mut windows = Vec::new();
    let is_even = |(used, elapsed): &([u64; 2], u64)| used.iter().all(|used| used.abs_diff(elapsed / 2) < elapsed / 20);
    while windows.len() < 5 && !windows.last().is_some_and(is_even) {
        let (begun, before) = (clock(), [busy(&children[0]), busy(&children[1])]);
        until("300 ms of device time", || clock().clock - begun.clock > 300_000_000);
        let (ended, after) = (clock(), [busy(&children[0]), busy(&children[1])]);
        windows.push(([after[0] - before[0], after[1] - before[1]], ended.clock - begun.clock));
    }
    for child in &mut children {
        drop(child.stdin.take());
    }
    children.into_iter().for_each(|child| finish(child, test));
    let last = windows.last().is_some_and(is_even);
    assert!(last, "what each used, of the device time, in ns: {windows:?}");
}

#[test]
fn two_processes_share_the_device_evenly() {
    share("sharing::two_processes_share_the_device_evenly", [1_000_000, 1_000_000]);
}

#[test]
fn short_kernels_get_as_much_time_as_long_ones() {
    share(
        "sharing::short_kernels_get_as_much_time_as_long_ones",
        [100_000, 20_000_000],
    );
}

#[test]
fn queued_kernels_run_while_their_process_is_stopped() {
    const LENGTH: u64 = 50_000_000;
    const QUEUED: u64 = 6;
    let test = "sharing::queued_kernels_run_while_their_process_is_stopped";
    if role().is_some() {
        let driver = Driver::open();
        let stream = driver.stream(0);
        let event = driver.event();
        for _ in 0..QUEUED {
            driver.launch("spin_ns", stream, &[Value::Long(LENGTH)]);
            // What is between two kernels and takes no time does not keep the second.
            call!(driver, cuEventRecord(event, stream));
        }
        println!("begun");
        std::io::stdin().read_to_end(&mut Vec::new()).expect("readable");
        return call!(driver, cuCtxSynchronize());
    }
    let folder = make(1);
    let mut child = start(test, &folder.0, "body");
    wait_begun(&mut child);
    let pid = child.id() as libc::pid_t;
    let timeline = timeline(&folder.0);
    let busy = || of(&timeline, &child).map_or(0, |seat| seat.busy_ns[COMPUTE]);
    // A thread of the process hands the kernels in, maybe after the calls that launched them returned.
    until("the first of its kernels runs, and the device has them all", || {
        of(&timeline, &child).is_some_and(|seat| {
            let (busy, left) = (seat.busy_ns[COMPUTE], u64::from(seat.queued[COMPUTE]));
            busy > 0 && busy / LENGTH + left >= QUEUED
        })
    });
    partage_machine::process::stop(child.id());
    until("all of its kernels have run", || busy() == QUEUED * LENGTH);
    // SAFETY: a child of ours that was not waited for.
    unsafe { libc::kill(pid, libc::SIGCONT) };
    drop(child.stdin.take());
    finish(child, test);
    assert_eq!(timeline.truth(0).busy_of(pid as u32)[COMPUTE], QUEUED * LENGTH);
}

#[test]
fn killed_holder_gives_the_device_back() {
    let test = "sharing::killed_holder_gives_the_device_back";
    if let Some(role) = role() {
        return client(role.parse().expect("a length"));
    }
    let folder = make(1);
    // The first one's kernel would last for an hour.
    let [mut hog, mut other] = ["3600000000000", "1000000"].map(|length| start(test, &folder.0, length));
    let timeline = timeline(&folder.0);
    until("both on the device", || {
        [&hog, &other]
            .iter()
            .all(|child| of(&timeline, child).is_some_and(|seat| seat.busy_ns[COMPUTE] > 0))
    });
    hog.kill().expect("kill");
    hog.wait().expect("reap");
    assert!(of(&timeline, &hog).is_none(), "its seat is gone");
    let mut windows = Vec::new();
    let is_busy = |(gained, elapsed): &(u64, u64)| *gained > elapsed * 8 / 10;
    while windows.len() < 5 && !windows.last().is_some_and(is_busy) {
        let (before, used) = (
            timeline.truth(0),
            of(&timeline, &other).expect("alive").busy_ns[COMPUTE],
        );
        until("100 ms of device time", || {
            timeline.truth(0).clock - before.clock > 100_000_000
        });
        let gained = of(&timeline, &other).expect("alive").busy_ns[COMPUTE] - used;
        windows.push((gained, timeline.truth(0).clock - before.clock));
    }
    let last = windows.last().is_some_and(is_busy);
    assert!(
        last,
        "what the other one gained, of the device time, in ns: {windows:?}"
    );
    other.stdin.take().expect("piped").flush().expect("flush");
    finish(other, test);
}

#[test]
fn hung_kernel_of_one_process_does_not_stop_another() {
    let test = "sharing::hung_kernel_of_one_process_does_not_stop_another";
    if let Some(role) = role() {
        return client(role.parse().expect("a length"));
    }
    let folder = make(1);
    std::fs::write(folder.0.join("faults"), "hang:spin_ns:3\n").expect("the control file");
    let mut hung = start(test, &folder.0, "1000000");
    let timeline = timeline(&folder.0);
    until("the kernel hangs", || {
        of(&timeline, &hung).is_some_and(|seat| seat.busy_ns[COMPUTE] > 50_000_000)
    });
    std::fs::write(folder.0.join("faults"), "").expect("the control file");
    let mut other = start(test, &folder.0, "1000000");
    wait_begun(&mut other);
    let (before, used) = (
        timeline.truth(0).clock,
        of(&timeline, &other).expect("alive").busy_ns[COMPUTE],
    );
    until("100 ms of device time", || {
        timeline.truth(0).clock - before > 100_000_000
    });
    let gained = of(&timeline, &other).expect("alive").busy_ns[COMPUTE] - used;
    assert!(gained > 35_000_000, "{gained} ns of the half");
    hung.kill().expect("kill");
    hung.wait().expect("reap");
    drop(other.stdin.take());
    finish(other, test);
}
