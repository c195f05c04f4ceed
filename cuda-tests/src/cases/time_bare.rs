// SPDX-License-Identifier: Apache-2.0
//! Sharing a device's time without Partage: what the device's own slicing gives, judged by its own account. The
//! cases with Partage are compared with this; it also proves the simulator and the program that they use.

use super::Case;
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
        simulated("time_bare::two_saturating_clients_get_half_each", halves),
        simulated("time_bare::short_and_long_kernels_get_half_each", unlike),
        simulated("time_bare::three_contexts_get_three_slices", contexts),
        simulated("time_bare::one_client_keeps_the_device_busy", alone),
        simulated("time_bare::waiting_for_every_kernel_loses_little", waits),
        simulated("time_bare::every_pattern_runs_to_its_end", patterns),
        simulated("time_bare::collectives_of_two_devices_end", collectives),
        simulated("time_bare::crossing_collectives_end_by_native_slicing", crossing),
        simulated("time_bare::hung_kernel_takes_its_slices_until_its_process_ends", hung),
    ]
}

const MILLISECOND: u64 = 1_000_000;
/// One percentage point, in ppm.
const POINT: u64 = 10_000;

fn near(what: &str, found: u64, expected: u64, tolerance: u64) -> Result<(), String> {
    match found.abs_diff(expected) <= tolerance {
        true => Ok(()),
        false => Err(format!("{what}: {found} ppm, expected {expected} ± {tolerance}")),
    }
}

/// Watches endless clients with these patterns for half a second of device time and holds the share of each of the work
/// against what is expected.
fn shares(rig: &Rig, clients: &[(&str, u64)], tolerance: u64) {
    let truth = Truth::of(rig);
    let running: Vec<TimeClient> = clients
        .iter()
        .map(|(pattern, _)| TimeClient::bare(rig, "0", pattern))
        .collect();
    let pids: Vec<u32> = running.iter().map(TimeClient::pid).collect();
    truth.wait_for_work_of(0, &pids);
    let span = truth.judge(rig, 0, 500 * MILLISECOND, &pids, |span| {
        pids.iter()
            .zip(clients)
            .try_for_each(|(&pid, &(pattern, expected))| near(pattern, span.share_ppm(pid), expected, tolerance))
    });
    let all = span.describe(&pids);
    assert!(span.handovers() > 100, "slices of two milliseconds: {all}");
    assert!(span.switching_ppm() > 0, "{all}");
    for client in running {
        client.stop();
    }
}

fn halves(rig: &Rig) {
    shares(rig, &[("kernel 1000000", 500_000), ("kernel 1000000", 500_000)], POINT);
}

fn unlike(rig: &Rig) {
    shares(rig, &[("kernel 200000", 500_000), ("kernel 5000000", 500_000)], POINT);
}

fn contexts(rig: &Rig) {
    // Native slicing serves contexts, not processes: whoever has three gets three quarters.
    shares(
        rig,
        &[("contexts 3 1000000", 750_000), ("kernel 1000000", 250_000)],
        POINT,
    );
}

fn alone(rig: &Rig) {
    let truth = Truth::of(rig);
    let client = TimeClient::bare(rig, "0.5", "kernel 500000");
    let pid = client.pid();
    let before = truth.wait_for_work_of(0, &[pid]);
    let done = client.finish();
    let span = before.until(truth.sample(0));
    let all = span.describe(&[pid]);
    rig.note(&all);
    // By the account, after its end: every launch was served for its time, and nothing else was.
    assert_eq!(truth.sample(0).busy_ns(pid), done.launches * 500_000, "{all}");
    assert!(done.elapsed_ns >= 500 * MILLISECOND, "{done:?}");
    assert_eq!(span.handovers(), 0, "{all}");
}

fn waits(rig: &Rig) {
    // The time between a kernel's end and the next launch is the program's own, not that of a simulator's thread which
    // waits for its turn on a busy machine.
    // Beyond a limit the device does not wait for that thread: a machine that is busier than that disturbs a window now
    // and then, and the middle one of five not.
    let mut parts: Vec<u64> = (0..5)
        .map(|_| TimeClient::bare(rig, "0.2", "burst 200000 0").finish())
        .map(|done| done.launches * 200_000 * 1_000_000 / done.elapsed_ns)
        .collect();
    parts.sort_unstable();
    rig.note(format!("{parts:?} ppm of the time"));
    assert!(parts[2] >= 950_000, "{parts:?} ppm of the time");
}

fn patterns(rig: &Rig) {
    let truth = Truth::of(rig);
    for (pattern, kernel_ns, per_unit) in [
        ("kernel 100000", 100_000, 1),
        ("ptds 100000", 100_000, 1),
        ("threads 3 200000", 200_000, 1),
        ("contexts 2 200000", 200_000, 1),
        ("graph 100000 20", 100_000, 20),
        ("burst 2000000 1000000", 2_000_000, 1),
    ] {
        let client = TimeClient::bare(rig, "0.05", pattern);
        let pid = client.pid();
        let done = client.finish();
        assert_eq!(done.launches, done.units * per_unit, "{pattern}: {done:?}");
        assert!(
            done.units > 0 && done.elapsed_ns >= 50 * MILLISECOND,
            "{pattern}: {done:?}"
        );
        // Kernels of several streams run beside each other: their time is less than their sum.
        let busy = truth.sample(0).busy_ns(pid);
        match pattern.starts_with("threads") {
            true => assert!(busy <= done.launches * kernel_ns && busy >= done.launches * kernel_ns / 3),
            false => assert_eq!(busy, done.launches * kernel_ns, "{pattern}: {done:?}"),
        }
    }
    let done = TimeClient::bare(rig, "0.05", "streams 4 500000").finish();
    assert!(
        done.units.is_multiple_of(4) && done.elapsed_ns >= 50 * MILLISECOND,
        "{done:?}"
    );
    assert!(
        done.elapsed_ns < done.launches * 500_000 * 3 / 4,
        "four streams run beside each other: {done:?}"
    );
}

fn collectives(rig: &Rig) {
    let truth = Truth::of(rig);
    let done = TimeClient::bare(rig, "0.05", "collective 500000 0 1").finish();
    assert!(done.units > 20, "{done:?}");
    let file = rig.dir.join("meeting").display().to_string();
    let ranks = [0, 1].map(|rank| TimeClient::bare(rig, "0.05", &format!("rank 500000 {file} {rank} 2 {rank}")));
    let pids = [0, 1].map(|rank: usize| ranks[rank].pid());
    let rounds = ranks.map(|rank| rank.finish().units);
    assert_eq!(rounds[0], rounds[1], "ranks end with the same round");
    for (device, pid) in pids.into_iter().enumerate() {
        let busy = truth.sample(device).busy_ns(pid);
        assert!(
            busy >= rounds[device] * 500_000,
            "{busy} ns for {} rounds",
            rounds[device]
        );
    }
}

fn crossing(rig: &Rig) {
    // Each waits on each device for its own kernel on the other one, while the other job's kernels are in the way.
    let jobs = ["0 1", "1 0"].map(|devices| TimeClient::bare(rig, "0.1", &format!("collective 300000 {devices}")));
    for job in jobs {
        let done = job.finish();
        assert!(done.units > 10, "{done:?}");
    }
}

fn hung(rig: &Rig) {
    let truth = Truth::of(rig);
    let hung = TimeClient::bare(rig, "0", "hang");
    truth.wait_for_work_of(0, &[hung.pid()]);
    let other = TimeClient::bare(rig, "0", "kernel 1000000");
    truth.wait_for_work_of(0, &[other.pid()]);
    let pids = [hung.pid(), other.pid()];
    truth.judge(rig, 0, 300 * MILLISECOND, &pids, |span| {
        near("the hung one", span.share_ppm(pids[0]), 500_000, 2 * POINT)
    });
    hung.stop();
    let span = truth.watch(0, 100 * MILLISECOND);
    assert_eq!(span.share_ppm(pids[1]), 1_000_000, "{}", span.describe(&pids));
    other.stop();
}
