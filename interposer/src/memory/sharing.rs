// SPDX-License-Identifier: Apache-2.0
//! Whose device it is: the job's, which is shared and charged, or not.

use partage_abi::types::CuDevice;

use crate::devices;
use crate::guest::errno;
use crate::real::Library;
use crate::session;
use crate::state::{self, Phase, State};

/// This process's state and the slot of a device as the program numbers it. `None`: not shared.
pub fn slot_of(real: &Library, device: CuDevice) -> Option<(&'static State, usize)> {
    let state = ensured()?;
    Some((state, devices::slot_of_device(state, real, device)?))
}

/// Is this a device that the driver shows and that is not the job's?
#[inline(never)] // one body for all the hooks that call it
pub fn is_foreign(real: &Library, device: CuDevice) -> bool {
    ensured().is_some_and(|state| devices::is_foreign(state, real, device))
}

/// This process's state, once it has tried to attach.
pub fn ensured() -> Option<&'static State> {
    let state = state::get()?;
    if state.phase() == Phase::Fresh {
        // A forked child, or a program whose cuInit we did not see.
        errno::preserving(|| session::ensure(state, false));
    }
    Some(state)
}
