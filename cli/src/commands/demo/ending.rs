// SPDX-License-Identifier: Apache-2.0
//! A demo that is ended ends its programs first: one that is just starting a broker would leave it behind.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::failure::{Failure, Outcome};

const SIGNALS: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// The signal that came; 0 before one does.
static CAME: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: c_int) {
    CAME.store(signal, Ordering::Relaxed);
}

/// From here on the signals that end a program are noted. Those that the caller has ignored stay ignored.
pub fn note_signals() {
    // Without SA_RESTART: who waits for an answer wakes up.
    let noted = SigAction::new(SigHandler::Handler(note), SaFlags::empty(), SigSet::empty());
    for signal in SIGNALS {
        // SAFETY: the handler stores one number, which is async-signal-safe.
        let before = unsafe { sigaction(signal, &noted) };
        if let Ok(before) = before
            && matches!(before.handler(), SigHandler::SigIgn)
        {
            // SAFETY: to ignore is no code of ours.
            let _ = unsafe { sigaction(signal, &before) };
        }
    }
}

/// The exit code of a program that such a signal ended, once one came.
pub fn code() -> Option<u8> {
    let signal = CAME.load(Ordering::Relaxed);
    u8::try_from(128 + signal).ok().filter(|_| signal != 0)
}

/// Goes on, unless a signal came.
///
/// # Errors
/// One did.
pub fn goes_on() -> Outcome<()> {
    match code() {
        None => Ok(()),
        Some(_) => Err(Failure::failed("the demo was ended")),
    }
}
