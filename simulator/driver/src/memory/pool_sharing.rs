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
use std::sync::Mutex;

use partage_abi::types::CuResult;

use super::foreign::Origin;
use super::lock::lock;
use super::shared::Hold;
use super::windows::host_file;
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
    pub(super) log: Option<Log>,
    /// Length of the log so far.
    pub(super) length: u64,
    /// By the start of the chunk.
    pub(super) ranges: BTreeMap<u64, Hold>,
}

/// The log of a pool.
#[derive(Debug)]
pub struct Log {
    pub(super) file: File,
    /// Whose pool it is.
    pub(super) origin: Origin,
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
const HEADER_WORDS: usize = 7;
const HEADER_BYTES: u64 = 4096;
/// Words of a record before its ranges: offset, bytes, number of ranges.
pub(super) const RECORD_WORDS: usize = 3;

impl PoolSharing {
    /// Of a pool that others may use.
    pub fn exports() -> Self {
        Self::Exports(Mutex::default())
    }

    /// A descriptor for other processes, close-on-exec, of a pool of this device. INVALID_VALUE unless the pool was
    /// asked for with one.
    pub(super) fn export(&self, driver: &Driver, device: usize) -> Answer<OwnedFd> {
        let Self::Exports(exports) = self else {
            return Err(CuResult::INVALID_VALUE);
        };
        let mut exports = lock(exports);
        if exports.log.is_none() {
            exports.log = Some(Log::create(driver, device)?);
            exports.length = HEADER_BYTES;
        }
        let log = exports.log.as_ref().ok_or(CuResult::INVALID_VALUE)?;
        let given = log.file.try_clone().map_err(|_| CuResult::OPERATING_SYSTEM)?;
        Ok(given.into())
    }

    /// Nothing of it was ever exported. Answers the starts of the chunks that were ranges.
    pub(super) fn end_of_exports(&self) -> Vec<u64> {
        let Self::Exports(exports) = self else {
            return Vec::new();
        };
        let ended = std::mem::take(&mut *lock(exports));
        let forget = |(start, hold): (u64, Hold)| {
            hold.forget();
            start
        };
        ended.ranges.into_iter().map(forget).collect()
    }

    /// The range that a chunk is, if it was exported. It is none any more.
    pub(super) fn end_of_chunk(&self, start: u64) -> Option<Hold> {
        match self {
            Self::Exports(exports) => lock(exports).ranges.remove(&start),
            _ => None,
        }
    }
}

impl Log {
    fn create(driver: &Driver, device: usize) -> Answer<Self> {
        let origin = Origin::here(driver, device)?;
        let file = host_file(HEADER_BYTES).ok_or(CuResult::OPERATING_SYSTEM)?;
        let [ticket, seat, fd, inode] = origin.words();
        let words = [
            MAGIC,
            driver.machine().spec().id,
            driver.place_of(device) as u64,
            ticket,
            seat,
            fd,
            inode,
        ];
        write(&file, &words, 0)?;
        Ok(Self { file, origin })
    }

    /// The log behind a descriptor, and the device of its pool. INVALID_VALUE when it is none of this machine.
    pub(super) fn open(driver: &Driver, file: File) -> Answer<(Self, usize)> {
        let words: [u64; HEADER_WORDS] = read(&file, 0)?;
        let [magic, machine, device, origin @ ..] = words;
        if magic != MAGIC || machine != driver.machine().spec().id {
            return Err(CuResult::INVALID_VALUE);
        }
        let origin = Origin::of_words(origin);
        let device = driver.number_of(device as usize).ok_or(CuResult::INVALID_DEVICE)?;
        Ok((Self { file, origin }, device))
    }

    /// What records name it by.
    pub(super) fn inode(&self) -> Answer<u64> {
        let about = self.file.metadata().map_err(|_| CuResult::OPERATING_SYSTEM)?;
        Ok(about.ino())
    }
}

/// Writes words to a file.
pub(super) fn write(file: &File, words: &[u64], at: u64) -> Answer {
    let raw: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    file.write_all_at(&raw, at).map_err(|_| CuResult::OPERATING_SYSTEM)
}

/// Words of a file. INVALID_VALUE when it has not that many, or is none that can be read so.
pub(super) fn read<const N: usize>(file: &File, at: u64) -> Answer<[u64; N]> {
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
