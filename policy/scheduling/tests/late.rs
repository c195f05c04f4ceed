// SPDX-License-Identifier: Apache-2.0
//! The broker stands still for a while, so that nobody closes a gate. What that costs a job afterwards does not depend
//! on the instant at which it happened.

use partage_scheduling::{
    Action, ClientId, Config, DeviceKey, DeviceTime, Event, JobId, Observation, Scheduler, Terms,
};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
const DEVICE: DeviceKey = DeviceKey(0);
/// A client passes a closed gate once nobody has looked for so long.
const PATIENCE: u64 = 2 * S;
const LOOK: u64 = 500 * US;

#[derive(Clone)]
struct Program {
    seen: Observation,
    used_ns: u64,
    is_open: bool,
}

/// Jobs that always want the device, which gives each of them its part.
#[derive(Clone)]
struct Bench {
    scheduler: Scheduler,
    programs: Vec<Program>,
    looked_ns: u64,
    now: u64,
}

impl Bench {
    fn new(caps: &[Option<u32>]) -> Self {
        let mut scheduler = Scheduler::new(Config::default());
        let mut programs = Vec::new();
        for (job, cap_ppm) in (1..).zip(caps) {
            let terms = Terms {
                cap_ppm: *cap_ppm,
                ..Terms::default()
            };
            let (client, job, device) = (ClientId(job), JobId(job), DEVICE);
            scheduler.step(0, Event::JobTerms { job, device, terms }, &mut Vec::new());
            let mut out = Vec::new();
            scheduler.step(0, Event::ClientJoined { client, job, device }, &mut out);
            programs.push(Program {
                seen: Observation {
                    unit_ns: LOOK,
                    ..Observation::idle(client)
                },
                used_ns: 0,
                is_open: out.iter().any(|command| matches!(command.action, Action::Open { .. })),
            });
        }
        Self {
            scheduler,
            programs,
            looked_ns: 0,
            now: 0,
        }
    }

    fn look(&mut self) {
        self.looked_ns = self.now;
        for program in &mut self.programs {
            let seen = &mut program.seen;
            (seen.is_busy, seen.is_waiting) = (program.is_open, !program.is_open);
            seen.retired += u64::from(program.is_open);
            seen.device_time = DeviceTime {
                ns: program.used_ns,
                is_estimate: false,
            };
        }
        let seen: Vec<Observation> = self.programs.iter().map(|program| program.seen).collect();
        let (event, mut out) = (
            Event::Observe {
                device: DEVICE,
                seen: &seen,
            },
            Vec::new(),
        );
        self.scheduler.step(self.now, event, &mut out);
        assert_eq!(self.scheduler.check(), []);
        for command in out {
            let (client, is_open) = match command.action {
                Action::Open { client, .. } => (client, true),
                Action::Close { client, .. } => (client, false),
                _ => continue,
            };
            let program = self.programs.iter_mut().find(|program| program.seen.client == client);
            program.expect("one of them").is_open = is_open;
        }
    }

    /// Goes on for so long; the broker looks, or stands still.
    fn run(&mut self, ns: u64, is_there: bool) {
        let until = self.now + ns;
        let step = if is_there { LOOK } else { 10 * LOOK };
        while self.now < until {
            self.now += step;
            let is_free = self.now - self.looked_ns > PATIENCE;
            let running = self
                .programs
                .iter()
                .filter(|program| program.is_open || is_free)
                .count() as u64;
            for program in &mut self.programs {
                if program.is_open || is_free {
                    program.used_ns += step / running;
                }
            }
            if is_there {
                self.look();
            }
        }
    }

    /// How long it takes until each has got `ns` more, at the most.
    fn time_for(&mut self, ns: u64, most_ns: u64) -> u64 {
        let (begun, before) = (self.now, self.programs.clone());
        let is_done = |bench: &Self| {
            let mut both = bench.programs.iter().zip(&before);
            both.all(|(now, before)| now.used_ns >= before.used_ns + ns)
        };
        while !is_done(self) && self.now - begun < most_ns {
            self.run(LOOK, true);
        }
        self.now - begun
    }
}

#[test]
fn what_a_cap_owes_for_a_broker_that_stood_still_does_not_depend_on_the_instant() {
    for stopped_ns in [S / 2, 6 * S, 60 * S] {
        let mut bench = Bench::new(&[Some(100_000)]);
        bench.run(S, true);
        let mut longest = 0;
        // Through two periods of the cap: its gate is open for a tenth of them.
        for _ in 0..40 {
            bench.run(5 * MS, true);
            let mut after = bench.clone();
            after.run(stopped_ns, false);
            longest = longest.max(after.time_for(MS, 4 * S));
        }
        println!("stopped for {} ms: {} ms at most", stopped_ns / MS, longest / MS);
        // A quarter of a second at a tenth of the device, and what is left of two periods.
        assert!(longest <= 2_500 * MS + 200 * MS, "{stopped_ns}: {longest}");
    }
}

#[test]
fn a_look_that_is_a_little_late_is_charged_in_full() {
    let mut bench = Bench::new(&[Some(100_000)]);
    bench.run(S, true);
    for _ in 0..1_000 {
        if !bench.programs[0].is_open {
            bench.run(LOOK, true);
        }
    }
    assert!(bench.programs[0].is_open);
    let used = bench.programs[0].used_ns;
    bench.run(200 * MS, false);
    bench.run(4 * S, true);
    let got = bench.programs[0].used_ns - used;
    assert!(
        got.abs_diff(420 * MS) <= 25 * MS,
        "{got} in 4.2 s under a cap of a tenth"
    );
}

#[test]
fn who_worked_while_the_broker_stood_still_is_not_kept_away_for_as_long() {
    let mut bench = Bench::new(&[None, None]);
    bench.run(3 * S, true);
    let mut longest = 0;
    for _ in 0..40 {
        bench.run(MS / 2, true);
        let mut after = bench.clone();
        // The gates stay as they are for all of that time: in Turns one of them is closed.
        after.run(PATIENCE - 20 * LOOK, false);
        longest = longest.max(after.time_for(MS, 10 * S));
    }
    println!("{} ms at most", longest / MS);
    assert!(longest <= 300 * MS, "{longest}");
}

#[test]
fn a_job_alone_is_looked_at_seldom_and_that_is_not_late() {
    let bench = Bench::new(&[None]);
    let mut scheduler = bench.scheduler;
    let seen = [bench.programs[0].seen];
    scheduler.step(
        0,
        Event::Observe {
            device: DEVICE,
            seen: &seen,
        },
        &mut Vec::new(),
    );
    let interval = scheduler.wants_observation(DEVICE).expect("somebody is there");
    assert!(!scheduler.is_late(DEVICE, interval + Config::default().late_ns));
    assert!(scheduler.is_late(DEVICE, interval + Config::default().late_ns + 1));
}
