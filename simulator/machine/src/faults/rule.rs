// SPDX-License-Identifier: Apache-2.0
//! One fault: what it does, and when.

use std::sync::atomic::{AtomicU64, Ordering};

/// What happens to a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelFault {
    /// It ends with this code.
    Trap(i32),
    /// It never ends.
    Hang,
}

#[derive(Debug)]
pub struct Rule {
    pub kind: Kind,
    pub when: When,
    pub seen: AtomicU64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Code { function: String, code: i32 },
    Slow { function: String, milliseconds: u64 },
    Copy { code: i32 },
    Kernel { name: String, fault: KernelFault },
    Lost { device: usize },
    Linger,
    Stuck { function: String },
    Inner { function: String },
    Version { cuda: i32 },
    Shows { devices: Option<String> },
    Checkpoint(CheckpointFault),
    Stands { operation: String },
    Dies { operation: String },
    Host { bytes: u64 },
    Untold,
}

/// What is wrong with checkpoints as long as its line stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointFault {
    /// 13: no process ends by a synchronise.
    Spared,
    /// 14: a restore without room can be tried again.
    Heals,
    /// 15: every process counts as one with imported memory.
    Imports,
    /// 16: a checkpoint that managed memory forbids ends the use of all contexts.
    Spoils,
    /// 17: PCI addresses stay those of the devices from before.
    Stale,
    /// 18: NVML shows a process a second longer.
    Late,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Nth(u64),
    From(u64),
    Every(u64),
}

impl Rule {
    /// Counts a time that it could strike, and says whether it does.
    pub fn strikes(&self) -> bool {
        let time = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        match self.when {
            When::Nth(n) => time == n,
            When::From(n) => time >= n,
            When::Every(n) => time.is_multiple_of(n),
        }
    }
}
