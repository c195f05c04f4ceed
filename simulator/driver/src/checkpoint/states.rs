// SPDX-License-Identifier: Apache-2.0
//! The states of a process, and what each operation does in each.
//!
//! ```text
//!            Lock               Checkpoint
//!   RUNNING ──────► LOCKED ──────────────────► CHECKPOINTED ──► poisoned
//!           ◄────── ▲    ◄──────────────────── │   Restore      (OUT_OF_MEMORY at a Restore:
//!            Unlock │              Restore     │                 every later one answers 304)
//!                   └──────────────────────────┘
//! ```
//! An operation that the state does not allow answers ILLEGAL_STATE (401) and changes nothing.

use std::time::{Duration, Instant};

use partage_abi::types::CuResult;
use partage_machine::Spec;
use partage_machine::faults::CheckpointFault;

use super::away::{Away, Refusal, leave};
use super::gate;
use super::map::Pair;
use super::packet::Operation;
use super::seal::Seal;
use crate::executor::pool;
use crate::state::{Answer, driver};

/// As `cuCheckpointProcessGetState` numbers the states: calls go on.
pub const RUNNING: u32 = 0;
/// Calls that change a device wait.
pub const LOCKED: u32 = 1;
/// The process is in no machine.
pub const CHECKPOINTED: u32 = 2;

/// Levels at which a synchronise that is a thread's first call ends a checkpointed process.
const DEADLY_LEVELS: [u32; 2] = [580, 595];

/// This process.
pub struct Process {
    state: u32,
    away: Option<Away>,
    /// A restore found no room; no other one can succeed.
    is_poisoned: bool,
    seal: Seal,
}

impl Process {
    /// It runs, and cannot be dumped.
    pub fn new() -> Self {
        let mut seal = Seal::default();
        seal.set();
        Self {
            state: RUNNING,
            away: None,
            is_poisoned: false,
            seal,
        }
    }

    /// Its state.
    pub fn state(&self) -> u32 {
        self.state
    }

    /// Nobody can ask for anything any more: the process goes on, unless it is away for good.
    pub fn end(self) {
        match self.away {
            Some(away) => std::mem::forget(away),
            None => gate::open(),
        }
    }

    /// Does what is asked for.
    pub fn carry_out(&mut self, operation: &Operation) -> CuResult {
        let done = match (operation, self.state) {
            (Operation::State, _) => {
                on_operation("state");
                Ok(())
            }
            (Operation::Lock { timeout_ms }, RUNNING) => self.lock(*timeout_ms),
            (Operation::Unlock, LOCKED) => {
                on_operation("unlock");
                model(|_, _| UNLOCK_MS, 0);
                self.state = RUNNING;
                gate::open();
                Ok(())
            }
            (Operation::Checkpoint { is_custom: true }, LOCKED) => Err(CuResult::NOT_SUPPORTED),
            (Operation::Checkpoint { is_custom: false }, LOCKED) => self.checkpoint(),
            (Operation::Restore { .. }, CHECKPOINTED) if self.is_poisoned => Err(CuResult::OPERATING_SYSTEM),
            (Operation::Restore { pairs: None }, CHECKPOINTED) => Err(CuResult::INVALID_VALUE),
            (Operation::Restore { pairs: Some(pairs) }, CHECKPOINTED) => self.restore(pairs),
            _ => Err(CuResult::ILLEGAL_STATE),
        };
        crate::state::code(done)
    }

    fn lock(&mut self, timeout_ms: u32) -> Answer {
        let deadline = (timeout_ms > 0).then(|| Instant::now() + Duration::from_millis(timeout_ms.into()));
        gate::close();
        on_operation("lock");
        if !(gate::wait_until_empty(deadline) && pool::wait_until_idle(deadline)) {
            gate::open();
            return Err(CuResult::NOT_READY);
        }
        model(|_, _| LOCK_MS, 0);
        self.state = LOCKED;
        Ok(())
    }

    fn checkpoint(&mut self) -> Answer {
        let driver = driver()?;
        let level = driver.machine().spec().driver;
        let spec = driver.machine().spec().clone();
        let left = leave(driver);
        let bytes = left.as_ref().map_or(0, Away::bytes);
        pause(&spec, |level, bytes| CHECKPOINT_MS + bytes / out_per_ms(level), bytes);
        self.away = Some(left?);
        self.seal.lift();
        gate::set_away(DEADLY_LEVELS.contains(&level));
        self.state = CHECKPOINTED;
        Ok(())
    }

    fn restore(&mut self, pairs: &[Pair]) -> Answer {
        let driver = driver()?;
        let away = self.away.as_mut().ok_or(CuResult::OPERATING_SYSTEM)?;
        match away.come_back(pairs) {
            Ok(()) => {}
            Err(Refusal::Map) => return Err(CuResult::INVALID_VALUE),
            Err(Refusal::Machine) => return Err(CuResult::OPERATING_SYSTEM),
            Err(Refusal::Room) => {
                self.is_poisoned = !driver.faults.has(CheckpointFault::Heals);
                return Err(CuResult::OUT_OF_MEMORY);
            }
            Err(Refusal::Addresses) => {
                self.is_poisoned = true;
                return Err(CuResult::UNKNOWN);
            }
        }
        self.seal.set();
        // Whoever waits for the machine finds it from here on.
        let bytes = self.away.take().map_or(0, |away| away.bytes());
        model(|level, bytes| RESTORE_MS + bytes / in_per_ms(level), bytes);
        self.state = LOCKED;
        gate::set_back();
        Ok(())
    }
}

fn on_operation(operation: &str) {
    if let Ok(driver) = driver() {
        driver.faults.on_operation(operation);
    }
}

// ---- durations, as measured on one GPU ------------------------------------------------------------------------------

const LOCK_MS: u64 = 12;
const UNLOCK_MS: u64 = 9;
const CHECKPOINT_MS: u64 = 500;
const RESTORE_MS: u64 = 400;

/// Bytes a millisecond from the devices.
fn out_per_ms(level: u32) -> u64 {
    if level < 595 { 1_100_000 } else { 4_000_000 }
}

/// Bytes a millisecond to the devices.
fn in_per_ms(level: u32) -> u64 {
    if level < 595 { 2_200_000 } else { 7_000_000 }
}

/// Takes as long as the machine that the process is in says that an operation does.
fn model(milliseconds: impl Fn(u32, u64) -> u64, bytes: u64) {
    if let Ok(driver) = driver() {
        let spec = driver.machine().spec().clone();
        pause(&spec, milliseconds, bytes);
    }
}

fn pause(spec: &Spec, milliseconds: impl Fn(u32, u64) -> u64, bytes: u64) {
    if spec.checkpoint_time > 0.0 {
        let whole = Duration::from_millis(milliseconds(spec.driver, bytes));
        std::thread::sleep(whole.mul_f64(spec.checkpoint_time));
    }
}
