// SPDX-License-Identifier: Apache-2.0
//! What the driver holds for clients beyond what their calls charged: measured, announced, and kept within the limit.
//!
//! Terms: *charged*, min(U, L) of a client less its managed part, the bytes that the driver should hold for it;
//! *shown*, what NVML lists for its process; *overhead* (O), shown less charged, never below 0; *reading*, the words of
//! a client's page at one instant; *at rest*, a reading between two operations; *quiet*, the same reading, at rest,
//! before a poll began and after it answered; only such a pair can be compared.
//!
//! ```text
//!   look asked for ─► reading ─► NVML's answer ─► reading: quiet?  yes ─► O := shown - charged
//!                                                                  no  ─► O stays; after 5 s: unaudited, and O is at
//!                                                                         least what every reading since then shows
//! ```
//! A context is announced before it is made and measured afterwards. An announcement holds what contexts have cost on
//! this device, so that two processes at the edge of their limit cannot both make one.
//!
//! Whatever a client writes, its job is charged with at least what NVML shows: a charge that the client hides comes
//! back as overhead, and an invented one counts up to its grant.

use std::collections::BTreeMap;

use partage_protocol::reservation::Word;
use partage_protocol::units::{ClientId, DeviceUuid};

use super::Policy;
use crate::action::Action;
use crate::books::seen::evidence::Evidence;
use crate::device::{Member, Seen};
use crate::machine::{Machine, OnSlot, Reading, overhead_of};

/// Looks that it waits for a quiet one.
const LOOKS: u32 = 3;

/// What the clients of one process say as a look comes.
struct Said {
    /// In the order of the clients.
    readings: Vec<Reading>,
    /// All of them are quiet.
    is_quiet: bool,
    charged: u64,
    /// The more of what was charged before the look and after it.
    charged_most: u64,
    /// NVML has listed the process at some time.
    was_listed: bool,
}

impl Policy {
    /// A look at the device is about to begin: what its clients say now belongs to it.
    pub(crate) fn asking<M: Machine>(&mut self, device: DeviceUuid, machine: &M) {
        for member in self.members_on(device).into_values().flatten() {
            let reading = machine.reading(member.client, member.slot);
            self.books.overheads.of(member, machine).note_before(reading);
        }
        self.books.overheads.cover(device);
    }

    /// A look came: compares what NVML shows for each client's process with what the client charged.
    pub(crate) fn take_overheads<M: Machine>(&mut self, device: DeviceUuid, machine: &M, now_ns: u64) {
        let mut seen: BTreeMap<ClientId, Seen> = BTreeMap::new();
        for (pid, members) in self.members_on(device) {
            let what = self.compare(device, pid, &members, machine, now_ns);
            for member in members {
                seen.insert(member.client, what);
                self.write_overhead(member, machine, now_ns);
            }
        }
        for waiting in self.books.overheads.take_answered(device) {
            match seen.get(&waiting.client) {
                Some(Seen::Busy(_)) if waiting.polls() < LOOKS => {
                    self.books.overheads.wait_on(waiting);
                    self.act(Action::Look(device));
                }
                Some(Seen::Busy(estimate)) => {
                    if let Some(state) = self.books.overheads.get_mut(waiting.client, waiting.slot) {
                        state.estimate(*estimate);
                    }
                    self.finish_measuring(&waiting, Seen::Busy(*estimate), machine, now_ns);
                }
                seen => {
                    let seen = seen.copied().unwrap_or(Seen::Nothing);
                    self.finish_measuring(&waiting, seen, machine, now_ns);
                }
            }
        }
    }

    /// One process: what the look says of its overhead.
    fn compare<M: Machine>(
        &mut self,
        device: DeviceUuid,
        pid: u32,
        members: &[Member],
        machine: &M,
        now_ns: u64,
    ) -> Seen {
        let measured = self.books.measured(device);
        let listed = measured.and_then(|measured| measured.processes.iter().find(|process| process.pid == pid));
        // A process without a context is not listed and holds nothing.
        let shown = listed.map_or(Some(0), |process| process.bytes);
        let Some(said) = self.take_readings(members, listed.is_some(), shown.is_some(), machine) else {
            return Seen::Nothing;
        };
        let evidence = Evidence {
            pid,
            members,
            readings: &said.readings,
            // NVML may not know this pid at all (another pid namespace): only one that it listed can be missing.
            shown: shown.filter(|_| said.was_listed),
            is_quiet: said.is_quiet,
        };
        self.audit(&evidence, machine, now_ns);
        let is_unmeasured = said.is_quiet && !said.was_listed && said.charged > 0;
        for (member, reading) in members.iter().zip(&said.readings) {
            let state = self.books.overheads.of(*member, machine);
            state.note_last(*reading);
            if is_unmeasured {
                state.note_unmeasured();
            }
        }
        shown.map_or(Seen::Nothing, |shown| self.note_overhead(members, &said, shown, now_ns))
    }

    /// What the clients of one process say as a look comes; none where the pages of one are not reachable.
    fn take_readings<M: Machine>(
        &mut self,
        members: &[Member],
        is_listed: bool,
        has_bytes: bool,
        machine: &M,
    ) -> Option<Said> {
        let mut said = Said {
            readings: Vec::new(),
            is_quiet: true,
            charged: 0,
            charged_most: 0,
            was_listed: is_listed,
        };
        for member in members {
            let ledger = machine
                .words(member.client, member.slot)
                .map_or(0, |words| words.ledger.load());
            let now = machine.reading(member.client, member.slot);
            let state = self.books.overheads.of(*member, machine);
            let before = state.take_poll(is_listed, has_bytes);
            said.was_listed |= state.was_listed();
            let now = now?;
            said.is_quiet &= before == Some(now) && now.is_at_rest();
            said.readings.push(now);
            let charged = now.charged(ledger);
            let most = charged.max(before.map_or(0, |before| before.charged(ledger)));
            said.charged = said.charged.saturating_add(charged);
            said.charged_most = said.charged_most.saturating_add(most);
        }
        Some(said)
    }

    /// Keeps what a look says of a process's overhead. Several clients of one process share one figure of NVML; the
    /// newest of them, which is the one that lives, carries the overhead.
    fn note_overhead(&mut self, members: &[Member], said: &Said, shown: u64, now_ns: u64) -> Seen {
        let Some(newest) = members.last() else {
            return Seen::Nothing;
        };
        let least = shown.saturating_sub(said.charged_most);
        for member in members {
            let Some(state) = self.books.overheads.get_mut(member.client, member.slot) else {
                continue;
            };
            let is_newest = member == newest;
            if said.is_quiet {
                state.take_quiet(if is_newest {
                    shown.saturating_sub(said.charged)
                } else {
                    0
                });
            } else {
                state.take_busy(least, is_newest, now_ns);
            }
        }
        if said.is_quiet { Seen::Quiet } else { Seen::Busy(least) }
    }

    /// Writes a client's overhead where it counts, if it changed.
    pub(crate) fn write_overhead<M: Machine>(&mut self, member: Member, machine: &M, now_ns: u64) {
        let Member { job, client, slot } = member;
        let bytes = self.books.overheads.of(member, machine).overhead();
        if overhead_of(machine, client, slot) == bytes {
            return;
        }
        if let Some(state) = self.books.jobs.get_mut(&job).and_then(|job| job.slot_mut(slot)) {
            let pages = OnSlot { machine, slot };
            state.ledger_mut().set_overhead(&pages, client, bytes, now_ns);
        }
        self.note_peaks(job, machine);
        self.show_overheads(client, machine);
    }

    /// Shows a client its overhead on every slot.
    pub(crate) fn show_overheads<M: Machine>(&mut self, client: ClientId, machine: &M) {
        let job = self
            .books
            .clients
            .get(&client)
            .and_then(|known| self.books.jobs.get(&known.job));
        let slots = job.map_or(0, |job| job.slots.len());
        let overheads = (0..slots).map(|slot| overhead_of(machine, client, slot)).collect();
        let action = Action::ShowOverheads { client, overheads };
        self.act(action);
    }
}
