// SPDX-License-Identifier: Apache-2.0
//! There is no panic: in a release build the handler calls a function that exists nowhere, so that the library links
//! only when the optimiser has proven every panic unreachable.

#[cfg(panic_free)]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        fn partage_reachable_panic() -> !;
    }
    // SAFETY: never linked, see above.
    unsafe { partage_reachable_panic() }
}

/// Other builds keep checks that the proof needs gone.
#[cfg(not(panic_free))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    crate::guest::sys::exit_now(134)
}

// Without link-time optimisation the unwinding tables of `core` come along and name the function that reads them.
// Nothing unwinds here (panic = "abort").
#[cfg(not(panic_free))]
core::arch::global_asm!(
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    ".type rust_eh_personality, %function",
    "rust_eh_personality:",
    ".size rust_eh_personality, 0",
);
