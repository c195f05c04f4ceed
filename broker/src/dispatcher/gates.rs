// SPDX-License-Identifier: Apache-2.0
//! Between the clients' pages and the scheduler: observations in, gate words out. Time and kernel are arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{Ordering, fence};

use partage_policy::{JobTime, UnmanagedLoad};
use partage_protocol::gate::{self, HEARTBEAT_NS, HELD, MEASURED, UNBOUNDED, UNSHARED};
use partage_protocol::page::GrantLine;
use partage_protocol::units::{ClientId, DeviceUuid, JobId};
use partage_scheduling::{Action, Command, Config, DeviceKey, Event, JobView, Observation, Regime, Scheduler};

use super::client::{Client, Company, Slot, is_open};
use super::device::DeviceState;
use super::kernel::Kernel;
use super::message::{Joined, Message};
use super::report::{Outbox, Report};
use super::view::job_time;

/// Scheduler, clients and devices.
pub struct Dispatcher<K> {
    kernel: K,
    scheduler: Scheduler,
    clients: BTreeMap<ClientId, Client>,
    devices: Vec<DeviceUuid>,
    /// When each device is due to be sampled, and how it is shared.
    pub(super) states: BTreeMap<DeviceKey, DeviceState>,
    not_draining: BTreeSet<(ClientId, DeviceKey)>,
    commands: Vec<Command>,
    heartbeat_ns: u64,
    /// A gate may be closed, or work in flight bounded: found out with each heartbeat, because it takes all clients.
    holds_somebody: bool,
    needs_fence: bool,
    outbox: Outbox,
}

impl<K: Kernel> Dispatcher<K> {
    /// Nobody is there yet.
    pub fn new(kernel: K) -> Self {
        let needs_fence = !kernel.heavy_barrier();
        Self {
            kernel,
            scheduler: Scheduler::new(Config::default()),
            clients: BTreeMap::new(),
            devices: Vec::new(),
            states: BTreeMap::new(),
            not_draining: BTreeSet::new(),
            commands: Vec::new(),
            heartbeat_ns: 0,
            holds_somebody: false,
            needs_fence,
            outbox: Outbox::default(),
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
        self.outbox.note_news();
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
            Message::Held => self.holds_somebody = true,
            Message::Unmanaged(device, load) => {
                let device = self.key(device);
                let state = self.state(device);
                state.has_unmanaged = load != UnmanagedLoad::Quiet;
                if state.has_unmanaged {
                    self.tell_unshared(device, None);
                }
                let (busy, felt) = (load == UnmanagedLoad::Crowding, load != UnmanagedLoad::Quiet);
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
            let slot = Slot::new(index, now);
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
        if !is_open(line) {
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
                    if self.state(device).unshared.is_some_and(|other| other != client) {
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
                    self.state(device).regime = regime;
                    self.write_flags(device);
                }
                Action::NotDraining { device, client } => {
                    self.not_draining.insert((client, device));
                    if let Some(device) = self.uuid(device) {
                        let why = command.reason;
                        self.outbox.push(Report::NotDraining { client, device, why });
                    }
                }
                Action::Draining { device, client } => {
                    if self.not_draining.remove(&(client, device))
                        && let Some(device) = self.uuid(device)
                    {
                        self.outbox.push(Report::Drained { client, device });
                    }
                }
            }
        }
        if has_closed {
            // After this no launch passes unseen; a thread that passed before shows in its thread slot.
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

    /// When a device is to be sampled next. `None`: there is no client to judge.
    fn due(&mut self, device: DeviceKey) -> Option<u64> {
        let interval = self.scheduler.wants_observation(device)?;
        Some(self.state(device).due_ns(interval))
    }

    fn state(&mut self, device: DeviceKey) -> &mut DeviceState {
        self.states.entry(device).or_default()
    }

    /// Tells the clients of a device what is wanted of them, if that has changed.
    fn write_flags(&mut self, device: DeviceKey) {
        let is_marked = self.scheduler.wants_marks(device);
        let needs_fence = self.needs_fence;
        let state = self.state(device);
        let flags = state.wanted_flags(is_marked, needs_fence);
        if state.flags == flags {
            return;
        }
        let is_new = flags & !state.flags & MEASURED != 0;
        state.flags = flags;
        state.stretch = state.stretch.wrapping_add(u32::from(is_new));
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
        let (Some(state), Some(line)) = (self.states.get(&device), self.line(id, device)) else {
            return;
        };
        // Without a measure there is nothing to say, and a launch on the short way finds no flag.
        let is_told = state.flags & MEASURED != 0 && state.unshared == Some(id);
        let own = if is_told { UNSHARED } else { 0 };
        // The event loop's flag stays as it is.
        let flags = |before: u32| Some(before & HELD | state.flags | own);
        let _ = line
            .gate_flags
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, flags);
    }

    /// Finds out whether one client has the device for itself, for as long as its gate is open: because it is the only
    /// one, or in Turns. In Overlap the gates of others may open at any moment.
    fn find_unshared(&mut self, device: DeviceKey, seen: &[Observation]) {
        let state = self.state(device);
        if state.has_unmanaged {
            return;
        }
        let is_turns = state.regime == Regime::Turns;
        let is_closed = |client: ClientId| {
            let line = self.line(client, device);
            line.is_some_and(|line| !is_open(line))
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
        let before = std::mem::replace(&mut self.state(device).unshared, unshared);
        if before == unshared {
            return;
        }
        if let Some(client) = before.and_then(|before| self.clients.get(&before)) {
            // In Turns what it has on the device was done before; otherwise somebody else's work comes between.
            let is_done = client.page(device).is_some_and(|page| page.running() == 0);
            if let Some(line) = client.line(device)
                && (!is_done || is_open(line))
            {
                line.spoiled.fetch_add(1, Ordering::Release);
            }
        }
        for client in before.into_iter().chain(unshared) {
            self.tell_flags(client, device);
        }
    }

    /// Does what is due. Answers when to come again, at the latest.
    pub fn run_once(&mut self, now: u64) -> Option<u64> {
        let mut next: Option<u64> = None;
        let mut soonest = |at: u64| next = Some(next.map_or(at, |other| other.min(at)));
        for device in (0..self.devices.len() as u32).map(DeviceKey) {
            if self.due(device).is_some_and(|at| now >= at) {
                self.sample(now, device);
            }
            if let Some(at) = self.due(device) {
                soonest(at);
            }
            self.write_flags(device);
            let state = self.state(device);
            let is_measured = state.flags & MEASURED != 0;
            let was_measured = std::mem::replace(&mut state.is_measured, is_measured);
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
        self.holds_somebody = self.clients.values().any(Client::is_held);
        for client in self.clients.values() {
            client.pages.broker().head.heartbeat_ns.store(now, Ordering::Relaxed);
        }
    }

    fn sample(&mut self, now: u64, device: DeviceKey) {
        let begun = self.kernel.spent_ns();
        let state = self.state(device);
        state.begin_sample(now);
        let (has_unmanaged, before) = (state.has_unmanaged, state.busy);
        let Self { clients, kernel, .. } = self;
        let mut busy = 0;
        for client in clients.values_mut() {
            let pages = client.pages.time();
            let slot = client.slots.get_mut(&device);
            busy += slot.map_or(0, |slot| usize::from(slot.read(pages, now)));
        }
        let company = Company {
            has_unmanaged,
            before,
            now: busy,
        };
        let mut seen = Vec::new();
        for (id, client) in clients.iter_mut() {
            let pid = client.pid;
            if let Some(slot) = client.slots.get_mut(&device) {
                let is_stopped = || kernel.is_stopped(pid);
                seen.extend(slot.observe(*id, &client.pages, company, now, is_stopped));
            }
        }
        let kernel_ns = kernel.now_ns();
        self.state(device).busy = busy;
        // The process may have been stopped after `now` was read: what was seen then is of later.
        let seen_ns = kernel_ns.max(now);
        let now = if self.scheduler.is_late(device, seen_ns) {
            seen_ns
        } else {
            now
        };
        if self.scheduler.is_late(device, now) {
            // What NVML shows of that time is held against nobody either.
            let state = self.state(device);
            state.stretch = state.stretch.wrapping_add(1);
            state.begin_sample(now);
        }
        self.step(now, Event::Observe { device, seen: &seen });
        self.find_unshared(device, &seen);
        let cost = self.kernel.spent_ns().saturating_sub(begun);
        self.state(device).pay(now, cost);
    }

    fn is_measuring(&self) -> bool {
        self.states.values().any(|state| state.flags & MEASURED != 0)
    }

    /// When [`Dispatcher::take_reports`] has something to say, if nothing else happens.
    pub fn report_due_ns(&self) -> Option<u64> {
        self.outbox.due_ns(self.is_measuring())
    }

    /// What the event loop is to hear now.
    pub fn take_reports(&mut self, now: u64) -> Vec<Report> {
        let is_measuring = self.is_measuring();
        let mut outbox = std::mem::take(&mut self.outbox);
        let reports = outbox.take(now, is_measuring, || self.view(now));
        self.outbox = outbox;
        reports
    }

    /// What is known of every job that is measured. One that is alone without a cap is not: its clients mark nothing.
    pub fn view(&self, now: u64) -> Vec<JobTime> {
        let views = self.scheduler.view(now).into_iter();
        let measured = views.filter(|view| self.scheduler.wants_marks(view.device));
        let job_time = |view: JobView| {
            let is_stuck = |(client, device): &(ClientId, DeviceKey)| {
                let client = self.clients.get(client);
                *device == view.device && client.is_some_and(|client| client.job == view.job)
            };
            let has_stuck = self.not_draining.iter().any(is_stuck);
            let stretch = self.states.get(&view.device).map_or(0, |state| state.stretch);
            Some(job_time(&view, self.uuid(view.device)?, stretch, has_stuck))
        };
        measured.filter_map(job_time).collect()
    }

    /// The scheduler's invariants that do not hold.
    pub fn check(&self) -> Vec<partage_scheduling::Violation> {
        self.scheduler.check()
    }
}
