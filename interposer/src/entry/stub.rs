// SPDX-License-Identifier: Apache-2.0
//! What is written in assembly around a hook: the first instructions of an export, and the short way of a launch.
//!
//! An export compares the stack pointer that its caller left, so it must be a jump that pushes nothing: no compiler
//! promises that.

/// The export of a row whose body both sets share: says that a hook begins, adds the library, and jumps to the body.
/// Written by hand, because the stack pointer has to be the caller's where [`guard::at_entry`] compares it.
#[cfg(target_arch = "x86_64")]
macro_rules! stub {
    ($attributes:tt $real:ident $symbol:ident()) => { stub! { $attributes register $real $symbol() } };
    ($attributes:tt $real:ident $symbol:ident($a:ident: $A:ty)) => {
        stub! { $attributes register $real $symbol($a: $A) }
    };
    ($attributes:tt $real:ident $symbol:ident($a:ident: $A:ty, $b:ident: $B:ty)) => {
        stub! { $attributes register $real $symbol($a: $A, $b: $B) }
    };
    ($attributes:tt $real:ident $symbol:ident($a:ident: $A:ty, $b:ident: $B:ty, $c:ident: $C:ty)) => {
        stub! { $attributes register $real $symbol($a: $A, $b: $B, $c: $C) }
    };
    ($attributes:tt $real:ident $symbol:ident($a:ident: $A:ty, $b:ident: $B:ty, $c:ident: $C:ty, $d:ident: $D:ty)) => {
        stub! { $attributes register $real $symbol($a: $A, $b: $B, $c: $C, $d: $D) }
    };
    (
        $attributes:tt $real:ident
        $symbol:ident($a:ident: $A:ty, $b:ident: $B:ty, $c:ident: $C:ty, $d:ident: $D:ty, $e:ident: $E:ty)
    ) => {
        stub! { $attributes register $real $symbol($a: $A, $b: $B, $c: $C, $d: $D, $e: $E) }
    };
    ($attributes:tt register $real:ident $symbol:ident($($arg:ident: $type:ty),*)) => {
        jump! {
            $attributes $symbol($($arg: $type),*) -> CuResult,
            concat!(
                ".if {taken} == 0\n", "lea rdi, [rip + {real}]\n",
                ".elseif {taken} == 1\n", "lea rsi, [rip + {real}]\n",
                ".elseif {taken} == 2\n", "lea rdx, [rip + {real}]\n",
                ".elseif {taken} == 3\n", "lea rcx, [rip + {real}]\n",
                ".elseif {taken} == 4\n", "lea r8, [rip + {real}]\n",
                ".else\n", "lea r9, [rip + {real}]\n", ".endif",
            ),
            super::shared::$symbol, real = sym $real, taken = const { 0 $(+ (size_of::<$type>() <= 8) as usize)* }
        }
        /// Each argument takes a register of its own, or lies on the stack: so the library is in the next one.
        const _: () = { $( assert!(size_of::<$type>() <= 8 || size_of::<$type>() > 16); )* };
    };
    // No register is left for the library.
    ($attributes:tt $real:ident $symbol:ident($($arg:ident: $type:ty),*)) => {
        pub mod $symbol {
            use super::*;

            pub unsafe extern "C" fn body($($arg: $type),*) -> CuResult {
                // SAFETY: the program's arguments.
                unsafe { super::super::shared::$symbol($($arg,)* &$real) }
            }
        }
        jump! { $attributes $symbol($($arg: $type),*) -> CuResult, "", $symbol::body, }
    };
}

/// The export of a row whose arguments are words: says that a hook begins, adds the row's number, and jumps to the body
/// of all rows with so many.
macro_rules! numbered {
    ($kind:ident $attributes:tt $real:ident $symbol:ident()) => {
        numbered! { $kind none $attributes $real $symbol() }
    };
    ($kind:ident $attributes:tt $real:ident $symbol:ident($a:ident: $A:ty)) => {
        numbered! { $kind one $attributes $real $symbol($a: $A) }
    };
    ($kind:ident $attributes:tt $real:ident $symbol:ident($a:ident: $A:ty, $b:ident: $B:ty)) => {
        numbered! { $kind two $attributes $real $symbol($a: $A, $b: $B) }
    };
    ($kind:ident $attributes:tt $real:ident $symbol:ident($a:ident: $A:ty, $b:ident: $B:ty, $c:ident: $C:ty)) => {
        numbered! { $kind three $attributes $real $symbol($a: $A, $b: $B, $c: $C) }
    };
    (
        $kind:ident $attributes:tt $real:ident
        $symbol:ident($a:ident: $A:ty, $b:ident: $B:ty, $c:ident: $C:ty, $d:ident: $D:ty)
    ) => {
        numbered! { $kind four $attributes $real $symbol($a: $A, $b: $B, $c: $C, $d: $D) }
    };
    (
        $kind:ident $attributes:tt $real:ident
        $symbol:ident($a:ident: $A:ty, $b:ident: $B:ty, $c:ident: $C:ty, $d:ident: $D:ty, $e:ident: $E:ty)
    ) => {
        numbered! { $kind five $attributes $real $symbol($a: $A, $b: $B, $c: $C, $d: $D, $e: $E) }
    };
    ($kind:ident $body:ident $attributes:tt $real:ident $symbol:ident($($arg:ident: $type:ty),*)) => {
        jump! {
            $attributes $symbol($($arg: $type),*) -> CuResult,
            number_behind!(), crate::entry::by_words::$kind::$body,
            row = const crate::names::driver_place(partage_abi::Symbol::$symbol) | crate::entry::by_words::$real,
            taken = const { 0 $(+ (size_of::<$type>() <= 8) as usize)* }
        }
        const _: () = { $( assert!(crate::entry::by_words::is_word(size_of::<$type>(), stringify!($type))); )* };
    };
}

/// Puts the row's number into the register behind those of the arguments.
#[cfg(target_arch = "x86_64")]
macro_rules! number_behind {
    () => {
        concat!(
            ".if {taken} == 0\n",
            "mov edi, {row}\n",
            ".elseif {taken} == 1\n",
            "mov esi, {row}\n",
            ".elseif {taken} == 2\n",
            "mov edx, {row}\n",
            ".elseif {taken} == 3\n",
            "mov ecx, {row}\n",
            ".elseif {taken} == 4\n",
            "mov r8d, {row}\n",
            ".else\n",
            "mov r9d, {row}\n",
            ".endif",
        )
    };
}

/// Puts the row's number into the register behind those of the arguments.
#[cfg(target_arch = "aarch64")]
macro_rules! number_behind {
    () => {
        concat!(
            ".if {taken} == 0\n",
            "mov w0, {row}\n",
            ".elseif {taken} == 1\n",
            "mov w1, {row}\n",
            ".elseif {taken} == 2\n",
            "mov w2, {row}\n",
            ".elseif {taken} == 3\n",
            "mov w3, {row}\n",
            ".elseif {taken} == 4\n",
            "mov w4, {row}\n",
            ".else\n",
            "mov w5, {row}\n",
            ".endif",
        )
    };
}

/// A function that says that a hook begins and jumps to its body, with the arguments where they are.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    (
        [$($attribute:tt)*] $symbol:ident($($arg:ident: $type:ty),*) -> $answer:ty,
        $first:expr, $body:path, $($operand:tt)*
    ) => {
        $($attribute)*
        #[unsafe(naked)]
        pub unsafe extern "C" fn $symbol($($arg: $type),*) -> $answer {
            core::arch::naked_asm!(
                ".cfi_startproc",
                $first,
                "lea r10, [rip + {body}]",
                "jmp {entry}",
                ".cfi_endproc",
                body = sym $body,
                entry = sym guard::at_entry,
                $($operand)*
            )
        }
    };
}

/// The export of a row whose body both sets share: a body of its own adds the library.
#[cfg(target_arch = "aarch64")]
macro_rules! stub {
    ($attributes:tt $real:ident $symbol:ident($($arg:ident: $type:ty),*)) => {
        pub mod $symbol {
            use super::*;

            pub unsafe extern "C" fn body($($arg: $type),*) -> CuResult {
                // SAFETY: the program's arguments.
                unsafe { super::super::shared::$symbol($($arg,)* &$real) }
            }
        }
        jump! { $attributes $symbol($($arg: $type),*) -> CuResult, "", $symbol::body, }
    };
}

/// A function that says that a hook begins and jumps to its body, with the arguments where they are.
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    (
        [$($attribute:tt)*] $symbol:ident($($arg:ident: $type:ty),*) -> $answer:ty,
        $first:expr, $body:path, $($operand:tt)*
    ) => {
        $($attribute)*
        #[unsafe(naked)]
        pub unsafe extern "C" fn $symbol($($arg: $type),*) -> $answer {
            core::arch::naked_asm!(
                ".cfi_startproc",
                $first,
                "adrp x16, {body}",
                "add x16, x16, :lo12:{body}",
                "b {entry}",
                ".cfi_endproc",
                body = sym $body,
                entry = sym guard::at_entry,
                $($operand)*
            )
        }
    };
}

/// The way to a launch's longer body: straight there, after [`gate::pass`] has compared the stack pointer.
#[cfg(target_arch = "x86_64")]
macro_rules! longer {
    ($symbol:ident($($arg:ident: $type:ty),*)) => {
        pub use $symbol::body as $symbol;
    };
}

/// The way to a launch's longer body, by a comparison of the stack pointer.
#[cfg(target_arch = "aarch64")]
macro_rules! longer {
    ($symbol:ident($($arg:ident: $type:ty),*)) => {
        jump! { [] $symbol($($arg: $type),*) -> CuResult, "", $symbol::body, }
    };
}

/// Calls the driver with the arguments it was called with, then does what `gate::passed` does elsewhere. Compilers copy
/// the arguments that lie on the stack in pairs through wide registers, of which the processor then waits until both
/// halves have been written: more time than all the rest takes.
#[cfg(target_arch = "x86_64")]
macro_rules! forwards {
    ($function:ident $symbol:ident($($arg:ident: $type:ty),*)) => {
        #[unsafe(naked)]
        pub unsafe extern "C" fn body($($arg: $type),*) -> CuResult {
            /// How many arguments lie on the stack, a word each, and what keeps it aligned with them.
            const WORDS: usize = [$(size_of::<$type>()),*].len().saturating_sub(6);
            const REST: usize = if WORDS % 2 == 0 { 8 } else { 16 };
            core::arch::naked_asm!(
                ".cfi_startproc",
                "sub rsp, {rest}",
                ".cfi_adjust_cfa_offset {rest}",
                ".rept {words}",
                "push qword ptr [rsp + {from}]",
                ".cfi_adjust_cfa_offset 8",
                ".endr",
                "call qword ptr [rip + {function}]",
                "add rsp, {taken}",
                ".cfi_adjust_cfa_offset -{taken}",
                "mov rcx, qword ptr [rip + partage_thread@GOTTPOFF]",
                "mov rdx, qword ptr fs:[rcx + {slot}]",
                "mov dword ptr [rdx + {word}], 0",
                "mov rdx, qword ptr fs:[rcx + {time}]",
                "mov qword ptr fs:[rcx + {now}], rdx",
                "ret",
                ".cfi_endproc",
                rest = const REST,
                words = const WORDS,
                from = const REST + WORDS * 8,
                taken = const REST + WORDS * 8,
                function = sym $function,
                slot = const guard::SLOT,
                word = const core::mem::offset_of!(partage_protocol::gate::ThreadSlot, word),
                time = const guard::TIME,
                now = const guard::NOW,
            )
        }
    };
}

/// Calls the driver with the arguments it was called with.
#[cfg(target_arch = "aarch64")]
macro_rules! forwards {
    ($function:ident $symbol:ident($($arg:ident: $type:ty),*)) => {
        pub unsafe extern "C" fn body($($arg: $type),*) -> CuResult {
            let function = $function.load(Ordering::Relaxed);
            // SAFETY: `find`, or as in `call`.
            let result = unsafe {
                core::mem::transmute::<*mut (), partage_abi::signatures::$symbol>(function)($($arg),*)
            };
            gate::passed();
            result
        }
    };
}
