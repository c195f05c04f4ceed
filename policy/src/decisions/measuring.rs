// SPDX-License-Identifier: Apache-2.0
//! Contexts, modules and heaps: the library announces them, the broker measures them afterwards and judges what they
//! took.

use partage_protocol::job_ledger::Verdict;
use partage_protocol::message::{
    MEASURE_AFTER, MEASURE_BEFORE, MEASURE_ENDED, MEASURE_KEPT_NS, VERDICT_CARD_FULL, VERDICT_GRANTED, VERDICT_INVALID,
    VERDICT_LIMIT, VERDICT_PROCESS_LIMIT,
};
use partage_protocol::units::{ClientId, DeviceUuid, SECOND_NS};

use super::Policy;
use super::said::Said;
use super::undecided::Asked;
use crate::action::Action;
use crate::books::room::headroom::held_by;
use crate::device::{Device, DeviceState, Measured, Measuring, Member, Seen};
use crate::job::{Reason, Short};
use crate::machine::{Machine, OnSlot};
use crate::question::{AskedAt, Question};

/// Longest time that a `MEASURE_AFTER` waits for its answer.
pub const MEASURE_NS: u64 = 2 * SECOND_NS;
/// Measurements of one client that wait at a time; a library has one.
const WAITING: usize = 16;

impl Policy {
    /// A client's `Measure`.
    pub(crate) fn measure_client<M: Machine>(
        &mut self,
        (client, slot, sequence): (ClientId, usize, u32),
        stage: u32,
        machine: &M,
        now_ns: u64,
    ) {
        let job = self.books.clients.get(&client).map(|known| known.job);
        let device = job.and_then(|job| Some((job, self.slot_device(job, slot)?.0)));
        let Some((job, device)) = device else {
            return self.answer_invalid(client, slot, sequence);
        };
        let member = Member { job, client, slot };
        self.books.overheads.of(member, machine).explain(now_ns);
        match stage {
            MEASURE_BEFORE => self.announce((client, slot, sequence), AskedAt::now(now_ns), machine, now_ns),
            MEASURE_AFTER => self.begin_measuring(member, device, (sequence, Measured::Made), machine, now_ns),
            MEASURE_ENDED => self.begin_measuring(member, device, (sequence, Measured::Ended), machine, now_ns),
            _ => self.answer_invalid(client, slot, sequence),
        }
    }

    /// Holds what a context has cost on this device for one that is about to be made.
    pub(crate) fn announce<M: Machine>(
        &mut self,
        (client, slot, sequence): (ClientId, usize, u32),
        at: AskedAt,
        machine: &M,
        now_ns: u64,
    ) {
        let job = self.books.clients.get(&client).map(|known| known.job);
        let device = job.and_then(|job| Some((job, self.slot_device(job, slot)?.0)));
        let Some((job, device)) = device else {
            return self.answer_invalid(client, slot, sequence);
        };
        let member = Member { job, client, slot };
        let each = self.learned_of(job, device);
        let state = self.books.overheads.of(member, machine);
        let base = state.measured();
        let announced = state.one_more(each, now_ns.saturating_add(MEASURE_KEPT_NS));
        let floor = announced.floor();
        let pages = OnSlot { machine, slot };
        let reserve = |policy: &mut Self| {
            let state = policy.books.jobs.get_mut(&job).and_then(|job| job.slot_mut(slot));
            state.map_or(Verdict::Invalid, |state| {
                state.ledger_mut().reserve_overhead(&pages, client, floor, now_ns)
            })
        };
        let (mut verdict, mut short) = (reserve(self), Short::Card);
        if let Verdict::CardFull { short_by } = verdict
            && let Some((device, ceiling)) = self.slot_device(job, slot)
        {
            match self.grow_ceiling(job, device, ceiling.saturating_add(short_by), machine, now_ns) {
                Ok(()) => verdict = reserve(self),
                Err(why) => short = why,
            }
        }
        let question = Question::Announcement { slot, sequence };
        let asked = Asked {
            job,
            slot,
            more: floor.saturating_sub(base),
            at,
        };
        if self.keep_undecided((client, question), asked, verdict, machine, now_ns) {
            return;
        }
        let code = match verdict {
            Verdict::Granted => {
                self.books.overheads.of(member, machine).announce(announced);
                self.show_overheads(client, machine);
                VERDICT_GRANTED
            }
            // A sibling moved all the time: the measurement afterwards decides.
            Verdict::Retry => VERDICT_GRANTED,
            Verdict::Limit => VERDICT_LIMIT,
            Verdict::ProcessLimit => VERDICT_PROCESS_LIMIT,
            Verdict::CardFull { .. } => VERDICT_CARD_FULL,
            Verdict::Invalid => VERDICT_INVALID,
        };
        let mut said = Said::verdict(code);
        if matches!(code, VERDICT_LIMIT | VERDICT_PROCESS_LIMIT | VERDICT_CARD_FULL) {
            let bytes = floor.saturating_sub(base);
            said = Said::denial(code, each, self.unfreed(job, slot, bytes, machine));
            let why = Reason::of_overhead(code, short);
            self.deny(job, slot, (client, bytes, 1), why, machine, now_ns);
        }
        self.answer_usage((client, slot, sequence), said, machine);
    }

    fn begin_measuring<M: Machine>(
        &mut self,
        member: Member,
        device: DeviceUuid,
        (sequence, what): (u32, Measured),
        machine: &M,
        now_ns: u64,
    ) {
        let Member { client, slot, .. } = member;
        let baseline = self.books.overheads.of(member, machine).baseline();
        let until_ns = now_ns.saturating_add(MEASURE_NS);
        let waiting = Measuring::new((client, slot, sequence), what, device, baseline, until_ns);
        let is_lost = |device: &Device| device.state == DeviceState::Lost;
        let of_client = self.books.overheads.waiting_of(client);
        if self.books.devices.get(&device).is_none_or(is_lost) || of_client >= WAITING {
            return self.finish_measuring(&waiting, Seen::Nothing, machine, now_ns);
        }
        self.books.overheads.wait(waiting);
        self.act(Action::Look(device));
    }

    /// Answers a `MEASURE_AFTER` or a `MEASURE_ENDED`: by what was measured, or that nothing could be.
    pub(crate) fn finish_measuring<M: Machine>(&mut self, waiting: &Measuring, seen: Seen, machine: &M, now_ns: u64) {
        let Measuring {
            client, slot, device, ..
        } = *waiting;
        let Some(job) = self.books.clients.get(&client).map(|known| known.job) else {
            return;
        };
        let member = Member { job, client, slot };
        let state = self.books.overheads.of(member, machine);
        let is_made = waiting.what == Measured::Made;
        if is_made && waiting.judged().is_none() {
            state.settle_announced();
        }
        let measured = state.measured();
        self.write_overhead(member, machine, now_ns);
        let (mut verdict, mut short) = (VERDICT_GRANTED, Short::Card);
        // While clients of the broker before are awaited nothing is judged: their whole grants count as used.
        if is_made && seen != Seen::Nothing && !self.is_adopting(device) {
            (verdict, short) = self.judge_overhead(member, machine, now_ns);
        }
        if matches!(verdict, VERDICT_LIMIT | VERDICT_CARD_FULL)
            && now_ns < waiting.until_ns
            && self.fits_once_gone(&self.soon_gone(now_ns), (job, slot, 0), machine)
        {
            self.books.overheads.wait_on(waiting.judged_as(seen));
            return self.act(Action::Look(device));
        }
        if is_made && seen == Seen::Quiet && waiting.baseline == 0 {
            let uid = self.books.jobs.get(&job).map_or(0, |job| job.record.uid);
            if let Some(known) = self.books.devices.get_mut(&device) {
                known.learn(uid, measured);
            }
        }
        let grown = measured.saturating_sub(waiting.baseline);
        let mut said = Said::verdict(verdict);
        if verdict != VERDICT_GRANTED {
            said = Said::denial(verdict, grown, self.unfreed(job, slot, 0, machine));
            let why = Reason::of_overhead(verdict, short);
            self.deny(job, slot, (client, grown, 1), why, machine, now_ns);
        }
        self.answer_usage((client, slot, waiting.sequence), said, machine);
    }

    /// Is what the process and its job use now within their limits, and within what the card has room for?
    fn judge_overhead<M: Machine>(&mut self, member: Member, machine: &M, now_ns: u64) -> (u32, Short) {
        let Member { job, client, slot } = member;
        let Some(ledger) = self.books.ledger(job, slot) else {
            return (VERDICT_GRANTED, Short::Card);
        };
        let own = ledger.own_limit(client);
        if own.is_some_and(|own| held_by(machine, client, slot) > own) {
            return (VERDICT_PROCESS_LIMIT, Short::Card);
        }
        let used = ledger.used_sum(&OnSlot { machine, slot });
        if used > ledger.limit() {
            return (VERDICT_LIMIT, Short::Card);
        }
        let grown = match self.slot_device(job, slot) {
            Some((device, ceiling)) if used > ceiling => self.grow_ceiling(job, device, used, machine, now_ns),
            _ => Ok(()),
        };
        match grown {
            Ok(()) => (VERDICT_GRANTED, Short::Card),
            Err(short) => (VERDICT_CARD_FULL, short),
        }
    }

    /// Measurements that waited long enough, and announcements that nobody measured.
    pub(crate) fn expire_overheads<M: Machine>(&mut self, machine: &M, now_ns: u64) {
        for late in self.books.overheads.take_late(now_ns) {
            self.finish_measuring(&late, late.judged().unwrap_or(Seen::Nothing), machine, now_ns);
        }
        for (client, slot) in self.books.overheads.drop_old_announcements(now_ns) {
            if let Some(job) = self.books.clients.get(&client).map(|known| known.job) {
                self.write_overhead(Member { job, client, slot }, machine, now_ns);
            }
        }
    }
}
