// SPDX-License-Identifier: Apache-2.0
//! `partage hook create-runtime`: a container becomes a job before it runs a program.
//!
//! The runtime has made the container's namespaces and control group, and its first process waits. A status other than
//! 0 keeps it from starting, and the runtime shows the sentence. Nothing that the container's files say, nor a broker
//! that hangs, keeps the hook beyond its deadline.

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use partage_protocol::admin::RegisterRequest;
use partage_protocol::size::parse_duration;

use super::bundle::{Config, State, complete};
use super::register::{ask, settings};
use crate::arguments::CreateRuntime;
use crate::failure::{Failure, Kind, Outcome, reason};
use crate::launch::place::Place;
use crate::show::report::Report;

/// Longest state and `config.json` that are read, in bytes; those of a container with a thousand mounts have a tenth.
const LONGEST: u64 = 4 << 20;

/// `hook create-runtime`. Its failures are status 1 with one sentence.
pub fn create_runtime(arguments: &CreateRuntime, sources: &clap::ArgMatches, place: &Place, report: &Report) -> u8 {
    match register(arguments, sources, place) {
        Ok(()) => 0,
        Err(failure) if arguments.open && matches!(failure.kind, Kind::NoBroker | Kind::NoAnswer) => {
            report.say(&format!(
                "{}: the container starts without a limit (--open)",
                failure.message
            ));
            0
        }
        Err(failure) => {
            let hint = failure.hint.map_or(String::new(), |hint| format!("; {hint}"));
            report.failure(&Failure {
                hint: None,
                message: format!("the container does not start: {}{hint}", failure.message),
                ..failure
            });
            1
        }
    }
}

fn register(arguments: &CreateRuntime, sources: &clap::ArgMatches, place: &Place) -> Outcome<()> {
    let timeout = parse_duration(&arguments.timeout).map_err(|why| Failure::invalid(format!("--timeout: {why}")))?;
    let timeout = Duration::from_nanos(timeout);
    let deadline = Instant::now() + timeout;
    guard(timeout, arguments.open);
    let mut request = RegisterRequest {
        run: settings(&arguments.numbers, sources)?,
        ..RegisterRequest::default()
    };
    let invalid = |message: String| Failure::invalid(message);
    let state = read("the container's state", std::io::stdin()).map_err(invalid)?;
    let state: State = parse("the container's state", &state).map_err(invalid)?;
    let path = Path::new(&state.bundle).join("config.json");
    let shown = path.display().to_string();
    let file = std::fs::File::open(&path).map_err(|error| invalid(format!("{shown}: {}", reason(&error))))?;
    let config = read(&shown, file).map_err(invalid)?;
    let config: Config = parse(&shown, &config).map_err(invalid)?;
    complete(&mut request, &state, &config).map_err(invalid)?;
    ask(&request, place, deadline).map(|_| ())
}

/// A file that does not answer, or a pipe that nobody closes, keeps no container waiting.
fn guard(timeout: Duration, is_open: bool) {
    /// How much later than the conversation's own deadline.
    const SLACK: Duration = Duration::from_millis(200);
    std::thread::spawn(move || {
        std::thread::sleep(timeout + SLACK);
        let what = if is_open {
            "may start without a limit (--open)"
        } else {
            "does not start"
        };
        eprintln!("partage: the container {what}: its files or the broker did not answer in time");
        std::process::exit(i32::from(!is_open));
    });
}

fn read(what: &str, source: impl Read) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    source
        .take(LONGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("{what}: {}", reason(&error)))?;
    if bytes.len() as u64 > LONGEST {
        return Err(format!("{what} has more than {} MiB", LONGEST >> 20));
    }
    Ok(bytes)
}

fn parse<T: serde::de::DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("{what} cannot be read: {error}"))
}
