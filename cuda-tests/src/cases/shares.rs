// SPDX-License-Identifier: Apache-2.0
//! Sharing a device's time under Partage, judged by the simulated device's own account of device time: weights, promises,
//! caps, what is left to a job alone, and that nobody stands still because of somebody else.

use std::time::{Duration, Instant};

use super::Case;
use crate::rig::Rig;
use crate::time_client::TimeClient;
use crate::truth::{Span, Truth};

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
        simulated("shares::four_jobs_get_five_fifteen_thirty_and_fifty_percent", four),
        simulated("shares::a_long_graph_and_small_kernels_get_half_each", graph),
        simulated("shares::a_job_of_many_streams_gets_the_share_of_one", streams),
        simulated("shares::what_is_charged_is_what_the_device_did", accounting),
        simulated("shares::a_long_graph_is_charged_its_work", graph_account).keeping_pace(),
        simulated(
            "shares::short_kernels_of_many_streams_are_charged_what_the_device_did",
            streams_account,
        ),
        simulated("shares::a_cap_holds_for_a_job_alone", caps),
        simulated("shares::a_cap_changes_while_the_job_runs", live),
        simulated("shares::processes_of_one_job_share_its_cap", processes),
        simulated("shares::a_job_alone_is_never_held_up", alone),
        simulated("shares::a_kernel_that_never_ends_holds_up_nobody_else", hung),
        simulated("shares::a_stopped_job_holds_up_nobody_else", stopped),
        simulated("shares::who_was_held_goes_on_when_the_other_is_killed", killed),
        simulated(
            "shares::jobs_go_on_without_a_broker_and_get_their_shares_from_the_next",
            broker_killed,
        ),
    ]
}

const MILLISECOND: u64 = 1_000_000;
/// One percentage point, in ppm.
const POINT: u64 = 10_000;
/// By how much a share may differ in one window, and a unit.
const TOLERANCE: u64 = POINT;
/// Windows that are judged, one after the other, until [`IN_A_ROW`] are right. On a quiet machine the first ones are. On a
/// busy one processes and the broker wait for its processors, which can only disturb.
const WINDOWS: usize = 20;
/// As many windows have to be right one after the other.
const IN_A_ROW: usize = 3;
/// Device time after which jobs take turns if they always want the device, and their first debts are paid.
const WARM_UP: u64 = 1_500 * MILLISECOND;
/// What a job may have under way when it is told to stop: two graphs.
const LONGEST_UNDER_WAY: u64 = 200 * MILLISECOND;
/// What shares are judged over.
const WINDOW: u64 = 1_000 * MILLISECOND;

/// Runs endless jobs, each with options and a pattern.
fn start(rig: &Rig, jobs: &[(&[&str], &str)]) -> (Vec<TimeClient>, Vec<u32>) {
    let running: Vec<TimeClient> = jobs
        .iter()
        .map(|(options, pattern)| TimeClient::under(rig, &[&["-g", "0"], *options].concat(), "0", pattern))
        .collect();
    let pids = running.iter().map(TimeClient::pid).collect();
    (running, pids)
}

/// Judges windows of a device's time until so many in a row are right.
#[track_caller]
fn in_a_row(
    rig: &Rig,
    truth: &Truth,
    row: usize,
    device_ns: u64,
    pids: &[u32],
    judge: impl Fn(&Span) -> Result<(), String>,
) {
    let (mut wrong, mut right) = (Vec::new(), 0);
    for _ in 0..WINDOWS {
        let span = truth.watch(0, device_ns);
        rig.note(span.describe(pids));
        match judge(&span) {
            Ok(()) => right += 1,
            Err(why) => {
                right = 0;
                wrong.push(format!("{why}; {}", span.describe(pids)));
            }
        }
        if right == row {
            return;
        }
    }
    panic!(
        "no {row} windows in a row of {WINDOWS} are right:\n{}",
        wrong.join("\n")
    );
}

/// Holds shares of the work against what is expected.
fn judge(span: &Span, pids: &[u32], expected: &[u64], unit_ns: u64) -> Result<(), String> {
    let unit = unit_ns * 1_000_000 / span.elapsed_ns;
    for (pid, expected) in pids.iter().zip(expected) {
        let found = span.share_ppm(*pid);
        if found.abs_diff(*expected) > TOLERANCE + unit {
            return Err(format!(
                "{found} ppm, expected {expected} ± {TOLERANCE} and a unit of {unit}"
            ));
        }
    }
    // Saturating jobs leave little idle, whatever is closed.
    let lost = span.idle_ppm() + span.switching_ppm();
    if lost > 10 * POINT {
        return Err(format!("{lost} ppm idle or switching"));
    }
    Ok(())
}

fn shares(rig: &Rig, jobs: &[(&[&str], &str)], expected: &[u64], unit_ns: u64) {
    let truth = Truth::of(rig);
    let (running, pids) = start(rig, jobs);
    truth.wait_for_work_of(0, &pids);
    truth.watch(0, WARM_UP);
    in_a_row(rig, &truth, IN_A_ROW, WINDOW.max(10 * unit_ns), &pids, |span| {
        judge(span, &pids, expected, unit_ns)
    });
    for client in running {
        client.stop();
    }
}

fn weights(rig: &Rig) {
    for (weight, expected) in [("100", 500_000), ("300", 750_000), ("900", 900_000)] {
        let jobs: [(&[&str], &str); 2] = [(&["--weight", weight], "kernel 500000"), (&[], "kernel 500000")];
        shares(rig, &jobs, &[expected, 1_000_000 - expected], MILLISECOND / 2);
    }
}

fn unlike(rig: &Rig) {
    let jobs: [(&[&str], &str); 2] = [(&[], "kernel 20000"), (&[], "kernel 5000000")];
    shares(rig, &jobs, &[500_000, 500_000], 5 * MILLISECOND);
}

fn four(rig: &Rig) {
    let jobs: [(&[&str], &str); 4] = [
        (&["-c", "5%"], "kernel 500000"),
        (&["-c", "15%"], "kernel 1000000"),
        (&["-c", "30%"], "kernel 250000"),
        (&["-c", "50%"], "kernel 2000000"),
    ];
    shares(rig, &jobs, &[50_000, 150_000, 300_000, 500_000], 2 * MILLISECOND);
}

fn graph(rig: &Rig) {
    let jobs: [(&[&str], &str); 2] = [(&[], "graph 1000000 100"), (&[], "kernel 200000")];
    shares(rig, &jobs, &[500_000, 500_000], 100 * MILLISECOND);
}

fn streams(rig: &Rig) {
    let jobs: [(&[&str], &str); 2] = [(&[], "streams 4 500000"), (&[], "ptds 500000")];
    shares(rig, &jobs, &[500_000, 500_000], 2 * MILLISECOND);
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

/// Holds what jobs were charged in windows in which they worked against what the device did for them, until [`IN_A_ROW`] are
/// right. Each may be off by as much as `allowed` says, in ppm of its work.
fn account(rig: &Rig, jobs: &[(&[&str], &str)], allowed: &[u64]) {
    let truth = Truth::of(rig);
    let (running, pids) = start(rig, jobs);
    truth.wait_for_work_of(0, &pids);
    truth.watch(0, WARM_UP);
    let hold_or_go_on = || running.iter().for_each(|client| client.signal(libc::SIGUSR1));
    hold_or_go_on();
    let mut before = (charged(rig, &pids), truth.sample(0));
    let (mut wrong, mut right) = (Vec::new(), 0);
    for _ in 0..WINDOWS {
        hold_or_go_on();
        truth.watch(0, 2 * WINDOW);
        hold_or_go_on();
        truth.watch(0, LONGEST_UNDER_WAY);
        let after = (charged(rig, &pids), truth.sample(0));
        let span = before.1.until(after.1.clone());
        let mut is_right = true;
        let found: Vec<String> = (0..pids.len())
            .map(|at| {
                let (charged, busy) = (after.0[at] - before.0[at], span.busy_ns(pids[at]));
                let off = (i128::from(charged) - i128::from(busy)) * 1_000_000 / i128::from(busy.max(1));
                is_right &= off.unsigned_abs() <= u128::from(allowed[at]);
                format!("charged {charged} ns of {busy} ({off:+} ppm, {} allowed)", allowed[at])
            })
            .collect();
        rig.note(format!("{}; {}", found.join(", "), span.describe(&pids)));
        right = if is_right { right + 1 } else { 0 };
        if right == IN_A_ROW {
            return;
        }
        if !is_right {
            wrong.push(found.join(", "));
        }
        before = after;
    }
    panic!(
        "no {IN_A_ROW} windows in a row are what the device did:\n{}",
        wrong.join("\n")
    );
}

fn accounting(rig: &Rig) {
    let jobs: [(&[&str], &str); 4] = [
        (&["--weight", "300"], "kernel 500000"),
        (&["--weight", "200"], "streams 4 500000"),
        (&["--weight", "100"], "ptds 500000"),
        (&["--weight", "100"], "kernel 20000"),
    ];
    // One stream's work is known as soon as it has retired; of what runs together, events tell where slices of others lie only
    // nearly.
    account(rig, &jobs, &[1_000, 5_000, 1_000, 1_000]);
}

/// The graph's length is never seen, since slices of the other are always in it: it is charged by samples, less what is too
/// much in those of the other, whose kernels' length is known. Samples are made by the clock on the wall, so the device keeps
/// pace with it.
fn graph_account(rig: &Rig) {
    let jobs: [(&[&str], &str); 2] = [(&[], "graph 1000000 100"), (&[], "kernel 200000")];
    account(rig, &jobs, &[5_000, 1_000]);
}

/// The shorter the kernels, the more of what streams do begins and ends between two looks of the broker.
fn streams_account(rig: &Rig) {
    let jobs: [(&[&str], &str); 3] = [
        (&["--weight", "300"], "kernel 500000"),
        (&["--weight", "100"], "streams 4 200000"),
        (&["--weight", "100"], "kernel 20000"),
    ];
    account(rig, &jobs, &[1_000, 5_000, 1_000]);
}

fn capped(percent: u64) -> String {
    format!("{percent}%")
}

fn caps(rig: &Rig) {
    for percent in [10, 25, 50, 75] {
        let truth = Truth::of(rig);
        let cap = capped(percent);
        let (running, pids) = start(rig, &[(&["--compute-max", &cap], "kernel 500000")]);
        truth.wait_for_work_of(0, &pids);
        truth.watch(0, 500 * MILLISECOND);
        in_a_row(rig, &truth, IN_A_ROW, 2_000 * MILLISECOND, &pids, |span| {
            near_cap(span, &pids, percent * POINT)
        });
        for client in running {
            client.stop();
        }
    }
}

/// Holds the part that jobs got, together, against their cap: no more of the clock's time, whose periods a cap has, and no
/// less of the device's, whose clock stands still while this machine keeps its clients from running.
fn near_cap(span: &Span, pids: &[u32], expected: u64) -> Result<(), String> {
    let sum = |part: fn(&Span, u32) -> u64| pids.iter().map(|pid| part(span, *pid)).sum::<u64>();
    let (of_wall, of_device) = (sum(Span::wall_part_ppm), sum(Span::part_ppm));
    if of_wall > expected + TOLERANCE || of_device + TOLERANCE < expected {
        return Err(format!(
            "{of_wall} ppm of the wall time and {of_device} of the device's, expected {expected} ± {TOLERANCE}"
        ));
    }
    Ok(())
}

fn live(rig: &Rig) {
    let truth = Truth::of(rig);
    let options: &[&str] = &["--name", "live"];
    let (running, pids) = start(rig, &[(options, "kernel 500000")]);
    truth.wait_for_work_of(0, &pids);
    for percent in [20, 80] {
        let change = format!("compute-max={}", capped(percent));
        let set = rig.output(rig.partage(&["set", "live", &change]));
        assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
        // Two periods, and the one that the change fell into.
        truth.watch(0, 300 * MILLISECOND);
        in_a_row(rig, &truth, IN_A_ROW, 1_000 * MILLISECOND, &pids, |span| {
            near_cap(span, &pids, percent * POINT)
        });
    }
    for client in running {
        client.stop();
    }
}

fn processes(rig: &Rig) {
    let truth = Truth::of(rig);
    let many = TimeClient::several(rig, &["-g", "0", "--compute-max", "30%"], 3, "0", "kernel 500000");
    truth.wait_for_work_of(0, many.pids());
    truth.watch(0, 500 * MILLISECOND);
    in_a_row(rig, &truth, IN_A_ROW, 1_000 * MILLISECOND, many.pids(), |span| {
        near_cap(span, many.pids(), 300_000)
    });
}

fn alone(rig: &Rig) {
    let truth = Truth::of(rig);
    let mut tries = Vec::new();
    // A processor that is taken away in one of the two runs idles the device there: it can only disturb.
    for _ in 0..WINDOWS {
        let client = TimeClient::under(rig, &["-g", "0"], "0.5", "kernel 200000");
        let pid = client.pid();
        let before = truth.wait_for_work_of(0, &[pid]);
        let done = client.finish();
        let span = before.until(truth.sample(0));
        rig.note(span.describe(&[pid]));
        assert_eq!(truth.sample(0).busy_ns(pid), done.launches * 200_000);
        let bare = TimeClient::bare(rig, "0.5", "kernel 200000").finish();
        // What is launched in half a second of device time is what fits into it, both times.
        if done.launches.abs_diff(bare.launches) <= bare.launches / 10 {
            return;
        }
        tries.push(format!("{done:?}, bare {bare:?}"));
    }
    panic!("never the same work in the same time:\n{}", tries.join("\n"));
}

/// The part of the work that a job gets beside one that does not let go.
#[track_caller]
fn goes_on(rig: &Rig, truth: &Truth, pid: u32, all: &[u32], least_ppm: u64) {
    in_a_row(rig, truth, 1, 500 * MILLISECOND, all, |span| match span.part_ppm(pid) {
        part if part >= least_ppm => Ok(()),
        part => Err(format!("{part} ppm of {pid}")),
    });
}

fn hung(rig: &Rig) {
    let truth = Truth::of(rig);
    let (mut hung, pids) = start(rig, &[(&[], "hang")]);
    truth.wait_for_work_of(0, &pids);
    let (running, others) = start(rig, &[(&[], "kernel 500000")]);
    truth.wait_for_work_of(0, &others);
    // The device's own slicing gives it half: nothing takes work off a device again.
    goes_on(rig, &truth, others[0], &pids, 450_000);
    hung.iter_mut().for_each(TimeClient::kill);
    goes_on(rig, &truth, others[0], &pids, 900_000);
    for client in running {
        client.stop();
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
    in_a_row(rig, &truth, IN_A_ROW, WINDOW, &pids, |span| {
        judge(span, &pids, &[500_000, 500_000], MILLISECOND)
    });
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
    rig.eventually(Duration::from_secs(30), "the next broker keeps their shares", || {
        let span = truth.watch(0, WINDOW);
        rig.note(span.describe(&pids));
        span.share_ppm(pids[0]).abs_diff(750_000) <= TOLERANCE
    });
    for client in running {
        client.stop();
    }
}
