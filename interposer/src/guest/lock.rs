// SPDX-License-Identifier: Apache-2.0
//! A small lock for memory that a fork wipes, which is not lost with the frame that holds it.
//!
//! ```text
//!   63 ──── 32   31 ─── 1   0
//!   holder       turn       somebody waits
//! ```
//! Without a holder it is free, so a child whose parent was forked in the middle of a critical section starts with free
//! locks and with the empty data they guard.
//!
//! A program can take a frame of ours away: a signal's handler leaves it by a long jump, a thread is cancelled in it.
//! So a lock knows its holder, a thread, and where on the stack the frame stands that holds, and a waiting thread takes
//! it over once that frame is gone ([`Lock::is_abandoned`]). What the lock guards is then as the holder left it. The
//! *turn* tells one hold of a thread from the next, so that no lock is taken over that was given back and taken again
//! meanwhile.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::guard;
use crate::guest::wiped::Wiped;
use crate::guest::{mappings, sys};

const WAITED_FOR: u64 = 1;
const TURN: u64 = 2;
const HOLDER: u32 = 32;
/// The turn and the waiters.
const LOW: u64 = u32::MAX as u64;
/// Between two looks whether the holder's frame is still there, in nanoseconds.
const HOLDER_LOOK_NS: u64 = 100_000_000;
/// More time of a processor than a thread takes in any hold, which all but sleeps: a thread that took that much since a
/// waiter first looked, and still seems to hold, has left the frame.
const LONGEST_HOLD_NS: u64 = 2_000_000_000;

const _: () = assert!(cfg!(target_endian = "little"), "`low` is the first half of the word");

/// The lock; all-zero memory is a free one.
#[repr(C)]
pub struct Lock {
    word: AtomicU64,
    /// Where the frame stands that holds; 0 while nobody does, or nobody knows.
    frame: AtomicUsize,
}

impl Lock {
    /// A free lock.
    pub const fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            frame: AtomicUsize::new(0),
        }
    }

    /// Waits until the lock is ours. It belongs to the calling function's frame.
    #[inline(always)]
    pub fn hold(&self) -> Held<'_> {
        self.hold_in(guard::here(), LONGEST_HOLD_NS)
    }

    /// [`Self::hold`] where the holder may work as long as it likes: over the driver's own start.
    #[inline(always)]
    pub fn hold_after_work(&self) -> Held<'_> {
        self.hold_in(guard::here(), u64::MAX)
    }

    /// Takes the lock if it is free.
    #[inline(always)]
    pub fn try_hold(&self) -> Option<Held<'_>> {
        let word = self.word.load(Ordering::Relaxed);
        self.take(word, thread(), 0, guard::here())
    }

    fn hold_in(&self, frame: usize, longest_ns: u64) -> Held<'_> {
        let me = thread();
        let word = self.word.load(Ordering::Relaxed);
        match self.take(word, me, 0, frame) {
            Some(held) => held,
            None => self.wait(me, frame, longest_ns),
        }
    }

    /// Takes the lock as `word` found it, if that is free.
    fn take(&self, word: u64, me: u32, waited_for: u64, frame: usize) -> Option<Held<'_>> {
        (word >> HOLDER == 0)
            .then(|| self.take_from(word, me, waited_for, frame))
            .flatten()
    }

    /// Takes the lock from the thread that `word` names.
    fn take_from(&self, word: u64, me: u32, waited_for: u64, frame: usize) -> Option<Held<'_>> {
        let turn = word.wrapping_add(TURN) & LOW & !WAITED_FOR;
        let mine = u64::from(me) << HOLDER | turn;
        self.word
            .compare_exchange(word, mine | waited_for, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        self.frame.store(frame, Ordering::Relaxed);
        Some(Held { lock: self, mine })
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, me: u32, frame: usize, longest_ns: u64) -> Held<'_> {
        // The hold that was seen at the last look, and its thread's time of a processor at the first look at it.
        let (mut seen, mut since_ns) = (0, 0);
        loop {
            let word = self.word.load(Ordering::Relaxed);
            let taken = if word >> HOLDER == 0 || word >> HOLDER == u64::from(me) && self.is_abandoned(word, me) {
                self.take_from(word, me, WAITED_FOR, frame)
            } else if word & WAITED_FOR == 0 {
                let waited_for = word | WAITED_FOR;
                let _ = self
                    .word
                    .compare_exchange(word, waited_for, Ordering::Relaxed, Ordering::Relaxed);
                None
            } else {
                sys::wait_on(self.low(), word as u32, HOLDER_LOOK_NS);
                let is_same = self.word.load(Ordering::Relaxed) == word;
                let time_ns = sys::thread_time_ns((word >> HOLDER) as u32);
                if seen != word {
                    (seen, since_ns) = (word, time_ns);
                }
                let is_long = time_ns.saturating_sub(since_ns) > longest_ns;
                (is_same && (is_long || self.is_abandoned(word, me)))
                    .then(|| self.take_from(word, me, WAITED_FOR, frame))
                    .flatten()
            };
            if let Some(held) = taken {
                return held;
            }
        }
    }

    /// Is the frame gone that holds the lock as `word` says?
    ///
    /// - Its thread is gone.
    /// - Its thread is this one: inside of a hook nothing asks for a lock again ([`guard`]), so this is another hook,
    ///   which began where the former one stood or above. A handler on a stack of its own may stand above a frame that
    ///   lives.
    /// - Its thread sleeps in the kernel, and its stack ends above the frame. Another stack, which a handler of it may
    ///   stand on, says nothing.
    ///
    /// A thread that goes on elsewhere and runs is found by its time of a processor: see [`LONGEST_HOLD_NS`].
    fn is_abandoned(&self, word: u64, me: u32) -> bool {
        let holder = (word >> HOLDER) as u32;
        let frame = self.frame.load(Ordering::Relaxed);
        if holder == me {
            return sys::alternate_stack().is_none_or(|stack| stack.contains(&frame));
        }
        !sys::has_thread(holder)
            || frame != 0
                && sys::stack_pointer_of(holder).is_some_and(|end| end > frame && mappings::is_one_mapping(frame, end))
    }

    /// What waiters sleep on.
    fn low(&self) -> &AtomicU32 {
        // SAFETY: the first half of the word, which lives as long; the kernel alone reads it in this size.
        unsafe { &*self.word.as_ptr().cast::<AtomicU32>() }
    }
}

/// Proof that the lock is held; dropping it releases.
pub struct Held<'a> {
    lock: &'a Lock,
    /// The lock's word, but for waiters.
    mine: u64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let Self { lock, mine } = *self;
        let mut word = lock.word.load(Ordering::Relaxed);
        // Nobody takes it over while this frame is here; what is not ours is not released all the same.
        while word & !WAITED_FOR == mine {
            // Before the release: the next holder's would be wiped after it.
            lock.frame.store(0, Ordering::Relaxed);
            let free = mine & LOW;
            match lock
                .word
                .compare_exchange(word, free, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) if word & WAITED_FOR != 0 => return sys::wake_one(lock.low()),
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }
}

/// A value that only the holder of its lock can reach. All-zero memory is a free lock and a value that is all zero.
#[repr(C)]
pub struct Guarded<T> {
    lock: Lock,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time holds the lock, and nothing else leads to the value. No guarded value belongs to one
// thread: numbers, descriptors, mappings of our own.
unsafe impl<T> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    /// A value that nobody has.
    pub const fn new(value: T) -> Self {
        Self {
            lock: Lock::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until the value is ours. It belongs to the calling function's frame: see [`Lock::hold`].
    #[inline(always)]
    pub fn hold(&self) -> Guard<'_, T> {
        Guard {
            _held: self.lock.hold(),
            value: &self.value,
        }
    }

    /// The value, if nobody has it.
    #[inline(always)]
    pub fn try_hold(&self) -> Option<Guard<'_, T>> {
        let held = self.lock.try_hold()?;
        Some(Guard {
            _held: held,
            value: &self.value,
        })
    }
}

/// A value that only the holder of a lock can reach that lies elsewhere, because it guards more. All-zero memory is a
/// value that is all zero.
pub struct Behind<T>(UnsafeCell<T>);

// SAFETY: as for `Guarded`: the lock is always the same (`Behind::hold`).
unsafe impl<T> Sync for Behind<T> {}

impl<T> Behind<T> {
    /// Waits until the value is ours. It belongs to the calling function's frame: see [`Lock::hold`].
    ///
    /// # Safety
    /// Every call for this value names the same lock.
    #[inline(always)]
    pub unsafe fn hold<'a>(&'a self, lock: &'a Lock) -> Guard<'a, T> {
        Guard {
            _held: lock.hold(),
            value: &self.0,
        }
    }
}

/// The value of a [`Guarded`] or [`Behind`]; dropping it releases the lock.
pub struct Guard<'a, T> {
    _held: Held<'a>,
    value: &'a UnsafeCell<T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held as long as this lives; a frame that is gone uses its reference no more.
        unsafe { &*self.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.value.get() }
    }
}

/// Distinguishes this process from the one it was forked from; 0 until a thread needs to know.
// SAFETY: all-zero memory is a number.
static PROCESS: Wiped<AtomicU32> = unsafe { Wiped::new() };

/// The calling thread's id. Asked of the kernel once per thread, and again in a forked child, which inherits the note.
pub fn thread() -> u32 {
    let Some(number) = PROCESS.get().filter(|_| PROCESS.at_hand().is_some()) else {
        return sys::thread_id();
    };
    let mut process = number.load(Ordering::Relaxed);
    if process == 0 {
        let new = (sys::now_ns() >> 10) as u32 ^ sys::pid().rotate_left(16) | 1;
        process = number
            .compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed)
            .map_or_else(|other| other, |_| new);
    }
    let known = guard::thread_note();
    if (known >> 32) as u32 == process {
        return known as u32;
    }
    let id = sys::thread_id();
    guard::note_thread(u64::from(process) << 32 | u64::from(id));
    id
}
