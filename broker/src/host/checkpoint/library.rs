// SPDX-License-Identifier: Apache-2.0
//! The driver's library in a helper: the checkpoint functions, and what proves that there is room.

use std::path::Path;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};
use partage_abi::signatures;
use partage_abi::types::{
    CuCheckpointGpuPair, CuCheckpointLockArgs, CuCheckpointRestoreArgs, CuContext, CuDevice, CuResult, CuUuid,
};
use partage_protocol::driver_place;
use partage_protocol::units::DeviceUuid;

use super::messages::{Call, State};
use crate::host::driver_library;

/// Why the driver was not asked, or what it answered other than 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::host) enum Refused {
    /// A function is missing: the driver is too old.
    Missing(String),
    /// A UUID is none.
    NoUuid(String),
    /// The driver's answer.
    Code(i32),
}

/// The library, initialised.
#[derive(Debug)]
pub(in crate::host) struct Driver(Library);

/// Calls a function of the driver by the signature of the table.
macro_rules! call {
    ($driver:expr, $symbol:ident($($argument:expr),* $(,)?)) => {{
        let function: Symbol<signatures::$symbol> = $driver.find(concat!(stringify!($symbol), "\0"))?;
        // SAFETY: the signature is the table's, checked against the driver's headers; pointers are to live values.
        match unsafe { function($($argument),*) } {
            CuResult::SUCCESS => Ok(()),
            CuResult(code) => Err(Refused::Code(code)),
        }
    }};
}

impl Driver {
    /// Loads the driver and initialises it: the driver restores no process for a caller that has not.
    pub(in crate::host) fn open(driver_file: Option<&Path>) -> Result<(Self, i32), String> {
        let mut failed = None;
        for path in driver_library::paths(driver_place::CUDA, driver_file) {
            // SAFETY: the vendor's constructors run, in a process made for that.
            match unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) } {
                Ok(library) => {
                    let driver = Self(library);
                    let version = driver.start().map_err(|refused| refused.to_string())?;
                    return Ok((driver, version));
                }
                // The usual name's failure explains itself best.
                Err(error) => failed = failed.or(Some(error.to_string())),
            }
        }
        Err(failed.unwrap_or_else(|| "no libcuda.so.1".to_owned()))
    }

    fn start(&self) -> Result<i32, Refused> {
        let mut version = 0;
        call!(self, cuDriverGetVersion(&raw mut version))?;
        call!(self, cuInit(0))?;
        Ok(version)
    }

    fn find<T>(&self, name: &'static str) -> Result<Symbol<T>, Refused> {
        // SAFETY: the caller names the type that the table has for this name.
        unsafe { self.0.get(name.as_bytes()) }.map_err(|_| Refused::Missing(name.trim_end_matches('\0').to_owned()))
    }

    /// A checkpoint call; the state where that was the question.
    pub(super) fn checkpoint(&self, pid: i32, call: &Call) -> Result<Option<State>, Refused> {
        let null = std::ptr::null_mut();
        match call {
            Call::State => {
                let mut state = -1;
                call!(self, cuCheckpointProcessGetState(pid, &raw mut state))?;
                return Ok(Some(State::of(state)));
            }
            Call::Lock { timeout_ms } => {
                let mut args = CuCheckpointLockArgs {
                    timeoutMs: *timeout_ms,
                    reserved0: 0,
                    reserved1: [0; 7],
                };
                call!(self, cuCheckpointProcessLock(pid, &raw mut args))?;
            }
            Call::Checkpoint => call!(self, cuCheckpointProcessCheckpoint(pid, null))?,
            Call::Restore { map } => self.restore(pid, map)?,
            Call::Unlock => call!(self, cuCheckpointProcessUnlock(pid, std::ptr::null_mut()))?,
        }
        Ok(None)
    }

    fn restore(&self, pid: i32, map: &[(String, String)]) -> Result<(), Refused> {
        let mut pairs = Vec::new();
        for (old, new) in map {
            pairs.push(CuCheckpointGpuPair {
                oldUuid: uuid(old)?,
                newUuid: uuid(new)?,
            });
        }
        if pairs.is_empty() {
            return call!(self, cuCheckpointProcessRestore(pid, std::ptr::null_mut()));
        }
        let mut args = CuCheckpointRestoreArgs {
            gpuPairs: pairs.as_mut_ptr(),
            gpuPairsCount: u32::try_from(pairs.len()).unwrap_or(u32::MAX),
            padding0: 0,
            customStorageInfo_out: std::ptr::null_mut(),
            reserved: [0; 40],
        };
        call!(self, cuCheckpointProcessRestore(pid, &raw mut args))
    }

    /// Allocates and frees: what a context of this process needs is given back with it.
    pub(super) fn room(&self, wanted: &str, bytes: u64) -> Result<(), Refused> {
        let device = self.device(wanted)?;
        let mut context = CuContext(std::ptr::null_mut());
        call!(self, cuDevicePrimaryCtxRetain(&raw mut context, device))?;
        let allocated = self.allocate(context, bytes);
        let released = call!(self, cuDevicePrimaryCtxRelease_v2(device));
        allocated.and(released)
    }

    /// The size of a device's memory, without a context.
    pub(in crate::host) fn total_memory(&self, wanted: &str) -> Result<u64, Refused> {
        let device = self.device(wanted)?;
        let mut bytes = 0;
        call!(self, cuDeviceTotalMem_v2(&raw mut bytes, device))?;
        Ok(bytes as u64)
    }

    /// What the simulated driver says of its machine's host; none of a real one.
    pub(in crate::host) fn simulated_host(&self) -> Option<u64> {
        let name = "partage_sim_host_available\0";
        let function: Symbol<unsafe extern "C" fn() -> u64> = self.find(name).ok()?;
        // SAFETY: the type is that of the simulated driver's export; no other driver has one of this name.
        Some(unsafe { function() })
    }

    /// A context of this process, for as long as it lives.
    pub(super) fn keep_context(&self, wanted: &str) -> Result<(), Refused> {
        let device = self.device(wanted)?;
        let mut context = CuContext(std::ptr::null_mut());
        call!(self, cuDevicePrimaryCtxRetain(&raw mut context, device))
    }

    fn allocate(&self, context: CuContext, bytes: u64) -> Result<(), Refused> {
        call!(self, cuCtxSetCurrent(context))?;
        let mut address = 0;
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        call!(self, cuMemAlloc_v2(&raw mut address, size))?;
        call!(self, cuMemFree_v2(address))
    }

    fn device(&self, wanted: &str) -> Result<CuDevice, Refused> {
        /// `CUDA_ERROR_NO_DEVICE`.
        const NO_DEVICE: i32 = 100;
        let wanted = uuid(wanted)?;
        let mut count = 0;
        call!(self, cuDeviceGetCount(&raw mut count))?;
        for ordinal in 0..count {
            let (mut device, mut found) = (CuDevice::default(), uuid_of([0; 16]));
            call!(self, cuDeviceGet(&raw mut device, ordinal))?;
            call!(self, cuDeviceGetUuid_v2(&raw mut found, device))?;
            if found.bytes == wanted.bytes {
                return Ok(device);
            }
        }
        Err(Refused::Code(NO_DEVICE))
    }
}

fn uuid(text: &str) -> Result<CuUuid, Refused> {
    match DeviceUuid::parse(text) {
        Some(uuid) => Ok(uuid_of(uuid.bytes)),
        None => Err(Refused::NoUuid(text.to_owned())),
    }
}

fn uuid_of(bytes: [u8; 16]) -> CuUuid {
    CuUuid {
        bytes: bytes.map(|byte| byte as _),
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, text: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing(name) => write!(text, "the driver has no {name}: checkpoints need driver 570 or later"),
            Self::NoUuid(uuid) => write!(text, "`{uuid}` is no device's UUID"),
            Self::Code(code) => text.write_str(&partage_policy::driver_answered(*code)),
        }
    }
}
