// SPDX-License-Identifier: Apache-2.0
//! What a device tells of its state, and how often it is asked. Some questions take NVML milliseconds: no poll waits
//! for those.
//!
//! | what | asked | by |
//! |---|---|---|
//! | utilisation, temperature, power, reasons for lower clocks, clocks | at a poll, 0.4 s apart at least | the poll |
//! | power limit, memory errors, rows of memory, NVLink's counters | every 10 s | a thread of the helper |
//! | PCIe: NVML counts for 20 ms, twice | every 10 s | the same |
//! | Xid errors | as they come | the same: it waits for them |
//!
//! A question that a device does not support is not asked again. Of a MIG instance the utilisation is its own, and all
//! else its card's. NVML tells the newest Xid for each event that waits: the thread waits all the time, so that few do.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, PcieUtilCounter, TemperatureSensor};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::{Device, EventSet, Nvml};
use partage_policy::Telemetry;

use super::nvlink::NvLink;

/// Polls that follow each other more closely, while the memory of a process that ended is awaited, get what the one
/// before saw.
const FAST: Duration = Duration::from_millis(400);
/// Between two readings of what takes long or hardly changes.
const SLOW: Duration = Duration::from_secs(10);
/// The thread waits for errors for so long at a time, in milliseconds.
const XID_WAIT_MS: u32 = 2_000;
/// Where waiting fails at once, the thread rests.
const REST: Duration = Duration::from_secs(1);
/// Errors of one device that wait for a poll at most; the oldest go.
const MOST_XIDS: usize = 64;

/// `NVML_FI_DEV_REMAPPED_PENDING`.
const REMAP_PENDING: FieldId = FieldId(144);
/// `NVML_FI_DEV_REMAPPED_FAILURE`.
const REMAP_FAILED: FieldId = FieldId(145);

/// A question, by its bit among those that a device does not support.
#[derive(Clone, Copy)]
enum Question {
    Utilisation,
    Temperature,
    Power,
    PowerLimit,
    Throttle,
    Graphics,
    Memory,
    Corrected,
    Uncorrected,
    Rows,
    Sent,
    Received,
    NvLink,
}

/// One listed device, with what is known of it.
struct Asked {
    part: Arc<Device<'static>>,
    /// The whole card; the same where it is not divided.
    card: Arc<Device<'static>>,
    card_uuid: String,
    unsupported: u32,
}

impl Asked {
    fn ask<T>(&mut self, of: Question, ask: impl FnOnce(&Self) -> Result<T, NvmlError>) -> Option<T> {
        let bit = 1 << of as u32;
        if self.unsupported & bit != 0 {
            return None;
        }
        match ask(self) {
            Ok(value) => Some(value),
            Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_) | NvmlError::InvalidArg) => {
                self.unsupported |= bit;
                None
            }
            // This time.
            Err(_) => None,
        }
    }

    /// What changes from second to second.
    fn read_fast(&mut self, told: &mut Telemetry) {
        let rates = self.ask(Question::Utilisation, |this| this.part.utilization_rates());
        told.busy_percent = rates.as_ref().map(|rates| rates.gpu);
        told.memory_busy_percent = rates.map(|rates| rates.memory);
        told.temperature_celsius = self.ask(Question::Temperature, |this| {
            this.card.temperature(TemperatureSensor::Gpu)
        });
        told.power_milliwatts = self.ask(Question::Power, |this| this.card.power_usage());
        told.throttle_bits = self.ask(Question::Throttle, |this| {
            this.card.current_throttle_reasons().map(|reasons| reasons.bits())
        });
        told.graphics_mhz = self.ask(Question::Graphics, |this| this.card.clock_info(Clock::SM));
        told.memory_mhz = self.ask(Question::Memory, |this| this.card.clock_info(Clock::Memory));
    }

    /// What hardly changes, and counters.
    fn read_slow(&mut self, nvlink: Option<NvLink>, told: &mut Telemetry) {
        told.power_limit_milliwatts = self.ask(Question::PowerLimit, |this| this.card.enforced_power_limit());
        let errors = |this: &Self, kind| this.card.total_ecc_errors(kind, EccCounter::Volatile);
        told.ecc_corrected = self.ask(Question::Corrected, |this| errors(this, MemoryError::Corrected));
        told.ecc_uncorrected = self.ask(Question::Uncorrected, |this| errors(this, MemoryError::Uncorrected));
        let rows = self.ask(Question::Rows, |this| {
            this.card.field_values_for(&[REMAP_PENDING, REMAP_FAILED])
        });
        let mut rows = rows.unwrap_or_default().into_iter().map(|field| {
            let value = field.ok()?.value.ok()?;
            Some(!matches!(value, SampleValue::U32(0) | SampleValue::U64(0)))
        });
        told.is_remap_pending = rows.next().flatten();
        told.has_remap_failed = rows.next().flatten();
        let traffic = nvlink.and_then(|nvlink| self.ask(Question::NvLink, |this| nvlink.traffic(&this.card)));
        (told.nvlink_sent_bytes, told.nvlink_received_bytes) = traffic.unzip();
    }

    /// Takes 40 ms.
    fn read_pcie(&mut self, told: &mut Telemetry) {
        let traffic = |this: &Self, way| this.card.pcie_throughput(way);
        told.pcie_sent_kib = self.ask(Question::Sent, |this| traffic(this, PcieUtilCounter::Send));
        told.pcie_received_kib = self.ask(Question::Received, |this| traffic(this, PcieUtilCounter::Receive));
    }
}

/// What the thread found, by place.
#[derive(Default)]
struct Found {
    slow: Vec<Telemetry>,
    xids: Vec<Vec<u32>>,
}

/// The state of all listed devices.
#[derive(Default)]
pub(super) struct Health {
    places: Vec<(Asked, Telemetry, Option<Instant>)>,
    found: Arc<Mutex<Found>>,
}

impl Health {
    /// These devices, each with its card, in the order of the list. The helper lists once in its life.
    pub(super) fn of(
        (nvml, nvlink): (&'static Nvml, Option<NvLink>),
        parts: Vec<(Arc<Device<'static>>, Arc<Device<'static>>)>,
    ) -> Self {
        let mut places = Vec::new();
        let mut slow = Vec::new();
        for (part, card) in parts {
            let card_uuid = card.uuid().unwrap_or_default();
            let asked = || Asked {
                part: Arc::clone(&part),
                card: Arc::clone(&card),
                card_uuid: card_uuid.clone(),
                unsupported: 0,
            };
            places.push((asked(), Telemetry::default(), None));
            slow.push(asked());
        }
        let events = events(nvml, &slow);
        let mut found = Found::default();
        for asked in &mut slow {
            let mut told = Telemetry {
                tells_xids: events.is_some() && tells_xids(&asked.card),
                ..Telemetry::default()
            };
            asked.read_slow(nvlink, &mut told);
            found.slow.push(told);
            found.xids.push(Vec::new());
        }
        let found = Arc::new(Mutex::new(found));
        let shared = Arc::clone(&found);
        // One that cannot be started is missed: what was read just now stays, and no error is heard of.
        let _ = std::thread::Builder::new()
            .name("telemetry".to_owned())
            .spawn(move || follow(&shared, (slow, nvlink), events.as_ref()));
        Self { places, found }
    }

    /// The state of the device at this place.
    pub(super) fn read(&mut self, place: usize) -> Telemetry {
        let Some((asked, told, at)) = self.places.get_mut(place) else {
            return Telemetry::default();
        };
        let now = Instant::now();
        if at.is_none_or(|at| now.duration_since(at) >= FAST) {
            asked.read_fast(told);
            *at = Some(now);
        }
        let slow = lock(&self.found).slow.get(place).cloned().unwrap_or_default();
        Telemetry {
            power_limit_milliwatts: slow.power_limit_milliwatts,
            ecc_corrected: slow.ecc_corrected,
            ecc_uncorrected: slow.ecc_uncorrected,
            is_remap_pending: slow.is_remap_pending,
            has_remap_failed: slow.has_remap_failed,
            pcie_sent_kib: slow.pcie_sent_kib,
            pcie_received_kib: slow.pcie_received_kib,
            nvlink_sent_bytes: slow.nvlink_sent_bytes,
            nvlink_received_bytes: slow.nvlink_received_bytes,
            tells_xids: slow.tells_xids,
            ..told.clone()
        }
    }

    /// The errors of the device at this place since this was asked last, the oldest first.
    pub(super) fn take_xids(&self, place: usize) -> Vec<u32> {
        let mut found = lock(&self.found);
        found.xids.get_mut(place).map(std::mem::take).unwrap_or_default()
    }
}

fn lock(found: &Mutex<Found>) -> MutexGuard<'_, Found> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tells_xids(card: &Device<'static>) -> bool {
    let kinds = card.supported_event_types();
    kinds.is_ok_and(|kinds| kinds.contains(EventTypes::CRITICAL_XID_ERROR))
}

/// A set in which the errors of all devices arrive that tell them; none where none does.
fn events(nvml: &'static Nvml, listed: &[Asked]) -> Option<EventSet<'static>> {
    let mut set = None;
    for asked in listed.iter().filter(|asked| tells_xids(&asked.card)) {
        let empty = match set.take() {
            Some(set) => set,
            None => nvml.create_event_set().ok()?,
        };
        // A set that did not take a device is gone with all that it had.
        set = asked.card.register_events(EventTypes::CRITICAL_XID_ERROR, empty).ok();
    }
    set
}

/// The thread: waits for errors, and reads every now and then what takes long. It ends with the helper.
fn follow(
    found: &Mutex<Found>,
    (mut listed, nvlink): (Vec<Asked>, Option<NvLink>),
    events: Option<&EventSet<'static>>,
) {
    let mut due = Instant::now();
    loop {
        if Instant::now() >= due {
            due = Instant::now() + SLOW;
            for (place, asked) in listed.iter_mut().enumerate() {
                let mut told = lock(found).slow.get(place).cloned().unwrap_or_default();
                asked.read_slow(nvlink, &mut told);
                asked.read_pcie(&mut told);
                if let Some(slow) = lock(found).slow.get_mut(place) {
                    *slow = told;
                }
            }
        }
        let Some(set) = events else {
            std::thread::sleep(SLOW);
            continue;
        };
        match set.wait(XID_WAIT_MS) {
            Ok(event) => {
                let (Some(XidError::Value(xid)), Ok(uuid)) = (event.event_data, event.device.uuid()) else {
                    continue;
                };
                let Ok(xid) = u32::try_from(xid) else { continue };
                let mut found = lock(found);
                let of_it = listed.iter().zip(&mut found.xids);
                for (_, xids) in of_it.filter(|(asked, _)| asked.card_uuid == uuid) {
                    xids.push(xid);
                    let too_many = xids.len().saturating_sub(MOST_XIDS);
                    xids.drain(..too_many);
                }
            }
            Err(NvmlError::Timeout) => {}
            Err(_) => std::thread::sleep(REST),
        }
    }
}
