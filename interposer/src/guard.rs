// SPDX-License-Identifier: Apache-2.0
//! Which calls come from the program, and which from inside the driver.
//!
//! A driver whose own calls bind to our exports would otherwise have them charged twice. Each thread keeps the stack
//! address of the outermost hook it is in. The address rather than a flag, because a program may leave a driver call by
//! `longjmp`: a later hook whose caller stands *above* the recorded frame proves that frame gone. So the record is the
//! stack pointer below a hook's own frame, and what it is compared with at a hook's entry is the stack pointer that its
//! caller left ([`at_entry`]): frames of hooks are not alike. A call from deeper than the call that was left looks like
//! the driver's own until the thread calls from above.
//!
//! Outside of hooks the same place holds what [`gate`](crate::gate) wants to find there, which says which slot of the
//! shared pages the thread has: one look tells a launch that it comes from the program, and where its slot is.
//!
//! All of it is one piece of initial-exec thread-local storage written in assembly: `thread_local!` in a shared object
//! calls `__tls_get_addr`, which costs more and allocates on a thread's first use.

use core::arch::{asm, global_asm};
use core::mem::offset_of;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
global_asm!(
    ".pushsection .tbss.partage_thread,\"awT\",%nobits",
    ".balign 16",
    ".globl partage_thread",
    ".hidden partage_thread",
    ".type partage_thread, %object",
    ".size partage_thread, 32",
    "partage_thread:",
    ".zero 32",
    ".popsection",
);

const _: () = assert!(size_of::<Thread>() <= 32);

/// What each thread keeps.
#[repr(C)]
struct Thread {
    /// In a hook the stack address of the outermost one, outside what `time` says. As signed numbers the one is
    /// positive, the other zero or so far below that no address brings their difference round.
    now: u64,
    /// See [`time_word`].
    time: u64,
    /// See [`Mine::slot`].
    slot: u64,
    /// See [`thread_note`].
    note: u64,
}

/// Where they are: what [`Mine::now_and`] adds.
pub const NOW: usize = offset_of!(Thread, now);
/// Where they are: [`time_word`].
pub const TIME: usize = offset_of!(Thread, time);
/// Where they are: [`Mine::set_slot`]'s.
pub const SLOT: usize = offset_of!(Thread, slot);
/// Where they are: [`thread_note`].
const NOTE: usize = offset_of!(Thread, note);

/// A short hook says that it stands so far below its entry, as deep as any other hook's frame: whatever hook its caller
/// calls after a jump out of it must not look as if it were called from inside. (The deepest has 136 bytes.)
#[cfg(target_arch = "x86_64")]
const DEEPEST: usize = 192;
/// The same where each hook begins with [`at_entry`], a short one that is not passed by too: the least that a frame has
/// which calls the driver. A call to here pushes nothing.
#[cfg(target_arch = "aarch64")]
const DEEPEST: usize = 16;

/// A short hook has pushed at most one register more than any other hook pushes before it notes where it stands.
#[cfg(target_arch = "x86_64")]
const PUSHED: i64 = 8;

/// A hook begins, at the stack pointer that its caller left: whatever hook said that it is the outermost is not if it
/// does not stand above that. Goes on at the address in `r10`, and leaves arguments alone.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub unsafe extern "C" fn at_entry() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov r11, qword ptr [rip + partage_thread@GOTTPOFF]",
        "cmp qword ptr fs:[r11 + {now}], rsp",
        "jg 2f",
        "mov rax, qword ptr fs:[r11 + {time}]",
        "mov qword ptr fs:[r11 + {now}], rax",
        "2:",
        "jmp r10",
        ".cfi_endproc",
        now = const NOW,
        time = const TIME,
    )
}

/// A hook begins, at the stack pointer that its caller left: whatever hook said that it is the outermost is not if it
/// stands below that. Where it stands just there, the driver has jumped to us out of a function of its own. Goes on at
/// the address in `x16`, and leaves arguments alone.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub unsafe extern "C" fn at_entry() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "adrp x9, :gottprel:partage_thread",
        "ldr x9, [x9, :gottprel_lo12:partage_thread]",
        "mrs x10, tpidr_el0",
        "add x9, x9, x10",
        "ldr x10, [x9, {now}]",
        "mov x11, sp",
        "cmp x10, x11",
        "b.ge 2f",
        "ldr x10, [x9, {time}]",
        "str x10, [x9, {now}]",
        "2:",
        "br x16",
        ".cfi_endproc",
        now = const NOW,
        time = const TIME,
    )
}

/// This thread's words, by what the processor needs to reach them.
#[derive(Clone, Copy)]
pub struct Mine(place::Place);

impl Mine {
    /// Is the thread inside a hook that stands above `here`?
    #[inline(always)]
    fn is_inside(self, here: usize) -> bool {
        place::load::<NOW>(self.0) as i64 > here as i64
    }

    /// The outermost hook is the one that stands `here`.
    #[inline(always)]
    fn set_inside_at(self, here: usize) {
        place::store::<NOW>(self.0, here as u64);
    }

    /// The outermost hook is this one.
    #[inline(always)]
    pub fn set_inside(self) {
        place::store_stack_pointer::<NOW, DEEPEST>(self.0);
    }

    /// Whatever hook said that it is the outermost is not if it does not stand above the caller of this one.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn set_outside_if_here(self) {
        if place::load_above_stack_pointer::<NOW, PUSHED>(self.0) <= 0 {
            self.set_outside();
        }
    }

    /// The outermost hook ends.
    #[inline(always)]
    pub fn set_outside(self) {
        place::store::<NOW>(self.0, place::load::<TIME>(self.0));
    }

    /// The sum of a number and, outside of hooks, the thread's [`time_word`].
    #[inline(always)]
    pub fn now_and(self, number: u64) -> u64 {
        place::add::<NOW>(self.0, number)
    }

    /// What [`set_slot`](Self::set_slot) left for the rest of a hook.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub fn slot(self) -> usize {
        place::load::<SLOT>(self.0) as usize
    }

    /// An address that the rest of a hook finds again, without a register that lives over the driver's call.
    #[inline(always)]
    pub fn set_slot(self, slot: usize) {
        place::store::<SLOT>(self.0, slot as u64);
    }
}

/// Where a hook stands, for [`enter_at`].
#[inline(always)]
pub fn here() -> usize {
    stack_pointer()
}

/// Says that a hook begins which stands `here`; [`leave`] says that it ends. `false`: this call comes from inside
/// another hook, and must go straight to the driver.
pub fn enter_at(here: usize) -> bool {
    let mine = mine();
    let is_outermost = !mine.is_inside(here);
    if is_outermost {
        mine.set_inside_at(here);
    }
    is_outermost
}

/// The hook that [`enter_at`] said is the outermost ends.
pub fn leave() {
    mine().set_outside();
}

/// Where the outermost hook stands that a thread's first word ([`NOW`]) names; `None` outside of hooks.
pub fn frame_in(now: u64) -> Option<usize> {
    (now as i64 > 0).then_some(now as usize)
}

/// Is this thread inside a hook?
#[inline]
pub fn is_inside() -> bool {
    mine().is_inside(stack_pointer())
}

/// The words are reached by their distance from this thread's base, which the processor adds by itself.
#[cfg(target_arch = "x86_64")]
mod place {
    use core::arch::asm;

    pub type Place = u64;

    #[inline(always)]
    pub fn find() -> Place {
        let place: Place;
        // SAFETY: reads the distance that the dynamic linker stored; touches no stack.
        unsafe {
            asm!("mov {}, qword ptr [rip + partage_thread@GOTTPOFF]", out(reg) place,
                options(nostack, pure, readonly, preserves_flags));
        }
        place
    }

    #[inline(always)]
    pub fn load<const AT: usize>(place: Place) -> u64 {
        let value: u64;
        // SAFETY: reads a word that belongs to this thread.
        unsafe {
            asm!("mov {}, qword ptr fs:[{} + {}]", out(reg) value, in(reg) place, const AT,
                options(nostack, pure, readonly, preserves_flags));
        }
        value
    }

    #[inline(always)]
    pub fn store<const AT: usize>(place: Place, value: u64) {
        // SAFETY: writes a word that belongs to this thread.
        unsafe {
            asm!("mov qword ptr fs:[{} + {}], {}", in(reg) place, const AT, in(reg) value,
                options(nostack, preserves_flags));
        }
    }

    /// The sum of a number and a word.
    #[inline(always)]
    pub fn add<const AT: usize>(place: Place, mut number: u64) -> u64 {
        // SAFETY: reads a word that belongs to this thread.
        unsafe {
            asm!("add {}, qword ptr fs:[{} + {}]", inout(reg) number, in(reg) place, const AT,
                options(nostack, pure, readonly));
        }
        number
    }

    /// How far a word is above what is `ABOVE` the stack pointer, as signed numbers. In one register: a launch has few
    /// to spare.
    #[inline(always)]
    pub fn load_above_stack_pointer<const AT: usize, const ABOVE: i64>(place: Place) -> i64 {
        let distance: i64;
        // SAFETY: reads a word that belongs to this thread, and a register.
        unsafe {
            asm!("mov {0}, qword ptr fs:[{1} + {2}]", "sub {0}, rsp", "sub {0}, {3}", out(reg) distance,
                in(reg) place, const AT, const ABOVE, options(nostack, pure, readonly));
        }
        distance
    }

    /// What is `below` the stack pointer.
    #[inline(always)]
    pub fn store_stack_pointer<const AT: usize, const BELOW: usize>(place: Place) {
        // SAFETY: writes a word that belongs to this thread.
        unsafe {
            asm!("lea {0}, [rsp - {1}]", "mov qword ptr fs:[{2} + {3}], {0}", out(reg) _, const BELOW, in(reg) place,
                const AT, options(nostack, preserves_flags));
        }
    }

    /// Where the words are.
    pub fn address(place: Place) -> u64 {
        let base: u64;
        // SAFETY: by the ABI of thread-local storage the base's first word is its own address.
        unsafe { asm!("mov {}, qword ptr fs:[0]", out(reg) base, options(nostack, pure, readonly, preserves_flags)) };
        base.wrapping_add(place)
    }
}

/// The words are reached by their address.
#[cfg(target_arch = "aarch64")]
mod place {
    use core::arch::asm;

    pub type Place = *mut u8;

    #[inline(always)]
    pub fn find() -> Place {
        let place: Place;
        // SAFETY: reads the distance that the dynamic linker stored and this thread's base; touches no stack.
        unsafe {
            asm!("adrp {0}, :gottprel:partage_thread", "ldr {0}, [{0}, :gottprel_lo12:partage_thread]",
                "mrs {1}, tpidr_el0", "add {0}, {0}, {1}", out(reg) place, out(reg) _,
                options(nostack, pure, readonly, preserves_flags));
        }
        place
    }

    #[inline(always)]
    pub fn load<const AT: usize>(place: Place) -> u64 {
        // SAFETY: a word that belongs to this thread.
        unsafe { place.add(AT).cast::<u64>().read() }
    }

    #[inline(always)]
    pub fn store<const AT: usize>(place: Place, value: u64) {
        // SAFETY: a word that belongs to this thread.
        unsafe { place.add(AT).cast::<u64>().write(value) }
    }

    /// The sum of a number and a word.
    #[inline(always)]
    pub fn add<const AT: usize>(place: Place, number: u64) -> u64 {
        load::<AT>(place).wrapping_add(number)
    }

    #[inline(always)]
    pub fn store_stack_pointer<const AT: usize, const BELOW: usize>(place: Place) {
        store::<AT>(place, super::stack_pointer().wrapping_sub(BELOW) as u64);
    }

    /// Where the words are.
    pub fn address(place: Place) -> u64 {
        place as u64
    }
}

/// The words of this thread.
#[inline(always)]
pub fn mine() -> Mine {
    Mine(place::find())
}

/// What [`set_time_word`] last wrote in this thread; 0 at first. A forked child inherits it.
pub fn time_word() -> u64 {
    place::load::<TIME>(mine().0)
}

/// Changes this thread's word, to one with its two highest bits set. Only inside a hook: its end shows it outside.
pub fn set_time_word(word: u64) {
    place::store::<TIME>(mine().0, word);
}

/// What [`note_thread`] last wrote in this thread; 0 at first. A forked child inherits it.
pub fn thread_note() -> u64 {
    place::load::<NOTE>(mine().0)
}

/// Leaves a note in this thread.
pub fn note_thread(note: u64) {
    place::store::<NOTE>(mine().0, note);
}

/// A number that no other thread has now: where its words are. Even, and greater than any small number.
pub fn thread_key() -> u64 {
    place::address(mine().0)
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn stack_pointer() -> usize {
    let here: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) here, options(nostack, pure, nomem, preserves_flags)) };
    here
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn stack_pointer() -> usize {
    let here: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, sp", out(reg) here, options(nostack, pure, nomem, preserves_flags)) };
    here
}
