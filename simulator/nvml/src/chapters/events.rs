// SPDX-License-Identifier: Apache-2.0
//! Sets of events. The one kind that there is: Xid errors, told by faults (`xid:DEVICE:NUMBER`).
//!
//! As of the vendor's, a set hears what happens after a device was registered, and nothing of before.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use partage_abi::nvml::*;

use crate::state::{Answer, code, device, nvml, store};

/// `nvmlEventTypeXidCriticalError`.
const XID: c_ulonglong = 8;
/// Not an instance's.
const WHOLE: c_uint = c_uint::MAX;
/// Between two looks at the faults.
const STEP: Duration = Duration::from_millis(50);

/// A set: its devices by number, each with the handle that it was registered with, and what was told of them.
#[derive(Default)]
struct Set {
    devices: Vec<(usize, NvmlDevice)>,
    told: Vec<(usize, u32)>,
}

// SAFETY: the handles are numbers.
unsafe impl Send for Set {}

pub fn nvmlEventSetCreate(set: *mut NvmlEventSet) -> NvmlReturn {
    code(nvml().and_then(|_| {
        if set.is_null() {
            return Err(NvmlReturn::INVALID_ARGUMENT);
        }
        let new = Box::into_raw(Box::new(Mutex::new(Set::default())));
        store(set, NvmlEventSet(new.cast()))
    }))
}

pub fn nvmlEventSetFree(set: NvmlEventSet) -> NvmlReturn {
    code(nvml().and_then(|_| {
        if set.0.is_null() {
            return Err(NvmlReturn::INVALID_ARGUMENT);
        }
        // SAFETY: by the contract of the entry point a set of `nvmlEventSetCreate`, which nobody uses any more.
        drop(unsafe { Box::from_raw(set.0.cast::<Mutex<Set>>()) });
        Ok(())
    }))
}

pub fn nvmlDeviceGetSupportedEventTypes(of: NvmlDevice, event_types: *mut c_ulonglong) -> NvmlReturn {
    code(device(of).and_then(|_| store(event_types, XID)))
}

pub fn nvmlDeviceRegisterEvents(of: NvmlDevice, event_types: c_ulonglong, set: NvmlEventSet) -> NvmlReturn {
    code(device(of).and_then(|device| {
        if event_types & !XID != 0 {
            return Err(NvmlReturn::NOT_SUPPORTED);
        }
        let mut set = lock(set)?;
        let before = nvml()?.books.faults().xids();
        let before = before.into_iter().filter(|(of, _)| *of == device.index);
        set.told.extend(before);
        set.devices.push((device.index, of));
        Ok(())
    }))
}

pub fn nvmlEventSetWait(set: NvmlEventSet, data: *mut NvmlEventDataV1, timeoutms: c_uint) -> NvmlReturn {
    code(wait(set, timeoutms).and_then(|(device, xid)| {
        let event = NvmlEventDataV1 {
            device,
            eventType: XID,
            eventData: c_ulonglong::from(xid),
        };
        store(data, event)
    }))
}

pub fn nvmlEventSetWait_v2(set: NvmlEventSet, data: *mut NvmlEventData, timeoutms: c_uint) -> NvmlReturn {
    code(wait(set, timeoutms).and_then(|(device, xid)| {
        let event = NvmlEventData {
            device,
            eventType: XID,
            eventData: c_ulonglong::from(xid),
            gpuInstanceId: WHOLE,
            computeInstanceId: WHOLE,
        };
        store(data, event)
    }))
}

fn lock(set: NvmlEventSet) -> Answer<MutexGuard<'static, Set>> {
    if set.0.is_null() {
        return Err(NvmlReturn::INVALID_ARGUMENT);
    }
    // SAFETY: by the contract of the entry points a set of `nvmlEventSetCreate` that was not freed.
    let set = unsafe { &*set.0.cast::<Mutex<Set>>() };
    Ok(set.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The next error of one of the set's devices; TIMEOUT where none comes.
fn wait(set: NvmlEventSet, timeout_ms: c_uint) -> Answer<(NvmlDevice, u32)> {
    let until = Instant::now() + Duration::from_millis(u64::from(timeout_ms));
    loop {
        let now = nvml()?.books.faults().xids();
        if let Some(event) = lock(set)?.next(&now) {
            return Ok(event);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(NvmlReturn::TIMEOUT);
        }
        std::thread::sleep(left.min(STEP));
    }
}

impl Set {
    /// The first error of its devices that it did not tell. One whose line is gone may happen again.
    fn next(&mut self, now: &[(usize, u32)]) -> Option<(NvmlDevice, u32)> {
        let mut untold = std::mem::take(&mut self.told);
        let mut next = None;
        for (of, xid) in now {
            let Some((_, handle)) = self.devices.iter().find(|(device, _)| device == of) else {
                continue;
            };
            match untold.iter().position(|told| told == &(*of, *xid)) {
                Some(place) => drop(untold.swap_remove(place)),
                None if next.is_none() => next = Some((*handle, *xid)),
                None => continue,
            }
            self.told.push((*of, *xid));
        }
        next
    }
}
