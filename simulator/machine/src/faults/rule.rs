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
    Stated { device: usize, stated: Stated, value: u64 },
    Xid { device: usize, number: u32 },
}

/// What NVML can be made to say of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stated {
    /// Part of the time in which a kernel runs.
    Busy,
    /// Part of the time in which memory is used.
    MemoryBusy,
    /// Of the chip.
    Temperature,
    /// Of the card.
    Power,
    /// Reasons for lower clocks.
    Throttle,
    /// Errors of memory that were corrected.
    EccCorrected,
    /// Errors of memory that were not.
    EccUncorrected,
    /// Rows are replaced at the next reset.
    RemapPending,
    /// A row could not be replaced.
    RemapFailed,
    /// Traffic to the host.
    PcieSent,
    /// Traffic from the host.
    PcieReceived,
    /// Sent over NVLinks.
    NvlinkSent,
    /// Received over NVLinks.
    NvlinkReceived,
}

impl Stated {
    /// All, with the words of the grammar.
    pub const ALL: [(&'static str, Self); 13] = [
        ("busy", Self::Busy),
        ("memory-busy", Self::MemoryBusy),
        ("temperature", Self::Temperature),
        ("power", Self::Power),
        ("throttle", Self::Throttle),
        ("ecc-corrected", Self::EccCorrected),
        ("ecc-uncorrected", Self::EccUncorrected),
        ("remap-pending", Self::RemapPending),
        ("remap-failed", Self::RemapFailed),
        ("pcie-sent", Self::PcieSent),
        ("pcie-received", Self::PcieReceived),
        ("nvlink-sent", Self::NvlinkSent),
        ("nvlink-received", Self::NvlinkReceived),
    ];
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
