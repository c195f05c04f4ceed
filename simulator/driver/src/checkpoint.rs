// SPDX-License-Identifier: Apache-2.0
//! Processes that are locked and taken off their devices from outside: the driver's checkpoint functions.
//!
//! ```text
//!   caller (any process)                           target
//!   cuCheckpointProcessLock(pid) ──► its thread `cuda…` ──► gate closed ──► no call inside ──► every stream idle
//!      ▲                                                       │ in time: LOCKED
//!      └───────────── 0, or NOT_READY (600) ───────────────────┴ too late: gate open again
//! ```
//! The target does the work: [`thread`] serves one operation at a time and completes it even if its caller dies;
//! [`states`] says what each operation does. [`gate`] is where calls that change a device stop while the process is
//! locked, [`away`] how it leaves the machine and comes back, [`map`] to which devices, [`seal`] what keeps CRIU from
//! it otherwise. [`caller`] finds the thread of another process, or of its own.
//!
//! Storage of the caller's, for the memory of a process that leaves, is not built: asking for it answers NOT_SUPPORTED.

mod away;
pub mod caller;
pub mod gate;
mod map;
mod packet;
mod seal;
mod states;
pub mod thread;

pub use map::{Pair, UUID_BYTES};
pub use packet::{MOST_PAIRS, Operation};

/// What a call does to a process that is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It may change what a device holds or does: it waits until the process is unlocked.
    Changes,
    /// It waits for work. A locked process has none, so the call returns.
    Synchronises,
    /// It asks, or says something about this thread or another process.
    Asks,
}

/// The class of an exported function, by its name.
pub const fn class_of(symbol: &str) -> Class {
    if begins(symbol, "cuCtxSynchronize") || begins(symbol, "cuStreamSynchronize") {
        return Class::Synchronises;
    }
    // These may load code that was not needed before, or let others hold memory.
    let loads = begins(symbol, "cuIpc")
        || begins(symbol, "cuLibraryGet")
        || begins(symbol, "cuKernelGet")
        || begins(symbol, "cuFuncGet")
        || begins(symbol, "cuOccupancy");
    if loads {
        return Class::Changes;
    }
    let asks = has(symbol, "Get")
        || has(symbol, "Query")
        || has(symbol, "CanAccess")
        || begins(symbol, "cuCheckpoint")
        || begins(symbol, "cuInit")
        || begins(symbol, "cuDeviceTotalMem")
        || begins(symbol, "cuDeviceComputeCapability")
        || begins(symbol, "cuDriver")
        || begins(symbol, "cuCtxSetCurrent")
        || begins(symbol, "cuCtxPushCurrent")
        || begins(symbol, "cuCtxPopCurrent")
        || begins(symbol, "cuThreadExchange")
        || begins(symbol, "cuProfiler")
        || begins(symbol, "cuEventElapsedTime")
        || begins(symbol, "cuFuncIsLoaded")
        || begins(symbol, "cuGraphNodeFindInClone")
        || begins(symbol, "cuStreamIsCapturing")
        || begins(symbol, "cuTensorMapEncode")
        || has(symbol, "Enumerate");
    if asks { Class::Asks } else { Class::Changes }
}

const fn begins(text: &str, start: &str) -> bool {
    is_at(text.as_bytes(), start.as_bytes(), 0)
}

const fn has(text: &str, part: &str) -> bool {
    let mut at = 0;
    while at + part.len() <= text.len() {
        if is_at(text.as_bytes(), part.as_bytes(), at) {
            return true;
        }
        at += 1;
    }
    false
}

const fn is_at(text: &[u8], part: &[u8], at: usize) -> bool {
    if at + part.len() > text.len() {
        return false;
    }
    let mut index = 0;
    while index < part.len() {
        if text[at + index] != part[index] {
            return false;
        }
        index += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_has_the_class_that_its_name_says() {
        for symbol in [
            "cuLibraryGetModule",
            "cuKernelGetFunction",
            "cuFuncGetAttribute",
            "cuIpcGetMemHandle",
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
        ] {
            assert_eq!(class_of(symbol), Class::Changes, "{symbol} does more than ask");
        }
        for symbol in [
            "cuMemAlloc_v2",
            "cuLaunchKernel",
            "cuEventSynchronize",
            "cuMemcpyHtoD_v2",
            "cuCtxCreate_v2",
        ] {
            assert_eq!(class_of(symbol), Class::Changes, "{symbol}");
        }
        for symbol in ["cuCtxSynchronize", "cuStreamSynchronize_ptsz", "cuCtxSynchronize_v2"] {
            assert_eq!(class_of(symbol), Class::Synchronises, "{symbol}");
        }
        for symbol in [
            "cuMemGetInfo_v2",
            "cuStreamQuery",
            "cuDeviceCanAccessPeer",
            "cuCheckpointProcessLock",
        ] {
            assert_eq!(class_of(symbol), Class::Asks, "{symbol}");
        }
    }
}
