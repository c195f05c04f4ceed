// SPDX-License-Identifier: Apache-2.0
//! What somebody else found out of a job's time: it is charged like time that looks saw, evenly, and owed within
//! bounds.

use partage_scheduling::{
    Action, ClientId, Config, DeviceKey, Event, JobId, JobView, Observation, Scheduler, Terms, TimeState,
};

const S: u64 = 1_000_000_000;
const DEVICE: DeviceKey = DeviceKey(0);
const LIAR: JobId = JobId(1);
const VICTIM: JobId = JobId(2);

struct Bench {
    scheduler: Scheduler,
    seen: [Observation; 2],
    now: u64,
    /// The liar comes by its gate, and has work whenever that is open.
    is_coming: bool,
    is_open: bool,
}

impl Bench {
    fn new(cap_ppm: Option<u32>) -> Self {
        let mut scheduler = Scheduler::new(Config::default());
        for (job, cap_ppm) in [(LIAR, cap_ppm), (VICTIM, None)] {
            let terms = Terms {
                cap_ppm,
                ..Terms::default()
            };
            let (client, device) = (ClientId(job.0), DEVICE);
            scheduler.step(0, Event::JobTerms { job, device, terms }, &mut Vec::new());
            scheduler.step(0, Event::ClientJoined { client, job, device }, &mut Vec::new());
        }
        let seen = [LIAR, VICTIM].map(|job| Observation::idle(ClientId(job.0)));
        let mut bench = Self {
            scheduler,
            seen,
            now: 0,
            is_coming: false,
            is_open: false,
        };
        bench.look();
        bench
    }

    fn correct(&mut self, job: JobId, ns: i64) {
        let event = Event::Corrected {
            device: DEVICE,
            job,
            ns,
            over_ns: S,
        };
        self.scheduler.step(self.now, event, &mut Vec::new());
        assert_eq!(self.scheduler.check(), [], "after {event:?}");
    }

    /// Looks every quarter of a millisecond for a second.
    fn second(&mut self) {
        for _ in 0..4_000 {
            self.now += S / 4_000;
            self.look();
        }
    }

    fn look(&mut self) {
        for seen in &mut self.seen {
            seen.retired += 1;
        }
        self.seen[0].is_busy = self.is_coming && self.is_open;
        self.seen[0].is_waiting = self.is_coming && !self.is_open;
        let (seen, mut out) = (&self.seen, Vec::new());
        let event = Event::Observe { device: DEVICE, seen };
        self.scheduler.step(self.now, event, &mut out);
        assert_eq!(self.scheduler.check(), [], "after {event:?}");
        for command in out {
            match command.action {
                Action::Open { client, .. } if client.0 == LIAR.0 => self.is_open = true,
                Action::Close { client, .. } if client.0 == LIAR.0 => self.is_open = false,
                _ => {}
            }
        }
    }

    fn view(&self, job: JobId) -> JobView {
        let views = self.scheduler.view(self.now);
        *views.iter().find(|view| view.job == job).expect("there")
    }
}

#[test]
fn a_correction_counts_as_what_a_job_got_and_against_its_cap() {
    let mut bench = Bench::new(Some(100_000));
    bench.seen[1].is_busy = true;
    for round in 0..5 {
        bench.correct(LIAR, 750_000_000);
        bench.correct(VICTIM, -750_000_000);
        bench.second();
        let (liar, victim) = (bench.view(LIAR), bench.view(VICTIM));
        let near = |ppm: u32, percent: u32| ppm.abs_diff(percent * 10_000) < 10_000;
        assert!(
            near(liar.got_ppm_1s, 75) && near(victim.got_ppm_1s, 25),
            "{round}: {liar:?} {victim:?}"
        );
        assert_eq!(liar.corrected_ns, (round + 1) * 750_000_000);
        assert_eq!(liar.state, TimeState::Capped);
    }
    assert_eq!(bench.view(LIAR).used_ns, 3_750_000_000);
    // It pays: 3.75 s less ten percent a second, and not for ever.
    bench.second();
    assert_eq!(bench.view(LIAR).state, TimeState::Capped);
    for _ in 0..20 {
        bench.correct(LIAR, 900_000_000);
        bench.second();
    }
    for _ in 0..51 {
        bench.second();
    }
    assert_ne!(
        bench.view(LIAR).state,
        TimeState::Capped,
        "five seconds at most are owed"
    );
}

#[test]
fn a_corrected_job_waits_for_others_and_not_for_ever() {
    let mut bench = Bench::new(None);
    bench.seen[1].is_busy = true;
    for _ in 0..30 {
        bench.correct(LIAR, 900_000_000);
        bench.correct(VICTIM, -900_000_000);
        bench.second();
    }
    // It comes by the gate now, and is a second behind its half: the other has most of two seconds first.
    bench.is_coming = true;
    bench.second();
    let first = bench.view(LIAR).got_ppm_1s;
    assert!(first < 100_000, "{first}");
    for _ in 0..4 {
        bench.second();
    }
    let later = bench.view(LIAR).got_ppm_1s;
    assert!(later.abs_diff(500_000) < 50_000, "{later}");
}
