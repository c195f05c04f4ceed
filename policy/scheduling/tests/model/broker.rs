// SPDX-License-Identifier: Apache-2.0
//! The broker of the node: it tells the scheduler what happens, checks its invariants after every step, and carries its
//! commands out.

use partage_scheduling::{Action, ClientId, Command, DeviceKey, DeviceTime, Event, Observation, Scheduler};

use super::client::State;
use super::{Due, US, World};

impl World {
    pub(super) fn set_gate(&mut self, at: usize, is_open: bool, depth_ns: Option<u64>) {
        let delay = self.random.between(30 * US, 60 * US);
        let client = &mut self.clients[at];
        let is_wider = depth_ns.is_none_or(|depth| client.depth_ns.is_some_and(|before| depth > before));
        let is_awaited = match client.state {
            State::AtGate => is_open && !client.is_open,
            State::AtDepth => is_open && (is_wider || !client.is_open),
            _ => false,
        };
        client.is_open = is_open;
        client.depth_ns = depth_ns;
        if is_awaited {
            self.wake(at, delay);
        }
    }

    pub(super) fn apply(&mut self, command: Command) {
        match command.action {
            Action::Open { client, depth_ns, .. } => self.set_gate(client.0 as usize, true, depth_ns),
            Action::Close { client, .. } => self.set_gate(client.0 as usize, false, None),
            Action::Depth { client, depth_ns, .. } => {
                let is_open = self.clients[client.0 as usize].is_open;
                self.set_gate(client.0 as usize, is_open, depth_ns);
            }
            Action::NotDraining { .. } => self.not_draining += 1,
            Action::Regime { .. } => self.regimes += 1,
            Action::Draining { .. } => {}
        }
    }

    /// An event for the scheduler; its commands take effect a little later.
    pub fn step(&mut self, event: Event<'_>) {
        let Some(scheduler) = &mut self.scheduler else { return };
        let mut out = Vec::new();
        scheduler.step(self.now, event, &mut out);
        assert_eq!(scheduler.check(), [], "{} ns: after {event:?}", self.now);
        self.commands += out.len() as u64;
        if let Some(log) = &mut self.log {
            log.extend(out.iter().map(|command| (self.now, *command)));
        }
        let delay = self.random.between(2 * US, 5 * US);
        if !out.is_empty() {
            // Later commands never overtake earlier ones.
            self.applied_ns = self.applied_ns.max(self.now + delay);
            let number = self.number();
            self.plan(self.applied_ns - self.now, number, Due::Apply(out, self.epoch));
        }
        self.watch();
    }

    /// Plans the next look at each device and the next tick, as the scheduler wants them now.
    fn watch(&mut self) {
        let Some(scheduler) = &self.scheduler else { return };
        let tick = scheduler.next_deadline();
        let wants: Vec<Option<u64>> = self
            .devices()
            .iter()
            .map(|device| scheduler.wants_observation(*device))
            .collect();
        for (at, interval) in wants.into_iter().enumerate() {
            let late = self.random.between(0, 10 * US);
            let Some(interval) = interval else { continue };
            let number = self.number();
            let due = (self.looked[at].0 + interval).max(self.now) + late;
            self.looked[at].1 = number;
            self.plan(due - self.now, number, Due::Look(DeviceKey(at as u32), number));
        }
        if let Some(tick) = tick.map(|tick| tick.max(self.now))
            && self.tick_ns.is_none_or(|planned| tick < planned)
        {
            let number = self.number();
            self.tick_ns = Some(tick);
            self.plan(tick - self.now, number, Due::Tick(tick, self.epoch));
        }
    }

    pub(super) fn look(&mut self, device: DeviceKey) {
        self.looked[device.0 as usize].0 = self.now;
        self.looks += 1;
        let seen: Vec<Observation> = (0..self.clients.len())
            .filter(|at| self.clients[*at].gpu == device.0 as usize && self.clients[*at].state != State::Gone)
            .map(|at| self.clients[at].frozen.unwrap_or_else(|| self.observe(at)))
            .collect();
        self.step(Event::Observe { device, seen: &seen });
    }

    /// What is to be seen of a client.
    pub(super) fn observe(&self, at: usize) -> Observation {
        let client = &self.clients[at];
        let context = self.gpus[client.gpu].contexts.get(&at);
        let device_time = DeviceTime {
            ns: context.map_or(0, |context| context.retired_ns),
            is_estimate: !client.is_known,
        };
        let is_busy = context.is_some_and(|context| context.is_busy());
        client.observe(at, is_busy, device_time)
    }

    pub(super) fn join(&mut self, at: usize) {
        let client = &self.clients[at];
        self.step(Event::ClientJoined {
            client: ClientId(at as u64),
            job: client.job,
            device: DeviceKey(client.gpu as u32),
        });
    }

    pub(super) fn adopt(&mut self) {
        self.scheduler = Some(Scheduler::new(self.config));
        for (job, terms) in self.jobs.clone() {
            for device in self.devices() {
                self.step(Event::JobTerms { job, device, terms });
            }
        }
        for at in 0..self.clients.len() {
            if self.clients[at].state != State::Gone {
                self.set_gate(at, false, None);
                self.join(at);
            }
        }
    }
}
