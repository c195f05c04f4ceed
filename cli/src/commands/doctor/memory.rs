// SPDX-License-Identifier: Apache-2.0
//! What sets memory limits besides `--mem`: other tools' variables, and promises beyond what there is.

use std::env;

use partage_protocol::admin::{DeviceView, StatusView};
use partage_protocol::aliases::{Family, Variable, asked};
use partage_protocol::size::format_bytes;

use super::check::Check;
use crate::launch::run_settings::aliases_here;

/// Variables, memory that GPUs share with the host, and promises. Without a broker the defaults hold: every variable
/// counts, nothing is overcommitted.
pub fn checks(status: Option<&StatusView>, devices: &[DeviceView]) -> Vec<Check> {
    let off = status.map(|status| status.broker.aliases_off.clone());
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    let own = ["PARTAGE_MEM", "PARTAGE_MEM_REQUEST"]
        .into_iter()
        .find(|name| is_set(name));
    let mut checks = vec![aliases(&aliases_here(), own, &off.unwrap_or_default())];
    checks.extend(unified(devices));
    checks.extend(status.map(promises));
    checks.extend(status.map(unmanaged));
    checks.extend(status.map(audit));
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
            let fix = "mend or unset it: `run` refuses it without --mem";
            return Check::warn(NAME, why.to_string(), fix);
        }
        Ok(None) => return Check::ok(NAME, format!("{all}: switched off by the configuration")),
        Ok(Some(asked)) => {
            let counts = listed(&|family| family == asked.family);
            let rest = listed(&|family| family != asked.family && is_on(family));
            let rest = match rest.as_str() {
                "" => rest,
                others => format!("; after it, so not: {others}"),
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

/// Where GPUs have no memory of their own.
fn unified(devices: &[DeviceView]) -> Option<Check> {
    let said = |device: &DeviceView| Some(device.unified?.sentence(device.index));
    let said: Vec<String> = devices.iter().filter_map(said).collect();
    (!said.is_empty()).then(|| Check::ok("memory", said.join("; ")))
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
        percent => {
            let text = format!("within what each GPU has; up to {percent} % of it may be promised");
            Check::ok(NAME, text)
        }
    }
}

/// Processes of no job: what they use is nobody's to share out, and other promises would change nothing about it.
fn unmanaged(status: &StatusView) -> Check {
    const NAME: &str = "unmanaged";
    let bytes = |device: &DeviceView| {
        let bytes = Some(device.unmanaged_bytes)
            .filter(|bytes| *bytes > 0)
            .map(format_bytes)?;
        Some(format!("processes of no job use {bytes} of GPU {}", device.index))
    };
    let of_time = status
        .devices
        .iter()
        .flat_map(|device| device.unmanaged_notes.iter().cloned());
    let found: Vec<String> = status.devices.iter().filter_map(bytes).chain(of_time).collect();
    if found.is_empty() {
        return Check::ok(NAME, "every GPU process belongs to a job");
    }
    let fix = "start them with `partage run`, or end them (`partage ps` names them); a rule for such processes: \
               [audit] unmanaged";
    Check::warn(NAME, found.join("; "), fix)
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
    use partage_protocol::admin::{AuditView, BrokerView, DeniedView};

    use super::super::check::State;
    use super::*;

    /// A machine of one device, of which processes of no job use so much.
    fn machine(unmanaged_bytes: u64, notes: &[&str], unmanaged_notes: &[&str]) -> StatusView {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        StatusView {
            totals: Vec::new(),
            broker: BrokerView {
                pid: 1,
                version: String::new(),
                kind: "private".to_owned(),
                socket_dir: String::new(),
                is_admin: false,
                driver: "ok".to_owned(),
                jobs: 0,
                clients: 0,
                uptime_ns: 0,
                overcommit_percent: 100,
                compute_overcommit_percent: 100,
                max_class: "realtime".to_owned(),
                aliases_off: Vec::new(),
                audit: AuditView::default(),
                config: None,
                notes: Vec::new(),
                invariant_violations: 0,
                errors: Vec::new(),
                events_unwritten: 0,
                events_untold: 0,
                loop_ns: 0,
            },
            devices: vec![DeviceView {
                index: 3,
                uuid: "GPU-1".to_owned(),
                model: "NVIDIA H200".to_owned(),
                state: "ok".to_owned(),
                total_bytes: 16 << 30,
                usable_bytes: 16 << 30,
                committed_bytes: unmanaged_bytes,
                used_bytes: unmanaged_bytes,
                unmanaged_bytes,
                unified: None,
                jobs: Vec::new(),
                promised_bytes: 0,
                denied: DeniedView::default(),
                notes: texts(notes),
                is_drained: false,
                drained: None,
                unmanaged_notes: texts(unmanaged_notes),
                promised_time: 0.0,
                regime: None,
                unmanaged_time: None,
                utilization: None,
                temperature_celsius: None,
                power_watts: None,
                throttle: Vec::new(),
                telemetry: None,
                sick: None,
            }],
            queue: Vec::new(),
        }
    }

    #[test]
    fn processes_of_no_job_have_a_cure_of_their_own_and_not_that_of_promises() {
        let busy = "pid 7 uses 40 % of the time of GPU 3";
        for (status, told) in [
            (
                machine(5 << 30, &[], &[]),
                "processes of no job use 5 GiB of GPU 3".to_owned(),
            ),
            (machine(0, &[], &[busy]), busy.to_owned()),
            (
                machine(5 << 30, &[], &[busy]),
                format!("processes of no job use 5 GiB of GPU 3; {busy}"),
            ),
        ] {
            let check = unmanaged(&status);
            assert_eq!((check.state, check.text), (State::Warn, told));
            let fix = check.fix.unwrap_or_default();
            assert!(
                fix.contains("`partage run`") && fix.contains("[audit] unmanaged"),
                "{fix}"
            );
            assert!(!fix.contains("mem-request") && !fix.contains("overcommit"), "{fix}");
            assert_eq!(promises(&status).state, State::Ok, "no promise is short of anything");
        }
        let status = machine(0, &["GPU 3 has promised more than it has"], &[]);
        assert_eq!(unmanaged(&status).state, State::Ok);
        let check = promises(&status);
        assert_eq!(check.state, State::Warn);
        assert!(check.fix.unwrap_or_default().contains("mem-request"), "{}", check.text);
    }

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
            "NVIDIA_GPU_MEMORY_LIMIT=1024: counts where --mem is not given; after it, so not: \
             CUDA_DEVICE_MEMORY_LIMIT=1g"
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
