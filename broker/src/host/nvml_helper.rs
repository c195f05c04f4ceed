// SPDX-License-Identifier: Apache-2.0
//! The process that talks to NVML in the broker's stead (`partaged --nvml-helper`), one JSON line per request and answer
//! on its standard input, which is a socket.
//!
//! A driver call can hang for ever or take the process down; here it takes down only this one. It asks NVML nothing on
//! its own and ends when the broker closes the socket or dies.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessUtilizationSample;
use nvml_wrapper::{Device, Nvml};
use partage_protocol::driver_place;
use serde::{Deserialize, Serialize};

use super::gpu::{DeviceFacts, Driver, GpuProcess, Sample};

/// The driver samples several times a second and keeps some seconds: the newest sample of the last second counts.
const UTILISATION: Duration = Duration::from_secs(1);

/// What the broker asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// Load the library and list the devices.
    Open,
    /// Look at the device at this place of the list.
    Sample(usize),
}

/// What the helper answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The devices.
    Devices(Vec<DeviceFacts>),
    /// The device.
    Sample(Sample),
    /// No devices can be listed.
    Driver(Driver),
    /// The one device cannot be looked at.
    Lost(String),
}

/// The library, wherever it may be; `driver_file` says where a command found it.
fn library_paths(driver_file: Option<&Path>) -> Vec<PathBuf> {
    let found = driver_file
        .and_then(|file| std::fs::read(file).ok())
        .and_then(|bytes| driver_place::read(&bytes));
    let machine = std::env::var_os("PARTAGE_SIM_DIR");
    driver_place::candidates(driver_place::NVML, machine.as_deref(), found.as_deref())
}

/// Serves requests on descriptor 0 until its other end closes.
pub fn serve(driver_file: Option<&Path>) {
    // The broker may die without closing anything while a driver call hangs here.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    // SAFETY: descriptor 0 is the socket that the broker gave this process as its standard input; std's own handle for
    // it is never used here.
    let socket = UnixStream::from(unsafe { OwnedFd::from_raw_fd(0) });
    let Ok(reader) = socket.as_fd().try_clone_to_owned() else {
        return;
    };
    let mut writer = socket;
    let mut devices: Vec<Device<'static>> = Vec::new();
    for line in BufReader::new(UnixStream::from(reader)).lines() {
        let Ok(line) = line else { return };
        let Ok(ask) = serde_json::from_str::<Ask>(&line) else {
            return;
        };
        let answer = match ask {
            Ask::Open => open(driver_file, &mut devices),
            Ask::Sample(place) => match devices.get(place).map(sample) {
                Some(Ok(sample)) => Answer::Sample(sample),
                Some(Err(error)) => Answer::Lost(error.to_string()),
                None => Answer::Lost("no such place in the list".to_owned()),
            },
        };
        let Ok(mut text) = serde_json::to_vec(&answer) else {
            return;
        };
        text.push(b'\n');
        if writer.write_all(&text).is_err() {
            return;
        }
    }
}

fn open(driver_file: Option<&Path>, devices: &mut Vec<Device<'static>>) -> Answer {
    let mut missing = None;
    for path in library_paths(driver_file) {
        match Nvml::builder().lib_path(path.as_os_str()).init() {
            Ok(nvml) => {
                // One per process, for the process's life: handles into it live as long.
                let nvml: &'static Nvml = Box::leak(Box::new(nvml));
                return match list(nvml) {
                    Ok((handles, facts)) => {
                        *devices = handles;
                        Answer::Devices(facts)
                    }
                    Err(error) => Answer::Driver(judge(&error)),
                };
            }
            // A library that is there and answers is the right one, whatever it answers.
            Err(error @ (NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound)) => {
                // The usual name's failure is the one that explains itself.
                missing.get_or_insert(judge(&error));
            }
            Err(error) => return Answer::Driver(judge(&error)),
        }
    }
    Answer::Driver(missing.unwrap_or(Driver::Missing("no libnvidia-ml.so.1".to_owned())))
}

fn judge(error: &NvmlError) -> Driver {
    match error {
        NvmlError::LibloadingError(inner) => Driver::Missing(inner.to_string()),
        NvmlError::LibraryNotFound | NvmlError::DriverNotLoaded => Driver::Missing(error.to_string()),
        NvmlError::LibRmVersionMismatch => Driver::Mismatch(error.to_string()),
        other => Driver::Failed(other.to_string()),
    }
}

fn list(nvml: &'static Nvml) -> Result<(Vec<Device<'static>>, Vec<DeviceFacts>), NvmlError> {
    let mut handles = Vec::new();
    let mut facts = Vec::new();
    for number in 0..nvml.device_count()? {
        // A device that cannot be opened is left out; the others work.
        let Ok(device) = nvml.device_by_index(number) else {
            continue;
        };
        let is_divided = device.mig_mode().is_ok_and(|mode| mode.current == 1);
        let parts = if is_divided {
            let count = device.mig_device_count().unwrap_or(0);
            (0..count)
                .filter_map(|part| device.mig_device_by_index(part).ok())
                .collect()
        } else {
            vec![device]
        };
        for (part_number, part) in (0..).zip(parts) {
            let (Ok(uuid), Ok(memory)) = (part.uuid(), part.memory_info()) else {
                continue;
            };
            facts.push(DeviceFacts {
                uuid,
                index: if is_divided {
                    100 * (number + 1) + part_number
                } else {
                    number
                },
                model: part.name().unwrap_or_else(|_| "unknown".to_owned()),
                total: memory.total,
                reserved: memory.reserved,
            });
            handles.push(part);
        }
    }
    Ok((handles, facts))
}

fn sample(device: &Device<'static>) -> Result<Sample, NvmlError> {
    let memory = device.memory_info()?;
    let mut processes: Vec<GpuProcess> = Vec::new();
    let compute = device
        .running_compute_processes()?
        .into_iter()
        .map(|process| (process, false));
    let graphics = device.running_graphics_processes().unwrap_or_default();
    let graphics = graphics.into_iter().map(|process| (process, true));
    for (process, is_graphics_only) in compute.chain(graphics) {
        let used = match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        };
        // A process that computes and draws stands in both lists with the same total.
        match processes.iter_mut().find(|known| known.pid == process.pid) {
            Some(known) => known.used = known.used.max(used),
            None => processes.push(GpuProcess {
                pid: process.pid,
                used,
                is_graphics_only,
                busy_percent: None,
            }),
        }
    }
    if !processes.is_empty() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = now.saturating_sub(UTILISATION);
        let since = u64::try_from(since.as_micros()).unwrap_or(0);
        let samples = match device.process_utilization_stats(since) {
            // No process did anything since.
            Err(NvmlError::NotFound) => Some(Vec::new()),
            // A driver that does not say (MIG instances, some vGPU guests) says nothing of anybody; all else is known.
            answer => answer.ok(),
        };
        if let Some(samples) = samples {
            set_busy(&mut processes, &samples, since);
        }
    }
    Ok(Sample {
        used: memory.used,
        free: memory.free,
        processes,
    })
}

/// Each process's newest sample; one without has done nothing. Buffers of the driver also hold what is older than asked
/// for, rows of nobody, and figures beyond the whole, which mean nothing.
fn set_busy(processes: &mut [GpuProcess], samples: &[ProcessUtilizationSample], since: u64) {
    for process in processes {
        let own = samples
            .iter()
            .filter(|sample| sample.pid == process.pid && sample.timestamp > since && sample.sm_util <= 100);
        let newest = own.max_by_key(|sample| (sample.timestamp, sample.sm_util));
        process.busy_percent = Some(newest.map_or(0, |sample| sample.sm_util));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_sample_of_a_process_is_its_part() {
        let sample = |pid, timestamp, sm_util| ProcessUtilizationSample {
            pid,
            timestamp,
            sm_util,
            mem_util: 0,
            enc_util: 0,
            dec_util: 0,
        };
        let process = |pid| GpuProcess {
            pid,
            used: None,
            is_graphics_only: false,
            busy_percent: None,
        };
        let mut processes = [process(1), process(2), process(3), process(4)];
        let samples = [
            sample(1, 150, 90),
            sample(1, 200, 40),
            sample(2, 90, 80),
            sample(3, 200, 101),
            sample(0, 0, 7),
        ];
        set_busy(&mut processes, &samples, 100);
        let parts = processes.map(|process| process.busy_percent);
        assert_eq!(parts, [Some(40), Some(0), Some(0), Some(0)]);
    }
}
