// SPDX-License-Identifier: Apache-2.0
//! Checkpointing: processes are locked, taken off their devices, put on others, and unlocked, from outside.
//!
//! A driver before 570 has none of these functions. None of them needs `cuInit` in the caller.

use partage_abi::types::*;
use partage_machine::Spec;
use partage_machine::machine::folder_of_environment;

use crate::checkpoint::caller::{ask, find};
use crate::checkpoint::{MOST_PAIRS, Operation, Pair, UUID_BYTES};
use crate::state::{Answer, code, store};

/// The first driver branch that has these functions.
const FIRST_LEVEL: u32 = 570;
/// The first one that takes pairs of devices.
const PAIRS_LEVEL: u32 = 580;
/// The first one that knows storage of the caller's.
const CUSTOM_STORAGE_LEVEL: u32 = 615;

pub fn cuCheckpointProcessGetRestoreThreadId(pid: c_int, tid: *mut c_int) -> CuResult {
    code(built().and_then(|()| store(tid, find(pid)?.id)))
}

pub fn cuCheckpointProcessGetState(pid: c_int, state: *mut c_int) -> CuResult {
    code(built().and_then(|()| {
        if state.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        store(state, ask(pid, &Operation::State)? as c_int)
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
        ask(pid, &Operation::Lock { timeout_ms }).map(drop)
    }))
}

pub fn cuCheckpointProcessUnlock(pid: c_int, args: *mut CuCheckpointUnlockArgs) -> CuResult {
    code(built().and_then(|()| {
        // SAFETY: not null, and by the contract of the entry point it leads to arguments.
        if !args.is_null() && unsafe { args.read_unaligned() }.reserved != [0; 8] {
            return Err(CuResult::INVALID_VALUE);
        }
        ask(pid, &Operation::Unlock).map(drop)
    }))
}

pub fn cuCheckpointProcessCheckpoint(pid: c_int, args: *mut CuCheckpointCheckpointArgs) -> CuResult {
    code(level().and_then(|level| {
        let mut is_custom = false;
        if !args.is_null() {
            // SAFETY: not null, and by the contract of the entry point it leads to arguments.
            let args = unsafe { args.read_unaligned() };
            is_custom = !args.customStorageInfo_out.is_null();
            if args.reserved != [0; 56] || is_custom && level < CUSTOM_STORAGE_LEVEL {
                return Err(CuResult::INVALID_VALUE);
            }
        }
        ask(pid, &Operation::Checkpoint { is_custom }).map(drop)
    }))
}

pub fn cuCheckpointProcessRestore(pid: c_int, args: *mut CuCheckpointRestoreArgs) -> CuResult {
    code(level().and_then(|level| {
        let mut pairs = Some(Vec::new());
        if !args.is_null() {
            // SAFETY: not null, and by the contract of the entry point it leads to arguments.
            let args = unsafe { args.read_unaligned() };
            let is_custom = !args.customStorageInfo_out.is_null();
            let has_pairs = !args.gpuPairs.is_null() || args.gpuPairsCount > 0;
            if args.reserved != [0; 40]
                || args.padding0 != 0
                || is_custom && level < CUSTOM_STORAGE_LEVEL
                || has_pairs && level < PAIRS_LEVEL
            {
                return Err(CuResult::INVALID_VALUE);
            }
            if is_custom {
                return Err(CuResult::NOT_SUPPORTED);
            }
            pairs = read_pairs(args.gpuPairs, args.gpuPairsCount);
        }
        ask(pid, &Operation::Restore { pairs }).map(drop)
    }))
}

/// Every operation of a custom storage ends here, and none begins.
pub fn cuCheckpointOperationComplete(_: CuCheckpointOperationHandle) -> CuResult {
    code(level().and_then(|level| {
        if level < CUSTOM_STORAGE_LEVEL {
            return Err(CuResult::NOT_SUPPORTED);
        }
        Err(CuResult::INVALID_HANDLE)
    }))
}

/// The pairs of devices in the program's memory. `None`: no machine would take them, wherever the process stands.
fn read_pairs(pairs: *const CuCheckpointGpuPair, count: c_uint) -> Option<Vec<Pair>> {
    let count = count as usize;
    if count > MOST_PAIRS || count > 0 && pairs.is_null() {
        return None;
    }
    let uuid = |uuid: CuUuid| -> [u8; UUID_BYTES] { uuid.bytes.map(|byte| byte as u8) };
    let pair = |place| {
        // SAFETY: by the contract of the entry point `count` pairs lie there, and `place` is below.
        let pair = unsafe { pairs.add(place).read_unaligned() };
        (uuid(pair.oldUuid), uuid(pair.newUuid))
    };
    Some((0..count).map(pair).collect())
}

/// The feature level of the machine's driver, or, without a machine, of the default one. NOT_SUPPORTED: it is too old.
fn level() -> Answer<u32> {
    let spec = folder_of_environment().and_then(|folder| Spec::read(&folder).ok());
    let level = spec.map_or_else(|| Spec::default().driver, |spec| spec.driver);
    if level < FIRST_LEVEL {
        return Err(CuResult::NOT_SUPPORTED);
    }
    Ok(level)
}

fn built() -> Answer {
    level().map(drop)
}
