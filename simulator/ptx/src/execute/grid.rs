// SPDX-License-Identifier: Apache-2.0
//! Runs the blocks of a launch on one or more operating-system threads.
//!
//! Each worker runs whole blocks. A block that does not end within its allowance is set aside and others are begun,
//! so that blocks may wait for one another. Blocks share nothing but memory, so a result depends on the number of
//! workers only where the kernel itself depends on the order of its blocks.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::code::{Code, Lines, Special};
use super::lanes::{LANES, Lanes};
use super::spaces::Spaces;
use super::warp::{Barriers, Warp};
use crate::error::FaultKind;
use crate::memory::DeviceMemory;

/// Warp instructions after which a block that has not ended is set aside.
const ALLOWANCE: u64 = 1_000_000;
/// Memory that blocks set aside by one worker may occupy.
const ASIDE_BYTES: usize = 512 << 20;
/// Work that is worth a further thread; starting one costs some 15 µs.
const WORTH_A_THREAD: Duration = Duration::from_micros(200);

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub dynamic_shared: u32,
    /// The kernel's parameters as laid out by [`crate::Kernel::parameters`].
    pub parameters: &'a [u8],
    /// Ends the launch soon after it becomes true.
    pub stop: Option<&'a AtomicBool>,
}

/// What a launch did.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Instructions executed, each by a warp.
    pub warp_instructions: u64,
    /// Threads that ran.
    pub threads: u64,
    /// Time the launch took.
    pub elapsed: Duration,
    /// Operating-system threads that took part.
    pub workers: u32,
    /// What device-side printf wrote.
    pub printed: Vec<u8>,
}

struct Shared<'a> {
    code: &'a Code,
    launch: &'a Launch<'a>,
    next: AtomicU64,
    blocks: u64,
    fault: Mutex<Option<(FaultKind, u32)>>,
    stopped: AtomicBool,
}

impl Shared<'_> {
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.launch.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    fn fail(&self, fault: (FaultKind, u32)) {
        self.stopped.store(true, Ordering::Relaxed);
        let mut first = self.fault.lock().unwrap_or_else(|broken| broken.into_inner());
        first.get_or_insert(fault);
    }
}

/// Runs a launch whose shape has been checked.
pub fn run(
    code: &Code,
    launch: &Launch<'_>,
    memory: &dyn DeviceMemory,
    threads: usize,
) -> Result<Stats, (FaultKind, u32)> {
    let begun = Instant::now();
    let blocks = launch.grid.iter().map(|size| u64::from(*size)).product();
    let shared = Shared {
        code,
        launch,
        next: AtomicU64::new(0),
        blocks,
        fault: Mutex::new(None),
        stopped: AtomicBool::new(false),
    };
    let total = Mutex::new(Stats::default());
    let finish = |worker: Worker<'_>| {
        let mut total = total.lock().unwrap_or_else(|broken| broken.into_inner());
        total.warp_instructions += worker.executed;
        total.workers += 1;
        total.printed.extend_from_slice(&worker.lanes.printed);
    };
    std::thread::scope(|scope| {
        let mut first = Worker::new(&shared, memory);
        let mut helpers = 1;
        while first.step() {
            let done = shared.next.load(Ordering::Relaxed).min(blocks);
            if helpers < threads && done < blocks {
                let rest = begun.elapsed().as_secs_f64() / done.max(1) as f64 * (blocks - done) as f64;
                if rest > WORTH_A_THREAD.as_secs_f64() {
                    for _ in helpers..threads {
                        scope.spawn(|| {
                            let mut worker = Worker::new(&shared, memory);
                            while worker.step() {}
                            finish(worker);
                        });
                    }
                    helpers = threads;
                }
            }
        }
        finish(first);
    });
    if let Some(fault) = shared.fault.into_inner().unwrap_or_else(|broken| broken.into_inner()) {
        return Err(fault);
    }
    if launch.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
        return Err((FaultKind::Stopped, 0));
    }
    let mut stats = total.into_inner().unwrap_or_else(|broken| broken.into_inner());
    stats.threads = blocks * launch.block.iter().map(|size| u64::from(*size)).product::<u64>();
    stats.elapsed = begun.elapsed();
    Ok(stats)
}

struct Block {
    warps: Vec<Warp>,
    shared: Lines,
    barriers: Barriers,
}

enum Outcome {
    Ended,
    Aside,
    Failed,
}

struct Worker<'a> {
    shared: &'a Shared<'a>,
    lanes: Lanes,
    spare: Vec<Block>,
    aside: VecDeque<Block>,
    executed: u64,
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared<'a>, memory: &dyn DeviceMemory) -> Self {
        let constants = shared.code.constants.start();
        let lanes = Lanes {
            bases: [
                std::ptr::null_mut(),
                constants,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            ],
            lists: shared.code.lists.as_ptr(),
            shapes: shared.code.shapes.as_ptr(),
            spaces: Spaces::new(memory, shared.launch.parameters),
            group: 0,
            fault: None,
            printed: Vec::new(),
        };
        Self {
            shared,
            lanes,
            spare: Vec::new(),
            aside: VecDeque::new(),
            executed: 0,
        }
    }

    /// Runs a block for a while; false when none is left.
    fn step(&mut self) -> bool {
        if self.shared.is_stopped() {
            return false;
        }
        let room = match self.aside.front() {
            Some(block) => self.aside.len() < (ASIDE_BYTES / block.bytes().max(1)).clamp(1, 1024),
            None => true,
        };
        let begun = if room { self.begin() } else { None };
        let Some(mut block) = begun.or_else(|| self.aside.pop_front()) else {
            return false;
        };
        match self.run_block(&mut block) {
            Outcome::Ended => self.spare.push(block),
            Outcome::Aside => self.aside.push_back(block),
            Outcome::Failed => return false,
        }
        true
    }

    fn begin(&mut self) -> Option<Block> {
        let launch = self.shared.launch;
        let number = self.shared.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.shared.blocks {
            return None;
        }
        let mut block = self.spare.pop().unwrap_or_else(|| Block::new(self.shared.code, launch));
        let [x, y] = [u64::from(launch.grid[0]), u64::from(launch.grid[1])];
        block.begin(
            launch,
            [(number % x) as u32, (number / x % y) as u32, (number / x / y) as u32],
        );
        Some(block)
    }

    fn run_block(&mut self, block: &mut Block) -> Outcome {
        let mut executed = 0;
        let outcome = self.turns(block, &mut executed);
        self.executed += executed;
        outcome
    }

    /// Gives the warps of a block their turns until it ends or its allowance is spent.
    fn turns(&mut self, block: &mut Block, executed: &mut u64) -> Outcome {
        self.lanes.spaces.shared = block.shared.start();
        self.lanes.spaces.shared_bytes = u64::from(self.shared.code.shared + self.shared.launch.dynamic_shared);
        loop {
            let mut ran = false;
            for warp in &mut block.warps {
                if !warp.is_ready() {
                    continue;
                }
                ran = true;
                match warp.run(&mut self.lanes, self.shared.code, &mut block.barriers) {
                    Ok(count) => *executed += u64::from(count),
                    Err(fault) => {
                        self.shared.fail(fault);
                        return Outcome::Failed;
                    }
                }
            }
            if block.warps.iter().all(|warp| warp.live == 0) {
                return Outcome::Ended;
            }
            let released = block.release(&mut self.lanes, self.shared.code);
            if self.shared.is_stopped() {
                return Outcome::Failed;
            }
            if !ran && !released {
                // Every thread waits for one that will not come, as on the hardware: for ever.
                std::thread::sleep(Duration::from_millis(1));
                return Outcome::Aside;
            }
            if *executed > ALLOWANCE {
                return Outcome::Aside;
            }
        }
    }
}

impl Block {
    fn new(code: &Code, launch: &Launch<'_>) -> Self {
        let threads: u32 = launch.block.iter().product();
        let mut block = Self {
            warps: (0..threads.div_ceil(LANES as u32))
                .map(|index| Warp::new(code, index, launch.block))
                .collect(),
            shared: Lines::new((code.shared + launch.dynamic_shared) as usize),
            barriers: Barriers::default(),
        };
        let specials = [
            (Special::NctaidX, launch.grid[0]),
            (Special::NctaidY, launch.grid[1]),
            (Special::NctaidZ, launch.grid[2]),
            (Special::DynamicShared, launch.dynamic_shared),
            (Special::TotalShared, code.shared + launch.dynamic_shared),
            (Special::SmId, 0),
            (Special::NsmId, 1),
        ];
        for warp in &mut block.warps {
            warp.set_special(&specials);
        }
        block
    }

    fn begin(&mut self, launch: &Launch<'_>, place: [u32; 3]) {
        let threads: u32 = launch.block.iter().product();
        let specials = [
            (Special::CtaidX, place[0]),
            (Special::CtaidY, place[1]),
            (Special::CtaidZ, place[2]),
        ];
        for (index, warp) in self.warps.iter_mut().enumerate() {
            warp.set_special(&specials);
            warp.start(threads - index as u32 * LANES as u32);
        }
        // Kernels may not rely on the content of shared memory, but a run must not depend on which worker it met.
        self.shared.clear();
        self.barriers = Barriers::default();
    }

    fn bytes(&self) -> usize {
        self.shared.bytes() + self.warps.iter().map(Warp::bytes).sum::<usize>()
    }

    /// Opens the barriers at which everyone has arrived; true when there was one.
    fn release(&mut self, lanes: &mut Lanes, code: &Code) -> bool {
        let live: u32 = self.warps.iter().map(|warp| warp.live.count_ones()).sum();
        let mut released = false;
        for index in 0..self.barriers.len() {
            let barrier = self.barriers[index];
            let complete = match barrier.wanted {
                _ if barrier.arrived == 0 => false,
                0 => barrier.arrived >= live,
                wanted => barrier.arrived >= wanted || barrier.arrived_rounded >= wanted,
            };
            if complete {
                released = true;
                for warp in &mut self.warps {
                    warp.release(index as u32, &barrier, lanes, code);
                }
                self.barriers[index] = Default::default();
            }
        }
        released
    }
}
