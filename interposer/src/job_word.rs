// SPDX-License-Identifier: Apache-2.0
//! What each process of a job may use while nobody is there to say it: the limit is the job's, not each process's.
//!
//! One file serves all jobs of a socket folder. Each process that has no broker has a *record* in it: the job by its
//! token, the process by pid and start time, and its grant on each device. Whoever wants more takes the file's lock,
//! adds up the job's living records, and writes its own before it uses what the limit leaves:
//!
//! ```text
//!   raise:  lock ── others + wanted <= limit? ── no ──► denied: the limit
//!                                 │ yes
//!           record := wanted, then G := wanted ── unlock
//!   lower:  G := U, then record := G        (after a free; skipped while another process holds the lock)
//! ```
//! Invariants: 1. a process's G is never above its record. 2. Whenever a record rises, the living records of its job
//! are within the limit. A record of a process that is gone, however it died, counts for nothing and is the next one's
//! to take; the kernel takes the lock from a holder that dies. An attached process that finds its broker gone records
//! the grants that it keeps.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use partage_protocol::message::{MAX_DEVICES, TOKEN_BYTES};
use partage_protocol::reservation::{AskAnswer, Denial};
use partage_records::raise::{self, Raise};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::guest::descriptor::Kept;
use crate::guest::sys;
use crate::guest::text::{self, Text};
use crate::own_pages;
use crate::settings::PATH_BYTES;
use crate::state::{Found, Phase, State};

/// Name of the file, in the socket folder or, where that is not ours to write, in the user's own.
const LEAF: &str = "/jobs.alone";
/// First word of a record that was ever used (`PTGALON1`).
const MAGIC: u64 = u64::from_le_bytes(*b"PTGALON1");
/// Records in a file at most; whoever finds no place is given nothing.
const MAX_RECORDS: usize = 1024;
/// Longest wait for another process's hold of the file, which takes microseconds unless it was stopped in between.
const LOCK_WAIT_NS: u64 = 1_000_000_000;

/// One process. No record crosses a page: it is written whole or not at all.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Record {
    magic: u64,
    job: [u8; TOKEN_BYTES],
    process: Process,
    /// One for each copy of the library in the process.
    copy: u64,
    devices: [Share; MAX_DEVICES],
    unused: [u8; 432],
}

const _: () = assert!(size_of::<Record>() == 1024);

/// A process, told apart from every other one that had its pid and from its own former program.
#[derive(Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Process {
    pid: u64,
    start: u64,
    /// The pid namespace that gave the pid.
    namespace: u64,
    /// Where the program lies: another after each `exec`.
    image: u64,
}

/// A process's part of one device.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Share {
    uuid: [u8; 16],
    granted: u64,
    /// The job's limit as the last broker said it; 0 where it said nothing.
    limit: u64,
}

/// This process's place in the file. All-zero memory is "none yet".
pub struct Seat {
    process: Process,
    index: usize,
    is_taken: bool,
    /// Where the file lies, once it was opened.
    path: Text<PATH_BYTES>,
}

/// The file, open and locked. `State::seated` is held as long.
struct Locked<'a> {
    state: &'a State,
    fd: c_int,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        close_leftover(self.state);
    }
}

/// Unlocks and closes the file, if it is open. Precondition: `State::seated` is held.
fn close_leftover(state: &State) {
    // SAFETY: `seated` is held.
    let kept = unsafe { &mut *state.seat_file.get() };
    if let Some(fd) = kept.fd() {
        // A child that was forked meanwhile has the same open file: closing ours alone would leave it locked.
        sys::unlock_file(fd);
    }
    kept.close();
}

/// Raises this process's grant on a slot to `wanted`, if the job's limit and the other processes' grants leave that.
///
/// Precondition: nobody is there to ask.
pub fn raise(state: &State, slot: usize, wanted: u64) -> AskAnswer {
    if !state.settings().expects_broker() {
        // No job, no limit.
        own_pages::set_own_grant(state, slot, u64::MAX);
        return AskAnswer::Retry;
    }
    // A job that began without a limit may have got one: then a process that was attached has it on record.
    let limit = state.settings().memory_limit.unwrap_or(u64::MAX);
    let _seated = state.seated.hold();
    // SAFETY: `seated` is held.
    let seat = unsafe { &mut *state.seat.get() };
    // Another thread may have attached, or raised the grant, while this one waited.
    if state.broker_page().is_some() || wanted <= own_pages::own_grant(state, slot) {
        return AskAnswer::Retry;
    }
    let own = (own_pages::own_grant(state, slot), own_pages::own_use(state, slot));
    let Some(file) = open(state, seat, LOCK_WAIT_NS) else {
        let is_unreachable = seat.path.is_empty();
        if is_unreachable && (state.found() == Found::Barred || limit == u64::MAX) {
            // No record of the job can be reached: the environment's limit is this process's own.
            return raise_to(state, slot, raise::raise(wanted, own, 0, limit), |_| true);
        }
        return AskAnswer::Denied(Denial::NoBroker);
    };
    if !seat.find(state, &file) {
        return AskAnswer::Denied(Denial::NoBroker);
    }
    let uuid = own_pages::standalone_uuid(state, slot);
    let (others, told) = seat.others(state, &file, &uuid);
    if let Some(used) = state.last_job_used.get(slot) {
        used.store(others.saturating_add(own.1), Ordering::Relaxed);
    }
    let answer = raise::raise(wanted, own, others, limit.min(told));
    raise_to(state, slot, answer, |granted| {
        let mut record = seat.record(state);
        for (slot, share) in record.devices.iter_mut().enumerate() {
            *share = Share {
                uuid: own_pages::standalone_uuid(state, slot),
                granted: own_pages::own_grant(state, slot),
                limit: 0,
            };
        }
        if let Some(share) = record.devices.get_mut(slot) {
            share.granted = granted;
        }
        seat.write(&file, &record)
    })
}

/// Does what was decided: first what `record` writes, then G.
fn raise_to(state: &State, slot: usize, decided: Raise, record: impl FnOnce(u64) -> bool) -> AskAnswer {
    match decided {
        Raise::Enough => AskAnswer::Retry,
        Raise::Denied => AskAnswer::Denied(Denial::Limit),
        Raise::To(granted) if record(granted) => {
            own_pages::set_own_grant(state, slot, granted);
            AskAnswer::Retry
        }
        Raise::To(_) => AskAnswer::Denied(Denial::NoBroker),
    }
}

/// Lowers this process's grants to what it uses, for the job's other processes to take. Never waits.
pub fn lower(state: &State) {
    if state.phase() != Phase::Standalone || !state.settings().expects_broker() {
        return;
    }
    let Some(_seated) = state.seated.try_hold() else { return };
    // SAFETY: `seated` is held.
    let seat = unsafe { &mut *state.seat.get() };
    if !seat.is_taken || state.broker_page().is_some() {
        return;
    }
    let Some(file) = open(state, seat, 0) else { return };
    if !seat.find(state, &file) {
        return;
    }
    let mut record = seat.record(state);
    for (slot, share) in record.devices.iter_mut().enumerate() {
        *share = Share {
            uuid: own_pages::standalone_uuid(state, slot),
            granted: own_pages::lower_own_grant(state, slot),
            limit: 0,
        };
    }
    seat.write(&file, &record);
}

/// Records the grants that this attached process keeps while no broker is there. `false`: not now, to be tried again.
pub fn keep_grants(state: &State) -> bool {
    let (Some(job), Some(page)) = (state.job(), state.broker_page()) else {
        return true;
    };
    if !state.settings().expects_broker() {
        return true;
    }
    let _seated = state.seated.hold();
    // SAFETY: `seated` is held.
    let seat = unsafe { &mut *state.seat.get() };
    let Some(file) = open(state, seat, LOCK_WAIT_NS) else {
        return false;
    };
    if !seat.find(state, &file) {
        return false;
    }
    let mut record = seat.record(state);
    for ((share, device), line) in record.devices.iter_mut().zip(job.devices()).zip(&page.devices) {
        *share = Share {
            uuid: device.uuid,
            granted: line.granted.load(Ordering::SeqCst),
            limit: line.limit.load(Ordering::Relaxed),
        };
    }
    seat.write(&file, &record)
}

/// Lets go of the file where a jump took its holder away, for the job's other processes.
pub fn let_go(state: &State) {
    let _seated = state.seated.hold();
    close_leftover(state);
}

/// What the job's other processes hold on a slot's device, for the program's eyes. `None`: that cannot be told now.
pub fn others(state: &State, slot: usize) -> Option<u64> {
    state.settings().memory_limit?;
    let _seated = state.seated.try_hold()?;
    // SAFETY: `seated` is held.
    let seat = unsafe { &mut *state.seat.get() };
    let file = open(state, seat, 0)?;
    seat.find(state, &file).then(|| {
        let uuid = own_pages::standalone_uuid(state, slot);
        seat.others(state, &file, &uuid).0
    })
}

impl Seat {
    /// Makes sure that this process has a record. `false`: there is no place for one.
    fn find(&mut self, state: &State, file: &Locked<'_>) -> bool {
        if self.process.pid == 0 {
            // Without /proc the living could not be told from the dead.
            let Some(process) = this_process() else { return false };
            self.process = process;
        }
        if self.is_taken && read(file, self.index).is_some_and(|record| self.is_mine(&record)) {
            return true;
        }
        self.is_taken = false;
        let mut free = None;
        for index in 0..MAX_RECORDS {
            let Some(record) = read(file, index) else {
                free = free.or(Some(index));
                break;
            };
            // What this process was before an exec, and what the dead left.
            let is_free = record.magic != MAGIC || self.is_former_self(&record) || !is_alive(&record.process, self);
            if is_free {
                free = free.or(Some(index));
            }
            if self.is_former_self(&record) {
                let _ = sys::write_at(file.fd, &[0; size_of::<Record>()], offset(index));
            }
        }
        let Some(index) = free else { return false };
        self.index = index;
        self.is_taken = self.write(file, &self.record(state));
        self.is_taken
    }

    /// This process's record, with nothing granted.
    fn record(&self, state: &State) -> Record {
        Record {
            magic: MAGIC,
            job: job_key(state),
            process: self.process,
            copy: copy(),
            devices: [Share::default(); MAX_DEVICES],
            unused: [0; 432],
        }
    }

    fn write(&self, file: &Locked<'_>, record: &Record) -> bool {
        let bytes = record.as_bytes();
        sys::write_at(file.fd, bytes, offset(self.index)) == bytes.len() as isize
    }

    fn is_mine(&self, record: &Record) -> bool {
        record.magic == MAGIC && record.process == self.process && record.copy == copy()
    }

    fn is_former_self(&self, record: &Record) -> bool {
        let of_now = Process {
            image: self.process.image,
            ..record.process
        };
        record.magic == MAGIC && of_now == self.process && record.process.image != self.process.image
    }

    /// What the job's other living processes hold on a device, and the least limit that a broker told one of them.
    fn others(&self, state: &State, file: &Locked<'_>, uuid: &[u8; 16]) -> (u64, u64) {
        let job = job_key(state);
        let (mut sum, mut limit) = (0_u64, u64::MAX);
        for index in 0..MAX_RECORDS {
            let Some(record) = read(file, index) else { break };
            if record.magic != MAGIC || record.job != job || self.is_mine(&record) || self.is_former_self(&record) {
                continue;
            }
            let shares = record.devices.iter().filter(|share| share.uuid == *uuid);
            let granted = shares.fold(0_u64, |sum, share| {
                limit = if share.limit == 0 {
                    limit
                } else {
                    limit.min(share.limit)
                };
                sum.saturating_add(share.granted)
            });
            if granted > 0 && is_alive(&record.process, self) {
                sum = sum.saturating_add(granted);
            }
        }
        (sum, limit)
    }
}

fn offset(index: usize) -> u64 {
    (index as u64).wrapping_mul(size_of::<Record>() as u64)
}

/// `None`: beyond the end of the file.
fn read(file: &Locked<'_>, index: usize) -> Option<Record> {
    let mut bytes = [0; size_of::<Record>()];
    (sys::read_at(file.fd, &mut bytes, offset(index)) == bytes.len() as isize)
        .then(|| Record::read_from_bytes(&bytes).ok())
        .flatten()
}

/// This copy of the library, among all that the process may have loaded.
fn copy() -> u64 {
    static HERE: u8 = 0;
    (&raw const HERE) as u64
}

/// The token; for a process that was put into no job, what limits it.
fn job_key(state: &State) -> [u8; TOKEN_BYTES] {
    let settings = state.settings();
    if settings.has_token {
        return settings.token;
    }
    let limit = settings.memory_limit.unwrap_or(0).to_le_bytes();
    // FNV-1a: users do not hide from themselves.
    let hash = settings
        .environment
        .as_bytes()
        .iter()
        .chain(&limit)
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    let mut key = [0; TOKEN_BYTES];
    for (to, from) in key.iter_mut().zip(b"default ".iter().chain(&hash.to_le_bytes())) {
        *to = *from;
    }
    key
}

/// Opens and locks the file. `None`: there is none to be had, or another process keeps it longer than `wait_ns`.
fn open<'a>(state: &'a State, seat: &mut Seat, wait_ns: u64) -> Option<Locked<'a>> {
    // Whoever had it open before us was taken away by a jump.
    close_leftover(state);
    let fd = open_file(state, seat)?;
    // SAFETY: `seated` is held.
    let kept = unsafe { &mut *state.seat_file.get() };
    *kept = Kept::take(fd)?;
    let file = Locked { state, fd: kept.fd()? };
    let end = sys::now_ns().saturating_add(wait_ns);
    let mut pause = 50_000;
    while !sys::lock_file(file.fd) {
        if sys::now_ns() >= end {
            return None;
        }
        sys::sleep_ns(pause);
        pause = (pause * 2).min(2_000_000);
    }
    Some(file)
}

fn open_file(state: &State, seat: &mut Seat) -> Option<c_int> {
    if !seat.path.is_empty() {
        return open_own(&seat.path);
    }
    let mut shared = Text::new();
    shared.push(state.settings().socket_dir.as_bytes()).push(LEAF);
    if let Some(fd) = open_own(&shared) {
        seat.path = shared;
        return Some(fd);
    }
    // No folder, or one of a managed host's broker: the user's own is the next that all processes of a job find.
    let mut own = Text::<PATH_BYTES>::new();
    own.push("/tmp/partage-").push_number(u64::from(sys::effective_uid()));
    sys::make_folder(own.as_c_str());
    let folder = sys::open(own.as_c_str(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW, 0);
    let folder = c_int::try_from(folder).ok().filter(|fd| *fd >= 0)?;
    let is_own = sys::is_own(folder);
    sys::close(folder);
    own.push(LEAF);
    let fd = is_own.then(|| open_own(&own)).flatten()?;
    seat.path = own;
    Some(fd)
}

fn open_own(path: &Text<PATH_BYTES>) -> Option<c_int> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let fd = path
        .is_complete()
        .then(|| c_int::try_from(sys::open(path.as_c_str(), flags, 0o600)).ok())
        .flatten()
        .filter(|fd| *fd >= 0)?;
    if !sys::is_own(fd) {
        sys::close(fd);
        return None;
    }
    Some(fd)
}

fn this_process() -> Option<Process> {
    let stat = Stat::of(u64::from(sys::pid()))?;
    let mut namespace = 0;
    let link = sys::open(c"/proc/self/ns/pid", libc::O_RDONLY, 0);
    if let Some(fd) = c_int::try_from(link).ok().filter(|fd| *fd >= 0) {
        namespace = sys::identity(fd).map_or(0, |(_, inode)| inode);
        sys::close(fd);
    }
    Some(Process {
        pid: u64::from(sys::pid()),
        start: stat.start,
        namespace,
        image: stat.image,
    })
}

/// Is the process of a record still there? One of another pid namespace cannot be looked at, and counts.
fn is_alive(process: &Process, seat: &Seat) -> bool {
    process.namespace != seat.process.namespace
        || Stat::of(process.pid).is_some_and(|stat| !stat.has_ended && stat.start == process.start)
}

/// What `/proc/PID/stat` says.
struct Stat {
    has_ended: bool,
    start: u64,
    image: u64,
}

impl Stat {
    /// `None`: no such process.
    fn of(pid: u64) -> Option<Self> {
        let mut path = Text::<64>::new();
        path.push("/proc/").push_number(pid).push("/stat");
        let file = sys::open(path.as_c_str(), libc::O_RDONLY, 0);
        let file = c_int::try_from(file).ok().filter(|fd| *fd >= 0)?;
        let mut buffer = [0_u8; 1024];
        let length = sys::read(file, &mut buffer);
        sys::close(file);
        let text = buffer.get(..usize::try_from(length).ok()?)?;
        // The name may hold anything; its closing bracket is the last one. Field 3, the state, follows.
        let end = text.iter().rposition(|byte| *byte == b')')?;
        let mut fields = text.get(end + 2..)?.split(|byte| *byte == b' ');
        let state = fields.next()?;
        let threads = fields.nth(16).and_then(text::parse_number)?;
        let start = fields.nth(1).and_then(text::parse_number)?;
        let code = fields.nth(3).and_then(text::parse_number).unwrap_or(0);
        let stack = fields.nth(1).and_then(text::parse_number).unwrap_or(0);
        Some(Self {
            // A leader that ended before its threads is a zombie too.
            has_ended: state == b"X" || (state == b"Z" && threads <= 1),
            start,
            image: code ^ stack,
        })
    }
}
