// SPDX-License-Identifier: Apache-2.0
//! `partage register`: another process becomes the first of a job.

use std::time::{Duration, Instant};

use partage_protocol::admin::{Admitted, JobView, RegisterRequest, Reply, Request, RunRequest};
use serde_json::json;

use crate::arguments::{Numbers, Register, Run};
use crate::failure::{Failure, Kind, Outcome};
use crate::launch::launch_broker;
use crate::launch::place::Place;
use crate::launch::run_settings::read_settings;
use crate::link::connection::ConnectionError;
use crate::show::devices::devices_text;
use crate::show::report::Report;
use crate::show::time;

/// How long the command waits for an answer; a broker that first has to open the driver takes its time.
const PATIENCE: Duration = Duration::from_secs(45);

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
    let request = RegisterRequest {
        pid: arguments.pid,
        cgroup: arguments.cgroup.clone(),
        container: arguments.container.clone(),
        container_name: arguments.container_name.clone(),
        run: settings(&arguments.numbers, sources)?,
        ..RegisterRequest::default()
    };
    // Nobody else is there to start a private broker.
    drop(launch_broker::reach(place)?);
    let text = match ask(&request, place, Instant::now() + PATIENCE)? {
        Answer::Admitted(admitted) => {
            let on = devices_text(&admitted.devices) + &time::terms_text(&admitted.terms);
            let text = format!("process {} is the first of {} on {on}", arguments.pid, admitted.job);
            let body =
                json!({ "message": text, "job": admitted.job, "devices": admitted.devices, "terms": admitted.terms });
            report.data("registered", body, |style| style.text(&text) + "\n");
            return Ok(0);
        }
        Answer::Inside(job) => format!("process {} stays in {}", arguments.pid, job.job),
    };
    Ok(report.done(&text))
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
