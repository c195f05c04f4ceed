// SPDX-License-Identifier: Apache-2.0
//! From documents to series: values of every row, with labels, within the budget.

use std::collections::{BTreeMap, BTreeSet};

use partage_protocol::admin::{JobDeviceView, JobView, TotalView};

use crate::declared::{BROKER, GPU, JOB, JOB_GPU, RULE};
use crate::labels::JobLabel;
use crate::row::{Declared, Values};
use crate::seen::Seen;
use crate::series::{Family, Label};
use crate::text;

/// Series of jobs beyond which the smallest jobs are summed, unless the configuration says otherwise: a thousand jobs
/// on one GPU each have some 20.
pub const MOST_SERIES: usize = 50_000;

/// The job that stands for those beyond the budget.
pub const OTHER: &str = "other";

/// One scrape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposition {
    /// In Prometheus' text format.
    pub text: String,
    /// So many series of jobs are in the sums of [`OTHER`], and not there by themselves.
    pub dropped: u64,
}

/// All metrics of what was seen. Jobs have the labels that are asked for, and none that names anybody besides.
#[must_use]
pub fn exposition(seen: &Seen, labels: &[JobLabel], most_series: usize) -> Exposition {
    // Each once, however often it is asked for: any user may ask, and every series of every job has all of them.
    let labels: BTreeSet<JobLabel> = labels.iter().copied().collect();
    let shown = Shown::within(&seen.jobs, most_series);
    let mut families = Vec::new();
    for row in BROKER {
        let mut values = Values::default();
        (row.read)(seen, &mut values);
        families.push(family(row.declared, [(Vec::new(), values)]));
    }
    for row in GPU {
        let of_each = seen.status.devices.iter().map(|gpu| {
            let mut values = Values::default();
            (row.read)(seen, gpu, &mut values);
            let labels = vec![("gpu", gpu.index.to_string()), ("UUID", gpu.uuid.clone())];
            (labels, values)
        });
        families.push(family(row.declared, of_each));
    }
    let named = |job: &JobView| names(job, &labels);
    for row in JOB {
        let values = |job: &JobView| {
            let mut values = Values::default();
            (row.read)(job, &mut values);
            values
        };
        let of_each = shown.single.iter().map(|job| (named(job), values(job)));
        // A sum over unlike jobs says nothing where the label is what the row says.
        families.push(family(row.declared, of_each));
    }
    for row in JOB_GPU {
        let values = |job: &JobView, gpu: &JobDeviceView| {
            let mut values = Values::default();
            (row.read)(job, gpu, &mut values);
            values
        };
        let of_each = shown.single.iter().flat_map(|job| {
            let on = job.devices.iter();
            on.map(|gpu| ([named(job), place(gpu)].concat(), values(job, gpu)))
        });
        let mut one = family(row.declared, of_each);
        one.series.extend(sums(row.declared, &shown.summed, values));
        families.push(one);
    }
    for row in RULE {
        // Without users' names the totals that each user has are one series: the sum.
        let mut sums: BTreeMap<Vec<Label>, f64> = BTreeMap::new();
        for total in &seen.totals {
            let mut values = Values::default();
            (row.read)(total, &mut values);
            for (_, value) in values.into_pairs() {
                *sums.entry(rule_labels(total, &labels)).or_default() += value;
            }
        }
        let series = sums.into_iter().collect();
        families.push(Family {
            declared: row.declared,
            series,
        });
    }
    Exposition {
        text: text::write(&families),
        dropped: shown.dropped,
    }
}

fn family(declared: Declared, of_each: impl IntoIterator<Item = (Vec<Label>, Values)>) -> Family {
    let mut series = Vec::new();
    for (labels, values) in of_each {
        for (by, value) in values.into_pairs() {
            let mut labels = labels.clone();
            labels.extend(declared.by.map(|label| (label, by)));
            series.push((labels, value));
        }
    }
    Family { declared, series }
}

/// Labels of a job: always all that were asked for, so that every series of a metric has the same.
fn names(job: &JobView, labels: &BTreeSet<JobLabel>) -> Vec<Label> {
    let named = |label: &JobLabel| (label.word(), label.of(job).unwrap_or_default());
    let own = [("job", job.job.clone())];
    own.into_iter().chain(labels.iter().map(named)).collect()
}

/// Labels of a job's GPU. One that is not there has its UUID alone.
fn place(gpu: &JobDeviceView) -> Vec<Label> {
    let index = gpu.place();
    let index = if index == gpu.uuid { String::new() } else { index };
    vec![("gpu", index), ("UUID", gpu.uuid.clone())]
}

fn rule_labels(total: &TotalView, labels: &BTreeSet<JobLabel>) -> Vec<Label> {
    let gpu = total.index.map(|index| index.to_string());
    let user = total.user.clone().filter(|_| labels.contains(&JobLabel::User));
    vec![
        ("rule", total.rule.clone()),
        ("key", total.key.clone()),
        ("gpu", gpu.unwrap_or_default()),
        ("user", user.unwrap_or_default()),
    ]
}

/// The sums over these jobs, for each GPU and value of the row's own label.
fn sums(
    declared: Declared,
    jobs: &[&JobView],
    values: impl Fn(&JobView, &JobDeviceView) -> Values,
) -> Vec<(Vec<Label>, f64)> {
    let mut sums: BTreeMap<(String, String, String), f64> = BTreeMap::new();
    for job in jobs {
        for gpu in &job.devices {
            for (by, value) in values(job, gpu).into_pairs() {
                let [(_, index), (_, uuid)] = <[Label; 2]>::try_from(place(gpu)).unwrap_or_default();
                *sums.entry((index, uuid, by)).or_default() += value;
            }
        }
    }
    let labelled = |((index, uuid, by), value): ((String, String, String), f64)| {
        let mut labels = vec![("job", OTHER.to_owned()), ("gpu", index), ("UUID", uuid)];
        labels.extend(declared.by.map(|label| (label, by)));
        (labels, value)
    };
    sums.into_iter().map(labelled).collect()
}

/// Which jobs have series of their own.
struct Shown<'a> {
    single: Vec<&'a JobView>,
    summed: Vec<&'a JobView>,
    dropped: u64,
}

impl<'a> Shown<'a> {
    /// The jobs that hold most memory first, then the oldest, as many as the budget has room for.
    fn within(jobs: &'a [JobView], most_series: usize) -> Self {
        let mut by_size: Vec<&JobView> = jobs.iter().collect();
        let held = |job: &JobView| {
            let of_gpu = |gpu: &JobDeviceView| gpu.used_bytes.max(gpu.request_bytes);
            job.devices.iter().map(of_gpu).fold(0, u64::saturating_add)
        };
        by_size.sort_by_key(|job| std::cmp::Reverse(held(job)));
        let mut room = most_series;
        let (mut kept, mut summed, mut dropped) = (BTreeSet::new(), Vec::new(), 0);
        for job in by_size {
            let series = series_of(job);
            match room.checked_sub(series) {
                // Once one does not fit, no smaller one is shown instead: which are shown goes by size alone.
                Some(rest) if summed.is_empty() => {
                    room = rest;
                    kept.insert(job.job.as_str());
                }
                _ => {
                    dropped += series as u64;
                    summed.push(job);
                }
            }
        }
        Self {
            single: jobs.iter().filter(|job| kept.contains(job.job.as_str())).collect(),
            summed,
            dropped,
        }
    }
}

/// How many series a job has.
fn series_of(job: &JobView) -> usize {
    let of_job = JOB.iter().map(|row| {
        let mut values = Values::default();
        (row.read)(job, &mut values);
        values.into_pairs().len()
    });
    let of_gpu = |gpu: &JobDeviceView| -> usize {
        let counts = JOB_GPU.iter().map(|row| {
            let mut values = Values::default();
            (row.read)(job, gpu, &mut values);
            values.into_pairs().len()
        });
        counts.sum()
    };
    of_job.sum::<usize>() + job.devices.iter().map(of_gpu).sum::<usize>()
}
