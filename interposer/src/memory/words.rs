// SPDX-License-Identifier: Apache-2.0
//! Where the words of the reservation are: on the shared pages once a broker answered, on own pages before.
//!
//! The reservation protocol itself is `partage_protocol::reservation`. While attached a word is an atomic on a page
//! whose mapping never moves, and a charge within the grant is one compare-and-swap. While standalone every word is
//! used under the ledger's lock, because a late attach may carry it over to a shared page at any moment; from then on
//! its place is there ([`Place::shared`]).

use core::sync::atomic::{AtomicU64, Ordering};

use partage_protocol::message::MAX_DEVICES;
use partage_protocol::page::UseLine;
use partage_protocol::reservation::Word;

use crate::attachment::{self, Attachment};
use crate::memory::charge::Charge;
use crate::state::{Phase, State};

/// An operation on the ledger of a slot, from before its charge (or the driver's free) until its end. While one is
/// under way, U and what the driver has given need not agree, and the broker compares them with nothing.
pub struct Operation {
    attachment: &'static Attachment,
    slot: usize,
    is_standalone: bool,
}

impl Operation {
    /// Says that an operation on a slot begins; in today's numbering.
    pub fn begin(state: &'static State, slot: usize) -> Self {
        Self::begin_on(attachment::of(state), slot, state.phase() == Phase::Standalone)
    }

    /// Says that the charge of an earlier operation is about to change.
    pub fn begin_again(attachment: &'static Attachment, charge: &Charge) -> Self {
        Self::begin_on(attachment, charge.slot as usize, charge.is_standalone)
    }

    /// Says that operations on every slot begin: the end of a context frees what lies on whichever device.
    pub fn begin_everywhere(state: &'static State) -> [Option<Self>; MAX_DEVICES] {
        let count = match state.phase() {
            Phase::Attached => attachment::of(state).job().map_or(0, |job| job.devices().len()),
            Phase::Standalone => MAX_DEVICES,
            Phase::Fresh | Phase::Off => 0,
        };
        core::array::from_fn(|slot| (slot < count).then(|| Self::begin(state, slot)))
    }

    #[inline(never)] // one body for all hooks: the library is mapped by every process of a job
    fn begin_on(attachment: &'static Attachment, slot: usize, is_standalone: bool) -> Self {
        with_line(attachment, slot, is_standalone, |line| {
            line.started.fetch_add(1, Ordering::SeqCst);
        });
        Self {
            attachment,
            slot,
            is_standalone,
        }
    }
}

impl Drop for Operation {
    #[inline(never)] // as `begin_on`
    fn drop(&mut self) {
        with_line(self.attachment, self.slot, self.is_standalone, |line| {
            line.finished.fetch_add(1, Ordering::SeqCst);
        });
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Used,
    Granted,
    Settled,
}

/// One word of one slot, wherever it is now.
pub struct Place<'a> {
    attachment: &'a Attachment,
    slot: usize,
    is_standalone: bool,
    which: Which,
}

impl<'a> Place<'a> {
    /// U, G and what was settled.
    pub fn words(attachment: &'a Attachment, slot: usize, is_standalone: bool) -> [Self; 3] {
        [Which::Used, Which::Granted, Which::Settled].map(|which| Self {
            attachment,
            slot,
            is_standalone,
            which,
        })
    }

    /// The word on the shared pages. `None` for a device outside the job.
    fn shared(&self) -> Option<&'a AtomicU64> {
        let slot = current_slot(self.attachment, self.slot, self.is_standalone)?;
        Some(match self.which {
            Which::Used => &self.attachment.client_page()?.devices.get(slot)?.used,
            Which::Settled => &self.attachment.client_page()?.devices.get(slot)?.settled,
            Which::Granted => &self.attachment.broker_page()?.devices.get(slot)?.granted,
        })
    }

    fn own(&self) -> Option<&'a AtomicU64> {
        Some(match self.which {
            Which::Used => &self.attachment.own.client.devices.get(self.slot)?.used,
            Which::Settled => &self.attachment.own.client.devices.get(self.slot)?.settled,
            Which::Granted => &self.attachment.own.broker.devices.get(self.slot)?.granted,
        })
    }

    /// Does the word count for anything? Not when a late attach showed the device to be outside the job.
    pub fn is_counted(&self) -> bool {
        self.attachment.broker_page().is_none() || self.shared().is_some()
    }

    fn with<R>(&self, act: impl Fn(&AtomicU64) -> R, outside: R) -> R {
        if !self.is_standalone {
            return self.shared().map_or(outside, act);
        }
        let _held = self.attachment.ledger.hold();
        let word = if self.attachment.broker_page().is_some() {
            self.shared()
        } else {
            self.own()
        };
        word.map_or(outside, act)
    }
}

impl Word for Place<'_> {
    fn load(&self) -> u64 {
        // Outside the job nothing is limited and nothing is used.
        let outside = if self.which == Which::Granted { u64::MAX } else { 0 };
        self.with(Word::load, outside)
    }
    fn store(&self, value: u64) {
        self.with(|word| Word::store(word, value), ());
    }
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.with(|word| Word::compare_exchange(word, current, new), Ok(current))
    }
    fn fence() {
        <AtomicU64 as Word>::fence();
    }
    fn fence_after_exchange() {
        <AtomicU64 as Word>::fence_after_exchange();
    }
}

/// A slot of a charge in today's numbering; `None` when its device turned out not to be the job's.
pub fn current_slot(attachment: &Attachment, slot: usize, is_standalone: bool) -> Option<usize> {
    if !is_standalone || attachment.broker_page().is_none() {
        return Some(slot);
    }
    attachment.moved_slot(slot)
}

/// How slots are numbered for a charge that is made now: as before a broker answered, or not. `None`: nobody to charge.
pub fn numbering(state: &State) -> Option<bool> {
    match state.phase() {
        Phase::Attached => Some(false),
        Phase::Standalone if state.is_counted() => Some(true),
        Phase::Off => {
            attachment::of(state)
                .counters()
                .failed_open
                .fetch_add(1, Ordering::Relaxed);
            None
        }
        Phase::Standalone | Phase::Fresh => None,
    }
}

/// Counters of a slot, wherever they are now.
pub fn with_line(attachment: &Attachment, slot: usize, is_standalone: bool, act: impl Fn(&UseLine)) {
    let line = || {
        let page = attachment.client_page().unwrap_or(&attachment.own.client);
        if let Some(line) = current_slot(attachment, slot, is_standalone).and_then(|slot| page.devices.get(slot)) {
            act(line);
        }
    };
    if is_standalone {
        let _held = attachment.ledger.hold();
        line();
    } else {
        line();
    }
}

/// Less, never below none.
pub fn take_off(counter: &AtomicU64, amount: u64) {
    let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
        Some(count.saturating_sub(amount))
    });
}
