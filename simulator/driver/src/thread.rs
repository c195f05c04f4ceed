// SPDX-License-Identifier: Apache-2.0
//! Threads of the driver's own. They block all signals, which belong to the program's threads, and are never joined:
//! the process may end at any time.

use std::io;

/// Starts a thread.
pub fn start(name: String, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // SAFETY: plain signal sets on the stack; the caller's mask is restored below.
    let old = unsafe {
        let (mut all, mut old) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        old
    };
    let started = std::thread::Builder::new().name(name).spawn(run);
    // SAFETY: the mask read above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut()) };
    started.map(drop)
}
