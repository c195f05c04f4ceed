// SPDX-License-Identifier: Apache-2.0
//! The process that talks to NVML in the broker's stead (`partaged --nvml-helper`).
//!
//! A driver call can hang for ever or take the process down; here it takes down only this one. It asks NVML nothing on
//! its own and ends when the broker closes the socket or dies (`helper/channel.rs`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessUtilizationSample;
use nvml_wrapper::{Device, Nvml};
use partage_protocol::driver_place;

use super::messages::{Answer, Ask};
use super::nvlink::NvLink;
use super::telemetry::Health;
use super::unified::{self, Unified};
use crate::helper::channel;
use crate::host::driver_library;
use crate::host::gpu::{DeviceFacts, Driver, GpuProcess, Sample};

/// The driver samples several times a second and keeps some seconds: the mean over the last second counts.
const UTILISATION: Duration = Duration::from_secs(1);

/// Samples that are apart by less than this part of a second are of one sampling.
const SAME: u64 = 20;

/// What was listed.
#[derive(Default)]
struct Listed {
    devices: Vec<Known>,
    unified: Unified,
    told: Health,
}

/// A device.
struct Known {
    device: Arc<Device<'static>>,
    /// The whole card; the same where it is not divided.
    card: Arc<Device<'static>>,
    /// The size of its memory, where that is the host's.
    unified: Option<u64>,
}

/// Serves requests on descriptor 0 until its other end closes.
pub fn serve(driver_file: Option<&Path>) {
    let mut listed = Listed::default();
    channel::serve(|ask| match ask {
        Ask::Open => open(driver_file, &mut listed),
        Ask::Sample(place) => poll(&mut listed, place),
    });
}

/// Polls the device at this place. Its errors are told beside the answer: a device that is lost may have told why.
fn poll(listed: &mut Listed, place: usize) -> Answer {
    let answer = match listed.devices.get(place).map(|known| sample(known, &listed.unified)) {
        Some(Ok(mut sample)) => {
            sample.telemetry = listed.told.read(place);
            Answer::Sample(sample)
        }
        Some(Err(error)) => Answer::Lost(error.to_string()),
        None => Answer::Lost("no such place in the list".to_owned()),
    };
    let xids = listed.told.take_xids(place);
    match xids.is_empty() {
        true => answer,
        false => Answer::Xids(xids, Box::new(answer)),
    }
}

fn open(driver_file: Option<&Path>, listed: &mut Listed) -> Answer {
    let mut missing = None;
    for path in driver_library::paths(driver_place::NVML, driver_file) {
        match Nvml::builder().lib_path(path.as_os_str()).init() {
            Ok(nvml) => {
                // One per process, for the process's life: handles into it live as long.
                let nvml: &'static Nvml = Box::leak(Box::new(nvml));
                return match list((nvml, NvLink::of(&path)), driver_file, listed) {
                    Ok(facts) => Answer::Devices(facts),
                    Err(driver) => Answer::Driver(driver),
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

fn list(
    (nvml, nvlink): (&'static Nvml, Option<NvLink>),
    driver_file: Option<&Path>,
    listed: &mut Listed,
) -> Result<Vec<DeviceFacts>, Driver> {
    let driver = nvml.sys_driver_version().unwrap_or_default();
    listed.devices.clear();
    let mut facts = Vec::new();
    let mut without_size = None;
    for number in 0..nvml.device_count().map_err(|error| judge(&error))? {
        // A device that cannot be opened is left out; the others work.
        let Ok(device) = nvml.device_by_index(number) else {
            continue;
        };
        let card = Arc::new(device);
        let is_divided = card.mig_mode().is_ok_and(|mode| mode.current == 1);
        let parts = if is_divided {
            let count = card.mig_device_count().unwrap_or(0);
            (0..count)
                .filter_map(|part| card.mig_device_by_index(part).ok().map(Arc::new))
                .collect()
        } else {
            vec![Arc::clone(&card)]
        };
        for (part_number, part) in (0..).zip(parts) {
            let Ok(uuid) = part.uuid() else { continue };
            let (total, reserved, is_unified) = match part.memory_info() {
                Ok(memory) => (memory.total, memory.reserved, false),
                Err(NvmlError::NotSupported) => match listed.unified.total(&uuid, driver_file) {
                    Ok(total) => (total, unified::reserve(total), true),
                    Err(why) => {
                        without_size.get_or_insert(format!(
                            "NVML has no memory figures of GPU {number}, and the driver does not tell its size: {why}"
                        ));
                        continue;
                    }
                },
                Err(_) => continue,
            };
            facts.push(DeviceFacts {
                uuid,
                index: if is_divided {
                    100 * (number + 1) + part_number
                } else {
                    number
                },
                model: part.name().unwrap_or_else(|_| "unknown".to_owned()),
                total,
                is_unified,
                reserved,
                pci: part.pci_info().map_or_else(|_| String::new(), |info| info.bus_id),
                driver: driver.clone(),
                minor: part.minor_number().ok(),
            });
            listed.devices.push(Known {
                device: part,
                card: Arc::clone(&card),
                unified: is_unified.then_some(total),
            });
        }
    }
    let parts = listed.devices.iter();
    let parts = parts.map(|known| (Arc::clone(&known.device), Arc::clone(&known.card)));
    listed.told = Health::of((nvml, nvlink), parts.collect());
    match without_size {
        Some(why) if facts.is_empty() => Err(Driver::Failed(why)),
        _ => Ok(facts),
    }
}

/// What is in use is read before the list of processes: a process that has memory by then is listed.
fn sample(known: &Known, host: &Unified) -> Result<Sample, NvmlError> {
    let device = &known.device;
    let mut sample = Sample::default();
    let available = match known.unified {
        Some(_) => host.available(),
        None => {
            let memory = device.memory_info()?;
            (sample.used, sample.free) = (memory.used, memory.free);
            None
        }
    };
    sample.processes = processes(device, known.unified.is_some())?;
    if let Some(total) = known.unified {
        unified::set_memory(&mut sample, total, available);
    }
    Ok(sample)
}

/// The processes of a device. NVML may list none of one without memory of its own: then the ledger alone counts.
fn processes(device: &Device<'static>, is_unified: bool) -> Result<Vec<GpuProcess>, NvmlError> {
    let mut processes: Vec<GpuProcess> = Vec::new();
    let compute = match device.running_compute_processes() {
        Err(NvmlError::NotSupported) if is_unified => Vec::new(),
        answer => answer?,
    };
    let compute = compute.into_iter().map(|process| (process, false));
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
            set_busy(
                &mut processes,
                &samples,
                since,
                u64::try_from(now.as_micros()).unwrap_or(0),
            );
        }
    }
    Ok(processes)
}

/// Each process's mean from `since` to now; one without a sample has done nothing. A sample is of the time since the
/// one before it, whosever that is, and the newest holds until now: so the parts of processes that take turns add up to
/// no more than the whole, where their newest samples would. Buffers of the driver also hold what is older than asked
/// for, rows of nobody, and figures beyond the whole, which mean nothing.
fn set_busy(processes: &mut [GpuProcess], samples: &[ProcessUtilizationSample], since: u64, now: u64) {
    let counts = |sample: &&ProcessUtilizationSample| {
        sample.timestamp > since && sample.sm_util <= 100 && processes.iter().any(|process| process.pid == sample.pid)
    };
    let counted: Vec<&ProcessUtilizationSample> = samples.iter().filter(counts).collect();
    let window = now.saturating_sub(since);
    let mut times: Vec<u64> = counted.iter().map(|sample| sample.timestamp).collect();
    times.sort_unstable();
    times.dedup_by(|later, earlier| *later - *earlier <= window / SAME);
    let place = |at: u64| times.partition_point(|time| *time <= at).saturating_sub(1);
    let length = |place: usize| {
        let from = place.checked_sub(1).map_or(since, |before| times[before]);
        let to = if place + 1 == times.len() { now } else { times[place] };
        u128::from(to.saturating_sub(from))
    };
    for process in processes {
        let mut own: BTreeMap<usize, u32> = BTreeMap::new();
        for sample in counted.iter().filter(|sample| sample.pid == process.pid) {
            let most = own.entry(place(sample.timestamp)).or_default();
            *most = sample.sm_util.max(*most);
        }
        let whole = u128::from(window.max(1));
        let worked = own.iter().map(|(place, part)| length(*place) * u128::from(*part));
        let percent = (worked.sum::<u128>() + whole / 2) / whole;
        process.busy_percent = Some(u32::try_from(percent).map_or(100, |percent| percent.min(100)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(pid: u32, timestamp: u64, sm_util: u32) -> ProcessUtilizationSample {
        ProcessUtilizationSample {
            pid,
            timestamp,
            sm_util,
            mem_util: 0,
            enc_util: 0,
            dec_util: 0,
        }
    }

    /// What is said of processes 1, 2, … from 100 to 200.
    fn parts<const COUNT: usize>(samples: &[ProcessUtilizationSample]) -> [Option<u32>; COUNT] {
        let mut processes = std::array::from_fn(|at| GpuProcess {
            pid: at as u32 + 1,
            used: None,
            is_graphics_only: false,
            busy_percent: None,
        });
        set_busy(&mut processes, samples, 100, 200);
        processes.map(|process: GpuProcess| process.busy_percent)
    }

    #[test]
    fn the_mean_of_a_process_over_the_window_is_its_part() {
        let samples = [
            sample(1, 150, 90),
            sample(1, 200, 40),
            sample(2, 90, 80),
            sample(3, 200, 101),
            sample(0, 0, 7),
        ];
        assert_eq!(parts(&samples), [Some(65), Some(0), Some(0), Some(0)]);
        assert_eq!(parts(&[sample(1, 190, 40)]), [Some(40)], "the newest holds until now");
    }

    /// Their newest samples say 100 % each.
    #[test]
    fn processes_that_take_turns_add_up_to_the_device() {
        let samples = [sample(1, 150, 100), sample(2, 200, 100)];
        assert_eq!(parts(&samples), [Some(50), Some(50)]);
        let zeros = [
            sample(1, 150, 100),
            sample(2, 150, 0),
            sample(1, 200, 0),
            sample(2, 200, 100),
        ];
        assert_eq!(parts(&zeros), [Some(50), Some(50)]);
        // One sampling, whose rows are some milliseconds apart.
        assert_eq!(parts(&[sample(1, 150, 60), sample(2, 152, 40)]), [Some(60), Some(40)]);
    }
}
