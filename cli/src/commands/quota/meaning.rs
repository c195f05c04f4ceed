// SPDX-License-Identifier: Apache-2.0
//! What a quota means in words, what its subject has now, and whether it can limit anything here.

use partage_protocol::admin::{DeviceView, JobView};
use partage_protocol::size::{Amount, format_bytes, parse_amount};

use super::words::{Key, Subject};
use crate::commands::user::Together;
use crate::show::tables::{count, joined};

/// What this key with this value means for whom it is set.
pub fn meaning(subject: &Subject, key: &Key, value: &str) -> String {
    let who = subject.who();
    let whose = match key.table {
        Some("max") => format!("each job of {who}"),
        Some("each_user") if subject.total() != "each_user" => format!("all jobs of each user of {who} together"),
        _ => format!("all jobs of {who} together"),
    };
    if value == "0" && matches!(key.key.as_str(), "mem" | "gpus" | "jobs") {
        return format!("{who} is barred: no job begins, and those that run get no more memory");
    }
    match key.key.as_str() {
        "mem" => format!("{whose}: at most {value} on each GPU"),
        "process_mem" => format!("each process of {who}: at most {value} on each GPU"),
        "compute" => format!("{whose}: at most {value} of each GPU's time promised (each-job.compute-max is the cap)"),
        "compute_max" => format!("{whose}: at most {value} of each GPU's time"),
        "weight" => format!("{whose}: at most weight {value}"),
        "priority" => format!("{whose}: at most priority {value}"),
        "time_limit" => format!("{whose}: ends after {value}"),
        "gpus" => format!("{whose}: at most {value} {}", plural(value, "GPU")),
        "jobs" => format!("{whose}: at most {value} {} at a time", plural(value, "job")),
        _ => format!("jobs of {who} that name no class are of class {value}"),
    }
}

/// Why a limit limits nothing here, if it does not.
pub fn question(key: &Key, value: &str, devices: &[DeviceView]) -> Option<String> {
    let largest = devices.iter().map(|device| device.total_bytes).max()?;
    match key.key.as_str() {
        "mem" | "process_mem" => match parse_amount(value).ok()? {
            Amount::Bytes(bytes) if bytes > largest => Some(format!(
                "{key}={value} limits nothing: the largest GPU here has {}",
                format_bytes(largest)
            )),
            _ => None,
        },
        "gpus" => {
            let (most, here) = (value.parse::<usize>().ok()?, devices.len());
            let gpus = count(here, "GPU");
            (most > here).then(|| format!("{key}={value} limits nothing: this host has {gpus}"))
        }
        _ => None,
    }
}

/// Of these jobs those of the subject that are there.
pub fn jobs_of(subject: &Subject, jobs: Vec<JobView>) -> Vec<JobView> {
    let is_theirs = |job: &JobView| job.ended_ns.is_none() && subject.has(job.uid, &job.user);
    jobs.into_iter().filter(is_theirs).collect()
}

/// `alice has now: 3.1 GiB on GPU 0 (2 jobs)`.
pub fn now_text(subject: &Subject, devices: &[Together]) -> String {
    let one = |sum: &Together| {
        let used = format_bytes(sum.used_bytes);
        format!("{used} on GPU {} ({})", sum.gpu, count(sum.jobs, "job"))
    };
    let devices: Vec<String> = devices.iter().map(one).collect();
    let has = joined(&devices, ", ", "no job");
    format!("{} has now: {has}", subject.who())
}

fn plural(count: &str, noun: &str) -> String {
    if count == "1" {
        noun.to_owned()
    } else {
        format!("{noun}s")
    }
}

#[cfg(test)]
mod tests {
    use super::super::words::setting;
    use super::*;

    fn said(who: &str, text: &str) -> String {
        let subject = Subject::parse(who).expect("a subject");
        let (key, value) = setting(text, &subject).expect("a setting");
        meaning(&subject, &key, &value)
    }

    #[test]
    fn a_quota_says_whose_jobs_it_bounds() {
        for (who, text, words) in [
            (
                "user:alice",
                "mem=2GiB",
                "all jobs of alice together: at most 2GiB on each GPU",
            ),
            (
                "user:alice",
                "each-user.mem=2GiB",
                "all jobs of alice together: at most 2GiB on each GPU",
            ),
            (
                "user:alice",
                "each-job.mem=2GiB",
                "each job of alice: at most 2GiB on each GPU",
            ),
            ("group:lab", "gpus=1", "all jobs of group lab together: at most 1 GPU"),
            (
                "group:lab",
                "each-user.jobs=2",
                "all jobs of each user of group lab together: at most 2 jobs at a time",
            ),
            ("*", "priority=normal", "each job of everybody: at most priority normal"),
            (
                "user:alice",
                "jobs=0",
                "alice is barred: no job begins, and those that run get no more memory",
            ),
        ] {
            assert_eq!(said(who, text), words, "{who} {text}");
        }
    }
}
