// SPDX-License-Identifier: Apache-2.0
//! `partage run --lazy`: COMMAND becomes a job when a process of it first uses a GPU.
//!
//! No broker is asked, and none is started. COMMAND gets the request in a variable, and a token; the library sends the
//! request at the first `cuInit` of each process, and the broker makes one job of all that have this token. A `run
//! --lazy` inside another one adds nothing: what the outer one asked holds for both.

use std::fs::File;
use std::io::Read;

use partage_protocol::admin::{Request, RunRequest};
use serde_json::json;

use crate::arguments::Run;
use crate::failure::{Failure, Outcome, reason};
use crate::launch::command::Command;
use crate::launch::environment::{self, LAZY_REQUEST};
use crate::launch::launch_broker;
use crate::launch::library_copy;
use crate::launch::place::{Place, Rule};
use crate::show::report::Report;
use crate::show::terminal;

/// Bytes of COMMAND that go along, for its owner's eyes in `ps`: variables and arguments share one space.
const SHOWN_COMMAND: usize = 1024;

/// Refuses what cannot be had together.
///
/// # Errors
/// `--summary`: at the end there may have been no job, or several.
pub fn check(arguments: &Run) -> Outcome<()> {
    if arguments.summary {
        let message = "--summary and --lazy do not go together: COMMAND may end without ever having been a job";
        return Err(Failure::invalid(message).hint("leave out one of them"));
    }
    Ok(())
}

/// Is this process inside a `run --lazy`?
pub fn is_inside() -> bool {
    std::env::var_os(LAZY_REQUEST).is_some_and(|request| !request.is_empty())
}

/// What a dry run says of a lazy one.
pub fn later(message: &str) -> String {
    format!("COMMAND starts at once; if it used a GPU now, it {message}")
}

/// Becomes COMMAND inside another `run --lazy`, as which it is admitted.
///
/// # Errors
/// The library is not installed, or COMMAND cannot be run.
pub fn stay(command: Command, arguments: &Run, place: &Place, report: &Report) -> Outcome<u8> {
    let text = "inside a `run --lazy`, whose options hold";
    if arguments.dry_run {
        return Ok(report.dry_run(text, json!({ "message": text })));
    }
    if !arguments.quiet && terminal::stderr_is_for_people() {
        report.say(text);
    }
    command.become_without_job(place)
}

/// Becomes COMMAND, which may become a job later.
///
/// # Errors
/// The library or the broker is not installed, or COMMAND cannot be run.
pub fn start(
    mut command: Command,
    mut request: RunRequest,
    arguments: &Run,
    place: &Place,
    report: &Report,
) -> Outcome<u8> {
    match place.rule {
        Rule::Private => place.prepare()?,
        Rule::Managed => place.check()?,
    }
    let library = library_copy::provide(&place.dir)?;
    let token = random_token()?;
    request.token = Some(token.clone());
    let narrows = request.visible_devices.is_some();
    shorten(&mut request.command);
    let document = serde_json::to_string(&Request::Run(Box::new(request)))
        .map_err(|error| Failure::failed(format!("cannot write the request: {error}")))?;
    let environment = &mut command.environment;
    if narrows {
        environment.remove("CUDA_VISIBLE_DEVICES");
    }
    environment::begin_job(environment, &token, place);
    environment.set(LAZY_REQUEST, document);
    if place.rule == Rule::Private {
        // Only a broker that is not there yet needs the hint, and it may do without.
        if let Err(failure) = launch_broker::remember_driver(place)
            && !arguments.quiet
            && launch_broker::meet(place).is_err()
        {
            report.say(&failure.sentence());
        }
        environment.set("PARTAGE_BROKER", library_copy::provide_broker(&place.dir)?);
    }
    environment::set_standard_error(environment, arguments.quiet);
    command.preload(&library);
    environment::let_sanitizer_start(&mut command.environment, &command.file);
    if !arguments.quiet && terminal::stderr_is_for_people() {
        report.say("COMMAND becomes a job when it first uses a GPU");
    }
    Err(command.become_it())
}

/// 64 hexadecimal digits that nobody guesses.
fn random_token() -> Outcome<String> {
    let mut bytes = [0; 32];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| Failure::failed(format!("cannot read /dev/urandom: {}", reason(&error))))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Keeps as many whole arguments of a command as may be shown.
fn shorten(command: &mut Vec<String>) {
    let mut left = SHOWN_COMMAND;
    let fits = |argument: &&String| {
        let length = argument.len() + 1;
        let fits = length <= left;
        left = left.saturating_sub(length);
        fits
    };
    let kept = command.iter().take_while(fits).count();
    if kept < command.len() {
        command.truncate(kept);
        command.push("…".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_is_cut_after_the_arguments_that_fit() {
        let mut command = vec!["python".to_owned(), "x".repeat(SHOWN_COMMAND), "never".to_owned()];
        shorten(&mut command);
        assert_eq!(command, ["python", "…"]);
        let mut short = vec!["a".to_owned(), String::new()];
        shorten(&mut short);
        assert_eq!(short, ["a", ""]);
    }

    #[test]
    fn a_token_is_64_digits_and_another_each_time() {
        let tokens = [random_token().expect("read"), random_token().expect("read")];
        assert!(tokens[0].len() == 64 && tokens[0] != tokens[1]);
    }

    #[test]
    fn a_summary_of_what_may_be_no_job_is_refused() {
        let lazy = Run {
            lazy: true,
            ..Run::default()
        };
        assert!(check(&lazy).is_ok());
        let summary = Run { summary: true, ..lazy };
        assert!(check(&summary).is_err());
    }
}
