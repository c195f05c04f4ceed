// SPDX-License-Identifier: Apache-2.0
//! Charges and refunds of this process, on the shared pages once a broker answered, on own pages before.
//!
//! The reservation protocol itself is `partage_protocol::reservation`; here its words are found. While attached a word
//! is an atomic on a page whose mapping never moves, and a charge within the grant is one compare-and-swap. While
//! standalone every word is used under `State::books`, because a late attach may carry it over to a shared page at any
//! moment; from then on its place is there ([`Place::shared`]).

use core::sync::atomic::{AtomicU64, Ordering};

use partage_protocol::message::{MAX_DEVICES, NOTICE_DENIED};
use partage_protocol::page::UseLine;
use partage_protocol::reservation::{self, AskAnswer, ClientWords, Denial, Word};

use crate::explain;
use crate::job_word;
use crate::memory::pools;
use crate::session;
use crate::state::{Phase, State};

/// Place of a broken invariant, in notices: more was given back than was charged.
const PLACE_REFUND: u64 = 1;

/// A charge that was made: what a refund gives back.
#[derive(Clone, Copy)]
pub struct Charge {
    /// Slot, in the numbering of `is_standalone`.
    pub slot: u32,
    /// Bytes.
    pub bytes: u64,
    /// Made before a broker answered.
    pub is_standalone: bool,
    /// Managed memory: charged in full, resident only where it is touched.
    pub is_managed: bool,
}

/// What the driver's allocator hands out at least, in bytes: neighbouring one-byte allocations lie this far apart.
const GRANULE: u64 = 512;

/// The bytes that an allocation of `bytes` takes of the device.
pub fn cost(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(GRANULE).unwrap_or(u64::MAX)
}

/// An operation on the ledger of a slot, from before its charge (or the driver's free) until its end. While one is
/// under way, U and what the driver has given need not agree, and the broker compares them with nothing.
pub struct Operation {
    state: &'static State,
    slot: usize,
    is_standalone: bool,
}

impl Operation {
    /// Says that an operation on a slot begins; in today's numbering.
    pub fn begin(state: &'static State, slot: usize) -> Self {
        Self::begin_on(state, slot, state.phase() == Phase::Standalone)
    }

    /// Says that the charge of an earlier operation is about to change.
    pub fn begin_again(state: &'static State, charge: &Charge) -> Self {
        Self::begin_on(state, charge.slot as usize, charge.is_standalone)
    }

    /// Says that operations on every slot begin: the end of a context frees what lies on whichever device.
    pub fn begin_everywhere(state: &'static State) -> [Option<Self>; MAX_DEVICES] {
        let count = match state.phase() {
            Phase::Attached => state.job().map_or(0, |job| job.devices().len()),
            Phase::Standalone => MAX_DEVICES,
            Phase::Fresh | Phase::Off => 0,
        };
        core::array::from_fn(|slot| (slot < count).then(|| Self::begin(state, slot)))
    }

    #[inline(never)] // one body for all hooks: the library is mapped by every process of a job
    fn begin_on(state: &'static State, slot: usize, is_standalone: bool) -> Self {
        with_line(state, slot, is_standalone, |line| {
            line.started.fetch_add(1, Ordering::SeqCst);
        });
        Self {
            state,
            slot,
            is_standalone,
        }
    }
}

impl Drop for Operation {
    #[inline(never)] // as `begin_on`
    fn drop(&mut self) {
        with_line(self.state, self.slot, self.is_standalone, |line| {
            line.finished.fetch_add(1, Ordering::SeqCst);
        });
    }
}

/// What [`charge`] says.
pub enum Verdict {
    /// Go on; refund if the driver refuses.
    Charged(Charge),
    /// This process or device is not shared: go on, nothing is recorded.
    Unmanaged,
    /// The program gets OUT_OF_MEMORY.
    Denied,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Used,
    Granted,
    Settled,
}

/// One word of one slot, wherever it is now.
struct Place<'a> {
    state: &'a State,
    slot: usize,
    is_standalone: bool,
    which: Which,
}

impl<'a> Place<'a> {
    fn words(state: &'a State, slot: usize, is_standalone: bool) -> [Self; 3] {
        [Which::Used, Which::Granted, Which::Settled].map(|which| Self {
            state,
            slot,
            is_standalone,
            which,
        })
    }

    /// The word on the shared pages. `None` for a device outside the job.
    fn shared(&self) -> Option<&'a AtomicU64> {
        let slot = current_slot(self.state, self.slot, self.is_standalone)?;
        Some(match self.which {
            Which::Used => &self.state.client_page()?.devices.get(slot)?.used,
            Which::Settled => &self.state.client_page()?.devices.get(slot)?.settled,
            Which::Granted => &self.state.broker_page()?.devices.get(slot)?.granted,
        })
    }

    fn own(&self) -> Option<&'a AtomicU64> {
        Some(match self.which {
            Which::Used => &self.state.own_client_page.devices.get(self.slot)?.used,
            Which::Settled => &self.state.own_client_page.devices.get(self.slot)?.settled,
            Which::Granted => &self.state.own_broker_page.devices.get(self.slot)?.granted,
        })
    }

    /// Does the word count for anything? Not when a late attach showed the device to be outside the job.
    fn is_counted(&self) -> bool {
        self.state.broker_page().is_none() || self.shared().is_some()
    }

    fn with<R>(&self, act: impl Fn(&AtomicU64) -> R, outside: R) -> R {
        if !self.is_standalone {
            return self.shared().map_or(outside, act);
        }
        let _held = self.state.books.hold();
        let word = if self.state.broker_page().is_some() {
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
fn current_slot(state: &State, slot: usize, is_standalone: bool) -> Option<usize> {
    if !is_standalone || state.broker_page().is_none() {
        return Some(slot);
    }
    state.attachment.moved_slot(slot)
}

/// How slots are numbered for a charge that is made now: as before a broker answered, or not. `None`: nobody to charge.
pub fn numbering(state: &State) -> Option<bool> {
    match state.phase() {
        Phase::Attached => Some(false),
        Phase::Standalone if state.is_counted() => Some(true),
        Phase::Off => {
            state.counters().failed_open.fetch_add(1, Ordering::Relaxed);
            None
        }
        Phase::Standalone | Phase::Fresh => None,
    }
}

/// Adds `bytes` to U where `charge` stands, within the grant. Asks nobody.
///
/// Precondition: an [`Operation`] there is under way; `State::books` is not held, unless the charge was made attached.
pub fn reserve_granted(state: &State, charge: &Charge, bytes: u64) -> bool {
    let [used, granted, _] = Place::words(state, charge.slot as usize, charge.is_standalone);
    let is_done = reservation::charge(&used, &granted, bytes) == reservation::Charged::Done;
    if is_done && charge.is_managed {
        reserved(state, charge, bytes);
    }
    is_done
}

/// Adds `bytes` to U where `charge` stands, asking the broker beyond the grant. A denial is told to nobody: see
/// [`deny`].
pub fn reserve(state: &State, charge: &Charge, bytes: u64) -> Result<(), Denial> {
    let [used, granted, settled] = Place::words(state, charge.slot as usize, charge.is_standalone);
    let words = ClientWords {
        used: &used,
        granted: &granted,
        settled: &settled,
    };
    let slot = charge.slot as usize;
    reservation::reserve(&words, bytes, |wanted| {
        ask(state, slot, charge.is_standalone, wanted, bytes)
    })?;
    reserved(state, charge, bytes);
    Ok(())
}

/// Says that U where `charge` stands is as high as it is.
pub fn mark_peak(state: &State, charge: &Charge) {
    with_line(state, charge.slot as usize, charge.is_standalone, |line| {
        line.peak
            .fetch_max(line.used.load(Ordering::Relaxed), Ordering::Relaxed);
    });
}

fn reserved(state: &State, charge: &Charge, bytes: u64) {
    with_line(state, charge.slot as usize, charge.is_standalone, |line| {
        if charge.is_managed {
            line.managed.fetch_add(bytes, Ordering::Relaxed);
        }
    });
}

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
    let _held = state.books.hold();
    if let Some(line) = state.own_broker_page.devices.get(slot) {
        line.granted.store(granted, Ordering::SeqCst);
    }
}

/// Lowers G of such a slot to U, and answers it. Under `books`, so that U cannot rise meanwhile; a charge that is under
/// way has raised it already, or finds the new G.
pub fn lower_own_grant(state: &State, slot: usize) -> u64 {
    let _held = state.books.hold();
    let granted = own_grant(state, slot).min(own_use(state, slot));
    if let Some(line) = state.own_broker_page.devices.get(slot) {
        line.granted.store(granted, Ordering::SeqCst);
    }
    granted
}

/// Takes off U what [`reserve`] or [`reserve_granted`] added.
pub fn release(state: &State, charge: &Charge, bytes: u64) {
    let [used, ..] = Place::words(state, charge.slot as usize, charge.is_standalone);
    if reservation::refund(&used, bytes).is_err() && used.is_counted() {
        session::turn_off(state, PLACE_REFUND);
    }
    if charge.is_managed {
        with_line(state, charge.slot as usize, charge.is_standalone, |line| {
            take_off(&line.managed, bytes);
        });
    }
    if charge.is_standalone {
        job_word::lower(state);
    }
}

/// Counts and explains a denial of [`reserve`] that the program is going to see.
#[cold]
pub fn deny(state: &State, charge: &Charge, bytes: u64, denial: Denial) {
    denied(state, charge.slot as usize, charge.is_standalone, bytes, denial);
}

/// Charges `bytes` to the device in `slot` before the driver is asked for them.
///
/// Precondition: an [`Operation`] on the slot is under way.
pub fn charge(state: &'static State, slot: usize, bytes: u64, is_managed: bool) -> Verdict {
    let Some(is_standalone) = numbering(state) else {
        return Verdict::Unmanaged;
    };
    let [used, granted, settled] = Place::words(state, slot, is_standalone);
    let words = ClientWords {
        used: &used,
        granted: &granted,
        settled: &settled,
    };
    let reserve = || reservation::reserve(&words, bytes, |wanted| ask(state, slot, is_standalone, wanted, bytes));
    let mut result = reserve();
    // What pools keep and nobody uses makes room before anybody is denied, as on a full card.
    if result.is_err() && pools::make_room(state, slot) > 0 {
        result = reserve();
    }
    match result {
        Ok(()) => {
            with_line(state, slot, is_standalone, |line| {
                line.peak
                    .fetch_max(line.used.load(Ordering::Relaxed), Ordering::Relaxed);
                line.allocations.fetch_add(1, Ordering::Relaxed);
                if is_managed {
                    line.managed.fetch_add(bytes, Ordering::Relaxed);
                }
            });
            Verdict::Charged(Charge {
                slot: slot as u32,
                bytes,
                is_standalone,
                is_managed,
            })
        }
        Err(denial) => {
            denied(state, slot, is_standalone, bytes, denial);
            Verdict::Denied
        }
    }
}

/// Gives a charge back: the driver freed the memory, or never gave it.
#[inline(never)] // as `Operation::begin_on`
pub fn refund(state: &State, charge: Charge) {
    let [used, ..] = Place::words(state, charge.slot as usize, charge.is_standalone);
    if reservation::refund(&used, charge.bytes).is_err() && used.is_counted() {
        session::turn_off(state, PLACE_REFUND);
    }
    with_line(state, charge.slot as usize, charge.is_standalone, |line| {
        take_off(&line.allocations, 1);
        if charge.is_managed {
            take_off(&line.managed, charge.bytes);
        }
    });
    if charge.is_standalone {
        job_word::lower(state);
    }
}

/// Less, never below none.
fn take_off(counter: &AtomicU64, amount: u64) {
    let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
        Some(count.saturating_sub(amount))
    });
}

/// Charges `bytes` more for an allocation that exists: the driver took more than was reserved.
pub fn extend(state: &State, charge: &mut Charge, bytes: u64) -> bool {
    let [used, granted, settled] = Place::words(state, charge.slot as usize, charge.is_standalone);
    let words = ClientWords {
        used: &used,
        granted: &granted,
        settled: &settled,
    };
    let slot = charge.slot as usize;
    match reservation::reserve(&words, bytes, |wanted| {
        ask(state, slot, charge.is_standalone, wanted, bytes)
    }) {
        Ok(()) => {
            charge.bytes = charge.bytes.saturating_add(bytes);
            true
        }
        Err(denial) => {
            denied(state, slot, charge.is_standalone, bytes, denial);
            false
        }
    }
}

/// Gives back the part of a charge that the driver did not take.
pub fn shrink(state: &State, charge: &mut Charge, bytes: u64) {
    let bytes = bytes.min(charge.bytes);
    let [used, ..] = Place::words(state, charge.slot as usize, charge.is_standalone);
    if reservation::refund(&used, bytes).is_err() && used.is_counted() {
        session::turn_off(state, PLACE_REFUND);
    }
    charge.bytes -= bytes;
    if charge.is_standalone {
        job_word::lower(state);
    }
}

#[cold]
fn ask(state: &State, slot: usize, is_standalone: bool, wanted: u64, bytes: u64) -> AskAnswer {
    let Some(slot) = current_slot(state, slot, is_standalone) else {
        return AskAnswer::Retry;
    };
    if state.broker_page().is_none() {
        return session::ask_alone(state, slot, wanted);
    }
    session::ask(state, slot, wanted, bytes)
}

/// Counters of a slot, wherever they are now.
fn with_line(state: &State, slot: usize, is_standalone: bool, act: impl Fn(&UseLine)) {
    let line = |state: &State| {
        let page = state.client_page().unwrap_or(&state.own_client_page);
        if let Some(line) = current_slot(state, slot, is_standalone).and_then(|slot| page.devices.get(slot)) {
            act(line);
        }
    };
    if is_standalone {
        let _held = state.books.hold();
        line(state);
    } else {
        line(state);
    }
}

#[cold]
fn denied(state: &State, slot: usize, is_standalone: bool, bytes: u64, denial: Denial) {
    with_line(state, slot, is_standalone, |line| {
        let count = if denial == Denial::CardFull {
            &line.denied_full
        } else {
            &line.denied_limit
        };
        if denial != Denial::NoBroker {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let now_slot = current_slot(state, slot, is_standalone).unwrap_or(slot);
    match denial {
        Denial::NoBroker => session::note_refusal(state, now_slot),
        Denial::Limit | Denial::Invalid => session::notice(state, NOTICE_DENIED, now_slot, bytes),
        Denial::CardFull => {}
    }
    let (used, limit) = used_and_limit(state, now_slot);
    let used = used.saturating_add(overhead(state, now_slot));
    explain::denial(state, now_slot, bytes, (used, limit), denial);
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
fn overhead(state: &State, slot: usize) -> u64 {
    let line = state.broker_page().and_then(|page| page.devices.get(slot));
    line.map_or(0, |line| line.overhead.load(Ordering::Relaxed))
}

/// What the program is to believe about a slot: the job's limit and what the job uses, overhead included. `None`: the
/// whole truth.
pub fn view(state: &State, slot: usize, is_this_process_all: bool) -> Option<(u64, u64)> {
    match state.phase() {
        Phase::Attached => {}
        Phase::Standalone if state.settings().memory_limit.is_some() => {
            let (used, limit) = used_and_limit(state, slot);
            let others = if state.found().is_alone() {
                job_word::others(state, slot)
            } else {
                None
            };
            return Some((limit, used.saturating_add(others.unwrap_or(0))));
        }
        _ => return None,
    }
    let (charged, limit) = used_and_limit(state, slot);
    let own = charged.saturating_add(overhead(state, slot));
    let is_alone = state
        .broker_page()
        .is_some_and(|page| page.head.clients_in_job.load(Ordering::Relaxed) <= 1);
    if is_alone && is_this_process_all {
        return Some((limit, own));
    }
    let last = state.last_job_used.get(slot)?;
    if let Some(used) = session::job_used(state, slot) {
        last.store(used, Ordering::Relaxed);
    }
    Some((limit, last.load(Ordering::Relaxed).max(own)))
}

/// The job's limit in a slot. `None`: the device's own size.
pub fn limit(state: &State, slot: usize) -> Option<u64> {
    match state.phase() {
        Phase::Attached => Some(used_and_limit(state, slot).1),
        Phase::Standalone => state.settings().memory_limit,
        Phase::Fresh | Phase::Off => None,
    }
}

/// A late attach: what was charged on the own pages goes to the shared ones, slot by slot. Precondition: the slots have
/// their new numbers, the shared pages are not published yet, and `State::books` is held until they are.
pub fn move_in(state: &State, shared: &partage_protocol::page::ClientPage) {
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
