// SPDX-License-Identifier: Apache-2.0
//! Every metric, once.
//!
//! Names are in base units (bytes, seconds, parts of 1), counters end with `_total`. Labels of a GPU are called as
//! dcgm-exporter calls them, so that both join without relabelling. No process and no command line is ever a label.

use partage_protocol::admin::{DeviceView, JobDeviceView, JobView, TotalUnit, TotalView};

use crate::row::{Declared, Row, Values, metrics, seconds};
use crate::seen::Seen;

/// Reads what there is once.
pub(crate) type OfBroker = fn(&Seen, &mut Values);
/// Reads one GPU.
pub(crate) type OfGpu = fn(&Seen, &DeviceView, &mut Values);
/// Reads one job.
pub(crate) type OfJob = fn(&JobView, &mut Values);
/// Reads one job on one GPU.
pub(crate) type OfJobGpu = fn(&JobView, &JobDeviceView, &mut Values);
/// Reads one total of several jobs.
pub(crate) type OfRule = fn(&TotalView, &mut Values);

metrics! {
    /// The broker, the queue, and processes of no job.
    BROKER: OfBroker {
        Gauge Info "partage_build_info" by "version"
            "Version and commit of the broker."
            => |seen, out| out.of(seen.status.broker.version.clone(), 1u64);
        Gauge Seconds "partage_broker_uptime_seconds"
            "Time since the broker started."
            => |seen, out| out.set(seconds(seen.status.broker.uptime_ns));
        Gauge Flag "partage_broker_driver_ok"
            "1 while the GPU driver answers the broker."
            => |seen, out| out.set(seen.status.broker.driver == "ok");
        Gauge Flag "partage_broker_reload_success"
            "1 unless the last reload of the configuration was refused."
            => |seen, out| out.maybe(seen.status.broker.config.as_ref().map(|reading| reading.error.is_none()));
        Gauge Seconds "partage_broker_loop_seconds"
            "Longest time in the last one to two minutes for which the broker's loop was at work and took no event."
            => |seen, out| out.set(seconds(seen.status.broker.loop_ns));
        Counter Count "partage_broker_invariant_violations_total"
            "Rules about its own numbers that the broker found broken: each is a defect of Partage."
            => |seen, out| out.set(seen.status.broker.invariant_violations);
        Counter Count "partage_broker_series_dropped_total"
            "Series of jobs that were summed as job=\"other\" because of the budget, over all scrapes."
            => |seen, out| out.set(seen.dropped_before);
        Counter Count "partage_broker_events_unwritten_total"
            "Events that were not written to disk."
            => |seen, out| out.set(seen.status.broker.events_unwritten);
        Counter Count "partage_broker_events_untold_total"
            "Events that the program of [notify] was not told of, or did not take."
            => |seen, out| out.set(seen.status.broker.events_untold);
        Gauge Count "partage_jobs"
            "Jobs that run."
            => |seen, out| out.set(seen.status.broker.jobs);
        Gauge Count "partage_clients"
            "Processes that use a GPU under Partage."
            => |seen, out| out.set(seen.status.broker.clients);
        Gauge Count "partage_queue_jobs"
            "Jobs that wait for room."
            => |seen, out| out.set(seen.status.queue.len());
        Gauge Seconds "partage_queue_wait_seconds"
            "How long the job that waits longest has waited; 0 where none waits."
            => |seen, out| {
                let waits = seen.status.queue.iter().map(|queued| queued.waited_ns);
                out.set(seconds(waits.max().unwrap_or(0)));
            };
    }

    /// Each GPU.
    GPU: OfGpu {
        Gauge Info "partage_gpu_info" by "model"
            "Model of the GPU."
            => |_, gpu, out| out.of(gpu.model.clone(), 1u64);
        Gauge Flag "partage_gpu_ok"
            "1 while the driver answers about the GPU."
            => |_, gpu, out| out.set(["ok", "sick", "draining", "drained"].contains(&gpu.state.as_str()));
        Gauge Flag "partage_gpu_drained"
            "1 while the GPU takes no jobs."
            => |_, gpu, out| out.set(gpu.is_drained);
        Gauge Flag "partage_gpu_sick"
            "1 while the GPU takes no jobs because of an error of its own."
            => |_, gpu, out| out.set(gpu.sick.is_some());
        Counter Count "partage_gpu_xid_total" by "xid"
            "Xid errors of the GPU that the broker heard of, by NVIDIA's number; a program causes some of them."
            => |_, gpu, out| {
                for xid in gpu.telemetry.iter().flat_map(|told| told.xids.iter().flatten()) {
                    out.of(xid.xid.to_string(), xid.count);
                }
            };
        Gauge Ratio "partage_gpu_busy_ratio"
            "Part of the driver's last sampling period in which a kernel ran, as NVML says it."
            => |_, gpu, out| out.maybe(gpu.utilization);
        Gauge Celsius "partage_gpu_temperature_celsius"
            "Temperature of the GPU's chip."
            => |_, gpu, out| out.maybe(gpu.temperature_celsius);
        Gauge Watts "partage_gpu_power_watts"
            "Power that the GPU's card takes."
            => |_, gpu, out| out.maybe(gpu.power_watts);
        Gauge Flag "partage_gpu_throttled" by "reason"
            "1 while the GPU's clocks are lower for this reason; absent while they are not."
            => |_, gpu, out| {
                for reason in &gpu.throttle {
                    out.of(reason.clone(), 1u64);
                }
            };
        Gauge Count "partage_gpu_jobs"
            "Jobs that hold the GPU."
            => |_, gpu, out| out.set(gpu.jobs.len());
        Gauge Bytes "partage_gpu_memory_total_bytes"
            "The GPU's memory."
            => |_, gpu, out| out.set(gpu.total_bytes);
        Gauge Bytes "partage_gpu_memory_usable_bytes"
            "Memory that jobs can share: all but the reserve."
            => |_, gpu, out| out.set(gpu.usable_bytes);
        Gauge Bytes "partage_gpu_memory_promised_bytes"
            "Memory promised to jobs."
            => |_, gpu, out| out.set(gpu.promised_bytes);
        Gauge Bytes "partage_gpu_memory_used_bytes"
            "Memory in use, of jobs and others, as NVML shows it."
            => |_, gpu, out| out.set(gpu.used_bytes);
        Gauge Bytes "partage_gpu_memory_unmanaged_bytes"
            "Memory in use by processes of no job."
            => |_, gpu, out| out.set(gpu.unmanaged_bytes);
        Gauge Ratio "partage_gpu_compute_promised_ratio"
            "Part of the GPU's time that is promised to jobs."
            => |_, gpu, out| out.set(gpu.promised_time);
        Gauge Ratio "partage_gpu_unmanaged_busy_ratio"
            "Part of the GPU's time that processes of no job use, where NVML says it."
            => |_, gpu, out| out.maybe(gpu.unmanaged_time);
        Gauge Count "partage_unmanaged_processes"
            "Processes of no job on the GPU."
            => |seen, gpu, out| {
                out.set(seen.unmanaged.iter().filter(|process| process.gpu == gpu.index).count());
            };
    }

    /// Each job.
    JOB: OfJob {
        Gauge Info "partage_job_state_info" by "state"
            "State of the job: running, waiting, suspended, and the others that ps shows."
            => |job, out| out.of(job.state.clone(), 1u64);
        Gauge Count "partage_job_clients"
            "Processes of the job that use a GPU."
            => |job, out| out.set(job.clients.len());
        Gauge Count "partage_job_weight"
            "Weight of the job beside others."
            => |job, out| out.set(job.terms.weight);
        Gauge Ratio "partage_job_compute_promise_ratio"
            "Part of each of its GPUs' time that is promised to the job; 0 for none."
            => |job, out| out.set(job.terms.promise);
        Gauge Ratio "partage_job_compute_cap_ratio"
            "Part of each of its GPUs' time that the job never exceeds; absent without a cap."
            => |job, out| out.maybe(job.terms.cap);
        Counter Seconds "partage_job_residence_seconds_total" by "state"
            "Time that the job was in each state since it started: running, suspended, and the ways between them."
            => |job, out| {
                for spent in &job.residence {
                    out.of(spent.state.clone(), seconds(spent.spent_ns));
                }
            };
        Gauge Bytes "partage_checkpoint_bytes"
            "Size of the job's last checkpoint; absent where it has none."
            => |job, out| out.maybe(job.checkpoint.map(|last| last.bytes));
        Gauge Seconds "partage_checkpoint_seconds"
            "How long the job's last checkpoint took."
            => |job, out| out.maybe(job.checkpoint.map(|last| seconds(last.took_ns)));
        Gauge Seconds "partage_checkpoint_age_seconds"
            "How long ago the job's last checkpoint was made."
            => |job, out| out.maybe(job.checkpoint.map(|last| seconds(last.age_ns)));
        Counter Count "partage_job_suspends_total"
            "How often all of the job's memory left its GPUs."
            => |job, out| out.set(job.suspends);
        Counter Count "partage_job_unmanaged_processes_total"
            "Processes of the job that used a GPU without Partage."
            => |job, out| out.set(job.unlimited);
    }

    /// Each job on each of its GPUs.
    JOB_GPU: OfJobGpu {
        Gauge Bytes "partage_job_memory_limit_bytes"
            "Memory limit of the job; absent without a limit."
            => |_, gpu, out| out.maybe(gpu.limit_bytes);
        Gauge Bytes "partage_job_memory_request_bytes"
            "Memory promised to the job."
            => |_, gpu, out| out.set(gpu.request_bytes);
        Gauge Bytes "partage_job_memory_used_bytes"
            "Memory that the job uses."
            => |_, gpu, out| out.set(gpu.used_bytes);
        Gauge Bytes "partage_job_memory_overhead_bytes"
            "Of its used memory, what the driver holds for its processes: contexts, modules, rounding."
            => |_, gpu, out| out.set(gpu.overhead_bytes);
        Gauge Bytes "partage_job_memory_peak_bytes"
            "The most memory that the job used."
            => |_, gpu, out| out.set(gpu.peak_bytes);
        Counter Count "partage_job_denied_total" by "reason"
            "Allocations of the job that were denied."
            => |_, gpu, out| {
                for (reason, count) in gpu.denied.by_reason() {
                    out.of(reason, count);
                }
            };
        Gauge Ratio "partage_job_compute_asked_ratio"
            "Part of the GPU's time that the job may have now, among those that want it; absent while not measured."
            => |_, gpu, out| out.maybe(gpu.time.as_ref().map(|time| time.share));
        Gauge Ratio "partage_job_compute_got_ratio"
            "Part of the GPU's time that the job had in the last minute; absent while it is not measured."
            => |_, gpu, out| out.maybe(gpu.time.as_ref().map(|time| time.got_60s));
        Counter Seconds "partage_job_gpu_seconds_total"
            "GPU time that the job was charged while its time was measured: while it shared its GPU or had a cap."
            => |_, gpu, out| out.maybe(gpu.time.as_ref().map(|time| seconds(time.used_ns)));
        Counter Seconds "partage_job_waited_seconds_total" by "where"
            "Time that the job wanted the GPU and waited: in the queue before it started, and at its gate."
            => |job, gpu, out| {
                out.of("queue", seconds(job.queued_ns));
                if let Some(time) = &gpu.time {
                    out.of("gate", seconds(time.waited_ns));
                }
            };
    }

    /// Each total of a rule.
    RULE: OfRule {
        Gauge Count "partage_rule_limit"
            "What a rule lets its jobs have together: bytes, GPUs, jobs, or a part of a GPU's time."
            => |total, out| out.set(in_base_units(total, total.limit));
        Gauge Count "partage_rule_used"
            "What they have of it."
            => |total, out| out.set(in_base_units(total, total.used));
    }
}

/// Millionths of a GPU's time are a part of it here.
fn in_base_units(total: &TotalView, value: u64) -> f64 {
    match total.unit {
        TotalUnit::Millionths => value as f64 / 1e6,
        TotalUnit::Bytes | TotalUnit::Count => value as f64,
    }
}

/// Every metric, in the order of the tables, with the thing that it is about.
#[must_use]
pub fn declared() -> Vec<(&'static str, Declared)> {
    fn of<F>(thing: &'static str, rows: &[Row<F>]) -> Vec<(&'static str, Declared)> {
        rows.iter().map(|row| (thing, row.declared)).collect()
    }
    let tables = [
        of("broker", BROKER),
        of("GPU", GPU),
        of("job", JOB),
        of("job on a GPU", JOB_GPU),
        of("rule", RULE),
    ];
    tables.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::row::{Kind, Unit};

    #[test]
    fn names_say_kind_and_unit() {
        let mut names = BTreeSet::new();
        for (_, one) in declared() {
            let name = one.name;
            assert!(names.insert(name), "{name} twice");
            let is_plain = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(name.starts_with("partage_") && name.chars().all(is_plain), "{name}");
            let stem = name.strip_suffix("_total");
            assert_eq!(stem.is_some(), one.kind == Kind::Counter, "{name}");
            assert!(stem.unwrap_or(name).ends_with(one.unit.suffix()), "{name}");
            for unit in [Unit::Bytes, Unit::Seconds, Unit::Ratio, Unit::Info] {
                let ends = stem.unwrap_or(name).ends_with(unit.suffix());
                assert!(!ends || one.unit == unit, "{name} is no {unit:?}");
            }
            assert!(
                one.help.ends_with('.') && !one.help.contains('\n'),
                "{name}: {}",
                one.help
            );
        }
    }
}
