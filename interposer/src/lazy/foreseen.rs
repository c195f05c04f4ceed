// SPDX-License-Identifier: Apache-2.0
//! What NVML shows a process of `run --lazy` before it uses a GPU: the devices that its job has or would have.
//!
//! NVML is no use of the GPU: nothing is admitted, and nobody waits. The broker is asked with the request that the
//! process would make, as a dry run; it says where the job would be placed now, or is.

use core::sync::atomic::Ordering;

use partage_protocol::page::GrantLine;

use super::{Heard, answer, hear, open, say};
use crate::guest::sys;
use crate::settings;
use crate::state::State;

/// How long a broker that may be started may take.
const FORESEEN_PATIENCE_NS: u64 = 3_000_000_000;
/// How long what a broker said holds.
const VALID_NS: u64 = 1_000_000_000;

/// In the request, and what stands there instead.
const RUN: &[u8] = br#""dry_run":false"#;
const DRY_RUN: &[u8] = br#""dry_run":true"#;

/// The devices that this process's job would have. `None`: nobody says.
pub fn devices(state: &'static State) -> Option<&'static [GrantLine]> {
    let foreseen = answer::of(state);
    let is_valid = || {
        let asked = foreseen.asked_ns.load(Ordering::Acquire);
        asked != 0 && sys::now_ns().saturating_sub(asked) < VALID_NS
    };
    if !is_valid() {
        // What was said before will do while another thread asks.
        let held = match foreseen.count.load(Ordering::Acquire) {
            0 => Some(foreseen.asking.hold_after_work()),
            _ => foreseen.asking.try_hold(),
        };
        if held.is_some() && !is_valid() {
            ask(state);
            foreseen.asked_ns.store(sys::now_ns().max(1), Ordering::Release);
        }
    }
    let count = foreseen.count.load(Ordering::Acquire).checked_sub(1)?;
    foreseen.lines.get(..count as usize)
}

/// Precondition: `asking` is held.
fn ask(state: &State) {
    let document = settings::lazy_request();
    let Some(at) = (0..document.len()).find(|at| document.get(*at..).is_some_and(|rest| rest.starts_with(RUN))) else {
        return;
    };
    // The broker of a managed host is not waited for, and not started.
    let patience = if state.settings().broker.is_empty() {
        0
    } else {
        FORESEEN_PATIENCE_NS
    };
    let deadline = sys::now_ns().saturating_add(patience);
    let Ok(mut socket) = open(state, deadline) else { return };
    let (before, rest) = document.split_at_checked(at).unwrap_or((document, &[]));
    let behind = rest.get(RUN.len()..).unwrap_or(&[]);
    if say(&socket, &[before, DRY_RUN, behind]).is_ok() {
        hear(&socket, sys::now_ns().saturating_add(FORESEEN_PATIENCE_NS), |text| {
            if text.starts_with(br#"{"reply":"foreseen""#) {
                answer::of(state).take(text);
            } else if text.starts_with(br#"{"reply":"error""#) {
                // Its first use of a GPU would be refused.
                answer::of(state).count.store(1, Ordering::Release);
            }
            Heard::Enough
        });
    }
    socket.close();
}
