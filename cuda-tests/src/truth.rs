// SPDX-License-Identifier: Apache-2.0
//! What the devices of a simulated machine really did, by their own account: how much of a device each client got
//! between two instants.
//!
//! Everything is device time in nanoseconds (see `partage_machine::timeline`), so nothing here depends on how busy the
//! machine is that runs the tests. *Compute* means the multiprocessors. A *part* is in ppm of the device time that
//! passed; of the *wall* time only where a promise is about that: the device's clock stands still while a busy machine
//! keeps its clients from running.

use std::sync::Arc;
use std::time::{Duration, Instant};

use partage_machine::Machine;
use partage_machine::timeline::{self, DeviceTruth, Engine, Timeline};

use crate::client::PATIENCE;
use crate::rig::Rig;

const COMPUTE: usize = Engine::Compute as usize;
/// Windows that are judged at most, while the machine that runs the tests disturbs each.
const WINDOWS: usize = 5;
/// By which part of a window the device's clock is late behind the wall's, in ppm, where the machine disturbed it: a
/// quarter of the percent that shares may differ by. A client that does not get a processor also leaves the device idle
/// while the clock goes on: a window that was 0.47 % late was seen with one job's share off by 1.07 points.
const DISTURBED_PPM: u64 = 2_500;
/// The whole, in ppm.
pub const WHOLE_PPM: u64 = 1_000_000;

/// A look at the timelines of a rig's machine.
pub struct Truth(Arc<Timeline>);

/// What a device had done at an instant.
#[derive(Clone, Debug)]
pub struct Sample {
    truth: DeviceTruth,
    wall_ns: u64,
}

/// What a device did between two instants.
#[derive(Clone, Debug)]
pub struct Span {
    /// Device time that passed.
    pub elapsed_ns: u64,
    /// The same by the clock of the machine that runs this.
    wall_ns: u64,
    before: DeviceTruth,
    after: DeviceTruth,
}

impl Truth {
    /// The timelines of a rig's machine.
    ///
    /// # Panics
    /// When the machine is not a simulated one.
    pub fn of(rig: &Rig) -> Self {
        let machine = Machine::open(&rig.sim_dir()).expect("a simulated machine");
        Self(Arc::new(machine.timeline().expect("its timelines open")))
    }

    /// A device as of now.
    pub fn sample(&self, device: usize) -> Sample {
        let truth = self.0.truth(device);
        Sample {
            truth,
            wall_ns: timeline::wall(),
        }
    }

    /// Waits until a device did what is asked for.
    ///
    /// # Panics
    /// When it does not within [`PATIENCE`].
    #[track_caller]
    pub fn wait_for(&self, device: usize, what: &str, is_done: impl Fn(&Sample) -> bool) -> Sample {
        let begun = Instant::now();
        loop {
            let now = self.sample(device);
            if is_done(&now) {
                return now;
            }
            assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until all these processes were served by a device's multiprocessors.
    #[track_caller]
    pub fn wait_for_work_of(&self, device: usize, pids: &[u32]) -> Sample {
        self.wait_for(device, "everybody's first work", |now| {
            pids.iter().all(|&pid| now.busy_ns(pid) > 0)
        })
    }

    /// What a device does from now on until so much of its time has passed, and what passed meanwhile beyond that.
    #[track_caller]
    pub fn watch(&self, device: usize, device_ns: u64) -> Span {
        let before = self.sample(device);
        let after = self.wait_for(device, "device time passes", |now| {
            now.clock() >= before.clock() + device_ns
        });
        before.until(after)
    }

    /// Watches a device for so much of its time and judges what it did: the verdict of that window counts, unless it is
    /// a failure and the machine that runs this stood still in it ([`Span::was_disturbed`]). Then the next window is
    /// judged, up to [`WINDOWS`] of them.
    ///
    /// # Panics
    /// With what was wrong in each window.
    #[track_caller]
    pub fn judge(
        &self,
        rig: &Rig,
        device: usize,
        device_ns: u64,
        pids: &[u32],
        verdict: impl Fn(&Span) -> Result<(), String>,
    ) -> Span {
        let mut failures = Vec::new();
        loop {
            let span = self.watch(device, device_ns);
            let all = span.describe(pids);
            rig.note(&all);
            let Err(why) = verdict(&span) else { return span };
            failures.push(format!("{why}; {all}"));
            assert!(
                span.was_disturbed() && failures.len() < WINDOWS,
                "{}",
                failures.join("\n")
            );
        }
    }
}

impl Sample {
    /// Device time.
    pub fn clock(&self) -> u64 {
        self.truth.clock
    }

    /// Compute time of a process since the machine was made.
    pub fn busy_ns(&self, pid: u32) -> u64 {
        self.truth.busy_of(pid)[COMPUTE]
    }

    /// Compute time of all processes of a PID namespace since the machine was made.
    pub fn busy_in_ns(&self, namespace: u64) -> u64 {
        self.truth.busy_in(namespace)[COMPUTE]
    }

    /// Contexts of a process that live.
    pub fn contexts(&self, pid: u32) -> usize {
        let own = self.truth.seats.iter().filter(|seat| seat.owner.pid == u64::from(pid));
        own.count()
    }

    /// What happened from here to a later sample of the same device.
    pub fn until(&self, later: Self) -> Span {
        Span {
            elapsed_ns: later.truth.clock - self.truth.clock,
            wall_ns: later.wall_ns - self.wall_ns,
            before: self.truth.clone(),
            after: later.truth,
        }
    }
}

impl Span {
    fn part(&self, ns: u64) -> u64 {
        (u128::from(ns) * u128::from(WHOLE_PPM) / u128::from(self.elapsed_ns.max(1))) as u64
    }

    /// Compute time that a process was given.
    pub fn busy_ns(&self, pid: u32) -> u64 {
        self.after.busy_of(pid)[COMPUTE] - self.before.busy_of(pid)[COMPUTE]
    }

    /// Part of the device time that the multiprocessors worked for a process.
    pub fn part_ppm(&self, pid: u32) -> u64 {
        self.part(self.busy_ns(pid))
    }

    /// Part of the wall time that the multiprocessors worked for a process.
    pub fn wall_part_ppm(&self, pid: u32) -> u64 {
        (u128::from(self.busy_ns(pid)) * u128::from(WHOLE_PPM) / u128::from(self.wall_ns.max(1))) as u64
    }

    /// Time that passed by the clock of the machine that runs this.
    pub fn wall_ns(&self) -> u64 {
        self.wall_ns
    }

    /// By how much the device's clock, which waits for clients that do not get a processor, is late behind the wall's.
    pub fn late_ns(&self) -> u64 {
        self.wall_ns.saturating_sub(self.elapsed_ns)
    }

    /// Whether the machine that runs this kept clients from running for so long that shares may be off by it.
    pub fn was_disturbed(&self) -> bool {
        self.part(self.late_ns()) >= DISTURBED_PPM
    }

    /// Part of the multiprocessors' work, idle time and switching left out, that a process was given.
    pub fn share_ppm(&self, pid: u32) -> u64 {
        self.share_of(self.busy_ns(pid))
    }

    /// The same of all processes of a PID namespace.
    pub fn share_in_ppm(&self, namespace: u64) -> u64 {
        self.share_of(self.after.busy_in(namespace)[COMPUTE] - self.before.busy_in(namespace)[COMPUTE])
    }

    fn share_of(&self, ns: u64) -> u64 {
        let busy = self.after.busy_ns[COMPUTE] - self.before.busy_ns[COMPUTE];
        (u128::from(ns) * u128::from(WHOLE_PPM) / u128::from(busy.max(1))) as u64
    }

    /// Part of the device time in which the multiprocessors did nothing.
    pub fn idle_ppm(&self) -> u64 {
        self.part(self.after.idle_ns()[COMPUTE] - self.before.idle_ns()[COMPUTE])
    }

    /// Part of the device time that went into passing the multiprocessors from one context to another.
    pub fn switching_ppm(&self) -> u64 {
        self.part(self.after.switching_ns[COMPUTE] - self.before.switching_ns[COMPUTE])
    }

    /// How often the multiprocessors passed from one context to another.
    pub fn handovers(&self) -> u64 {
        self.after.handovers[COMPUTE] - self.before.handovers[COMPUTE]
    }

    /// For a failed assertion: everything at once.
    pub fn describe(&self, pids: &[u32]) -> String {
        let parts: Vec<String> = pids.iter().map(|&pid| format!("{}", self.part_ppm(pid))).collect();
        format!(
            "{} ns of device time ({} ns more on the wall); parts {} ppm, idle {} ppm, switching {} ppm, {} hand-overs",
            self.elapsed_ns,
            self.late_ns(),
            parts.join(" + "),
            self.idle_ppm(),
            self.switching_ppm(),
            self.handovers()
        )
    }
}
