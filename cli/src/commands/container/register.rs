// SPDX-License-Identifier: Apache-2.0
//! `partage register`: another process, with its control group, becomes a job.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use nix::unistd::Uid;
use partage_protocol::admin::{Admitted, AtMost, JobView, RegisterRequest, Reply, Request, RunRequest};
use partage_protocol::size::{NONE, parse_amount, parse_duration};
use serde_json::{Map, Value, json};

use crate::arguments::{Numbers, Register, Run};
use crate::failure::{Failure, Kind, Outcome};
use crate::launch::execute::Environment;
use crate::launch::place::{Place, Rule};
use crate::launch::run_settings::{check_name, read_settings};
use crate::launch::{environment, launch_broker, library_copy};
use crate::link::connection::ConnectionError;
use crate::show::devices::devices_text;
use crate::show::report::Report;
use crate::show::time;

/// Pause before a broker that is not there is looked for again.
const PAUSE: Duration = Duration::from_millis(20);

/// What became of a registration.
pub enum Answer {
    /// The process is the first of this job.
    Admitted(Box<Admitted>),
    /// It is of this job already, inside which the command runs.
    Inside(Box<JobView>),
}

/// `partage register`.
pub fn register(arguments: &Register, sources: &clap::ArgMatches, place: &Place, report: &Report) -> Outcome<u8> {
    let patience = parse_duration(&arguments.timeout);
    let patience = patience.map_err(|why| Failure::invalid(format!("--timeout: {why}")))?;
    let request = RegisterRequest {
        pid: arguments.pid,
        cgroup: arguments.cgroup.clone(),
        container: arguments.container.clone(),
        container_name: arguments.container_name.clone(),
        at_most: at_most(&arguments.at_most)?,
        engine: arguments.engine.clone(),
        engine_words: arguments.engine_words.clone(),
        run: RunRequest {
            name: arguments.name.clone(),
            ..settings(&arguments.numbers, sources)?
        },
        ..RegisterRequest::default()
    };
    if let Some(name) = &request.run.name {
        check_name(name).map_err(|why| Failure::invalid(format!("--name: {why}")))?;
    }
    let deadline = Instant::now() + Duration::from_nanos(patience);
    if place.rule == Rule::Private {
        // Nobody else is there to start one.
        drop(launch_broker::reach(place)?);
    }
    let text = match ask(&request, place, deadline)? {
        Answer::Admitted(admitted) => {
            let on = devices_text(&admitted.devices) + &time::terms_text(&admitted.terms);
            let (pid, job) = (arguments.pid, &admitted.job);
            let is_new = admitted.pid == pid || admitted.pid == 0;
            let text = match is_new {
                true => format!("process {pid} is the first of {job} on {on}"),
                false => format!("process {pid} is of {job}, whose control group it is in, on {on}"),
            };
            let environment: Map<String, Value> = match report.is_json {
                true => inside(&admitted, pid, place)
                    .unwrap_or_default()
                    .texts()
                    .map(to_json)
                    .collect(),
                false => Map::new(),
            };
            let body = json!({
                "message": text, "job": job, "devices": admitted.devices, "terms": admitted.terms, "is_new": is_new,
                "environment": environment,
            });
            report.data("registered", body, |style| style.text(&text) + "\n");
            return Ok(0);
        }
        Answer::Inside(job) => format!("process {} stays in {}", arguments.pid, job.job),
    };
    Ok(report.done(&text))
}

/// What `run` would have given to the process: with these variables a program that it starts is of the job still when
/// it has lost its parents. None for a process of another user, who would find the library in a folder of the caller's.
fn inside(admitted: &Admitted, pid: u32, place: &Place) -> Outcome<Environment> {
    let mut environment = Environment::default();
    let owner = fs::metadata(format!("/proc/{pid}")).map(|data| data.uid());
    if owner.is_ok_and(|owner| owner == Uid::effective().as_raw()) {
        environment::join_job(&mut environment, admitted, place)?;
        environment::preload(&mut environment, &library_copy::provide(&place.dir)?);
    }
    Ok(environment)
}

fn to_json((name, value): (String, String)) -> (String, Value) {
    (name, value.into())
}

/// `--at-most`, each key once or more; the last counts.
fn at_most(settings: &[String]) -> Outcome<AtMost> {
    let mut most = AtMost::default();
    for setting in settings {
        let bad = |why: String| Failure::invalid(format!("--at-most {why}"));
        let (key, value) = setting
            .split_once('=')
            .ok_or_else(|| bad(format!("{setting:?} needs a value")).hint("e.g. --at-most mem=8GiB"))?;
        if value == NONE {
            return Err(bad(format!("{key}: {NONE:?} is no limit: leave it out")));
        }
        let (place, checked) = match key {
            "mem" => (&mut most.mem, size(value)),
            "mem-request" => (&mut most.mem_request, size(value)),
            "process-mem" => (&mut most.process_mem, size(value)),
            _ => {
                let checked = time::check(key, value).map_err(|why| why.to_string());
                let place = time::place_of(&mut most.terms, key).ok_or_else(|| {
                    let keys = "mem, mem-request, process-mem, compute, compute-max, weight, priority, time-limit";
                    bad(format!("{key:?} is unknown")).hint(format!("it takes {keys}"))
                })?;
                (place, checked)
            }
        };
        checked.map_err(|why| bad(format!("{key}: {why}")))?;
        *place = Some(value.to_owned());
    }
    Ok(most)
}

fn size(text: &str) -> Result<(), String> {
    parse_amount(text).map(drop).map_err(|why| why.to_string())
}

/// The numbers as a request; other tools' variables of this process say nothing of the other one.
pub fn settings(numbers: &Numbers, sources: &clap::ArgMatches) -> Outcome<RunRequest> {
    Ok(RunRequest {
        gpu: numbers.gpu.clone(),
        aliases: Vec::new(),
        wait: false,
        quiet: true,
        ..read_settings(&as_run(numbers), sources)?
    })
}

/// The same as options of `run`; `all` GPUs is a word of a registration's.
fn as_run(numbers: &Numbers) -> Run {
    Run {
        amounts: numbers.amounts.clone(),
        class: numbers.class.clone(),
        gpu: numbers.gpu.clone().filter(|gpu| gpu != "all"),
        label: numbers.label.clone(),
        strict: numbers.strict,
        ..Run::default()
    }
}

/// Asks until there is an answer or the time is over. A broker that went away is asked again when it is back: it may
/// have written the job down before, and answers the same.
///
/// # Errors
/// The broker refuses, is not there, or does not answer in time.
pub fn ask(request: &RegisterRequest, place: &Place, deadline: Instant) -> Outcome<Answer> {
    place.check()?;
    loop {
        let lost = match converse(request, place, deadline) {
            Ok(Reply::Admitted(admitted)) => return Ok(Answer::Admitted(Box::new(admitted))),
            Ok(Reply::Inside(job)) => return Ok(Answer::Inside(job)),
            Ok(Reply::Error(error)) => return Err(error.into()),
            Ok(other) => {
                let unreadable = ConnectionError::Unreadable(format!("{other:?}"));
                return Err(unreadable.into_failure(&place.dir));
            }
            Err(lost @ (ConnectionError::Absent(_) | ConnectionError::Ended)) => lost,
            Err(ConnectionError::Late(_)) => {
                let message = format!("the broker at {} does not answer", place.dir.display());
                return Err(Failure::new(Kind::NoAnswer, message));
            }
            Err(other) => return Err(other.into_failure(&place.dir)),
        };
        if Instant::now() + PAUSE >= deadline {
            let failure = Failure::new(Kind::NoBroker, format!("no broker answers at {}", place.dir.display()));
            return Err(match lost {
                ConnectionError::Absent(_) => failure,
                other => other.into_failure(&place.dir),
            });
        }
        std::thread::sleep(PAUSE);
    }
}

fn converse(request: &RegisterRequest, place: &Place, deadline: Instant) -> Result<Reply, ConnectionError> {
    let mut connection = launch_broker::open(place)?;
    connection.say(&Request::Register(Box::new(request.clone())))?;
    connection.hear(Some(deadline))
}
