// SPDX-License-Identifier: Apache-2.0
//! Virtual memory management: physical memory is charged when it is created and refunded when no handle and no mapping
//! is left (the record machine is [`Physicals`]). Address ranges cost nothing.
//!
//! Charged is the device that the properties name, whichever context is current, if any; memory on the host side is
//! nobody's device memory. A handle that came from another process costs nothing here: its exporter is charged.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use core::ffi::{c_int, c_ulonglong, c_void};

use partage_abi::types::{CuDevice, CuDevicePtr, CuMemAllocationProp, CuMemGenericAllocationHandle, CuResult};
use partage_abi::values::{CU_MEM_ALLOC_GRANULARITY_MINIMUM, CU_MEM_LOCATION_TYPE_DEVICE};
use partage_protocol::hold::ties::HANDLE_IMPORTED;
use partage_records::physical::{Physicals, Step};

use crate::attachment;
use crate::attachment::ties::made;
use crate::memory::account;
use crate::memory::allocations::SystemPages;
use crate::memory::charge::Charge;
use crate::memory::recovery;
use crate::memory::reservation::Begun;
use crate::memory::sharing;
use crate::memory::tables;
use crate::memory::tracked::{self, Wanted};
use crate::memory::words::Operation;
use crate::real::Library;
use crate::real::call;
use crate::state::{self, Phase, State};

/// Runs `act` on the records.
fn with<R>(state: &State, act: impl FnOnce(&mut Physicals<Charge, SystemPages>) -> R) -> R {
    act(&mut tables::hold(state).physicals)
}

/// The state of a process that may have records. A process that created nothing under our eyes has none.
fn recording() -> Option<&'static State> {
    state::get().filter(|state| state.phase() != Phase::Fresh)
}

fn refund(state: &State, gone: Option<Charge>) {
    if let Some(charge) = gone {
        account::refund(state, charge);
    }
}

/// The device that properties name. `None`: another place, or no properties.
fn device_of(prop: *const CuMemAllocationProp) -> Option<CuDevice> {
    if prop.is_null() {
        return None;
    }
    // SAFETY: not null, and by the contract of the entry point it leads to properties.
    let location = unsafe { prop.read_unaligned() }.location;
    (location.kind == CU_MEM_LOCATION_TYPE_DEVICE).then_some(location.id)
}

/// Would the driver refuse this size before it looks for memory?
fn is_refused_anyway(real: &Library, size: usize, prop: *const CuMemAllocationProp) -> bool {
    let mut granularity: usize = 0;
    let result = call!(
        real,
        cuMemGetAllocationGranularity(&raw mut granularity, prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM)
    );
    !result.is_success() || size.checked_rem(granularity).is_some_and(|rest| rest != 0)
}

pub fn cuMemCreate(
    real: &Library,
    handle: *mut CuMemGenericAllocationHandle,
    size: usize,
    prop: *const CuMemAllocationProp,
    flags: c_ulonglong,
) -> CuResult {
    let create = || call!(real, cuMemCreate(handle, size, prop, flags));
    let device = device_of(prop).filter(|_| !handle.is_null() && size != 0);
    if device.is_some_and(|device| sharing::is_foreign(real, device)) {
        return CuResult::INVALID_DEVICE;
    }
    let Some((state, slot)) = device.and_then(|device| sharing::slot_of(real, device)) else {
        return create();
    };
    let reservation = match tracked::reserve(state, slot, Wanted::device(size as u64)) {
        Begun::Granted(reservation) => reservation,
        Begun::NotCharged => return create(),
        Begun::Denied(denied) => {
            let code = denied.tell();
            return if is_refused_anyway(real, size, prop) {
                CuResult::INVALID_VALUE
            } else {
                code
            };
        }
    };
    if !with(state, Physicals::promise) {
        // The host has not one page left: the driver could not have gone on either.
        reservation.give_back();
        return CuResult::OUT_OF_MEMORY;
    }
    let result = create();
    if result.is_success() {
        // SAFETY: the driver succeeded with this pointer.
        let made = unsafe { handle.read() };
        let gone = with(state, |physicals| physicals.created(made, *reservation.charge()));
        refund(state, gone);
        let charge = *reservation.charge();
        reservation.keep();
        recovery::granted(state, &charge);
    } else {
        with(state, Physicals::break_promise);
        reservation.give_back();
    }
    result
}

pub fn cuMemRelease(real: &Library, handle: CuMemGenericAllocationHandle) -> CuResult {
    let release = || call!(real, cuMemRelease(handle));
    let Some(state) = recording() else { return release() };
    let begun = with(state, |physicals| {
        let charge = physicals.cost(handle)?;
        Some((physicals.begin_release(handle)?, charge))
    });
    let Some((released, charge)) = begun else {
        return release();
    };
    let operation = Operation::begin_again(attachment::of(state), &charge);
    let result = release();
    let gone = with(state, |physicals| physicals.end_release(released, result.is_success()));
    refund(state, gone);
    drop(operation);
    result
}

pub fn cuMemRetainAllocationHandle(
    real: &Library,
    handle: *mut CuMemGenericAllocationHandle,
    addr: *mut c_void,
) -> CuResult {
    let result = call!(real, cuMemRetainAllocationHandle(handle, addr));
    if result.is_success()
        && !handle.is_null()
        && let Some(state) = recording()
    {
        // SAFETY: the driver succeeded with this pointer.
        let given = unsafe { handle.read() };
        with(state, |physicals| physicals.retained(given, addr as u64));
    }
    result
}

pub fn cuMemImportFromShareableHandle(
    real: &Library,
    handle: *mut CuMemGenericAllocationHandle,
    os_handle: *mut c_void,
    sh_handle_type: c_int,
) -> CuResult {
    let result = made(
        call!(real, cuMemImportFromShareableHandle(handle, os_handle, sh_handle_type)),
        HANDLE_IMPORTED,
    );
    if result.is_success()
        && !handle.is_null()
        && let Some(state) = recording()
    {
        // SAFETY: the driver succeeded with this pointer.
        let given = unsafe { handle.read() };
        with(state, |physicals| physicals.imported(given));
    }
    result
}

pub fn cuMemMap(
    real: &Library,
    ptr: CuDevicePtr,
    size: usize,
    offset: usize,
    handle: CuMemGenericAllocationHandle,
    flags: c_ulonglong,
) -> CuResult {
    let map = || call!(real, cuMemMap(ptr, size, offset, handle, flags));
    let Some(state) = recording() else { return map() };
    let (mapped, charge) = with(state, |physicals| (physicals.begin_map(handle), physicals.cost(handle)));
    let operation = charge.map(|charge| Operation::begin_again(attachment::of(state), &charge));
    let result = map();
    let gone = with(state, |physicals| {
        physicals.end_map(mapped, ptr, size as u64, result.is_success())
    });
    refund(state, gone);
    drop(operation);
    result
}

pub fn cuMemUnmap(real: &Library, ptr: CuDevicePtr, size: usize) -> CuResult {
    let unmap = || call!(real, cuMemUnmap(ptr, size));
    let Some(state) = recording() else { return unmap() };
    let (mut unmapped, is_ours) = with(state, |physicals| {
        let unmapped = physicals.begin_unmap(ptr, size as u64);
        let is_ours = physicals.concerns_ours(&unmapped);
        (unmapped, is_ours)
    });
    // One range may end mappings of memory on several devices.
    let operations = is_ours.then(|| Operation::begin_everywhere(state));
    let result = unmap();
    loop {
        match with(state, |physicals| {
            physicals.end_unmap(&mut unmapped, result.is_success())
        }) {
            Step::More => {}
            Step::Gone(charge) => account::refund(state, charge),
            Step::Done => break,
        }
    }
    drop(operations);
    result
}
