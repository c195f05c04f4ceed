// SPDX-License-Identifier: Apache-2.0
//! Becoming COMMAND as the first process of an admitted job.

use partage_protocol::admin::Admitted;

use crate::arguments::Run;
use crate::failure::Outcome;
use crate::launch::command::Command;
use crate::launch::environment::{join_job, let_sanitizer_start, set_standard_error};
use crate::launch::place::Place;
use crate::launch::summary::summarise;
use crate::launch::{library_copy, supervise};
use crate::show::report::Report;

/// Becomes COMMAND as the first process of an admitted job, or with `--summary` its parent.
///
/// # Errors
/// The library or the broker is not installed, or COMMAND cannot be run.
pub fn start(
    mut command: Command,
    admitted: &Admitted,
    place: &Place,
    arguments: &Run,
    report: &Report,
) -> Outcome<u8> {
    let library = library_copy::provide(&place.dir)?;
    let environment = &mut command.environment;
    join_job(environment, admitted, place)?;
    environment.remove("CUDA_VISIBLE_DEVICES");
    set_standard_error(environment, arguments.quiet);
    command.preload(&library);
    let_sanitizer_start(&mut command.environment, &command.file);
    if arguments.summary {
        let code = supervise::run(&command.file, &command.words, &command.environment)?;
        summarise(admitted, u32::from(code), place, report);
        return Ok(code);
    }
    Err(command.become_it())
}
