// SPDX-License-Identifier: Apache-2.0
//! Pools that several processes use: one allocates, others open what it allocated.
//!
//! The descriptor of a pool leads to its *log*, a file that says in its first page whose pool it is, and after that, a
//! *record* for each time that an allocation was exported: where it lies, and the ranges of the chunks that it touches.
//! What a program passes on for a pointer is the place of a record. An exported chunk is a range of shared memory: it
//! counts for the pool's process as long as the pool holds it, and then for whoever has something of it open.
//!
//! Lock order: the figures of the pool, then the log, then what [`shared`](super::shared) says.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex};

use partage_abi::types::CuResult;
use partage_machine::ranges::RangeId;

use super::allocations::{Allocation, AllocationKind, Memory, lock};
use super::foreign::{Origin, ordinal_of};
use super::mapping::host_file;
use super::pool::Pool;
use super::shared::Hold;
use crate::state::{Answer, Driver};

/// How a pool is used by several processes.
#[derive(Debug)]
pub enum PoolSharing {
    /// By one only.
    Alone,
    /// Others may open what it allocates.
    Exports(Mutex<Exports>),
    /// It is another process's.
    Imported(Log),
}

/// What of a pool was exported.
#[derive(Debug, Default)]
pub struct Exports {
    /// Made by the first export.
    log: Option<Log>,
    /// Length of the log so far.
    length: u64,
    /// By the start of the chunk.
    ranges: BTreeMap<u64, Hold>,
}

/// The log of a pool.
#[derive(Debug)]
pub struct Log {
    file: File,
    /// Whose pool it is.
    origin: Origin,
}

/// Names one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The log's inode.
    pub log: u64,
    /// Where in the log it starts.
    pub at: u64,
}

const MAGIC: u64 = 0x5041_5254_504f_4f4c;
/// Words of the first page that are used: magic, machine, device, and the origin.
const HEADER_WORDS: usize = 8;
const HEADER_BYTES: u64 = 4096;
/// Words of a record before its ranges: offset, bytes, number of ranges.
const RECORD_WORDS: usize = 3;

impl PoolSharing {
    /// Of a pool that others may use.
    pub fn exports() -> Self {
        Self::Exports(Mutex::default())
    }

    /// The range that a chunk is, if it was exported. It is none any more.
    pub(super) fn end_of_chunk(&self, start: u64) -> Option<Hold> {
        match self {
            Self::Exports(exports) => lock(exports).ranges.remove(&start),
            _ => None,
        }
    }
}

impl Pool {
    /// Whether it is another process's: nothing is allocated from it here.
    pub fn is_imported(&self) -> bool {
        matches!(self.sharing, PoolSharing::Imported(_))
    }

    /// Whether it was asked for with descriptors for other processes.
    pub fn is_shareable(&self) -> bool {
        matches!(self.sharing, PoolSharing::Exports(_))
    }

    /// A descriptor for other processes, close-on-exec. INVALID_VALUE unless the pool was asked for with one.
    pub fn export(&self, driver: &Driver) -> Answer<OwnedFd> {
        let PoolSharing::Exports(exports) = &self.sharing else {
            return Err(CuResult::INVALID_VALUE);
        };
        let mut exports = lock(exports);
        if exports.log.is_none() {
            exports.log = Some(Log::create(driver, self.device)?);
            exports.length = HEADER_BYTES;
        }
        let log = exports.log.as_ref().ok_or(CuResult::INVALID_VALUE)?;
        let given = log.file.try_clone().map_err(|_| CuResult::OPERATING_SYSTEM)?;
        Ok(given.into())
    }
}

impl Log {
    fn create(driver: &Driver, device: usize) -> Answer<Self> {
        let origin = Origin::here(driver, device)?;
        let file = host_file(HEADER_BYTES).ok_or(CuResult::OPERATING_SYSTEM)?;
        let [pid, start, seat, fd, inode] = origin.words();
        let words = [
            MAGIC,
            driver.machine.spec().id,
            device as u64,
            pid,
            start,
            seat,
            fd,
            inode,
        ];
        write(&file, &words, 0)?;
        Ok(Self { file, origin })
    }

    /// The log behind a descriptor, and the device of its pool. INVALID_VALUE when it is none of this machine.
    fn open(driver: &Driver, file: File) -> Answer<(Self, usize)> {
        let words: [u64; HEADER_WORDS] = read(&file, 0)?;
        let [magic, machine, device, origin @ ..] = words;
        if magic != MAGIC || machine != driver.machine.spec().id {
            return Err(CuResult::INVALID_VALUE);
        }
        let origin = Origin::of_words(origin);
        Ok((Self { file, origin }, device as usize))
    }

    fn inode(&self) -> Answer<u64> {
        let about = self.file.metadata().map_err(|_| CuResult::OPERATING_SYSTEM)?;
        Ok(about.ino())
    }
}

impl Memory {
    /// The pool behind a descriptor.
    pub fn import_pool(&self, driver: &Driver, file: File) -> Answer<Arc<Pool>> {
        let (log, device) = Log::open(driver, file)?;
        let ordinal = ordinal_of(driver, device)?;
        Ok(self.create_pool(driver, device, ordinal, 0, PoolSharing::Imported(log)))
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
        let offset = self.window_offset(found.device, found.address);
        // No chunk goes before all of them are ranges.
        let figures = pool.figures();
        let mut exports = lock(exports);
        let mut words = vec![offset, found.bytes, 0];
        for (start, length) in figures.chunks_between(offset, offset + found.cost) {
            let id = match exports.ranges.get(&start) {
                Some(hold) => hold.id,
                None => {
                    let hold = self.shared.share(driver, pool.device, length)?;
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
            let hold = self.shared.join(driver, RangeId { place, serial }, log.origin.seat());
            holds.push(hold.ok_or(CuResult::INVALID_VALUE)?);
        }
        let end = offset.checked_add(bytes).ok_or(CuResult::INVALID_VALUE)?;
        let holds_all = |file: &File| file.metadata().is_ok_and(|about| about.len() >= end);
        let file = log.origin.open().filter(|file| !holds.is_empty() && holds_all(file));
        let file = file.ok_or(CuResult::INVALID_VALUE)?;
        let (address, foreign) = self.map_foreign(&file, offset, bytes, holds)?;
        let kind = AllocationKind::Imported(foreign, Arc::clone(pool));
        let made =
            Allocation::without_context(kind, pool.device, pool.ordinal, address, bytes, self.alias_of(address)?);
        made.let_reach(pool.reach());
        Ok(self.enter(made).address)
    }
}

fn write(file: &File, words: &[u64], at: u64) -> Answer {
    let raw: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    file.write_all_at(&raw, at).map_err(|_| CuResult::OPERATING_SYSTEM)
}

/// Words of a file. INVALID_VALUE when it has not that many, or is none that can be read so.
fn read<const N: usize>(file: &File, at: u64) -> Answer<[u64; N]> {
    let mut words = [0; N];
    for (number, word) in words.iter_mut().enumerate() {
        let mut raw = [0; 8];
        let place = at.checked_add(8 * number as u64).ok_or(CuResult::INVALID_VALUE)?;
        file.read_exact_at(&mut raw, place)
            .map_err(|_| CuResult::INVALID_VALUE)?;
        *word = u64::from_ne_bytes(raw);
    }
    Ok(words)
}
