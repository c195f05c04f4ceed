// SPDX-License-Identifier: Apache-2.0
//! The steps that a passage wants carried out, and what they can come to.
//!
//! Every step can be carried out twice: a broker that dies in one leaves it to the next, which begins it again. Where
//! that takes care, the step says so.

use partage_protocol::units::DeviceUuid;

use super::mark::Mark;
use super::place::{Place, ProcessState};
use super::stage::Stage;
use crate::caller::Process;

/// One thing to do. Times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Give the mark to the policy ([`Event::Residence`](crate::Event::Residence)) and write the record that it
    /// answers. Done once that is on disk; refused where the disk does, and the policy has the mark all the same. The
    /// write that follows a [`Step::RoomAsk`] belongs to the same turn of the broker's loop: it is what claims the
    /// room.
    Write(Mark),
    /// Is there room in the policy's books ([`Policy::ask_room`](crate::Books::ask_room))? Done, or no room.
    RoomAsk(Place),
    /// Hold: *soft*, in the pages of all clients of the job, and of those that attach from now on.
    HoldSoft,
    /// The membarrier after which each thread that passed the hold before shows in its thread slot.
    Barrier,
    /// Wait until no thread of these processes is inside a driver call.
    NobodyInside {
        /// At most so long.
        within_ns: u64,
    },
    /// The driver's Lock.
    Lock {
        /// Of which process.
        process: Process,
        /// The driver's own limit for work in flight.
        timeout_ns: u64,
    },
    /// Hold: *hard*, likewise; then the barrier and, as long as nothing is checkpointed, another look at who is inside:
    /// a soft hold may have been passed for want of a heartbeat. Timed out where somebody stays inside.
    HoldHard,
    /// Have the libraries give up what they share with the broker. Done once all said so.
    Park,
    /// The driver's Checkpoint.
    Checkpoint(Process),
    /// Wait until NVML lists none of these processes.
    NvmlClear(Vec<Process>),
    /// In the ledger, for the clients of these processes: where P is 0 yet, P := U + O; then G := 0, barrier, L := 0,
    /// O := 0. A client whose P is set has left, wholly or in part: its P stays, and the rest is done again.
    LedgerLeave(Vec<Process>),
    /// CRIU's dump: begin one unless one is under way or has left its outcome, wait for the outcome. Done: CRIU has all
    /// of the processes, and where they stay stopped, the snapshot is whole.
    Dump {
        /// The processes stay stopped after it.
        is_to_stop: bool,
    },
    /// Make the dump the newest generation; nothing where it is already.
    Commit,
    /// SIGKILL every process of the job. Done once all are gone.
    End,
    /// SIGCONT to every process of the job.
    Continue,
    /// In the ledger, for the clients of these processes: L := P where P is not 0.
    LedgerCome(Vec<Process>),
    /// Are the process's bytes free at the place, by NVML at this moment (times 1.02 and 256 MiB)? Where processes of
    /// no job use the device, have a helper allocate and free them. Done, or no room. The Restore follows at once.
    RoomProve {
        /// For which process.
        process: Process,
        /// Where.
        place: Place,
    },
    /// The driver's Restore.
    Restore {
        /// Of which process.
        process: Process,
        /// The pair of old and new device that is no identity; none: without pairs. The broker adds all other devices.
        pair: Option<(DeviceUuid, DeviceUuid)>,
        /// Where its memory is afterwards.
        place: Place,
    },
    /// In the ledger, for all clients of the job: where P is not 0, G := L, then P := 0.
    LedgerBack,
    /// The driver's Unlock.
    Unlock(Process),
    /// Take parked libraries in again. Done once all of them said hello.
    Unpark,
    /// Change the placement word of each slot whose device is another one than the client knows.
    Placement,
    /// Hold: *open*, in all pages of the job.
    Open,
    /// The driver's GetState, by a new helper where the one before was killed. Answered by a state.
    State(Process),
    /// On which place does NVML list the process? Answered by a place.
    Locate(Process),
    /// Wait before something is tried again.
    Pause {
        /// So long.
        ns: u64,
    },
}

impl Step {
    /// The stage of a plan that it belongs to; none of those that only ask, wait or write.
    #[must_use]
    pub const fn stage(&self) -> Option<Stage> {
        Some(match self {
            Self::Write(_) | Self::State(_) | Self::Locate(_) | Self::Pause { .. } => return None,
            Self::RoomAsk(_) => Stage::RoomAsk,
            Self::HoldSoft => Stage::HoldSoft,
            Self::Barrier => Stage::Barrier,
            Self::NobodyInside { .. } => Stage::NobodyInside,
            Self::Lock { .. } => Stage::Lock,
            Self::HoldHard => Stage::HoldHard,
            Self::Park => Stage::Park,
            Self::Checkpoint(_) => Stage::Checkpoint,
            Self::NvmlClear(_) => Stage::NvmlClear,
            Self::LedgerLeave(_) => Stage::LedgerLeave,
            Self::Dump { .. } => Stage::Dump,
            Self::Commit => Stage::Commit,
            Self::End => Stage::End,
            Self::Continue => Stage::Continue,
            Self::LedgerCome(_) => Stage::LedgerCome,
            Self::RoomProve { .. } => Stage::RoomProve,
            Self::Restore { .. } => Stage::Restore,
            Self::LedgerBack => Stage::LedgerBack,
            Self::Unlock(_) => Stage::Unlock,
            Self::Unpark => Stage::Unpark,
            Self::Placement => Stage::Placement,
            Self::Open => Stage::Open,
        })
    }

    /// The one process that it is about.
    #[must_use]
    pub const fn process(&self) -> Option<Process> {
        match self {
            Self::Lock { process, .. } | Self::RoomProve { process, .. } | Self::Restore { process, .. } => {
                Some(*process)
            }
            Self::Checkpoint(process) | Self::Unlock(process) | Self::State(process) | Self::Locate(process) => {
                Some(*process)
            }
            _ => None,
        }
    }
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It is so.
    Done,
    /// The driver, or whatever was asked, refused with this code (a `CUresult` where it was the driver).
    Refused(i32),
    /// It was not so within its time; of a driver call: its helper was killed, the call may still be under way.
    TimedOut,
    /// The helper died; the call may have been made, and may still be under way.
    HelperLost,
    /// The process is stopped by a signal: it was not called.
    Stopped,
    /// The process is gone, as its pidfd says.
    Gone,
    /// There is no room.
    NoRoom,
    /// Answers [`Step::State`].
    Is(ProcessState),
    /// Answers [`Step::Locate`].
    At(Place),
}
