// SPDX-License-Identifier: Apache-2.0
//! A node in virtual time: GPUs, client processes with gates and depth limits, and a broker that drives the real
//! scheduler with observations.
//!
//! Latencies: a launch call takes 3 µs; a thread that waits for its gate runs again 30 to 60 µs after it opens; one at
//! its depth limit or in a synchronisation 5 to 20 µs after work retired; commands take effect 2 to 5 µs after the
//! observation on which they rest; observations come up to 10 µs late. Everything follows from the seed.
#![allow(dead_code)] // Each test binary uses its own part.

mod broker;
pub mod client;
pub mod gpu;
pub mod measure;
mod plan;
pub mod programs;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use client::{Client, Program, State, Step};
use gpu::{Gpu, Kind, Rendezvous, Unit};
use partage_scheduling::{ClientId, Command, Config, DeviceKey, Event, JobId, Observation, Scheduler, Terms};
use plan::{Due, Planned};

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000_000_000;

/// Work that fits into the queue of a stream, by count.
const QUEUE: usize = 1024;

/// SplitMix64: small, and the same everywhere.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from + 1)
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }
}

/// The node.
pub struct World {
    pub now: u64,
    pub random: Random,
    pub gpus: Vec<Gpu>,
    pub clients: Vec<Client>,
    pub jobs: BTreeMap<JobId, Terms>,
    pub scheduler: Option<Scheduler>,
    pub is_governed: bool,
    pub config: Config,
    pub commands: u64,
    pub looks: u64,
    pub log: Option<Vec<(u64, Command)>>,
    pub not_draining: u64,
    pub regimes: u64,
    /// Longest time for which a device did nothing of use while somebody that could go on stood at a closed gate.
    pub worst_stall_ns: u64,
    /// Longest time that a client without a cap stood at a closed gate.
    pub worst_wait_ns: u64,
    useless_ns: Vec<Option<u64>>,
    rendezvous: Rendezvous,
    queue: BinaryHeap<Reverse<Planned>>,
    numbers: u64,
    looked: Vec<(u64, u64)>,
    tick_ns: Option<u64>,
    applied_ns: u64,
    epoch: u64,
}

impl World {
    pub fn new(seed: u64, gpus: usize, is_governed: bool) -> Self {
        Self::with(seed, gpus, is_governed.then(Config::default))
    }

    pub fn with(seed: u64, gpus: usize, config: Option<Config>) -> Self {
        Self {
            now: 0,
            random: Random(seed),
            gpus: (0..gpus).map(|_| Gpu::new()).collect(),
            clients: Vec::new(),
            jobs: BTreeMap::new(),
            scheduler: config.map(Scheduler::new),
            is_governed: config.is_some(),
            config: config.unwrap_or_default(),
            commands: 0,
            looks: 0,
            log: None,
            not_draining: 0,
            regimes: 0,
            worst_stall_ns: 0,
            worst_wait_ns: 0,
            useless_ns: vec![None; gpus],
            rendezvous: Rendezvous::default(),
            queue: BinaryHeap::new(),
            numbers: 0,
            looked: vec![(0, 0); gpus],
            tick_ns: None,
            applied_ns: 0,
            epoch: 0,
        }
    }

    /// A job with these terms on every device.
    pub fn job(&mut self, terms: Terms) -> JobId {
        let job = JobId(self.jobs.len() as u64 + 1);
        self.set(job, terms);
        job
    }

    pub fn set(&mut self, job: JobId, terms: Terms) {
        self.jobs.insert(job, terms);
        for device in self.devices() {
            self.step(Event::JobTerms { job, device, terms });
        }
    }

    /// A process of the job on a device, which runs this program.
    pub fn client(&mut self, job: JobId, gpu: usize, program: Program) -> usize {
        let at = self.clients.len();
        self.clients.push(Client::new(job, gpu, program, !self.is_governed));
        self.join(at);
        let delay = self.random.between(0, 200 * US);
        self.wake(at, delay);
        at
    }

    /// A job of default terms but for its weight, with one process on device 0.
    pub fn weighted(&mut self, weight: u32, program: Program) -> usize {
        let terms = Terms {
            weight,
            ..Terms::default()
        };
        let job = self.job(terms);
        self.client(job, 0, program)
    }

    /// The lengths of these clients' units are known: they tell the device time of what has retired. Precondition: one
    /// stream each.
    pub fn know(&mut self, clients: impl IntoIterator<Item = usize>) {
        for at in clients {
            self.clients[at].is_known = true;
        }
    }

    pub fn stop(&mut self, at: usize) {
        self.clients[at].is_stopped = true;
    }

    /// Stops it with work under way of which nobody sees the end before it goes on.
    pub fn freeze(&mut self, at: usize) {
        self.stop(at);
        let seen = self.observe(at);
        self.clients[at].frozen = Some(Observation { is_busy: true, ..seen });
    }

    pub fn go_on(&mut self, at: usize) {
        let client = &mut self.clients[at];
        client.is_stopped = false;
        client.frozen = None;
        if std::mem::take(&mut client.is_wake_pending) {
            self.wake(at, 0);
        }
    }

    /// Dies with its work; the broker learns of it a millisecond later.
    pub fn kill(&mut self, at: usize) {
        let client = &mut self.clients[at];
        if client.state == State::Gone {
            return;
        }
        client.state = State::Gone;
        client.epoch += 1;
        let gpu = client.gpu;
        self.gpus[gpu].destroy(at, &mut self.rendezvous);
        self.step(Event::ClientLeft {
            client: ClientId(at as u64),
        });
    }

    /// Processes outside are felt on the device.
    pub fn felt(&mut self, gpu: usize) {
        self.step(Event::Unmanaged {
            device: DeviceKey(gpu as u32),
            busy: false,
            felt: true,
        });
    }

    /// Memory must be swapped on the device, or no longer.
    pub fn isolate(&mut self, gpu: usize, exclusive: bool) {
        let device = DeviceKey(gpu as u32);
        self.step(Event::Residency { device, exclusive });
    }

    /// The broker dies; after a while gates fail open, and a new one adopts the clients.
    pub fn restart(&mut self, down_ns: u64) {
        if self.scheduler.take().is_some() {
            self.epoch += 1;
            self.tick_ns = None;
            let number = self.number();
            self.plan(down_ns, number, Due::Restarted);
            if down_ns > 10 * MS {
                for at in 0..self.clients.len() {
                    self.set_gate(at, true, None);
                }
            }
        }
    }

    pub fn is_done(&self) -> bool {
        self.clients
            .iter()
            .all(|client| matches!(client.state, State::Done | State::Gone))
    }

    /// Truth: device time that the client's units have occupied.
    pub fn busy_ns(&self, at: usize) -> u64 {
        let client = &self.clients[at];
        self.gpus[client.gpu]
            .contexts
            .get(&at)
            .map_or(0, |context| context.busy_ns)
    }

    /// Truth: the same, and the time for which the device did nothing but switch to the client.
    pub fn occupied_ns(&self, at: usize) -> u64 {
        let contexts = &self.gpus[self.clients[at].gpu].contexts;
        self.busy_ns(at) + contexts.get(&at).map_or(0, |context| context.tax_ns)
    }

    /// Runs to this instant, or until every program has ended.
    pub fn run_until(&mut self, to: u64) {
        while self.now < to {
            let planned = self.queue.peek().map(|Reverse(planned)| planned.at_ns);
            let gpus = self.gpus.iter().filter_map(|gpu| gpu.next_ns(&self.rendezvous)).min();
            let next = [planned, gpus].into_iter().flatten().min().unwrap_or(to).min(to);
            self.now = next;
            for gpu in 0..self.gpus.len() {
                for ended in self.gpus[gpu].advance(next, &mut self.rendezvous) {
                    self.ended(ended);
                }
            }
            while self
                .queue
                .peek()
                .is_some_and(|Reverse(planned)| planned.at_ns <= self.now)
            {
                if let Some(Reverse(planned)) = self.queue.pop() {
                    self.happen(planned.due);
                }
            }
            self.watch_stalls();
        }
    }

    /// Keeps the time for which a device is of no use to somebody that waits for it. While no broker answers nobody can
    /// be blamed.
    fn watch_stalls(&mut self) {
        let now = self.now;
        let useful: Vec<bool> = self.gpus.iter().map(|gpu| gpu.is_useful(&self.rendezvous)).collect();
        for (at, is_useful) in useful.iter().copied().enumerate() {
            let is_wanted = || {
                let can_go_on = |client: &Client| !client.is_stopped && self.jobs[&client.job].cap_ppm.is_none();
                // A gang may be kept away for another device's sake.
                let is_free = |client: &Client| {
                    let mut all = self.clients.iter().filter(|other| other.job == client.job);
                    !self.jobs[&client.job].is_gang || all.all(|other| !useful[other.gpu])
                };
                let stands = |client: &Client| {
                    client.gpu == at && client.state == State::AtGate && can_go_on(client) && is_free(client)
                };
                self.scheduler.is_some() && self.clients.iter().any(stands)
            };
            if is_useful || !is_wanted() {
                self.useless_ns[at] = None;
            } else {
                let since = *self.useless_ns[at].get_or_insert(now);
                self.worst_stall_ns = self.worst_stall_ns.max(now - since);
            }
        }
        for client in &mut self.clients {
            if client.state != State::AtGate || client.is_stopped || self.jobs[&client.job].cap_ppm.is_some() {
                client.at_gate_ns = None;
            } else {
                let since = *client.at_gate_ns.get_or_insert(now);
                self.worst_wait_ns = self.worst_wait_ns.max(now - since);
            }
        }
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Wake(at, epoch) if self.clients[at].epoch == epoch && self.clients[at].state != State::Gone => {
                self.proceed(at);
            }
            Due::Wake(..) => {}
            Due::Land(at, stream, unit) => {
                let client = &mut self.clients[at];
                if client.state == State::Gone {
                    return;
                }
                let gpu = client.gpu;
                self.gpus[gpu].submit(at, stream, unit, &mut self.rendezvous);
                self.clients[at].state = State::Running;
                self.clients[at].next = None;
                self.proceed(at);
            }
            Due::Look(device, number) => {
                if self.looked[device.0 as usize].1 == number {
                    self.look(device);
                }
            }
            Due::Tick(at_ns, epoch) => {
                if epoch == self.epoch && self.tick_ns == Some(at_ns) {
                    self.tick_ns = None;
                    self.step(Event::Tick);
                }
            }
            Due::Apply(commands, epoch) => {
                if epoch == self.epoch {
                    commands.into_iter().for_each(|command| self.apply(command));
                }
            }
            Due::Restarted => self.adopt(),
        }
    }

    /// The client's thread runs until it blocks.
    fn proceed(&mut self, at: usize) {
        loop {
            let client = &mut self.clients[at];
            if client.is_stopped {
                client.is_wake_pending = true;
                return;
            }
            let step = match client.next.take() {
                Some(step) => step,
                None => (client.program)(self.now, &mut self.random),
            };
            client.next = Some(step);
            match step {
                Step::Launch {
                    stream,
                    length_ns,
                    kind,
                } => {
                    let client = &mut self.clients[at];
                    client.asked_ns.get_or_insert(self.now);
                    let (count, in_flight) = self.gpus[client.gpu]
                        .contexts
                        .get(&at)
                        .map_or((0, 0), |context| (context.count, context.in_flight_ns));
                    let is_deep =
                        count > 0 && (client.depth_ns.is_some_and(|depth| in_flight > depth) || count >= QUEUE);
                    if !client.is_open || is_deep {
                        client.state = if client.is_open { State::AtDepth } else { State::AtGate };
                        return;
                    }
                    client.state = State::Entering;
                    let asked_ns = client.asked_ns.take().unwrap_or(self.now);
                    let number = self.number();
                    self.clients[at].launched(number, asked_ns);
                    self.plan(
                        3 * US,
                        number,
                        Due::Land(at, stream, Unit::new(number, length_ns, kind)),
                    );
                    return;
                }
                Step::Sync => {
                    let gpu = self.clients[at].gpu;
                    let is_busy = self.gpus[gpu]
                        .contexts
                        .get(&at)
                        .is_some_and(|context| context.is_busy());
                    if is_busy {
                        self.clients[at].state = State::Syncing;
                        return;
                    }
                    self.clients[at].next = None;
                }
                Step::Cpu(ns) => {
                    self.clients[at].next = None;
                    self.clients[at].state = State::Running;
                    return self.wake(at, ns);
                }
                Step::Begin => {
                    self.clients[at].begun_ns = Some(self.now);
                    self.clients[at].next = None;
                }
                Step::End => {
                    let client = &mut self.clients[at];
                    client.next = None;
                    if let Some(begun) = client.begun_ns.take() {
                        client.requests.push(self.now - begun);
                    }
                }
                Step::Done => {
                    let client = &mut self.clients[at];
                    client.state = State::Done;
                    client.done_ns = Some(self.now);
                    return;
                }
            }
        }
    }

    fn ended(&mut self, ended: gpu::Ended) {
        let at = ended.client;
        let delay = self.random.between(5 * US, 20 * US);
        let client = &mut self.clients[at];
        client.ended(&ended);
        let is_idle = !self.gpus[client.gpu].contexts[&at].is_busy();
        let is_awaited = match client.state {
            State::AtDepth => true,
            State::Syncing => is_idle,
            _ => false,
        };
        if is_awaited {
            self.wake(at, delay);
        }
    }

    fn wake(&mut self, at: usize, delay: u64) {
        self.clients[at].epoch += 1;
        let number = self.number();
        self.plan(delay, number, Due::Wake(at, self.clients[at].epoch));
    }

    fn devices(&self) -> Vec<DeviceKey> {
        (0..self.gpus.len() as u32).map(DeviceKey).collect()
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn plan(&mut self, delay: u64, number: u64, due: Due) {
        let at_ns = self.now + delay;
        self.queue.push(Reverse(Planned {
            at_ns,
            order: number,
            due,
        }));
    }
}

/// A plain kernel on stream 0.
pub fn kernel(length_ns: u64) -> Step {
    Step::Launch {
        stream: 0,
        length_ns,
        kind: Kind::Plain,
    }
}
