// SPDX-License-Identifier: Apache-2.0
//! Compares what `ps` shows with the driver's own account.

use std::time::Duration;

use crate::client::Client;
use crate::rig::Rig;

pub const SECOND: Duration = Duration::from_secs(1);

/// Waits until what `ps` says is what the driver says.
#[track_caller]
pub fn books_agree(rig: &Rig, what: &str) {
    rig.eventually(SECOND, what, || rig.ledger_used() == rig.truth_allocated());
}

/// Says a line that must succeed.
#[track_caller]
pub fn done(client: &mut Client, line: &str) {
    let verb = line.split(' ').next().unwrap_or(line);
    client.expect(line, &format!("{verb} 0"));
}
