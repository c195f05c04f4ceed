// SPDX-License-Identifier: Apache-2.0
//! Running COMMAND as a child and waiting for it: for `sim`, which has something to tidy up afterwards, and for
//! `run --summary`.
//!
//! The child starts with the caller's signal mask and dispositions. Signals that somebody sends to us alone are passed
//! on. Those of the terminal, of `kill -- -PGID` and of `partage stop` reach the child by themselves (it is in our process
//! group, and our descendant) and are only survived here: passed on, they would come twice, and many programs take a
//! second SIGTERM as "now, without saving". Nothing in a signal tells the two kinds apart, so a *witness*, a second child
//! that only waits, says what it got: what reached the witness too was not for us alone.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{
    SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, kill, raise, sigaction, sigprocmask,
};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe2, read, write};

use crate::execute::{Environment, become_command};
use crate::failure::{Failure, Kind, Outcome};
use crate::launch_broker::close_range;
use crate::report::write_err;

/// Passed on, or survived when they come from the terminal.
const FORWARDED: &[Signal] = &[
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGALRM,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];
/// How long the witness may take to say that a signal reached it too.
const WITNESS_TIME: Duration = Duration::from_millis(100);
/// What the witness writes: signal, `si_code`, sender.
type Word = [i32; 3];
const WORD: usize = size_of::<Word>();

/// Runs COMMAND and gives its code: its own, or 128 and the number of the signal that ended it.
///
/// # Errors
/// The system has no process for it.
pub fn run(file: &Path, words: &[OsString], environment: &Environment) -> Outcome<u8> {
    let fail = |errno: Errno| {
        Failure::new(
            Kind::Failed,
            format!("cannot start COMMAND: {}", errno.desc().to_lowercase()),
        )
    };
    let mut waited: SigSet = FORWARDED.iter().copied().collect();
    waited.add(Signal::SIGCHLD);
    let mut before = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&waited), Some(&mut before)).map_err(fail)?;
    // Ignored SIGCHLD would be thrown away instead of waited for, and the child reaped by the kernel.
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: SIG_DFL is no code of ours.
    let children = unsafe { sigaction(Signal::SIGCHLD, &default) }.map_err(fail)?;
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
        ForkResult::Parent { child } => {
            let mut witness = Witness::start(&waited);
            let result = wait(child, &waited, &mut witness);
            witness.end();
            result.map_err(fail)
        }
    }
}

fn wait(child: Pid, waited: &SigSet, witness: &mut Witness) -> Result<u8, Errno> {
    loop {
        // The child may have ended before the first signal is looked at; several SIGCHLD may be one.
        match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, code)) => return Ok(u8::try_from(code & 0xff).unwrap_or(1)),
            Ok(WaitStatus::Signaled(_, signal, _)) => return Ok(128 + signal as u8),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let Some((signal, word)) = next_signal(waited) else {
            continue;
        };
        if signal == Signal::SIGCHLD {
            continue;
        }
        // si_code is positive for signals of the kernel, which is where the terminal's come from.
        let is_ours_alone = word[1] <= 0 && !witness.got(word);
        if is_ours_alone {
            let _ = kill(child, signal);
        }
        if signal == Signal::SIGTSTP {
            stop_as_told();
        }
    }
}

fn next_signal(waited: &SigSet) -> Option<(Signal, Word)> {
    // SAFETY: all zeros is a valid siginfo_t; the call fills it.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live values of the right types.
    let number = unsafe { libc::sigwaitinfo(waited.as_ref(), &raw mut info) };
    let signal = Signal::try_from(number).ok()?;
    // SAFETY: every siginfo_t has these bytes; where a signal has no sender, they only have to be the same twice.
    let sender = unsafe { info.si_pid() };
    Some((signal, [number, info.si_code, sender]))
}

/// Stops this process as SIGTSTP would have done had we not waited for it, so that a shell sees it.
fn stop_as_told() {
    let only: SigSet = [Signal::SIGTSTP].into_iter().collect();
    let _ = raise(Signal::SIGTSTP);
    let _ = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&only), None);
    let _ = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&only), None);
}

/// A second child, in our process group and holding nothing, that writes down each signal that reaches it. Where it cannot
/// be had, everything counts as sent to us alone.
struct Witness {
    child: Option<(Pid, OwnedFd)>,
    /// What it got and we did not yet ask for, and when it said so.
    said: BTreeMap<Word, Instant>,
}

impl Witness {
    fn start(waited: &SigSet) -> Self {
        let mut witness = Self {
            child: None,
            said: BTreeMap::new(),
        };
        let Ok((reader, writer)) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK) else {
            return witness;
        };
        let parent = nix::unistd::getpid();
        // SAFETY: this process has one thread, so the child may use everything that the parent may.
        match unsafe { fork() } {
            Ok(ForkResult::Child) => bear_witness(parent, waited, &writer),
            Ok(ForkResult::Parent { child }) => witness.child = Some((child, reader)),
            Err(_) => {}
        }
        witness
    }

    /// Did this signal reach the witness too?
    fn got(&mut self, word: Word) -> bool {
        let Some((_, reader)) = &self.child else { return false };
        let until = Instant::now() + WITNESS_TIME;
        loop {
            let mut bytes = [0; WORD];
            // A pipe keeps a short write in one piece.
            while read(reader, &mut bytes) == Ok(WORD) {
                self.said.insert(word_of(&bytes), Instant::now());
            }
            // What came without coming to us (two at once are one) must not count for a later one of ours alone.
            self.said.retain(|_, at| at.elapsed() < WITNESS_TIME * 10);
            if self.said.remove(&word).is_some() {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            let left = PollTimeout::try_from(left.as_millis()).unwrap_or(PollTimeout::ZERO);
            let mut polled = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
            if left == PollTimeout::ZERO || !matches!(poll(&mut polled, left), Ok(1) | Err(Errno::EINTR)) {
                return false;
            }
            if polled[0]
                .revents()
                .is_some_and(|events| !events.contains(PollFlags::POLLIN))
            {
                return false;
            }
        }
    }

    fn end(self) {
        if let Some((child, _)) = self.child {
            let _ = kill(child, Signal::SIGKILL);
            while waitpid(child, None) == Err(Errno::EINTR) {}
        }
    }
}

fn word_of(bytes: &[u8; WORD]) -> Word {
    let number = |at: usize| i32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    [number(0), number(4), number(8)]
}

/// The witness. It lives no longer than its parent.
fn bear_witness(parent: Pid, waited: &SigSet, writer: &OwnedFd) -> ! {
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
    let kept = writer.as_raw_fd();
    close_range(0, kept - 1);
    close_range(kept + 1, i32::MAX);
    while nix::unistd::getppid() == parent {
        if let Some((_, word)) = next_signal(waited) {
            let bytes: Vec<u8> = word.iter().flat_map(|number| number.to_ne_bytes()).collect();
            let _ = write(writer, &bytes);
        }
    }
    // SAFETY: `_exit` only ends the process; buffers and atexit functions belong to the parent.
    unsafe { libc::_exit(0) }
}
