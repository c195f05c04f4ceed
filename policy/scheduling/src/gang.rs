// SPDX-License-Identifier: Apache-2.0
//! Gangs: jobs whose work on several devices waits for one another (collectives).
//!
//! A gang is let in or kept away on all its devices in one transaction: every step decides for all devices that gangs
//! connect, in the order of their keys, and either all gates of a gang open or none does. Where devices take turns a
//! gang gets its turn on all of them at once: it claims them together, each is drained, and nobody holds one of them
//! while it waits for another. So there is no circular wait.
//!
//! Gates can close between two launches of one collective: a member then spins on its device for a peer that stands at
//! its closed gate. When this shows (one client makes no progress, another of the gang waits) the whole gang goes on
//! for a moment and is closed again; a drain that has not ended after the timeout leads to Overlap as any other.

use std::collections::{BTreeMap, BTreeSet};

use partage_protocol::units::JobId;

use crate::command::Cause;
use crate::config::Config;
use crate::device::Device;
use crate::event::DeviceKey;
use crate::job_on_device::JobOnDevice;

/// What is remembered of a gang.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gang {
    pub devices: BTreeSet<DeviceKey>,
    /// Since when its gates are closed.
    closed_ns: Option<u64>,
    /// Until when it goes on although its gates should be closed.
    ahead_until_ns: Option<u64>,
    /// Since when it wants its devices and is not let in.
    kept_ns: Option<u64>,
}

/// The gangs that there are now, with what was remembered of them.
pub(crate) fn refresh(gangs: &mut BTreeMap<JobId, Gang>, devices: &BTreeMap<DeviceKey, Device>) {
    let mut seen: BTreeMap<JobId, (bool, BTreeSet<DeviceKey>)> = BTreeMap::new();
    for device in devices.values() {
        for (job, member) in device.present() {
            let entry = seen.entry(job).or_default();
            entry.0 |= member.terms.is_gang;
            entry.1.insert(device.key);
        }
    }
    seen.retain(|_, (is_gang, devices)| *is_gang && devices.len() >= 2);
    gangs.retain(|job, _| seen.contains_key(job));
    for (job, (_, devices)) in seen {
        gangs.entry(job).or_default().devices = devices;
    }
}

/// The devices that must be decided together with this one, in order.
pub(crate) fn connected(gangs: &BTreeMap<JobId, Gang>, device: DeviceKey) -> Vec<DeviceKey> {
    let mut found = BTreeSet::from([device]);
    loop {
        let before = found.len();
        for gang in gangs.values() {
            if !gang.devices.is_disjoint(&found) {
                found.extend(&gang.devices);
            }
        }
        if found.len() == before {
            return found.into_iter().collect();
        }
    }
}

impl Gang {
    /// When something has to be done about it without an observation.
    pub fn due_ns(&self) -> Option<u64> {
        self.ahead_until_ns
    }

    /// What the gang is owed over all its devices.
    pub fn lag(&self, job: JobId, devices: &BTreeMap<DeviceKey, Device>) -> i64 {
        let devices = self.devices.iter().filter_map(|key| devices.get(key));
        let wanted = devices.filter(|device| device.eevdf.is_in(job));
        wanted.map(|device| device.eevdf.lag(job)).sum()
    }

    /// Whether the gang may have a turn: nothing keeps it away from any of its devices, and over all of them together
    /// it is not ahead of its share. (Each device by itself would not do: two gangs may each be ahead on one.) One that
    /// has been kept for as long as a drain may take may be ahead.
    pub fn may_run(&self, job: JobId, devices: &BTreeMap<DeviceKey, Device>, config: &Config, now: u64) -> bool {
        let is_due = self
            .kept_ns
            .is_some_and(|since| now.saturating_sub(since) >= config.drain_timeout_ns);
        let mut lag = 0;
        for device in self.devices.iter().filter_map(|key| devices.get(key)) {
            let Some(member) = device.members.get(&job) else {
                continue;
            };
            let is_kept = !device.is_turns() && member.held_by.is_some();
            if member.is_capped() || is_kept {
                return false;
            }
            if device.is_turns() && device.candidates().any(|(other, _)| other != job) {
                lag += device.eevdf.lag(job);
            }
        }
        is_due || lag >= 0
    }

    /// Whether the gang that has its turn may keep it: nothing keeps it away where devices overlap, and it has its turn
    /// on every device that takes turns.
    pub fn may_go_on(&self, job: JobId, devices: &BTreeMap<DeviceKey, Device>) -> bool {
        self.devices.iter().filter_map(|key| devices.get(key)).all(|device| {
            let Some(member) = device.members.get(&job) else {
                return true;
            };
            !member.is_capped()
                && if device.is_turns() {
                    device.holder() == Some(job)
                } else {
                    member.held_by.is_none() || self.ahead_until_ns.is_some()
                }
        })
    }

    /// Whether this holds for the gang on any of its devices.
    pub fn any(&self, job: JobId, devices: &BTreeMap<DeviceKey, Device>, holds: impl Fn(&JobOnDevice) -> bool) -> bool {
        let members = self
            .devices
            .iter()
            .filter_map(|key| devices.get(key)?.members.get(&job));
        members.into_iter().any(holds)
    }

    /// Whether nothing of the gang is on any of its devices that take turns.
    pub fn is_drained(&self, job: JobId, devices: &BTreeMap<DeviceKey, Device>) -> bool {
        let turns = self
            .devices
            .iter()
            .filter_map(|key| devices.get(key))
            .filter(|device| device.is_turns());
        turns
            .filter_map(|device| Some((device, device.members.get(&job)?)))
            .all(|(device, member)| member.is_drained(device.rule.is_forced))
    }

    /// Gives all members of the gang the same verdict, and lets it go on for a moment where it has to.
    pub fn unite(&mut self, job: JobId, devices: &mut BTreeMap<DeviceKey, Device>, config: &Config, now: u64) {
        let keys: Vec<DeviceKey> = self.devices.iter().copied().collect();
        let members = || keys.iter().filter_map(|key| devices.get(key)?.members.get(&job));
        let mut held_by = members().find_map(|member| member.held_by);
        let stalls = members().any(|member| member.relief.is_some_and(|relief| !relief.is_owed));
        let wants = members().any(JobOnDevice::wants);
        self.kept_ns = if held_by.is_some() && wants {
            self.kept_ns.or(Some(now))
        } else {
            None
        };
        if self.ahead_until_ns.is_some_and(|until| now >= until) {
            self.ahead_until_ns = None;
            self.closed_ns = None;
        }
        let is_capped = held_by == Some(Cause::Cap);
        match held_by {
            None => (self.closed_ns, self.ahead_until_ns) = (None, None),
            Some(_) => {
                let since = *self.closed_ns.get_or_insert(now);
                if self.ahead_until_ns.is_none()
                    && now.saturating_sub(since) >= config.run_ahead_ns
                    && (is_torn(members(), since, now, config))
                {
                    self.ahead_until_ns = Some(now + config.run_ahead_ns / 2);
                }
            }
        }
        // What is in flight for a capped gang is its debt in any case; ending it is cheaper than letting it spin.
        // So is what a thread of it may have to bring on another device.
        if self.ahead_until_ns.is_some() || stalls {
            held_by = None;
        } else if is_capped {
            held_by = Some(Cause::Cap);
        }
        for key in &keys {
            if let Some(member) = devices.get_mut(key).and_then(|device| device.members.get_mut(&job)) {
                member.is_barred = member.held_by.is_none() && held_by.is_some();
                member.held_by = held_by;
            }
        }
    }
}

/// Whether a client of the gang has work that does not end while another stands at its closed gate.
fn is_torn<'a>(members: impl Iterator<Item = &'a JobOnDevice> + Clone, since: u64, now: u64, config: &Config) -> bool {
    let spins = members.clone().flat_map(|member| &member.seats).find(|seat| {
        let idle_ns = now.saturating_sub(seat.progressed_ns.max(since));
        // A long unit is none that spins, at least as long as a drain has half of its time left.
        let unit = seat.seen.unit_ns;
        let enough = config
            .run_ahead_ns
            .max((unit + unit / 2).min(config.drain_timeout_ns / 2));
        seat.seen.is_busy && idle_ns >= enough
    });
    let Some(spins) = spins else { return false };
    members.flat_map(|member| &member.seats).any(|seat| {
        (seat.client != spins.client || !seat.seen.is_busy) && seat.seen.is_waiting && !seat.seen.is_stopped
    })
}
