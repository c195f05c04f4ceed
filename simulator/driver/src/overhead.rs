// SPDX-License-Identifier: Apache-2.0
//! Device memory that a context holds beside what programs allocate: the images of its modules, and what limits
//! beyond their defaults keep aside.
//!
//! A fresh context costs what the profile says, defaults included. All of this is added to it and ends with it at the
//! latest. Bytes. Invariant: what is held here is reserved in the machine's table, and nothing is held after the end.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use partage_abi::types::{CuResult, c_int};
use partage_abi::values::*;
use partage_machine::Device;

use crate::state::{Answer, driver};

/// Limits, with their values in a fresh context.
const LIMITS: [(c_int, usize); 7] = [
    (CU_LIMIT_STACK_SIZE, 1024),
    (CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20),
    (CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20),
    (CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 2),
    (CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 2048),
    (CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 128),
    (CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0),
];
const MULTIPROCESSORS: i32 = 16;
const THREADS_OF_A_MULTIPROCESSOR: i32 = 39;
/// Costs are multiples of this, as those of allocations are.
const UNIT: u64 = 512;
/// Images are kept in pages of the device.
const LARGEST_PAGE: u64 = 2 << 20;
const SMALLEST_PAGE: u64 = 4096;
/// A page is at most this part of the device, so that a small one is not full of three modules.
const PAGES_AT_LEAST: u64 = 1024;

/// What one context holds.
#[derive(Debug)]
pub struct Overhead {
    /// The machine device.
    device: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: u64,
    /// Limits that were set, by number.
    limits: BTreeMap<c_int, usize>,
    has_ended: bool,
}

impl Overhead {
    /// That of a fresh context on a machine device.
    pub fn new(device: usize) -> Self {
        Self {
            device,
            held: Mutex::default(),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds `bytes` more. OUT_OF_MEMORY when they are not there.
    pub fn hold(&self, bytes: u64) -> Answer {
        let mut held = self.held();
        if held.has_ended {
            return Err(CuResult::CONTEXT_IS_DESTROYED);
        }
        self.reserve(bytes)?;
        held.bytes += bytes;
        Ok(())
    }

    /// Gives back `bytes` that were held; nothing when the context has ended, and they with it.
    pub fn let_go(&self, bytes: u64) {
        let mut held = self.held();
        if !held.has_ended {
            held.bytes -= bytes;
            self.release(bytes);
        }
    }

    /// Gives back everything; it holds nothing any more from now on.
    pub fn end(&self) {
        let mut held = self.held();
        if !std::mem::replace(&mut held.has_ended, true) {
            self.release(std::mem::take(&mut held.bytes));
        }
    }

    /// The value of a limit. UNSUPPORTED_LIMIT, INVALID_VALUE.
    pub fn limit(&self, number: c_int) -> Answer<usize> {
        let default = default_limit(number)?;
        Ok(self.held().limits.get(&number).copied().unwrap_or(default))
    }

    /// Sets a limit; what it costs more or less than before is taken or given back at once. OUT_OF_MEMORY, and the
    /// limit stays, when it is not there.
    pub fn set_limit(&self, number: c_int, value: usize) -> Answer {
        let default = default_limit(number)?;
        let device = &driver()?.at(self.device);
        let mut held = self.held();
        if held.has_ended {
            return Err(CuResult::CONTEXT_IS_DESTROYED);
        }
        let before = held.limits.get(&number).copied().unwrap_or(default);
        let cost = |value| limit_cost(device, number, default, value).ok_or(CuResult::OUT_OF_MEMORY);
        let (before, after) = (cost(before)?, cost(value)?);
        if after > before {
            self.reserve(after - before)?;
        } else {
            self.release(before - after);
        }
        held.bytes = held.bytes - before + after;
        held.limits.insert(number, value);
        Ok(())
    }

    fn reserve(&self, bytes: u64) -> Answer {
        let driver = driver()?;
        if bytes > driver.at(self.device).memory {
            return Err(CuResult::OUT_OF_MEMORY);
        }
        let reserved = driver.machine().reserve(self.device, bytes);
        reserved.map_err(|_| CuResult::OUT_OF_MEMORY)
    }

    fn release(&self, bytes: u64) {
        if let Ok(driver) = driver() {
            driver.machine().release(self.device, bytes);
        }
    }
}

/// What a module with an image of so many bytes costs on a device, beside its variables.
pub fn image_cost(device: &Device, bytes: u64) -> u64 {
    let page = (device.memory / PAGES_AT_LEAST)
        .next_multiple_of(SMALLEST_PAGE)
        .clamp(SMALLEST_PAGE, LARGEST_PAGE);
    bytes.next_multiple_of(page)
}

/// What a limit costs beyond its default. `None` when no number can say it.
fn limit_cost(device: &Device, number: c_int, default: usize, value: usize) -> Option<u64> {
    let beyond = value.saturating_sub(default) as u64;
    let count = |attribute| {
        device
            .attribute(attribute)
            .map_or(0, |value| u64::from(value.unsigned_abs()))
    };
    let bytes = match number {
        CU_LIMIT_PRINTF_FIFO_SIZE | CU_LIMIT_MALLOC_HEAP_SIZE => beyond,
        // Every thread that can be resident has its stack.
        CU_LIMIT_STACK_SIZE => beyond.checked_mul(count(MULTIPROCESSORS) * count(THREADS_OF_A_MULTIPROCESSOR))?,
        _ => 0,
    };
    bytes.checked_next_multiple_of(UNIT)
}

fn default_limit(number: c_int) -> Answer<usize> {
    match LIMITS.iter().find(|(known, _)| *known == number) {
        Some((_, value)) => Ok(*value),
        // The rest belongs to features that no profile has.
        None if (0..CU_LIMIT_MAX).contains(&number) => Err(CuResult::UNSUPPORTED_LIMIT),
        None => Err(CuResult::INVALID_VALUE),
    }
}
