// SPDX-License-Identifier: Apache-2.0
//! Becoming COMMAND as the first process of an admitted job.

use partage_protocol::admin::Admitted;

use crate::arguments::Run;
use crate::failure::Outcome;
use crate::launch::command::Command;
use crate::launch::environment::{begin_job, let_sanitizer_start, set_standard_error};
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
    begin_job(environment, &admitted.token, place);
    environment.remove("CUDA_VISIBLE_DEVICES");
    // A process that starts while no broker answers must not see other jobs' devices.
    let devices: Vec<&str> = admitted.devices.iter().map(|device| device.uuid.as_str()).collect();
    environment.set("PARTAGE_DEVICES", devices.join(","));
    // One number for all devices, so the largest: it may only lower, and the broker knows each device's own.
    let limits: Option<Vec<u64>> = admitted.devices.iter().map(|device| device.limit_bytes).collect();
    if let Some(limit) = limits.and_then(|limits| limits.into_iter().max()) {
        environment.set("PARTAGE_MEM_BYTES", limit.to_string());
    }
    if admitted.is_private {
        environment.set("PARTAGE_BROKER", library_copy::provide_broker(&place.dir)?);
    }
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
