// SPDX-License-Identifier: Apache-2.0
//! `partage demo`: shows what Partage does, with its numbers checked, on this machine's GPU or on a simulated one.
//!
//! ```text
//!   demo ─┬─ in a simulated machine, on a managed host, with --socket-dir ─────────────────► the steps
//!         ├─ a GPU: makes a folder ── runs `partage demo` with its broker there ───────────► the steps
//!         │                           stops that broker, removes the folder
//!         └─ none: becomes `partage sim … partage demo`, which tidies up ──────────────────► the steps
//! ```
//! What is to be tidied up belongs to a process that survives the terminal's signals.

mod ending;
mod program;
mod steps;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process;

use nix::unistd::mkdtemp;

use crate::commands::broker;
use crate::failure::{Failure, Outcome};
use crate::launch::execute::{Environment, become_command};
use crate::launch::installed;
use crate::launch::place::{Place, Rule};
use crate::launch::supervise;
use crate::show::report::Report;

use program::{Program, partage};

/// Of the simulated GPU.
const SIMULATED_MEMORY: &str = "8GiB";

/// `partage demo`; `is_explicit` where the caller chose the broker's directory.
///
/// # Errors
/// A file of ours is missing, the programs cannot be started, or a number is wrong.
pub fn demo(place: &Place, is_explicit: bool, report: &Report) -> Outcome<u8> {
    let is_simulated = std::env::var_os("PARTAGE_SIM_DIR").is_some();
    // Without it nothing can be shown, on whatever GPU.
    installed::find(installed::DEMO_CLIENT)?;
    let found = Program::probe();
    let machine = match found {
        Ok(machine) => machine,
        Err(failure) if is_simulated => return Err(failure),
        Err(failure) => {
            report.say(&format!(
                "no GPU to use here ({}): the demo simulates one",
                failure.message
            ));
            return simulate(report);
        }
    };
    if is_simulated || is_explicit || place.rule == Rule::Managed {
        ending::note_signals();
        let shown = steps::show(&machine, is_simulated, place, report);
        return ending::code().map_or(shown, Ok);
    }
    with_own_broker(report)
}

fn words(report: &Report) -> Vec<OsString> {
    let json = Some("--json").filter(|_| report.is_json);
    let color = Some("--color=always").filter(|_| report.style.has_color);
    let words = ["demo"].into_iter().chain(json).chain(color);
    words.map(OsString::from).collect()
}

/// Becomes `partage sim … partage demo`.
fn simulate(report: &Report) -> Outcome<u8> {
    let own = partage()?;
    let machine = format!("demo-{}", process::id());
    let mut all: Vec<OsString> = vec![own.clone().into()];
    // The programs touch little of what they take, so it need not be there.
    all.extend(["sim", "--gpus", "1", "--memory", SIMULATED_MEMORY].map(OsString::from));
    all.extend(["--overcommit", "--machine", &machine, "--"].map(OsString::from));
    all.push(own.clone().into());
    all.extend(words(report));
    Err(become_command(&own, &all, &Environment::inherited()))
}

/// Runs `partage demo` with a broker of its own.
fn with_own_broker(report: &Report) -> Outcome<u8> {
    let folder = mkdtemp("/tmp/partage-demo.XXXXXX");
    let folder = folder.map_err(|errno| Failure::cannot("make a folder in", "/tmp", errno))?;
    let place = Place {
        dir: folder.join("broker"),
        rule: Rule::Private,
    };
    let code = run_at(&place.dir, report);
    // The answer matters more than what could not be tidied up.
    let tidied = broker::stop(&place)
        .and_then(|_| fs::remove_dir_all(&folder).map_err(|error| Failure::cannot("remove", &folder, error)));
    if let Err(failure) = tidied {
        report.say(&failure.sentence());
    }
    code
}

fn run_at(dir: &Path, report: &Report) -> Outcome<u8> {
    let own = partage()?;
    let mut environment = Environment::inherited();
    environment.set("PARTAGE_SOCKET_DIR", dir);
    let mut all = vec![own.clone().into()];
    all.extend(words(report));
    supervise::run(&own, &all, &environment)
}
