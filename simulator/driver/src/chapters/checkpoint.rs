// SPDX-License-Identifier: Apache-2.0
//! Checkpointing: processes are locked and unlocked from outside. To take a process off its devices is not built.
//!
//! A driver before 570 has none of these functions. None of them needs `cuInit` in the caller.

use partage_abi::types::*;
use partage_machine::{Machine, Spec};

use crate::checkpoint::Operation;
use crate::checkpoint::caller::{ask, find};
use crate::state::{Answer, code, store};

/// The first driver branch that has these functions.
const FIRST_LEVEL: u32 = 570;

pub fn cuCheckpointProcessGetRestoreThreadId(pid: c_int, tid: *mut c_int) -> CuResult {
    code(built().and_then(|()| store(tid, find(pid)?.id)))
}

pub fn cuCheckpointProcessGetState(pid: c_int, state: *mut c_int) -> CuResult {
    code(built().and_then(|()| {
        if state.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        store(state, ask(pid, Operation::State)? as c_int)
    }))
}

pub fn cuCheckpointProcessLock(pid: c_int, args: *mut CuCheckpointLockArgs) -> CuResult {
    code(built().and_then(|()| {
        let mut timeout_ms = 0;
        if !args.is_null() {
            // SAFETY: not null, and by the contract of the entry point it leads to arguments.
            let args = unsafe { args.read_unaligned() };
            if args.reserved0 != 0 || args.reserved1 != [0; 7] {
                return Err(CuResult::INVALID_VALUE);
            }
            timeout_ms = args.timeoutMs;
        }
        ask(pid, Operation::Lock { timeout_ms }).map(drop)
    }))
}

pub fn cuCheckpointProcessUnlock(pid: c_int, args: *mut CuCheckpointUnlockArgs) -> CuResult {
    code(built().and_then(|()| {
        // SAFETY: not null, and by the contract of the entry point it leads to arguments.
        if !args.is_null() && unsafe { args.read_unaligned() }.reserved != [0; 8] {
            return Err(CuResult::INVALID_VALUE);
        }
        ask(pid, Operation::Unlock).map(drop)
    }))
}

/// NOT_SUPPORTED: the machine's driver is too old. Without a machine, the default one's counts.
fn built() -> Answer {
    let level = match Machine::from_environment() {
        Some(Ok(machine)) => machine.spec().driver,
        _ => Spec::default().driver,
    };
    if level < FIRST_LEVEL {
        return Err(CuResult::NOT_SUPPORTED);
    }
    Ok(())
}
