// SPDX-License-Identifier: Apache-2.0
//! The scheduler: takes events, decides for the devices they touch, says what has changed.

use std::collections::BTreeMap;

use partage_protocol::units::{ClientId, JobId};

use crate::command::{Action, Cause, Command};
use crate::config::Config;
use crate::contention::Contention;
use crate::depth::depth;
use crate::device::{Device, Turn};
use crate::event::{DeviceKey, Event, Terms};
use crate::gang::{self, Gang};
use crate::job_on_device::{ClientOnDevice, Gate};
use crate::overlap;

/// Shares, caps, classes, regimes and gangs of all devices of a node.
#[derive(Clone, Debug)]
pub struct Scheduler {
    pub(crate) config: Config,
    pub(crate) now: u64,
    pub(crate) devices: BTreeMap<DeviceKey, Device>,
    pub(crate) gangs: BTreeMap<JobId, Gang>,
    /// Why gates change in this step.
    why: Option<&'static str>,
}

impl Scheduler {
    /// Knows nobody yet.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            now: 0,
            devices: BTreeMap::new(),
            gangs: BTreeMap::new(),
            why: None,
        }
    }

    /// Takes an event and appends what is to be done, in order. Time does not go back: an earlier `now` counts as the
    /// latest.
    pub fn step(&mut self, now: u64, event: Event<'_>, out: &mut Vec<Command>) {
        self.now = self.now.max(now);
        let now = self.now;
        let config = self.config;
        self.why = None;
        match event {
            Event::JobTerms { job, device, terms } => {
                // What was a gang and is none now is judged anew on its other devices, too.
                let before = gang::connected(&self.gangs, device);
                self.device(device).set_terms(job, terms, &config, now);
                gang::refresh(&mut self.gangs, &self.devices);
                self.settle(device, out);
                let others = before.into_iter().filter(|key| *key != device);
                others.for_each(|key| self.settle(key, out));
            }
            Event::JobGone { job } => self.forget_job(job, out),
            Event::ClientJoined { client, job, device } => {
                self.join(client, job, device);
                self.settle(device, out);
            }
            Event::ClientLeft { client } => self.leave(client, out),
            Event::Observe { device, seen } => {
                let gangs: Vec<JobId> = self.gangs.keys().copied().collect();
                if self.is_late(device, now) {
                    self.device(device).begin_anew(now, &config);
                }
                self.device(device).account(seen, &gangs, &config, now);
                self.settle(device, out);
            }
            Event::Residency { device, exclusive } => {
                self.device(device).rule.is_forced = exclusive;
                self.settle(device, out);
            }
            Event::Unmanaged { device, busy, felt } => {
                let there = self.device(device);
                (there.is_unmanaged, there.is_felt) = (busy, busy || felt);
                self.settle(device, out);
            }
            Event::Marked { device } => {
                for member in self.device(device).members.values_mut() {
                    member.begin_measuring(now);
                }
            }
            Event::Corrected {
                device,
                job,
                ns,
                over_ns,
            } => {
                if let Some(member) = self.device(device).members.get_mut(&job) {
                    member.correction.add(ns, over_ns);
                }
            }
            Event::Tick => {
                for key in self.keys(|_| true) {
                    self.settle(key, out);
                }
            }
        }
    }

    /// When `step` is to be called with [`Event::Tick`] if nothing else comes first.
    pub fn next_deadline(&self) -> Option<u64> {
        let devices = self.devices.values().flat_map(|device| {
            let capped = device.present().filter(|(_, member)| member.is_capped());
            let caps = capped
                .filter_map(|(_, member)| Some(member.budget.as_ref()?.next_ns()))
                .min();
            let drain = match device.turn {
                Turn::Free { since_ns } if device.is_turns() && device.candidates().next().is_some() => {
                    Some(since_ns + device.drain_timeout_ns(&self.config))
                }
                _ => None,
            };
            [caps, drain, overlap::relief_due_ns(device, &self.config, self.now)]
        });
        let gangs = self.gangs.values().map(Gang::due_ns);
        // What is due already and did not happen waits for an observation, not for a tick.
        devices.chain(gangs).flatten().filter(|due| *due > self.now).min()
    }

    fn join(&mut self, client: ClientId, job: JobId, key: DeviceKey) {
        let (config, now) = (self.config, self.now);
        let device = self.device(key);
        if !device.members.contains_key(&job) {
            device.set_terms(job, Terms::default(), &config, now);
        }
        if let Some(member) = device.members.get_mut(&job) {
            member.seats.retain(|seat| seat.client != client);
            member.seats.push(ClientOnDevice::new(client, now));
            // Who comes is taken to want something soon: it must not find seconds of work before its own.
            member.wanted_ns = Some(now);
        }
        device.rule.forget(&config);
        gang::refresh(&mut self.gangs, &self.devices);
    }

    fn leave(&mut self, client: ClientId, out: &mut Vec<Command>) {
        let config = self.config;
        let has = |seat: &ClientOnDevice| seat.client == client;
        let keys = self.keys(|device| device.members.values().any(|member| member.seats.iter().any(has)));
        for key in &keys {
            for member in self.device(*key).members.values_mut() {
                member.seats.retain(|seat| !has(seat));
            }
            self.device(*key).rule.forget(&config);
        }
        gang::refresh(&mut self.gangs, &self.devices);
        keys.into_iter().for_each(|key| self.settle(key, out));
    }

    fn forget_job(&mut self, job: JobId, out: &mut Vec<Command>) {
        let (config, now) = (self.config, self.now);
        let keys = self.keys(|device| device.members.contains_key(&job));
        for key in &keys {
            self.device(*key).remove(job, &config, now);
        }
        gang::refresh(&mut self.gangs, &self.devices);
        keys.into_iter().for_each(|key| self.settle(key, out));
    }

    /// Decides anew for a device and all that gangs connect with it.
    fn settle(&mut self, key: DeviceKey, out: &mut Vec<Command>) {
        let (config, now) = (self.config, self.now);
        let keys = gang::connected(&self.gangs, key);
        let gangs = self
            .gangs
            .iter()
            .map(|(job, gang)| (*job, gang.lag(*job, &self.devices)))
            .collect();
        for key in &keys {
            let Some(device) = self.devices.get_mut(key) else {
                continue;
            };
            device.advance_caps(now);
            overlap::find_ahead(device, &gangs, &config);
            let evidence = device.evidence(&config, now);
            if let Some((regime, reason)) = device.rule.judge(now, &evidence, &config) {
                device.turn = Turn::Free { since_ns: now };
                device.claim = None;
                out.push(Command {
                    action: Action::Regime { device: *key, regime },
                    reason,
                });
            }
            if !device.is_turns() {
                overlap::judge(device, &config, now);
            }
        }
        self.take_turns(&keys, out);
        let gangs: Vec<JobId> = self.gangs.keys().copied().collect();
        for job in gangs {
            if let Some(gang) = self.gangs.get_mut(&job)
                && gang.devices.iter().any(|key| keys.contains(key))
            {
                gang.unite(job, &mut self.devices, &config, now);
            }
        }
        // Gates close before others open: what follows an open gate may be what a closed one must not meet.
        for key in &keys {
            self.close_gates(*key, out);
        }
        for key in &keys {
            self.open_gates(*key, out);
            self.name_drains(*key, out);
        }
    }

    fn close_gates(&mut self, key: DeviceKey, out: &mut Vec<Command>) {
        let (now, why) = (self.now, self.why);
        let Some(device) = self.devices.get_mut(&key) else {
            return;
        };
        for member in device.members.values_mut() {
            let Some(by) = member.held_by else { continue };
            for seat in member.seats.iter_mut().filter(|seat| seat.gate != Gate::Closed) {
                seat.gate = Gate::Closed;
                seat.changed_ns = now;
                let client = seat.client;
                let action = Action::Close { device: key, client };
                out.push(Command {
                    action,
                    reason: why.unwrap_or(reason(by)),
                });
            }
        }
    }

    fn open_gates(&mut self, key: DeviceKey, out: &mut Vec<Command>) {
        let (config, now) = (self.config, self.now);
        let Some(device) = self.devices.get(&key) else { return };
        let contention = Contention::of(device, &config, now);
        let mut changes = Vec::new();
        for (job, member) in &device.members {
            if member.held_by.is_some() {
                continue;
            }
            for (at, seat) in member.seats.iter().enumerate() {
                let (depth_ns, reason) = depth(device, member, seat, &contention, &config);
                let client = seat.client;
                let action = match seat.gate {
                    Gate::Closed => Action::Open {
                        device: key,
                        client,
                        depth_ns,
                    },
                    Gate::Open { depth_ns: before } if before != depth_ns => Action::Depth {
                        device: key,
                        client,
                        depth_ns,
                    },
                    Gate::Open { .. } => continue,
                };
                changes.push((*job, at, depth_ns, Command { action, reason }));
            }
        }
        let Some(device) = self.devices.get_mut(&key) else {
            return;
        };
        for (job, at, depth_ns, command) in changes {
            if let Some(seat) = device.members.get_mut(&job).and_then(|member| member.seats.get_mut(at)) {
                if seat.gate == Gate::Closed {
                    seat.changed_ns = now;
                }
                seat.is_shallow &= depth_ns.is_some_and(|depth| depth <= config.depth_present_ns);
                seat.gate = Gate::Open { depth_ns };
                out.push(command);
            }
        }
    }

    /// Names the clients whose work does not end behind a closed gate, and those that drain again.
    fn name_drains(&mut self, key: DeviceKey, out: &mut Vec<Command>) {
        let now = self.now;
        let Some(device) = self.devices.get_mut(&key) else {
            return;
        };
        let timeout = self.config.drain_timeout_ns;
        for seat in device.members.values_mut().flat_map(|member| &mut member.seats) {
            let client = seat.client;
            let is_moving = !seat.seen.is_busy || seat.progressed_ns == now;
            if seat.is_stuck && is_moving {
                seat.is_stuck = false;
                out.push(Command {
                    action: Action::Draining { device: key, client },
                    reason: "its work retires again",
                });
            } else if !seat.is_stuck && seat.gate == Gate::Closed && seat.stalls(timeout) {
                seat.is_stuck = true;
                out.push(Command {
                    action: Action::NotDraining { device: key, client },
                    reason: "its work does not end",
                });
            }
        }
    }

    pub(crate) fn note(&mut self, why: &'static str) {
        self.why = Some(why);
    }

    fn device(&mut self, key: DeviceKey) -> &mut Device {
        let config = self.config;
        self.devices.entry(key).or_insert_with(|| Device::new(key, &config))
    }

    fn keys(&self, of: impl Fn(&Device) -> bool) -> Vec<DeviceKey> {
        self.devices
            .values()
            .filter(|device| of(device))
            .map(|device| device.key)
            .collect()
    }
}

fn reason(by: Cause) -> &'static str {
    match by {
        Cause::None => "the device is drained",
        Cause::Cap => "the cap is used up",
        Cause::Neighbour(_) => "another job is owed time",
        Cause::Priority(_) => "a job of a higher class wants the device",
        Cause::Unmanaged => "processes outside of our control use the device",
    }
}
