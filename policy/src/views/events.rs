// SPDX-License-Identifier: Apache-2.0
//! The numbers that events have beside their sentences.

use partage_protocol::admin::{EventDevice, EventNumbers};
use partage_protocol::message::NO_INDEX;
use partage_protocol::summary::Summary;
use partage_protocol::terms::ratio;
use partage_protocol::units::{DeviceUuid, JobId};

use crate::books::Books;
use crate::caller::Process;
use crate::job::Placement;

impl Books {
    /// Which GPU is meant.
    pub(crate) fn on_device(&self, device: DeviceUuid) -> EventNumbers {
        EventNumbers {
            gpu: Some(self.index_of(device)).filter(|index| *index != NO_INDEX),
            uuid: Some(device.to_string()),
            ..EventNumbers::default()
        }
    }

    /// So many bytes are in use there.
    pub(crate) fn used_on(&self, device: DeviceUuid, used_bytes: Option<u64>) -> EventNumbers {
        EventNumbers {
            used_bytes,
            ..self.on_device(device)
        }
    }

    /// So many millionths of its time are used there.
    pub(crate) fn busy_on(&self, device: DeviceUuid, part_ppm: u32) -> EventNumbers {
        EventNumbers {
            busy: Some(ratio(part_ppm)),
            ..self.on_device(device)
        }
    }

    /// A denial; nobody knows what was asked where it is 0.
    pub(crate) fn denial_numbers(
        &self,
        device: Option<DeviceUuid>,
        (asked, limit): (u64, u64),
        (used, overhead): (u64, u64),
        count: u64,
    ) -> EventNumbers {
        EventNumbers {
            asked_bytes: Some(asked).filter(|asked| *asked > 0),
            limit_bytes: Some(limit),
            used_bytes: Some(used),
            overhead_bytes: Some(overhead),
            denied: Some(count),
            ..device.map(|device| self.on_device(device)).unwrap_or_default()
        }
    }

    /// A job that waits: its place in the queue, and its terms.
    pub(crate) fn waiting_numbers(&self, id: JobId, place: u32) -> EventNumbers {
        EventNumbers {
            place: Some(place),
            ..self.job_numbers(id)
        }
    }

    /// How a job ended, and what it had.
    pub(crate) fn ended_numbers(&self, id: JobId, summary: &Summary) -> EventNumbers {
        let mut numbers = EventNumbers {
            exit_code: summary.exit_code,
            ran_ns: Some(summary.ran_ns),
            denied: Some(summary.denied),
            ..self.job_numbers(id)
        };
        for (device, (_, peak_bytes, _)) in numbers.devices.iter_mut().zip(&summary.peaks) {
            device.peak_bytes = Some(*peak_bytes);
        }
        numbers
    }

    /// The limits of one process of a job.
    pub(crate) fn process_numbers(&self, id: JobId, process: Process) -> EventNumbers {
        let numbers = self.job_numbers(id);
        let places = self.jobs.get(&id).map(|job| &job.record.devices);
        let devices = numbers.devices.into_iter().zip(places.into_iter().flatten());
        let devices = devices.map(|(device, place)| EventDevice {
            limit_bytes: place.process_limit(process),
            ..device
        });
        EventNumbers {
            devices: devices.collect(),
            ..numbers
        }
    }

    /// What a job has: on each of its GPUs, and of their time.
    pub(crate) fn job_numbers(&self, id: JobId) -> EventNumbers {
        let Some(record) = self.jobs.get(&id).map(|job| &job.record) else {
            return EventNumbers::default();
        };
        let device = |place: &Placement| EventDevice {
            gpu: self.on_device(place.device).gpu,
            uuid: place.device.to_string(),
            limit_bytes: place.limit,
            request_bytes: place.request,
            peak_bytes: None,
        };
        let terms = &record.terms;
        EventNumbers {
            promise: Some(ratio(terms.promise_ppm)),
            cap: terms.cap_ppm.map(ratio),
            weight: Some(terms.weight),
            time_limit_ns: terms.time_limit_ns,
            devices: record.devices.iter().map(device).collect(),
            ..EventNumbers::default()
        }
    }
}
