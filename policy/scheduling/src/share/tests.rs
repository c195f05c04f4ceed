// SPDX-License-Identifier: Apache-2.0
//! Shares alone: what is owed adds up to nothing, service stays within the bound, nobody starves.

use proptest::prelude::*;

use super::*;

const MS: i64 = 1_000_000;

fn sum_of_lags(eevdf: &Eevdf) -> i64 {
    eevdf.rows.values().filter(|row| row.is_in).map(|row| row.lag).sum()
}

fn eevdf(weights: &[u64], request_ns: u64) -> (Eevdf, Vec<JobId>) {
    let mut eevdf = Eevdf::default();
    let jobs: Vec<JobId> = (0..weights.len() as u64).map(JobId).collect();
    for (job, weight) in jobs.iter().zip(weights) {
        eevdf.add(*job, request_ns);
        eevdf.set_weight(*job, *weight);
        eevdf.join(*job, true);
    }
    (eevdf, jobs)
}

/// Serves requests one after another, each in units of `unit` (which run to their end), as a device in turns does.
fn run(
    eevdf: &mut Eevdf,
    jobs: &[JobId],
    units: &[i64],
    until_ns: i64,
    mut each: impl FnMut(&Eevdf, &[i64]),
) -> Vec<i64> {
    let mut got = vec![0; jobs.len()];
    let mut now = 0;
    while now < until_ns {
        let job = eevdf.best(jobs).expect("somebody wants");
        eevdf.renew(job);
        while !eevdf.is_served(job) {
            let at = jobs.iter().position(|other| *other == job).unwrap_or(0);
            eevdf.serve(&[(job, units[at])]);
            got[at] += units[at];
            now += units[at];
            each(eevdf, &got);
        }
    }
    got
}

#[test]
fn service_stays_within_one_request_and_one_unit_of_the_share() {
    let cases: [&[u64]; 6] = [
        &[1, 1],
        &[3, 1],
        &[9, 1],
        &[5, 15, 30, 50],
        &[1, 1, 1, 97],
        &[7, 11, 13],
    ];
    let lengths = [20_000, 300_000, 5 * MS];
    let mut checked = 0;
    for weights in cases {
        let total: u64 = weights.iter().sum();
        // Every assignment of the three unit lengths to the jobs.
        for code in 0..3usize.pow(weights.len() as u32) {
            let units: Vec<i64> = (0..weights.len())
                .map(|i| lengths[code / 3usize.pow(i as u32) % 3])
                .collect();
            let bound = 5 * MS + units.iter().max().expect("not empty");
            let (mut eevdf, jobs) = eevdf(weights, 5 * MS as u64);
            run(&mut eevdf, &jobs, &units, 300 * MS, |eevdf, got| {
                let served: i64 = got.iter().sum();
                for (i, weight) in weights.iter().enumerate() {
                    let owed = served as f64 * *weight as f64 / total as f64;
                    assert!(
                        (owed - got[i] as f64).abs() <= bound as f64,
                        "{weights:?} {units:?}: {owed} {got:?}"
                    );
                }
                assert_eq!(sum_of_lags(eevdf), 0);
                checked += 1;
            });
        }
    }
    println!("{checked} states of service checked");
}

#[test]
fn a_debt_is_repaid_and_no_more() {
    // One graph of 100 ms against small kernels: the others catch up before it is chosen again.
    let (mut eevdf, jobs) = eevdf(&[1, 1], 5 * MS as u64);
    eevdf.serve(&[(jobs[0], 100 * MS)]);
    assert_eq!((eevdf.lag(jobs[0]), eevdf.lag(jobs[1])), (-50 * MS, 50 * MS));
    let mut repaid = 0;
    while eevdf.best(&jobs) == Some(jobs[1]) {
        eevdf.serve(&[(jobs[1], 5 * MS)]);
        eevdf.renew(jobs[1]);
        repaid += 5 * MS;
    }
    assert!((95 * MS..=105 * MS).contains(&repaid), "{repaid}");
}

#[test]
fn a_changed_weight_changes_neither_lag_nor_what_is_asked() {
    let (mut eevdf, jobs) = eevdf(&[1, 1], 5 * MS as u64);
    eevdf.serve(&[(jobs[0], 3 * MS)]);
    let before = (eevdf.lag(jobs[0]), eevdf.lag(jobs[1]), eevdf.is_served(jobs[0]));
    eevdf.set_weight(jobs[1], 9);
    assert_eq!(
        before,
        (eevdf.lag(jobs[0]), eevdf.lag(jobs[1]), eevdf.is_served(jobs[0]))
    );
    let got = run(&mut eevdf, &jobs, &[MS, MS], 1_000 * MS, |_, _| ());
    let share = got[0] as f64 / got.iter().sum::<i64>() as f64;
    assert!((share - 0.1).abs() < 0.01, "{share}");
}

#[test]
fn sleeping_saves_no_more_than_one_request_and_forgives_no_debt() {
    let (mut eevdf, jobs) = eevdf(&[1, 1], 5 * MS as u64);
    eevdf.serve(&[(jobs[0], 40 * MS)]);
    // The second is owed 20 ms, goes, and comes back with a claim of one request.
    eevdf.leave(jobs[1]);
    eevdf.share_left();
    assert_eq!(eevdf.lag(jobs[0]), 0);
    eevdf.serve(&[(jobs[0], 500 * MS)]);
    eevdf.join(jobs[1], true);
    assert_eq!((eevdf.lag(jobs[0]), eevdf.lag(jobs[1])), (-5 * MS, 5 * MS));
    // One that leaves while it owes (its job's end) leaves the debt where it was.
    eevdf.serve(&[(jobs[1], 30 * MS)]);
    let debt = eevdf.lag(jobs[1]);
    assert!(debt < 0);
    eevdf.leave(jobs[1]);
    eevdf.join(jobs[1], true);
    assert_eq!(eevdf.lag(jobs[1]), debt);
}

#[test]
fn a_pause_that_is_no_sleep_loses_nothing() {
    let (mut eevdf, jobs) = eevdf(&[9, 1], 5 * MS as u64);
    eevdf.serve(&[(jobs[1], 30 * MS)]);
    let owed = eevdf.lag(jobs[0]);
    assert_eq!(owed, 27 * MS);
    for _ in 0..10 {
        eevdf.leave(jobs[0]);
        eevdf.join(jobs[0], false);
        assert_eq!(eevdf.lag(jobs[0]), owed);
    }
}

/// A promise makes the others' weights depend on whether its job is in. Shared by the weights that they had beside it,
/// what it left moved from one to the other each time, until its claim was beyond all bounds (schedule 1795481486).
#[test]
fn coming_and_going_moves_nothing_between_the_others() {
    let (mut eevdf, jobs) = eevdf(&[759, 21, 220], 5 * MS as u64);
    eevdf.serve(&[(jobs[1], 40 * MS + 1)]);
    let lags = |eevdf: &Eevdf| jobs.iter().map(|job| eevdf.lag(*job)).collect::<Vec<_>>();
    let before = lags(&eevdf);
    for _ in 0..100 {
        eevdf.leave(jobs[0]);
        eevdf.set_weight(jobs[1], 780);
        eevdf.share_left();
        eevdf.join(jobs[0], false);
        eevdf.set_weight(jobs[1], 21);
        assert_eq!(lags(&eevdf), before);
    }
}

#[derive(Clone, Debug)]
enum Act {
    Join(usize, bool),
    Leave(usize),
    Weight(usize, u64),
    Request(usize, u64),
    Serve(usize, i64),
    Correct(usize, i64),
    Limit(usize, u64),
}

fn act() -> impl Strategy<Value = Act> {
    let at = || 0..5usize;
    prop_oneof![
        (at(), any::<bool>()).prop_map(|(i, has_slept)| Act::Join(i, has_slept)),
        at().prop_map(Act::Leave),
        (at(), 1..1_000_000_000_000u64).prop_map(|(i, weight)| Act::Weight(i, weight)),
        (at(), 1..20_000_000u64).prop_map(|(i, ns)| Act::Request(i, ns)),
        (at(), 0..50_000_000i64).prop_map(|(i, ns)| Act::Serve(i, ns)),
        (at(), -300_000..300_000i64).prop_map(|(i, ns)| Act::Correct(i, ns)),
        (at(), 0..5_000_000u64).prop_map(|(i, ns)| Act::Limit(i, ns)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5 * ProptestConfig::default().cases))]

    #[test]
    fn what_is_owed_and_what_is_owing_add_up_to_nothing(acts in prop::collection::vec(act(), 1..80)) {
        let mut eevdf = Eevdf::default();
        for job in 0..5 {
            eevdf.add(JobId(job), 5_000_000);
        }
        for act in acts {
            let key = |i: usize| JobId(i as u64);
            match act {
                Act::Join(i, has_slept) => eevdf.join(key(i), has_slept),
                Act::Leave(i) => {
                    eevdf.leave(key(i));
                    eevdf.share_left();
                }
                Act::Weight(i, weight) => eevdf.set_weight(key(i), weight),
                Act::Request(i, ns) => eevdf.set_request(key(i), ns),
                Act::Serve(i, ns) | Act::Correct(i, ns) => {
                    eevdf.join(key(i), true);
                    eevdf.serve(&[(key(i), ns)]);
                }
                Act::Limit(i, ns) => eevdf.limit_claim(key(i), ns),
            }
            prop_assert_eq!(sum_of_lags(&eevdf), 0);
            let waiting: Vec<JobId> = eevdf.rows.keys().copied().filter(|job| eevdf.is_in(*job)).collect();
            // Work conservation: where somebody wants, somebody is chosen, and it is nobody who is ahead.
            let best = eevdf.best(&waiting);
            prop_assert_eq!(best.is_some(), !waiting.is_empty());
            if let Some(best) = best {
                prop_assert!(eevdf.lag(best) >= 0);
            }
        }
    }

    #[test]
    fn nobody_starves(weights in prop::collection::vec(1..1000u64, 2..8), unit in 1_000..5_000_000i64) {
        let (mut eevdf, jobs) = eevdf(&weights, 5_000_000);
        let units = vec![unit; jobs.len()];
        // Long enough for the lightest to be owed two requests.
        let total: u64 = weights.iter().sum();
        let lightest = *weights.iter().min().expect("not empty");
        let enough = 2 * (5 * MS + unit) * i64::try_from(total / lightest + 1).expect("small");
        let got = run(&mut eevdf, &jobs, &units, enough, |_, _| ());
        prop_assert!(got.iter().all(|ns| *ns > 0), "{:?}", got);
    }
}
