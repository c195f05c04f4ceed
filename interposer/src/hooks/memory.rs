// SPDX-License-Identifier: Apache-2.0
//! Linear device memory: reserve, call, record or roll back; and the job's limit where the program asks for sizes.
//!
//! The device of an allocation is the current context's; without one, or with arguments that the driver refuses, the
//! driver's own answer is the program's. A free never fails because of us: an address we do not know, null included,
//! goes straight to the driver.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use core::ffi::c_uint;

use partage_abi::types::{CuDevice, CuDevicePtr, CuDevicePtrV1, CuResult};
use partage_protocol::hold::ties::MANAGED_MEMORY;

use crate::attachment::ties::made;
use crate::guest::errno;
use crate::memory::account;
use crate::memory::allocations::Key;
use crate::memory::pools;
use crate::memory::reservation::Begun;
use crate::memory::sharing;
use crate::memory::tracked::{self, Freeing, Pending, Wanted};
use crate::real::Library;
use crate::real::call;
use crate::state::State;

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

/// What every `charge` row does before the driver's call: charges `bytes` to the current context's device.
pub fn begin_charge(real: &Library, receiver: impl Receiver, bytes: u64) -> Begun<Pending> {
    begin(real, receiver, Wanted::device(bytes))
}

fn begin(real: &Library, receiver: impl Receiver, wanted: Wanted) -> Begun<Pending> {
    if receiver.points_nowhere() || wanted.bytes == 0 {
        return Begun::NotCharged;
    }
    tracked::start(real, wanted)
}

/// And after it: what the driver made is at `receiver`.
pub fn end_charge(start: Begun<Pending>, receiver: impl Receiver, result: CuResult) -> CuResult {
    // SAFETY: the driver succeeded with this pointer.
    let made = start
        .is_made(result)
        .then(|| Key::address(unsafe { receiver.address() }));
    start.end(made);
    result
}

/// What every `refund` row does before the driver's call.
#[inline(never)] // one body for all of them
pub fn begin_refund(address: u64) -> Refund {
    if pools::are_any() {
        Refund::WithPools(pools::Freeing::at_once(address))
    } else {
        Refund::Plain(Freeing::begin(Key::address(address)))
    }
}

/// A free under way.
pub enum Refund {
    /// In a process that has no pools.
    Plain(Option<Freeing>),
    /// In one that has.
    WithPools(Option<pools::Freeing>),
}

impl Refund {
    /// The driver was called.
    #[inline(never)] // as `begin_refund`
    pub fn end(self, result: CuResult) -> CuResult {
        match self {
            Self::Plain(Some(freeing)) => freeing.end(result.is_success()),
            Self::WithPools(Some(freeing)) => freeing.end(result.is_success()),
            Self::Plain(None) | Self::WithPools(None) => {}
        }
        result
    }
}

pub fn cuMemAllocManaged(real: &Library, dptr: *mut CuDevicePtr, bytes: usize, flags: c_uint) -> CuResult {
    let wanted = Wanted {
        bytes: bytes as u64,
        is_managed: true,
    };
    let start = begin(real, dptr, wanted);
    if let Some(denied) = start.denial() {
        return denied;
    }
    let result = made(call!(real, cuMemAllocManaged(dptr, bytes, flags)), MANAGED_MEMORY);
    end_charge(start, dptr, result)
}

pub fn cuMemAllocPitch(
    real: &Library,
    dptr: *mut CuDevicePtrV1,
    pitch: *mut c_uint,
    width_in_bytes: c_uint,
    height: c_uint,
    element_size_bytes: c_uint,
) -> CuResult {
    let has_room = !pitch.is_null() && !dptr.points_nowhere();
    let start = begin_pitched(real, has_room, width_in_bytes.into(), height.into());
    if let Some(denied) = start.denial() {
        return denied;
    }
    let result = call!(
        real,
        cuMemAllocPitch(dptr, pitch, width_in_bytes, height, element_size_bytes)
    );
    if !start.is_made(result) {
        start.end(None);
        return result;
    }
    // SAFETY: the driver succeeded with these pointers.
    let (address, pitch) = unsafe { (dptr.address(), u64::from(pitch.read())) };
    match start.corrected(Key::address(address), pitch.saturating_mul(height.into())) {
        Ok(()) => result,
        Err(start) => {
            let freed = call!(real, cuMemFree(address as CuDevicePtrV1));
            undone(start, address, freed)
        }
    }
}

pub fn cuMemAllocPitch_v2(
    real: &Library,
    dptr: *mut CuDevicePtr,
    pitch: *mut usize,
    width_in_bytes: usize,
    height: usize,
    element_size_bytes: c_uint,
) -> CuResult {
    let has_room = !pitch.is_null() && !dptr.points_nowhere();
    let start = begin_pitched(real, has_room, width_in_bytes as u64, height as u64);
    if let Some(denied) = start.denial() {
        return denied;
    }
    let result = call!(
        real,
        cuMemAllocPitch_v2(dptr, pitch, width_in_bytes, height, element_size_bytes)
    );
    if !start.is_made(result) {
        start.end(None);
        return result;
    }
    // SAFETY: the driver succeeded with these pointers.
    let (address, pitch) = unsafe { (dptr.address(), pitch.read() as u64) };
    match start.corrected(Key::address(address), pitch.saturating_mul(height as u64)) {
        Ok(()) => result,
        Err(start) => {
            let freed = call!(real, cuMemFree_v2(address));
            undone(start, address, freed)
        }
    }
}

/// The row pitch that drivers have used so far; only an estimate, the driver's answer is what is charged.
const USUAL_PITCH: u64 = 512;

/// Reserves an estimate, which is corrected by the pitch that the driver chose. `has_room`: for the driver's answers.
fn begin_pitched(real: &Library, has_room: bool, width: u64, height: u64) -> Begun<Pending> {
    let estimate = width
        .checked_next_multiple_of(USUAL_PITCH)
        .and_then(|row| row.checked_mul(height));
    match estimate.filter(|bytes| *bytes != 0 && has_room) {
        Some(bytes) => tracked::start(real, Wanted::device(bytes)),
        // Nothing, no room for the answer, or more than 2^64 bytes: the driver refuses it in its own words.
        None => Begun::NotCharged,
    }
}

/// Memory that turned out to exceed the limit went back to the driver, unless that refused.
fn undone(start: Begun<Pending>, address: u64, freed: CuResult) -> CuResult {
    start.end((!freed.is_success()).then(|| Key::address(address)));
    CuResult::OUT_OF_MEMORY
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
    sharing::slot_of(real, device)
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
        && let Some((state, slot)) = sharing::slot_of(real, dev)
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
        && let Some((state, slot)) = sharing::slot_of(real, dev)
    {
        // SAFETY: the driver succeeded with this pointer.
        let total = unsafe { bytes.read() };
        let limit = account::limit(state, slot).unwrap_or(u64::MAX);
        // SAFETY: as above.
        unsafe { bytes.write(limit.min(total as u64) as usize) };
    }
    result
}
