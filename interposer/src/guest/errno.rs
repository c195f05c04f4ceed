// SPDX-License-Identifier: Apache-2.0
//! `errno` belongs to the program: where we go through libc beside the driver's own call, it is put back.

/// Runs `act` without leaving a trace in `errno`.
pub fn preserving<R>(act: impl FnOnce() -> R) -> R {
    // SAFETY: libc's per-thread variable, valid as long as the thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { errno.read() };
    let result = act();
    // SAFETY: as above.
    unsafe { errno.write(before) };
    result
}
