// SPDX-License-Identifier: Apache-2.0
//! The table of live allocations, and how an address is found in it.
//!
//! Lock order in this module: leaving, then table, then ranges; none is held across anything that waits.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use partage_abi::types::CuResult;
use partage_abi::values::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS;
use partage_machine::{Bounds, Device};
use partage_ptx::Region;

use super::allocation::{Allocation, AllocationKind, find_planned, reach_of};
use super::lock::lock;
use super::view::{Piece, View};
use super::windows::Windows;
use crate::context::Context;
use crate::state::{Answer, driver};

/// All memory of the process.
#[derive(Debug)]
pub struct Memory {
    /// Where it lies.
    pub(super) windows: &'static Windows,
    bounds: Bounds,
    /// Taken while memory of other processes is opened or closed.
    pub(super) opening_exports: Mutex<()>,
    table: RwLock<BTreeMap<u64, Arc<Allocation>>>,
    /// No longer the program's, but still reached by what it submitted before it freed them in a stream. New
    /// allocations may lie in the same addresses.
    leaving: Mutex<Vec<Arc<Allocation>>>,
    /// Changes with the table.
    version: AtomicU64,
    /// The pieces of the table, and of which version.
    pieces: Mutex<(u64, Arc<Vec<Piece>>)>,
    next_id: AtomicU64,
}

// SAFETY: the pointers inside lead to mappings of the process; all changes are under locks.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Reserves addresses for the memory of these devices, in which kernels are kept within such bounds.
    fn reserve(devices: &[Device], bounds: Bounds) -> Answer<Self> {
        Ok(Self {
            windows: Windows::reserve(devices)?,
            bounds,
            opening_exports: Mutex::default(),
            table: RwLock::default(),
            leaving: Mutex::default(),
            version: AtomicU64::new(1),
            pieces: Mutex::default(),
            next_id: AtomicU64::new(1),
        })
    }

    // ---- the table --------------------------------------------------------------------------------------------

    /// Numbers an allocation and enters it.
    pub(super) fn enter(&self, mut made: Allocation) -> Arc<Allocation> {
        made.id = self.next_id();
        let made = Arc::new(made);
        self.change(|table| table.insert(made.address, made.clone()));
        made
    }

    /// A number for an allocation.
    pub(super) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// As [`enter`](Self::enter), unless another allocation lies in the same addresses: then false.
    pub(super) fn enter_if_free(&self, mut made: Allocation) -> bool {
        made.id = self.next_id();
        self.change(|table| {
            let last = table.range(..made.end()).next_back();
            if last.is_some_and(|(_, last)| last.end() > made.address) {
                return false;
            }
            table.insert(made.address, Arc::new(made));
            true
        })
    }

    /// Takes the allocation that starts at `address` out of the table, if `is_it` says so.
    pub(super) fn take(&self, address: u64, is_it: impl FnOnce(&Allocation) -> bool) -> Option<Arc<Allocation>> {
        self.change(|table| {
            if is_it(table.get(&address)?) {
                table.remove(&address)
            } else {
                None
            }
        })
    }

    /// Takes all that `is_it` chooses out of the table.
    pub(super) fn take_all(&self, is_it: impl Fn(&Allocation) -> bool) -> Vec<Arc<Allocation>> {
        let mut gone = Vec::new();
        self.change(|table| {
            table.retain(|_, allocation| {
                let goes = is_it(allocation);
                if goes {
                    gone.push(allocation.clone());
                }
                !goes
            });
        });
        gone
    }

    /// Works on the table and lets snapshots of it expire.
    pub(super) fn change<T>(&self, work: impl FnOnce(&mut BTreeMap<u64, Arc<Allocation>>) -> T) -> T {
        let mut table: RwLockWriteGuard<'_, _> = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let answer = work(&mut table);
        self.version.fetch_add(1, Ordering::Release);
        answer
    }

    /// The allocations that lie in `address..end`, in order.
    pub(super) fn between(&self, address: u64, end: u64) -> Vec<Arc<Allocation>> {
        let table = self.table();
        let before = table
            .range(..address)
            .next_back()
            .filter(|(_, last)| last.end() > address);
        before
            .into_iter()
            .chain(table.range(address..end))
            .map(|(_, found)| found.clone())
            .collect()
    }

    /// The first answer that `look` has to an allocation.
    pub(super) fn look_for<T>(&self, look: impl FnMut(&Allocation) -> Option<T>) -> Option<T> {
        self.table().values().map(|found| &**found).find_map(look)
    }

    // ---- finding ----------------------------------------------------------------------------------------------

    /// The allocation that an address is in: a live one, else one that is leaving or that a graph has planned.
    pub fn find(&self, address: u64) -> Option<Arc<Allocation>> {
        self.find_live(address)
            .or_else(|| self.find_leaving(address, 1))
            .or_else(|| find_planned(self.windows, address, 1))
    }

    /// Whether an allocation of a graph holds a range of addresses. Work on it may be submitted before it is there.
    pub fn is_planned(&self, address: u64, bytes: u64) -> bool {
        find_planned(self.windows, address, bytes).is_some()
    }

    /// The last allocation that begins at an address or before it, and the first behind.
    pub(super) fn neighbours(&self, address: u64) -> (Option<Arc<Allocation>>, Option<Arc<Allocation>>) {
        let table = self.table();
        let before = table.range(..=address).next_back().map(|(_, found)| found.clone());
        let after = table.range(address.saturating_add(1)..).next();
        (before, after.map(|(_, found)| found.clone()))
    }

    pub(super) fn find_live(&self, address: u64) -> Option<Arc<Allocation>> {
        let table = self.table();
        let (_, last) = table.range(..=address).next_back()?;
        (address < last.end()).then(|| last.clone())
    }

    fn find_leaving(&self, address: u64, bytes: u64) -> Option<Arc<Allocation>> {
        let end = address.checked_add(bytes)?;
        let holds = |found: &Arc<Allocation>| found.address <= address && end <= found.end();
        self.leaving().iter().find(|found| holds(found)).cloned()
    }

    /// Where the driver reaches `bytes` bytes at an address of device, managed or host memory of ours; INVALID_VALUE
    /// unless one allocation holds all of them, or mappings that follow each other do.
    pub fn resolve(&self, address: u64, bytes: u64) -> Answer<*mut u8> {
        self.resolve_live(address, bytes).or_else(|code| {
            let found = self.find_leaving(address, bytes).ok_or(code)?;
            Ok(found.reach(address))
        })
    }

    fn resolve_live(&self, address: u64, bytes: u64) -> Answer<*mut u8> {
        let end = address.checked_add(bytes).ok_or(CuResult::INVALID_VALUE)?;
        let table = self.table();
        let (_, first) = table.range(..=address).next_back().ok_or(CuResult::INVALID_VALUE)?;
        let mut reached = first.end();
        for (_, next) in table.range(address + 1..).take_while(|(start, _)| **start < end) {
            let is_joined = next.address == reached
                && matches!(
                    (&first.kind, &next.kind),
                    (AllocationKind::Mapped(_), AllocationKind::Mapped(_))
                );
            if !is_joined {
                break;
            }
            reached = next.end();
        }
        if address >= first.end() && bytes > 0 || end > reached {
            return Err(CuResult::INVALID_VALUE);
        }
        Ok(first.reach(address))
    }

    /// As [`resolve`](Self::resolve), but memory that the driver does not know is taken to be the program's own and
    /// reached where it is. INVALID_VALUE for an address in our windows that is not allocated.
    pub fn resolve_any(&self, address: u64, bytes: u64) -> Answer<*mut u8> {
        let is_known = self
            .find_live(address)
            .is_some_and(|found| found.end() - address >= bytes);
        if is_known || self.windows.space.offset(address).is_some() {
            return self.resolve(address, bytes);
        }
        if address == 0 {
            Err(CuResult::INVALID_VALUE)
        } else {
            Ok(address as *mut u8)
        }
    }

    /// What kernels of a context may reach now.
    pub fn view(&self, context: &Context) -> View {
        let is_pageable = driver().is_ok_and(|driver| {
            let device = driver.at(context.device);
            device.attribute(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS) == Some(1)
        });
        let pageable = is_pageable.then_some(&self.windows.space);
        let version = self.version.load(Ordering::Acquire);
        let mut pieces = lock(&self.pieces);
        if pieces.0 != version {
            *pieces = (version, Arc::new(self.pieces()));
        }
        View::new(pieces.1.clone(), reach_of(context), pageable)
    }

    fn pieces(&self) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut was_mapped = false;
        let leaving = self.leaving().clone();
        let mut all: Vec<Arc<Allocation>> = self.table().values().cloned().collect();
        if !leaving.is_empty() {
            all.extend(leaving);
            all.sort_by_key(|allocation| allocation.address);
        }
        for allocation in all {
            let owner = allocation.reach.load(Ordering::Acquire);
            let is_mapped = matches!(allocation.kind, AllocationKind::Mapped(_));
            // Mappings that follow each other are one piece to a kernel; separate allocations never are.
            if let Some(last) = pieces.last_mut()
                && is_mapped
                && was_mapped
                && last.owner == owner
                && last.region.address + last.region.bytes == allocation.address
            {
                last.region.bytes += allocation.bytes;
                continue;
            }
            was_mapped = is_mapped;
            // What is leaving may overlap what came after it: one piece, for a kernel may belong to either.
            if let Some(last) = pieces.last_mut()
                && last.region.address + last.region.bytes > allocation.address
            {
                let end = allocation.end().max(last.region.address + last.region.bytes);
                last.region.bytes = end - last.region.address;
                last.owner |= owner;
                continue;
            }
            let host = allocation.alias as *mut u8;
            let is_rounded = self.bounds == Bounds::Granule && matches!(allocation.kind, AllocationKind::Device);
            let region = Region {
                address: allocation.address,
                // What it costs is its own: whole granules.
                bytes: if is_rounded { allocation.cost } else { allocation.bytes },
                host,
            };
            pieces.push(Piece { region, owner });
        }
        pieces
    }

    /// Lock before the table.
    pub(super) fn leaving(&self) -> MutexGuard<'_, Vec<Arc<Allocation>>> {
        lock(&self.leaving)
    }

    fn table(&self) -> RwLockReadGuard<'_, BTreeMap<u64, Arc<Allocation>>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }
}

static MEMORY: OnceLock<Memory> = OnceLock::new();

/// All memory that this process has from the driver.
pub fn memory() -> Answer<&'static Memory> {
    driver()?;
    MEMORY.get().ok_or(CuResult::NOT_INITIALIZED)
}

/// Reserves addresses for the memory of these devices, once for the process; see [`Memory::reserve`].
pub fn install(devices: &[Device], bounds: Bounds) -> Answer {
    if MEMORY.get().is_none() {
        // One thread initialises at a time.
        let _ = MEMORY.set(Memory::reserve(devices, bounds)?);
    }
    Ok(())
}
