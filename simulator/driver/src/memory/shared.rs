// SPDX-License-Identifier: Apache-2.0
//! Memory that several processes hold: what this one holds of it, and the descriptors that name it.
//!
//! Who pays for a *range* of such memory is decided in the machine's table. This process is a holder as long as any
//! [`Hold`] on the range lives in it. A *ticket* is the last page of a file that holds nothing but one piece of
//! memory: it says what the memory is, so that the descriptor alone is enough to import it.
//!
//! Lock order: holds, then the machine's table.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

use partage_abi::types::CuResult;
use partage_machine::ranges::RangeId;

use super::lock::lock;
use super::windows::Windows;
use crate::state::{Answer, Driver, driver};

/// What this process holds.
#[derive(Debug)]
pub struct Shared {
    holds: Mutex<BTreeMap<RangeId, u32>>,
    /// Freed here while others hold it.
    orphans: Mutex<Vec<Orphan>>,
}

static SHARED: Shared = Shared {
    holds: Mutex::new(BTreeMap::new()),
    orphans: Mutex::new(Vec::new()),
};

/// What this process holds.
pub fn shared() -> &'static Shared {
    &SHARED
}

/// A part of a device's window that cannot be used again before others have let go of it.
#[derive(Debug)]
pub(super) struct Orphan {
    id: RangeId,
    /// Whose window.
    pub(super) device: usize,
    /// Where it is there.
    pub(super) offset: u64,
    /// Its length.
    pub(super) cost: u64,
}

/// This process's part in a range, until it is dropped.
#[derive(Debug)]
pub struct Hold {
    /// Which range.
    pub id: RangeId,
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Ok(driver) = driver() {
            SHARED.let_go(driver, self.id);
        }
    }
}

impl Hold {
    /// Means nothing any more: the process has left the machine, and with it the range.
    pub(super) fn forget(self) {
        std::mem::forget(self);
    }

    /// Lets go; true when nobody living holds the range any more, in this process or another.
    fn end(self, driver: &Driver) -> bool {
        let id = self.id;
        std::mem::forget(self);
        SHARED.let_go(driver, id)
    }
}

impl Shared {
    /// Makes memory that this process has reserved ready for others. OUT_OF_MEMORY when the table is full.
    pub fn share(&self, driver: &Driver, device: usize, bytes: u64) -> Answer<Hold> {
        let mut holds = lock(&self.holds);
        let id = driver.machine().share(device, bytes).ok_or(CuResult::OUT_OF_MEMORY)?;
        Ok(held(&mut holds, id))
    }

    /// Holds a range as long as the seat `of` does. `None` when it does not any more.
    pub fn join(&self, driver: &Driver, id: RangeId, of: usize) -> Option<Hold> {
        let mut holds = lock(&self.holds);
        driver.machine().join(id, of).then(|| held(&mut holds, id))
    }

    /// Holds the range that the ticket in a file names; when nobody holds it any more, this process pays for it from
    /// now on. OUT_OF_MEMORY when it is not there.
    pub fn join_file(&self, driver: &Driver, file: &File, device: usize, bytes: u64) -> Answer<Hold> {
        let mut holds = lock(&self.holds);
        let none = RangeId {
            place: u64::MAX,
            serial: 0,
        };
        let read = || Ticket::read(file).map_or(none, |ticket| ticket.id);
        let write = |id| {
            if let Some(ticket) = Ticket::read(file) {
                // A full file system cannot refuse this: the page is written already.
                let _ = Ticket { id, ..ticket }.write(file);
            }
        };
        let joined = driver.machine().join_or_adopt(device, bytes, read, write);
        Ok(held(&mut holds, joined.map_err(|_| CuResult::OUT_OF_MEMORY)?))
    }

    fn let_go(&self, driver: &Driver, id: RangeId) -> bool {
        let mut holds = lock(&self.holds);
        let count = holds.entry(id).or_default();
        *count = count.saturating_sub(1);
        if *count > 0 {
            return false;
        }
        holds.remove(&id);
        driver.machine().let_go(id)
    }
}

fn held(holds: &mut BTreeMap<RangeId, u32>, id: RangeId) -> Hold {
    *holds.entry(id).or_default() += 1;
    Hold { id }
}

impl Shared {
    /// Gives back a place in a device's window that others may hold: at once, or when they have let go.
    pub(super) fn give(&self, driver: &Driver, windows: &Windows, hold: Hold, device: usize, offset: u64, cost: u64) {
        let id = hold.id;
        if hold.end(driver) {
            windows.give_place(device, offset, cost);
        } else {
            let orphan = Orphan {
                id,
                device,
                offset,
                cost,
            };
            lock(&self.orphans).push(orphan);
        }
    }

    /// This process has left the machine and holds no range any more. Answers what it had freed while others held it.
    pub(super) fn forget(&self) -> Vec<Orphan> {
        lock(&self.holds).clear();
        std::mem::take(&mut *lock(&self.orphans))
    }

    /// Makes usable again what others have let go of since it was freed here.
    pub(super) fn reclaim(&self, driver: &Driver, windows: &Windows) {
        lock(&self.orphans).retain(|orphan| {
            let is_held = driver.machine().is_held(orphan.id);
            if !is_held {
                windows.give_place(orphan.device, orphan.offset, orphan.cost);
            }
            is_held
        });
    }
}

/// What the last page of a file says of the memory before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The machine that it belongs to.
    pub machine: u64,
    /// Its length.
    pub bytes: u64,
    /// Where it is (`CU_MEM_LOCATION_TYPE_*`): on a device, or in host memory.
    pub kind: i32,
    /// The machine device, or the NUMA node.
    pub number: i32,
    /// Compression and usage, as it was asked for.
    pub flags: [u8; 4],
    /// The range of device memory; without meaning for host memory.
    pub id: RangeId,
}

impl Ticket {
    /// How much longer than its memory a file with a ticket is.
    pub const BYTES: u64 = 4096;
    const MAGIC: u64 = 0x5041_5254_4147_4501;
    const WORDS: usize = 8;

    /// The ticket of a file. `None` when it is no file of ours.
    pub fn read(file: &File) -> Option<Self> {
        let length = file.metadata().ok().filter(|about| about.is_file())?.len();
        let bytes = length.checked_sub(Self::BYTES)?;
        let mut raw = [0; Self::WORDS * 8];
        file.read_exact_at(&mut raw, bytes).ok()?;
        let mut words = [0; Self::WORDS];
        for (word, raw) in words.iter_mut().zip(raw.chunks_exact(8)) {
            *word = u64::from_ne_bytes(raw.try_into().ok()?);
        }
        let [magic, machine, its_bytes, location, flags, place, serial, _] = words;
        if magic != Self::MAGIC || its_bytes != bytes {
            return None;
        }
        Some(Self {
            machine,
            bytes,
            kind: (location >> 32) as i32,
            number: location as i32,
            flags: (flags as u32).to_ne_bytes(),
            id: RangeId { place, serial },
        })
    }

    /// Writes the ticket behind the memory of a file.
    pub fn write(&self, file: &File) -> std::io::Result<()> {
        let location = u64::from(self.kind as u32) << 32 | u64::from(self.number as u32);
        let flags = u64::from(u32::from_ne_bytes(self.flags));
        let RangeId { place, serial } = self.id;
        let words = [Self::MAGIC, self.machine, self.bytes, location, flags, place, serial, 0];
        let raw: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        file.write_all_at(&raw, self.bytes)
    }
}
