// SPDX-License-Identifier: Apache-2.0
//! Memory that must not survive into a forked child: the kernel wipes it at the fork.
//!
//! Each room of the library that remembers something has its own, so none has to know what the others remember. All of
//! it is zero at first, and again in a child. A kernel without `MADV_WIPEONFORK` (before 4.14) makes us compare process
//! ids instead.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crate::guest::sys;

/// A value in such memory, made at the first look.
pub struct Wiped<T> {
    memory: AtomicPtr<Part<T>>,
    /// The same where the kernel wipes it; null elsewhere.
    at_hand: AtomicPtr<Part<T>>,
    is_wiped_by_kernel: AtomicBool,
}

#[repr(C)]
struct Part<T> {
    /// Whose memory this is.
    pid: AtomicU32,
    value: T,
}

impl<T: Sync> Wiped<T> {
    /// Nothing yet.
    ///
    /// # Safety
    /// All-zero memory is a value of `T`.
    pub const unsafe fn new() -> Self {
        Self {
            memory: AtomicPtr::new(core::ptr::null_mut()),
            at_hand: AtomicPtr::new(core::ptr::null_mut()),
            is_wiped_by_kernel: AtomicBool::new(false),
        }
    }

    /// This process's value; `None` when the machine has no page left for it.
    #[inline]
    pub fn get(&'static self) -> Option<&'static T> {
        // SAFETY: the pointer is null or the mapping made below, which is never unmapped.
        let part = unsafe { self.memory.load(Ordering::Acquire).as_ref() };
        match part {
            Some(part) if self.is_wiped_by_kernel.load(Ordering::Relaxed) => Some(&part.value),
            Some(part) => Some(self.check_process(part)),
            None => self.create(),
        }
    }

    /// [`get`](Self::get) for what is called often: answers nothing instead of making a value or looking whether this
    /// is a forked child.
    #[inline(always)]
    pub fn at_hand(&'static self) -> Option<&'static T> {
        // SAFETY: null or what `memory` holds.
        unsafe { self.at_hand.load(Ordering::Acquire).as_ref() }.map(|part| &part.value)
    }

    #[cold]
    #[inline(never)] // asked for everywhere
    fn create(&'static self) -> Option<&'static T> {
        let length = size_of::<Part<T>>().next_multiple_of(4096);
        let memory = sys::map_private(length)?;
        let wipes = sys::advise(memory, length, libc::MADV_WIPEONFORK);
        let part: *mut Part<T> = memory.cast();
        // SAFETY: zeroed memory of the right size and alignment (a mapping begins on a page).
        unsafe { &*part }.pid.store(sys::pid(), Ordering::Relaxed);
        let published = self
            .memory
            .compare_exchange(core::ptr::null_mut(), part, Ordering::AcqRel, Ordering::Acquire);
        match published {
            Ok(_) => {
                self.is_wiped_by_kernel.store(wipes, Ordering::Relaxed);
                if wipes {
                    self.at_hand.store(part, Ordering::Release);
                }
                // SAFETY: published for the rest of the process's life.
                Some(unsafe { &(*part).value })
            }
            Err(other) => {
                // SAFETY: our mapping was never published.
                unsafe { sys::unmap(memory, length) };
                // SAFETY: the other thread's mapping, published likewise.
                unsafe { other.as_ref() }.map(|part| &part.value)
            }
        }
    }

    #[cold]
    #[inline(never)] // as `create`
    fn check_process(&'static self, part: &'static Part<T>) -> &'static T {
        let pid = sys::pid();
        if part.pid.load(Ordering::Relaxed) != pid {
            // A forked child on an old kernel has one thread, the one that is here.
            // SAFETY: the mapping made in `create`; all-zero memory is a value, and nobody else uses it here.
            unsafe { core::ptr::write_bytes(self.memory.load(Ordering::Acquire), 0, 1) };
            part.pid.store(pid, Ordering::Relaxed);
        }
        &part.value
    }
}
