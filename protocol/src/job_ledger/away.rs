// SPDX-License-Identifier: Apache-2.0
//! Members whose memory leaves the device, is away, or comes back.
//!
//! ```text
//!   here ── leave: P, G := 0, L := 0, O := 0 ──► away ── make_return: L := P ──► coming ── came_back: O, G, P := 0
//!     ▲                                           ▲ ◄──── leave: the driver refused ──┘                        │
//!     └───────────────────────────────────────────┼────────────────────────────────────────────────────────────┘
//! ```
//! All of it is the engine's, which has the member's threads at the hold and the driver's answer. Each step may be done
//! again by the next broker, from wherever this one died. While P is not 0 the member neither gets slack nor gives any,
//! its asks are put off, and what NVML shows of it is not believed.

use super::{JobLedger, Pages, ROUNDS, Verdict};
use crate::reservation::{self, Word};
use crate::units::ClientId;

impl JobLedger {
    /// Is a member away, on its way off the device or back?
    pub fn is_away<P: Pages>(&self, pages: &P, client: ClientId) -> bool {
        pages.words(client).is_some_and(|words| words.owed.load() != 0)
    }

    /// A member's memory has left the device: what it held goes to its siblings. Answers P, in bytes; 0 for a client
    /// that is no member. Precondition: no thread of it is in the driver, and the driver holds nothing for it.
    pub fn leave<P: Pages>(&mut self, pages: &P, client: ClientId, now_ns: u64) -> u64 {
        let Some(words) = pages.words(client).filter(|_| self.members.contains_key(&client)) else {
            return 0;
        };
        let shared = words.shared.as_ref();
        let (granted, used) = (shared.map(|shared| shared.granted), shared.map(|shared| shared.used));
        let owed = reservation::leave(words.ledger, granted, used, words.overhead, words.owed);
        if let Some(member) = self.members.get_mut(&client) {
            member.pin = 0;
        }
        self.rebalance(pages, now_ns);
        owed
    }

    /// Has the room of a member that is away again, taking slack back from everybody as an ask does: before the driver
    /// restores it. Only [`Verdict::Granted`] changed anything of the member.
    pub fn make_return<P: Pages>(&mut self, pages: &P, client: ClientId, now_ns: u64) -> Verdict {
        let Some(words) = pages.words(client).filter(|_| self.members.contains_key(&client)) else {
            return Verdict::Invalid;
        };
        let growth = words.owed.load().saturating_sub(words.ledger.load());
        let verdict = if growth == 0 {
            Verdict::Granted
        } else {
            self.make_room(pages, growth, now_ns)
        };
        if verdict == Verdict::Granted {
            reservation::return_to(words.ledger, words.owed);
        }
        verdict
    }

    /// Has the room of a member that is away again although the job's limit was lowered below it meanwhile: the books
    /// of the device have the room, and what a job has is never taken from it. Nobody of the job grows then.
    pub fn return_beyond<P: Pages>(&mut self, pages: &P, client: ClientId) {
        if let Some(words) = pages.words(client).filter(|_| self.members.contains_key(&client)) {
            reservation::return_to(words.ledger, words.owed);
        }
    }

    /// The driver has restored a member: it may use what it had, and is like the others again. What P was beyond U is
    /// its overhead until that is measured. Precondition: [`make_return`](Self::make_return) granted it.
    pub fn came_back<P: Pages>(&mut self, pages: &P, client: ClientId, now_ns: u64) {
        let Some(words) = pages.words(client).filter(|_| self.members.contains_key(&client)) else {
            return;
        };
        let shared = words.shared.as_ref();
        let (granted, used) = (shared.map(|shared| shared.granted), shared.map(|shared| shared.used));
        reservation::came_back(words.ledger, granted, used, words.overhead, words.owed);
        self.rebalance(pages, now_ns);
    }

    /// Takes slack back until `growth` more fits beside all L and O. On [`Verdict::Granted`] it does, and the caller
    /// uses it up at once.
    pub(super) fn make_room<P: Pages>(&mut self, pages: &P, growth: u64, now_ns: u64) -> Verdict {
        for _ in 0..ROUNDS {
            if self.is_over(pages) {
                self.rebalance(pages, now_ns);
            }
            let members = self.look(pages, now_ns, None);
            let floors: u128 = members.iter().map(|member| u128::from(member.floor)).sum();
            let total = floors + u128::from(growth);
            let Some(rest) = u128::from(self.effective(pages)).checked_sub(total) else {
                if members.iter().any(|member| member.is_moving) {
                    return Verdict::Retry;
                }
                return self.denial(pages, total);
            };
            let slack = rest as u64 / (members.len() as u64).max(1);
            for member in &members {
                self.lower(pages, member, member.floor.saturating_add(slack));
            }
            if self.granted_sum(pages).saturating_add(growth) <= self.effective(pages) {
                return Verdict::Granted;
            }
        }
        Verdict::Retry
    }
}
