// SPDX-License-Identifier: Apache-2.0
//! NVML's calls, which are no use of the device: they pass a closed hold, are not inside, and nobody counts them as
//! waiting. They stand while the process is saved ([`PARKED`](partage_protocol::hold::PARKED)): it must have no device
//! open then, and write to no page.

use core::sync::atomic::{Ordering, fence};

use partage_protocol::page::ClientFile;

use super::outsiders;
use super::{Held, Hold};
use crate::guard;
use crate::guest::errno;
use crate::guest::sys;
use crate::state::State;

/// How long a process that is to park waits for its own threads in NVML, and between two looks.
const NVML_PATIENCE_NS: u64 = 5_000_000_000;
const NVML_PAUSE_NS: u64 = 1_000_000;

/// A hook of NVML begins, which stands at `here`. One inside another hook goes straight to the library.
#[inline(never)]
pub fn begin(here: usize) -> Held {
    if !guard::enter_at(here) {
        return Held::NESTED;
    }
    errno::preserving(|| {
        if let Some(hold) = Hold::of_process() {
            hold.pass_in_nvml();
        }
    });
    Held::OUTERMOST
}

/// The hook ends.
#[inline(never)]
pub fn end(held: Held) {
    if held.is_outermost() {
        errno::preserving(|| {
            if let Some(hold) = Hold::of_process() {
                hold.leave();
            }
        });
        guard::leave();
    }
}

/// This process has become a client inside the calling hook of NVML.
#[cold]
pub fn arrive() {
    if guard::is_inside()
        && let Some(hold) = Hold::of_process()
    {
        hold.pass_in_nvml();
    }
}

/// Waits until no thread is in NVML. Precondition: the hold is closed for NVML's calls. `false`: one stays too long.
pub fn wait_for_none(state: &State, file: &ClientFile) -> bool {
    // Against the fence in `hold::enter_nvml`: whoever does not show here sees the word.
    fence(Ordering::SeqCst);
    let until = sys::now_ns().saturating_add(NVML_PATIENCE_NS);
    while file.time.places().any(|place| {
        let thread = place.thread.load(Ordering::Acquire);
        thread != 0 && place.is_in_nvml() && !outsiders::is_outside(thread, place)
    }) {
        if sys::now_ns() >= until || !outsiders::is_held(state) {
            return false;
        }
        sys::sleep_ns(NVML_PAUSE_NS);
    }
    true
}
