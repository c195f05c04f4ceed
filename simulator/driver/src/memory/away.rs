// SPDX-License-Identifier: Apache-2.0
//! The memory of a process that is checkpointed: every byte that it has on devices lies in private memory of its own.
//!
//! What lies in a device's window lies at the same aliases, whatever it is: linear memory, pools, arrays, variables of
//! modules, slabs of graphs, physical memory without a file. What lies in a file of its own lies in a [`Block`].
//! Nothing leads there but the aliases of the windows: the addresses of mappings and of graphs are bare meanwhile.
//! Host memory, and what other interfaces made, is the process's own anyway and stays.
//!
//! What others hold too is this process's alone from then on; they keep what they have. What this process has of others
//! is not taken along.
//!
//! Precondition of all of it: nothing that was submitted is left, no call that may change a device is under way, and
//! the caller keeps everybody from the machine.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use partage_abi::types::CuResult;
use partage_machine::backing::{self, Kept};

use super::allocation::{Allocation, AllocationKind};
use super::allocations::Memory;
use super::foreign::Sharing;
use super::lock::lock;
use super::physical::{Own, Physical, Place, all_own};
use super::pool::all_pools;
use super::shared::{Ticket, shared};
use crate::state::here;
use crate::state::{Answer, Driver};

const PAGE: u64 = 4096;
/// Parts of a file that are closer than this become one mapping, so that a device costs few of them.
const GAP: u64 = 2 << 20;
/// As many mappings a device may cost; with more parts the gap grows.
const MOST_MAPPINGS: usize = 1024;
/// Bytes that are moved at once.
const STEP: u64 = 1 << 20;

/// Parts of a window or a file: start and length.
type Parts = Vec<(u64, u64)>;

/// The memory of a checkpointed process.
pub struct Away {
    /// What holds anything, by device; `None` where the process has never used a device.
    windows: Vec<Option<Parts>>,
    own: Vec<(Arc<Physical>, Block)>,
    /// Bytes by device that others hold too and that will be this process's alone.
    pub alone: Vec<u64>,
    /// Bytes that lie in private memory now.
    pub bytes: u64,
}

/// Private memory with the content of a file.
struct Block {
    at: *mut u8,
    length: usize,
    parts: Parts,
}

// SAFETY: a mapping of ours that is not bound to a thread, and reached through this alone.
unsafe impl Send for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which only this leads to.
        unsafe { libc::munmap(self.at.cast(), self.length) };
    }
}

impl Block {
    /// The content of a file's first `bytes`.
    fn read(file: &File, bytes: u64) -> io::Result<Self> {
        let parts = backing::data_in(file, bytes)?;
        let length = bytes.next_multiple_of(PAGE) as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping. A child has no device memory, so it does not get this either.
        let at = unsafe {
            let at = libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0);
            if at == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            libc::madvise(at, length, libc::MADV_DONTFORK);
            at.cast::<u8>()
        };
        let block = Self { at, length, parts };
        for &(start, bytes) in &block.parts {
            // SAFETY: the part lies in the mapping just made.
            let to = unsafe { std::slice::from_raw_parts_mut(block.at.add(start as usize), bytes as usize) };
            file.read_exact_at(to, start)?;
        }
        Ok(block)
    }

    fn write(&self, file: &File) -> io::Result<()> {
        self.parts.iter().try_for_each(|&(start, bytes)| {
            // SAFETY: the part lies in our mapping, which nobody writes to.
            let from = unsafe { std::slice::from_raw_parts(self.at.add(start as usize), bytes as usize) };
            file.write_all_at(from, start)
        })
    }
}

/// Parts that are at least `gap` apart, made of parts in order: what lies between closer ones belongs to them.
fn joined(parts: &[(u64, u64)], gap: u64) -> Parts {
    let mut joined: Parts = Vec::new();
    for &(start, bytes) in parts {
        match joined.last_mut() {
            Some((first, length)) if start < *first + *length + gap => *length = start + bytes - *first,
            _ => joined.push((start, bytes)),
        }
    }
    joined
}

/// As few parts as a process may have mappings.
fn few(parts: &[(u64, u64)]) -> Parts {
    let mut gap = GAP;
    loop {
        let few = joined(parts, gap);
        if few.len() <= MOST_MAPPINGS {
            return few;
        }
        gap *= 2;
    }
}

impl Memory {
    /// Whether there is managed memory, which cannot be taken off a device.
    pub fn has_managed(&self) -> bool {
        self.look_for(|found| found.is_managed().then_some(())).is_some()
    }

    /// Whether there is memory that another process made.
    pub fn has_imports(&self) -> bool {
        let is_import = |found: &Allocation| match &found.kind {
            AllocationKind::Opened(_) | AllocationKind::Imported(..) => Some(()),
            _ => None,
        };
        let is_imported = |physical: &Arc<Physical>| matches!(&physical.place, Place::Own(own) if own.is_imported);
        self.look_for(is_import).is_some() || all_own().iter().any(is_imported)
    }

    /// Takes all memory off the devices. OUT_OF_MEMORY when the process cannot have as much memory of its own,
    /// OPERATING_SYSTEM when the program has closed one of the files; everything is then where it was.
    pub fn take_off(&self) -> Answer<Away> {
        let mut own = Vec::new();
        for physical in all_own() {
            if let Some(block) = save(&physical)? {
                own.push((physical, block));
            }
        }
        let mut windows = Vec::new();
        for device in 0..self.windows.devices() {
            let taken = self.take_window_off(device);
            match taken {
                Ok(parts) => windows.push(parts),
                Err(code) => {
                    (0..device).for_each(|device| self.leave_window_on(device));
                    return Err(code);
                }
            }
        }
        // From here on nothing fails.
        let moved = |parts: &Parts| parts.iter().map(|(_, bytes)| bytes).sum::<u64>();
        let of_windows: u64 = windows.iter().flatten().map(moved).sum();
        let of_own: u64 = own.iter().map(|(_, block)| moved(&block.parts)).sum();
        self.unmap_all();
        let alone = self.end_sharing(&windows);
        for device in 0..self.windows.devices() {
            *self.windows.backing(device) = None;
        }
        for physical in all_own() {
            if let Place::Own(Own { file, .. }) = &physical.place {
                *lock(file) = None;
            }
        }
        Ok(Away {
            windows,
            own,
            alone,
            bytes: of_windows + of_own,
        })
    }

    /// Puts private memory with the content of a device's window in its place.
    fn take_window_off(&self, device: usize) -> Answer<Option<Parts>> {
        let backing = self.windows.backing(device).clone();
        let Some(backing) = backing else { return Ok(None) };
        let file = backing.get().ok_or(CuResult::OPERATING_SYSTEM)?;
        let window = self.windows.space.window(device);
        let parts = backing::data_in(file, window.bytes).map_err(|_| CuResult::OPERATING_SYSTEM)?;
        self.windows.space.unmap(window.start, window.bytes);
        let read = || -> Answer {
            for (start, bytes) in few(&parts) {
                self.windows.space.own(window.start + start, bytes)?;
            }
            for &(start, bytes) in &parts {
                let at = self.windows.space.alias(window.start + start);
                // SAFETY: the part lies in private memory just made, which nothing else leads to.
                let to = unsafe { std::slice::from_raw_parts_mut(at, bytes as usize) };
                file.read_exact_at(to, start).map_err(|_| CuResult::OPERATING_SYSTEM)?;
            }
            Ok(())
        };
        read().inspect_err(|_| self.leave_window_on(device))?;
        Ok(Some(parts))
    }

    /// The file behind a device is in its place again.
    fn leave_window_on(&self, device: usize) {
        let window = self.windows.space.window(device);
        if let Some(file) = self.windows.backing(device).as_ref().and_then(|file| file.get()) {
            // These addresses were mapped before, so they can be again.
            let _ = self.windows.space.map(window.start, file, 0, window.bytes);
        }
    }

    /// Mappings of device memory, and of other processes' memory, lead nowhere.
    fn unmap_all(&self) {
        for found in self.between(0, u64::MAX) {
            match &found.kind {
                AllocationKind::Mapped(physical) if !physical.is_host() => {
                    if let Some(place) = self.windows.space.offset(found.address) {
                        self.windows.space.unmap(place, found.bytes);
                    }
                }
                AllocationKind::Opened(foreign) | AllocationKind::Imported(foreign, _) => foreign.hide(self.windows),
                _ => {}
            }
        }
        self.unmap_spans();
    }

    /// Nobody else holds what this process holds. Answers the bytes by device that counted for the machine's ranges
    /// until now, as far as this process made them.
    fn end_sharing(&self, windows: &[Option<Parts>]) -> Vec<u64> {
        let mut alone = vec![0; windows.len()];
        for found in self.between(0, u64::MAX) {
            let mut sharing = lock(&found.sharing);
            if matches!(*sharing, Sharing::Shared(_))
                && let Sharing::Shared(hold) = std::mem::take(&mut *sharing)
            {
                hold.forget();
                alone[found.device] += found.cost;
            }
        }
        for physical in all_own() {
            if let Some(hold) = lock(&physical.shared).take() {
                hold.forget();
                alone[physical.device] += physical.bytes;
            }
        }
        for pool in all_pools() {
            alone[pool.device] += pool.end_sharing();
        }
        for orphan in shared().forget() {
            let parts = windows[orphan.device].as_deref().unwrap_or_default();
            self.clear(orphan.device, parts, orphan.offset, orphan.offset + orphan.cost);
            self.windows.forget_place(orphan.device, orphan.offset, orphan.cost);
        }
        alone
    }

    /// Zeroes what parts of a window have of `start..end`.
    fn clear(&self, device: usize, parts: &[(u64, u64)], start: u64, end: u64) {
        let window = self.windows.space.window(device).start;
        for &(first, bytes) in parts {
            let (from, to) = (first.max(start), (first + bytes).min(end));
            if from < to {
                // SAFETY: lies in private memory, where the parts were read to; no allocation lies there.
                unsafe { std::ptr::write_bytes(self.windows.space.alias(window + from), 0, (to - from) as usize) };
            }
        }
    }

    /// Puts all memory on the devices of the machine that the process is in now. OPERATING_SYSTEM when the machine's
    /// files cannot be written: everything is then still away.
    pub fn put_on(&self, driver: &Driver, away: &Away, place: &here::Place) -> Answer {
        let failed = |_| CuResult::OPERATING_SYSTEM;
        let mut files = Vec::new();
        for (device, parts) in away.windows.iter().enumerate() {
            let Some(parts) = parts else { continue };
            let window = self.windows.space.window(device);
            let at = driver.place_of(device);
            let made = place.machine.create_backing(place.seat, at, window.bytes);
            let file = made.map_err(|_| CuResult::OPERATING_SYSTEM)?;
            self.write_window(&file, window.start, parts).map_err(failed)?;
            files.push((device, file));
        }
        let folder = place.machine.folder().join("memory");
        let mut own = Vec::new();
        for (physical, block) in &away.own {
            let file = backing::create(&folder, physical.bytes + Ticket::BYTES).map_err(failed)?;
            block.write(&file).map_err(failed)?;
            own.push((physical, file));
        }
        for (device, file) in files {
            let window = self.windows.space.window(device);
            self.windows.space.map(window.start, &file, 0, window.bytes)?;
            *self.windows.backing(device) = Some(Arc::new(Kept::new(file)));
        }
        for (physical, made) in own {
            if let Place::Own(Own { file, .. }) = &physical.place {
                *lock(file) = Some(Kept::new(made));
            }
        }
        self.map_all(driver)
    }

    fn write_window(&self, file: &File, window: u64, parts: &[(u64, u64)]) -> io::Result<()> {
        for &(start, bytes) in parts {
            let at = self.windows.space.alias(window + start);
            // SAFETY: the part lies in private memory that nobody writes to.
            let from = unsafe { std::slice::from_raw_parts(at, bytes as usize) };
            for (number, step) in from.chunks(STEP as usize).enumerate() {
                file.write_all_at(step, start + STEP * number as u64)?;
            }
        }
        Ok(())
    }

    /// The mappings lead to what they led to before.
    fn map_all(&self, driver: &Driver) -> Answer {
        for found in self.between(0, u64::MAX) {
            if let AllocationKind::Mapped(physical) = &found.kind
                && !physical.is_host()
                && let Some(place) = self.windows.space.offset(found.address)
            {
                self.map_at(place, found.bytes, physical)?;
            }
        }
        self.map_spans(driver)
    }
}

/// The content of physical memory with a file of its own. `None` when it is another process's.
fn save(physical: &Physical) -> Answer<Option<Block>> {
    let Place::Own(own) = &physical.place else {
        return Ok(None);
    };
    if own.is_imported {
        return Ok(None);
    }
    let kept = lock(&own.file);
    let file = kept.as_ref().and_then(Kept::get).ok_or(CuResult::OPERATING_SYSTEM)?;
    let block = Block::read(file, physical.bytes + Ticket::BYTES);
    block.map(Some).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOMEM) => CuResult::OUT_OF_MEMORY,
        _ => CuResult::OPERATING_SYSTEM,
    })
}

#[cfg(test)]
mod tests {
    use super::{MOST_MAPPINGS, few, joined};

    #[test]
    fn close_parts_become_one_and_none_is_lost() {
        let parts = [(0, 10), (12, 3), (100, 1), (101, 5)];
        assert_eq!(joined(&parts, 0), [(0, 10), (12, 3), (100, 1), (101, 5)]);
        assert_eq!(joined(&parts, 1), [(0, 10), (12, 3), (100, 6)]);
        assert_eq!(joined(&parts, 3), [(0, 15), (100, 6)]);
        assert_eq!(joined(&parts, 1000), [(0, 106)]);
        let many: Vec<(u64, u64)> = (0..5000_u64).map(|part| (part << 23, 4096)).collect();
        let few = few(&many);
        assert!(few.len() <= MOST_MAPPINGS);
        let covers = |&(start, bytes): &(u64, u64)| {
            let holds = |(first, length): &(u64, u64)| *first <= start && start + bytes <= first + length;
            few.iter().any(holds)
        };
        assert!(many.iter().all(covers));
    }
}
