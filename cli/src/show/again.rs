// SPDX-License-Identifier: Apache-2.0
//! A command that shows itself again and again, as `watch` would call it.

use std::io::IsTerminal;
use std::time::Duration;

use crate::failure::{Failure, Kind, Outcome};
use crate::show::report::{self, Report};

/// Calls `show` once, or every so many seconds until somebody ends it. A broker that is not there is said in its place,
/// and asked for again.
///
/// # Errors
/// What `show` fails with when it is called once; later only what asking again cannot mend.
pub fn every(seconds: Option<u16>, report: &Report, show: impl Fn(&Report) -> Outcome<u8>) -> Outcome<u8> {
    let Some(seconds) = seconds else { return show(report) };
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    let mut now = Report {
        is_in_place: !report.is_json && std::io::stdout().is_terminal() && !is_dumb,
        ..*report
    };
    if now.is_in_place {
        report::write_out("\x1b[H\x1b[2J");
    }
    loop {
        now.style = now.style.measured_again();
        match show(&now) {
            Err(failure) if may_pass(&failure) => now.failure_in_place(&failure),
            Err(failure) => return Err(failure),
            Ok(_) => {}
        }
        std::thread::sleep(Duration::from_secs(seconds.into()));
    }
}

/// Another broker may come.
fn may_pass(failure: &Failure) -> bool {
    matches!(failure.kind, Kind::NoBroker | Kind::NoAnswer | Kind::Internal)
}
