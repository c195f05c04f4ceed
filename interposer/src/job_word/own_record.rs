// SPDX-License-Identifier: Apache-2.0
//! The file in which processes record their grants while their broker is away, and this process's record in it. The
//! kernel takes the file's lock from a process that dies with it.

use core::ffi::c_int;

use partage_protocol::message::{MAX_DEVICES, TOKEN_BYTES};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::guest::descriptor::Kept;
use crate::guest::lock::Guarded;
use crate::guest::sys;
use crate::guest::text::{self, Text};
use crate::settings::{PATH_BYTES, Settings};
use crate::state::State;
use crate::state::rooms::{Owner, Room};

/// Name of the file, in the socket folder, or in the user's own where this process may not write there.
const LEAF: &str = "/jobs.alone";
/// First word of a record that was ever used (`PTGALON1`).
const MAGIC: u64 = u64::from_le_bytes(*b"PTGALON1");
/// Records in a file at most; a process that finds no place gets no memory.
const MAX_RECORDS: usize = 1024;

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
pub struct Share {
    /// The device.
    pub uuid: [u8; 16],
    /// Bytes.
    pub granted: u64,
    /// The job's limit as the last broker said it; 0 where it said nothing.
    pub limit: u64,
}

// SAFETY: all-zero memory is a free lock and no record; nothing else lies in this room.
unsafe impl Room for Guarded<OwnRecord> {
    const OWNER: Owner = Owner::Record;
}

/// This process's record.
#[inline(always)]
pub fn of(state: &State) -> &Guarded<OwnRecord> {
    state.room()
}

/// This process's record, and where the file lies. All-zero memory is "none yet".
pub struct OwnRecord {
    process: Process,
    index: usize,
    is_taken: bool,
    /// Where the file lies, once it was opened.
    path: Text<PATH_BYTES>,
    /// The file, while it is open.
    file: Kept,
}

/// The file, open and locked until this is dropped.
pub struct Open<'a> {
    own: &'a mut OwnRecord,
    fd: c_int,
    job: [u8; TOKEN_BYTES],
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.own.close();
    }
}

impl OwnRecord {
    /// Does this process have a record, as far as it knows?
    pub fn is_taken(&self) -> bool {
        self.is_taken
    }

    /// Was no file to be had, here or in the user's own folder?
    pub fn is_unreachable(&self) -> bool {
        self.path.is_empty()
    }

    /// Unlocks and closes the file, if it is open.
    pub fn close(&mut self) {
        if let Some(fd) = self.file.fd() {
            // A child that was forked meanwhile has the same open file: closing ours alone would leave it locked.
            sys::unlock_file(fd);
        }
        self.file.close();
    }

    /// The process may be another one from now on, with a record of its own.
    pub fn forget(&mut self) {
        self.close();
        (self.process, self.is_taken) = (Process::default(), false);
    }

    /// Opens and locks the file. `None`: there is none to be had, or another process keeps it longer than `wait_ns`.
    pub fn open(&mut self, settings: &Settings, wait_ns: u64) -> Option<Open<'_>> {
        // Open still: a jump took the frame away that had opened it.
        self.close();
        self.file = Kept::take(self.open_file(settings)?)?;
        let file = Open {
            fd: self.file.fd()?,
            job: job_key(settings),
            own: self,
        };
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

    fn open_file(&mut self, settings: &Settings) -> Option<c_int> {
        if !self.path.is_empty() {
            return open_own(&self.path);
        }
        let mut shared = Text::new();
        shared.push(settings.socket_dir.as_bytes()).push(LEAF);
        if let Some(fd) = open_own(&shared) {
            self.path = shared;
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
        self.path = own;
        Some(fd)
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
}

impl Open<'_> {
    /// Makes sure that this process has a record. `false`: there is no place for one.
    pub fn find(&mut self) -> bool {
        if self.own.process.pid == 0 {
            // Without /proc the living could not be told from the dead.
            let Some(process) = this_process() else { return false };
            self.own.process = process;
        }
        if self.own.is_taken
            && self
                .read(self.own.index)
                .is_some_and(|record| self.own.is_mine(&record))
        {
            return true;
        }
        self.own.is_taken = false;
        let mut free = None;
        for index in 0..MAX_RECORDS {
            let Some(record) = self.read(index) else {
                free = free.or(Some(index));
                break;
            };
            // What this process was before an exec, and what the dead left.
            let is_free =
                record.magic != MAGIC || self.own.is_former_self(&record) || !is_alive(&record.process, self.own);
            if is_free {
                free = free.or(Some(index));
            }
            if self.own.is_former_self(&record) {
                let _ = sys::write_at(self.fd, &[0; size_of::<Record>()], offset(index));
            }
        }
        let Some(index) = free else { return false };
        self.own.index = index;
        self.own.is_taken = self.write([Share::default(); MAX_DEVICES]);
        self.own.is_taken
    }

    /// Writes this process's record. `false`: it could not be written.
    #[inline(never)] // one body: the library is mapped by every process of a job
    pub fn write(&self, devices: [Share; MAX_DEVICES]) -> bool {
        let record = Record {
            magic: MAGIC,
            job: self.job,
            process: self.own.process,
            copy: copy(),
            devices,
            unused: [0; 432],
        };
        let bytes = record.as_bytes();
        sys::write_at(self.fd, bytes, offset(self.own.index)) == bytes.len() as isize
    }

    /// What the job's other living processes hold on a device, and the least limit that a broker told one of them.
    pub fn others(&self, uuid: &[u8; 16]) -> (u64, u64) {
        let (mut sum, mut limit) = (0_u64, u64::MAX);
        for index in 0..MAX_RECORDS {
            let Some(record) = self.read(index) else { break };
            let is_own = self.own.is_mine(&record) || self.own.is_former_self(&record);
            if record.magic != MAGIC || record.job != self.job || is_own {
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
            if granted > 0 && is_alive(&record.process, self.own) {
                sum = sum.saturating_add(granted);
            }
        }
        (sum, limit)
    }

    /// `None`: beyond the end of the file.
    fn read(&self, index: usize) -> Option<Record> {
        let mut bytes = [0; size_of::<Record>()];
        (sys::read_at(self.fd, &mut bytes, offset(index)) == bytes.len() as isize)
            .then(|| Record::read_from_bytes(&bytes).ok())
            .flatten()
    }
}

fn offset(index: usize) -> u64 {
    (index as u64).wrapping_mul(size_of::<Record>() as u64)
}

/// This copy of the library, among all that the process may have loaded.
fn copy() -> u64 {
    static HERE: u8 = 0;
    (&raw const HERE) as u64
}

/// The job's token; a hash of the limits where the process was put into no job.
fn job_key(settings: &Settings) -> [u8; TOKEN_BYTES] {
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
    let link = sys::open_own(c"ns/pid", libc::O_RDONLY);
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

/// Is the process of a record still there? A process of another pid namespace cannot be seen, and counts.
fn is_alive(process: &Process, own: &OwnRecord) -> bool {
    process.namespace != own.process.namespace
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
