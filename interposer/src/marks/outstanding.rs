// SPDX-License-Identifier: Apache-2.0
//! What was given to a device and has not retired, and what is known of its length.

use core::sync::atomic::Ordering;

use partage_gpu_time::depth::{InFlight, Knowledge};
use partage_gpu_time::length::Sample;
use partage_protocol::gate::{self, KEPT, TimePage};
use partage_protocol::page::GrantLine;

use super::book::{self, REFUSED};
use super::timers;
use crate::real::Library;
use crate::stream::work::Kind;

/// What is on a device and has not retired.
#[derive(Clone, Copy, Default)]
pub struct Outstanding {
    /// In all streams.
    pub all: InFlight,
    /// In the one that was asked for.
    pub own: InFlight,
    /// No lane is free for it.
    pub has_no_lane: bool,
}

/// What has not retired on a device, the short launches of open batches left out; `key` names a stream.
pub fn outstanding(page: &TimePage, device: usize, key: u64) -> Outstanding {
    let mut sum = Outstanding::default();
    let Some(book) = book::get().and_then(|books| books.devices.get(device)) else {
        return sum;
    };
    let mut has_lane = book.address.load(Ordering::Acquire) <= REFUSED;
    for ((own, lane), ends) in book.lanes.iter().zip(&page.lanes).zip(&page.ends) {
        let owner = own.owner.load(Ordering::Relaxed);
        has_lane |= owner == key || owner == 0 || !lane.is_in_flight();
        if owner == 0 {
            continue;
        }
        let ended = lane.ended.load(Ordering::Acquire);
        let is_open = own.is_open.load(Ordering::Acquire);
        let closed = lane.submitted.load(Ordering::Acquire).wrapping_sub(u64::from(is_open));
        // Of a longer queue only the last batches are known, which is enough to be too long.
        let kept = ended.max(closed.saturating_sub(KEPT as u64 - 2));
        let ahead = if own.overlaps.load(Ordering::Relaxed) {
            // These are without a mark until somebody wants one.
            own.total.read().since(ends.of(kept))
        } else if closed > ended {
            ends.of(closed).since(ends.of(kept))
        } else {
            gate::Work::default()
        };
        let unknown = own.unknown_since(ended);
        let is_asked = owner == key;
        for sum in [Some(&mut sum.all), is_asked.then_some(&mut sum.own)]
            .into_iter()
            .flatten()
        {
            sum.ns = sum.ns.saturating_add(ahead.ns);
            sum.units = sum.units.saturating_add(ahead.units);
            sum.unknown = sum.unknown.saturating_add(unknown);
        }
    }
    sum.has_no_lane = !has_lane;
    sum
}

/// What is known of the length of a launch.
pub fn knowledge(kind: Kind) -> Knowledge {
    let (unit, overlaps) = kind.unit();
    match unit {
        Some(unit) if book::get().is_some_and(|books| books.lengths.expected(unit).is_some()) => Knowledge::Known,
        Some(_) if !overlaps => Knowledge::Unknown,
        _ => Knowledge::Untold,
    }
}

/// Learns what the events tell that have been reached.
pub fn read_lengths(line: &GrantLine, page: &TimePage, device: usize, real: &Library) {
    if let Some(books) = book::get()
        && let Some(book) = books.devices.get(device)
    {
        let spoiled = line.spoiled.load(Ordering::Acquire);
        timers::read(&book.timers, page, spoiled, &books.lengths, real);
    }
}

/// A unit takes no longer than this, as the time says for which launches waited behind some of it.
pub fn learn_bound(unit: u64, ns: u64) {
    if let Some(books) = book::get() {
        books.lengths.learn(unit, ns, Sample::Bound);
    }
}
