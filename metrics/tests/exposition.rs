// SPDX-License-Identifier: Apache-2.0
//! What is written, and that every metric moves.
#![recursion_limit = "256"]

use std::collections::{BTreeMap, BTreeSet};

use partage_metrics::collect::OTHER;
use partage_metrics::{Exposition, JobLabel, MOST_SERIES, Seen, declared, exposition};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A job on GPU 0 that uses so many bytes.
fn job(id: u32, used: u64) -> Value {
    json!({
        "job": format!("j{id}"), "name": format!("name{id}"), "user": "alice", "uid": 1000, "state": "running",
        "pid": 7, "command": ["secret"], "labels": [["io.kubernetes.pod.name", "pod-a"]],
        "clients": [{ "pid": 7, "state": "attached", "used_bytes": [used] }],
        "denied": { "limit": 1, "card_full": 0, "no_broker": 0 }, "started_ns": 0, "is_strict": false, "notes": [],
        "terms": { "promise": 0.3, "cap": 0.5, "weight": 100 },
        "queued_ns": 4_000_000_000u64, "suspends": 1,
        "checkpoint": { "bytes": 10, "took_ns": 20, "age_ns": 30 },
        "residence": [{ "state": "running", "spent_ns": 7_000_000_000u64 }],
        "container": { "id": "0123456789abcdef", "name": null, "cgroup": null },
        "engine": { "id": "slurm:7", "words": null },
        "devices": [{
            "index": 0, "uuid": "GPU-0", "model": "H", "limit_bytes": 4096, "request_bytes": 1024, "used_bytes": used,
            "peak_bytes": used, "granted_bytes": used, "overhead_bytes": 3,
            "denied": { "limit": 1, "card_full": 0, "no_broker": 0 },
            "time": {
                "asked": 0.3, "share": 0.4, "got_1s": 0.2, "got_60s": 0.25, "used_ns": 1_500_000_000u64,
                "waited_ns": 250_000_000u64, "waited_60s_ns": 0, "state": "open", "held_by": null,
                "is_held_by_priority": false, "unit_ns": 0, "regime": "turns"
            }
        }]
    })
}

fn seen(jobs: &[Value]) -> Seen {
    let status = json!({
        "broker": {
            "pid": 1, "version": "0.1.0 (abc)", "kind": "managed", "socket_dir": "/run/partage", "driver": "ok",
            "jobs": jobs.len(), "clients": 2, "uptime_ns": 90_000_000_000u64, "invariant_violations": 0,
            "config": { "file": "/etc/partage/partage.toml", "generation": 1, "read_ns": 0 }
        },
        "devices": [{
            "index": 0, "uuid": "GPU-0", "model": "Quote \" and \\ and\nline", "state": "ok", "total_bytes": 16384,
            "usable_bytes": 16000, "committed_bytes": 5000, "used_bytes": 4000, "unmanaged_bytes": 100,
            "jobs": ["j1"], "promised_bytes": 1024, "promised_time": 0.3, "unmanaged_time": 0.1,
            "utilization": 0.5, "temperature_celsius": 61, "power_watts": 300.5, "throttle": ["sw-thermal"],
            "telemetry": { "xids": [{ "xid": 13, "count": 2, "last_unix_ns": 1 }] }
        }],
        "queue": [{ "job": "j9", "user": "bob", "mem": null, "waited_ns": 2_000_000_000u64, "reason": "" }]
    });
    let totals = ["alice", "bob"].map(|user| {
        json!({
            "rule": "students", "file": "f", "line": 1, "key": "each_user.mem", "text": "4KiB", "user": user,
            "device": "GPU-0", "index": 0, "unit": "bytes", "limit": 4096, "used": 100, "held": 100
        })
    });
    let unmanaged = json!([{
        "pid": 5, "uid": 0, "gpu": 0, "used_bytes": 100, "job": null, "user": null, "command": null, "busy": null
    }]);
    let read = |value: Value| serde_json::from_value(value);
    Seen {
        status: read(status).expect("a status"),
        jobs: jobs
            .iter()
            .map(|job| serde_json::from_value(job.clone()).expect("a job"))
            .collect(),
        unmanaged: serde_json::from_value(unmanaged).expect("processes"),
        totals: totals
            .map(|total| serde_json::from_value(total).expect("a total"))
            .to_vec(),
        dropped_before: 0,
    }
}

fn written(seen: &Seen) -> String {
    exposition(seen, &[], MOST_SERIES).text
}

/// Name and labels of each series, and its value; each is there once.
fn series(text: &str) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a value");
        let value = value.parse().expect("a number");
        assert_eq!(found.insert(name.to_owned(), value), None, "twice: {line}");
    }
    found
}

#[test]
fn a_scrape_reads_as_prometheus_writes_it() {
    let text = written(&seen(&[job(1, 2048)]));
    for line in [
        "# TYPE partage_build_info gauge",
        "partage_build_info{version=\"0.1.0 (abc)\"} 1",
        "partage_broker_uptime_seconds 90",
        "partage_queue_jobs 1",
        "partage_queue_wait_seconds 2",
        "partage_gpu_info{gpu=\"0\",UUID=\"GPU-0\",model=\"Quote \\\" and \\\\ and\\nline\"} 1",
        "partage_gpu_memory_total_bytes{gpu=\"0\",UUID=\"GPU-0\"} 16384",
        "partage_unmanaged_processes{gpu=\"0\",UUID=\"GPU-0\"} 1",
        "partage_job_state_info{job=\"j1\",state=\"running\"} 1",
        "partage_job_memory_used_bytes{job=\"j1\",gpu=\"0\",UUID=\"GPU-0\"} 2048",
        "# TYPE partage_job_denied_total counter",
        "partage_job_denied_total{job=\"j1\",gpu=\"0\",UUID=\"GPU-0\",reason=\"limit\"} 1",
        "partage_job_gpu_seconds_total{job=\"j1\",gpu=\"0\",UUID=\"GPU-0\"} 1.5",
        "partage_job_waited_seconds_total{job=\"j1\",gpu=\"0\",UUID=\"GPU-0\",where=\"gate\"} 0.25",
        "partage_job_waited_seconds_total{job=\"j1\",gpu=\"0\",UUID=\"GPU-0\",where=\"queue\"} 4",
        "partage_job_residence_seconds_total{job=\"j1\",state=\"running\"} 7",
        "partage_gpu_throttled{gpu=\"0\",UUID=\"GPU-0\",reason=\"sw-thermal\"} 1",
        "partage_gpu_xid_total{gpu=\"0\",UUID=\"GPU-0\",xid=\"13\"} 2",
        "partage_gpu_temperature_celsius{gpu=\"0\",UUID=\"GPU-0\"} 61",
        "partage_rule_limit{rule=\"students\",key=\"each_user.mem\",gpu=\"0\"} 8192",
    ] {
        assert!(text.lines().any(|one| one == line), "no {line} in\n{text}");
    }
    series(&text);
}

#[test]
fn nobody_is_named_unless_it_was_asked_for() {
    let seen = seen(&[job(1, 2048)]);
    let text = written(&seen);
    for secret in ["alice", "bob", "secret", "name1", "pod-a", "0123456789", "slurm:7"] {
        assert!(!text.contains(secret), "{secret} in\n{text}");
    }
    let all = exposition(&seen, &JobLabel::ALL, MOST_SERIES).text;
    let labels = "job=\"j1\",name=\"name1\",user=\"alice\",container=\"0123456789ab\",pod=\"pod-a\",engine=\"slurm:7\"";
    assert!(all.contains(&format!("partage_job_clients{{{labels}}} 1")), "{all}");
    assert!(
        all.contains("partage_rule_used{rule=\"students\",key=\"each_user.mem\",gpu=\"0\",user=\"bob\"} 100"),
        "{all}"
    );
    assert!(!all.contains("secret"), "a command is never told");
    series(&all);
}

#[test]
fn a_label_is_written_once_however_often_it_is_asked_for() {
    let seen = seen(&[job(1, 2048)]);
    let once = exposition(&seen, &[JobLabel::Name, JobLabel::User], MOST_SERIES);
    let often = [JobLabel::User, JobLabel::Name].repeat(1000);
    assert_eq!(exposition(&seen, &often, MOST_SERIES), once);
}

#[test]
fn beyond_the_budget_the_smallest_jobs_are_summed() {
    let jobs: Vec<Value> = (1..=5).map(|id| job(id, u64::from(id) * 2048)).collect();
    let seen = seen(&jobs);
    let all = exposition(&seen, &[], MOST_SERIES);
    assert_eq!(all.dropped, 0);
    let of_jobs = |made: &Exposition| {
        let found = series(&made.text);
        let of_job = found.keys().filter(|name| name.contains("{job=\""));
        of_job.filter(|name| !name.contains(OTHER)).count()
    };
    let each = of_jobs(&all) / 5;
    for shown in 0..=5 {
        let made = exposition(&seen, &[], each * shown);
        assert_eq!(of_jobs(&made), each * shown);
        assert_eq!(made.dropped, ((5 - shown) * each) as u64);
        let used = series(&made.text);
        let sum: f64 = used
            .iter()
            .filter(|(name, _)| name.starts_with("partage_job_memory_used_bytes"))
            .map(|(_, value)| value)
            .sum();
        assert_eq!(sum, 15.0 * 2048.0, "nothing is lost");
        // The greatest stay.
        let kept = (1..=5).filter(|id| made.text.contains(&format!("{{job=\"j{id}\"")));
        assert!(kept.eq(6 - shown..=5), "{shown}");
    }
}

#[test]
fn every_metric_is_there_and_moves() {
    let first = seen(&[job(1, 2048)]);
    let mut second = seen(&[job(1, 3072), job(2, 1)]);
    let broker = &mut second.status.broker;
    (broker.version, broker.driver) = ("0.2.0".to_owned(), "no driver".to_owned());
    broker.loop_ns = 3;
    (broker.uptime_ns, broker.invariant_violations, broker.clients) = (1, 1, 3);
    (broker.events_unwritten, broker.events_untold) = (1, 1);
    broker.config.as_mut().expect("a file").error = Some("line 1".to_owned());
    second.dropped_before = 5;
    second.status.queue.clear();
    let gpu = &mut second.status.devices[0];
    (gpu.model, gpu.state, gpu.is_drained) = ("other".to_owned(), "lost".to_owned(), true);
    gpu.jobs.clear();
    for bytes in [
        &mut gpu.total_bytes,
        &mut gpu.usable_bytes,
        &mut gpu.promised_bytes,
        &mut gpu.used_bytes,
        &mut gpu.unmanaged_bytes,
    ] {
        *bytes += 1;
    }
    (gpu.promised_time, gpu.unmanaged_time) = (0.9, None);
    (gpu.utilization, gpu.temperature_celsius, gpu.power_watts) = (Some(0.75), Some(90), None);
    gpu.throttle.clear();
    gpu.telemetry = None;
    gpu.sick = Some(partage_protocol::admin::SickView {
        since_unix_ns: 1,
        cause: "xid 79".to_owned(),
        text: String::new(),
    });
    second.unmanaged.clear();
    let job = &mut second.jobs[0];
    job.state = "suspended".to_owned();
    job.clients.clear();
    job.checkpoint = None;
    (job.suspends, job.residence[0].spent_ns) = (2, 8);
    (job.terms.weight, job.terms.promise, job.terms.cap, job.unlimited) = (7, 0.0, None, 2);
    let on = &mut job.devices[0];
    on.limit_bytes = None;
    on.denied.overhead = 4;
    (on.request_bytes, on.overhead_bytes) = (1, 1);
    on.time = None;
    (second.totals[0].limit, second.totals[0].used) = (1, 1);

    let (first, second) = (series(&written(&first)), series(&written(&second)));
    let of = |all: &BTreeMap<String, f64>, name: &str| -> Vec<(String, u64)> {
        let is_of = |series: &str| series.split('{').next() == Some(name);
        let found = all.iter().filter(|(series, _)| is_of(series));
        found.map(|(series, value)| (series.clone(), value.to_bits())).collect()
    };
    let names: BTreeSet<&str> = declared().iter().map(|(_, one)| one.name).collect();
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        assert!(!of(&first, name).is_empty(), "{name} is nowhere");
        assert_ne!(of(&first, name), of(&second, name), "{name} does not move");
    }
}

proptest! {
    #[test]
    fn any_words_make_a_text_that_is_read_line_by_line(
        name in any::<String>(), user in any::<String>(), model in any::<String>(), most in 0usize..60,
    ) {
        let mut seen = seen(&[job(1, 2048), job(2, 5)]);
        seen.jobs[0].name = Some(name);
        seen.jobs[0].user = user;
        seen.status.devices[0].model = model;
        let text = exposition(&seen, &JobLabel::ALL, most).text;
        // Prometheus splits at line feeds alone.
        for line in text.split('\n').filter(|line| !line.is_empty()) {
            prop_assert!(line.starts_with("# HELP ") || line.starts_with("# TYPE ") || line.starts_with("partage_"));
            if line.starts_with("partage_") {
                let (_, value) = line.rsplit_once(' ').expect("a value");
                prop_assert!(value.parse::<f64>().is_ok(), "{}", line);
            }
        }
    }
}
