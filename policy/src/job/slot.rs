// SPDX-License-Identifier: Apache-2.0
//! One device of a job: its books there, and what is remembered of their use.

use std::ops::Deref;

use partage_protocol::denied::Denied;
use partage_protocol::job_ledger::JobLedger;

use super::denial::{Denial, Reason};
use super::record::EndedSlot;
use crate::machine::{Machine, OnSlot};

/// One device of a job. Everybody reads what is known of it; what changes it is a method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot(SlotFacts);

/// What is known of one device of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotFacts {
    pub ledger: JobLedger,
    pub peak: u64,
    pub denied: Denied,
    pub last_denial: Option<Denial>,
    /// The one before it: the last, once that turns out to be no failure.
    pub denial_before: Option<Denial>,
    /// The limit was set below use, which has not fallen since.
    pub is_lowered: bool,
    /// The highest limit that it ever had: nothing beyond was ever granted.
    pub highest_limit: u64,
    /// Index and model of its device when the job ended.
    pub was: Option<(u32, String)>,
}

impl Deref for Slot {
    type Target = SlotFacts;

    fn deref(&self) -> &SlotFacts {
        &self.0
    }
}

impl Slot {
    pub(crate) fn new(ledger: JobLedger) -> Self {
        Self(SlotFacts {
            highest_limit: ledger.limit(),
            ledger,
            peak: 0,
            denied: Denied::default(),
            last_denial: None,
            denial_before: None,
            is_lowered: false,
            was: None,
        })
    }

    /// Of a job that another broker admitted, whose clients hold so much, and have so much to get back.
    pub(crate) fn adopted(ledger: JobLedger, held: u64, owed: u64) -> Self {
        let mut slot = Self::new(ledger);
        slot.0.peak = owed;
        slot.0.highest_limit = slot.0.highest_limit.max(held);
        slot
    }

    /// Of a job that ended.
    pub(crate) fn remembered(ended: EndedSlot) -> Self {
        let mut slot = Self::new(JobLedger::new(0, 0));
        slot.0.peak = ended.peak;
        slot.0.denied = ended.denied;
        slot.0.last_denial = ended.last_denial;
        slot.0.was = ended.index.map(|index| (index, ended.model));
        slot
    }

    /// Takes over what is remembered of the same slot; the books stay.
    pub(crate) fn take_up(&mut self, was: Self) {
        let highest_limit = self.0.highest_limit;
        let ledger = std::mem::replace(&mut self.0.ledger, JobLedger::new(0, 0));
        self.0 = SlotFacts {
            ledger,
            highest_limit,
            ..was.0
        };
    }

    /// The books, to be changed; a limit is set by [`Slot::set_limit`].
    pub(crate) fn ledger_mut(&mut self) -> &mut JobLedger {
        &mut self.0.ledger
    }

    /// Sets the limit and how much of it the card has room for.
    pub(crate) fn set_limit<M: Machine>(&mut self, pages: &OnSlot<'_, M>, limit: u64, ceiling: u64, now_ns: u64) {
        self.0.highest_limit = self.0.highest_limit.max(limit);
        self.0.ledger.set_limit(pages, limit, ceiling, now_ns);
    }

    /// What is granted may be more than any limit that this broker knows of.
    pub(crate) fn note_granted<M: Machine>(&mut self, pages: &OnSlot<'_, M>) {
        self.0.highest_limit = self.highest_limit.max(self.ledger.granted_sum(pages));
    }

    /// The limit was set: is it below what is in use?
    pub(crate) fn note_lowered<M: Machine>(&mut self, pages: &OnSlot<'_, M>) {
        self.0.is_lowered |= self.ledger.used_sum(pages) > self.ledger.limit();
    }

    /// Of a job over its limit, or a process over its own, takes what it has freed.
    pub(crate) fn follow_falling_use<M: Machine>(&mut self, pages: &OnSlot<'_, M>, now_ns: u64) {
        self.0.is_lowered &= self.ledger.used_sum(pages) > self.ledger.limit();
        if self.ledger.is_over(pages) || self.ledger.is_any_beyond_own(pages) {
            self.0.ledger.rebalance(pages, now_ns);
        }
    }

    /// Remembers the highest use, as far as it is said: of a client whose pages did not come back yet the ledger knows
    /// only what it may use.
    pub(crate) fn note_peak<M: Machine>(&mut self, pages: &OnSlot<'_, M>) {
        self.0.peak = self.peak.max(self.ledger.said_sum(pages));
    }

    /// Counts denials.
    pub(crate) fn count_denials(&mut self, reason: Reason, times: u64) {
        let here = reason.counter(&mut self.0.denied);
        *here = here.saturating_add(times);
    }

    /// Remembers the last one.
    pub(crate) fn remember_denial(&mut self, denial: Denial) {
        self.0.denial_before = self.0.last_denial.replace(denial);
    }

    /// The last so many denials of a process were no failure.
    pub(crate) fn recover(&mut self, pid: u32, times: u64) {
        self.0.denied.recover(times);
        let mut left = times;
        let mut is_failure = |denial: &Denial| {
            let is_recovered = denial.pid == pid && left > 0;
            left -= u64::from(is_recovered);
            !is_recovered
        };
        let last = self.0.last_denial.take().filter(&mut is_failure);
        let before = self.0.denial_before.take().filter(&mut is_failure);
        (self.0.last_denial, self.0.denial_before) = match last {
            Some(last) => (Some(last), before),
            None => (before, None),
        };
    }

    /// Remembers what its device was.
    pub(crate) fn name_device(&mut self, was: Option<(u32, String)>) {
        if was.is_some() {
            self.0.was = was;
        }
    }

    /// What is to be remembered of it.
    pub(crate) fn to_remember(&self) -> EndedSlot {
        EndedSlot {
            peak: self.peak,
            denied: self.denied,
            last_denial: self.last_denial.clone(),
            index: self.was.as_ref().map(|(index, _)| *index),
            model: self.was.as_ref().map(|(_, model)| model.clone()).unwrap_or_default(),
        }
    }
}
