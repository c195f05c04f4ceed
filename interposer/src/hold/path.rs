// SPDX-License-Identifier: Apache-2.0
//! Where the fast path leads: what a launch needs to know of its process while nothing is amiss.

use core::arch::asm;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use partage_protocol::gate::{self, ThreadSlot};
use partage_protocol::page::GrantLine;

use super::thread_tag;

/// What a launch needs to know of its process while nothing is amiss. All-zero memory: there is no such path (yet).
#[repr(C, align(64))]
pub struct FastPath {
    /// [`thread_tag::key`] for this process; 0 while there is no fast path. Written last: once it has been seen, the
    /// others may be used, even when the path is forgotten meanwhile, because what they lead to stays mapped.
    pub key: AtomicU64,
    /// The end of the slots of this process's threads.
    slots_end: AtomicPtr<ThreadSlot>,
    /// The broker's line of the only device that the program sees.
    pub line: AtomicPtr<GrantLine>,
    /// What a thread with a slot writes there: the name of that device.
    name: AtomicU32,
    /// As `key`, for calls that look at the hold and at no gate: there however many devices the program sees.
    pub hold_key: AtomicU64,
    /// The hold word in the broker's page. Written before `hold_key`.
    hold: AtomicPtr<AtomicU32>,
}

const _: () = assert!(size_of::<FastPath>() == 64);

impl FastPath {
    /// Is there one?
    pub fn is_known(&self) -> bool {
        self.key.load(Ordering::Relaxed) != 0
    }

    /// From now on launches may take it. Called again with the same only.
    pub fn set(&self, generation: u32, slots: &[ThreadSlot; gate::THREADS], line: &GrantLine, device: usize) {
        self.slots_end
            .store(slots.as_ptr_range().end.cast_mut(), Ordering::Relaxed);
        self.line.store(core::ptr::from_ref(line).cast_mut(), Ordering::Relaxed);
        self.name.store(gate::name(device as u32), Ordering::Relaxed);
        self.key.store(thread_tag::key(generation), Ordering::Release);
    }

    /// From now on calls may take it to the hold. Called again with the same only.
    pub fn set_hold(&self, generation: u32, slots: &[ThreadSlot; gate::THREADS], hold: &AtomicU32) {
        self.slots_end
            .store(slots.as_ptr_range().end.cast_mut(), Ordering::Relaxed);
        self.hold.store(core::ptr::from_ref(hold).cast_mut(), Ordering::Relaxed);
        self.hold_key.store(thread_tag::key(generation), Ordering::Release);
    }

    /// The hold word. Precondition: `hold_key` was seen, with the thread's slot under it.
    #[inline(always)]
    pub fn hold(&self) -> &'static AtomicU32 {
        // SAFETY: written before the key by which the caller has found its slot; the broker's page stays mapped.
        unsafe { &*self.hold.load(Ordering::Relaxed) }
    }

    /// Launches take the slow path again.
    pub fn forget(&self) {
        self.key.store(0, Ordering::Release);
    }

    /// The slot that is so far from the end of all, as [`thread_tag::below_end`] said for this path.
    #[inline(always)]
    pub fn slot(&self, offset: isize) -> &'static ThreadSlot {
        // SAFETY: an offset exists only where there is a fast path and the thread has a slot: so far below the end of
        // the slots of the client's file, which stays mapped.
        unsafe { &*in_one_register(self.slots_end.load(Ordering::Relaxed).byte_offset(offset)) }
    }

    /// Passes the gate with that slot if nothing is amiss.
    #[inline(always)]
    pub fn is_open_for(&self, slot: &ThreadSlot) -> bool {
        // SAFETY: whoever has a slot from `slot` has seen a fast path, so this is a line of the broker's page, which
        // stays mapped.
        let line = unsafe { &*self.line.load(Ordering::Relaxed) };
        let name = self.name.load(Ordering::Relaxed);
        let has_passed = gate::enter_shortly(&slot.word, &line.gate, &line.gate_flags, name);
        if has_passed {
            let launches = slot.launches.load(Ordering::Relaxed);
            slot.launches.store(launches.wrapping_add(1), Ordering::Relaxed);
        }
        has_passed
    }

    /// Makes it the one that launches look at. It lies in memory that the kernel wipes when the process forks.
    pub fn publish(&'static self) {
        PATH.store(core::ptr::from_ref(self).cast_mut(), Ordering::Release);
    }
}

static NO_PATH: FastPath = FastPath {
    key: AtomicU64::new(0),
    slots_end: AtomicPtr::new(core::ptr::null_mut()),
    line: AtomicPtr::new(core::ptr::null_mut()),
    name: AtomicU32::new(0),
    hold_key: AtomicU64::new(0),
    hold: AtomicPtr::new(core::ptr::null_mut()),
};
/// The fast path of this process; never null, so that nobody has to ask.
static PATH: AtomicPtr<FastPath> = AtomicPtr::new((&raw const NO_PATH).cast_mut());

/// The fast path of this process, known or not.
#[inline(always)]
pub fn fast_path() -> &'static FastPath {
    // SAFETY: `NO_PATH`, or what `publish` stored, which lives as long as the process.
    unsafe { &*PATH.load(Ordering::Acquire) }
}

/// Has the compiler keep one address, and not the two parts of it in a register each.
#[inline(always)]
fn in_one_register<T>(mut address: *mut T) -> *mut T {
    // SAFETY: does nothing.
    unsafe { asm!("/* {} */", inout(reg) address, options(nostack, pure, readonly, preserves_flags)) };
    address
}
