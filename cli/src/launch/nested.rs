// SPDX-License-Identifier: Apache-2.0
//! `partage run` inside a job: no second job, the same one.
//!
//! A job's environment can only lower what the job has, so a `run` inside stays in the job, on its devices, under its
//! limit. A lower limit goes to COMMAND in `PARTAGE_MEM_BYTES`, where it holds while no broker answers; the broker
//! keeps one limit per job, so that is said, and refused with `--strict`. So are terms of time: they are the job's.
//! Whether we are inside is asked of the broker, not of the environment: a terminal multiplexer that was started in a
//! job keeps the job's variables for ever.

use std::env;

use partage_protocol::admin::{JobView, Reply, Request};
use partage_protocol::size::{Amount, format_bytes, parse_amount};
use serde_json::json;

use crate::arguments::Run;
use crate::failure::{Failure, Kind, Outcome};
use crate::launch::command::Command;
use crate::launch::launch_broker;
use crate::launch::place::Place;
use crate::link::ask;
use crate::show::devices::places;
use crate::show::report::Report;
use crate::show::terminal;

/// The living job that this process belongs to.
///
/// # Errors
/// The job's broker does not answer, or `--socket-dir` names another broker than the job's.
pub fn enclosing_job(place: &Place) -> Outcome<Option<JobView>> {
    if env::var_os("PARTAGE_TOKEN").is_none_or(|token| token.len() != 64) {
        return Ok(None);
    }
    let own_place = Place::of_environment();
    let target = std::process::id().to_string();
    let connection = launch_broker::reach(&own_place)?;
    match ask::converse(connection, &own_place, &Request::Get { target }) {
        Ok(Reply::Job(job)) if own_place.dir == place.dir => Ok(Some(job)),
        Ok(Reply::Job(job)) => {
            let broker = own_place.dir.display();
            let failure = Failure::invalid(format!("this is inside {}, whose broker is at {broker}", job.job));
            Err(failure.hint("leave out --socket-dir, or start it outside the job"))
        }
        Ok(other) => Err(ask::unexpected(&own_place, &other)),
        Err(failure) if failure.kind == Kind::NoTarget => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// `run` inside `job`: becomes COMMAND with the lower limit.
///
/// # Errors
/// An option that only a new job could have.
pub fn run(arguments: &Run, job: &JobView, mut command: Command, place: &Place, report: &Report) -> Outcome<u8> {
    if let Some(gpu) = arguments.gpu.as_deref().filter(|gpu| !matches!(*gpu, "auto" | "all")) {
        let devices = places(&job.devices);
        let message = format!("-g {gpu} inside {}, which has GPU {devices}", job.job);
        return Err(Failure::invalid(message).hint("choose among them with CUDA_VISIBLE_DEVICES"));
    }
    let asked = arguments.amounts.mem.as_deref().map(parse_amount).transpose();
    let asked = asked.map_err(|e| Failure::invalid(format!("--mem: {e}")))?;
    let usable = match asked {
        Some(Amount::Share(_)) => usable_bytes(place, job)?,
        _ => 0,
    };
    let held = env::var("PARTAGE_MEM_BYTES").ok().and_then(|text| text.parse().ok());
    let outer = lowest(held, job.devices.iter().filter_map(|d| d.limit_bytes).max());
    let limit = lowest(asked.map(|amount| amount.on(usable)), outer);
    let is_lower = asked.is_some_and(|amount| outer.is_none_or(|outer| amount.on(usable) < outer));
    let mut text = sentence(job, outer, asked, limit.filter(|_| is_lower));
    let terms = terms_asked(arguments);
    if !terms.is_empty() {
        text.push_str(&format!("; {} does not hold inside a job", terms.join(", ")));
    }
    let is_unenforced = is_lower || !terms.is_empty();
    if is_unenforced && arguments.strict {
        let hint = "start it outside the job for a limit of its own";
        return Err(Failure::new(Kind::Unmanageable, format!("--strict: {text}")).hint(hint));
    }
    if arguments.dry_run {
        let body = json!({ "message": text, "job": job.job, "limit_bytes": outer });
        return Ok(report.dry_run(&text, body));
    }
    // What is not enforced is said in any case.
    if is_unenforced || (!arguments.quiet && (asked.is_some() || terminal::stderr_is_for_people())) {
        report.say(&text);
    }
    if let Some(limit) = limit {
        command.environment.set("PARTAGE_MEM_BYTES", limit.to_string());
    }
    command.become_without_job(place)
}

fn lowest(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The terms of time that were asked, as options.
fn terms_asked(arguments: &Run) -> Vec<String> {
    let terms = [
        ("--process-mem", &arguments.amounts.process_mem),
        ("--compute", &arguments.amounts.compute),
        ("--compute-max", &arguments.amounts.compute_max),
        ("--weight", &arguments.amounts.weight),
        ("--priority", &arguments.amounts.priority),
        ("--time-limit", &arguments.amounts.time_limit),
        ("--class", &arguments.class),
        ("--idle-release", &arguments.idle_release),
        ("--checkpoint-every", &arguments.checkpoint_every),
    ];
    let said = |(option, value): (&str, &Option<String>)| Some(format!("{option} {}", value.as_ref()?));
    let preemptible = arguments.preemptible.map(|_| "--preemptible".to_owned());
    terms.into_iter().filter_map(said).chain(preemptible).collect()
}

/// `lower` is the limit that was asked, where it is lower than the job's.
fn sentence(job: &JobView, outer: Option<u64>, asked: Option<Amount>, lower: Option<u64>) -> String {
    let devices = places(&job.devices);
    let model = job.devices.first().map_or("", |d| terminal::model(&d.model));
    let outer = outer.map_or("no limit".to_owned(), |limit| {
        format!("limit {} for all its processes", format_bytes(limit))
    });
    let asked = match (asked, lower) {
        (None, _) => String::new(),
        (Some(amount), None) => format!("; {amount} asked, which is no less"),
        (Some(_), Some(lower)) => format!("; the lower limit {} is not enforced inside a job", format_bytes(lower)),
    };
    format!("inside {} on GPU {devices} ({model}), {outer}{asked}", job.job)
}

/// Usable bytes of the job's largest device: what a percentage is of.
fn usable_bytes(place: &Place, job: &JobView) -> Outcome<u64> {
    let status = ask::status(place)?;
    let of_job = status
        .devices
        .iter()
        .filter(|device| job.devices.iter().any(|d| d.uuid == device.uuid));
    of_job.map(|device| device.usable_bytes).max().ok_or_else(|| {
        let message = format!(
            "the broker does not show the devices of {}, so a percentage has no base",
            job.job
        );
        Failure::failed(message).hint("give a size: -m 4GiB")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Amounts;

    #[test]
    fn every_term_of_time_is_said_not_to_hold() {
        let value = Some("x".to_owned());
        let arguments = Run {
            amounts: Amounts {
                compute: value.clone(),
                compute_max: value.clone(),
                weight: value.clone(),
                priority: value.clone(),
                time_limit: value.clone(),
                ..Amounts::default()
            },
            class: value,
            ..Run::default()
        };
        let said = terms_asked(&arguments).join(", ");
        assert_eq!(
            said,
            "--compute x, --compute-max x, --weight x, --priority x, --time-limit x, --class x"
        );
        assert!(terms_asked(&Run::default()).is_empty());
    }

    #[test]
    fn of_two_limits_the_lower_holds() {
        assert_eq!(lowest(Some(4), Some(8)), Some(4));
        assert_eq!(lowest(None, Some(8)), Some(8));
        assert_eq!(lowest(Some(4), None), Some(4));
        assert_eq!(lowest(None, None), None);
    }
}
