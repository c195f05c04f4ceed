// SPDX-License-Identifier: Apache-2.0
//! Sharing a device's time under Partage, judged by the simulated device's own account of device time: weights,
//! promises, caps, what is left to a job alone, and that no job stands still because of another.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use partage_protocol::gate::{LANES, Lane, MEASURED, OPEN, TimePage, TimePages, UNBOUNDED};
use partage_protocol::page::ClientFile;

mod caps;
pub(super) mod measure;
mod users;

use caps::{caps, deep_caps, first_launches, live, processes};
use measure::*;

use super::Case;
use crate::pages::Pages;
use crate::rig::Rig;
use crate::time_client::TimeClient;
use crate::truth::Truth;

pub fn cases() -> Vec<Case> {
    let simulated = |name, body| {
        Case::new(name, body)
            .simulated("judged by the simulator's account of device time")
            .alone()
    };
    vec![
        simulated(
            "shares::weights_decide_between_jobs_that_always_want_the_device",
            weights,
        ),
        simulated("shares::kernels_of_unlike_length_do_not_change_the_shares", unlike),
        simulated("shares::users_have_half_each_however_many_jobs_they_have", users::users),
        simulated("shares::four_jobs_get_five_fifteen_thirty_and_fifty_percent", four),
        simulated("shares::a_long_graph_and_small_kernels_get_half_each", graph),
        simulated("shares::a_job_of_many_streams_gets_the_share_of_one", streams),
        simulated("shares::what_is_charged_is_what_the_device_did", accounting).keeping_pace(),
        simulated("shares::a_long_graph_is_charged_its_work", graph_account).keeping_pace(),
        simulated(
            "shares::short_kernels_of_many_streams_are_charged_what_the_device_did",
            streams_account,
        )
        .keeping_pace(),
        simulated("shares::a_cap_holds_for_a_job_alone", caps),
        simulated("shares::a_cap_holds_whatever_waits_in_the_queue", deep_caps),
        simulated("shares::a_cap_holds_from_the_first_launch_on", first_launches),
        simulated("shares::a_cap_changes_while_the_job_runs", live),
        simulated("shares::processes_of_one_job_share_its_cap", processes),
        simulated("shares::a_job_alone_is_never_held_up", alone),
        simulated("shares::a_kernel_that_never_ends_holds_up_nobody_else", hung),
        simulated("shares::time_past_partage_is_charged_to_the_job_that_had_it", past),
        simulated("shares::time_of_a_job_that_wipes_its_marks_is_charged_to_it", forged),
        simulated("shares::who_waits_in_host_functions_leaves_the_device_to_others", hosts),
        simulated("shares::a_stopped_job_holds_up_nobody_else", stopped),
        simulated("shares::who_was_held_goes_on_when_the_other_is_killed", killed),
        simulated(
            "shares::jobs_go_on_without_a_broker_and_get_their_shares_from_the_next",
            broker_killed,
        ),
    ]
}

/// What a job may have under way when it is told to stop: two graphs.
const LONGEST_UNDER_WAY: u64 = 200 * MILLISECOND;
/// Device time over which charges are, and by how much of that a job's may be off: docs/specification.md.
const ACCOUNT: u64 = 10_000 * MILLISECOND;
const OFF: u64 = ACCOUNT / 50;
fn weights(rig: &Rig) {
    for (weight, expected) in [("100", 500_000), ("300", 750_000), ("900", 900_000)] {
        let jobs: [(&[&str], &str); 2] = [(&["--weight", weight], "kernel 500000"), (&[], "kernel 500000")];
        shares(
            rig,
            &jobs,
            &[expected, 1_000_000 - expected],
            MILLISECOND / 2,
            TOLERANCE,
        );
    }
}

fn unlike(rig: &Rig) {
    let jobs: [(&[&str], &str); 2] = [(&[], "kernel 20000"), (&[], "kernel 5000000")];
    shares(rig, &jobs, &[500_000, 500_000], 5 * MILLISECOND, TOLERANCE);
}

fn four(rig: &Rig) {
    let jobs: [(&[&str], &str); 4] = [
        (&["-c", "5%"], "kernel 500000"),
        (&["-c", "15%"], "kernel 1000000"),
        (&["-c", "30%"], "kernel 250000"),
        (&["-c", "50%"], "kernel 2000000"),
    ];
    shares(
        rig,
        &jobs,
        &[50_000, 150_000, 300_000, 500_000],
        2 * MILLISECOND,
        TOLERANCE,
    );
}

fn graph(rig: &Rig) {
    let jobs: [(&[&str], &str); 2] = [(&[], "graph 1000000 100"), (&[], "kernel 200000")];
    shares(rig, &jobs, &[500_000, 500_000], 100 * MILLISECOND, 2 * TOLERANCE);
}

fn streams(rig: &Rig) {
    let jobs: [(&[&str], &str); 2] = [(&[], "streams 4 500000"), (&[], "ptds 500000")];
    shares(rig, &jobs, &[500_000, 500_000], 2 * MILLISECOND, 2 * TOLERANCE);
}

/// What each client's job has used of the device by the broker's account, once that stands still.
fn charged(rig: &Rig, pids: &[u32]) -> Vec<u64> {
    let now = || -> Vec<u64> {
        let jobs = rig.jobs();
        let used = |pid: &u32| {
            let own = jobs.iter().find(|job| job["pid"] == *pid);
            let time = own.map(|job| &job["devices"][0]["time"]["used_ns"]);
            time.and_then(serde_json::Value::as_u64).unwrap_or(0)
        };
        pids.iter().map(used).collect()
    };
    // Views are a second old at most.
    let (mut found, mut since) = (now(), Instant::now());
    rig.eventually(Duration::from_secs(30), "the account stands still", || {
        let new = now();
        if new != found {
            (found, since) = (new, Instant::now());
        }
        since.elapsed() > Duration::from_millis(2_500)
    });
    found
}

/// Holds what jobs were charged while they worked for so long against what the device did for them.
fn account(rig: &Rig, jobs: &[(&[&str], &str)]) {
    let truth = Truth::of(rig);
    let (running, pids) = start(rig, jobs);
    truth.wait_for_work_of(0, &pids);
    truth.watch(0, WARM_UP);
    let hold_or_go_on = || running.iter().for_each(|client| client.signal(libc::SIGUSR1));
    let at_rest = || (charged(rig, &pids), truth.sample(0));
    hold_or_go_on();
    truth.watch(0, LONGEST_UNDER_WAY);
    let before = at_rest();
    hold_or_go_on();
    truth.watch(0, ACCOUNT);
    hold_or_go_on();
    truth.watch(0, LONGEST_UNDER_WAY);
    let after = at_rest();
    let span = before.1.until(after.1);
    let mut is_right = true;
    let found: Vec<String> = (0..pids.len())
        .map(|at| {
            let (charged, busy) = (after.0[at] - before.0[at], span.busy_ns(pids[at]));
            let off = i128::from(charged) - i128::from(busy);
            is_right &= busy > 0 && off.unsigned_abs() <= u128::from(OFF);
            format!("charged {charged} ns of {busy} ({off:+} ns)")
        })
        .collect();
    let all = format!("{}; {}", found.join(", "), span.describe(&pids));
    rig.note(&all);
    assert!(is_right, "more than {OFF} ns off: {all}");
}

fn accounting(rig: &Rig) {
    let jobs: [(&[&str], &str); 4] = [
        (&["--weight", "300"], "kernel 500000"),
        (&["--weight", "200"], "streams 4 500000"),
        (&["--weight", "100"], "ptds 500000"),
        (&["--weight", "100"], "kernel 20000"),
    ];
    account(rig, &jobs);
}

/// The graph's length is never seen, since slices of the other are always in it: it is charged by samples, less what is
/// too much in those of the other, whose kernels' length is known. Samples are made by the clock on the wall, so the
/// device keeps pace with it.
fn graph_account(rig: &Rig) {
    let jobs: [(&[&str], &str); 2] = [(&[], "graph 1000000 100"), (&[], "kernel 200000")];
    account(rig, &jobs);
}

/// The shorter the kernels, the more of what streams do begins and ends between two looks of the broker. How much
/// faster they are together than alone is measured by the clock on the wall, so the device keeps pace with it.
fn streams_account(rig: &Rig) {
    let jobs: [(&[&str], &str); 3] = [
        (&["--weight", "300"], "kernel 500000"),
        (&["--weight", "100"], "streams 4 200000"),
        (&["--weight", "100"], "kernel 20000"),
    ];
    account(rig, &jobs);
}

/// By the library's own word: its gate is open, nothing bounds or marks its work, and no launch has ever waited.
fn alone(rig: &Rig) {
    let truth = Truth::of(rig);
    let client = TimeClient::under(rig, &["-g", "0"], "0", "kernel 200000");
    let pid = client.pid();
    truth.wait_for_work_of(0, &[pid]);
    let pages = Pages::of(pid);
    for _ in 0..10 {
        let span = truth.watch(0, 100 * MILLISECOND);
        let (line, time) = (pages.line(0), pages.time(0));
        let count = |word: &AtomicU64| word.load(Ordering::Relaxed);
        assert_ne!(line.gate.load(Ordering::Relaxed) & OPEN, 0, "closed");
        assert_eq!(count(&line.depth_ns), UNBOUNDED);
        assert_eq!(line.gate_flags.load(Ordering::Relaxed) & MEASURED, 0);
        let waited = (pages.waiting(0), count(&time.waited_ns), count(&time.failed_open));
        assert_eq!(waited, (0, 0, 0), "it waited; {}", span.describe(&[pid]));
        assert!(span.busy_ns(pid) > 0);
    }
    let done = client.stop();
    assert_eq!(truth.sample(0).busy_ns(pid), done.launches * 200_000);
}

/// The part of the work that a job gets beside one that does not let go, once that is known.
#[track_caller]
fn goes_on(rig: &Rig, truth: &Truth, pid: u32, all: &[u32], least_ppm: u64) {
    truth.watch(0, SETTLED);
    truth.judge(rig, 0, 1_000 * MILLISECOND, all, |span| {
        let part = span.part_ppm(pid);
        holds(part >= least_ppm, || format!("{part} ppm of {pid}, of {least_ppm}"))
    });
}

fn hung(rig: &Rig) {
    let truth = Truth::of(rig);
    let (mut hung, pids) = start(rig, &[(&[], "hang")]);
    truth.wait_for_work_of(0, &pids);
    let (running, others) = start(rig, &[(&[], "kernel 500000")]);
    truth.wait_for_work_of(0, &others);
    // The device's own slicing gives it half, less the slices that it gives up when its next launch is late: nothing
    // takes work off a device again.
    goes_on(rig, &truth, others[0], &[pids[0], others[0]], 400_000);
    hung.iter_mut().for_each(TimeClient::kill);
    goes_on(rig, &truth, others[0], &pids, 900_000);
    for client in running {
        client.stop();
    }
}

/// What is said of a job that has more of the device than its marks say.
const DRIFT: &str = "NVML shows GPU 0 at work for it for";

/// Notes, answers and events name the drift of this job, and not of the other.
#[track_caller]
fn is_named(rig: &Rig, job: &str, other: &str) {
    for command in [&["get", job], &["why", job]] {
        let document = rig.json(command).to_string();
        assert!(document.contains(DRIFT), "{document}");
    }
    assert!(!rig.json(&["get", other]).to_string().contains(DRIFT));
    let events = rig.output(rig.partage(&["events", "--json"])).stdout;
    let events = String::from_utf8_lossy(&events);
    assert!(events.contains("\"drift\"") && events.contains(DRIFT), "{events}");
}

/// A client that launches behind the library's back, beside one that does not.
fn past(rig: &Rig) {
    let truth = Truth::of(rig);
    let capped: &[&str] = &["--compute-max", "10%", "--name", "past"];
    let jobs: [(&[&str], &str); 2] = [(capped, "past 4000000"), (&["--name", "victim"], "kernel 4000000")];
    let (clients, pids) = start(rig, &jobs);
    truth.wait_for_work_of(0, &pids);
    // Each has half of the device, whatever a cap says: nothing stops it, and nobody else is charged for it.
    rig.eventually(Duration::from_secs(60), "each is charged what it has", || {
        let got = ["past", "victim"].map(|name| {
            let job = rig.json(&["get", name])["job"].clone();
            let got = job["devices"][0]["time"]["got_1s"].as_f64().unwrap_or(0.0);
            rig.note(format!("{name} got {got}: {}", job["notes"]));
            got
        });
        // Of what both had: while this machine is late the device stands still, and NVML's figures are of the clock.
        let both = got[0] + got[1];
        both >= 0.3 && got[0] >= 0.35 * both && got[1] <= 0.65 * both
    });
    is_named(rig, "past", "victim");
    drop(clients);
}

/// A client that launches as everybody does and writes zeros over its marks, so that they show no work at all.
fn forged(rig: &Rig) {
    let truth = Truth::of(rig);
    let lanes = offset_of!(ClientFile, time) + offset_of!(TimePages, devices) + offset_of!(TimePage, lanes);
    let pattern = format!("forge 4000000 {lanes} {}", size_of::<[Lane; LANES]>());
    let jobs: [(&[&str], &str); 2] = [
        (&["--name", "forger"], &pattern),
        (&["--name", "victim"], "kernel 4000000"),
    ];
    let (clients, pids) = start(rig, &jobs);
    truth.wait_for_work_of(0, &pids);
    let used = |name: &str| {
        let time = &rig.json(&["get", name])["job"]["devices"][0]["time"];
        time["used_ns"].as_u64().unwrap_or(0)
    };
    rig.eventually(Duration::from_secs(60), "it is found out", || {
        rig.json(&["get", "forger"]).to_string().contains(DRIFT)
    });
    let (charged, before) = (["forger", "victim"].map(used), truth.sample(0));
    truth.watch(0, ACCOUNT);
    let (after, span) = (["forger", "victim"].map(used), before.until(truth.sample(0)));
    let of = |at: usize| after[at].saturating_sub(charged[at]) * 100 / span.busy_ns(pids[at]).max(1);
    rig.note(format!(
        "charged {} % and {} % of {}",
        of(0),
        of(1),
        span.describe(&pids)
    ));
    assert!(
        of(0) >= 70 && of(1) <= 115,
        "charged {} % and {} % of what they had",
        of(0),
        of(1)
    );
    is_named(rig, "forger", "victim");
    drop(clients);
}

/// Two jobs whose streams stand in host functions nearly all the time, beside one that always wants the device: while a
/// stream stands there, it has no work on the device and keeps nobody from it.
fn hosts(rig: &Rig) {
    let truth = Truth::of(rig);
    // Its weight promises the third job a third. The other two leave it all but their kernels: a fiftieth each; and an
    // eighth each, with more kernels behind the host function than may be in flight.
    for (waits, least) in [("host 70000 10000000", 800_000), ("host 1000000 20000000", 700_000)] {
        let (clients, pids) = start(rig, &[(&[], waits), (&[], waits), (&[], "kernel 500000")]);
        truth.wait_for_work_of(0, &pids);
        truth.watch(0, WARM_UP);
        truth.judge(rig, 0, WINDOW, &pids, |span| {
            let parts = [0, 1, 2].map(|at: usize| span.part_ppm(pids[at]));
            holds(parts[2] >= least, || {
                format!("{} ppm for the third beside {waits}", parts[2])
            })?;
            holds(parts[0].min(parts[1]) >= 5_000, || "the others do not go on".to_owned())
        });
        for client in clients {
            client.stop();
        }
    }
}

fn stopped(rig: &Rig) {
    let truth = Truth::of(rig);
    let (running, pids) = start(rig, &[(&[], "kernel 500000"), (&[], "kernel 500000")]);
    truth.wait_for_work_of(0, &pids);
    truth.watch(0, WARM_UP);
    for _ in 0..3 {
        running[0].signal(libc::SIGSTOP);
        goes_on(rig, &truth, pids[1], &pids, 400_000);
        running[0].signal(libc::SIGCONT);
        truth.watch(0, 500 * MILLISECOND);
    }
    truth.watch(0, WARM_UP);
    judge(rig, &truth, &pids, &[500_000, 500_000], MILLISECOND, TOLERANCE);
    for client in running {
        client.stop();
    }
}

fn killed(rig: &Rig) {
    let truth = Truth::of(rig);
    for _ in 0..3 {
        let (mut running, pids) = start(rig, &[(&["--weight", "900"], "kernel 500000"), (&[], "kernel 500000")]);
        truth.wait_for_work_of(0, &pids);
        truth.watch(0, 300 * MILLISECOND);
        running[0].kill();
        goes_on(rig, &truth, pids[1], &pids, 900_000);
        running.drain(1..).for_each(|client| {
            client.stop();
        });
    }
}

fn broker_killed(rig: &Rig) {
    let truth = Truth::of(rig);
    let (running, pids) = start(rig, &[(&["--weight", "300"], "kernel 500000"), (&[], "kernel 500000")]);
    truth.wait_for_work_of(0, &pids);
    truth.watch(0, WARM_UP);
    let broker = rig.broker_pid().expect("a broker");
    // SAFETY: the broker of this rig, which is alive.
    unsafe { libc::kill(broker as libc::pid_t, libc::SIGKILL) };
    // Whichever gates were closed: they open at the latest when the heartbeat is missed.
    rig.eventually(Duration::from_secs(10), "both go on", || {
        let span = truth.watch(0, 100 * MILLISECOND);
        pids.iter().all(|pid| span.busy_ns(*pid) > 0)
    });
    rig.eventually(Duration::from_secs(30), "the next broker knows both", || {
        rig.broker_pid().is_some_and(|next| next != broker) && rig.jobs().len() == 2
    });
    truth.watch(0, WARM_UP);
    judge(rig, &truth, &pids, &[750_000, 250_000], MILLISECOND, TOLERANCE);
    for client in running {
        client.stop();
    }
}
