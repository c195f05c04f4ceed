// SPDX-License-Identifier: Apache-2.0
//! What every step keeps, whatever is observed: random events with random observations, sensible or not.
//!
//! A failure prints the smallest failing history; `PROPTEST_RNG_SEED` set to the printed seed replays the whole run.

use std::collections::BTreeMap;

use partage_scheduling::{
    Action, Cause, Class, ClientId, Command, Config, DeviceKey, DeviceTime, Event, JobId, Observation, Regime,
    Scheduler, Terms,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Act {
    Terms(u64, u32, Terms),
    JobGone(u64),
    Join(u64, u64, u32),
    Leave(u64),
    /// Bits of a client: waiting, entering, busy, stopped, retires, tells its time.
    Observe(u32, Vec<u8>, u64),
    Residency(u32, bool),
    Unmanaged(u32, bool, bool),
    Marked(u32),
    Tick(u64),
}

fn terms() -> impl Strategy<Value = Terms> {
    let classes = prop::sample::select(vec![Class::Low, Class::Normal, Class::High, Class::Realtime]);
    let caps = prop::sample::select(vec![None, None, Some(0), Some(100_000), Some(500_000), Some(1_000_000)]);
    (
        prop::sample::select(vec![0, 0, 300_000, 1_000_000]),
        0..1000u32,
        classes,
        caps,
        any::<bool>(),
        prop::option::of(0..2u32),
    )
        .prop_map(|(promise_ppm, weight, class, cap_ppm, is_gang, user)| Terms {
            promise_ppm,
            weight,
            class,
            user,
            cap_ppm,
            is_gang,
        })
}

fn act() -> impl Strategy<Value = Act> {
    let (job, client, device) = (|| 0..4u64, || 0..6u64, || 0..2u32);
    let after = prop::sample::select(vec![1_000, 50_000, 200_000, 2_000_000, 30_000_000, 400_000_000]);
    prop_oneof![
        1 => (job(), device(), terms()).prop_map(|(job, device, terms)| Act::Terms(job, device, terms)),
        1 => job().prop_map(Act::JobGone),
        4 => (client(), job(), device()).prop_map(|(client, job, device)| Act::Join(client, job, device)),
        1 => client().prop_map(Act::Leave),
        24 => (device(), prop::collection::vec(any::<u8>(), 6), after.clone())
            .prop_map(|(device, bits, after)| Act::Observe(device, bits, after)),
        1 => (device(), any::<bool>()).prop_map(|(device, is_forced)| Act::Residency(device, is_forced)),
        1 => (device(), any::<bool>(), any::<bool>())
            .prop_map(|(device, busy, felt)| Act::Unmanaged(device, busy, felt)),
        1 => device().prop_map(Act::Marked),
        2 => after.prop_map(Act::Tick),
    ]
}

/// What the commands have made of the gates.
#[derive(Default)]
struct Mirror {
    now: u64,
    scheduler: Option<Scheduler>,
    gates: BTreeMap<(DeviceKey, ClientId), bool>,
    jobs: BTreeMap<(DeviceKey, ClientId), JobId>,
    terms: BTreeMap<(JobId, DeviceKey), Terms>,
    regimes: BTreeMap<DeviceKey, Regime>,
    forced: BTreeMap<DeviceKey, bool>,
    seen: BTreeMap<ClientId, Observation>,
}

impl Mirror {
    fn step(&mut self, event: Event<'_>) -> Result<(), TestCaseError> {
        let now = self.now;
        let scheduler = self.scheduler.get_or_insert_with(|| Scheduler::new(Config::default()));
        let mut out = Vec::new();
        scheduler.step(now, event, &mut out);
        prop_assert_eq!(scheduler.check(), [], "after {:?}", event);
        let due = scheduler.next_deadline();
        prop_assert!(
            due.is_none_or(|due| due > now),
            "a deadline in the past: {:?} at {}",
            due,
            now
        );
        for command in out {
            self.carry_out(command)?;
        }
        self.judge()
    }

    fn carry_out(&mut self, command: Command) -> Result<(), TestCaseError> {
        let is_open = |gates: &BTreeMap<_, _>, device, client| gates.get(&(device, client)).copied();
        match command.action {
            Action::Open { device, client, .. } | Action::Close { device, client } => {
                let opens = matches!(command.action, Action::Open { .. });
                prop_assert_eq!(
                    is_open(&self.gates, device, client),
                    Some(!opens),
                    "{:?} changes nothing",
                    command
                );
                self.gates.insert((device, client), opens);
            }
            Action::Depth { device, client, .. } => {
                prop_assert_eq!(
                    is_open(&self.gates, device, client),
                    Some(true),
                    "{:?} for a closed gate",
                    command
                );
            }
            Action::Regime { device, regime } => {
                prop_assert_ne!(self.regimes.insert(device, regime).unwrap_or(Regime::Overlap), regime);
            }
            Action::NotDraining { device, client } | Action::Draining { device, client } => {
                prop_assert!(self.gates.contains_key(&(device, client)), "{:?} for nobody", command);
            }
        }
        Ok(())
    }

    fn judge(&self) -> Result<(), TestCaseError> {
        let view = self
            .scheduler
            .as_ref()
            .map(|scheduler| scheduler.view(self.now))
            .unwrap_or_default();
        for device in [DeviceKey(0), DeviceKey(1)] {
            let open = |job: JobId, device: DeviceKey| -> Vec<bool> {
                let of_job = self
                    .jobs
                    .iter()
                    .filter(|((at, _), owner)| *at == device && **owner == job);
                of_job.map(|(key, _)| self.gates[key]).collect()
            };
            let rows: Vec<_> = view.iter().filter(|row| row.device == device).collect();
            let present: Vec<_> = rows.iter().filter(|row| !open(row.job, device).is_empty()).collect();
            let is_turns = self.regimes.get(&device) == Some(&Regime::Turns);
            for row in &present {
                // All clients of a job are let in or kept away together.
                let gates = open(row.job, device);
                prop_assert!(gates.iter().all(|gate| *gate == gates[0]), "{:?}", row);
                // Who is shown as held is closed, who is capped is closed unless it stalls.
                if row.held_by != Cause::None && row.held_by != Cause::Unmanaged && row.held_by != Cause::Cap {
                    prop_assert!(!gates[0], "{:?} is open", row);
                }
                // A gang is let in on both devices or on none.
                let is_gang = [DeviceKey(0), DeviceKey(1)]
                    .iter()
                    .any(|device| self.terms.get(&(row.job, *device)).is_some_and(|terms| terms.is_gang));
                let other = open(row.job, DeviceKey(1 - device.0));
                if is_gang && !other.is_empty() {
                    prop_assert_eq!(gates[0], other[0], "the gates of a gang differ: {:?}", row);
                }
                prop_assert!(row.got_ppm_1s <= 1_000_000 && row.asked_ppm <= 1_000_000);
                prop_assert!(row.wanted_ppm_60s <= 1_000_000);
            }
            let opened = present.iter().filter(|row| open(row.job, device)[0]).count();
            if is_turns && self.forced.get(&device) == Some(&true) {
                let runs_ahead = self.terms.values().any(|terms| terms.is_gang);
                prop_assert!(
                    opened <= 1 || runs_ahead,
                    "several jobs have a device that must be one's alone"
                );
            }
            // Work conservation: in Overlap somebody who wants the device is let in, if anybody may.
            let free: Vec<_> = present
                .iter()
                .copied()
                .filter(|row| self.jobs_want(device, row.job))
                .collect();
            let may = free.iter().filter(|row| row.held_by != Cause::Cap).count();
            let any_gang = self.terms.values().any(|terms| terms.is_gang);
            if !is_turns && may > 0 && !any_gang {
                prop_assert!(
                    free.iter().any(|row| open(row.job, device)[0]),
                    "nobody is let in: {:?}",
                    free
                );
            }
        }
        Ok(())
    }

    fn jobs_want(&self, device: DeviceKey, job: JobId) -> bool {
        let clients = self
            .jobs
            .iter()
            .filter(|((at, _), owner)| *at == device && **owner == job);
        clients.into_iter().any(|((at, client), _)| {
            self.seen.get(client).is_some_and(|seen| {
                *at == device && (seen.is_busy || (!seen.is_stopped && (seen.is_waiting || seen.is_entering)))
            })
        })
    }

    fn act(&mut self, act: &Act) -> Result<(), TestCaseError> {
        self.now += 1_000;
        match act {
            Act::Terms(job, device, terms) => {
                let (job, device, terms) = (JobId(*job), DeviceKey(*device), *terms);
                self.terms.insert((job, device), terms);
                self.step(Event::JobTerms { job, device, terms })
            }
            Act::JobGone(job) => {
                let job = JobId(*job);
                self.terms.retain(|(owner, _), _| *owner != job);
                let gone: Vec<_> = self
                    .jobs
                    .iter()
                    .filter(|(_, owner)| **owner == job)
                    .map(|(key, _)| *key)
                    .collect();
                for key in gone {
                    self.jobs.remove(&key);
                    self.gates.remove(&key);
                }
                self.step(Event::JobGone { job })
            }
            Act::Join(client, job, device) => {
                // A client belongs to one job and uses one device.
                let (client, job, device) = (ClientId(*client), JobId(*job), DeviceKey(*device));
                if self.jobs.keys().any(|(_, other)| *other == client) {
                    return Ok(());
                }
                self.jobs.insert((device, client), job);
                self.gates.insert((device, client), false);
                self.seen.remove(&client);
                self.terms.entry((job, device)).or_default();
                self.step(Event::ClientJoined { client, job, device })
            }
            Act::Leave(client) => {
                let client = ClientId(*client);
                self.jobs.retain(|(_, other), _| *other != client);
                self.gates.retain(|(_, other), _| *other != client);
                self.step(Event::ClientLeft { client })
            }
            Act::Observe(device, bits, after) => {
                self.now += after;
                let device = DeviceKey(*device);
                let here = self.jobs.keys().filter(|(at, _)| *at == device);
                let here: Vec<ClientId> = here.map(|(_, client)| *client).collect();
                for client in here {
                    let bits = bits[client.0 as usize];
                    let before = self.seen.get(&client).copied().unwrap_or(Observation::idle(client));
                    let seen = Observation {
                        client,
                        is_waiting: bits & 1 != 0,
                        is_entering: bits & 2 != 0,
                        is_busy: bits & 4 != 0,
                        is_pending: bits & 5 == 1,
                        is_stopped: bits & 0x38 == 0x38,
                        retired: before.retired + u64::from(bits & 0x40 != 0),
                        device_time: DeviceTime {
                            ns: before.device_time.ns + after / 2,
                            is_estimate: bits & 0x80 == 0,
                        },
                        unit_ns: u64::from(bits) * 20_000,
                    };
                    self.seen.insert(client, seen);
                }
                let here = |seen: &&Observation| self.jobs.contains_key(&(device, seen.client));
                let seen: Vec<Observation> = self.seen.values().filter(here).copied().collect();
                self.step(Event::Observe { device, seen: &seen })
            }
            Act::Residency(device, exclusive) => {
                let (device, exclusive) = (DeviceKey(*device), *exclusive);
                self.forced.insert(device, exclusive);
                self.step(Event::Residency { device, exclusive })
            }
            Act::Unmanaged(device, busy, felt) => {
                let (device, busy, felt) = (DeviceKey(*device), *busy, *felt);
                self.step(Event::Unmanaged { device, busy, felt })
            }
            Act::Marked(device) => self.step(Event::Marked {
                device: DeviceKey(*device),
            }),
            Act::Tick(after) => {
                self.now += after;
                self.step(Event::Tick)
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2 * ProptestConfig::default().cases))]

    #[test]
    fn every_step_keeps_what_is_promised(acts in prop::collection::vec(act(), 1..120)) {
        let mut mirror = Mirror::default();
        for act in &acts {
            mirror.act(act)?;
        }
    }
}

#[test]
fn a_job_alone_is_open_at_once_without_a_bound() {
    let mut scheduler = Scheduler::new(Config::default());
    let mut out = Vec::new();
    let (client, job, device) = (ClientId(1), JobId(1), DeviceKey(0));
    scheduler.step(5, Event::ClientJoined { client, job, device }, &mut out);
    let actions: Vec<Action> = out.iter().map(|command| command.action).collect();
    assert_eq!(
        actions,
        [Action::Open {
            device,
            client,
            depth_ns: None
        }]
    );
    assert!(
        scheduler
            .wants_observation(device)
            .is_none_or(|interval| interval >= 500_000_000)
    );
    assert_eq!(scheduler.next_deadline(), None);
    assert_eq!(scheduler.wants_observation(DeviceKey(1)), None);
}

#[test]
fn an_earlier_time_counts_as_the_latest() {
    let mut scheduler = Scheduler::new(Config::default());
    let mut out = Vec::new();
    let (client, job, device) = (ClientId(1), JobId(1), DeviceKey(0));
    scheduler.step(1_000_000_000, Event::ClientJoined { client, job, device }, &mut out);
    let seen = [Observation {
        is_busy: true,
        ..Observation::idle(client)
    }];
    scheduler.step(2_000_000_000, Event::Observe { device, seen: &seen }, &mut out);
    scheduler.step(1_500_000_000, Event::Observe { device, seen: &seen }, &mut out);
    assert!(scheduler.view(2_000_000_000)[0].got_ppm_1s <= 1_000_000);
}
