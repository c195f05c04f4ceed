// SPDX-License-Identifier: Apache-2.0
//! Memory of others at addresses of this process: allocations that another process exported, and files that another
//! interface made.
//!
//! It costs this process nothing as long as somebody else pays for it. Its addresses lie in the window that programs
//! manage, outside of what they have reserved there.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};

use partage_abi::types::{CuDevice, CuResult};
use partage_machine::process::ProcessId;
use partage_machine::ranges::RangeId;

use super::allocations::{Allocation, AllocationKind, Memory, lock, memory};
use super::shared::Hold;
use super::space::LARGE_PAGE;
use crate::context::Context;
use crate::state::{Answer, Driver};

const PAGE: u64 = 4096;

/// A mapping of a file that is not ours, until it is dropped.
#[derive(Debug)]
pub struct Foreign {
    /// Where it is in the space.
    place: u64,
    length: u64,
    /// How often it was opened and not closed.
    opens: Mutex<u32>,
    /// The parts in the ranges that it lies in, if others can hold them.
    holds: Vec<Hold>,
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Ok(memory) = memory() {
            let space = &memory.space;
            space.unmap(self.place, self.length);
            let start = space.managed_window().start;
            lock(&memory.reservations).free.give(self.place - start, self.length);
        }
    }
}

/// Whether an allocation can be exported.
#[derive(Debug, Default)]
pub enum Sharing {
    /// Nobody else has heard of it.
    #[default]
    Alone,
    /// It was exported.
    Shared(Hold),
    /// It is no longer the program's.
    Over,
}

/// The file behind the memory of a process on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pid: u32,
    start: u64,
    seat: u16,
    fd: u32,
    inode: u64,
}

impl Origin {
    /// That of this process.
    pub fn here(driver: &Driver, device: usize) -> Answer<Self> {
        let file = memory()?.open_device(driver, device)?;
        let about = file.metadata().map_err(|_| CuResult::OPERATING_SYSTEM)?;
        let process = ProcessId::current();
        Ok(Self {
            pid: process.pid,
            start: process.start,
            seat: driver.seat as u16,
            fd: file.as_raw_fd() as u32,
            inode: about.ino(),
        })
    }

    /// The seat of its process.
    pub fn seat(&self) -> usize {
        usize::from(self.seat)
    }

    /// As five words.
    pub fn words(&self) -> [u64; 5] {
        let Self {
            pid,
            start,
            seat,
            fd,
            inode,
        } = *self;
        [pid.into(), start, seat.into(), fd.into(), inode]
    }

    /// From the five words.
    pub fn of_words([pid, start, seat, fd, inode]: [u64; 5]) -> Self {
        Self {
            pid: pid as u32,
            start,
            seat: seat as u16,
            fd: fd as u32,
            inode,
        }
    }

    /// The file, if its process still lives.
    pub fn open(&self) -> Option<File> {
        let process = ProcessId {
            pid: self.pid,
            start: self.start,
            stack: 0,
        };
        let path = format!("/proc/{}/fd/{}", self.pid, self.fd);
        let file = File::options().read(true).write(true).open(path).ok()?;
        let is_it = file.metadata().ok()?.ino() == self.inode && process.is_alive();
        is_it.then_some(file)
    }
}

/// What a legacy handle says: which bytes of which file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export {
    machine: u32,
    device: u16,
    origin: Origin,
    offset: u64,
    bytes: u64,
    id: RangeId,
}

impl Export {
    /// Length of a handle.
    pub const BYTES: usize = 64;
    const MAGIC: u32 = 0x5049_5043;

    /// As the program carries it around.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut raw = Vec::with_capacity(Self::BYTES);
        for word in [Self::MAGIC, self.machine, self.origin.pid, self.origin.fd] {
            raw.extend(word.to_ne_bytes());
        }
        raw.extend([self.origin.seat.to_ne_bytes(), self.device.to_ne_bytes()].concat());
        raw.extend((self.id.place as u32).to_ne_bytes());
        for word in [
            self.origin.start,
            self.origin.inode,
            self.offset,
            self.bytes,
            self.id.serial,
        ] {
            raw.extend(word.to_ne_bytes());
        }
        raw.try_into().unwrap_or([0; Self::BYTES])
    }

    /// What a handle says; `None` when it is none of ours.
    pub fn decode(raw: &[u8; Self::BYTES]) -> Option<Self> {
        let small = |at: usize| Some(u32::from_ne_bytes(raw.get(at..at + 4)?.try_into().ok()?));
        let half = |at: usize| Some(u16::from_ne_bytes(raw.get(at..at + 2)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_ne_bytes(raw.get(at..at + 8)?.try_into().ok()?));
        if small(0)? != Self::MAGIC {
            return None;
        }
        Some(Self {
            machine: small(4)?,
            device: half(18)?,
            origin: Origin {
                pid: small(8)?,
                fd: small(12)?,
                seat: half(16)?,
                start: long(24)?,
                inode: long(32)?,
            },
            offset: long(40)?,
            bytes: long(48)?,
            id: RangeId {
                place: u64::from(small(20)?),
                serial: long(56)?,
            },
        })
    }
}

impl Memory {
    /// Makes the allocation of linear device memory that an address is in ready for other processes. INVALID_VALUE for
    /// any other memory.
    pub fn export(&self, driver: &Driver, address: u64) -> Answer<Export> {
        let found = self.find(address).ok_or(CuResult::INVALID_VALUE)?;
        if !matches!(found.kind, AllocationKind::Device) {
            return Err(CuResult::INVALID_VALUE);
        }
        let origin = Origin::here(driver, found.device)?;
        let mut sharing = lock(&found.sharing);
        if let Sharing::Alone = *sharing {
            *sharing = Sharing::Shared(self.shared.share(driver, found.device, found.cost)?);
        }
        let Sharing::Shared(hold) = &*sharing else {
            return Err(CuResult::INVALID_VALUE);
        };
        Ok(Export {
            machine: driver.machine.spec().id as u32,
            device: found.device as u16,
            origin,
            offset: self.window_offset(found.device, found.address),
            bytes: found.bytes,
            id: hold.id,
        })
    }

    /// Opens what another process exported, for a context; what it has open already is counted once more.
    /// INVALID_HANDLE for a handle of another machine, INVALID_CONTEXT for one of this process, MAP_FAILED when the
    /// memory is gone.
    pub fn open_export(&self, driver: &Driver, context: &Context, export: &Export) -> Answer<u64> {
        if export.machine != driver.machine.spec().id as u32 {
            return Err(CuResult::INVALID_HANDLE);
        }
        if export.origin.pid == std::process::id() {
            return Err(CuResult::INVALID_CONTEXT);
        }
        let device = usize::from(export.device);
        let ordinal = ordinal_of(driver, device)?;
        let _one_at_a_time = self.opening_exports.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((address, foreign)) = self.opened(context, export.id) {
            *lock(&foreign.opens) += 1;
            return Ok(address);
        }
        let hold = self.shared.join(driver, export.id, export.origin.seat());
        let hold = hold.ok_or(CuResult::MAP_FAILED)?;
        let file = export.origin.open().ok_or(CuResult::MAP_FAILED)?;
        let foreign = self.map_foreign(&file, export.offset, export.bytes, vec![hold]);
        let (address, foreign) = foreign.map_err(|_| CuResult::MAP_FAILED)?;
        let kind = AllocationKind::Opened(foreign);
        let made = Allocation::new(context, kind, address, export.bytes, self.alias_of(address)?);
        made.let_reach(1 << device);
        Ok(self
            .enter(Allocation {
                device,
                ordinal,
                ..made
            })
            .address)
    }

    /// Closes once what a context has opened. INVALID_VALUE when it is no such address. After the last
    /// time nothing leads to the memory any more.
    pub fn close_export(&self, context: &Context, address: u64) -> Answer {
        let _one_at_a_time = self.opening_exports.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self
            .find(address)
            .filter(|found| found.address == address && found.context == context.home.0);
        let found = found.ok_or(CuResult::INVALID_VALUE)?;
        let AllocationKind::Opened(foreign) = &found.kind else {
            return Err(CuResult::INVALID_VALUE);
        };
        let mut opens = lock(&foreign.opens);
        *opens = opens.saturating_sub(1);
        if *opens == 0 {
            self.take(address, |_| true);
        }
        Ok(())
    }

    /// Maps a part of a file of another interface, for a context.
    pub fn map_external(&self, context: &Context, file: &File, from: u64, bytes: u64) -> Answer<u64> {
        let (address, foreign) = self.map_foreign(file, from, bytes, Vec::new())?;
        let kind = AllocationKind::External(foreign);
        let made = Allocation::new(context, kind, address, bytes, self.alias_of(address)?);
        Ok(self.enter(made).address)
    }

    /// The memory behind a handle that a context has open.
    fn opened(&self, context: &Context, id: RangeId) -> Option<(u64, Arc<Foreign>)> {
        let of_context = |found: &Allocation| match &found.kind {
            AllocationKind::Opened(foreign) if found.context == context.home.0 => {
                let is_it = foreign.holds.iter().any(|hold| hold.id == id);
                is_it.then(|| (found.address, foreign.clone()))
            }
            _ => None,
        };
        self.look_for(of_context)
    }

    /// Maps a part of a file at addresses of their own. The first one is as far into a page as the part is.
    pub(super) fn map_foreign(
        &self,
        file: &File,
        from: u64,
        bytes: u64,
        holds: Vec<Hold>,
    ) -> Answer<(u64, Arc<Foreign>)> {
        let (first, lead) = (from / PAGE * PAGE, from % PAGE);
        let pages = lead
            .checked_add(bytes)
            .and_then(|bytes| bytes.checked_next_multiple_of(PAGE));
        let pages = pages.ok_or(CuResult::INVALID_VALUE)?;
        let length = pages
            .checked_next_multiple_of(LARGE_PAGE)
            .ok_or(CuResult::OUT_OF_MEMORY)?;
        let offset = lock(&self.reservations).free.take(length, LARGE_PAGE);
        let place = self.space.managed_window().start + offset.ok_or(CuResult::OUT_OF_MEMORY)?;
        // Gives the addresses back when the mapping fails.
        let foreign = Arc::new(Foreign {
            place,
            length,
            opens: Mutex::new(1),
            holds,
        });
        self.space.map(place, file, first, pages)?;
        Ok((self.space.visible(place) + lead, foreign))
    }

    pub(super) fn alias_of(&self, address: u64) -> Answer<usize> {
        let offset = self.space.offset(address).ok_or(CuResult::INVALID_VALUE)?;
        Ok(self.space.alias(offset) as usize)
    }
}

/// The device as the program numbers it. INVALID_DEVICE when it does not see it.
pub fn ordinal_of(driver: &Driver, device: usize) -> Answer<CuDevice> {
    let place = driver.visible.iter().position(|visible| *visible == device);
    place.map(|place| place as CuDevice).ok_or(CuResult::INVALID_DEVICE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_says_what_was_exported_and_others_say_nothing() {
        let export = Export {
            machine: 0x1234_5678,
            device: 15,
            origin: Origin {
                pid: 4_194_303,
                start: u64::MAX - 1,
                seat: 1023,
                fd: 700,
                inode: 1 << 40,
            },
            offset: 3 << 33,
            bytes: 512,
            id: RangeId {
                place: 16_383,
                serial: 1 << 50,
            },
        };
        let raw = export.encode();
        assert_eq!(Export::decode(&raw), Some(export));
        assert_eq!(Origin::of_words(export.origin.words()), export.origin);
        assert_eq!(Export::decode(&[0; Export::BYTES]), None);
    }
}
