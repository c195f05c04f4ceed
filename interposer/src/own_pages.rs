// SPDX-License-Identifier: Apache-2.0
//! The pages of this process's own that stand for the shared ones while no broker has answered, and what either say of
//! this process's use.
//!
//! Every word of the own pages is used under `State::tables`, because a late attach may carry it over to a shared page
//! at any moment ([`move_in`]); from then on its place is there.

use core::sync::atomic::Ordering;

use partage_protocol::page::ClientPage;

use crate::state::State;

/// What this process uses on a slot that no broker has numbered yet.
pub fn own_use(state: &State, slot: usize) -> u64 {
    let line = state.own_client_page.devices.get(slot);
    line.map_or(0, |line| line.used.load(Ordering::Relaxed))
}

/// G of such a slot.
pub fn own_grant(state: &State, slot: usize) -> u64 {
    let line = state.own_broker_page.devices.get(slot);
    line.map_or(0, |line| line.granted.load(Ordering::SeqCst))
}

/// Sets G of such a slot.
pub fn set_own_grant(state: &State, slot: usize, granted: u64) {
    let _held = state.tables.hold();
    if let Some(line) = state.own_broker_page.devices.get(slot) {
        line.granted.store(granted, Ordering::SeqCst);
    }
}

/// Lowers G of such a slot to U, and answers it. Under `State::tables`, so that U cannot rise meanwhile; a charge that
/// is under way has raised it already, or finds the new G.
pub fn lower_own_grant(state: &State, slot: usize) -> u64 {
    let _held = state.tables.hold();
    let granted = own_grant(state, slot).min(own_use(state, slot));
    if let Some(line) = state.own_broker_page.devices.get(slot) {
        line.granted.store(granted, Ordering::SeqCst);
    }
    granted
}

/// Bytes this process uses in a slot, and the job's limit there.
pub fn used_and_limit(state: &State, slot: usize) -> (u64, u64) {
    match (state.client_page(), state.broker_page()) {
        (Some(client), Some(broker)) => (
            client
                .devices
                .get(slot)
                .map_or(0, |line| line.used.load(Ordering::Relaxed)),
            broker
                .devices
                .get(slot)
                .map_or(u64::MAX, |line| line.limit.load(Ordering::Relaxed)),
        ),
        _ => (
            state
                .own_client_page
                .devices
                .get(slot)
                .map_or(0, |line| line.used.load(Ordering::Relaxed)),
            state.settings().memory_limit.unwrap_or(u64::MAX),
        ),
    }
}

/// The measured overhead of this process in a slot, in bytes.
pub fn overhead(state: &State, slot: usize) -> u64 {
    let line = state.broker_page().and_then(|page| page.devices.get(slot));
    line.map_or(0, |line| line.overhead.load(Ordering::Relaxed))
}

/// The most that this process may hold in a slot, overhead included; `u64::MAX` where the job's limit alone holds.
pub fn process_limit(state: &State, slot: usize) -> u64 {
    let line = state.broker_page().and_then(|page| page.devices.get(slot));
    match line.map_or(0, |line| line.process_limit.load(Ordering::Relaxed)) {
        0 => u64::MAX,
        limit => limit,
    }
}

/// What this process holds in a slot, overhead included.
pub fn own(state: &State, slot: usize) -> u64 {
    used_and_limit(state, slot).0.saturating_add(overhead(state, slot))
}

/// A late attach: what was charged on the own pages goes to the shared ones, slot by slot. Precondition: the slots have
/// their new numbers, the shared pages are not published yet, and `State::tables` is held until they are.
pub fn move_in(state: &State, shared: &ClientPage) {
    for (slot, own) in state.own_client_page.devices.iter().enumerate() {
        let Some(line) = state.attachment.moved_slot(slot).and_then(|to| shared.devices.get(to)) else {
            continue;
        };
        line.used.fetch_add(own.used.load(Ordering::Relaxed), Ordering::SeqCst);
        line.allocations
            .fetch_add(own.allocations.load(Ordering::Relaxed), Ordering::Relaxed);
        line.managed
            .fetch_add(own.managed.load(Ordering::Relaxed), Ordering::Relaxed);
        // Both, so that what is under way now ends on the shared page and the two meet again.
        line.started
            .fetch_add(own.started.load(Ordering::SeqCst), Ordering::SeqCst);
        line.finished
            .fetch_add(own.finished.load(Ordering::SeqCst), Ordering::SeqCst);
        line.denied_limit
            .fetch_add(own.denied_limit.load(Ordering::Relaxed), Ordering::Relaxed);
        line.peak.fetch_max(own.peak.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The device that a standalone slot stands for.
pub fn standalone_uuid(state: &State, slot: usize) -> [u8; 16] {
    match state.settings().devices.get(slot) {
        Some(uuid) if slot < state.settings().device_count => *uuid,
        _ => state.ordinal_uuid(slot),
    }
}
