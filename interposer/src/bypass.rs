// SPDX-License-Identifier: Apache-2.0
//! At the end of a process: was the driver used in it, though none of its calls came through us? And of one whose calls
//! did: what was it refused, and has not been told?
//!
//! The broker finds such a process by NVML, within a second or so. One that lived shorter says it itself, here. Only a
//! process that loaded a driver and never showed it to us gets further than a look at the linker's list; the driver is
//! then asked the one question that it answers with NOT_INITIALIZED where it was not used.

use core::ffi::c_int;

use partage_abi::types::CuResult;

use crate::explain;
use crate::guest::elf::{Object, objects};
use crate::guest::sys;
use crate::note;
use crate::real::{DRIVER, SECOND_DRIVER};
use crate::state;

/// What the linker calls when the process exits.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

extern "C" fn at_exit() {
    if DRIVER.is_adopted() || SECOND_DRIVER.is_adopted() {
        if let Some(state) = state::get() {
            explain::at_exit(state);
        }
    } else if was_driver_used() {
        say();
    }
}

fn was_driver_used() -> bool {
    let mut count_of = None;
    let mut look = |object: &Object| {
        if object.soname().starts_with(b"libcuda.so") {
            count_of = object.function(c"cuDeviceGetCount");
        }
        count_of.is_some()
    };
    objects::each_object(|_, object| look(object));
    objects::each_object_of_namespaces(&mut look);
    let Some(count_of) = count_of else { return false };
    let mut count: c_int = 0;
    type GetCount = unsafe extern "C" fn(*mut c_int) -> CuResult;
    // SAFETY: the driver's function of that name, which may be called at any time, after its own end too.
    let result = unsafe { core::mem::transmute::<*const (), GetCount>(count_of)(&raw mut count) };
    result != CuResult::NOT_INITIALIZED
}

#[cold]
fn say() {
    let Some(state) = state::get() else { return };
    if !state.settings().expects_broker() && !state.settings().is_system_dir {
        return;
    }
    let mut line = note::Line::new();
    line.push("partage: no limit held for process ")
        .push_number(u64::from(sys::pid()))
        .push(
            ": it used the GPU past the library, from a constructor of a library that was opened with RTLD_DEEPBIND, ",
        )
        .push("from a dlmopen namespace, or by looking functions up itself\n");
    note::warn(state, &mut line);
}
