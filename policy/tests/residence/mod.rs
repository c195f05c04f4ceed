// SPDX-License-Identifier: Apache-2.0
//! A model of all that a passage touches: processes as the driver has them, devices, the reservation words, the hold,
//! CRIU's dump, the job's record on disk. It carries steps out, or fails them in one of the ways of [`Fault`], and
//! asserts after each what must hold at every instant.

use partage_policy::{Mark, Place, Process, ProcessState, Residence, Step, Target};
use partage_protocol::units::DeviceUuid;

mod run;
mod steps;

pub use run::{Run, plans};

/// Bytes of each device, and of each process of the job.
pub const DEVICE: u64 = 40;
pub const BYTES: u64 = 10;

pub fn uuid(number: usize) -> DeviceUuid {
    DeviceUuid {
        bytes: [number as u8 + 1; 16],
        is_mig: false,
    }
}

pub fn process(number: usize) -> Process {
    Process {
        pid: number as u32 + 100,
        start: 1,
    }
}

pub const TARGET: Target = Target {
    slot: 0,
    device: DeviceUuid {
        bytes: [2; 16],
        is_mig: false,
    },
};

/// When something is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Before,
    Inside,
    After,
}

/// What goes wrong at a step. Everything heals: what hangs or is stopped goes on after some pauses, memory that others
/// took is free again once the passage is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL of the broker.
    Broker(When),
    /// The same after so many accesses to words of the ledger.
    BrokerCut(usize),
    /// SIGKILL of the helper inside the call, which completes or does not.
    Helper { completes: bool },
    /// SIGKILL of a process of the job.
    Kill(usize, When),
    /// SIGSTOP of a process of the job, before the call or inside it.
    Stop(usize, When),
    /// The step is refused.
    Refuse(i32),
    /// The step misses its deadline; the call completes some time later, or never does.
    Late { completes: bool },
    /// A job takes all that nobody has in the books of the devices from now on.
    Greedy,
    /// A process of no job takes all that is free on a device, unseen by the books.
    Steal(usize),
    /// The same between the proof of room and the restore.
    Gap,
}

/// A process of the job.
#[derive(Clone, Debug)]
pub struct Target1 {
    pub state: ProcessState,
    pub is_alive: bool,
    pub is_poisoned: bool,
    pub is_stopped: bool,
    /// A dump left it stopped.
    pub is_frozen: bool,
    /// The device of its memory, or of its copy.
    pub device: usize,
    /// A call hangs in it; what it comes to.
    pub hanging: Option<Option<Step>>,
    // U, O, L, G, P.
    pub used: u64,
    pub overhead: u64,
    pub ledger: u64,
    pub granted: u64,
    pub parked: u64,
}

impl Target1 {
    fn new() -> Self {
        Self {
            state: ProcessState::Running,
            is_alive: true,
            is_poisoned: false,
            is_stopped: false,
            is_frozen: false,
            device: 0,
            hanging: None,
            used: BYTES - 1,
            overhead: 1,
            ledger: BYTES - 1,
            granted: BYTES - 1,
            parked: 0,
        }
    }

    /// Bytes that it has on a device.
    fn on_device(&self) -> u64 {
        match self.state {
            // A restore that failed half way keeps what it had got.
            _ if self.is_alive && self.is_poisoned => BYTES / 2,
            ProcessState::Running | ProcessState::Locked if self.is_alive => BYTES,
            _ => 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    Open,
    Soft,
    Hard,
}

#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub is_begun: bool,
    pub is_whole: bool,
    pub is_committed: bool,
}

#[derive(Clone, Debug)]
pub struct World {
    pub targets: Vec<Target1>,
    pub hold: Hold,
    pub is_fenced: bool,
    pub is_parked: bool,
    pub snapshot: Snapshot,
    /// The job's record in the policy: its mark, its device.
    pub mark: Mark,
    pub device: usize,
    /// And on disk.
    pub disk: (Mark, usize),
    /// The disk refused the mark that exchanges the device. A broker that reads the one before counts the source once
    /// more than there is, so that it gives nothing there, until the exchange is written.
    pub is_behind: bool,
    /// What a greedy job has in the books and on the devices.
    pub greedy: [u64; 2],
    pub is_greedy: bool,
    /// What a process of no job has on the devices.
    pub stolen: [u64; 2],
    /// Room was granted, and the next write must claim it.
    pub granted: Option<Place>,
    pub proved: Option<(Process, Place)>,
    pub is_gap: bool,
    pub pauses: u32,
    /// A fault of any kind happened: codes that need one are allowed.
    pub had_fault: bool,
}

impl World {
    pub fn new(processes: usize) -> Self {
        Self {
            targets: vec![Target1::new(); processes],
            hold: Hold::Open,
            is_fenced: false,
            is_parked: false,
            snapshot: Snapshot::default(),
            mark: Mark::default(),
            device: 0,
            disk: (Mark::default(), 0),
            is_behind: false,
            greedy: [0; 2],
            is_greedy: false,
            stolen: [0; 2],
            granted: None,
            proved: None,
            is_gap: false,
            pauses: 0,
            had_fault: false,
        }
    }

    pub fn living(&self) -> Vec<Process> {
        let all = self.targets.iter().enumerate();
        all.filter(|(_, target)| target.is_alive)
            .map(|(at, _)| process(at))
            .collect()
    }

    pub fn devices(&self) -> [DeviceUuid; 1] {
        [uuid(self.device)]
    }

    fn target(&mut self, of: Process) -> &mut Target1 {
        &mut self.targets[of.pid as usize - 100]
    }

    /// The device of a place.
    fn at(&self, place: Place) -> usize {
        match place {
            Place::Source => self.device,
            Place::Target => usize::from(TARGET.device == uuid(1)),
        }
    }

    /// What the job has to get back, or holds: for each process the greater of P and min(U, L) + O.
    pub fn returning(&self) -> u64 {
        let words = |target: &Target1| target.parked.max(target.used.min(target.ledger) + target.overhead);
        self.targets.iter().map(words).sum()
    }

    /// What the job's words and claims take of a device's books.
    fn booked(&self, device: usize) -> u64 {
        let words: u64 = self.targets.iter().map(|target| target.ledger + target.overhead).sum();
        let claim = match self.mark.residence {
            Residence::Coming | Residence::Saving => self.returning(),
            _ => 0,
        };
        let here = if device == self.device { words.max(claim) } else { 0 };
        let is_target = self.mark.holds_target && device == self.at(Place::Target) && device != self.device;
        here + if is_target { self.returning() } else { 0 }
    }

    /// What is free on a device, as NVML shows it.
    fn free(&self, device: usize) -> u64 {
        let here = self.targets.iter().filter(|target| target.device == device);
        let used: u64 = here.map(Target1::on_device).sum();
        DEVICE.saturating_sub(used + self.greedy[device] + self.stolen[device])
    }

    pub fn kill(&mut self, number: usize) {
        if let Some(target) = self.targets.get_mut(number) {
            *target = Target1 {
                is_alive: false,
                is_poisoned: false,
                hanging: None,
                used: 0,
                overhead: 0,
                ledger: 0,
                granted: 0,
                parked: 0,
                ..target.clone()
            };
        }
    }

    /// Others take what they can.
    pub fn others(&mut self) {
        for device in 0..2 {
            if self.is_greedy && self.granted.is_none() {
                let books = DEVICE.saturating_sub(self.booked(device) + self.greedy[device]);
                self.greedy[device] += books.min(self.free(device));
            }
        }
    }

    /// What is stopped, hangs, or holds memory of nobody's, no longer does.
    pub fn heal(&mut self) {
        self.stolen = [0; 2];
        for at in 0..self.targets.len() {
            self.targets[at].is_stopped = false;
            if let Some(Some(step)) = self.targets[at].hanging.take() {
                self.call(&step);
            }
        }
    }

    /// What holds at every instant.
    pub fn check(&self) {
        for device in 0..2 {
            let booked = self.booked(device) + self.greedy[device];
            assert!(
                booked <= DEVICE || self.is_behind,
                "{booked} booked on {device}: {self:#?}"
            );
        }
        for target in self.targets.iter().filter(|target| target.is_alive) {
            let is_away = target.state == ProcessState::Checkpointed;
            assert!(!is_away || self.hold == Hold::Hard, "a thread may crash: {self:#?}");
            // Its memory is in the books, or nowhere on a device.
            let is_home = target.device == self.device;
            let books = if is_home {
                target.ledger + target.overhead
            } else {
                self.returning()
            };
            let is_claimed = books >= target.on_device() && (is_home || self.mark.holds_target);
            assert!(target.on_device() == 0 || is_claimed, "in nobody's books: {self:#?}");
            assert!(
                target.granted <= target.ledger.max(target.parked),
                "granted beyond L: {self:#?}"
            );
        }
    }

    /// What holds once a passage is over.
    pub fn check_end(&self) {
        assert_eq!(self.granted, None);
        let alive: Vec<_> = self.targets.iter().filter(|target| target.is_alive).collect();
        let is_poisoned = alive.iter().any(|target| target.is_poisoned);
        for target in &alive {
            match target.state {
                _ if target.is_poisoned => {
                    assert!(
                        target.ledger + target.overhead + self.booked(target.device) > 0,
                        "{self:#?}"
                    );
                    assert_eq!(self.hold, Hold::Hard);
                }
                ProcessState::Running => {
                    assert_eq!((self.hold, self.is_parked), (Hold::Open, false), "{self:#?}");
                    assert!(!target.is_frozen && !is_poisoned, "{self:#?}");
                    assert_eq!(target.device, self.device, "{self:#?}");
                    assert_eq!(target.ledger + target.overhead, BYTES, "{self:#?}");
                    assert_eq!((target.parked, target.granted), (0, target.ledger), "{self:#?}");
                    assert_eq!(self.mark, Mark::default());
                }
                ProcessState::Checkpointed => {
                    assert_eq!(self.hold, Hold::Hard, "{self:#?}");
                    assert_eq!((target.parked, target.granted), (BYTES, 0), "{self:#?}");
                    assert_eq!((target.ledger, target.overhead), (0, 0), "{self:#?}");
                    let is_away = self.mark.residence == Residence::Away;
                    assert!(is_away || self.mark.residence == Residence::Poisoned, "{self:#?}");
                }
                ProcessState::Locked | ProcessState::Failed => panic!("left locked: {self:#?}"),
            }
        }
        let first = alive.first().filter(|_| !is_poisoned).map(|target| target.state);
        let is_whole = is_poisoned || alive.iter().all(|target| Some(target.state) == first);
        assert!(is_whole, "neither here nor away: {self:#?}");
        assert!(
            !alive.is_empty() || self.hold == Hold::Open,
            "nobody can begin: {self:#?}"
        );
    }
}
