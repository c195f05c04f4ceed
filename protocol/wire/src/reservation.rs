// SPDX-License-Identifier: Apache-2.0
//! The reservation protocol: how clients and broker agree on bytes without a message per allocation.
//!
//! Three words per (client, device), all in bytes:
//! - **L**, the *ledger*: in the broker's own mapped file, survives the broker's death, never shared;
//! - **G**, *granted*: in the broker's page, read-only to the client;
//! - **U**, *used*: in the client's page, read by the broker.
//!
//! A fourth one, **P**, in the broker's file, is 0 but for a client whose memory is leaving the device, away or coming
//! back: what has to be had again before the driver restores it ([`leave`], [`return_to`], [`came_back`]).
//!
//! ```text
//!   client                                  broker raising: L := to, then G := to
//!     U+n <= G? ── no ──► ask               broker lowering: G := to, full barrier, read U
//!       │ yes                                                  U <= to: L := to      (lowered)
//!     CAS U += n                                               else:    G := L       (busy, nothing given away)
//!     load G again                          death: L := 0 (only when the process is gone)
//!       │ U > G: U -= n, ask                new broker: G := L
//!     call the driver
//! ```
//!
//! Invariants, each checked by exhaustive search (`protocol/tests/reservation_every_interleaving.rs`) with the broker
//! and clients killed at every step, and by loom for the memory order (`protocol/tests/reservation_loom.rs`):
//! 1. Σ L ≤ the job's limit at every instant (unless the limit was lowered below use; then Σ L only falls).
//! 2. What the driver was allowed to allocate is ≤ Σ L, hence ≤ the limit.
//! 3. Nothing here panics or overflows, for any value of any word: U is written by the program's process.
//!
//! So a job's limit is checked twice: by each client against its G in every allocation ([`charge`]), and by the broker
//! against the limit whenever it raises an L (`job_ledger.rs`).
//!
//! Why it holds: the client's CAS on U comes before its second load of G, the broker's store to G before its load of U,
//! with a full barrier in both places; so of a racing client and a lowering broker at least one sees the other.

use core::sync::atomic::{AtomicU64, Ordering, fence};

/// One shared 64-bit word. The machine's is [`AtomicU64`]; loom and the exhaustive search bring their own, so that they
/// run this very code.
pub trait Word {
    /// Reads the word; nothing after it moves before it.
    fn load(&self) -> u64;
    /// Writes the word; nothing before it moves after it.
    fn store(&self, value: u64);
    /// Replaces `current` by `new`, or answers what the word holds instead.
    ///
    /// # Errors
    /// The value found, when it is not `current`.
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64>;
    /// Full barrier between earlier writes and later reads.
    fn fence();
    /// Full barrier that may rely on a successful [`Word::compare_exchange`] standing right before it.
    fn fence_after_exchange();
}

impl Word for AtomicU64 {
    fn load(&self) -> u64 {
        Self::load(self, Ordering::SeqCst)
    }
    fn store(&self, value: u64) {
        Self::store(self, value, Ordering::SeqCst);
    }
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        Self::compare_exchange(self, current, new, Ordering::SeqCst, Ordering::SeqCst)
    }
    fn fence() {
        fence(Ordering::SeqCst);
    }
    fn fence_after_exchange() {
        // Exchange and load are both SeqCst, so they are ordered in the single total order already: on x86-64 `lock
        // cmpxchg` is a full barrier, on aarch64 `casal`/`stlxr` before `ldar` is. An `mfence` here would double the
        // cost of an allocation's accounting. Loom models SeqCst accesses as acquire/release and does fence here.
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
    }
}

/// What [`charge`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Charged {
    /// U includes the bytes; call the driver, and [`refund`] if it fails.
    Done,
    /// The grant does not cover it: ask the broker for a grant of `wanted` bytes. U is unchanged.
    MustAsk {
        /// U after the allocation.
        wanted: u64,
    },
    /// U + bytes is no 64-bit number: no limit can cover it. U is unchanged.
    Overflow,
}

/// Client: charges `bytes` if the grant covers them.
pub fn charge<W: Word>(used: &W, granted: &W, bytes: u64) -> Charged {
    let mut before = used.load();
    loop {
        let Some(after) = before.checked_add(bytes) else {
            return Charged::Overflow;
        };
        if after > granted.load() {
            return Charged::MustAsk { wanted: after };
        }
        match used.compare_exchange(before, after) {
            Ok(_) => {
                W::fence_after_exchange();
                if after <= granted.load() {
                    return Charged::Done;
                }
                // The broker lowered G meanwhile and may have read U before our exchange: this charge never was.
                // The bytes are ours to take back, so the refund cannot find less than them.
                let _ = refund(used, bytes);
                return Charged::MustAsk { wanted: after };
            }
            Err(found) => before = found,
        }
    }
}

/// U was smaller than what was given back: a broken invariant of this process. U is now 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Underflow;

/// Client: gives `bytes` back after the driver freed them or refused the allocation. Answers U after it.
///
/// # Errors
/// [`Underflow`] when more is given back than was charged.
pub fn refund<W: Word>(used: &W, bytes: u64) -> Result<u64, Underflow> {
    let mut before = used.load();
    loop {
        let (after, result) = match before.checked_sub(bytes) {
            Some(after) => (after, Ok(after)),
            None => (0, Err(Underflow)),
        };
        match used.compare_exchange(before, after) {
            Ok(_) => return result,
            Err(found) => before = found,
        }
    }
}

/// What the broker answered to an ask, as far as the client's decision needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskAnswer {
    /// G covers what was wanted and stays so until settled (`VERDICT_GRANTED`).
    Granted,
    /// A sibling moved while the broker looked: nothing is decided, ask again (`VERDICT_RETRY`).
    Retry,
    /// Denied for good as things are; the value goes back to the caller of [`reserve`].
    Denied(Denial),
}

/// Why a charge did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The job's limit.
    Limit,
    /// The limit of this process.
    ProcessLimit,
    /// The device has no room for this job.
    CardFull,
    /// There would be room but for the memory of this process, which has ended.
    Unfreed(u32),
    /// No broker answered in time: memory is closed.
    NoBroker,
    /// The broker called the request a contradiction.
    Invalid,
}

/// Times that one [`reserve`] asks before it takes the last answer as a denial. An attempt is lost only when another
/// thread or sibling took bytes in between, which is progress elsewhere; 64 lost in a row is starvation, not a race.
pub const MAX_ASKS: u32 = 64;

/// The client's words of one device, and the counter that lifts pins.
#[derive(Debug)]
pub struct ClientWords<'a, W> {
    /// **U**.
    pub used: &'a W,
    /// **G**.
    pub granted: &'a W,
    /// Granted asks that this client has used or given up (`UseLine::settled`).
    pub settled: &'a W,
}

/// Client: charges `bytes`, asking the broker as often as needed. `ask(wanted)` is one round trip to the broker.
///
/// # Errors
/// The [`Denial`]; nothing is charged then.
pub fn reserve<W: Word>(
    words: &ClientWords<'_, W>,
    bytes: u64,
    mut ask: impl FnMut(u64) -> AskAnswer,
) -> Result<(), Denial> {
    match charge(words.used, words.granted, bytes) {
        Charged::Done => Ok(()),
        Charged::Overflow => Err(Denial::Limit),
        Charged::MustAsk { wanted } => reserve_by_asking(words, bytes, wanted, &mut ask),
    }
}

#[cold]
fn reserve_by_asking<W: Word>(
    words: &ClientWords<'_, W>,
    bytes: u64,
    mut wanted: u64,
    ask: &mut impl FnMut(u64) -> AskAnswer,
) -> Result<(), Denial> {
    let mut denial = Denial::Limit;
    for _ in 0..MAX_ASKS {
        let answer = ask(wanted);
        if let AskAnswer::Denied(why) = answer {
            denial = why;
            // `wanted` may have counted bytes of another thread that were given back since: then the answer was to
            // another question.
            match words.used.load().checked_add(bytes) {
                Some(now) if now < wanted && why != Denial::NoBroker => {
                    wanted = now;
                    continue;
                }
                _ => return Err(why),
            }
        }
        let charged = charge(words.used, words.granted, bytes);
        if answer == AskAnswer::Granted {
            settle(words.settled);
        }
        match charged {
            Charged::Done => return Ok(()),
            Charged::Overflow => return Err(Denial::Limit),
            Charged::MustAsk { wanted: again } => wanted = again,
        }
    }
    Err(denial)
}

/// Client: one granted ask was used or given up, so its pin may go. [`reserve`] does this itself.
pub fn settle<W: Word>(settled: &W) {
    let mut before = settled.load();
    while let Err(found) = settled.compare_exchange(before, before.wrapping_add(1)) {
        before = found;
    }
}

/// Broker: raises a client's grant. Precondition: Σ L with this one at `to` is within the job's limit.
pub fn raise<W: Word>(ledger: &W, granted: &W, to: u64) {
    ledger.store(to);
    granted.store(to);
}

/// What [`lower`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Lowered {
    /// L and G are lowered; the difference may be handed on.
    Done,
    /// The client uses more than that; nothing changed (G went down and up again).
    Busy {
        /// U as read.
        used: u64,
    },
}

/// Broker: lowers a client's grant to `to`, unless it uses more. Precondition: `to` ≤ L.
pub fn lower<W: Word>(ledger: &W, granted: &W, used: &W, to: u64) -> Lowered {
    granted.store(to);
    W::fence();
    let seen = used.load();
    if seen <= to {
        ledger.store(to);
        Lowered::Done
    } else {
        granted.store(ledger.load());
        Lowered::Busy { used: seen }
    }
}

/// Broker: forbids a client to grow, whatever it holds, and lets L follow its use down. For a job that is over a
/// lowered limit: a grant at the level of use would let a client free and take back what it just freed.
///
/// G = 0 is never "used": a client keeps what U counts, and every growth asks. U read behind the barrier counts each
/// charge whose client still saw the old grant, so L covers all that the driver was allowed to give.
pub fn freeze<W: Word>(ledger: &W, granted: &W, used: &W) {
    granted.store(0);
    W::fence();
    let seen = used.load();
    if seen < ledger.load() {
        ledger.store(seen);
    }
}

/// New broker: the ledger is the truth, whatever step the last broker died in.
pub fn adopt<W: Word>(ledger: &W, granted: &W) {
    granted.store(ledger.load());
}

/// Broker: the client's process is gone and the driver has freed its memory.
pub fn death<W: Word>(ledger: &W) {
    ledger.store(0);
}

/// Broker: the memory of a client that is held has left the device: P := U + O, then G := 0, L := 0, O := 0. Answers P.
///
/// P once written stays, so that a broker that died anywhere in here goes on where it was: L and O may be gone already
/// and tell nothing. It is never 0, so that a client that used nothing is away, too. Nobody is in the driver; a charge
/// that a broken client makes all the same counts in P if it was under the old G.
pub fn leave<W: Word>(ledger: &W, granted: Option<&W>, used: Option<&W>, overhead: &W, owed: &W) -> u64 {
    let cost = || {
        let held = ledger.load();
        // Without pages nobody can say less than L.
        let used = used.map_or(held, |used| used.load().min(held));
        used.saturating_add(overhead.load()).max(1)
    };
    if owed.load() == 0 {
        owed.store(cost());
    }
    if let Some(granted) = granted {
        granted.store(0);
    }
    W::fence();
    let late = cost();
    if late > owed.load() {
        owed.store(late);
    }
    ledger.store(0);
    overhead.store(0);
    owed.load()
}

/// Broker: a client that is away has its room again, before the driver is asked: L := P. G stays 0. Precondition: Σ L
/// with it is within the job's limit.
pub fn return_to<W: Word>(ledger: &W, owed: &W) {
    let bytes = owed.load();
    if ledger.load() < bytes {
        ledger.store(bytes);
    }
}

/// Broker: the driver has restored the client's memory: O := P − U, G := L − O, then P := 0. Precondition: L ≥ P
/// ([`return_to`]).
///
/// What the driver holds beyond the charges is there again before anybody measures it: a client that leaves at once has
/// to have as much room the next time.
pub fn came_back<W: Word>(ledger: &W, granted: Option<&W>, used: Option<&W>, overhead: &W, owed: &W) {
    let held = ledger.load();
    let used = used.map_or(held, |used| used.load().min(held));
    let beyond = owed.load().saturating_sub(used);
    overhead.store(beyond);
    if let Some(granted) = granted {
        granted.store(held.saturating_sub(beyond));
    }
    owed.store(0);
}
