// SPDX-License-Identifier: Apache-2.0
//! Starts the private broker again when it is gone, without the program noticing.
//!
//! A process of the program that finds nobody at the socket starts it: when it attaches, when it asks, or in the
//! library's thread (`reach.rs`; `lazy.rs` before an admission). The lock on `start.lock` lets one process of the
//! socket folder start a broker at a time. `run` names the broker's file in `PARTAGE_BROKER`, for private brokers
//! alone; without that variable nothing is started, and nothing in a namespace that `partage restore` made: a broker
//! would see no process outside of it there, and `restore` starts the next one itself.
//!
//! ```text
//!   program ── clone, no exit signal ──► middle ── clone ──► partaged
//!      │ suspended until the middle ends      │ ends at once, so partaged gets another parent
//!      └ waits for the middle ◄──────────────┘
//! ```
//! The program gets no child that it could wait for, no SIGCHLD, and lends no descriptor, terminal, signal action or
//! `LD_*` variable. Both clones share the program's memory until they exec (a copy of a large process's page tables
//! would take longer than the start itself), so the new process makes system calls only and leaves memory alone.

use core::ffi::{CStr, c_char, c_int, c_void};

use partage_protocol::message::RESTORE_NAME;

use crate::guest::descriptor::Kept;
use crate::guest::sys;
use crate::guest::text::Text;
use crate::settings::PATH_BYTES;
use crate::state::State;

/// Variables handed to the broker at most; a longer environment loses its tail.
const MAX_VARIABLES: usize = 1024;
const CLONE_STACK_BYTES: usize = 64 * 1024;

/// Asks for the right to start the broker. One process of a folder has it at a time, by the lock of the file that
/// `turn` keeps open; without a folder there is no file, and the broker's own lock keeps a second one away. `false`
/// while another process starts one: hundreds of clients lose their broker together.
pub fn take_turn(state: &State, turn: &mut Kept) -> bool {
    if state.settings().broker.is_empty() || is_restored() {
        return false;
    }
    // Open still: a jump took the frame away that had the right.
    turn.close();
    let mut path = Text::<PATH_BYTES>::new();
    path.push(state.settings().socket_dir.as_bytes()).push("/start.lock");
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_NOFOLLOW;
    match c_int::try_from(sys::open(path.as_c_str(), flags, 0o600)) {
        Ok(fd) if fd >= 0 => {
            *turn = Kept::take(fd).unwrap_or(Kept::NONE);
            let has_turn = turn.fd().is_some_and(sys::lock_file);
            if !has_turn {
                turn.close();
            }
            has_turn
        }
        _ => true,
    }
}

/// Is this process in a pid namespace that `partage restore` made?
fn is_restored() -> bool {
    let Ok(fd) = c_int::try_from(sys::open(c"/proc/1/comm", libc::O_RDONLY, 0)) else {
        return false;
    };
    let mut name = [0; RESTORE_NAME.count_bytes()];
    let length = if fd < 0 { 0 } else { sys::read(fd, &mut name) };
    if fd >= 0 {
        sys::close(fd);
    }
    length == name.len() as isize && name == *RESTORE_NAME.to_bytes()
}

struct Plan<'a> {
    program: &'a CStr,
    arguments: [*const c_char; 5],
    environment: [*const c_char; MAX_VARIABLES + 1],
    stack: *mut c_void,
}

/// Starts `PARTAGE_BROKER` for this process's socket folder. `false`: nothing was started.
pub fn start(state: &State) -> bool {
    let settings = state.settings();
    if settings.broker.is_empty() {
        return false;
    }
    let Some(stacks) = sys::map_private(2 * CLONE_STACK_BYTES) else {
        return false;
    };
    let mut plan = Plan {
        program: settings.broker.as_c_str(),
        arguments: [
            settings.broker.as_c_str().as_ptr(),
            c"--private".as_ptr(),
            c"--socket-dir".as_ptr(),
            settings.socket_dir.as_c_str().as_ptr(),
            core::ptr::null(),
        ],
        environment: [core::ptr::null(); MAX_VARIABLES + 1],
        stack: stacks.cast::<u8>().wrapping_add(CLONE_STACK_BYTES).cast(),
    };
    copy_environment(&mut plan.environment);
    // No handler of the program may run in the new process: it would act on the program's memory.
    let mask = sys::set_signal_mask(u64::MAX);
    let top = stacks.cast::<u8>().wrapping_add(2 * CLONE_STACK_BYTES);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK;
    // SAFETY: `middle` runs on its own stack while this thread is suspended, and gets the plan it expects.
    let pid = unsafe { preserving_errno(|| libc::clone(middle, top.cast(), flags, (&raw mut plan).cast())) };
    if pid > 0 {
        sys::wait_for(pid);
    }
    sys::set_signal_mask(mask);
    // SAFETY: both processes that used the stacks have ended or exec'ed: CLONE_VFORK waited for that.
    unsafe { sys::unmap(stacks, 2 * CLONE_STACK_BYTES) };
    pid > 0
}

extern "C" fn middle(plan: *mut c_void) -> c_int {
    // SAFETY: `start` passes its plan, which outlives this process's use of it (CLONE_VFORK).
    let stack = unsafe { (*plan.cast::<Plan<'_>>()).stack };
    // SAFETY: as in `start`; the stack below the middle's own is free.
    unsafe { libc::clone(broker, stack, libc::CLONE_VM | libc::CLONE_VFORK, plan) };
    sys::exit_now(0)
}

extern "C" fn broker(plan: *mut c_void) -> c_int {
    // SAFETY: as for `middle`.
    let plan = unsafe { &*plan.cast::<Plan<'_>>() };
    sys::new_session();
    sys::leave_folder();
    let null = sys::open(c"/dev/null", libc::O_RDWR, 0) as c_int;
    if null >= 0 {
        for standard in 0..3 {
            if standard == null {
                continue;
            }
            sys::duplicate_to(null, standard);
        }
    }
    sys::close_from(3);
    sys::reset_signal_actions();
    sys::set_signal_mask(0);
    // SAFETY: both arrays end with null; their strings are the settings' and the environment's.
    unsafe { sys::execute(plan.program, plan.arguments.as_ptr(), plan.environment.as_ptr()) };
    sys::exit_now(127)
}

/// The broker lives longer than the job: it gets none of the variables that were meant for the job alone.
fn copy_environment(to: &mut [*const c_char; MAX_VARIABLES + 1]) {
    let mut places = to.iter_mut().take(MAX_VARIABLES);
    sys::each_variable(|text| {
        let is_the_jobs = [
            &b"LD_"[..],
            b"PARTAGE_TOKEN=",
            b"PARTAGE_MEM",
            b"PARTAGE_LAZY",
            b"PARTAGE_LOG=",
            b"CUDA_VISIBLE_DEVICES=",
        ]
        .iter()
        .any(|prefix| text.starts_with(prefix));
        if !is_the_jobs && let Some(place) = places.next() {
            // The entry itself, with its zero: the text was cut from there.
            *place = text.as_ptr().cast();
        }
    });
}

/// Runs what goes through libc without leaving a trace in `errno`.
///
/// # Safety
/// As `act`.
unsafe fn preserving_errno<R>(act: impl FnOnce() -> R) -> R {
    // SAFETY: libc's per-thread variable.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let result = act();
    // SAFETY: as above.
    unsafe { *errno = before };
    result
}
