// SPDX-License-Identifier: Apache-2.0
//! `cuInit`: this process attaches, the driver sees the job's devices, our thread starts.

use core::ffi::c_uint;
use core::sync::atomic::Ordering;

use partage_abi::types::CuResult;

use crate::devices;
use crate::entry::call;
use crate::errno;
use crate::real::{DRIVER, Library};
use crate::session;
use crate::state;
use crate::thread;

// Functions bear the driver's own names, and its documentation is theirs.
#[allow(non_snake_case, missing_docs)]
pub fn cuInit(real: &Library, flags: c_uint) -> CuResult {
    let Some(state) = state::get() else {
        return call!(real, cuInit(flags));
    };
    if state.is_masked.load(Ordering::Acquire) {
        // The driver is up; what it sees cannot change any more.
        return call!(real, cuInit(flags));
    }
    if real.address(partage_abi::Symbol::cuInit as usize, c"cuInit").is_none() {
        return CuResult::STUB_LIBRARY;
    }
    // Two threads that initialise at once: the second waits, as it would for the driver itself.
    let setup = state.setup.hold();
    errno::preserving(|| session::ensure_held(state, false));
    if state.is_masked.load(Ordering::Acquire) {
        drop(setup);
        return call!(real, cuInit(flags));
    }
    let result = devices::init_masked(state, real, || call!(real, cuInit(flags)));
    if result.is_success() {
        errno::preserving(|| {
            devices::learn(state, real);
            thread::start(state);
        });
        // A second driver in a namespace of its own masks at its own first call.
        if core::ptr::eq(real, &DRIVER) {
            state.is_masked.store(true, Ordering::Release);
        }
    }
    drop(setup);
    result
}
