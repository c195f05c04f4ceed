// SPDX-License-Identifier: Apache-2.0
//! What COMMAND's environment gets and loses: the library, the job's variables, those that `run` has read.

use std::path::Path;

use partage_protocol::admin::Admitted;

use crate::arguments::TWINS;
use crate::failure::Outcome;
use crate::launch::execute::Environment;
use crate::launch::library_copy;
use crate::launch::place::Place;
use crate::launch::preflight::elf;

/// The variable that carries the request of `run --lazy` to the library.
pub const LAZY_REQUEST: &str = "PARTAGE_LAZY_REQUEST";

/// Says which file the library may write a denial to: none with `-q`.
pub fn set_standard_error(environment: &mut Environment, is_quiet: bool) {
    let file = if is_quiet {
        Some("quiet".to_owned())
    } else {
        standard_error()
    };
    match file {
        Some(file) => environment.set("PARTAGE_STDERR", file),
        None => environment.remove("PARTAGE_STDERR"),
    }
}

/// The file that standard error is, so that the library speaks there and nowhere else.
fn standard_error() -> Option<String> {
    let facts = nix::sys::stat::fstat(std::io::stderr()).ok()?;
    Some(format!("{}:{}", facts.st_dev, facts.st_ino))
}

/// Puts the library first in `LD_PRELOAD`, in place of other copies of ours, by a path that carries the job's token:
/// processes that lose the variable with it are of the job still.
pub fn preload(environment: &mut Environment, library: &Path) {
    let token = environment.get("PARTAGE_TOKEN").and_then(|token| token.to_str());
    let path = token.and_then(|token| library_copy::carrying(library, token));
    let path = path.unwrap_or_else(|| library.to_owned());
    environment.put_first("LD_PRELOAD", &path, b": ", library_copy::is_ours);
}

/// A program with the address sanitizer in a library of its own refuses to start when another library is loaded before
/// that one. Ours defines nothing that the sanitizer does, so it may come first; the sanitizer is told so. Not by
/// putting it before ours in `LD_PRELOAD`: then every program that this one starts would be checked for leaks.
pub fn let_sanitizer_start(environment: &mut Environment, file: &Path) {
    let is_sanitizer = |name: &str| {
        let name = name.rsplit('/').next().unwrap_or(name);
        name.starts_with("libasan.so") || name.starts_with("libclang_rt.asan")
    };
    let preloaded = environment
        .get("LD_PRELOAD")
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let is_needed = elf::libraries_needed(file).iter().any(|name| is_sanitizer(name));
    if is_needed || preloaded.split([' ', ':']).any(is_sanitizer) {
        let mut options = environment.get("ASAN_OPTIONS").unwrap_or_default().to_owned();
        if !options.is_empty() {
            options.push(":");
        }
        options.push("verify_asan_link_order=0");
        environment.set("ASAN_OPTIONS", options);
    }
}

/// Names the job that COMMAND begins, in place of another one's variables and of those that `run` has read.
pub fn begin_job(environment: &mut Environment, token: &str, place: &Place) {
    remove_twins(environment);
    forget_job(environment);
    environment.set("PARTAGE_TOKEN", token);
    environment.set("PARTAGE_SOCKET_DIR", &place.dir);
}

/// Names an admitted job to a process of it, with what holds while no broker answers.
///
/// # Errors
/// The broker is not installed, which the job's processes start where their private one is gone.
pub fn join_job(environment: &mut Environment, admitted: &Admitted, place: &Place) -> Outcome<()> {
    begin_job(environment, &admitted.token, place);
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
    Ok(())
}

/// Removes what another job left.
pub fn forget_job(environment: &mut Environment) {
    for name in [
        "PARTAGE_TOKEN",
        "PARTAGE_BROKER",
        "PARTAGE_DEVICES",
        "PARTAGE_MEM_BYTES",
    ] {
        environment.remove(name);
    }
    environment.remove(LAZY_REQUEST);
}

/// Removes the variables that `run` has read.
pub fn remove_twins(environment: &mut Environment) {
    TWINS.iter().for_each(|name| environment.remove(name));
}
