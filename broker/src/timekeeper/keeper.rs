// SPDX-License-Identifier: Apache-2.0
//! Between the clients' pages and the scheduler: observations in, gate words out. Time and kernel are arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use partage_gpu_time::GpuTimeEstimator;
use partage_policy::{JobTime, UnmanagedLoad};
use partage_protocol::gate::{
    self, GATES_COPIES, HEARTBEAT_NS, MEASURED, NEEDS_FENCE, OPEN, TimePage, UNBOUNDED, UNSHARED,
};
use partage_protocol::page::GrantLine;
use partage_protocol::units::{ClientId, DeviceUuid, JobId};
use partage_scheduling::{
    Action, Command, Config, DeviceKey, Event, JobView, Observation, Regime, Scheduler, TimeState,
};

use super::{Joined, Kernel, Message};
use crate::pages::PagePair;

/// A client that could move and does not for this long is asked of the kernel: it may be stopped.
const SUSPECT_NS: u64 = 20_000_000;
/// One that is stopped is asked of again after as long.
const STOPPED_NS: u64 = 80_000_000;

/// Who is on the way through the driver, or stands before an open gate, and shows no sign for this long is no reason to keep
/// others away until he does: a compiler inside a launch, a full queue, a thread that left by a jump, a lie.
const STILL_NS: u64 = 50_000_000;

/// Looking at a device takes at most one part of so many of a processor: who has very many clients looks less often.
const LOOKING: u64 = 5;
/// So much of that may be taken at once, in nanoseconds: a look that also moves gates costs many times as much as the next
/// ones, which are to show how the streams of who has got the device begin.
const CREDIT_NS: u64 = 2_000_000;

/// One client.
struct Client {
    job: JobId,
    pid: u32,
    pages: Arc<PagePair>,
    /// Slot of each device.
    slots: BTreeMap<DeviceKey, Slot>,
}

/// One client on one device.
struct Slot {
    index: usize,
    /// What moves while the client does: what has retired, and for how long its threads have waited.
    signs: (u64, u64),
    /// When they last moved, or need not have, or the kernel was asked.
    since_ns: u64,
    /// When they last moved, or need not have.
    moved_ns: u64,
    is_stopped: bool,
    /// It had work on the device at the last look.
    was_busy: bool,
    time: GpuTimeEstimator,
}

impl Client {
    fn line(&self, device: DeviceKey) -> Option<&GrantLine> {
        self.pages.broker().devices.get(self.slots.get(&device)?.index)
    }

    fn page(&self, device: DeviceKey) -> Option<&TimePage> {
        self.pages.time().devices.get(self.slots.get(&device)?.index)
    }
}

/// Scheduler, clients and devices.
pub struct Keeper<K> {
    kernel: K,
    scheduler: Scheduler,
    clients: BTreeMap<ClientId, Client>,
    devices: Vec<DeviceUuid>,
    /// When each device is due to be looked at, and how it is shared.
    looks: BTreeMap<DeviceKey, Look>,
    not_draining: BTreeSet<(ClientId, DeviceKey)>,
    commands: Vec<Command>,
    heartbeat_ns: u64,
    /// A gate may be closed, or work in flight bounded: looked at with each heartbeat, because it takes a look at everybody.
    holds_somebody: bool,
    needs_fence: bool,
}

struct Look {
    last_ns: u64,
    /// Until when what looks took is no more than they may. At most [`CREDIT_NS`] is saved up.
    paid_ns: u64,
    regime: Regime,
    /// What the clients of the device were told last.
    flags: u32,
    /// Whose gate alone is open, with nothing of others on the device.
    unshared: Option<ClientId>,
    /// Processes of no job may have work on it.
    has_strangers: bool,
    /// How many clients had work on it when it was last looked at.
    busy: usize,
    /// The scheduler knows that what it sees is a measure.
    is_measured: bool,
    /// How many times its clients were told to leave marks.
    stretch: u32,
}

impl<K: Kernel> Keeper<K> {
    /// Nobody is there yet.
    pub fn new(kernel: K) -> Self {
        let needs_fence = !kernel.heavy_barrier();
        Self {
            kernel,
            scheduler: Scheduler::new(Config::default()),
            clients: BTreeMap::new(),
            devices: Vec::new(),
            looks: BTreeMap::new(),
            not_draining: BTreeSet::new(),
            commands: Vec::new(),
            heartbeat_ns: 0,
            holds_somebody: false,
            needs_fence,
        }
    }

    fn key(&mut self, device: DeviceUuid) -> DeviceKey {
        let index = self
            .devices
            .iter()
            .position(|known| *known == device)
            .unwrap_or_else(|| {
                self.devices.push(device);
                self.devices.len() - 1
            });
        DeviceKey(index as u32)
    }

    fn uuid(&self, device: DeviceKey) -> Option<DeviceUuid> {
        self.devices.get(device.0 as usize).copied()
    }

    /// Takes in what the event loop tells.
    pub fn take(&mut self, now: u64, message: Message) {
        match message {
            Message::Terms { job, devices, terms } => {
                for device in devices {
                    let device = self.key(device);
                    self.step(now, Event::JobTerms { job, device, terms });
                }
            }
            Message::JobGone(job) => {
                // Its clients' gates stay as they are: whatever is left of them is not ours to hold.
                for client in self.clients_of(job) {
                    self.leave(now, client);
                }
                self.step(now, Event::JobGone { job });
            }
            Message::Joined(joined) => self.join(now, joined),
            Message::Left(client) => self.leave(now, client),
            Message::Unmanaged(device, strangers) => {
                let device = self.key(device);
                let look = self.look(device);
                look.has_strangers = strangers != UnmanagedLoad::Quiet;
                if look.has_strangers {
                    self.tell_unshared(device, None);
                }
                let (busy, felt) = (strangers == UnmanagedLoad::Crowding, strangers != UnmanagedLoad::Quiet);
                self.step(now, Event::Unmanaged { device, busy, felt });
            }
            Message::Correct {
                device,
                charges,
                over_ns,
            } => {
                let device = self.key(device);
                for (job, ns) in charges {
                    let correction = Event::Corrected {
                        device,
                        job,
                        ns,
                        over_ns,
                    };
                    self.step(now, correction);
                }
            }
        }
    }

    fn clients_of(&self, job: JobId) -> Vec<ClientId> {
        let of_job = self.clients.iter().filter(|(_, client)| client.job == job);
        of_job.map(|(id, _)| *id).collect()
    }

    fn join(&mut self, now: u64, joined: Joined) {
        if self.clients.contains_key(&joined.client) {
            self.leave(now, joined.client);
        }
        let mut slots = BTreeMap::new();
        for (index, device) in joined.devices.iter().enumerate() {
            let slot = Slot {
                index,
                signs: (0, 0),
                since_ns: now,
                moved_ns: now,
                is_stopped: false,
                was_busy: false,
                time: GpuTimeEstimator::default(),
            };
            slots.insert(self.key(*device), slot);
        }
        let devices: Vec<DeviceKey> = slots.keys().copied().collect();
        let client = Client {
            job: joined.job,
            pid: joined.pid,
            pages: joined.pages,
            slots,
        };
        client.pages.broker().head.heartbeat_ns.store(now, Ordering::Relaxed);
        self.clients.insert(joined.client, client);
        for device in devices {
            // The scheduler takes a gate for closed until it has it opened.
            if let Some(line) = self.line(joined.client, device) {
                gate::close(&line.gate);
                line.depth_ns.store(UNBOUNDED, Ordering::Relaxed);
            }
            self.write_flags(device);
            self.tell_flags(joined.client, device);
            let (client, job) = (joined.client, joined.job);
            self.step(now, Event::ClientJoined { client, job, device });
        }
    }

    fn leave(&mut self, now: u64, id: ClientId) {
        let Some(client) = self.clients.remove(&id) else { return };
        for device in client.slots.keys() {
            self.not_draining.remove(&(id, *device));
            if let Some(line) = client.line(*device) {
                self.let_through(line);
            }
        }
        self.step(now, Event::ClientLeft { client: id });
    }

    fn let_through(&self, line: &GrantLine) {
        line.gate_flags.fetch_and(!UNSHARED, Ordering::Relaxed);
        line.depth_ns.store(UNBOUNDED, Ordering::Relaxed);
        if line.gate.load(Ordering::Relaxed) & OPEN == 0 {
            gate::open(&line.gate);
            self.kernel.wake(&line.gate);
        }
    }

    fn line(&self, client: ClientId, device: DeviceKey) -> Option<&GrantLine> {
        self.clients.get(&client)?.line(device)
    }

    /// Nobody keeps time any more: every gate opens.
    pub fn open_all(&self) {
        for client in self.clients.values() {
            for device in client.slots.keys() {
                if let Some(line) = client.line(*device) {
                    self.let_through(line);
                }
            }
        }
    }

    fn step(&mut self, now: u64, event: Event<'_>) {
        let mut commands = std::mem::take(&mut self.commands);
        self.scheduler.step(now, event, &mut commands);
        self.carry_out(&commands);
        commands.clear();
        self.commands = commands;
    }

    fn carry_out(&mut self, commands: &[Command]) {
        let mut has_closed = false;
        self.holds_somebody |= !commands.is_empty();
        for command in commands {
            tracing::trace!(?command, "time");
            match command.action {
                Action::Open {
                    device,
                    client,
                    depth_ns,
                } => {
                    if self.look(device).unshared.is_some_and(|other| other != client) {
                        self.tell_unshared(device, None);
                    }
                    if let Some(line) = self.line(client, device) {
                        line.depth_ns.store(depth_ns.unwrap_or(UNBOUNDED), Ordering::Relaxed);
                        gate::open(&line.gate);
                        self.kernel.wake(&line.gate);
                    }
                }
                Action::Close { device, client } => {
                    if let Some(line) = self.line(client, device) {
                        gate::close(&line.gate);
                        has_closed = true;
                    }
                }
                Action::Depth {
                    device,
                    client,
                    depth_ns,
                } => {
                    if let Some(line) = self.line(client, device) {
                        line.depth_ns.store(depth_ns.unwrap_or(UNBOUNDED), Ordering::Relaxed);
                    }
                }
                Action::Regime { device, regime } => {
                    tracing::debug!(device = device.0, ?regime, why = command.reason, "regime");
                    self.look(device).regime = regime;
                    self.write_flags(device);
                }
                Action::NotDraining { device, client } => {
                    tracing::warn!(
                        client = client.0,
                        device = device.0,
                        why = command.reason,
                        "does not drain"
                    );
                    self.not_draining.insert((client, device));
                }
                Action::Draining { device, client } => {
                    self.not_draining.remove(&(client, device));
                }
            }
        }
        if has_closed {
            // After this no launch passes unseen; who passed before shows in its slot.
            fence(Ordering::SeqCst);
            let is_done = self.kernel.heavy_barrier();
            if is_done == self.needs_fence {
                self.needs_fence = !is_done;
                for device in (0..self.devices.len() as u32).map(DeviceKey) {
                    self.write_flags(device);
                }
            }
        }
    }

    /// When a device is to be looked at next. `None`: there is nobody to judge.
    fn due(&mut self, device: DeviceKey) -> Option<u64> {
        let interval = self.scheduler.wants_observation(device)?;
        let look = self.look(device);
        Some(look.last_ns.saturating_add(interval).max(look.paid_ns))
    }

    fn look(&mut self, device: DeviceKey) -> &mut Look {
        self.looks.entry(device).or_insert(Look {
            last_ns: 0,
            paid_ns: 0,
            regime: Regime::Overlap,
            flags: 0,
            unshared: None,
            has_strangers: false,
            busy: 0,
            is_measured: false,
            stretch: 0,
        })
    }

    /// Tells the clients of a device what is wanted of them, if that has changed.
    fn write_flags(&mut self, device: DeviceKey) {
        let is_marked = self.scheduler.wants_marks(device);
        let needs_fence = self.needs_fence;
        let look = self.look(device);
        let mut flags = 0;
        for (is_set, flag) in [
            (is_marked, MEASURED),
            (needs_fence, NEEDS_FENCE),
            (look.regime == Regime::Turns, GATES_COPIES),
        ] {
            flags |= if is_set { flag } else { 0 };
        }
        if look.flags == flags {
            return;
        }
        let is_new = flags & !look.flags & MEASURED != 0;
        look.flags = flags;
        look.stretch = look.stretch.wrapping_add(u32::from(is_new));
        for client in self.clients.keys() {
            self.tell_flags(*client, device);
        }
        if is_new {
            // After this every launch that leaves no marks shows in its slot: what is seen from now on is a measure.
            fence(Ordering::SeqCst);
            self.needs_fence = !self.kernel.heavy_barrier();
        }
    }

    /// Writes a client's flags on a device.
    fn tell_flags(&self, id: ClientId, device: DeviceKey) {
        let (Some(look), Some(line)) = (self.looks.get(&device), self.line(id, device)) else {
            return;
        };
        // Without a measure there is nothing to say, and a launch on the short way finds no flag.
        let is_told = look.flags & MEASURED != 0 && look.unshared == Some(id);
        let own = if is_told { UNSHARED } else { 0 };
        line.gate_flags.store(look.flags | own, Ordering::Relaxed);
    }

    /// Finds out whether one client has the device for itself, for as long as its gate is open: because it is the only one,
    /// or in Turns. In Overlap the gates of others may open at any moment.
    fn find_unshared(&mut self, device: DeviceKey, seen: &[Observation]) {
        let look = self.look(device);
        if look.has_strangers {
            return;
        }
        let is_turns = look.regime == Regime::Turns;
        let is_closed = |client: ClientId| {
            let line = self.line(client, device);
            line.is_some_and(|line| line.gate.load(Ordering::Relaxed) & OPEN == 0)
        };
        let is_away = |seen: &&Observation| is_turns && !seen.is_busy && !seen.is_entering && is_closed(seen.client);
        let mut there = seen.iter().filter(|seen| !is_away(seen));
        let unshared = match (there.next(), there.next()) {
            (Some(only), None) => Some(only.client),
            _ => None,
        };
        self.tell_unshared(device, unshared);
    }

    fn tell_unshared(&mut self, device: DeviceKey, unshared: Option<ClientId>) {
        let before = std::mem::replace(&mut self.look(device).unshared, unshared);
        if before == unshared {
            return;
        }
        if let Some(client) = before.and_then(|before| self.clients.get(&before)) {
            // In Turns what it has on the device was done before; otherwise somebody else's work comes between.
            let slot = client.slots.get(&device).map(|slot| slot.index);
            let page = slot.and_then(|index| client.pages.time().devices.get(index));
            let is_done = page.is_some_and(|page| page.running() == 0);
            if let Some(line) = client.line(device)
                && (!is_done || line.gate.load(Ordering::Relaxed) & OPEN != 0)
            {
                line.spoiled.fetch_add(1, Ordering::Release);
            }
        }
        for client in before.into_iter().chain(unshared) {
            self.tell_flags(client, device);
        }
    }

    /// Does what is due. Answers when to come again, at the latest.
    pub fn turn(&mut self, now: u64) -> Option<u64> {
        let mut next: Option<u64> = None;
        let mut soonest = |at: u64| next = Some(next.map_or(at, |other| other.min(at)));
        for device in (0..self.devices.len() as u32).map(DeviceKey) {
            if self.due(device).is_some_and(|at| now >= at) {
                self.observe(now, device);
            }
            if let Some(at) = self.due(device) {
                soonest(at);
            }
            self.write_flags(device);
            let look = self.look(device);
            let is_measured = look.flags & MEASURED != 0;
            let was_measured = std::mem::replace(&mut look.is_measured, is_measured);
            if is_measured && !was_measured {
                self.step(now, Event::Marked { device });
            }
        }
        if self.scheduler.next_deadline().is_some_and(|at| now >= at) {
            self.step(now, Event::Tick);
        }
        if let Some(at) = self.scheduler.next_deadline() {
            soonest(at.max(now + 1));
        }
        if now >= self.heartbeat_ns.saturating_add(HEARTBEAT_NS / 10) {
            self.beat(now);
        }
        if self.holds_somebody {
            soonest(self.heartbeat_ns.saturating_add(HEARTBEAT_NS / 10));
        }
        next
    }

    fn beat(&mut self, now: u64) {
        self.heartbeat_ns = now;
        self.holds_somebody = self.clients.values().any(is_held);
        for client in self.clients.values() {
            client.pages.broker().head.heartbeat_ns.store(now, Ordering::Relaxed);
        }
    }

    fn observe(&mut self, now: u64, device: DeviceKey) {
        let begun = self.kernel.spent_ns();
        let look = self.look(device);
        look.last_ns = now;
        let (has_strangers, busy) = (look.has_strangers, look.busy);
        let Self { clients, kernel, .. } = self;
        let mut seen = Vec::new();
        let is_busy = |client: &&Client| client.page(device).is_some_and(|page| page.is_busy(now));
        let busy_now = clients.values().filter(is_busy).count();
        for (id, client) in clients.iter_mut() {
            let Some(slot) = client.slots.get_mut(&device) else {
                continue;
            };
            let pages = client.pages.time();
            let Some(page) = pages.devices.get(slot.index) else {
                continue;
            };
            let is_entering = pages.is_entering(slot.index);
            let is_busy = page.is_busy(now);
            let is_waiting = page.waiting.load(Ordering::Relaxed) != 0;
            let retired = page.retired();
            let signs = (retired, page.waited_ns.load(Ordering::Relaxed));
            // Who waits at a closed gate stands still by rights. Before an open one nobody does, unless he cannot move.
            let is_open = |line: &GrantLine| line.gate.load(Ordering::Relaxed) & OPEN != 0;
            let is_before_open = || client.pages.broker().devices.get(slot.index).is_some_and(is_open);
            let is_suspect = is_busy || is_entering || is_waiting && (slot.is_stopped || is_before_open());
            let patience = if slot.is_stopped { STOPPED_NS } else { SUSPECT_NS };
            if signs != slot.signs || !is_suspect {
                (slot.signs, slot.since_ns, slot.is_stopped) = (signs, now, false);
                slot.moved_ns = now;
            } else if now >= slot.since_ns.saturating_add(patience) {
                // Not with every look: one into /proc costs more than all the rest.
                slot.since_ns = now;
                slot.is_stopped = kernel.is_stopped(client.pid);
            }
            let was_busy = std::mem::replace(&mut slot.was_busy, is_busy);
            // No other client at either end; work may have come since they were counted.
            let is_exclusive = !has_strangers && busy == usize::from(was_busy) && busy_now <= usize::from(is_busy);
            let is_still = !is_busy && now >= slot.moved_ns.saturating_add(STILL_NS);
            seen.push(Observation {
                client: *id,
                is_waiting,
                is_entering,
                is_busy,
                device_time: slot.time.update(page, is_exclusive, now),
                retired,
                unit_ns: page.unit_ns.load(Ordering::Relaxed),
                is_stopped: slot.is_stopped || is_still,
            });
        }
        self.look(device).busy = seen.iter().filter(|seen| seen.is_busy).count();
        self.step(now, Event::Observe { device, seen: &seen });
        self.find_unshared(device, &seen);
        let cost = self.kernel.spent_ns().saturating_sub(begun);
        let look = self.look(device);
        let saved_since = now.saturating_sub(CREDIT_NS * LOOKING);
        look.paid_ns = look
            .paid_ns
            .max(saved_since)
            .saturating_add(cost.saturating_mul(LOOKING));
    }

    /// What is known of every job that is measured. One that is alone without a cap is not: its clients mark nothing.
    pub fn view(&self, now: u64) -> Vec<JobTime> {
        let views = self.scheduler.view(now).into_iter();
        let measured = views.filter(|view| self.scheduler.wants_marks(view.device));
        measured.filter_map(|view| self.job_time(&view)).collect()
    }

    /// The scheduler's invariants that do not hold.
    pub fn check(&self) -> Vec<partage_scheduling::Violation> {
        self.scheduler.check()
    }

    fn job_time(&self, view: &JobView) -> Option<JobTime> {
        let job = view.job;
        let is_stuck = |(client, device): &(ClientId, DeviceKey)| {
            *device == view.device && self.clients.get(client).is_some_and(|client| client.job == job)
        };
        Some(JobTime {
            job,
            device: self.uuid(view.device)?,
            asked_ppm: view.asked_ppm,
            got_1s_ppm: view.got_ppm_1s,
            got_60s_ppm: view.got_ppm_60s,
            used_ns: view.used_ns,
            corrected_ns: view.corrected_ns,
            stretch: self.looks.get(&view.device).map_or(0, |look| look.stretch),
            waited_ns: view.waited_ns,
            state: view.state,
            waits_for: view.waits_for,
            wanted_60s_ppm: view.wanted_ppm_60s,
            unit_ns: view.unit_ns,
            regime: view.regime,
            is_not_draining: view.state == TimeState::NotDraining || self.not_draining.iter().any(is_stuck),
        })
    }
}

/// Does a gate hold this client, or a bound on its work in flight?
fn is_held(client: &Client) -> bool {
    let is_closed = |gate: &AtomicU32| gate.load(Ordering::Relaxed) & OPEN == 0;
    client
        .slots
        .keys()
        .filter_map(|device| client.line(*device))
        .any(|line| is_closed(&line.gate) || line.depth_ns.load(Ordering::Relaxed) != UNBOUNDED)
}

#[cfg(test)]
mod tests;
