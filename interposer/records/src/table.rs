// SPDX-License-Identifier: Apache-2.0
//! A table from numbers to plain records, in memory of its own.
//!
//! Open addressing: linear probing, backward-shift deletion, two thirds full at most. A place can be *promised* before
//! a driver is called, so that what the driver gave can always be recorded afterwards.

use core::marker::PhantomData;

/// A record. Its key is its place in the table; 0 is the key of a free place.
pub trait Entry: Copy {
    /// A free place. All bits zero.
    const NONE: Self;
    /// The number it stands under.
    fn key(&self) -> u64;
}

/// Where tables get their memory.
pub trait Pages {
    /// Zeroed memory of so many bytes, aligned to a page. `None`: there is none.
    fn map(bytes: usize) -> Option<*mut u8>;
    /// Gives it back.
    ///
    /// # Safety
    /// `memory` came from [`Pages::map`] with the same length, and nothing uses it.
    unsafe fn unmap(memory: *mut u8, bytes: usize);
}

/// The table. All-zero memory is an empty one.
pub struct Table<T: Entry, P: Pages> {
    places: *mut T,
    /// Places, a power of two; 0 while there is no table.
    capacity: usize,
    /// Places taken.
    count: usize,
    /// Places promised to what is in the driver.
    promised: usize,
    pages: PhantomData<P>,
}

const FIRST_CAPACITY: usize = 512;

impl<T: Entry, P: Pages> Default for Table<T, P> {
    fn default() -> Self {
        Self {
            places: core::ptr::null_mut(),
            capacity: 0,
            count: 0,
            promised: 0,
            pages: PhantomData,
        }
    }
}

impl<T: Entry, P: Pages> Table<T, P> {
    /// Records in the table.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Promises a place. `false`: the host has no memory.
    pub fn promise(&mut self) -> bool {
        let wanted = self.count.saturating_add(self.promised).saturating_add(1);
        // Two thirds full at most: probes stay short.
        if wanted.saturating_mul(3) > self.capacity.saturating_mul(2) && !self.grow() {
            return false;
        }
        self.promised = self.promised.saturating_add(1);
        true
    }

    /// Takes a promise back.
    pub fn break_promise(&mut self) {
        self.promised = self.promised.saturating_sub(1);
    }

    /// Records under an earlier promise. Answers what stood under the same key.
    pub fn insert(&mut self, entry: T) -> Option<T> {
        self.break_promise();
        self.put(entry)
    }

    /// Records without an earlier promise. `false`: the host has no memory.
    pub fn add(&mut self, entry: T) -> bool {
        let is_promised = self.promise();
        if is_promised {
            let _ = self.insert(entry);
        }
        is_promised
    }

    /// The record under a key.
    pub fn get(&self, key: u64) -> Option<T> {
        self.at(self.find(key)?)
    }

    /// Changes the record under a key, which stays its key. `false`: there is none.
    pub fn change(&mut self, key: u64, change: impl FnOnce(&mut T)) -> bool {
        let Some((index, mut entry)) = self.find(key).and_then(|index| Some((index, self.at(index)?))) else {
            return false;
        };
        change(&mut entry);
        self.set(index, entry);
        true
    }

    /// Removes and answers the record under a key.
    pub fn take(&mut self, key: u64) -> Option<T> {
        let index = self.find(key)?;
        let found = self.at(index)?;
        self.remove(index);
        Some(found)
    }

    /// The first record that `is_meant` names, in no order. Looks at every place: for what happens rarely.
    pub fn search(&self, mut is_meant: impl FnMut(&T) -> bool) -> Option<T> {
        (0..self.capacity)
            .filter_map(|index| self.at(index))
            .find(|entry| is_meant(entry))
    }

    /// Lets every record be changed, its key excepted.
    pub fn change_all(&mut self, mut change: impl FnMut(&mut T)) {
        for index in 0..self.capacity {
            if let Some(mut entry) = self.at(index) {
                change(&mut entry);
                self.set(index, entry);
            }
        }
    }

    /// Removes every record that `is_gone` names, handing each to `dispose`.
    pub fn retire(&mut self, mut is_gone: impl FnMut(&T) -> bool, mut dispose: impl FnMut(T)) {
        let mut index = 0;
        while index < self.capacity {
            match self.at(index) {
                Some(entry) if is_gone(&entry) => {
                    self.remove(index);
                    dispose(entry);
                    // The place may now hold one that stood behind: look at it again.
                }
                _ => index += 1,
            }
        }
    }

    fn at(&self, index: usize) -> Option<T> {
        if index >= self.capacity {
            return None;
        }
        // SAFETY: within the table.
        let entry = unsafe { self.places.add(index).read() };
        (entry.key() != 0).then_some(entry)
    }

    fn set(&mut self, index: usize, entry: T) {
        if index < self.capacity {
            // SAFETY: within the table.
            unsafe { self.places.add(index).write(entry) };
        }
    }

    fn home(&self, key: u64) -> usize {
        // Fibonacci hashing: the low bits of device addresses are all zero.
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize & self.capacity.wrapping_sub(1)
    }

    fn next(&self, index: usize) -> usize {
        index.wrapping_add(1) & self.capacity.wrapping_sub(1)
    }

    fn find(&self, key: u64) -> Option<usize> {
        if key == 0 || self.capacity == 0 {
            return None;
        }
        let mut index = self.home(key);
        while let Some(entry) = self.at(index) {
            if entry.key() == key {
                return Some(index);
            }
            index = self.next(index);
        }
        None
    }

    fn put(&mut self, entry: T) -> Option<T> {
        if self.capacity == 0 || entry.key() == 0 {
            return None;
        }
        let mut index = self.home(entry.key());
        while let Some(there) = self.at(index) {
            if there.key() == entry.key() {
                self.set(index, entry);
                return Some(there);
            }
            index = self.next(index);
        }
        self.set(index, entry);
        self.count = self.count.saturating_add(1);
        None
    }

    fn remove(&mut self, index: usize) {
        let mut hole = index;
        let mut probe = index;
        loop {
            probe = self.next(probe);
            let Some(candidate) = self.at(probe) else { break };
            let home = self.home(candidate.key());
            // The candidate may move to the hole unless its home lies (cyclically) after the hole.
            let distance = |from: usize, to: usize| to.wrapping_sub(from) & self.capacity.wrapping_sub(1);
            if distance(home, probe) >= distance(hole, probe) {
                self.set(hole, candidate);
                hole = probe;
            }
        }
        self.set(hole, T::NONE);
        self.count = self.count.saturating_sub(1);
    }

    #[cold]
    fn grow(&mut self) -> bool {
        let capacity = if self.capacity == 0 {
            FIRST_CAPACITY
        } else {
            self.capacity.saturating_mul(2)
        };
        let Some(length) = capacity.checked_mul(size_of::<T>()) else {
            return false;
        };
        let Some(memory) = P::map(length) else {
            return false;
        };
        let former = Self {
            places: self.places,
            capacity: self.capacity,
            ..Self::default()
        };
        self.places = memory.cast();
        self.capacity = capacity;
        self.count = 0;
        for index in 0..former.capacity {
            if let Some(entry) = former.at(index) {
                let _ = self.put(entry);
            }
        }
        // The former table's memory goes back with it.
        drop(former);
        true
    }
}

impl<T: Entry, P: Pages> Drop for Table<T, P> {
    fn drop(&mut self) {
        if self.capacity > 0 {
            // SAFETY: the mapping made in `grow`, with its length; nothing points there but this table.
            unsafe { P::unmap(self.places.cast(), self.capacity.saturating_mul(size_of::<T>())) };
        }
    }
}
