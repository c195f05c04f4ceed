// SPDX-License-Identifier: Apache-2.0
//! `cuInit`: this process attaches, the driver sees the job's devices, our thread starts.

use core::ffi::c_uint;
use core::sync::atomic::Ordering;

use partage_abi::Symbol;
use partage_abi::types::CuResult;

use crate::attachment;
use crate::devices::{self, Shown};
use crate::guest::errno;
use crate::lazy;
use crate::names;
use crate::real::call;
use crate::real::{DRIVER, Library};
use crate::session;
use crate::state::{self, State};
use crate::thread;

/// What every hook that may be a process's first does before a thread of it can wait.
pub(super) fn be_reachable() {
    thread::be_reachable();
}

/// Starts our thread in a process that has become a client outside `cuInit`.
pub(super) fn start_thread(state: &'static State) {
    errno::preserving(|| thread::start(state));
}

// Functions bear the driver's own names, and its documentation is theirs.
#[allow(non_snake_case, missing_docs)]
pub fn cuInit(real: &Library, flags: c_uint) -> CuResult {
    let Some(state) = state::get() else {
        return call!(real, cuInit(flags));
    };
    if attachment::of(state).ordinals.is_masked.load(Ordering::Acquire) {
        // The driver is up; what it sees cannot change any more.
        return call!(real, cuInit(flags));
    }
    if real.look_up(const { names::driver_place(Symbol::cuInit) }).is_none() {
        return CuResult::STUB_LIBRARY;
    }
    if state.settings().is_lazy && lazy::is_blind() {
        return call!(real, cuInit(flags));
    }
    // Two threads that initialise at once: the second waits, as it would for the driver itself.
    let setup = state.setup.hold_after_work();
    errno::preserving(|| {
        be_reachable();
        session::ensure_in_setup(state);
    });
    if attachment::of(state).ordinals.is_masked.load(Ordering::Acquire) {
        drop(setup);
        return call!(real, cuInit(flags));
    }
    if lazy::is_refused(state) {
        return CuResult::OUT_OF_MEMORY;
    }
    let result = devices::init_masked(state, real, || call!(real, cuInit(flags)));
    if result.is_success() {
        if errno::preserving(|| devices::learn(state, real)) == Shown::OthersOnly {
            // As a driver that is shown no device: it did not do what it was told, and the job has none of what it has.
            errno::preserving(|| session::give_up(state));
            return CuResult::NO_DEVICE;
        }
        errno::preserving(|| thread::start(state));
        // A second driver in a namespace of its own masks at its own first call.
        if core::ptr::eq(real, &DRIVER) {
            attachment::of(state).ordinals.is_masked.store(true, Ordering::Release);
        }
    }
    drop(setup);
    result
}
