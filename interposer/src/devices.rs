// SPDX-License-Identifier: Apache-2.0
//! Which devices the program sees, and which slot of the job each ordinal is.
//!
//! The driver masks: for the call of `cuInit` alone, `CUDA_VISIBLE_DEVICES` names the job's devices by UUID, chosen
//! and ordered as the program's own value says: in the job's numbering inside `run`, which took the caller's value
//! away; in the machine's for a process that came without `run`, whose value was set by somebody who knows of no job,
//! and for one of a registered job, whose engine set it. No ordinal is translated anywhere. A driver that masks
//! otherwise is found by the UUIDs that it shows: where none is the job's, `cuInit` answers NO_DEVICE, as a driver
//! does that is shown none; where others stand beside the job's, no context and no memory can be had there.
//!
//! An ordinal's slot: after `cuInit` the library asks the driver for the UUID of each ordinal ([`learn`]); the place of
//! that UUID among the job's devices is the slot. The broker's welcome lists these devices, else the environment does;
//! where neither does, the ordinal itself is the slot. A late attach numbers the slots again (`attachment.rs`).
//!
//! When the job moved, its broker writes the new device into the slot's line and then changes `placement`: the next
//! call that asks for a slot learns everything again. The mask stays what it was: the driver shows the new device in
//! the old one's place.

pub mod listed;

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::Ordering;

use partage_abi::types::{CuResult, CuUuid};
use partage_protocol::message::{Devices, MAX_DEVICES, PCI_BYTES};

use crate::attachment::names::{self, List, Names};
use crate::attachment::ordinals::{FOREIGN, NAMELESS};
use crate::attachment::{self, moved};
use crate::connection;
use crate::guest::linker;
use crate::guest::text::{self, Text, bytes_of};
use crate::guest::weak;
use crate::note;
use crate::real::call;
use crate::real::{self, Library};
use crate::state::{MAX_ORDINALS, Phase, State};

const VARIABLE: &CStr = c"CUDA_VISIBLE_DEVICES";
/// Longest value of the program that is put back as it was.
type Former = Text<16384>;

/// The program's own value translated into full UUIDs. As the driver reads such a list: it ends at the first entry that
/// means no device. Where it counts the machine's devices, those that are not the job's are left out.
fn translate(names: &Names, own: Option<&[u8]>) -> List {
    let mut list = List::new();
    match own {
        None => {
            for index in 0..names.count() {
                names.write(index, &mut list);
            }
        }
        Some(own) => {
            for entry in own.split(|byte| *byte == b',') {
                let entry = entry.trim_ascii();
                let index = match text::parse_number(entry) {
                    Some(number) => names.numbered(number),
                    None if is_name(entry) => names.named(entry),
                    None => None,
                };
                if index.is_some_and(|index| names.write(index, &mut list)) {
                    continue;
                }
                let may_be_anothers = text::parse_number(entry).is_some() || is_name(entry);
                if !(names.are_of_machine() && may_be_anothers) {
                    break;
                }
            }
        }
    }
    if list.is_empty() && names.are_of_machine() {
        // None of the machine's is the job's: it may have been meant of the job's all the same, as in a container.
        return translate(&names.in_job(), own);
    }
    if list.is_empty() {
        // The documented way to say "none".
        list.push("-1");
    }
    list
}

/// Is this the full or abbreviated name of a device?
fn is_name(entry: &[u8]) -> bool {
    entry.starts_with(b"GPU-") || entry.starts_with(b"MIG-")
}

/// Runs the driver's `cuInit` with the job's devices in its view.
pub fn init_masked(state: &State, real: &Library, init: impl FnOnce() -> CuResult) -> CuResult {
    let Some(names) = Names::of_job(state) else {
        return init();
    };
    let environment = Environment::of(real);
    // SAFETY: `getenv` answers null or a string; it is copied before anything is changed.
    let own = unsafe { (environment.getenv)(VARIABLE.as_ptr()) };
    let mut former = Former::new();
    // SAFETY: as above.
    former.push(unsafe { bytes_of(own) });
    let is_set = !own.is_null();
    let list = translate(&names, is_set.then_some(former.as_bytes()));
    note::write(
        state,
        note::line().push("devices shown to the driver: ").push(list.as_bytes()),
    );
    // SAFETY: C strings; libc guards its own list, and the design accepts a program that reads it meanwhile.
    unsafe { (environment.setenv)(VARIABLE.as_ptr(), list.as_c_str().as_ptr(), 1) };
    let result = init();
    // SAFETY: as above.
    unsafe {
        if is_set {
            // A value too long for the copy is put back from where it was: libc does not reuse it.
            let value = if former.is_complete() {
                former.as_c_str().as_ptr()
            } else {
                own.cast_const()
            };
            (environment.setenv)(VARIABLE.as_ptr(), value, 1);
        } else {
            (environment.unsetenv)(VARIABLE.as_ptr());
        }
    }
    result
}

type Getenv = unsafe extern "C" fn(*const c_char) -> *mut c_char;
type Setenv = unsafe extern "C" fn(*const c_char, *const c_char, c_int) -> c_int;
type Unsetenv = unsafe extern "C" fn(*const c_char) -> c_int;

/// The environment that a driver reads: a `dlmopen` namespace has a libc, and so an environment, of its own.
struct Environment {
    getenv: Getenv,
    setenv: Setenv,
    unsetenv: Unsetenv,
}

impl Environment {
    fn of(real: &Library) -> Self {
        let own = Self {
            getenv: libc::getenv,
            setenv: libc::setenv,
            unsetenv: libc::unsetenv,
        };
        if core::ptr::eq(real, &real::DRIVER) || real.handle().is_null() {
            return own;
        }
        let find = |name| linker::real_dlsym(real.handle(), name);
        let (getenv, setenv, unsetenv) = (find(c"getenv"), find(c"setenv"), find(c"unsetenv"));
        if getenv.is_null() || setenv.is_null() || unsetenv.is_null() {
            weak::forget_dlerror();
            return own;
        }
        // SAFETY: functions of those names have those types in every libc.
        unsafe {
            Self {
                getenv: core::mem::transmute::<*mut c_void, Getenv>(getenv),
                setenv: core::mem::transmute::<*mut c_void, Setenv>(setenv),
                unsetenv: core::mem::transmute::<*mut c_void, Unsetenv>(unsetenv),
            }
        }
    }
}

/// What the driver shows of the job's devices.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Nothing speaks against it.
    Ours,
    /// Devices of others, and none of the job's.
    OthersOnly,
}

/// Learns which device each ordinal is, and tells the broker. For after the driver initialised, and after a move.
pub fn learn(state: &State, real: &Library) -> Shown {
    // Before anything is asked: what changes from here on is learnt by the next call.
    let placement = moved::placement(state);
    let mut count: c_int = 0;
    if !call!(real, cuDeviceGetCount(&raw mut count)).is_success() {
        return Shown::Ours;
    }
    let count = usize::try_from(count).unwrap_or(0).min(MAX_ORDINALS);
    let mut message = Devices {
        header: Devices::header(0),
        count: count.min(MAX_DEVICES) as u32,
        reserved: 0,
        uuids: [[0; 16]; MAX_DEVICES],
        pci: [[0; PCI_BYTES]; MAX_DEVICES],
    };
    let mut foreign = 0;
    for ordinal in 0..count {
        let mut device: c_int = 0;
        let is_there = call!(real, cuDeviceGet(&raw mut device, ordinal as c_int)).is_success();
        let uuid = is_there.then(|| uuid_of(state, real, device)).flatten();
        if let (Some(place), Some(pci)) = (message.uuids.get_mut(ordinal), message.pci.get_mut(ordinal)) {
            *place = uuid.unwrap_or_default();
            let _ = call!(
                real,
                cuDeviceGetPCIBusId(pci.as_mut_ptr().cast(), PCI_BYTES as c_int, device)
            );
        }
        foreign += usize::from(place_ordinal(state, ordinal, uuid) == FOREIGN);
    }
    let attachment = attachment::of(state);
    let ordinals = &attachment.ordinals;
    ordinals.placement_known.store(placement, Ordering::Relaxed);
    ordinals.known.store(count as u32 + 1, Ordering::Release);
    if attachment.job().is_some() {
        connection::of(state).send_devices(message);
    }
    names::tell_foreign(state);
    if count > 0 && foreign == count {
        Shown::OthersOnly
    } else {
        Shown::Ours
    }
}

/// Records one ordinal's device and answers its slot.
fn place_ordinal(state: &State, ordinal: usize, uuid: Option<[u8; 16]>) -> i32 {
    let is_nameless = uuid.is_none();
    let uuid = uuid.unwrap_or_default();
    let ordinals = &attachment::of(state).ordinals;
    ordinals.set_uuid(ordinal, &uuid);
    let settings = state.settings();
    let slot = match attachment::of(state).job() {
        Some(job) => job.slot_of(&uuid),
        None if settings.device_count > 0 => settings
            .devices
            .iter()
            .take(settings.device_count)
            .position(|device| *device == uuid),
        // Nobody said which devices are the job's: the limit holds on each.
        None => Some(ordinal).filter(|ordinal| *ordinal < MAX_DEVICES),
    };
    let other = if is_nameless { NAMELESS } else { FOREIGN };
    let slot = slot.map_or(other, |slot| slot as i32);
    if let Some(place) = ordinals.slots.get(ordinal) {
        place.store(slot, Ordering::Relaxed);
    }
    slot
}

/// The name of a device. `None`: the driver does not tell it, or tells a card's where the job has instances.
fn uuid_of(state: &State, real: &Library, device: c_int) -> Option<[u8; 16]> {
    let mut uuid = CuUuid::default();
    // The later function answers a MIG instance's own name, the earlier one its card's.
    let mut result = call!(real, cuDeviceGetUuid_v2(&raw mut uuid, device));
    if !result.is_success() {
        if Names::of_job(state).is_some_and(|names| names.has_mig()) {
            return None;
        }
        result = call!(real, cuDeviceGetUuid(&raw mut uuid, device));
    }
    result.is_success().then(|| uuid.bytes.map(|byte| byte as u8))
}

/// Is this a device that the driver shows and that is not the job's?
pub fn is_foreign(state: &State, real: &Library, device: c_int) -> bool {
    // Sharing that is off is off for this too.
    slot_or_why(state, real, device) == Some(FOREIGN) && state.phase() != Phase::Off
}

/// The slot of a device as the program sees it. `None`: not shared, or not a device.
pub fn slot_of_device(state: &State, real: &Library, device: c_int) -> Option<usize> {
    usize::try_from(slot_or_why(state, real, device)?).ok()
}

/// What [`Ordinals::slots`](attachment::ordinals::Ordinals::slots) says of a device. `None`: there is no such device.
fn slot_or_why(state: &State, real: &Library, device: c_int) -> Option<i32> {
    let ordinals = &attachment::of(state).ordinals;
    let has_moved = ordinals.placement_known.load(Ordering::Relaxed) != moved::placement(state);
    if has_moved || ordinals.known.load(Ordering::Acquire) == 0 {
        learn(state, real);
    }
    let known = ordinals.known.load(Ordering::Acquire) as usize;
    let ordinal = usize::try_from(device).ok()?;
    if ordinal + 1 >= known.max(1) {
        return None;
    }
    Some(ordinals.slots.get(ordinal)?.load(Ordering::Relaxed))
}
