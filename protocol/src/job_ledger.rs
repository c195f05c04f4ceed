// SPDX-License-Identifier: Apache-2.0
//! The broker's half of the reservation protocol for one job on one device: who holds how much of the limit.
//!
//! Terms: a member's *floor* is what must not be taken from it: what it uses, and what it was just granted and has not
//! used yet (the *pin*). *Slack* is what it holds beyond that, so that it need not ask for every allocation; slack is
//! shared evenly and taken back whenever a sibling asks. The *ceiling* is the part of the limit that the card has room
//! for at the moment (equal to the limit where all of it is promised). A member's *overhead* (O) is what the driver
//! holds for it beyond what it charged, as measured; it takes from what the members may be granted, exactly as if the
//! limit had been lowered by it. All amounts in bytes.
//!
//! Invariant: Σ L + Σ O ≤ min(limit, ceiling) at every instant, unless one of those fell below it or an overhead grew;
//! then Σ L only falls until it holds again.
//!
//! The words themselves (`L` and `O` in the broker's mapped file, `G` and `U` in the client's pages) are reached
//! through [`Pages`], so that this structure holds only what may be forgotten when the broker dies: after an [adoption]
//! (JobLedger::adopt) the words in the file say it all.
//!
//! ```text
//!            attach               ask / set_limit / rebalance          death (process gone)
//!   (none) ─────────► member: L = floor + slack ◄─────────────┐ ─────────────────────────► L = 0, slack to siblings
//!            adopt      ▲             └───────────────────────┘
//!   (file) ─────────────┘  G := L
//! ```
//! A member whose memory leaves the device, is away or comes back has P, and is left alone meanwhile ([`away`]).
//! A member can have a limit of its own beside the job's ([`process`]).

mod away;
mod overhead;
mod process;
mod room;
mod words;

pub use words::{Pages, Shared, Words};

use std::collections::BTreeMap;

use crate::reservation::{self, Lowered, Word};
use crate::units::{ClientId, SECOND_NS};

/// Longest time that a granted and unused ask is protected from siblings. A client uses a grant within microseconds and
/// says so; only a stopped or broken one reaches this bound, and then its siblings must get on.
pub const PIN_NS: u64 = SECOND_NS;

/// Rounds in which an ask tries to take slack back before it answers *retry*. A round fails only when a sibling used
/// its slack between two instructions of the broker.
const ROUNDS: u32 = 4;

/// What an ask came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// L and G cover what was wanted; pinned.
    Granted,
    /// Σ use with it, overhead included, exceeds the limit.
    Limit,
    /// The asker's use with it, overhead included, exceeds the asker's own limit.
    ProcessLimit,
    /// It is within the limit, but the card has `short_by` bytes too little for this job now. Raise the ceiling by as
    /// much and ask again, or deny.
    CardFull {
        /// Bytes that the ceiling lacks.
        short_by: u64,
    },
    /// A sibling's use was moving; ask again.
    Retry,
    /// The client is no member, or its pages are lost.
    Invalid,
}

/// Verdict and the numbers that explain it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The decision.
    pub verdict: Verdict,
    /// The asker's G after it.
    pub granted: u64,
    /// The job's limit.
    pub limit: u64,
    /// What the job uses, overhead included.
    pub job_used: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Member {
    /// Bytes the last granted ask wanted; 0 when there was none.
    pin: u64,
    /// When the pin ends at the latest.
    pinned_until_ns: u64,
    /// Asks granted; the pin holds while the client settled fewer.
    granted_asks: u64,
}

/// One job on one device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobLedger {
    limit: u64,
    ceiling: u64,
    /// Nothing may be granted: as a limit of 0, but the limit stands for those who look.
    is_barred: bool,
    members: BTreeMap<ClientId, Member>,
    /// What single members may hold at most, O included; the job's limit alone where there is none.
    own_limits: BTreeMap<ClientId, u64>,
}

/// One member as read at an instant.
#[derive(Clone, Copy)]
struct Seen {
    client: ClientId,
    ledger: u64,
    floor: u64,
    is_moving: bool,
    /// L may be lowered: its pages are here, and it is not away.
    is_reachable: bool,
    is_away: bool,
}

impl JobLedger {
    /// A ledger without members. `ceiling` is what the card has room for; the limit where everything is promised.
    #[must_use]
    pub fn new(limit: u64, ceiling: u64) -> Self {
        Self {
            limit,
            ceiling,
            is_barred: false,
            members: BTreeMap::new(),
            own_limits: BTreeMap::new(),
        }
    }

    /// The job's limit.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The part of the limit that the card has room for.
    #[must_use]
    pub fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// Members in the order of their ids.
    pub fn clients(&self) -> impl ExactSizeIterator<Item = ClientId> + '_ {
        self.members.keys().copied()
    }

    /// Σ L: what the members may use without asking.
    pub fn granted_sum<P: Pages>(&self, pages: &P) -> u64 {
        self.members.keys().fold(0, |sum: u64, client| {
            sum.saturating_add(pages.words(*client).map_or(0, |words| words.ledger.load()))
        })
    }

    /// Σ O: what the driver holds for the members beyond what they charged.
    pub fn overhead_sum<P: Pages>(&self, pages: &P) -> u64 {
        self.members.keys().fold(0, |sum: u64, client| {
            sum.saturating_add(pages.words(*client).map_or(0, |words| words.overhead.load()))
        })
    }

    /// Σ L + Σ O: what the job could come to hold without anybody being asked.
    pub fn held_sum<P: Pages>(&self, pages: &P) -> u64 {
        self.granted_sum(pages).saturating_add(self.overhead_sum(pages))
    }

    /// Is more held than limit and ceiling allow? Then nobody grows, and [`JobLedger::rebalance`] follows falling use.
    pub fn is_over<P: Pages>(&self, pages: &P) -> bool {
        self.granted_sum(pages) > self.effective(pages)
    }

    /// What the job uses: [`Words::used`] of all members.
    pub fn used_sum<P: Pages>(&self, pages: &P) -> u64 {
        self.members.keys().fold(0, |sum: u64, client| {
            sum.saturating_add(pages.words(*client).map_or(0, |words| words.used()))
        })
    }

    /// The part of [`used_sum`](Self::used_sum) that members say themselves: those whose pages are there.
    pub fn said_sum<P: Pages>(&self, pages: &P) -> u64 {
        let words = self.members.keys().filter_map(|client| pages.words(*client));
        let said = words.filter(|words| words.shared.is_some());
        said.fold(0, |sum: u64, words| sum.saturating_add(words.used()))
    }

    /// A new member (its words are zero, or what a broker left that died while it attached this client). The only one
    /// gets the whole ceiling and never asks; later ones an even part of the slack, taken from those who hold more.
    pub fn attach<P: Pages>(&mut self, pages: &P, client: ClientId, now_ns: u64) {
        self.adopt(pages, client);
        self.rebalance(pages, now_ns);
    }

    /// A member that an earlier broker had: G := L, whatever step that broker died in. Nothing is redistributed: the
    /// others' pages may not be back yet.
    pub fn adopt<P: Pages>(&mut self, pages: &P, client: ClientId) {
        let mut member = Member::default();
        if let Some(words) = pages.words(client)
            && let Some(shared) = &words.shared
        {
            adopt_words(&words, shared.granted);
            member.granted_asks = shared.settled.load();
        }
        self.members.insert(client, member);
        self.freeze_beyond_own(pages, client);
        if self.is_over(pages) {
            // The job was over a lowered limit, and its clients frozen, when the last broker died.
            self.freeze(pages);
            if !self.is_over(pages) {
                // Use had fallen in the meantime.
                for words in self.members.keys().filter_map(|client| pages.words(*client)) {
                    if let Some(shared) = &words.shared {
                        adopt_words(&words, shared.granted);
                    }
                }
            }
        }
    }

    /// A member whose process is gone and whose memory the driver has freed.
    pub fn death<P: Pages>(&mut self, pages: &P, client: ClientId, now_ns: u64) {
        self.own_limits.remove(&client);
        if self.members.remove(&client).is_some() {
            if let Some(words) = pages.words(client) {
                reservation::death(words.ledger);
                words.overhead.store(0);
                words.owed.store(0);
            }
            self.rebalance(pages, now_ns);
        }
    }

    /// Raises or lowers the limit and the ceiling. Below use nothing dies: every member keeps what it uses and growth
    /// is denied. While the job is over ([`JobLedger::is_over`]), [`JobLedger::rebalance`] follows falling use.
    pub fn set_limit<P: Pages>(&mut self, pages: &P, limit: u64, ceiling: u64, now_ns: u64) {
        self.limit = limit;
        self.ceiling = ceiling;
        self.rebalance(pages, now_ns);
    }

    /// Bars the members from growing, whatever the limit says, or lets them again. What they use they keep.
    pub fn set_barred<P: Pages>(&mut self, pages: &P, is_barred: bool, now_ns: u64) {
        if self.is_barred != is_barred {
            self.is_barred = is_barred;
            self.rebalance(pages, now_ns);
        }
    }

    /// Shares the slack evenly again: called after every change of members or limits, and from time to time while the
    /// job is over its limit.
    pub fn rebalance<P: Pages>(&mut self, pages: &P, now_ns: u64) {
        let mut seen = self.look(pages, now_ns, None);
        let mut floors = seen.iter().fold(0, |sum: u64, member| sum.saturating_add(member.floor));
        if floors <= self.effective(pages) {
            // Often all it takes: what nobody uses is no reason to freeze those who were just granted something.
            self.share_slack(pages, &seen, floors);
        }
        if floors > self.effective(pages) || self.is_over(pages) {
            self.freeze(pages);
            if self.is_over(pages) {
                return;
            }
            // Use fell in the meantime, or a pin was in the way: there is something to share after all.
            seen = self.look(pages, now_ns, None);
            floors = seen.iter().fold(0, |sum: u64, member| sum.saturating_add(member.floor));
        }
        let slack = self.share_slack(pages, &seen, floors);
        // Both sums are of words that only the broker writes: counted once, however many members there are.
        let mut free = self.effective(pages).saturating_sub(self.granted_sum(pages));
        let here = seen.iter().filter(|member| !member.is_away);
        let is_alone = here.clone().count() == 1;
        for member in here {
            let Some(words) = pages.words(member.client) else {
                continue;
            };
            let Some(shared) = &words.shared else { continue };
            if self.freeze_beyond_own(pages, member.client) {
                continue;
            }
            let held = words.ledger.load();
            // A lone member gets the division's remainder too: it is to have everything.
            let target = if is_alone {
                u64::MAX
            } else {
                member.floor.saturating_add(slack)
            };
            let most = self.most(member.client, &words);
            let to = target.min(held.saturating_add(free)).min(most).max(held);
            // Below L: it was frozen while the job was over its limit.
            if to > held || shared.granted.load() < held {
                reservation::raise(words.ledger, shared.granted, to);
                free = free.saturating_sub(to - held);
            }
        }
    }

    /// Lowers everybody to floor and an even part of the slack, as far as its own limit goes. Answers that part.
    fn share_slack<P: Pages>(&self, pages: &P, seen: &[Seen], floors: u64) -> u64 {
        let here = seen.iter().filter(|member| !member.is_away).count() as u64;
        let slack = self.effective(pages).saturating_sub(floors) / here.max(1);
        for member in seen {
            let most = self.most_of(pages, member.client).max(member.floor);
            self.lower(pages, member, member.floor.saturating_add(slack).min(most));
        }
        slack
    }

    /// A member wants its use to become `wanted` on the device.
    pub fn ask<P: Pages>(&mut self, pages: &P, client: ClientId, wanted: u64, now_ns: u64) -> Answer {
        let verdict = self.decide(pages, client, wanted, now_ns);
        if verdict == Verdict::Granted
            && let Some(member) = self.members.get_mut(&client)
        {
            if now_ns >= member.pinned_until_ns {
                member.pin = 0;
            }
            member.pin = member.pin.max(wanted);
            member.pinned_until_ns = now_ns.saturating_add(PIN_NS);
            // Counted from what the client says now: a grant of the broker before, settled after this one adopted the
            // client, would otherwise lift every later pin too early, and two siblings could take one grant from each
            // other for ever (the search found that).
            let settled = pages
                .words(client)
                .and_then(|words| words.shared.map(|shared| shared.settled.load()));
            member.granted_asks = member.granted_asks.max(settled.unwrap_or(0)).saturating_add(1);
        }
        let granted = pages.words(client).map_or(0, |words| words.ledger.load());
        Answer {
            verdict,
            granted,
            limit: self.limit,
            job_used: self.used_sum(pages),
        }
    }

    fn decide<P: Pages>(&mut self, pages: &P, client: ClientId, wanted: u64, now_ns: u64) -> Verdict {
        if !self.members.contains_key(&client) {
            return Verdict::Invalid;
        }
        let Some(words) = pages.words(client) else {
            return Verdict::Invalid;
        };
        let Some(shared) = &words.shared else {
            return Verdict::Invalid;
        };
        if words.owed.load() != 0 {
            // Nobody of it is in the driver: whoever asks all the same gets nothing until it is back.
            return Verdict::Retry;
        }
        let most = self.most(client, &words);
        for _ in 0..ROUNDS {
            if self.is_over(pages) || words.ledger.load() > most {
                // Freezes again, and thaws everybody when use has fallen far enough.
                self.rebalance(pages, now_ns);
            }
            if wanted > most {
                // As below: a charge that is being undone looks like use for an instant.
                let is_moving = shared.used.load() > words.ledger.load();
                return if is_moving {
                    Verdict::Retry
                } else {
                    Verdict::ProcessLimit
                };
            }
            if words.ledger.load() > most {
                // It wants less than it used an instant ago.
                continue;
            }
            if wanted <= words.ledger.load() && !self.is_over(pages) {
                // An earlier ask of this client, or a lowering that was taken back, made the room already.
                shared.granted.store(words.ledger.load());
                return Verdict::Granted;
            }
            let siblings = self.look(pages, now_ns, Some(client));
            // Clients write their use: the sum of a few of them may be more than 64 bits.
            let floors: u128 = siblings.iter().map(|member| u128::from(member.floor)).sum();
            let total = floors + u128::from(wanted);
            let Some(rest) = u128::from(self.effective(pages)).checked_sub(total) else {
                // A charge that is being undone looks like use for an instant: not a reason to deny.
                let asker_moves = shared.used.load() > words.ledger.load();
                if asker_moves || siblings.iter().any(|member| member.is_moving) {
                    return Verdict::Retry;
                }
                return self.denial(pages, total);
            };
            let slack = rest as u64 / (self.members.len() as u64).max(1);
            for member in &siblings {
                self.lower(pages, member, member.floor.saturating_add(slack));
            }
            let held = words.ledger.load();
            let reach = held.saturating_add(self.effective(pages).saturating_sub(self.granted_sum(pages)));
            if reach >= wanted {
                // Nothing was lowered for more than this, so the asker keeps what it held.
                let to = wanted.saturating_add(slack).max(held).min(reach).min(most);
                reservation::raise(words.ledger, shared.granted, to);
                return Verdict::Granted;
            }
        }
        Verdict::Retry
    }

    /// What the members may be granted at the moment: what is left of limit and ceiling beside the overhead.
    fn effective<P: Pages>(&self, pages: &P) -> u64 {
        if self.is_barred {
            return 0;
        }
        self.limit.min(self.ceiling).saturating_sub(self.overhead_sum(pages))
    }

    /// Nobody grows without asking, and L follows use down: the job is over its limit.
    fn freeze<P: Pages>(&self, pages: &P) {
        let words = self.members.keys().filter_map(|client| pages.words(*client));
        // What is away has nothing to follow, and the room of what comes back is not its use.
        for words in words.filter(|words| words.owed.load() == 0) {
            if let Some(shared) = words.shared {
                reservation::freeze(words.ledger, shared.granted, shared.used);
            }
        }
    }

    fn lower<P: Pages>(&self, pages: &P, member: &Seen, to: u64) {
        if member.ledger <= to || !member.is_reachable {
            return;
        }
        let Some(words) = pages.words(member.client) else {
            return;
        };
        let Some(shared) = words.shared else { return };
        // Busy: the member used it first, and the caller's next look counts that.
        let (Lowered::Done | Lowered::Busy { .. }) = reservation::lower(words.ledger, shared.granted, shared.used, to);
    }

    fn look<P: Pages>(&self, pages: &P, now_ns: u64, except: Option<ClientId>) -> Vec<Seen> {
        let members = self.members.iter().filter(|(client, _)| Some(**client) != except);
        members
            .filter_map(|(client, member)| {
                let words = pages.words(*client)?;
                let ledger = words.ledger.load();
                let is_away = words.owed.load() != 0;
                let Some(shared) = words.shared.filter(|_| !is_away) else {
                    return Some(Seen {
                        client: *client,
                        ledger,
                        floor: ledger,
                        is_moving: false,
                        is_reachable: false,
                        is_away,
                    });
                };
                let is_pinned = member.granted_asks > 0
                    && now_ns < member.pinned_until_ns
                    && shared.settled.load() < member.granted_asks;
                let used = shared.used.load();
                let pin = if is_pinned { member.pin } else { 0 };
                let floor = used.max(pin).min(ledger);
                Some(Seen {
                    client: *client,
                    ledger,
                    floor,
                    is_moving: used > ledger,
                    is_reachable: true,
                    is_away,
                })
            })
            .collect()
    }
}

/// A new broker's first step with a member's words.
fn adopt_words<W: Word>(words: &Words<'_, W>, granted: &W) {
    if words.owed.load() == 0 {
        reservation::adopt(words.ledger, granted);
    } else {
        // It is away, or on its way: its L is no grant.
        granted.store(0);
    }
}
