// SPDX-License-Identifier: Apache-2.0
//! What the driver holds for clients beyond what their calls charged: measured, announced, and kept within the limit.
//!
//! Terms: *charged*, min(U, L) of a client less its managed part, the bytes that the driver should hold for it; *shown*,
//! what NVML lists for its process; *overhead* (O), shown less charged, never below 0; *reading*, the words of a
//! client's page at one instant; *at rest*, a reading between two operations; *quiet*, the same reading at rest before
//! a look was asked for and after its answer came: only then do the two belong together.
//!
//! ```text
//!   look asked for ─► reading ─► NVML's answer ─► reading: quiet?  yes ─► O := shown - charged
//!                                                                  no  ─► O stays; after 5 s: unaudited, and O is at
//!                                                                         least what every reading since then shows
//! ```
//! A context is announced before it is made and measured afterwards. An announcement holds what contexts have cost on
//! this device, so that two processes at the edge of their limit cannot both make one.
//!
//! Whatever a client writes, its job is charged with at least what NVML shows: a charge that it denies comes back as
//! overhead, and one that it invents counts up to its grant.

use std::collections::BTreeMap;

use partage_protocol::job_ledger::Verdict;
use partage_protocol::message::{
    MEASURE_AFTER, MEASURE_BEFORE, MEASURE_KEPT_NS, VERDICT_CARD_FULL, VERDICT_GRANTED, VERDICT_INVALID, VERDICT_LIMIT,
};
use partage_protocol::reservation::Word;
use partage_protocol::units::{ClientId, DeviceUuid, JobId, SECOND_NS};

use crate::audit::{Drift, Evidence};
use crate::command::Action;
use crate::denials::Reason;
use crate::device::DeviceState;
use crate::job::Presence;
use crate::policy::{Machine, OnSlot, Policy};

/// A client that was not quiet for this long is shown as unaudited, and judged by the least that it can hold.
pub const UNAUDITED_NS: u64 = 5 * SECOND_NS;
/// Longest time that a `MEASURE_AFTER` waits for its answer.
pub const MEASURE_NS: u64 = 2 * SECOND_NS;
/// Looks that it waits for a quiet one.
const LOOKS: u32 = 3;
/// Measurements of one client that wait at a time; a library has one.
const WAITING: usize = 16;

/// What a client's page says of one slot at an instant: hints, like all that a client writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reading {
    /// **U**.
    pub used: u64,
    /// The part of it that need not be on the device.
    pub managed: u64,
    /// Operations that began.
    pub started: u64,
    /// Operations that ended.
    pub finished: u64,
}

impl Reading {
    /// Is no operation between its driver call and its entry in the ledger?
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.started == self.finished
    }

    /// Bytes that the driver should hold for it: no more than it was granted, less what need not be on the device.
    #[must_use]
    pub fn charged(&self, ledger: u64) -> u64 {
        self.used.min(ledger).saturating_sub(self.managed)
    }
}

/// What is known of one client on one slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gauge {
    /// The reading when the look that is under way was asked for.
    before: Option<Reading>,
    /// O as last measured, without what is announced.
    measured: u64,
    announced: Option<Announced>,
    /// Since when no reading was quiet.
    busy_since_ns: Option<u64>,
    /// The least overhead that the readings since then allow.
    least: u64,
    /// Not quiet for [`UNAUDITED_NS`].
    pub is_unaudited: bool,
    /// NVML lists the process without its bytes, or does not know it by this pid although it holds memory.
    pub is_unmeasured: bool,
    /// NVML has listed the process at some time.
    was_listed: bool,
    /// What it said last.
    pub last: Option<Reading>,
    /// It announced or made a context not long ago.
    pub explained_until_ns: Option<u64>,
    /// It contradicts NVML, or itself.
    pub drift: Option<Drift>,
}

impl Gauge {
    fn overhead(&self) -> u64 {
        let announced = self.announced.as_ref().map_or(0, Announced::floor);
        self.measured.max(announced)
    }
}

/// Contexts that were announced and not measured yet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Announced {
    /// O when the first was announced, or when the last of them was measured.
    base: u64,
    each: u64,
    count: u64,
    until_ns: u64,
}

impl Announced {
    fn floor(&self) -> u64 {
        self.base.saturating_add(self.each.saturating_mul(self.count))
    }
}

/// A `MEASURE_AFTER` that waits for a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Measuring {
    client: ClientId,
    slot: usize,
    device: DeviceUuid,
    sequence: u32,
    pub until_ns: u64,
    looks: u32,
    /// The look that is under way was asked for afterwards.
    is_covered: bool,
    /// O before the context was made.
    baseline: u64,
}

/// What a look said of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Quiet,
    /// The least that its overhead can be, as far as this look tells.
    Busy(u64),
    /// Nothing can be said: NVML shows no bytes, or the pages are lost.
    Nothing,
}

/// A client on a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub job: JobId,
    pub client: ClientId,
    pub slot: usize,
}

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

    fn gauge<M: Machine>(&mut self, member: Member, machine: &M) -> &mut Gauge {
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
    fn write_overhead<M: Machine>(&mut self, member: Member, machine: &M, now_ns: u64) {
        let Member { job, client, slot } = member;
        let bytes = self.gauge(member, machine).overhead();
        if overhead_of(machine, client, slot) == bytes {
            return;
        }
        if let Some(state) = self.jobs.get_mut(&job).and_then(|job| job.slots.get_mut(slot)) {
            let pages = OnSlot { machine, slot };
            state.ledger.set_overhead(&pages, client, bytes, now_ns);
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

    /// A client's `Measure`.
    pub(crate) fn measure_client<M: Machine>(
        &mut self,
        (client, slot, sequence): (ClientId, usize, u32),
        stage: u32,
        machine: &M,
        now_ns: u64,
    ) {
        let job = self
            .clients
            .get(&client)
            .filter(|known| !known.is_nvml_only)
            .map(|known| known.job);
        let device = job.and_then(|job| Some((job, self.slot_device(job, slot)?.0)));
        let Some((job, device)) = device else {
            return self.answer_invalid(client, slot, sequence);
        };
        let member = Member { job, client, slot };
        Self::explain(self.gauge(member, machine), now_ns);
        match stage {
            MEASURE_BEFORE => self.announce(member, device, sequence, machine, now_ns),
            MEASURE_AFTER => self.begin_measuring(member, device, sequence, machine, now_ns),
            _ => self.answer_invalid(client, slot, sequence),
        }
    }

    /// Holds what a context has cost on this device for one that is about to be made.
    fn announce<M: Machine>(&mut self, member: Member, device: DeviceUuid, sequence: u32, machine: &M, now_ns: u64) {
        let Member { job, client, slot } = member;
        let uid = self.jobs.get(&job).map_or(0, |job| job.record.uid);
        let learned = self.devices.get(&device).and_then(|device| device.learned.get(&uid));
        let each = learned.copied().unwrap_or(0);
        let gauge = self.gauge(member, machine);
        let base = gauge.measured;
        let mut announced = gauge.announced.clone().unwrap_or(Announced {
            base,
            each,
            count: 0,
            until_ns: 0,
        });
        announced.count += 1;
        announced.each = announced.each.max(each);
        announced.until_ns = now_ns.saturating_add(MEASURE_KEPT_NS);
        let floor = announced.floor();
        let pages = OnSlot { machine, slot };
        let reserve = |policy: &mut Self| {
            let state = policy.jobs.get_mut(&job).and_then(|job| job.slots.get_mut(slot));
            state.map_or(Verdict::Invalid, |state| {
                state.ledger.reserve_overhead(&pages, client, floor, now_ns)
            })
        };
        let mut verdict = reserve(self);
        if let Verdict::CardFull { short_by } = verdict
            && let Some((device, ceiling)) = self.slot_device(job, slot)
            && self.grow_ceiling(job, device, ceiling.saturating_add(short_by), machine, now_ns)
        {
            verdict = reserve(self);
        }
        let code = match verdict {
            Verdict::Granted => {
                self.gauge(member, machine).announced = Some(announced);
                self.show_overheads(client, machine);
                VERDICT_GRANTED
            }
            // A sibling moved all the time: the measurement afterwards decides.
            Verdict::Retry => VERDICT_GRANTED,
            Verdict::Limit => VERDICT_LIMIT,
            Verdict::CardFull { .. } => VERDICT_CARD_FULL,
            Verdict::Invalid => VERDICT_INVALID,
        };
        let is_denied = matches!(code, VERDICT_LIMIT | VERDICT_CARD_FULL);
        if is_denied {
            let bytes = floor.saturating_sub(base);
            let why = Reason::of_overhead(code);
            self.deny(job, slot, (client, bytes, 1), why, machine, now_ns);
        }
        let reason = format!("{client} announces a context, which costs some {each} bytes here: {verdict:?}");
        let needed = is_denied.then_some(each);
        self.answer_usage((client, slot, sequence), code, needed, machine, &reason);
    }

    fn begin_measuring<M: Machine>(
        &mut self,
        member: Member,
        device: DeviceUuid,
        sequence: u32,
        machine: &M,
        now_ns: u64,
    ) {
        let Member { client, slot, .. } = member;
        let gauge = self.gauge(member, machine);
        let baseline = gauge
            .announced
            .as_ref()
            .map_or(gauge.measured, |announced| announced.base);
        let waiting = Measuring {
            client,
            slot,
            device,
            sequence,
            until_ns: now_ns.saturating_add(MEASURE_NS),
            looks: 0,
            is_covered: false,
            baseline,
        };
        let is_lost = |device: &crate::device::Device| device.state == DeviceState::Lost;
        let of_client = self.measures.iter().filter(|other| other.client == client).count();
        if self.devices.get(&device).is_none_or(is_lost) || of_client >= WAITING {
            return self.finish_measuring(&waiting, Seen::Nothing, machine, now_ns);
        }
        self.measures.push(waiting);
        self.command(Action::Look(device), "a client made a context, module or heap");
    }

    /// Answers a `MEASURE_AFTER`: by what was measured, or that nothing could be.
    fn finish_measuring<M: Machine>(&mut self, waiting: &Measuring, seen: Seen, machine: &M, now_ns: u64) {
        let Measuring {
            client, slot, device, ..
        } = *waiting;
        let Some(job) = self.clients.get(&client).map(|known| known.job) else {
            return;
        };
        let member = Member { job, client, slot };
        let gauge = self.gauge(member, machine);
        let measured = gauge.measured;
        if let Some(announced) = &mut gauge.announced {
            announced.count = announced.count.saturating_sub(1);
            announced.base = measured;
        }
        gauge.announced.take_if(|announced| announced.count == 0);
        self.write_overhead(member, machine, now_ns);
        let mut verdict = VERDICT_GRANTED;
        if seen != Seen::Nothing {
            verdict = self.judge_overhead(job, slot, machine, now_ns);
        }
        if seen == Seen::Quiet && waiting.baseline == 0 {
            let uid = self.jobs.get(&job).map_or(0, |job| job.record.uid);
            if let Some(known) = self.devices.get_mut(&device) {
                let learned = known.learned.entry(uid).or_default();
                *learned = measured.max(*learned);
            }
        }
        let grown = measured.saturating_sub(waiting.baseline);
        if verdict != VERDICT_GRANTED {
            let why = Reason::of_overhead(verdict);
            self.deny(job, slot, (client, grown, 1), why, machine, now_ns);
        }
        let reason = format!("{client} measured ({seen:?}): the driver holds {measured} bytes beyond its charges");
        let needed = (verdict != VERDICT_GRANTED).then_some(grown);
        self.answer_usage((client, slot, waiting.sequence), verdict, needed, machine, &reason);
    }

    /// Is what the job uses now within its limit, and within what the card has room for?
    fn judge_overhead<M: Machine>(&mut self, job: JobId, slot: usize, machine: &M, now_ns: u64) -> u32 {
        let Some(ledger) = self
            .jobs
            .get(&job)
            .and_then(|job| job.slots.get(slot))
            .map(|slot| &slot.ledger)
        else {
            return VERDICT_GRANTED;
        };
        let used = ledger.used_sum(&OnSlot { machine, slot });
        if used > ledger.limit() {
            return VERDICT_LIMIT;
        }
        match self.slot_device(job, slot) {
            Some((device, ceiling)) if used > ceiling && !self.grow_ceiling(job, device, used, machine, now_ns) => {
                VERDICT_CARD_FULL
            }
            _ => VERDICT_GRANTED,
        }
    }

    /// Measurements that waited long enough, and announcements that nobody measured.
    pub(crate) fn expire_overheads<M: Machine>(&mut self, machine: &M, now_ns: u64) {
        for late in self
            .measures
            .extract_if(.., |waiting| now_ns >= waiting.until_ns)
            .collect::<Vec<_>>()
        {
            self.finish_measuring(&late, Seen::Nothing, machine, now_ns);
        }
        let is_over = |gauge: &Gauge| {
            gauge
                .announced
                .as_ref()
                .is_some_and(|announced| now_ns >= announced.until_ns)
        };
        let over: Vec<(ClientId, usize)> = self
            .gauges
            .iter()
            .filter(|(_, gauge)| is_over(gauge))
            .map(|(at, _)| *at)
            .collect();
        for (client, slot) in over {
            if let Some(gauge) = self.gauges.get_mut(&(client, slot)) {
                gauge.announced = None;
            }
            if let Some(job) = self.clients.get(&client).map(|known| known.job) {
                self.write_overhead(Member { job, client, slot }, machine, now_ns);
            }
        }
    }

    /// When [`Policy::expire_overheads`] has something to do next.
    pub(crate) fn overheads_due(&self) -> Option<u64> {
        let measures = self.measures.iter().map(|waiting| waiting.until_ns);
        let announced = self.gauges.values().filter_map(|gauge| gauge.announced.as_ref());
        measures.chain(announced.map(|announced| announced.until_ns)).min()
    }

    /// Nobody waits for a device that does not answer.
    pub(crate) fn give_up_measuring<M: Machine>(&mut self, device: DeviceUuid, machine: &M, now_ns: u64) {
        for waiting in self
            .measures
            .extract_if(.., |waiting| waiting.device == device)
            .collect::<Vec<_>>()
        {
            self.finish_measuring(&waiting, Seen::Nothing, machine, now_ns);
        }
    }

    /// A client is gone, and what was known of it.
    pub(crate) fn forget_overheads(&mut self, client: ClientId) {
        self.measures.retain(|waiting| waiting.client != client);
        self.gauges.retain(|(other, _), _| *other != client);
    }

    /// What a job's owner should know of how its overhead is measured.
    pub(crate) fn overhead_notes(&self, job: &crate::job::Job) -> Vec<String> {
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

/// **O** of a client on a slot, as the broker's file has it.
pub(crate) fn overhead_of<M: Machine>(machine: &M, client: ClientId, slot: usize) -> u64 {
    machine.words(client, slot).map_or(0, |words| words.overhead.load())
}
