// SPDX-License-Identifier: Apache-2.0
//! The one thread of ours in the program: it brings a lost broker back and looks for drivers that no hook reaches.
//!
//! Started after the program's own `cuInit` succeeded (the driver has threads by then, so the program counts with
//! them), at the first call of NVML in a job (whose saving it must not be in the way of), or when a thread of a program
//! that has not come so far must wait at the hold of a suspended job; with every signal blocked but those that libc
//! uses among threads. A forked child has none until its own.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use partage_protocol::message::NOTICE_FOREIGN_NAMESPACE;

use crate::attachment;
use crate::connection;
use crate::guest::linker;
use crate::guest::sys;
use crate::guest::text;
use crate::guest::weak;
use crate::hold;
use crate::job_word;
use crate::park;
use crate::reach;
use crate::real::{DRIVER, SECOND_DRIVER};
use crate::resolve;
use crate::session;
use crate::socket::Refusal;
use crate::state::rooms::{Owner, Room};
use crate::state::{Phase, State};

/// Between two looks at the world while nothing happens, in nanoseconds.
const WORLD_LOOK_NS: u64 = 2_000_000_000;
/// The same while the hold is closed: somebody waits for who may be outside.
const HELD_LOOK_NS: u64 = 100_000_000;
/// Between two attempts to connect of one step.
const SHORT_NS: u64 = 10_000_000;
/// Enough for our few frames and for programs with large thread-local storage, which is cut from it.
const THREAD_STACK_BYTES: usize = 256 * 1024;
/// Libc sends these to all threads and waits (`setuid`, cancellation): whoever blocks them hangs the program.
const LIBC_SIGNALS: u64 = 0b111 << 31;

/// The thread was started. All-zero memory is "no".
struct HasThread(AtomicBool);

// SAFETY: all-zero memory is a value; nothing else lies in this room.
unsafe impl Room for HasThread {
    const OWNER: Owner = Owner::Thread;
}

fn has_thread(state: &State) -> &AtomicBool {
    &state.room::<HasThread>().0
}

/// A thread that must wait at the hold finds our own thread running then, or starts it.
pub fn be_reachable() {
    hold::process::set_starter(start);
}

/// Starts the thread, once per process, if this process has or expects a broker.
pub fn start(state: &'static State) {
    let is_wanted = match state.phase() {
        Phase::Attached => true,
        Phase::Standalone => state.is_counted(),
        Phase::Fresh | Phase::Off => false,
    };
    let has_one = has_thread(state);
    if !is_wanted || has_one.load(Ordering::Relaxed) || has_one.swap(true, Ordering::Relaxed) {
        return;
    }
    let mask = sys::set_signal_mask(!LIBC_SIGNALS);
    let argument = core::ptr::from_ref(state).cast_mut().cast::<c_void>();
    // SAFETY: `run` takes the state, which lives as long as the process.
    let is_started = unsafe { weak::start_thread(run, argument, THREAD_STACK_BYTES, &find_beside_driver) };
    sys::set_signal_mask(mask);
    if !is_started {
        has_thread(state).store(false, Ordering::Relaxed);
    }
}

/// A function of a library that the driver brought along; null without a driver.
fn find_beside_driver(name: &CStr) -> *mut c_void {
    match DRIVER.handle() {
        handle if handle.is_null() => handle,
        handle => linker::real_dlsym(handle, name),
    }
}

extern "C" fn run(state: *mut c_void) -> *mut c_void {
    // SAFETY: `start` passes the process's state.
    let state = unsafe { &*state.cast::<State>() };
    sys::name_thread(c"partage");
    let mut loaded = 0;
    loop {
        park::park_if_asked(state);
        let is_held = hold::outsiders::is_held(state);
        keep_alive(state, if is_held { HELD_LOOK_NS } else { WORLD_LOOK_NS });
        hold::outsiders::note(state);
        session::cover_earlier_use(state);
        look_for_foreign_drivers(state, &mut loaded);
        if let Some(file) = attachment::of(state).client_file() {
            hold::waiting::count_out_the_dead(file);
        }
    }
}

/// One step of the background thread: notices a lost connection and tries to get it back, after a pause that grows.
fn keep_alive(state: &State, step_ns: u64) {
    if connection::of(state).is_silent() {
        job_word::let_go(state);
    }
    let (fd, pause) = {
        let session = connection::of(state).session.hold();
        let pause = if session.is_final {
            u64::MAX
        } else {
            session.pause.left_ns(sys::now_ns())
        };
        (session.link.socket().fd(), pause)
    };
    match fd {
        Some(fd) => {
            // Whoever waits for an answer holds the session, and takes it; anything else is for nobody, or for us.
            if sys::poll(fd, libc::POLLIN, step_ns) == 0 {
                return;
            }
        }
        None => sys::sleep_ns(pause.min(step_ns)),
    }
    let Some(mut session) = connection::of(state).session.try_hold() else {
        return sys::sleep_ns(SHORT_NS);
    };
    let session = &mut *session;
    if session.link.is_connected() {
        let is_gone = session
            .link
            .socket()
            .fd()
            .is_none_or(|fd| sys::poll(fd, 0, 0) & (libc::POLLHUP | libc::POLLERR) != 0);
        session::drain(state, session);
        if !is_gone {
            return;
        }
        // What it said last may be why it left.
        session::drain(state, session);
        session.lose();
    }
    // Short attempts: whoever needs an answer meanwhile waits for this lock.
    match reach::connect(state, session, 0, sys::now_ns().saturating_add(SHORT_NS)) {
        Err(Refusal::Absent | Refusal::Barred) if !session.keeps_grants => {
            session.keeps_grants = job_word::keep_grants(state);
        }
        Ok(()) | Err(_) => {}
    }
}

static TOLD_ABOUT: AtomicU64 = AtomicU64::new(0);

/// Tells the broker of a mapped driver whose calls do not pass through us: one in a `dlmopen` namespace whose users
/// were resolved there. `loaded` is the loader's count of objects at the last look.
fn look_for_foreign_drivers(state: &State, loaded: &mut u64) {
    let mut now = 0_u64;
    // SAFETY: `count_loads` writes one number.
    unsafe { libc::dl_iterate_phdr(Some(count_loads), (&raw mut now).cast()) };
    if now == *loaded && !resolve::saw_foreign_driver() {
        return;
    }
    *loaded = now;
    if let Some(base) = foreign_driver()
        && TOLD_ABOUT.swap(base, Ordering::Relaxed) != base
    {
        session::notice(state, NOTICE_FOREIGN_NAMESPACE, 0, base);
    }
}

unsafe extern "C" fn count_loads(info: *mut libc::dl_phdr_info, _size: usize, count: *mut c_void) -> c_int {
    // SAFETY: the linker passes a description, the caller a number.
    unsafe { count.cast::<u64>().write((*info).dlpi_adds) };
    1
}

/// The first mapping of a `libcuda.so` that is neither of ours, from the kernel: the linker's own list ends at the
/// border of a namespace.
fn foreign_driver() -> Option<u64> {
    let file = c_int::try_from(sys::open_own(c"maps", libc::O_RDONLY))
        .ok()
        .filter(|fd| *fd >= 0)?;
    let mut buffer = [0_u8; 8192];
    let mut kept = 0;
    let mut found = None;
    while found.is_none() {
        let length = sys::read(file, buffer.get_mut(kept..).unwrap_or(&mut []));
        if length <= 0 {
            break;
        }
        let filled = kept + length as usize;
        let text = buffer.get(..filled).unwrap_or(&[]);
        let end = text.iter().rposition(|byte| *byte == b'\n').map_or(filled, |at| at + 1);
        found = text
            .get(..end)
            .unwrap_or(&[])
            .split(|byte| *byte == b'\n')
            .find_map(foreign_base);
        kept = filled.saturating_sub(end);
        for to in 0..kept {
            let byte = buffer.get(end + to).copied().unwrap_or(b'\n');
            if let Some(place) = buffer.get_mut(to) {
                *place = byte;
            }
        }
    }
    sys::close(file);
    found
}

/// The start of the first segment of a driver that is not ours, if this line of the map is one.
fn foreign_base(line: &[u8]) -> Option<u64> {
    let name = line.rsplit(|byte| *byte == b'/').next()?;
    let mut fields = line.split(|byte| *byte == b' ');
    let (range, _, offset) = (fields.next()?, fields.next()?, fields.next()?);
    if !name.starts_with(b"libcuda.so") || offset.iter().any(|digit| *digit != b'0') {
        return None;
    }
    let start = range
        .split(|byte| *byte == b'-')
        .next()?
        .iter()
        .try_fold(0_u64, |value, digit| {
            Some(value << 4 | u64::from(text::hex_digit(*digit)?))
        })?;
    // Before the driver is adopted every one would look foreign.
    let is_ours = DRIVER.is_at(start as usize) || SECOND_DRIVER.is_at(start as usize);
    (!is_ours && (DRIVER.is_adopted() || SECOND_DRIVER.is_adopted())).then_some(start)
}
