// SPDX-License-Identifier: Apache-2.0
//! The facts of a job, and every way in which a decision changes them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::Deref;

use partage_protocol::denied::Denied;
use partage_protocol::units::{ClientId, SECOND_NS};

use super::denial::{Reason, both};
use super::life::{Happening, LINGER_NS, Life, REMEMBER_NS};
use super::queued::Queued;
use super::record::{EndedJob, JobRecord, Placement};
use super::slot::Slot;
use super::stop::{End, Stopping};
use crate::caller::{Process, Ticket};
use crate::machine::{Machine, OnSlot};
use crate::residence::Save;
use crate::rules::TotalId;
use crate::shared::Shared;

/// A descendant of a strict job that uses a GPU without attaching is killed this long after it was first seen: the job
/// promises 2 s, and a measurement comes every second at the latest.
pub const STRICT_NS: u64 = SECOND_NS / 2;

/// A job. Everybody reads what is known of it; what changes it is a method.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Job(Shared<Facts>);

/// What is known of a job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Facts {
    pub record: JobRecord,
    pub life: Life,
    /// The totals that it shares by the rules of today, in the order of the file; none of a job that ended. `Jobs`
    /// keeps it, with who shares each.
    pub totals: Vec<TotalId>,
    pub slots: Vec<Slot>,
    pub clients: BTreeSet<ClientId>,
    pub is_first_alive: bool,
    /// A broker before admitted it, by its own rules.
    pub is_adopted: bool,
    /// All its known processes are stopped by a signal.
    pub is_stopped: bool,
    /// What its memory stands at on its way; none while it does not stand.
    pub stuck: Option<String>,
    /// Exit code of its first process, as a shell has it.
    pub exit_code: Option<u32>,
    pub stopping: Option<Stopping>,
    /// When its time limit is over; none without one, and once it was acted on.
    pub time_limit_at_ns: Option<u64>,
    /// Its user was told that the limit is near.
    pub is_time_warned: bool,
    /// Its time limit ends it, or did.
    pub is_over_time: bool,
    pub denied: Denied,
    /// Sentences worth a user's attention, without repetition.
    pub notes: Vec<String>,
    /// Unmanaged descendants by pid, and when each was first seen.
    pub unmanaged: BTreeMap<u32, u64>,
    /// How many there ever were.
    pub strangers_seen: u64,
    /// When and why it ended; of a job that lingers, when its last process was gone.
    pub end: Option<End>,
}

impl Deref for Job {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        &self.0
    }
}

impl Job {
    pub(crate) fn new(record: JobRecord, life: Life) -> Self {
        let is_first_alive = record.first.is_some();
        Self(Shared::new(Facts {
            record,
            life,
            totals: Vec::new(),
            slots: Vec::new(),
            clients: BTreeSet::new(),
            is_first_alive,
            is_adopted: false,
            is_stopped: false,
            stuck: None,
            exit_code: None,
            stopping: None,
            time_limit_at_ns: None,
            is_time_warned: false,
            is_over_time: false,
            denied: Denied::default(),
            notes: Vec::new(),
            unmanaged: BTreeMap::new(),
            strangers_seen: 0,
            end: None,
        }))
    }

    /// A job that another broker admitted, with a slot for each of its devices.
    pub(crate) fn adopted(record: JobRecord, slots: Vec<Slot>, time_limit_at_ns: Option<u64>) -> Self {
        let mut job = Self::new(record, Life::running());
        job.0.is_adopted = true;
        job.0.slots = slots;
        job.0.time_limit_at_ns = time_limit_at_ns;
        job
    }

    /// A job that ended under an earlier broker.
    pub(crate) fn from_remembered(ended: EndedJob, forget_at_ns: u64) -> Self {
        let mut job = Self::new(ended.job, Life::ended(forget_at_ns));
        let facts = &mut *job.0;
        facts.is_first_alive = false;
        facts.notes = ended.notes;
        facts.exit_code = ended.exit_code;
        facts.is_over_time = ended.is_over_time;
        facts.strangers_seen = ended.strangers_seen;
        facts.end = Some(End {
            unix_ns: ended.ended_unix_ns,
            reason: ended.reason,
        });
        for slot in ended.slots {
            facts.denied = both(&facts.denied, &slot.denied);
            facts.slots.push(Slot::remembered(slot));
        }
        job
    }

    /// Takes over what is remembered of this same job, which had announced its end. Precondition: it has its slots.
    pub(crate) fn take_up(&mut self, was: Self) {
        let (facts, was) = (&mut *self.0, was.0.into_inner());
        facts.is_first_alive = false;
        facts.exit_code = was.exit_code;
        facts.denied = was.denied;
        facts.notes = was.notes;
        facts.is_over_time = was.is_over_time;
        facts.strangers_seen = was.strangers_seen;
        facts.end = was.end;
        for (slot, was) in facts.slots.iter_mut().zip(was.slots) {
            slot.take_up(was);
        }
    }

    /// Adds a note once, the newest last; a program that provokes endless different ones pushes out the oldest. Answers
    /// whether it is new.
    pub(crate) fn note(&mut self, what: impl Display) -> bool {
        const NOTES: usize = 20;
        let text = what.to_string();
        let is_new = !self.notes.contains(&text);
        if is_new {
            self.0.notes.push(text);
            if self.notes.len() > NOTES {
                self.0.notes.remove(0);
            }
        }
        is_new
    }

    /// It is admitted to these places; answers its place in the queue and when it asked.
    pub(crate) fn admit(
        &mut self,
        places: &[Placement],
        slots: Vec<Slot>,
        (now_ns, unix_ns): (u64, u64),
    ) -> Option<(Box<Queued>, u64)> {
        let job = &mut *self.0;
        let queued = job.life.admit()?;
        job.time_limit_at_ns = job.record.terms.time_limit_ns.map(|limit| now_ns.saturating_add(limit));
        let asked_unix_ns = job.record.begin(places, unix_ns);
        job.slots = slots;
        Some((queued, asked_unix_ns))
    }

    /// Others used what it was admitted to: it waits again as if nothing had been.
    pub(crate) fn put_back(&mut self, queued: Box<Queued>, asked_unix_ns: u64) {
        let job = &mut *self.0;
        if job.life.put_back(queued) {
            job.record.begin(&[], asked_unix_ns);
            job.time_limit_at_ns = None;
            job.slots.clear();
        }
    }

    /// It is given up while it waits; answers the place in the queue that it leaves.
    pub(crate) fn give_up(self) -> Option<Box<Queued>> {
        self.0.into_inner().life.give_up()
    }

    /// Its place in the queue, to be changed.
    pub(crate) fn queued_mut(&mut self) -> Option<&mut Queued> {
        self.0.life.queued_mut()
    }

    /// It shares these totals; answers those that it shared. For `Jobs`, which keeps who shares each.
    pub(super) fn replace_totals(&mut self, totals: Vec<TotalId>) -> Vec<TotalId> {
        std::mem::replace(&mut self.0.totals, totals)
    }

    /// It has these slots; of a default job, which begins with them.
    pub(crate) fn begin(&mut self, slots: Vec<Slot>) {
        self.0.slots = slots;
    }

    /// Its slots, to be changed.
    pub(crate) fn slots_mut(&mut self) -> impl Iterator<Item = (usize, &mut Slot)> {
        self.0.slots.iter_mut().enumerate()
    }

    /// One of them.
    pub(crate) fn slot_mut(&mut self, slot: usize) -> Option<&mut Slot> {
        self.0.slots.get_mut(slot)
    }

    /// A process of it attached as this client.
    pub(crate) fn add_client(&mut self, client: ClientId, pid: u32) {
        self.0.clients.insert(client);
        self.0.unmanaged.remove(&pid);
    }

    /// A client that is of this process holds on each slot at most what its process may.
    pub(crate) fn limit_client<M: Machine>(
        &mut self,
        (client, process): (ClientId, Process),
        machine: &M,
        now_ns: u64,
    ) {
        let facts = &mut *self.0;
        for (slot, (state, place)) in facts.slots.iter_mut().zip(&facts.record.devices).enumerate() {
            let limit = place.process_limit(process);
            let pages = OnSlot { machine, slot };
            state.ledger_mut().set_own_limit(&pages, client, limit, now_ns);
        }
    }

    /// A client of it is there, or gone.
    pub(crate) fn set_client(&mut self, client: ClientId, is_there: bool) {
        match is_there {
            true => self.0.clients.insert(client),
            false => self.0.clients.remove(&client),
        };
    }

    /// Its first process is gone.
    pub(crate) fn lose_first(&mut self) {
        self.0.is_first_alive = false;
    }

    /// This process of the group that it owns takes the place of its first.
    pub(crate) fn follow(&mut self, process: Process) {
        self.0.is_first_alive = true;
        self.0.record.set_first(process);
    }

    /// How its first process ended; of those that followed it the first one's code stands.
    pub(crate) fn set_exit_code(&mut self, code: u32) {
        self.0.exit_code.get_or_insert(code);
    }

    /// Are all its processes stopped by a signal?
    pub(crate) fn set_stopped(&mut self, is_stopped: bool) {
        if self.is_stopped != is_stopped {
            self.0.is_stopped = is_stopped;
        }
    }

    /// What of it the next broker knows, to be changed.
    pub(crate) fn record_mut(&mut self) -> &mut JobRecord {
        &mut self.0.record
    }

    /// A checkpoint of it is whole. Answers the record to write; none of a job that is over.
    pub(crate) fn note_saved(&mut self, save: Save) -> Option<Box<JobRecord>> {
        if !self.state().holds_memory() {
            return None;
        }
        self.0.record.residence.note_saved(save);
        Some(Box::new(self.0.record.clone()))
    }

    /// Its name from now on; answers whether that is another one.
    pub(crate) fn rename(&mut self, name: Option<String>) -> bool {
        let is_new = self.record.name != name;
        self.0.record.set_name(name);
        is_new
    }

    /// What its memory stands at on its way; none while it does not stand.
    pub(crate) fn set_stuck(&mut self, why: Option<String>) {
        self.0.stuck = why;
    }

    /// When its time limit is over; none without one, or once it was acted on.
    pub(crate) fn set_time_limit_at(&mut self, at_ns: Option<u64>) {
        (self.0.time_limit_at_ns, self.0.is_time_warned) = (at_ns, false);
    }

    /// Its user was told that the limit is near.
    pub(crate) fn set_time_warned(&mut self) {
        self.0.is_time_warned = true;
    }

    /// Its time limit ends it.
    pub(crate) fn set_over_time(&mut self) {
        self.set_time_limit_at(None);
        self.0.is_over_time = true;
    }

    /// It is told to stop, and killed at that instant if it has not: the earliest one counts.
    pub(crate) fn order_stop(&mut self, ticket: Option<Ticket>, kill_at_ns: u64, (reason, by): (String, u32)) {
        let begin = || Stopping::new(kill_at_ns, reason, by);
        self.0.stopping.get_or_insert_with(begin).join(ticket, kill_at_ns, by);
    }

    /// Is it to be killed now? Once; answers in whose name.
    pub(crate) fn take_kill(&mut self, now_ns: u64) -> Option<u32> {
        self.stopping.as_ref().filter(|stopping| stopping.is_due(now_ns))?;
        self.0.stopping.as_mut().map(Stopping::kill)
    }

    /// These were left alone by the last signal.
    pub(crate) fn note_spared(&mut self, processes: &[(u32, String)]) {
        if let Some(stopping) = &mut self.0.stopping {
            stopping.spared = processes.to_vec();
        }
    }

    /// The processes that were left alone by it, and whose they are.
    pub(crate) fn spared(&self) -> Vec<(u32, String)> {
        let stopping = self.stopping.as_ref();
        stopping.map_or_else(Vec::new, |stopping| stopping.spared.clone())
    }

    /// All of it that may be killed was; answers who waited for its end.
    pub(crate) fn give_up_stop(&mut self) -> Vec<Ticket> {
        if !self.stopping.as_ref().is_some_and(|stopping| stopping.is_killed) {
            return Vec::new();
        }
        let over = self.0.stopping.take();
        over.map_or(Vec::new(), |stopping| stopping.tickets)
    }

    /// Nobody waits behind this ticket for its end any more.
    pub(crate) fn forget_ticket(&mut self, ticket: Ticket) {
        let is_awaited = |stopping: &Stopping| stopping.tickets.contains(&ticket);
        if self.stopping.as_ref().is_some_and(is_awaited)
            && let Some(stopping) = &mut self.0.stopping
        {
            stopping.tickets.retain(|other| *other != ticket);
        }
    }

    /// A descendant of it uses a GPU unmanaged; answers whether that is new.
    pub(crate) fn see_unmanaged(&mut self, pid: u32, now_ns: u64) -> bool {
        let is_new = !self.unmanaged.contains_key(&pid);
        if is_new {
            self.0.unmanaged.insert(pid, now_ns);
            self.0.strangers_seen = self.strangers_seen.saturating_add(1);
        }
        is_new
    }

    /// Only these processes are shown on any device.
    pub(crate) fn keep_unmanaged(&mut self, shown: &BTreeSet<u32>) {
        if !self.unmanaged.keys().all(|pid| shown.contains(pid)) {
            self.0.unmanaged.retain(|pid, _| shown.contains(pid));
        }
    }

    /// The unmanaged descendants of a strict job that are to be killed now; again after as long, if they are still
    /// there.
    pub(crate) fn take_strict_kills(&mut self, now_ns: u64) -> Vec<u32> {
        let mut due = Vec::new();
        if !self.record.is_strict || self.unmanaged.is_empty() {
            return due;
        }
        for (pid, since_ns) in &mut self.0.unmanaged {
            if now_ns >= since_ns.saturating_add(STRICT_NS) {
                *since_ns = now_ns;
                due.push(*pid);
            }
        }
        due
    }

    /// Counts denials; answers how many there were for this reason before and how many there are.
    pub(crate) fn count_denials(&mut self, reason: Reason, times: u64) -> (u64, u64) {
        let count = reason.counter(&mut self.0.denied);
        let before = *count;
        *count = before.saturating_add(times);
        (before, *count)
    }

    /// A client was granted memory before it was denied a second time: so many denials were no failure.
    pub(crate) fn recover(&mut self, slot: usize, (pid, times): (u32, u64)) {
        if let Some(place) = self.slot_mut(slot) {
            place.recover(pid, times);
            self.0.denied.recover(times);
        }
    }

    /// Nothing of it is left: it lingers from now on. False where it does so already.
    pub(crate) fn linger(&mut self, now_ns: u64) -> bool {
        self.0.life.linger(now_ns.saturating_add(LINGER_NS))
    }

    /// A process of it is about to come: the time for it begins anew.
    pub(crate) fn linger_on(&mut self, now_ns: u64) {
        self.0.life.linger_on(now_ns.saturating_add(LINGER_NS));
    }

    /// A late process came. False where none was waited for.
    pub(crate) fn resume(&mut self) -> bool {
        let is_back = self.0.life.resume();
        if is_back {
            self.0.end = None;
        }
        is_back
    }

    /// Its end was announced and is no end: clients of it are there.
    pub(crate) fn forget_end(&mut self) {
        self.0.end = None;
    }

    /// Nothing of it runs any more, since then and for this reason, on devices of these indices and models.
    pub(crate) fn announce_end(&mut self, end: End, devices: Vec<Option<(u32, String)>>) {
        self.0.end = Some(end);
        for (slot, was) in self.0.slots.iter_mut().zip(devices) {
            slot.name_device(was);
        }
    }

    /// It ends; answers who waited for that.
    pub(crate) fn finish(&mut self, what: Happening, now_ns: u64) -> Vec<Ticket> {
        self.0.life.end(what, now_ns.saturating_add(REMEMBER_NS));
        self.0.unmanaged.clear();
        self.0.stopping.take().map_or(Vec::new(), |stopping| stopping.tickets)
    }

    /// What a test breaks on purpose.
    #[cfg(test)]
    pub(crate) fn facts_mut(&mut self) -> &mut Facts {
        &mut self.0
    }
}
