// SPDX-License-Identifier: Apache-2.0
//! A function of the dynamic linker's that we stand in front of, as a naked function that answers or jumps on.
//!
//! Libc's own looks at its return address (which object asks decides what it sees), so ours leaves the stack as it was.

/// What the naked function needs: an answer, or where to jump. Both null: it answers null.
#[repr(C)]
pub struct Pick {
    pub answer: *const (),
    pub next: *const (),
}

impl Pick {
    /// Whatever the function behind ours says.
    pub fn jump(next: *const ()) -> Self {
        Self {
            answer: core::ptr::null(),
            next,
        }
    }

    /// An answer of our own.
    pub fn answer(answer: *const ()) -> Self {
        Self {
            answer,
            next: core::ptr::null(),
        }
    }
}

/// The body of a naked function of two arguments, which `$pick` gets, with the return address.
#[cfg(target_arch = "x86_64")]
macro_rules! answer_or_jump {
    ($pick:path) => {
        core::arch::naked_asm!(
            "endbr64",
            "lea r10, [rip + 3f]",
            "jmp {entry}",
            "3:",
            "mov rdx, [rsp]",
            "push rdi",
            "push rsi",
            // Two pushes and the return address leave the stack 8 off a call's alignment.
            "sub rsp, 8",
            "call {pick}",
            "add rsp, 8",
            "pop rsi",
            "pop rdi",
            "test rax, rax",
            "jnz 2f",
            "test rdx, rdx",
            "jz 2f",
            "jmp rdx",
            "2:",
            "ret",
            entry = sym $crate::guard::at_entry,
            pick = sym $pick,
        )
    };
}

/// The body of a naked function of two arguments, which `$pick` gets, with the return address.
#[cfg(target_arch = "aarch64")]
macro_rules! answer_or_jump {
    ($pick:path) => {
        core::arch::naked_asm!(
            "hint #34", // bti c, where the machine knows it
            "adr x16, 3f",
            "b {entry}",
            "3:",
            "stp x0, x1, [sp, #-32]!",
            "str x30, [sp, #16]",
            "mov x2, x30",
            "bl {pick}",
            "mov x9, x0",
            "mov x16, x1",
            "ldr x30, [sp, #16]",
            "ldp x0, x1, [sp], #32",
            "cbnz x9, 2f",
            "cbz x16, 2f",
            "br x16",
            "2:",
            "mov x0, x9",
            "ret",
            entry = sym $crate::guard::at_entry,
            pick = sym $pick,
        )
    };
}

pub(crate) use answer_or_jump;
