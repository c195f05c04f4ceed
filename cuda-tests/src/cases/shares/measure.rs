// SPDX-License-Identifier: Apache-2.0
//! Jobs that want a device, watched for a window: what each got of it.

use crate::rig::Rig;
use crate::time_client::TimeClient;
use crate::truth::{Span, Truth};

pub const MILLISECOND: u64 = 1_000_000;

/// One percentage point, in ppm.
pub const POINT: u64 = 10_000;

/// By how much a share or a cap may differ, and a unit: as docs/specification.md says. Twice that where streams, long
/// graphs or several lengths meet in Overlap.
pub const TOLERANCE: u64 = POINT;

/// Device time after which jobs take turns if they always want the device, and their first debts are paid.
pub const WARM_UP: u64 = 1_500 * MILLISECOND;

/// Device time over which shares and caps are judged: once, and all of it, unless this machine stood still meanwhile.
pub const WINDOW: u64 = 4_000 * MILLISECOND;
/// After something has happened, until everybody knows and what was in flight is done: the drain timeout and two
/// periods.
pub const SETTLED: u64 = 300 * MILLISECOND;

/// Runs endless jobs, each with options and a pattern.
pub fn start(rig: &Rig, jobs: &[(&[&str], &str)]) -> (Vec<TimeClient>, Vec<u32>) {
    let running: Vec<TimeClient> = jobs
        .iter()
        .map(|(options, pattern)| TimeClient::under(rig, &[&["-g", "0"], *options].concat(), "0", pattern))
        .collect();
    let pids = running.iter().map(TimeClient::pid).collect();
    (running, pids)
}

/// Fails with a sentence where something does not hold.
pub fn holds(is_so: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(what()) }
}

/// Holds the shares of a window's work against what is expected.
#[track_caller]
pub fn judge(rig: &Rig, truth: &Truth, pids: &[u32], expected: &[u64], unit_ns: u64, tolerance: u64) {
    truth.judge(rig, 0, WINDOW, pids, |span| {
        let found: Vec<u64> = pids.iter().map(|pid| span.share_ppm(*pid)).collect();
        are_as_expected(span, &found, expected, unit_ns, tolerance)
    });
}

/// The shares of a window are as expected, and little of it was lost.
pub fn are_as_expected(
    span: &Span,
    found: &[u64],
    expected: &[u64],
    unit_ns: u64,
    tolerance: u64,
) -> Result<(), String> {
    let unit = unit_ns * 1_000_000 / span.elapsed_ns;
    for (found, expected) in found.iter().zip(expected) {
        holds(found.abs_diff(*expected) <= tolerance + unit, || {
            format!("{found} ppm, expected {expected} ± {tolerance} and a unit of {unit}")
        })?;
    }
    // Saturating jobs leave little idle, whatever is closed.
    let lost = span.idle_ppm() + span.switching_ppm();
    holds(lost <= 10 * POINT, || format!("{lost} ppm idle or switching"))
}

pub fn shares(rig: &Rig, jobs: &[(&[&str], &str)], expected: &[u64], unit_ns: u64, tolerance: u64) {
    let truth = Truth::of(rig);
    let (running, pids) = start(rig, jobs);
    truth.wait_for_work_of(0, &pids);
    truth.watch(0, WARM_UP);
    judge(rig, &truth, &pids, expected, unit_ns, tolerance);
    for client in running {
        client.stop();
    }
}
