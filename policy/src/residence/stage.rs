// SPDX-License-Identifier: Apache-2.0
//! The plans, stage by stage: what undoes each, and what a broker's death in it leaves.

use serde::{Deserialize, Serialize};

use super::place::{ProcessState, Target};

/// What a job is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plan {
    /// Its memory leaves the devices.
    Leave,
    /// Its memory comes back.
    Come,
    /// One of its devices is exchanged.
    Move(Target),
    /// It is saved, and goes on or ends.
    Save {
        /// It ends.
        is_to_stop: bool,
    },
}

/// A step without its arguments, as plans and records have it; [`Step`](super::Step) says what each does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "as the steps of the same names")]
pub enum Stage {
    RoomAsk,
    HoldSoft,
    Barrier,
    NobodyInside,
    Lock,
    HoldHard,
    Park,
    Checkpoint,
    NvmlClear,
    LedgerLeave,
    Dump,
    Commit,
    End,
    Continue,
    LedgerCome,
    RoomProve,
    Restore,
    LedgerBack,
    Unlock,
    Unpark,
    Placement,
    Open,
}

const LEAVE: &[Stage] = &[
    Stage::HoldSoft,
    Stage::Barrier,
    Stage::NobodyInside,
    Stage::Lock,
    Stage::HoldHard,
    Stage::Checkpoint,
    Stage::NvmlClear,
    Stage::LedgerLeave,
];
const COME: &[Stage] = &[
    Stage::RoomAsk,
    Stage::LedgerCome,
    Stage::RoomProve,
    Stage::Restore,
    Stage::LedgerBack,
    Stage::Unlock,
    Stage::Placement,
    Stage::Open,
];
/// Room is asked for once all is locked, because only then the bytes are known for good, and nothing is lost yet.
const MOVE: &[Stage] = &[
    Stage::HoldSoft,
    Stage::Barrier,
    Stage::NobodyInside,
    Stage::Lock,
    Stage::RoomAsk,
    Stage::HoldHard,
    Stage::Checkpoint,
    Stage::RoomProve,
    Stage::Restore,
    Stage::Unlock,
    Stage::Placement,
    Stage::Open,
];
const SAVE: &[Stage] = &[
    Stage::HoldSoft,
    Stage::Barrier,
    Stage::NobodyInside,
    Stage::HoldHard,
    Stage::Park,
    Stage::Lock,
    Stage::Checkpoint,
    Stage::LedgerLeave,
    Stage::Dump,
    Stage::Commit,
    Stage::RoomAsk,
    Stage::LedgerCome,
    Stage::RoomProve,
    Stage::Restore,
    Stage::LedgerBack,
    Stage::Unlock,
    Stage::Unpark,
    Stage::Placement,
    Stage::Open,
];
const SAVE_AND_STOP: &[Stage] = &[
    Stage::HoldSoft,
    Stage::Barrier,
    Stage::NobodyInside,
    Stage::HoldHard,
    Stage::Park,
    Stage::Lock,
    Stage::Checkpoint,
    Stage::LedgerLeave,
    Stage::Dump,
    Stage::Commit,
    Stage::End,
    Stage::Open,
];

/// The stages of a plan in their order, when nothing fails. Of each process in turn: Lock; Checkpoint; RoomProve with
/// Restore; Unlock.
#[must_use]
pub const fn stages(plan: &Plan) -> &'static [Stage] {
    match plan {
        Plan::Leave => LEAVE,
        Plan::Come => COME,
        Plan::Move(_) => MOVE,
        Plan::Save { is_to_stop: false } => SAVE,
        Plan::Save { is_to_stop: true } => SAVE_AND_STOP,
    }
}

impl Stage {
    /// The stage that takes it back; none where there is nothing to take back, or where it is itself the way back.
    #[must_use]
    pub const fn undo(self) -> Option<Self> {
        match self {
            Self::HoldSoft | Self::HoldHard => Some(Self::Open),
            Self::Lock => Some(Self::Unlock),
            Self::Park => Some(Self::Unpark),
            Self::Checkpoint => Some(Self::Restore),
            Self::LedgerLeave => Some(Self::LedgerCome),
            // Processes that were left stopped go on.
            Self::Dump => Some(Self::Continue),
            Self::LedgerCome | Self::LedgerBack => Some(Self::LedgerLeave),
            Self::Restore => Some(Self::Checkpoint),
            // A claim falls with the mark that made it.
            Self::RoomAsk | Self::RoomProve => None,
            Self::Barrier | Self::NobodyInside | Self::NvmlClear => None,
            Self::Commit | Self::End | Self::Continue => None,
            Self::Unlock | Self::Unpark | Self::Placement | Self::Open => None,
        }
    }

    /// The states in which the next broker can find a living process when the one before died in this stage of a plan
    /// that had met no failure.
    #[must_use]
    pub const fn leaves(self) -> &'static [ProcessState] {
        use ProcessState::{Checkpointed, Locked, Running};
        match self {
            Self::HoldSoft | Self::Barrier | Self::NobodyInside | Self::Park => &[Running],
            // A save's hold is hard before its first Lock, that of the other plans after the last.
            Self::HoldHard => &[Running, Locked],
            Self::Lock => &[Running, Locked],
            Self::Checkpoint => &[Locked, Checkpointed],
            Self::NvmlClear | Self::LedgerLeave | Self::Dump | Self::Commit | Self::End => &[Checkpointed],
            Self::LedgerCome => &[Checkpointed],
            // A move asks while all is locked.
            Self::RoomAsk => &[Locked, Checkpointed],
            Self::Continue | Self::RoomProve | Self::Restore => &[Locked, Checkpointed],
            Self::LedgerBack => &[Locked],
            Self::Unlock => &[Running, Locked],
            Self::Unpark | Self::Placement | Self::Open => &[Running],
        }
    }

    /// What a user reads: `partage migrate --dry-run`, `why`, events.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::RoomAsk => "ask for room",
            Self::HoldSoft | Self::Barrier => "hold the threads",
            Self::NobodyInside => "wait until no thread is inside a driver call",
            Self::Lock => "lock the process",
            Self::HoldHard => "hold the threads for good",
            Self::Park => "let go of the library's pages",
            Self::Checkpoint => "move its device memory into host memory",
            Self::NvmlClear => "wait until NVML shows the memory as free",
            Self::LedgerLeave => "give its room to others",
            Self::Dump => "dump the processes",
            Self::Commit => "commit the snapshot",
            Self::End => "end the processes",
            Self::Continue => "let the processes go on",
            Self::LedgerCome => "reserve its room",
            Self::RoomProve => "prove that the room is free",
            Self::Restore => "move its memory back to the device",
            Self::LedgerBack => "close the books of its absence",
            Self::Unlock => "unlock the process",
            Self::Unpark => "take the library in again",
            Self::Placement => "publish the new device",
            Self::Open => "let the threads go on",
        }
    }
}
