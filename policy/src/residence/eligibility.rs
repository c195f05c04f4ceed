// SPDX-License-Identifier: Apache-2.0
//! What keeps a job from leaving its devices, found before anything is touched: each with reason and remedy.
//!
//! A *tie* is what keeps a process from being checkpointed: the driver would refuse, hang, or lose the process at its
//! restore. The broker reads ties from the library's page; everything here is a fact that it found, and nothing a
//! guess.

use partage_protocol::units::{GIB, JobId};

use super::state::Residence;
use crate::caller::Process;
use crate::worded::worded;

/// The first driver with checkpoint calls.
const CHECKPOINT_LEVEL: u32 = 570;
/// The first driver that exchanges devices.
const EXCHANGE_LEVEL: u32 = 580;
/// Host memory that is left to everybody else when a job's bytes have become its own.
const HOST_SPARE_BYTES: u64 = GIB / 4;

worded! {
    /// What a process did that ties it to the device, or to other processes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Tie(text) {
        /// Managed (unified) memory.
        Managed = "managed memory",
        /// Memory by IPC, exported or opened.
        IpcMemory = "memory shared by CUDA IPC",
        /// An event by IPC, exported or opened.
        IpcEvent = "an event shared by CUDA IPC",
        /// A memory handle, exported.
        HandleExported = "an exported memory handle",
        /// A memory handle, imported.
        HandleImported = "an imported memory handle",
        /// A memory pool, exported or imported.
        SharedPool = "a shared memory pool",
        /// External memory.
        ExternalMemory = "external memory",
        /// External semaphores.
        ExternalSemaphore = "external semaphores",
        /// A multicast object (NVLink SHARP).
        Multicast = "a multicast object",
        /// Graphics resources.
        Graphics = "graphics resources",
        /// Memory as dma-buf, for another device.
        DmaBuf = "memory shared with another device (dma-buf)",
    }
}

/// One process of the job that uses a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFacts {
    /// The process.
    pub process: Process,
    /// Its uid.
    pub uid: u32,
    /// A signal stopped it.
    pub is_stopped: bool,
    /// It attached: the library holds it back.
    pub has_library: bool,
    /// It turned sharing off, or closed the pages that it shares with the broker.
    pub is_unreachable: bool,
    /// It has not come back since its connection was lost.
    pub is_away: bool,
    /// More threads were in the driver at a time than can be told apart: nobody knows when all are outside.
    pub is_uncounted: bool,
    /// Its ties.
    pub ties: Vec<Tie>,
    /// The node of the device that it is to get, where the process has none (it runs in a container).
    pub lacks_node: Option<String>,
}

/// Room in host memory, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostRoom {
    /// The kernel's `MemAvailable`.
    pub available: u64,
    /// The tightest memory cgroup above the job: its path, its limit, and what is used of that.
    pub cgroup: Option<(String, u64, u64)>,
}

/// What is known of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFacts {
    /// The job.
    pub job: JobId,
    /// Its owner.
    pub uid: u32,
    /// Where its memory is.
    pub residence: Residence,
    /// The driver's number: 580 of 580.178; none where only the driver itself can say what it has.
    pub driver_level: Option<u32>,
    /// A device of it is a MIG instance, or in MIG mode: the UUID.
    pub mig: Option<String>,
    /// Its devices are shared by MPS.
    pub has_mps: bool,
    /// The helper can run as the job's owner.
    pub can_act_as_owner: bool,
    /// Its processes with a context, or without the library and shown by NVML.
    pub processes: Vec<ProcessFacts>,
    /// Bytes that become the processes' own.
    pub bytes: u64,
    /// Where they are to go.
    pub host: HostRoom,
}

/// What is to be done, as far as more is needed for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Leave, or save.
    Leave,
    /// Move from one device to another.
    Move {
        /// The model and whole memory of the device that the job leaves.
        from: (String, u64),
        /// Those of the device that it gets.
        to: (String, u64),
        /// It is one that the job has.
        is_own: bool,
        /// The UUID of the latter where that is a MIG instance.
        mig: Option<String>,
    },
}

obstacle_table!(facts);

/// Everything that is in the way, the job's own first, then each process's; empty where nothing is.
#[must_use]
pub fn obstacles(intent: &Intent, facts: &JobFacts) -> Vec<Obstacle> {
    let mut found = Vec::new();
    if facts.residence != Residence::Here {
        found.push(Obstacle::NotHere(facts.job, facts.residence));
    }
    let needed = match intent {
        Intent::Leave => CHECKPOINT_LEVEL,
        Intent::Move { .. } => EXCHANGE_LEVEL,
    };
    // Without a process on a device the driver is not called: a promise leaves alone.
    if !facts.processes.is_empty() {
        of_driver(needed, facts, &mut found);
    }
    if let Intent::Move { from, to, is_own, mig } = intent {
        if *is_own {
            found.push(Obstacle::OwnDevice());
        }
        found.extend(mig.clone().map(Obstacle::Mig));
        if from.0 != to.0 {
            let (from, to) = (from.0.clone(), to.0.clone());
            found.push(Obstacle::OtherModel(from, to));
        } else if from.1 != to.1 {
            let (from, to) = (from.1, to.1);
            found.push(Obstacle::OtherSize(from, to));
        }
    }
    facts
        .processes
        .iter()
        .for_each(|process| of_process(process, facts.uid, &mut found));
    found.extend(of_host(facts.bytes, &facts.host));
    found
}

fn of_driver(needed: u32, facts: &JobFacts, found: &mut Vec<Obstacle>) {
    if let Some(level) = facts.driver_level.filter(|level| *level < needed) {
        found.push(Obstacle::DriverTooOld(level, needed));
    }
    found.extend(facts.mig.clone().map(Obstacle::Mig));
    if facts.has_mps {
        found.push(Obstacle::Mps());
    }
    if !facts.can_act_as_owner {
        found.push(Obstacle::NotOwner(facts.uid));
    }
}

fn of_process(facts: &ProcessFacts, owner: u32, found: &mut Vec<Obstacle>) {
    let (pid, uid) = (facts.process.pid, facts.uid);
    if uid != owner {
        found.push(Obstacle::OtherUser(pid, uid, owner));
    }
    if facts.is_stopped {
        found.push(Obstacle::Stopped(pid));
    }
    if !facts.has_library {
        found.push(Obstacle::NoLibrary(pid));
    } else if facts.is_unreachable {
        found.push(Obstacle::Unreachable(pid));
    } else if facts.is_away {
        found.push(Obstacle::Disconnected(pid));
    }
    if facts.is_uncounted {
        found.push(Obstacle::Uncounted(pid));
    }
    if let Some(node) = facts.lacks_node.clone() {
        found.push(Obstacle::Hidden(pid, node));
    }
    if !facts.ties.is_empty() {
        let ties = facts.ties.clone();
        found.push(Obstacle::Tied(pid, ties));
    }
}

fn of_host(bytes: u64, host: &HostRoom) -> Vec<Obstacle> {
    if bytes == 0 {
        return Vec::new();
    }
    let needed = bytes.saturating_add(HOST_SPARE_BYTES);
    let mut found = Vec::new();
    if needed > host.available {
        let available = host.available;
        found.push(Obstacle::HostMemory(needed, available));
    }
    if let Some((path, limit, used)) = &host.cgroup {
        let left = limit.saturating_sub(*used);
        if needed > left {
            let (path, limit) = (path.clone(), *limit);
            found.push(Obstacle::Cgroup(path, needed, left, limit));
        }
    }
    found
}
