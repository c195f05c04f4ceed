// SPDX-License-Identifier: Apache-2.0
//! Brokers' words for the tests of `top`.

use partage_protocol::admin::{DeviceView, JobView, QueuedView};
use serde_json::{Value, json};

use crate::show::terminal::Style;
use crate::top::state::{Shot, State};

const GIB: u64 = 1 << 30;

/// A terminal without colour.
pub fn terminal(is_utf8: bool) -> Style {
    Style {
        has_color: false,
        is_utf8,
        width: 80,
        is_cut: true,
    }
}

/// What a broker's words make of it.
pub fn state(shot: Shot) -> State {
    let mut state = State::default();
    state.take(shot);
    state
}

fn uuid(gpu: u32) -> String {
    format!("GPU-0000000{gpu}-0000-0000-0000-000000000000")
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("a view")
}

/// A GPU of 140 GiB.
pub fn device(gpu: u32, jobs: &[&str]) -> DeviceView {
    read(json!({
        "index": gpu, "uuid": uuid(gpu), "model": "NVIDIA H200", "state": "ok",
        "total_bytes": 141 * GIB, "usable_bytes": 140 * GIB, "committed_bytes": 0, "used_bytes": 0,
        "unmanaged_bytes": 0, "jobs": jobs,
    }))
}

/// A job on GPUs; memory in GiB.
pub fn job(id: &str, user: &str, gpus: &[u32], used: u64, limit: Option<u64>) -> JobView {
    let devices: Vec<Value> = gpus
        .iter()
        .map(|gpu| {
            json!({
                "index": gpu, "uuid": uuid(*gpu), "model": "NVIDIA H200", "limit_bytes": limit.map(|gib| gib * GIB),
                "request_bytes": limit.unwrap_or(0) * GIB, "used_bytes": used * GIB, "peak_bytes": used * GIB,
                "granted_bytes": used * GIB,
            })
        })
        .collect();
    read(json!({
        "job": id, "name": null, "user": user, "uid": 1000, "state": "running", "pid": 4121,
        "command": ["python", "train.py"], "labels": [], "devices": devices,
        "clients": [{ "pid": 4121, "state": "attached", "used_bytes": [used * GIB] }],
        "denied": { "limit": 0, "card_full": 0, "no_broker": 0, "overhead": 0 },
        "started_ns": 1, "is_strict": false, "notes": [],
    }))
}

/// A job of GPU 0 whose time is measured.
pub fn at_work(id: &str, got: f64) -> JobView {
    let mut job = job(id, "alice", &[0], 20, Some(35));
    take_time(&mut job, got, json!({}));
    job
}

fn take_time(job: &mut JobView, got: f64, more: Value) {
    let mut time = json!({ "got_1s": got, "got_60s": got, "share": 0.5, "state": "open", "regime": "overlap" });
    let fields = time.as_object_mut().expect("an object");
    fields.extend(more.as_object().expect("an object").clone());
    for device in &mut job.devices {
        device.time = Some(read(time.clone()));
    }
}

fn shot(devices: Vec<DeviceView>, jobs: Vec<JobView>, queue: Vec<QueuedView>) -> Shot {
    let status = json!({
        "broker": {
            "pid": 4100, "version": "0.1.0", "kind": "managed", "socket_dir": "/run/partage", "driver": "ok",
            "jobs": jobs.len(), "clients": jobs.len(), "uptime_ns": 1,
        },
        "devices": devices, "queue": queue,
    });
    Shot {
        status: read(status),
        jobs,
        unmanaged: Vec::new(),
    }
}

/// A machine with two GPUs and no job.
pub fn empty() -> Shot {
    shot(vec![device(0, &[]), device(1, &[])], Vec::new(), Vec::new())
}

/// Two GPUs with everything that a table can have; texts of jobs try to steer the terminal.
pub fn full() -> Shot {
    let mut first = device(0, &["j41", "j42"]);
    first.used_bytes = 62 * GIB;
    first.unmanaged_bytes = 5 * GIB;
    first.committed_bytes = 110 * GIB;
    first.promised_bytes = 105 * GIB;
    first.promised_time = 0.3;
    first.unmanaged_time = Some(0.04);
    first.utilization = Some(0.97);
    first.temperature_celsius = Some(71);
    first.power_watts = Some(652.4);
    let mut second = device(1, &["j43"]);
    second.model = "NVIDIA RTX PRO 6000 Blackwell Server Edition".to_owned();
    second.used_bytes = 138 * GIB;
    second.committed_bytes = 138 * GIB;
    second.throttle = vec!["thermal".to_owned()];
    let mut training = at_work("j41", 0.62);
    training.name = Some("fine-tuning\x1b[2J-of-a-large-model-42".to_owned());
    training.terms.promise = 0.3;
    training.denied.limit = 3;
    training.command = vec![
        "python".to_owned(),
        "train.py\x1b]0;stolen\x07".to_owned(),
        "--data=été".to_owned(),
    ];
    let mut eval = job("j42", "bob", &[0], 37, Some(70));
    eval.name = Some("eval".to_owned());
    take_time(
        &mut eval,
        0.312,
        json!({
            "state": "waiting", "held_by": "j41", "is_held_by_priority": true, "waited_60s_ns": 12_300_000_000_u64
        }),
    );
    eval.container = Some(read(
        json!({ "id": "0123456789abcdef", "name": "eval-7", "cgroup": null }),
    ));
    let mut whole = job("j43", "margarethe-von-hohenstein", &[1], 138, None);
    whole.engine = Some(read(json!({ "id": "slurm:4711", "words": null })));
    let mut waits = job("j44", "alice", &[], 0, None);
    waits.state = "waiting".to_owned();
    waits.clients.clear();
    let queued = json!({
        "job": "j44", "user": "alice", "mem": "25%", "waited_ns": 61_000_000_000_u64,
        "reason": "needs 35 GiB there: GPU 1 has 2 GiB of 140 GiB left; held by j43 138 GiB on GPU 1",
    });
    let mut shot = shot(
        vec![first, second],
        vec![training, eval, whole, waits],
        vec![read(queued)],
    );
    shot.unmanaged = vec![read(json!({
        "pid": 77, "uid": 1001, "gpu": 0, "used_bytes": 5 * GIB, "job": null, "user": "carol", "command": "jupyter",
        "other_broker": null, "busy": 0.04,
    }))];
    shot
}

/// A GPU that is sick, and one that does not answer.
pub fn sick() -> Shot {
    let mut sick = device(0, &["j41"]);
    sick.state = "sick".to_owned();
    sick.used_bytes = 20 * GIB;
    sick.committed_bytes = 35 * GIB;
    sick.promised_bytes = 35 * GIB;
    sick.notes = vec!["GPU 0 is sick: Xid 79 (it has fallen off the bus); it admits nothing".to_owned()];
    let mut lost = device(1, &[]);
    lost.state = "lost".to_owned();
    shot(vec![sick, lost], vec![at_work("j41", 0.0)], Vec::new())
}

/// A job whose memory is away, and one on its way back.
pub fn suspended() -> Shot {
    let mut away = job("j41", "alice", &[0], 0, Some(35));
    away.state = "suspended".to_owned();
    away.notes = vec!["suspended for j42, which has a higher priority".to_owned()];
    let mut comes = job("j42", "bob", &[0], 12, Some(70));
    comes.state = "resuming".to_owned();
    let mut gpu = device(0, &["j42"]);
    gpu.used_bytes = 12 * GIB;
    gpu.committed_bytes = 70 * GIB;
    gpu.promised_bytes = 70 * GIB;
    shot(vec![gpu], vec![away, comes], Vec::new())
}

/// So many jobs on eight GPUs.
pub fn many(count: u32) -> Shot {
    let jobs = (1..=count).map(|number| {
        let user = ["alice", "bob", "carol"][number as usize % 3];
        let mut job = job(&format!("j{number}"), user, &[number % 8], 1, Some(2));
        job.name = Some(format!("worker-{number}"));
        take_time(&mut job, f64::from(number % 10) / 100.0, json!({}));
        job
    });
    let gpu = |gpu| {
        let mut device = device(gpu, &[]);
        device.used_bytes = 63 * GIB;
        device.committed_bytes = 126 * GIB;
        device.promised_bytes = 126 * GIB;
        device.utilization = Some(0.9);
        device
    };
    shot((0..8).map(gpu).collect(), jobs.collect(), Vec::new())
}
