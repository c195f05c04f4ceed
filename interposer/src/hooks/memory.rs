// SPDX-License-Identifier: Apache-2.0
//! Linear device memory: reserve, call, record or roll back; and the job's limit where the program asks for sizes.
//!
//! The device of an allocation is the current context's; without one, or with arguments that the driver refuses, the
//! driver's own answer is the program's. A free never fails because of us: an address we do not know, null included,
//! goes straight to the driver.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use core::ffi::{c_int, c_uint};

use partage_abi::types::{CuDevice, CuDevicePtr, CuDevicePtrV1, CuResult};

use crate::account;
use crate::devices;
use crate::entry::call;
use crate::errno;
use crate::pools;
use crate::real::Library;
use crate::session;
use crate::state::{self, State};
use crate::tracked::{self, Key, Start, Wanted};

/// Where a driver writes an address, in its old and its new ABI.
pub trait Receiver: Copy {
    /// Points nowhere: the driver will refuse.
    fn points_nowhere(self) -> bool;
    /// The address that the driver wrote.
    ///
    /// # Safety
    /// The driver succeeded with this pointer.
    unsafe fn address(self) -> u64;
}

impl Receiver for *mut CuDevicePtr {
    fn points_nowhere(self) -> bool {
        self.is_null()
    }
    unsafe fn address(self) -> u64 {
        // SAFETY: the caller's contract.
        unsafe { self.read() }
    }
}

impl Receiver for *mut CuDevicePtrV1 {
    fn points_nowhere(self) -> bool {
        self.is_null()
    }
    unsafe fn address(self) -> u64 {
        // SAFETY: the caller's contract.
        u64::from(unsafe { self.read() })
    }
}

/// Body of every `charge` row: `bytes` for the current context's device, the address at `receiver` afterwards.
pub fn charge(real: &Library, receiver: impl Receiver, bytes: u64, allocate: impl FnOnce() -> CuResult) -> CuResult {
    charge_wanted(real, receiver, Wanted::device(bytes), allocate)
}

fn charge_wanted(
    real: &Library,
    receiver: impl Receiver,
    wanted: Wanted,
    allocate: impl FnOnce() -> CuResult,
) -> CuResult {
    if receiver.points_nowhere() || wanted.bytes == 0 {
        return allocate();
    }
    match tracked::start(real, wanted) {
        Start::PassOn => allocate(),
        Start::Denied => CuResult::OUT_OF_MEMORY,
        Start::Pending(pending) => {
            let result = allocate();
            if result.is_success() {
                // SAFETY: the driver succeeded with this pointer.
                pending.commit(Key::address(unsafe { receiver.address() }));
            } else {
                pending.roll_back();
            }
            result
        }
    }
}

/// Body of every `refund` row.
pub fn refund(address: u64, mut free: impl FnMut() -> CuResult) -> CuResult {
    if pools::are_any() {
        return pools::free_at_once(address, &mut free);
    }
    tracked::free(Key::address(address), free)
}

pub fn cuMemAllocManaged(real: &Library, dptr: *mut CuDevicePtr, bytes: usize, flags: c_uint) -> CuResult {
    let wanted = Wanted {
        bytes: bytes as u64,
        is_managed: true,
    };
    charge_wanted(real, dptr, wanted, || {
        call!(real, cuMemAllocManaged(dptr, bytes, flags))
    })
}

pub fn cuMemAllocPitch(
    real: &Library,
    dptr: *mut CuDevicePtrV1,
    pitch: *mut c_uint,
    width_in_bytes: c_uint,
    height: c_uint,
    element_size_bytes: c_uint,
) -> CuResult {
    let allocate = || {
        call!(
            real,
            cuMemAllocPitch(dptr, pitch, width_in_bytes, height, element_size_bytes)
        )
    };
    let free = |address: u64| call!(real, cuMemFree(address as CuDevicePtrV1));
    // SAFETY: read only after the driver succeeded with this pointer.
    let read_pitch = || u64::from(unsafe { pitch.read() });
    let shape = Shape {
        width: width_in_bytes.into(),
        height: height.into(),
        has_pitch: !pitch.is_null(),
    };
    pitched(real, dptr, shape, allocate, read_pitch, free)
}

pub fn cuMemAllocPitch_v2(
    real: &Library,
    dptr: *mut CuDevicePtr,
    pitch: *mut usize,
    width_in_bytes: usize,
    height: usize,
    element_size_bytes: c_uint,
) -> CuResult {
    let allocate = || {
        call!(
            real,
            cuMemAllocPitch_v2(dptr, pitch, width_in_bytes, height, element_size_bytes)
        )
    };
    let free = |address: u64| call!(real, cuMemFree_v2(address));
    // SAFETY: read only after the driver succeeded with this pointer.
    let read_pitch = || unsafe { pitch.read() } as u64;
    let shape = Shape {
        width: width_in_bytes as u64,
        height: height as u64,
        has_pitch: !pitch.is_null(),
    };
    pitched(real, dptr, shape, allocate, read_pitch, free)
}

struct Shape {
    width: u64,
    height: u64,
    has_pitch: bool,
}

/// The row pitch that drivers have used so far; only an estimate, the driver's answer is what is charged.
const USUAL_PITCH: u64 = 512;

/// Reserves an estimate, and corrects it by the pitch that the driver chose. Memory that turns out to exceed the limit
/// goes back to the driver.
fn pitched(
    real: &Library,
    receiver: impl Receiver,
    shape: Shape,
    allocate: impl FnOnce() -> CuResult,
    pitch: impl FnOnce() -> u64,
    free: impl FnOnce(u64) -> CuResult,
) -> CuResult {
    let estimate = shape
        .width
        .checked_next_multiple_of(USUAL_PITCH)
        .and_then(|row| row.checked_mul(shape.height));
    let Some(estimate) = estimate.filter(|bytes| *bytes != 0 && shape.has_pitch && !receiver.points_nowhere()) else {
        // Nothing, no room for the answer, or more than 2^64 bytes: the driver refuses it in its own words.
        return allocate();
    };
    let mut pending = match tracked::start(real, Wanted::device(estimate)) {
        Start::PassOn => return allocate(),
        Start::Denied => return CuResult::OUT_OF_MEMORY,
        Start::Pending(pending) => pending,
    };
    let result = allocate();
    if !result.is_success() {
        pending.roll_back();
        return result;
    }
    // SAFETY: the driver succeeded with this pointer.
    let address = unsafe { receiver.address() };
    let actual = pitch().saturating_mul(shape.height);
    if !pending.correct(actual) {
        if free(address).is_success() {
            pending.roll_back();
        } else {
            pending.commit(Key::address(address));
        }
        return CuResult::OUT_OF_MEMORY;
    }
    pending.commit(Key::address(address));
    result
}

/// What the job sees of a slot: (free, total), from what the driver says of the device.
fn shown(state: &State, slot: usize, free: u64, total: u64) -> (u64, u64) {
    match errno::preserving(|| account::view(state, slot, true)) {
        Some((limit, used)) => {
            let limit = limit.min(total);
            (limit.saturating_sub(used).min(free), limit)
        }
        None => (free, total),
    }
}

/// The slot of the current context's device. `None`: the driver's truth is shown.
fn current_slot(real: &Library) -> Option<(&'static State, usize)> {
    let mut device: CuDevice = 0;
    if !call!(real, cuCtxGetDevice(&raw mut device)).is_success() {
        return None;
    }
    slot_of(real, device)
}

fn slot_of(real: &Library, device: c_int) -> Option<(&'static State, usize)> {
    let state = state::get()?;
    errno::preserving(|| session::ensure(state, false));
    Some((state, devices::slot_of_device(state, real, device)?))
}

/// Rewrites what the driver answered to a `cuMemGetInfo`. `ask` asks it again, for a program that left one of the two
/// out and a driver that let it.
fn rewrite<T: Copy>(
    real: &Library,
    free: *mut T,
    total: *mut T,
    ask: impl FnOnce(*mut T, *mut T) -> CuResult,
    wide: impl Fn(T) -> u64,
    narrow: impl Fn(u64) -> T,
    zero: T,
) {
    let Some((state, slot)) = current_slot(real) else {
        return;
    };
    let (mut now_free, mut now_total) = (zero, zero);
    if !free.is_null() && !total.is_null() {
        // SAFETY: the driver succeeded with these pointers.
        (now_free, now_total) = unsafe { (free.read_unaligned(), total.read_unaligned()) };
    } else if !ask(&raw mut now_free, &raw mut now_total).is_success() {
        return;
    }
    let (show_free, show_total) = shown(state, slot, wide(now_free), wide(now_total));
    // Neither grew, so both still fit.
    if !free.is_null() {
        // SAFETY: as above.
        unsafe { free.write_unaligned(narrow(show_free)) };
    }
    if !total.is_null() {
        // SAFETY: as above.
        unsafe { total.write_unaligned(narrow(show_total)) };
    }
}

pub fn cuMemGetInfo(real: &Library, free: *mut c_uint, total: *mut c_uint) -> CuResult {
    let result = call!(real, cuMemGetInfo(free, total));
    if result.is_success() {
        let ask = |free, total| call!(real, cuMemGetInfo(free, total));
        rewrite(real, free, total, ask, u64::from, |bytes| bytes as c_uint, 0);
    }
    result
}

pub fn cuMemGetInfo_v2(real: &Library, free: *mut usize, total: *mut usize) -> CuResult {
    let result = call!(real, cuMemGetInfo_v2(free, total));
    if result.is_success() {
        let ask = |free, total| call!(real, cuMemGetInfo_v2(free, total));
        rewrite(real, free, total, ask, |bytes| bytes as u64, |bytes| bytes as usize, 0);
    }
    result
}

pub fn cuDeviceTotalMem(real: &Library, bytes: *mut c_uint, dev: CuDevice) -> CuResult {
    let result = call!(real, cuDeviceTotalMem(bytes, dev));
    if result.is_success()
        && !bytes.is_null()
        && let Some((state, slot)) = slot_of(real, dev)
    {
        // SAFETY: the driver succeeded with this pointer.
        let total = unsafe { bytes.read() };
        let limit = account::limit(state, slot).unwrap_or(u64::MAX);
        // SAFETY: as above.
        unsafe { bytes.write(limit.min(total.into()) as c_uint) };
    }
    result
}

pub fn cuDeviceTotalMem_v2(real: &Library, bytes: *mut usize, dev: CuDevice) -> CuResult {
    let result = call!(real, cuDeviceTotalMem_v2(bytes, dev));
    if result.is_success()
        && !bytes.is_null()
        && let Some((state, slot)) = slot_of(real, dev)
    {
        // SAFETY: the driver succeeded with this pointer.
        let total = unsafe { bytes.read() };
        let limit = account::limit(state, slot).unwrap_or(u64::MAX);
        // SAFETY: as above.
        unsafe { bytes.write(limit.min(total as u64) as usize) };
    }
    result
}
