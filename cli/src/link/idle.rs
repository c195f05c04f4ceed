// SPDX-License-Identifier: Apache-2.0
//! What a machine shows while no broker runs: its GPUs and the processes on them, asked of NVML by the helper that a
//! broker uses. Nothing is started that stays, and nothing is made.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::unistd::Uid;
use partage_protocol::admin::{DeniedView, DeviceView, UnifiedView, UnmanagedView};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::failure::{Failure, Kind, Outcome};
use crate::launch::installed;
use crate::launch::place::{Place, Rule};
use crate::link::other_brokers;
use crate::link::silence::PATIENCE;

/// The machine without a broker.
#[derive(Debug, Default)]
pub struct Idle {
    /// Its GPUs.
    pub devices: Vec<DeviceView>,
    /// The processes on them.
    pub unmanaged: Vec<UnmanagedView>,
    /// Why the GPUs are not known, where they are not.
    pub trouble: Option<String>,
    /// What is to be said of the broker.
    pub broker: String,
}

#[derive(Debug, Deserialize)]
struct Facts {
    uuid: String,
    index: u32,
    model: String,
    total: u64,
    #[serde(default)]
    is_unified: bool,
    reserved: u64,
}

#[derive(Debug, Deserialize)]
struct Sample {
    used: u64,
    processes: Vec<Process>,
}

#[derive(Debug, Deserialize)]
struct Process {
    pid: u32,
    used: Option<u64>,
}

/// That no broker runs is an answer where the next `run` starts one; every other failure stays one.
///
/// # Errors
/// The failure.
pub fn without_broker(place: &Place, failure: Failure) -> Outcome<String> {
    if failure.kind == Kind::NoBroker && place.rule == Rule::Private {
        Ok("no broker runs; the next `partage run` starts one".to_owned())
    } else {
        Err(failure)
    }
}

/// Reads the machine after a broker was not met.
///
/// # Errors
/// As [`without_broker`].
pub fn read_machine(place: &Place, failure: Failure) -> Outcome<Idle> {
    let broker = without_broker(place, failure)?;
    let mut idle = Idle {
        broker,
        ..Idle::default()
    };
    idle.trouble = ask(&mut idle).err();
    Ok(idle)
}

/// The GPUs, as far as NVML tells of them.
pub fn devices() -> Vec<DeviceView> {
    let mut idle = Idle::default();
    // What it did not tell in time is not known.
    let _ = ask(&mut idle);
    idle.devices
}

/// One conversation with the helper; what it does not answer in time is not waited for.
fn ask(idle: &mut Idle) -> Result<(), String> {
    let program = installed::find(installed::BROKER).map_err(|failure| failure.message)?;
    let (own, theirs) = UnixStream::pair().map_err(|error| error.to_string())?;
    let mut helper = Command::new(program)
        .arg("--nvml-helper")
        .env_remove("LD_PRELOAD")
        .env_remove("CUDA_VISIBLE_DEVICES")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("the NVML helper cannot be started: {error}"))?;
    let result = converse(idle, own);
    if result.is_err() {
        // Not waited for: one that hangs in the driver does not die either.
        let _ = helper.kill();
    } else {
        let _ = helper.wait();
    }
    result
}

fn converse(idle: &mut Idle, socket: UnixStream) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    let mut reader = BufReader::new(socket.try_clone().map_err(|error| error.to_string())?);
    let mut say = |ask: Value| -> Result<Value, String> {
        let left = deadline.saturating_duration_since(Instant::now());
        let silent = || format!("the NVIDIA driver did not answer within {} s", PATIENCE.as_secs());
        // No time at all would mean for ever.
        let left = left.max(std::time::Duration::from_millis(1));
        socket.set_read_timeout(Some(left)).map_err(|_| silent())?;
        (&socket)
            .write_all(format!("{ask}\n").as_bytes())
            .map_err(|_| "the NVML helper ended".to_owned())?;
        let mut line = String::new();
        match reader.read_line(&mut line) {
            Ok(0) => Err("the NVML helper ended".to_owned()),
            Ok(_) => serde_json::from_str(&line).map_err(|error| error.to_string()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Err(silent()),
            // Reset: it left with the question unread.
            Err(_) => Err("the NVML helper ended".to_owned()),
        }
    };
    let opened = say(json!("open"))?;
    if let Some(driver) = opened.get("driver") {
        let why = driver["why"].as_str().unwrap_or("unknown");
        return Err(format!("no GPU can be listed: {why}"));
    }
    let facts: Vec<Facts> = serde_json::from_value(opened["devices"].clone()).map_err(|error| error.to_string())?;
    for (place, device) in facts.into_iter().enumerate() {
        let answer = say(json!({ "sample": place }))?;
        let sample = answer
            .get("sample")
            .map(|sample| serde_json::from_value::<Sample>(sample.clone()));
        match sample {
            Some(Ok(sample)) => {
                idle.unmanaged
                    .extend(sample.processes.iter().map(|process| unmanaged(process, device.index)));
                let listed = sample.processes.iter().filter_map(|process| process.used).sum();
                idle.devices.push(view(device, "ok", (sample.used, listed)));
            }
            _ => {
                let why = answer["lost"].as_str().unwrap_or("it does not answer");
                idle.devices.push(view(device, &format!("lost: {why}"), (0, 0)));
            }
        }
    }
    Ok(())
}

/// `used`: in use by everybody, and by the processes that NVML lists.
fn view(device: Facts, state: &str, (used, listed): (u64, u64)) -> DeviceView {
    let host_bytes = if device.is_unified {
        used.saturating_sub(listed)
    } else {
        0
    };
    DeviceView {
        index: device.index,
        uuid: device.uuid,
        model: device.model,
        state: state.to_owned(),
        total_bytes: device.total,
        usable_bytes: device.total.saturating_sub(device.reserved),
        committed_bytes: used,
        used_bytes: used,
        unmanaged_bytes: used - host_bytes,
        unified: device.is_unified.then_some(UnifiedView {
            host_bytes,
            kept_bytes: device.reserved,
        }),
        jobs: Vec::new(),
        promised_bytes: 0,
        denied: DeniedView::default(),
        notes: Vec::new(),
        is_drained: false,
        drained: None,
        unmanaged_notes: Vec::new(),
        promised_time: 0.0,
        regime: None,
        unmanaged_time: None,
        utilization: None,
        temperature_celsius: None,
        power_watts: None,
        throttle: Vec::new(),
        telemetry: None,
        sick: None,
    }
}

fn unmanaged(process: &Process, gpu: u32) -> UnmanagedView {
    let uid = std::fs::metadata(format!("/proc/{}", process.pid))
        .ok()
        .map(|data| data.uid());
    let is_own = uid == Some(Uid::effective().as_raw()) || Uid::effective().is_root();
    let comm = || std::fs::read_to_string(format!("/proc/{}/comm", process.pid)).ok();
    UnmanagedView {
        pid: process.pid,
        uid,
        gpu,
        used_bytes: process.used.unwrap_or(0),
        job: None,
        user: uid.map(other_brokers::name),
        command: is_own.then(comm).flatten().map(|name| name.trim_end().to_owned()),
        other_broker: None,
        busy: None,
    }
}
