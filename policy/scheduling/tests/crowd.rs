// SPDX-License-Identifier: Apache-2.0
//! What clients that do nothing cost: how often a device is looked at, and what the scheduler takes for a look.

use std::time::Instant;

use partage_scheduling::{Class, ClientId, Config, DeviceKey, Event, JobId, Observation, Scheduler, Terms};

const S: u64 = 1_000_000_000;
const DEVICE: DeviceKey = DeviceKey(0);

struct Crowd {
    scheduler: Scheduler,
    seen: Vec<Observation>,
    now: u64,
}

impl Crowd {
    /// Jobs of one idle client each.
    fn new(clients: u64, class: impl Fn(u64) -> Class) -> Self {
        let mut scheduler = Scheduler::new(Config::default());
        let mut out = Vec::new();
        for number in 0..clients {
            let (client, job, device) = (ClientId(number), JobId(number), DEVICE);
            let terms = Terms {
                class: class(number),
                ..Terms::default()
            };
            scheduler.step(0, Event::JobTerms { job, device, terms }, &mut out);
            scheduler.step(0, Event::ClientJoined { client, job, device }, &mut out);
        }
        let seen = (0..clients).map(|number| Observation::idle(ClientId(number))).collect();
        Self {
            scheduler,
            seen,
            now: 0,
        }
    }

    /// Looks as often as is wanted for so long, the first client busy or not; looks in a second, and what one took.
    #[allow(clippy::disallowed_methods)] // What a step takes is only printed.
    fn look(&mut self, for_ns: u64, is_busy: bool) -> (u64, f64) {
        let (until, mut out, mut looks) = (self.now + for_ns, Vec::new(), 0);
        let begun = Instant::now();
        while let Some(interval) = self.scheduler.wants_observation(DEVICE)
            && self.now + interval < until
        {
            self.now += interval;
            self.seen[0].is_busy = is_busy;
            self.seen[0].retired += u64::from(is_busy);
            let seen = &self.seen;
            self.scheduler
                .step(self.now, Event::Observe { device: DEVICE, seen }, &mut out);
            out.clear();
            looks += 1;
        }
        let took = begun.elapsed().as_nanos() as f64 / f64::from(u32::try_from(looks).unwrap_or(1).max(1));
        (looks * S / for_ns, took)
    }
}

#[test]
fn the_longer_nobody_wants_a_device_the_less_often_it_is_looked_at() {
    println!("{:>8} {:28} {:>8} {:>10}", "clients", "doing", "looks/s", "us a look");
    for clients in [2, 64, 256] {
        let mut crowd = Crowd::new(clients, |_| Class::Normal);
        let mut report = |name: &str, for_ns: u64, is_busy: bool| {
            let (looks, took) = crowd.look(for_ns, is_busy);
            println!("{clients:8} {name:28} {looks:8} {:10.1}", took / 1e3);
            looks
        };
        report("idle, the first second", S / 5, false);
        report("idle, ten seconds", 10 * S, false);
        let idle = report("idle, from then on", 10 * S, false);
        report("one busy, the first second", S, true);
        report("one busy, ten seconds", 9 * S, true);
        let busy = report("one busy, from then on", 2 * S, true);
        assert!(idle <= 25, "{idle}");
        assert!(busy <= 250, "{busy}");
    }
}
