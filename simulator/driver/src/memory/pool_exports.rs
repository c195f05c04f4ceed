// SPDX-License-Identifier: Apache-2.0
//! How allocations of a pool get to other processes, and those of others here.

use std::fs::File;
use std::sync::Arc;

use partage_abi::types::CuResult;
use partage_machine::ranges::RangeId;

use super::allocation::{Allocation, AllocationKind};
use super::allocations::Memory;
use super::foreign::{Foreign, ordinal_of};
use super::lock::lock;
use super::pool::{Pool, create_pool};
use super::pool_sharing::{Log, PoolSharing, RECORD_WORDS, Record, read, write};
use super::shared::shared;
use crate::state::{Answer, Driver};

impl Memory {
    /// The pool behind a descriptor.
    pub fn import_pool(&self, driver: &Driver, file: File) -> Answer<Arc<Pool>> {
        let (log, device) = Log::open(driver, file)?;
        let ordinal = ordinal_of(driver, device)?;
        Ok(create_pool(driver, device, ordinal, 0, PoolSharing::Imported(log)))
    }

    /// Makes the allocation that an address is in ready for processes that have imported its pool. INVALID_VALUE
    /// unless its pool was exported.
    pub fn export_pooled(&self, driver: &Driver, address: u64) -> Answer<Record> {
        let found = self.find_live(address).ok_or(CuResult::INVALID_VALUE)?;
        let AllocationKind::Pooled(pool) = &found.kind else {
            return Err(CuResult::INVALID_VALUE);
        };
        let PoolSharing::Exports(exports) = &pool.sharing else {
            return Err(CuResult::INVALID_VALUE);
        };
        let offset = self.windows.window_offset(found.device, found.address);
        // No chunk goes before all of them are ranges.
        let figures = pool.figures();
        let mut exports = lock(exports);
        let mut words = vec![offset, found.bytes, 0];
        for (start, length) in figures.chunks_between(offset, offset + found.cost) {
            let id = match exports.ranges.get(&start) {
                Some(hold) => hold.id,
                None => {
                    let hold = shared().share(driver, pool.device, length)?;
                    let id = hold.id;
                    exports.ranges.insert(start, hold);
                    id
                }
            };
            words[RECORD_WORDS - 1] += 1;
            words.extend([id.place, id.serial]);
        }
        let log = exports.log.as_ref().ok_or(CuResult::INVALID_VALUE)?;
        let at = exports.length;
        write(&log.file, &words, at)?;
        let record = Record { log: log.inode()?, at };
        exports.length += 8 * words.len() as u64;
        Ok(record)
    }

    /// Opens what a record of an imported pool says. INVALID_VALUE when it is of another pool, or the memory is gone.
    pub fn import_pooled(&self, driver: &Driver, pool: &Arc<Pool>, record: Record) -> Answer<u64> {
        let PoolSharing::Imported(log) = &pool.sharing else {
            return Err(CuResult::INVALID_VALUE);
        };
        if log.inode()? != record.log {
            return Err(CuResult::INVALID_VALUE);
        }
        let [offset, bytes, count] = read(&log.file, record.at)?;
        let mut holds = Vec::new();
        for number in 0..count {
            let at = record.at + 8 * (RECORD_WORDS as u64 + 2 * number);
            let [place, serial] = read(&log.file, at)?;
            let hold = shared().join(driver, RangeId { place, serial }, log.origin.seat());
            holds.push(hold.ok_or(CuResult::INVALID_VALUE)?);
        }
        let end = offset.checked_add(bytes).ok_or(CuResult::INVALID_VALUE)?;
        let holds_all = |file: &File| file.metadata().is_ok_and(|about| about.len() >= end);
        let file = log
            .origin
            .open(driver)
            .filter(|file| !holds.is_empty() && holds_all(file));
        let file = file.ok_or(CuResult::INVALID_VALUE)?;
        let (address, foreign) = Foreign::map(self.windows, &file, offset, bytes, holds)?;
        let kind = AllocationKind::Imported(foreign, Arc::clone(pool));
        let made = Allocation::without_context(
            kind,
            pool.device,
            pool.ordinal,
            address,
            bytes,
            self.windows.alias_of(address)?,
        );
        made.let_reach(pool.reach());
        Ok(self.enter(made).address)
    }
}
