// SPDX-License-Identifier: Apache-2.0
//! Which calls come from the program, and which from inside the driver.
//!
//! A driver whose own calls bind to our exports would otherwise have them charged twice. Each thread keeps eight bytes:
//! the stack address of the outermost hook it is in, 0 outside. The address rather than a flag, because a program may
//! leave a driver call by `longjmp`: a later hook that is entered *above* the recorded frame proves that frame gone.
//!
//! The second word is [`time`](crate::time)'s: which slot of the shared pages the thread has.
//!
//! Both words are initial-exec thread-local storage written in assembly: `thread_local!` in a shared object calls
//! `__tls_get_addr`, which costs more and allocates on a thread's first use.

use core::arch::{asm, global_asm};

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
global_asm!(
    ".pushsection .tbss.partage_outermost,\"awT\",%nobits",
    ".balign 8",
    ".globl partage_outermost",
    ".hidden partage_outermost",
    ".type partage_outermost, %object",
    ".size partage_outermost, 8",
    "partage_outermost:",
    ".zero 8",
    ".globl partage_time",
    ".hidden partage_time",
    ".type partage_time, %object",
    ".size partage_time, 8",
    "partage_time:",
    ".zero 8",
    ".popsection",
);

/// Proof that this thread is in the outermost hook; dropping it says that the hook ends.
pub struct Outermost(*mut usize);

/// Where a hook stands, for [`enter_at`].
#[inline(always)]
pub fn here() -> usize {
    stack_pointer()
}

/// [`enter`] for a hook whose frame is its caller's; [`leave`] says that it ends. `false`: inside another hook.
pub fn enter_at(here: usize) -> bool {
    let word = word();
    // SAFETY: the word belongs to this thread.
    let is_outermost = unsafe { word.read() } <= here;
    if is_outermost {
        // SAFETY: as above.
        unsafe { word.write(here) };
    }
    is_outermost
}

/// The hook that [`enter_at`] said is the outermost ends.
pub fn leave() {
    // SAFETY: the word belongs to this thread.
    unsafe { word().write(0) };
}

impl Drop for Outermost {
    fn drop(&mut self) {
        // SAFETY: the word belongs to this thread, and the guard never leaves it (it is not Send).
        unsafe { self.0.write(0) }
    }
}

/// Says that a hook begins. `None` when this call comes from inside another hook: it must go straight to the driver.
#[inline(always)]
pub fn enter() -> Option<Outermost> {
    let word = word();
    let here = stack_pointer();
    // SAFETY: the word belongs to this thread.
    let outer = unsafe { word.read() };
    if outer > here {
        return None;
    }
    // SAFETY: as above.
    unsafe { word.write(here) };
    Some(Outermost(word))
}

/// Is this thread inside a hook?
#[inline]
pub fn is_inside() -> bool {
    // SAFETY: the word belongs to this thread.
    unsafe { word().read() > stack_pointer() }
}

/// The address of a word in this thread.
#[cfg(target_arch = "x86_64")]
macro_rules! address_of {
    ($symbol:literal) => {{
        let word: *mut usize;
        // SAFETY: reads the offset that the dynamic linker stored and this thread's base; touches no stack.
        unsafe {
            asm!(concat!("mov {0}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"), "add {0}, qword ptr fs:[0]",
                out(reg) word, options(nostack, pure, readonly));
        }
        word
    }};
}

/// The address of a word in this thread.
#[cfg(target_arch = "aarch64")]
macro_rules! address_of {
    ($symbol:literal) => {{
        let word: *mut usize;
        // SAFETY: reads the offset that the dynamic linker stored and this thread's base; touches no stack.
        unsafe {
            asm!(concat!("adrp {0}, :gottprel:", $symbol), concat!("ldr {0}, [{0}, :gottprel_lo12:", $symbol, "]"),
                "mrs {1}, tpidr_el0", "add {0}, {0}, {1}", out(reg) word, out(reg) _,
                options(nostack, pure, readonly));
        }
        word
    }};
}

#[inline(always)]
fn word() -> *mut usize {
    address_of!("partage_outermost")
}

/// What [`set_time_word`] last wrote in this thread; 0 at first. A forked child inherits it.
#[inline(always)]
pub fn time_word() -> u64 {
    // SAFETY: the word belongs to this thread.
    unsafe { time_place().read() }
}

/// Changes this thread's word.
pub fn set_time_word(word: u64) {
    // SAFETY: the word belongs to this thread.
    unsafe { time_place().write(word) }
}

/// A number that no other thread has now: where its word is. Even, and greater than any small number.
pub fn thread_key() -> u64 {
    time_place() as u64
}

#[inline(always)]
fn time_place() -> *mut u64 {
    address_of!("partage_time").cast()
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn stack_pointer() -> usize {
    let here: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) here, options(nostack, nomem, preserves_flags)) };
    here
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn stack_pointer() -> usize {
    let here: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, sp", out(reg) here, options(nostack, nomem, preserves_flags)) };
    here
}
