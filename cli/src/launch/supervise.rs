// SPDX-License-Identifier: Apache-2.0
//! Running COMMAND as a child and waiting for it: for `sim`, which has something to tidy up afterwards, and for
//! `run --summary`.
//!
//! The child starts with the caller's signal mask and dispositions. Signals that somebody sends to us are passed on;
//! those of the terminal reach the child by themselves (it is in our process group) and are only survived here.

use std::ffi::OsString;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, kill, sigaction, sigprocmask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

use crate::failure::{Failure, Outcome};
use crate::launch::execute::{Environment, become_command};
use crate::show::report::write_err;

/// Passed on, or survived when they come from the terminal.
const FORWARDED: &[Signal] = &[
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// Runs COMMAND and gives its code: its own, or 128 and the number of the signal that ended it.
///
/// # Errors
/// The system has no process for it.
pub fn run(file: &Path, words: &[OsString], environment: &Environment) -> Outcome<u8> {
    let fail = |errno: Errno| Failure::failed(format!("cannot start COMMAND: {}", errno.desc().to_lowercase()));
    let waited = waited();
    let mut before = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&waited), Some(&mut before)).map_err(fail)?;
    let children = heed_children().map_err(fail)?;
    // SAFETY: this process has one thread, so the child may use everything that the parent may.
    match unsafe { fork() }.map_err(fail)? {
        ForkResult::Child => {
            // SAFETY: the disposition is the one that the caller gave us: default or ignored.
            let restored = unsafe { sigaction(Signal::SIGCHLD, &children) };
            let failure = match restored.and_then(|_| sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)) {
                Ok(()) => become_command(file, words, environment),
                Err(errno) => fail(errno),
            };
            write_err(&format!("partage: {}\n", failure.sentence()));
            // SAFETY: `_exit` only ends the process; buffers and atexit functions belong to the parent.
            unsafe { libc::_exit(i32::from(failure.exit_code(true))) }
        }
        ForkResult::Parent { child } => wait(child, &waited).map_err(fail),
    }
}

/// Is this signal ignored by this process?
fn is_ignored(signal: Signal) -> bool {
    // SAFETY: all zeros is a valid sigaction; without a new action the call only writes the old one there.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        let asked = libc::sigaction(signal as libc::c_int, std::ptr::null(), &raw mut now);
        asked == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}

/// An ignored SIGCHLD would be thrown away instead of waited for, and the child reaped by the kernel. Answers what held
/// before.
fn heed_children() -> Result<SigAction, Errno> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: SIG_DFL is no code of ours.
    unsafe { sigaction(Signal::SIGCHLD, &default) }
}

fn waited() -> SigSet {
    let mut waited: SigSet = FORWARDED.iter().copied().collect();
    waited.add(Signal::SIGCHLD);
    waited
}

/// Blocks the signals that [`wait`] passes on, and answers them. What the caller ignores (`nohup`) stays ignored: a
/// blocked signal would come in spite of that.
///
/// # Errors
/// The system's.
pub fn block() -> Result<SigSet, Errno> {
    let mut waited = waited();
    for signal in FORWARDED.iter().copied().filter(|signal| is_ignored(*signal)) {
        waited.remove(signal);
    }
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&waited), None)?;
    heed_children()?;
    Ok(waited)
}

/// Waits for a child, passes signals on, and gives its code. Precondition: these signals are blocked.
///
/// # Errors
/// The system's.
pub fn wait(child: Pid, waited: &SigSet) -> Result<u8, Errno> {
    loop {
        // The child may have ended before the first signal is looked at; several SIGCHLD may be one.
        match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, code)) => return Ok(u8::try_from(code & 0xff).unwrap_or(1)),
            Ok(WaitStatus::Signaled(_, signal, _)) => return Ok(128 + signal as u8),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        // SAFETY: all zeros is a valid siginfo_t; the call fills it.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to live values of the right types.
        let number = unsafe { libc::sigwaitinfo(waited.as_ref(), &raw mut info) };
        let Ok(signal) = Signal::try_from(number) else { continue };
        // si_code is positive for signals of the kernel, which is where the terminal's come from.
        if signal != Signal::SIGCHLD && info.si_code <= 0 {
            let _ = kill(child, signal);
        }
    }
}
