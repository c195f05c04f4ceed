// SPDX-License-Identifier: Apache-2.0
//! The numbers that events have beside their sentences.

use partage_protocol::admin::{EventDevice, EventNumbers};
use partage_protocol::message::NO_INDEX;
use partage_protocol::terms::ratio;
use partage_protocol::units::DeviceUuid;

use crate::books::Books;
use crate::job::{JobRecord, Placement};
use crate::notice::{Figures, Numbers};

impl Numbers {
    /// As an event shows them.
    #[must_use]
    pub fn view(&self, books: &Books) -> EventNumbers {
        let own = || {
            self.record
                .as_ref()
                .map(|record| of_job(books, record))
                .unwrap_or_default()
        };
        match &self.figures {
            Figures::None => EventNumbers::default(),
            Figures::Job => own(),
            Figures::Used(device, used_bytes) => EventNumbers {
                used_bytes: *used_bytes,
                ..on_device(books, *device)
            },
            Figures::Busy(device, part_ppm) => EventNumbers {
                busy: Some(ratio(*part_ppm)),
                ..on_device(books, *device)
            },
            Figures::Denial(device, [asked, limit, used, overhead, count]) => EventNumbers {
                // Nobody knows what was asked where it is 0.
                asked_bytes: Some(*asked).filter(|asked| *asked > 0),
                limit_bytes: Some(*limit),
                used_bytes: Some(*used),
                overhead_bytes: Some(*overhead),
                denied: Some(*count),
                ..device.map(|device| on_device(books, device)).unwrap_or_default()
            },
            Figures::Waiting(place) => EventNumbers {
                place: Some(*place),
                ..own()
            },
            Figures::Ended(summary) => {
                let mut numbers = EventNumbers {
                    exit_code: summary.exit_code,
                    ran_ns: Some(summary.ran_ns),
                    denied: Some(summary.denied),
                    ..own()
                };
                for (device, (_, peak_bytes, _)) in numbers.devices.iter_mut().zip(&summary.peaks) {
                    device.peak_bytes = Some(*peak_bytes);
                }
                numbers
            }
            Figures::Process(process) => {
                let numbers = own();
                let places = self.record.iter().flat_map(|record| &record.devices);
                let devices = numbers.devices.into_iter().zip(places);
                let devices = devices.map(|(device, place)| EventDevice {
                    limit_bytes: place.process_limit(*process),
                    ..device
                });
                EventNumbers {
                    devices: devices.collect(),
                    ..numbers
                }
            }
        }
    }
}

fn on_device(books: &Books, device: DeviceUuid) -> EventNumbers {
    EventNumbers {
        gpu: Some(books.index_of(device)).filter(|index| *index != NO_INDEX),
        uuid: Some(device.to_string()),
        ..EventNumbers::default()
    }
}

/// What a job has: on each of its GPUs, and of their time.
fn of_job(books: &Books, record: &JobRecord) -> EventNumbers {
    let device = |place: &Placement| EventDevice {
        gpu: on_device(books, place.device).gpu,
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
