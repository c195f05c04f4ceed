// SPDX-License-Identifier: Apache-2.0
//! What sets shares of time besides `run`'s options: other tools' variables, and the administrator's rules.

use partage_protocol::admin::{ReadingView, StatusView};
use partage_protocol::time_aliases::{TimeVariable, asked};

use super::check::Check;
use crate::launch::run_settings::aliases_here;
use crate::show::tables::joined;

/// Variables and rules. Without a broker the defaults hold: every variable counts.
pub fn checks(status: Option<&StatusView>) -> Vec<Check> {
    let off = status.map(|status| status.broker.aliases_off.clone());
    let mut checks = vec![aliases(&aliases_here(), &off.unwrap_or_default())];
    checks.extend(status.map(rules));
    checks.extend(
        status
            .and_then(|status| status.broker.config.as_ref())
            .map(configuration),
    );
    checks
}

/// Which configuration holds, and whether the last reload was taken.
fn configuration(reading: &ReadingView) -> Check {
    const NAME: &str = "config";
    match &reading.error {
        None => Check::ok(NAME, format!("number {} of {} holds", reading.generation, reading.file)),
        Some(why) => Check::warn(
            NAME,
            format!("the last reload changed nothing: {why}"),
            "mend the file, then: sudo partage config reload",
        ),
    }
}

fn aliases(found: &[(String, String)], off: &[String]) -> Check {
    const NAME: &str = "time alias";
    let is_on = |variable: TimeVariable| !off.iter().any(|key| key == variable.key());
    let mut names = Vec::new();
    for (name, value) in found {
        let Some(variable) = TimeVariable::of(name.as_bytes()) else {
            continue;
        };
        let switched = if is_on(variable) {
            ""
        } else {
            " (switched off by the configuration)"
        };
        names.push(format!("{name}={value}{switched}"));
    }
    if names.is_empty() {
        return Check::ok(NAME, "no variables of other tools about time are set");
    }
    match asked(found, is_on) {
        Err(why) => Check::warn(NAME, why.to_string(), "mend or unset it: `run` refuses it"),
        Ok(asked) => {
            let cap = asked.cap.map(|cap| format!("cap {} by {}", cap.value, cap.text));
            let class = asked
                .class
                .map(|class| format!("priority {} by {}", class.value, class.text));
            let counts: Vec<String> = cap.into_iter().chain(class).collect();
            let counts = joined(&counts, ", ", "nothing");
            let text = format!("{}: where no option says otherwise, {counts}", names.join(", "));
            Check::ok(NAME, text)
        }
    }
}

fn rules(status: &StatusView) -> Check {
    let broker = &status.broker;
    let class = match broker.max_class.as_str() {
        "realtime" => "any priority".to_owned(),
        most => format!("at most priority {most}"),
    };
    let percent = broker.compute_overcommit_percent;
    let text = format!("everybody may ask for {class}; up to {percent} % of a GPU's time may be promised");
    Check::ok("time", text)
}

#[cfg(test)]
mod tests {
    use super::super::check::State;
    use super::*;

    #[test]
    fn each_variable_is_named_and_what_it_means() {
        let found = [("CUDA_DEVICE_SM_LIMIT", "50"), ("CUDA_TASK_PRIORITY", "2")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let check = aliases(&found, &[]);
        assert_eq!(
            check.text,
            "CUDA_DEVICE_SM_LIMIT=50, CUDA_TASK_PRIORITY=2: where no option says otherwise, cap 50 % by \
             CUDA_DEVICE_SM_LIMIT=50, priority low by CUDA_TASK_PRIORITY=2"
        );
        let off = ["cuda_device_sm_limit".to_owned(), "cuda_task_priority".to_owned()];
        let text = aliases(&found, &off).text;
        assert!(
            text.ends_with("otherwise, nothing") && text.matches("switched off").count() == 2,
            "{text}"
        );
        let wrong = [("CUDA_DEVICE_SM_LIMIT".to_owned(), "half".to_owned())];
        assert_eq!(aliases(&wrong, &[]).state, State::Warn);
        assert_eq!(aliases(&[], &[]).state, State::Ok);
    }
}
