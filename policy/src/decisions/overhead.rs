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
use partage_protocol::units::{ClientId, DeviceUuid, SECOND_NS};

use super::Policy;
use super::evidence::Evidence;
use crate::client::Presence;
use crate::command::Action;
use crate::device::{Gauge, Measuring, Member, Seen};
use crate::job::Job;
use crate::machine::{Machine, OnSlot, overhead_of};

/// A client that was not quiet for this long is shown as unaudited, and judged by the least that it can hold.
pub const UNAUDITED_NS: u64 = 5 * SECOND_NS;
/// Looks that it waits for a quiet one.
const LOOKS: u32 = 3;

impl Policy {
    /// Clients of live jobs on a device, by pid. Those whose process ended are left out: what they hold is charged as
    /// it stands until it is gone.
    pub(crate) fn members_on(&self, device: DeviceUuid) -> BTreeMap<u32, Vec<Member>> {
        let mut by_pid: BTreeMap<u32, Vec<Member>> = BTreeMap::new();
        for job in self.jobs.values().filter(|job| job.state().holds_memory()) {
            let Some(slot) = job.slot_of(device) else { continue };
            for client in &job.clients {
                let Some(known) = self.clients.get(client) else {
                    continue;
                };
                if !known.is_nvml_only && known.presence != Presence::Dying {
                    let member = Member {
                        job: job.id(),
                        client: *client,
                        slot,
                    };
                    by_pid.entry(known.process.pid).or_default().push(member);
                }
            }
        }
        by_pid
    }

    /// A look at the device is about to begin: what its clients say now belongs to it.
    pub(crate) fn asking<M: Machine>(&mut self, device: DeviceUuid, machine: &M) {
        for member in self.members_on(device).into_values().flatten() {
            self.gauge(member, machine).before = machine.reading(member.client, member.slot);
        }
        for waiting in self.measures.iter_mut().filter(|waiting| waiting.device == device) {
            waiting.is_covered = true;
        }
    }

    pub(crate) fn gauge<M: Machine>(&mut self, member: Member, machine: &M) -> &mut Gauge {
        self.gauges
            .entry((member.client, member.slot))
            .or_insert_with(|| Gauge {
                // What the broker before knew.
                measured: overhead_of(machine, member.client, member.slot),
                ..Gauge::default()
            })
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
        let answered = |waiting: &Measuring| waiting.device == device && waiting.is_covered;
        for mut waiting in self
            .measures
            .extract_if(.., |waiting| answered(waiting))
            .collect::<Vec<_>>()
        {
            waiting.looks += 1;
            match seen.get(&waiting.client) {
                Some(Seen::Busy(_)) if waiting.looks < LOOKS => {
                    waiting.is_covered = false;
                    self.measures.push(waiting);
                    self.command(
                        Action::Look(device),
                        "the client was not quiet: its overhead is looked at again",
                    );
                }
                Some(Seen::Busy(estimate)) => {
                    if let Some(gauge) = self.gauges.get_mut(&(waiting.client, waiting.slot)) {
                        gauge.measured = gauge.measured.max(*estimate);
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

    /// One process: what the look says of its overhead. Several clients of one process share one figure of NVML; the
    /// newest of them, which is the one that lives, carries the overhead.
    fn compare<M: Machine>(
        &mut self,
        device: DeviceUuid,
        pid: u32,
        members: &[Member],
        machine: &M,
        now_ns: u64,
    ) -> Seen {
        let measured = self.devices.get(&device).and_then(|device| device.measured.as_ref());
        let listed = measured.and_then(|measured| measured.processes.iter().find(|process| process.pid == pid));
        let is_listed = listed.is_some();
        // A process without a context is not listed and holds nothing.
        let shown = listed.map_or(Some(0), |process| process.bytes);
        let mut was_listed = is_listed;
        let mut readings = Vec::new();
        let (mut is_quiet, mut charged, mut charged_most) = (true, 0u64, 0u64);
        for member in members {
            let ledger = machine
                .words(member.client, member.slot)
                .map_or(0, |words| words.ledger.load());
            let now = machine.reading(member.client, member.slot);
            let gauge = self.gauge(*member, machine);
            gauge.is_unmeasured = shown.is_none();
            gauge.was_listed |= is_listed;
            was_listed |= gauge.was_listed;
            let before = gauge.before.take();
            let Some(now) = now else { return Seen::Nothing };
            is_quiet &= before == Some(now) && now.is_at_rest();
            readings.push(now);
            let most = now
                .charged(ledger)
                .max(before.map_or(0, |before| before.charged(ledger)));
            charged = charged.saturating_add(now.charged(ledger));
            charged_most = charged_most.saturating_add(most);
        }
        let evidence = Evidence {
            pid,
            members,
            readings: &readings,
            // NVML may not know this pid at all (another pid namespace): only one that it listed can be missing.
            shown: shown.filter(|_| was_listed),
            is_quiet,
        };
        self.audit(&evidence, machine, now_ns);
        for (member, reading) in members.iter().zip(&readings) {
            self.gauge(*member, machine).last = Some(*reading);
        }
        if is_quiet && !was_listed && charged > 0 {
            for member in members {
                self.gauge(*member, machine).is_unmeasured = true;
            }
        }
        let Some(shown) = shown else { return Seen::Nothing };
        let Some(newest) = members.last().map(|member| (member.client, member.slot)) else {
            return Seen::Nothing;
        };
        let least = shown.saturating_sub(charged_most);
        for member in members {
            let at = (member.client, member.slot);
            let Some(gauge) = self.gauges.get_mut(&at) else {
                continue;
            };
            let is_newest = at == newest;
            if is_quiet {
                gauge.busy_since_ns = None;
                gauge.is_unaudited = false;
                gauge.measured = if is_newest { shown.saturating_sub(charged) } else { 0 };
                continue;
            }
            let since_ns = *gauge.busy_since_ns.get_or_insert_with(|| {
                gauge.least = u64::MAX;
                now_ns
            });
            gauge.least = gauge.least.min(least);
            if now_ns >= since_ns.saturating_add(UNAUDITED_NS) {
                gauge.is_unaudited = true;
                if is_newest {
                    gauge.measured = gauge.measured.max(gauge.least);
                }
                // The next five seconds are judged for themselves.
                gauge.busy_since_ns = None;
            }
        }
        if is_quiet { Seen::Quiet } else { Seen::Busy(least) }
    }

    /// Writes a client's overhead where it counts, if it changed.
    pub(crate) fn write_overhead<M: Machine>(&mut self, member: Member, machine: &M, now_ns: u64) {
        let Member { job, client, slot } = member;
        let bytes = self.gauge(member, machine).overhead();
        if overhead_of(machine, client, slot) == bytes {
            return;
        }
        if let Some(state) = self.jobs.get_mut(&job).and_then(|job| job.slot_mut(slot)) {
            let pages = OnSlot { machine, slot };
            state.ledger_mut().set_overhead(&pages, client, bytes, now_ns);
        }
        self.note_peaks(job, machine);
        self.show_overheads(client, machine);
    }

    /// Shows a client its overhead on every slot.
    pub(crate) fn show_overheads<M: Machine>(&mut self, client: ClientId, machine: &M) {
        let job = self.clients.get(&client).and_then(|known| self.jobs.get(&known.job));
        let slots = job.map_or(0, |job| job.slots.len());
        let overheads = (0..slots).map(|slot| overhead_of(machine, client, slot)).collect();
        let action = Action::ShowOverheads { client, overheads };
        self.command(action, "what the driver holds beyond the client's charges was measured");
    }

    /// A client is gone, and what was known of it.
    pub(crate) fn forget_overheads(&mut self, client: ClientId) {
        self.measures.retain(|waiting| waiting.client != client);
        self.gauges.retain(|(other, _), _| *other != client);
    }

    /// What a job's owner should know of how its overhead is measured.
    pub(crate) fn overhead_notes(&self, job: &Job) -> Vec<String> {
        let mut notes = Vec::new();
        for client in &job.clients {
            let Some(pid) = self.clients.get(client).map(|client| client.process.pid) else {
                continue;
            };
            for (slot, _) in job.slots.iter().enumerate() {
                let Some(gauge) = self.gauges.get(&(*client, slot)) else {
                    continue;
                };
                if gauge.is_unmeasured {
                    notes.push(format!(
                        "pid {pid}: overhead is not measured on device {slot}, because NVML shows no memory for the process"
                    ));
                } else if gauge.is_unaudited {
                    notes.push(format!(
                        "pid {pid} is unaudited on device {slot}: it allocated whenever the device was looked at"
                    ));
                }
            }
        }
        notes
    }
}
