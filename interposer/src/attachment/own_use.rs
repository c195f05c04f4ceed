// SPDX-License-Identifier: Apache-2.0
//! What this process uses and may use, on the shared pages or on the [own ones](super::own_pages).

use core::sync::atomic::Ordering;

use partage_protocol::page::ClientPage;

use crate::attachment::pages::{Attachment, of};
use crate::state::State;

/// Sets G of a slot that no broker has numbered yet.
pub fn set_granted(attachment: &Attachment, slot: usize, granted: u64) {
    let _held = attachment.ledger.hold();
    if let Some(line) = attachment.own.broker.devices.get(slot) {
        line.granted.store(granted, Ordering::SeqCst);
    }
}

/// Lowers G of such a slot to U, and answers it. Under the ledger's lock, so that U cannot rise meanwhile; a charge
/// that is under way has raised it already, or finds the new G.
pub fn lower_granted(attachment: &Attachment, slot: usize) -> u64 {
    let _held = attachment.ledger.hold();
    let own = &attachment.own;
    let granted = own.granted(slot).min(own.used(slot));
    if let Some(line) = own.broker.devices.get(slot) {
        line.granted.store(granted, Ordering::SeqCst);
    }
    granted
}

/// Bytes this process uses in a slot, and the job's limit there.
pub fn used_and_limit(state: &State, slot: usize) -> (u64, u64) {
    let attachment = of(state);
    match (attachment.client_page(), attachment.broker_page()) {
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
            attachment.own.used(slot),
            state.settings().memory_limit.unwrap_or(u64::MAX),
        ),
    }
}

/// The measured overhead of this process in a slot, in bytes.
pub fn overhead(attachment: &Attachment, slot: usize) -> u64 {
    let line = attachment.broker_page().and_then(|page| page.devices.get(slot));
    line.map_or(0, |line| line.overhead.load(Ordering::Relaxed))
}

/// The most that this process may hold in a slot, overhead included; `u64::MAX` where the job's limit alone holds.
pub fn process_limit(attachment: &Attachment, slot: usize) -> u64 {
    let line = attachment.broker_page().and_then(|page| page.devices.get(slot));
    match line.map_or(0, |line| line.process_limit.load(Ordering::Relaxed)) {
        0 => u64::MAX,
        limit => limit,
    }
}

/// What this process holds in a slot, overhead included.
pub fn own(state: &State, slot: usize) -> u64 {
    used_and_limit(state, slot).0.saturating_add(overhead(of(state), slot))
}

/// A late attach: what was charged on the own pages goes to the shared ones, slot by slot. Precondition: the slots have
/// their new numbers, the shared pages are not published yet, and the ledger's lock is held until they are.
pub fn move_in(attachment: &Attachment, shared: &ClientPage) {
    for (slot, own) in attachment.own.client.devices.iter().enumerate() {
        let Some(line) = attachment.moved_slot(slot).and_then(|to| shared.devices.get(to)) else {
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
        _ => of(state).ordinals.uuid(slot),
    }
}
