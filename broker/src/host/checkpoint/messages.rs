// SPDX-License-Identifier: Apache-2.0
//! What the broker asks a checkpoint helper, and what the helper answers: each a JSON line.

use partage_policy::Process;
use serde::{Deserialize, Serialize};

/// What the broker asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// Load the driver and initialise it.
    Open,
    /// A checkpoint call for a process.
    Call {
        /// The process, told apart from a later one of its number.
        target: Process,
        /// The call.
        call: Call,
    },
    /// Allocate so many bytes on a device and free them: is the room there?
    Room {
        /// The device, as `GPU-…`.
        uuid: String,
        /// Bytes.
        bytes: u64,
    },
    /// Make a context on a device and keep it: be a process to try something on.
    Context {
        /// The device, as `GPU-…`.
        uuid: String,
    },
    /// Does a restore take a map of all devices, each to itself? Tried on a child. Answered by `Done`, or by that
    /// restore's code.
    Map {
        /// The device that the child uses.
        device: String,
        /// The child sees no other.
        is_masked: bool,
        /// All devices that the kernel shows.
        all: Vec<String>,
    },
}

/// A checkpoint call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Call {
    /// In which state it is. Waits for a call that another process has under way.
    State,
    /// No call of the target may reach a device any more, and its work is done.
    Lock {
        /// How long the target waits for its own work, in milliseconds; 0 is without end.
        timeout_ms: u32,
    },
    /// Its device memory goes into its own memory.
    Checkpoint,
    /// And back. Each pair is a device that it had and the one that it gets; none: the same devices.
    Restore {
        /// UUIDs as `GPU-…`.
        map: Vec<(String, String)>,
    },
    /// Its calls go on.
    Unlock,
}

/// The states of a process, `CUprocessState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// 0.
    Running,
    /// 1.
    Locked,
    /// 2.
    Checkpointed,
    /// 3, and whatever a driver may say beside these.
    Failed,
}

impl State {
    /// From the driver's number.
    #[must_use]
    pub fn of(number: i32) -> Self {
        match number {
            0 => Self::Running,
            1 => Self::Locked,
            2 => Self::Checkpointed,
            _ => Self::Failed,
        }
    }
}

/// What the helper answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The driver is initialised; its version as `cuDriverGetVersion` says it (13000 is 13.0).
    Ready(i32),
    /// The driver cannot be used, or has not this call: why.
    NoDriver(String),
    /// Done.
    Done,
    /// The state.
    State(State),
    /// The driver answered with this `CUresult`.
    Code(i32),
    /// There is no such process any more. It was not called.
    Gone,
    /// The process is stopped: a call would hang until it goes on. It was not called.
    Stopped,
}
