// SPDX-License-Identifier: Apache-2.0
//! The system calls of the dispatcher, as a trait that tests replace.

use std::sync::atomic::AtomicU32;

use nix::sys::time::TimeValLike;

use crate::clock;
use crate::host::tasks;

/// The kernel, or a test's.
pub trait Kernel {
    /// A full barrier on every processor that runs a process registered for it. `false`: there is none.
    fn heavy_barrier(&self) -> bool;
    /// Wakes the threads that wait on a word.
    fn wake(&self, word: &AtomicU32);
    /// Is the process stopped by a signal or a tracer?
    fn is_stopped(&self, pid: u32) -> bool;
    /// Processor time of this thread so far, in nanoseconds.
    fn spent_ns(&self) -> u64;
    /// The monotonic time.
    fn now_ns(&self) -> u64;
}

/// The kernel itself.
#[derive(Debug)]
pub struct Linux {
    has_membarrier: bool,
}

/// `MEMBARRIER_CMD_QUERY` and `MEMBARRIER_CMD_GLOBAL_EXPEDITED` (`linux/membarrier.h`).
const QUERY: libc::c_int = 0;
const GLOBAL_EXPEDITED: libc::c_int = 1 << 1;

fn membarrier(command: libc::c_int) -> libc::c_long {
    // SAFETY: takes numbers only.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}

impl Linux {
    /// Asks the kernel what it has.
    pub fn here() -> Self {
        let commands = membarrier(QUERY);
        Self {
            has_membarrier: commands > 0 && commands & libc::c_long::from(GLOBAL_EXPEDITED) != 0,
        }
    }

    /// Asks for punctual wake-ups of this thread.
    pub fn be_punctual(&self) {
        // SAFETY: takes numbers only; the slack is this thread's.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000_usize) };
    }

    /// Has the kernel the barrier?
    #[must_use]
    pub fn has_barrier(&self) -> bool {
        self.has_membarrier
    }
}

impl Kernel for Linux {
    fn heavy_barrier(&self) -> bool {
        self.has_membarrier && membarrier(GLOBAL_EXPEDITED) == 0
    }

    fn wake(&self, word: &AtomicU32) {
        // SAFETY: wakes sleepers on a word that is mapped as long as the reference lives. Not private: they are other
        // processes.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }

    fn is_stopped(&self, pid: u32) -> bool {
        let Ok(text) = std::fs::read_to_string(tasks::folder(pid).join("stat")) else {
            return false;
        };
        // The name before it may hold anything but is followed by the last closing bracket.
        let state = text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        matches!(state, Some('T' | 't'))
    }

    fn now_ns(&self) -> u64 {
        clock::now().ns
    }

    fn spent_ns(&self) -> u64 {
        let spent = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID);
        spent.map_or(0, |spent| u64::try_from(spent.num_nanoseconds()).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::refuse_call;

    /// Were it answered without asking, a launch could pass a closed gate unseen: no result of any program would tell.
    #[test]
    fn a_barrier_is_the_kernels_and_no_barrier_is_said_to_be_none() {
        let thread = std::thread::spawn(|| {
            let kernel = Linux::here();
            assert!(kernel.heavy_barrier(), "this kernel has no membarrier");
            refuse_call(libc::SYS_membarrier, GLOBAL_EXPEDITED as u32);
            assert!(!kernel.heavy_barrier(), "nobody asked the kernel");
        });
        assert!(thread.join().is_ok());
    }
}
