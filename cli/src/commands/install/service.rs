// SPDX-License-Identifier: Apache-2.0
//! The host's broker as systemd's service, or without systemd.
//!
//! A broker that runs is left alone where it is the service (or there is no systemd) and its files are the same. Else
//! another takes its place: jobs go on, and the next broker adopts them.

use std::fs;
use std::os::unix::fs::DirBuilderExt;

use partage_protocol::admin::BrokerView;

use super::change::Changes;
use super::host::{Started, disable, has_systemd, system_place, systemctl};
use super::tree::{SOCKETS, Tree, UNIT};
use crate::commands::broker;
use crate::failure::{Failure, Outcome};
use crate::launch::installed::BROKER;
use crate::launch::launch_broker;
use crate::launch::place::Place;
use crate::link::ask;

/// What starts the broker where nothing does it at boot.
pub fn start_line(tree: &Tree) -> String {
    format!(
        "setsid {} --managed </dev/null >/dev/null 2>&1 &",
        tree.program(BROKER).display()
    )
}

/// Lets the host's broker run: `is_new` says that its files changed.
///
/// # Errors
/// It does not start; systemd, or its own first words, say why.
pub fn start(tree: &Tree, is_new: bool, changes: &mut Changes) -> Outcome<()> {
    let running = ask::status(&system_place()).ok().map(|status| status.broker);
    let is_own_version = running
        .as_ref()
        .is_none_or(|broker| broker.version.contains(env!("PARTAGE_VERSION")));
    let must_change = is_new || !is_own_version;
    let result = match has_systemd() {
        true => start_service(running.is_some(), must_change, changes),
        false => start_process(tree, running.as_ref(), must_change, changes),
    };
    result.map_err(|mut failure| {
        // The log that a failure names goes again with all the rest.
        failure.hint = running
            .is_some()
            .then(|| "a broker ran before; whether it still does: partage status (jobs go on)".to_owned());
        failure
    })
}

fn start_process(tree: &Tree, running: Option<&BrokerView>, must_change: bool, changes: &mut Changes) -> Outcome<()> {
    let place = system_place();
    match running {
        Some(broker) if !must_change => {
            changes.say("unchanged", format!("the broker (pid {})", broker.pid));
            return Ok(());
        }
        Some(_) => drop(broker::stop(&place)?),
        None => {}
    }
    let is_first = !place.dir.exists();
    // Of an own mode: every user has to reach the sockets.
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(&place.dir);
    made.map_err(|error| Failure::cannot("make", &place.dir, error))?;
    changes.started(Started::Process { is_new: is_first });
    launch_broker::start_managed(&place, &tree.program(BROKER))?;
    say_started(&place, changes)
}

fn start_service(is_running: bool, must_change: bool, changes: &mut Changes) -> Outcome<()> {
    let place = system_place();
    let asks = |words: &[&str]| systemctl(words).is_ok();
    if must_change {
        systemctl(&["daemon-reload"])?;
    }
    let is_active = asks(&["is-active", "--quiet", UNIT]);
    let is_enabled = asks(&["is-enabled", "--quiet", UNIT]);
    // Asked of several at once, it says yes for one.
    let has_sockets = SOCKETS.iter().all(|unit| asks(&["is-active", "--quiet", unit]));
    if is_active && is_enabled && is_running && has_sockets && !must_change {
        changes.say("unchanged", format!("{UNIT} runs"));
        return Ok(());
    }
    if is_running && !is_active {
        // One that was started by hand keeps the service out.
        broker::stop(&place)?;
    }
    if !(is_active && is_enabled) {
        changes.started(Started::Service);
    }
    systemctl(&["enable", UNIT, SOCKETS[0], SOCKETS[1]])?;
    if is_active && !has_sockets {
        // systemd opens no socket for a service that runs without it.
        systemctl(&["stop", UNIT])?;
    }
    // Those that it holds already it goes on holding: nobody who comes meanwhile finds them shut.
    systemctl(&["start", SOCKETS[0], SOCKETS[1]])?;
    systemctl(&["restart", UNIT])?;
    launch_broker::reach(&place)?;
    say_started(&place, changes)
}

fn say_started(place: &Place, changes: &mut Changes) -> Outcome<()> {
    let pid = ask::status(place)?.broker.pid;
    changes.say("started", format!("the broker (pid {pid})"));
    Ok(())
}

/// Ends the host's broker and whatever starts it. Answers whether there was one.
///
/// # Errors
/// It does not end.
pub fn stop() -> Outcome<bool> {
    let has_service = has_systemd() && systemctl(&["cat", UNIT]).is_ok();
    if has_service {
        disable()?;
    }
    Ok(broker::stop(&system_place())? || has_service)
}
