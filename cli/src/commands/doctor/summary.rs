// SPDX-License-Identifier: Apache-2.0
//! All checks, one after the other, and how they are written.

use serde_json::json;

use super::check::{Check, State};
use super::{driver, library, memory, system, time};
use crate::arguments::Doctor;
use crate::failure::Outcome;
use crate::launch::place::Place;
use crate::link::{ask, idle};
use crate::show::report::Report;
use crate::show::tables::{count, wrapped};
use crate::show::terminal::Style;

/// `partage doctor`: code 1 when a check fails; with `--strict` also when one warns.
pub fn doctor(arguments: &Doctor, place: &Place, report: &Report) -> Outcome<u8> {
    let mut checks = driver::checks();
    checks.extend(library::checks(place));
    // Asked once: a broker that does not answer costs its deadline once.
    let status = ask::status(place);
    checks.extend(system::checks(place, &status));
    let status = status.ok();
    let has_driver = checks
        .iter()
        .any(|check| check.name == "NVML" && check.state == State::Ok);
    let devices = match &status {
        Some(status) => status.devices.clone(),
        None if has_driver => idle::devices(),
        None => Vec::new(),
    };
    checks.extend(memory::checks(status.as_ref(), &devices));
    checks.extend(time::checks(status.as_ref()));
    let failed = checks.iter().filter(|c| c.state == State::Fail).count();
    let body = json!({ "is_ok": failed == 0, "checks": checks });
    report.data("doctor", body, |style| text(style, &checks));
    let has_warned = checks.iter().any(|check| check.state == State::Warn);
    Ok(u8::from(failed > 0 || (arguments.strict && has_warned)))
}

fn text(style: &Style, checks: &[Check]) -> String {
    let mut text = String::new();
    for check in checks {
        let word = match check.state {
            State::Ok => "ok",
            State::Off => "off",
            State::Warn => "warn",
            State::Fail => "fail",
        };
        let pad = " ".repeat(6 - word.len());
        text.push_str(&format!("{}{pad}{:<12}", style.state(word), check.name));
        text.push_str(&wrapped(&style.text(&check.text), style.width, INDENT));
        if let Some(fix) = &check.fix {
            text.push_str(&" ".repeat(INDENT));
            text.push_str(&wrapped(&style.text(&format!("fix: {fix}")), style.width, INDENT));
        }
    }
    let of = |state| checks.iter().filter(|c| c.state == state).count();
    text.push_str(&format!(
        "\n{}, {}\n",
        count(of(State::Fail), "failure"),
        count(of(State::Warn), "warning")
    ));
    text
}

/// Where the texts begin.
const INDENT: usize = 18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_its_word_and_its_fix() {
        let style = Style {
            has_color: false,
            is_utf8: true,
            width: 80,
            is_cut: false,
        };
        let checks = [
            Check::ok("kernel", "6.1"),
            Check::off("checkpoint", "no CRIU"),
            Check::fail("library", "missing", "install it"),
        ];
        assert_eq!(
            text(&style, &checks),
            "ok    kernel      6.1\noff   checkpoint  no CRIU\n\
             fail  library     missing\n                  fix: install it\n\n\
             1 failure, 0 warnings\n"
        );
    }
}
