// SPDX-License-Identifier: Apache-2.0
//! The model of the driver, and the records under test beside it.

use std::alloc::Layout;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use partage_records::Pages;
use partage_records::physical::{Physicals, Step, Unmapped};

thread_local! {
    /// Pages that may still be had.
    pub static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

pub struct HeapPages;

impl Pages for HeapPages {
    fn map(bytes: usize) -> Option<*mut u8> {
        let left = LEFT.get().checked_sub(1)?;
        LEFT.set(left);
        let layout = Layout::from_size_align(bytes, 4096).ok()?;
        // SAFETY: not empty.
        let memory = unsafe { std::alloc::alloc_zeroed(layout) };
        (!memory.is_null()).then_some(memory)
    }
    unsafe fn unmap(memory: *mut u8, bytes: usize) {
        let layout = Layout::from_size_align(bytes, 4096).expect("as in `map`");
        // SAFETY: the caller's contract.
        unsafe { std::alloc::dealloc(memory, layout) };
    }
}

/// Length of every memory and mapping.
pub const UNIT: u64 = 1 << 21;
pub const BASE: u64 = 0x7f00_0000_0000;
pub const ADDRESSES: u64 = 3;

/// What the driver holds. Numbers of handles are given out again as soon as they are free, like addresses.
#[derive(Clone, Default)]
pub struct Driver {
    pub next: u64,
    /// Handle to memory and holds.
    pub handles: BTreeMap<u64, (u64, u64)>,
    /// Address to memory.
    pub mappings: BTreeMap<u64, u64>,
}

impl Driver {
    pub fn free_handle(&self) -> u64 {
        (1..)
            .find(|handle| !self.handles.contains_key(handle))
            .expect("endless")
    }
    pub fn create(&mut self) -> (u64, u64) {
        let handle = self.free_handle();
        self.next += 1;
        self.handles.insert(handle, (self.next, 1));
        (handle, self.next)
    }
    pub fn release(&mut self, handle: u64) -> bool {
        let Some((memory, holds)) = self.handles.remove(&handle) else {
            return false;
        };
        if holds > 1 {
            self.handles.insert(handle, (memory, holds - 1));
        }
        true
    }
    pub fn retain(&mut self, address: u64) -> Option<u64> {
        let memory = *self.mappings.get(&address)?;
        let known = self
            .handles
            .iter()
            .find(|(_, held)| held.0 == memory)
            .map(|(handle, _)| *handle);
        let handle = known.unwrap_or_else(|| self.free_handle());
        self.handles.entry(handle).or_insert((memory, 0)).1 += 1;
        Some(handle)
    }
    pub fn map(&mut self, address: u64, handle: u64) -> bool {
        let Some((memory, _)) = self.handles.get(&handle) else {
            return false;
        };
        if self.mappings.contains_key(&address) {
            return false;
        }
        self.mappings.insert(address, *memory);
        true
    }
    pub fn unmap(&mut self, address: u64, bytes: u64) -> bool {
        let places = (address..address + bytes).step_by(UNIT as usize);
        if bytes == 0 || !places.clone().all(|place| self.mappings.contains_key(&place)) {
            return false;
        }
        places.for_each(|place| {
            self.mappings.remove(&place);
        });
        true
    }
    pub fn alive(&self) -> BTreeSet<u64> {
        let held = self.handles.values().map(|held| held.0);
        held.chain(self.mappings.values().copied()).collect()
    }
}

pub fn address(index: u64) -> u64 {
    BASE + index % ADDRESSES * UNIT
}

/// The records under test, and what is charged by what they answered. A cost is the memory's number.
#[derive(Default)]
pub struct Books {
    pub physicals: Physicals<u64, HeapPages>,
    pub charged: BTreeSet<u64>,
}

impl Books {
    pub fn refund(&mut self, gone: Option<u64>) {
        if let Some(memory) = gone {
            assert!(self.charged.remove(&memory), "memory {memory} was refunded twice");
        }
    }
    pub fn end_unmap(&mut self, mut unmapped: Unmapped, is_unmapped: bool) {
        loop {
            match self.physicals.end_unmap(&mut unmapped, is_unmapped) {
                Step::More => {}
                Step::Gone(memory) => self.refund(Some(memory)),
                Step::Done => return,
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Create,
    Release(u64),
    Retain(u64),
    Map(u64, u64),
    Unmap(u64, u64),
}

/// A whole call of one thread. `is_refused`: the driver fails although it could.
pub fn call(driver: &mut Driver, books: &mut Books, call: Call, is_refused: bool) {
    match call {
        Call::Create => {
            assert!(books.physicals.promise());
            if is_refused {
                books.physicals.break_promise();
                return;
            }
            let (handle, memory) = driver.create();
            books.charged.insert(memory);
            let gone = books.physicals.created(handle, memory);
            books.refund(gone);
        }
        Call::Release(handle) => {
            let begun = books.physicals.begin_release(handle);
            let is_released = !is_refused && driver.release(handle);
            if let Some(released) = begun {
                let gone = books.physicals.end_release(released, is_released);
                books.refund(gone);
            }
        }
        Call::Retain(index) => {
            if let Some(handle) = driver.retain(address(index)).filter(|_| !is_refused) {
                // Any address of the mapping will do.
                books.physicals.retained(handle, address(index) + UNIT / 2);
            } else if is_refused {
                undo_retain(driver, address(index));
            }
        }
        Call::Map(index, handle) => {
            let mapped = books.physicals.begin_map(handle);
            let is_mapped = !is_refused && driver.map(address(index), handle);
            let gone = books.physicals.end_map(mapped, address(index), UNIT, is_mapped);
            books.refund(gone);
        }
        Call::Unmap(index, count) => {
            let (at, bytes) = (address(index), count * UNIT);
            let unmapped = books.physicals.begin_unmap(at, bytes);
            let is_unmapped = !is_refused && driver.unmap(at, bytes);
            books.end_unmap(unmapped, is_unmapped);
        }
    }
}

/// The model retained before it was asked whether it may.
pub fn undo_retain(driver: &mut Driver, address: u64) {
    if let Some(memory) = driver.mappings.get(&address).copied()
        && let Some(handle) = driver
            .handles
            .iter()
            .find(|held| held.1.0 == memory)
            .map(|held| *held.0)
    {
        assert!(driver.release(handle));
    }
}
