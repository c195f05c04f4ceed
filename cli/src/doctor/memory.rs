// SPDX-License-Identifier: Apache-2.0
//! What sets memory limits besides `--mem`: other tools' variables, and promises beyond what there is.

use std::env;

use partage_protocol::admin::StatusView;
use partage_protocol::aliases::{Family, Variable, asked};
use partage_protocol::size::format_bytes;

use super::check::Check;
use crate::place::Place;
use crate::run_settings::aliases_here;
use crate::status;

/// Variables and promises. Without a broker the defaults hold: every variable counts, nothing is overcommitted.
pub fn checks(place: &Place) -> Vec<Check> {
    let status = status::ask(place).ok();
    let off = status.as_ref().map(|status| status.broker.aliases_off.clone());
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    let own = ["PARTAGE_MEM", "PARTAGE_MEM_REQUEST"]
        .into_iter()
        .find(|name| is_set(name));
    let mut checks = vec![aliases(&aliases_here(), own, &off.unwrap_or_default())];
    checks.extend(status.iter().map(promises));
    checks.extend(status.iter().map(audit));
    checks
}

fn aliases(found: &[(String, String)], own: Option<&str>, off: &[String]) -> Check {
    const NAME: &str = "aliases";
    let listed = |is_it: &dyn Fn(Family) -> bool| {
        let names = found
            .iter()
            .filter(|(name, _)| Variable::of(name.as_bytes()).is_some_and(|v| is_it(v.family())));
        names
            .map(|(name, value)| format!("{name}={value}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    if found.is_empty() {
        return Check::ok(NAME, "no memory variables of other tools are set");
    }
    let all = listed(&|_| true);
    if let Some(own) = own {
        return Check::ok(NAME, format!("{all}: do not count, because {own} is set"));
    }
    let is_on = |family: Family| !off.iter().any(|key| key == family.key());
    let mut text = match asked(found, is_on) {
        Err(why) => {
            return Check::warn(
                NAME,
                why.to_string(),
                "mend or unset it: `run` refuses it without --mem",
            );
        }
        Ok(None) => return Check::ok(NAME, format!("{all}: switched off by the configuration")),
        Ok(Some(asked)) => {
            let counts = listed(&|family| family == asked.family);
            let rest = listed(&|family| family != asked.family && is_on(family));
            let rest = if rest.is_empty() {
                rest
            } else {
                format!("; after it, so not: {rest}")
            };
            format!("{counts}: counts where --mem is not given{rest}")
        }
    };
    let off = listed(&|family| !is_on(family));
    if !off.is_empty() {
        text.push_str(&format!("; switched off by the configuration: {off}"));
    }
    Check::ok(NAME, text)
}

fn promises(status: &StatusView) -> Check {
    const NAME: &str = "promises";
    let notes: Vec<&str> = status
        .devices
        .iter()
        .flat_map(|device| &device.notes)
        .map(String::as_str)
        .collect();
    if !notes.is_empty() {
        let fix = "wait for jobs to end, lower promises (partage set JOB mem-request=SIZE), or admission.overcommit";
        return Check::warn(NAME, notes.join("; "), fix);
    }
    match status.broker.overcommit_percent {
        0..=100 => Check::ok(NAME, "within what each GPU has"),
        percent => Check::ok(
            NAME,
            format!("within what each GPU has; up to {percent} % of it may be promised"),
        ),
    }
}

fn audit(status: &StatusView) -> Check {
    let rules = &status.broker.audit;
    let text = format!(
        "clients that contradict NVML by more than {}: {}; GPU processes of no job: {}",
        format_bytes(rules.tolerance_bytes),
        rules.drift,
        rules.unmanaged
    );
    Check::ok("audit", text)
}

#[cfg(test)]
mod tests {
    use super::super::check::State;
    use super::*;

    fn found(texts: &[(&str, &str)]) -> Vec<(String, String)> {
        texts
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn each_variable_is_named_and_whether_it_counts() {
        let two = found(&[("CUDA_DEVICE_MEMORY_LIMIT", "1g"), ("NVIDIA_GPU_MEMORY_LIMIT", "1024")]);
        let text = |own, off: &[&str]| {
            let off: Vec<String> = off.iter().map(|key| (*key).to_owned()).collect();
            let check = aliases(&two, own, &off);
            assert_eq!(check.state, State::Ok);
            check.text
        };
        assert_eq!(
            text(None, &[]),
            "NVIDIA_GPU_MEMORY_LIMIT=1024: counts where --mem is not given; after it, so not: CUDA_DEVICE_MEMORY_LIMIT=1g"
        );
        assert_eq!(
            text(None, &["nvidia_gpu_memory"]),
            "CUDA_DEVICE_MEMORY_LIMIT=1g: counts where --mem is not given; switched off by the configuration: \
             NVIDIA_GPU_MEMORY_LIMIT=1024"
        );
        assert!(text(None, &["nvidia_gpu_memory", "cuda_device_memory_limit"]).ends_with("by the configuration"));
        assert!(text(Some("PARTAGE_MEM"), &[]).ends_with("because PARTAGE_MEM is set"));
        let wrong = aliases(&found(&[("CUDA_DEVICE_MEMORY_LIMIT", "8x")]), None, &[]);
        assert_eq!(wrong.state, State::Warn);
        assert!(wrong.text.contains("8x"), "{}", wrong.text);
        assert_eq!(aliases(&[], None, &[]).state, State::Ok);
    }
}
