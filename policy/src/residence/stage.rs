// SPDX-License-Identifier: Apache-2.0
//! The plans, stage by stage: what undoes each, and what a broker's death in it leaves.

use serde::{Deserialize, Serialize};

use super::place::{ProcessState, Target};
use crate::worded::worded;

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

worded! {
    /// A step without its arguments, as plans and records have it; [`Step`](super::Step) says what each does.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    #[allow(missing_docs, reason = "as the steps of the same names")]
    pub enum Stage(text) {
        RoomAsk = "ask for room",
        HoldSoft = "hold the threads",
        Barrier = "hold the threads",
        NobodyInside = "wait until no thread is inside a driver call",
        Lock = "lock the process",
        HoldHard = "hold the threads for good",
        Park = "let go of the library's pages",
        Checkpoint = "move its device memory into host memory",
        NvmlClear = "wait until NVML shows the memory as free",
        LedgerLeave = "give its room to others",
        Dump = "dump the processes",
        Commit = "commit the snapshot",
        End = "end the processes",
        Continue = "let the processes go on",
        LedgerCome = "reserve its room",
        RoomProve = "prove that the room is free",
        Restore = "move its memory back to the device",
        LedgerBack = "close the books of its absence",
        Unlock = "unlock the process",
        Unpark = "take the library in again",
        Placement = "publish the new device",
        Open = "let the threads go on",
    }
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
}
