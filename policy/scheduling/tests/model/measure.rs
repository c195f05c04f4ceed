// SPDX-License-Identifier: Apache-2.0
//! Measurements: shares over windows, charges against truth, percentiles.

use partage_scheduling::{JobId, JobView};

use super::{MS, S, World};

/// What was measured of some clients over successive windows.
#[derive(Debug)]
pub struct Shares {
    /// Mean share of each over the whole time, of what all of them had.
    pub mean: Vec<f64>,
    /// Largest deviation from the wanted share over any window, in percentage points.
    pub worst_pp: f64,
    /// Device time used by these clients, as a part of the time.
    pub used: f64,
    /// Largest difference between what a job was charged and what it used over the whole time, as a part of the time.
    pub accounting: f64,
    /// The same against what it occupied: its work, and switching to it.
    pub charging: f64,
    /// What each was charged, as a part of the time.
    pub charged: Vec<f64>,
}

/// Runs for so many seconds and compares what the clients had in each with the shares that they should have had.
/// Preconditions: each client is its job's only one; it is a whole second now (the view's windows have tenths).
pub fn shares(world: &mut World, clients: &[usize], wanted: &[f64], seconds: u64) -> Shares {
    let busy = |world: &World| clients.iter().map(|at| world.busy_ns(*at)).collect::<Vec<u64>>();
    let difference = |after: &[u64], before: &[u64]| -> Vec<f64> {
        after
            .iter()
            .zip(before)
            .map(|(after, before)| (after - before) as f64)
            .collect()
    };
    let occupied = |world: &World| clients.iter().map(|at| world.occupied_ns(*at)).collect::<Vec<u64>>();
    let (begin, switched) = (busy(world), occupied(world));
    let (mut before, mut worst) = (begin.clone(), 0f64);
    let mut charged = vec![0f64; clients.len()];
    for _ in 0..seconds {
        world.run_until(world.now + S);
        let after = busy(world);
        let got = difference(&after, &before);
        let sum: f64 = got.iter().sum();
        for (got, wanted) in got.iter().zip(wanted) {
            worst = worst.max((got / sum - wanted).abs() * 100.0);
        }
        before = after;
        // Without a scheduler nothing is charged.
        let Some(scheduler) = &world.scheduler else { continue };
        let view = scheduler.view(world.now);
        for (charged, at) in charged.iter_mut().zip(clients) {
            *charged += f64::from(row(&view, world.clients[*at].job).got_ppm_1s) / 1e6;
        }
    }
    let got = difference(&before, &begin);
    let sum: f64 = got.iter().sum();
    let worst_error = |of: &[f64]| {
        let errors = charged.iter().zip(of);
        let errors = errors.map(|(charged, of)| (charged / seconds as f64 - of / (S * seconds) as f64).abs());
        errors.fold(0.0, f64::max)
    };
    Shares {
        mean: got.iter().map(|got| got / sum).collect(),
        worst_pp: worst,
        used: sum / (S * seconds) as f64,
        accounting: worst_error(&got),
        charging: worst_error(&difference(&occupied(world), &switched)),
        charged: charged.iter().map(|charged| charged / seconds as f64).collect(),
    }
}

pub fn row(view: &[JobView], job: JobId) -> &JobView {
    view.iter().find(|row| row.job == job).expect("every job is shown")
}

pub fn percentile(values: &[u64], percent: f64) -> u64 {
    let mut values = values.to_vec();
    values.sort_unstable();
    let at = ((values.len() as f64 * percent / 100.0).ceil() as usize).clamp(1, values.len());
    values[at - 1]
}

/// Runs until every program has ended; the time that took, or `None` after `limit_ns`.
pub fn completion(world: &mut World, limit_ns: u64) -> Option<u64> {
    while !world.is_done() {
        if world.now >= limit_ns {
            return None;
        }
        world.run_until(world.now + MS);
    }
    world.clients.iter().filter_map(|client| client.done_ns).max()
}
