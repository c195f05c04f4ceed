// SPDX-License-Identifier: Apache-2.0
//! NVML's process lists: only the job's own processes, in every version, as if there were no others.
//!
//! A process is the job's when its environment began with our token (`/proc/PID/environ` is what it was started with,
//! so a program cannot drop out by changing its own), or, without a token, when it is in our control group. What we may
//! not read is somebody else's.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use core::ffi::{c_uint, c_void};

use partage_abi::nvml::{
    NvmlAccountingStats, NvmlDevice, NvmlProcessDetailList, NvmlProcessDetailV1, NvmlProcessInfo, NvmlProcessInfoV1,
    NvmlProcessInfoV2, NvmlReturn,
};
use partage_protocol::message::TOKEN_BYTES;

use super::nvml_handles::now;
use super::nvml_listed::shared;
use crate::guest::errno;
use crate::guest::sys;
use crate::guest::text::{self, Text};
use crate::real::call_nvml;
use crate::settings::PATH_BYTES;
use crate::state::State;

/// An entry of some list.
pub(super) trait Process: Copy {
    /// Where in it the process id stands: what tells whose it is.
    const PID_AT: usize;
}

macro_rules! processes {
    ($( $info:ty ),*) => { $(
        impl Process for $info {
            const PID_AT: usize = core::mem::offset_of!($info, pid);
        }
    )* };
}
pub(super) use processes;

processes!(
    NvmlProcessInfo,
    NvmlProcessInfoV1,
    NvmlProcessInfoV2,
    NvmlProcessDetailV1
);

impl Process for c_uint {
    const PID_AT: usize = 0;
}

macro_rules! lists {
    ($( $symbol:ident: $info:ty; )*) => { $(
        pub fn $symbol(device: NvmlDevice, info_count: *mut c_uint, infos: *mut $info) -> NvmlReturn {
            let device = now(device);
            let ask = |count, infos| call_nvml!($symbol(device, count, infos));
            keep_ours(ask, info_count, infos, NvmlReturn::SUCCESS)
        }
    )* };
}

lists! {
    nvmlDeviceGetComputeRunningProcesses: NvmlProcessInfoV1;
    nvmlDeviceGetComputeRunningProcesses_v2: NvmlProcessInfoV2;
    nvmlDeviceGetComputeRunningProcesses_v3: NvmlProcessInfo;
    nvmlDeviceGetGraphicsRunningProcesses: NvmlProcessInfoV1;
    nvmlDeviceGetGraphicsRunningProcesses_v2: NvmlProcessInfoV2;
    nvmlDeviceGetGraphicsRunningProcesses_v3: NvmlProcessInfo;
    nvmlDeviceGetMPSComputeRunningProcesses: NvmlProcessInfoV1;
    nvmlDeviceGetMPSComputeRunningProcesses_v2: NvmlProcessInfoV2;
    nvmlDeviceGetMPSComputeRunningProcesses_v3: NvmlProcessInfo;
}

pub fn nvmlDeviceGetAccountingPids(device: NvmlDevice, count: *mut c_uint, pids: *mut c_uint) -> NvmlReturn {
    let device = now(device);
    let ask = |count, pids| call_nvml!(nvmlDeviceGetAccountingPids(device, count, pids));
    keep_ours(ask, count, pids, NvmlReturn::SUCCESS)
}

/// A process of another job is none that was ever seen.
#[inline(never)] // see `guard::DEEPEST`
pub fn nvmlDeviceGetAccountingStats(device: NvmlDevice, pid: c_uint, stats: *mut NvmlAccountingStats) -> NvmlReturn {
    // SAFETY: plain numbers; zero is a value of each.
    let mut own: NvmlAccountingStats = unsafe { core::mem::zeroed() };
    let is_asked = !stats.is_null();
    let place = if is_asked { &raw mut own } else { stats };
    let result = call_nvml!(nvmlDeviceGetAccountingStats(now(device), pid, place));
    if !result.is_success() || !is_asked {
        return result;
    }
    if shared().is_some_and(|(state, _)| !errno::preserving(|| Identity::own(state).is_shared_by(pid))) {
        return NvmlReturn::NOT_FOUND;
    }
    // SAFETY: not null, and NVML would have written this structure there.
    unsafe { stats.write_unaligned(own) };
    result
}

/// The structure begins with its version, whose lower bytes are its size, and the process id; what follows may grow
/// with versions to come.
#[inline(never)] // see `guard::DEEPEST`
pub fn nvmlDeviceGetAccountingStats_v2(device: NvmlDevice, stats: *mut c_void) -> NvmlReturn {
    const LARGEST: usize = 512;
    let mut own = [0_u64; LARGEST / 8];
    let place: *mut c_void = own.as_mut_ptr().cast();
    let mut version: c_uint = 0;
    if !stats.is_null() {
        // SAFETY: not null, and by the contract of the entry point it begins with its version.
        version = unsafe { stats.cast::<c_uint>().read_unaligned() };
    }
    let size = version as usize & 0xff_ffff;
    if !(8..=LARGEST).contains(&size) {
        return call_nvml!(nvmlDeviceGetAccountingStats_v2(device, stats));
    }
    // SAFETY: as long as its version says, and no longer than ours.
    unsafe { core::ptr::copy_nonoverlapping(stats.cast::<u8>(), place.cast(), size) };
    let result = call_nvml!(nvmlDeviceGetAccountingStats_v2(now(device), place));
    if !result.is_success() {
        return result;
    }
    // SAFETY: within our copy.
    let pid = unsafe { place.cast::<c_uint>().add(1).read() };
    if shared().is_some_and(|(state, _)| !errno::preserving(|| Identity::own(state).is_shared_by(pid))) {
        return NvmlReturn::NOT_FOUND;
    }
    // SAFETY: as above.
    unsafe { core::ptr::copy_nonoverlapping(place.cast::<u8>(), stats.cast(), size) };
    result
}

/// The first version of the structure, as its field `version` has it: size, and number in the highest byte.
const DETAIL_LIST_V1: c_uint = size_of::<NvmlProcessDetailList>() as c_uint | 1 << 24;

pub fn nvmlDeviceGetRunningProcessDetailList(device: NvmlDevice, plist: *mut NvmlProcessDetailList) -> NvmlReturn {
    if plist.is_null() {
        return call_nvml!(nvmlDeviceGetRunningProcessDetailList(device, plist));
    }
    // SAFETY: not null, and every version of the structure begins with its version.
    if unsafe { (&raw const (*plist).version).read_unaligned() } != DETAIL_LIST_V1 {
        // An unknown layout is NVML's to refuse.
        return call_nvml!(nvmlDeviceGetRunningProcessDetailList(device, plist));
    }
    // SAFETY: as its version says.
    let given = unsafe { plist.read_unaligned() };
    let mut count = given.numProcArrayEntries;
    let device = now(device);
    let ask = |count: *mut c_uint, entries: *mut NvmlProcessDetailV1| {
        // SAFETY: `keep_ours` passes the count below, or one of its own.
        let room = unsafe { count.read() };
        let mut list = NvmlProcessDetailList {
            numProcArrayEntries: room,
            procArray: entries,
            ..given
        };
        let result = call_nvml!(nvmlDeviceGetRunningProcessDetailList(device, &raw mut list));
        // SAFETY: as above.
        unsafe { count.write(list.numProcArrayEntries) };
        result
    };
    let result = keep_ours(ask, &raw mut count, given.procArray, NvmlReturn::SUCCESS);
    // SAFETY: as above.
    unsafe { (&raw mut (*plist).numProcArrayEntries).write_unaligned(count) };
    result
}

/// A list of the job's processes only, by the protocol of all lists: the count says how much room there is and is told
/// how many there are; INSUFFICIENT_SIZE when they do not fit. `ask` asks NVML, first with the program's own
/// arguments, so that it refuses what it refuses; `none` is its answer where there is nobody.
pub(super) fn keep_ours<T: Process>(
    ask: impl Fn(*mut c_uint, *mut T) -> NvmlReturn,
    count: *mut c_uint,
    infos: *mut T,
    none: NvmlReturn,
) -> NvmlReturn {
    Entries::of::<T>().keep_ours(&|count, entries| ask(count, entries.cast()), count, infos.cast(), none)
}

/// Hands every entry of a list that is the job's to `take`. `false`: NVML does not say.
pub(super) fn each_of_ours<T: Process>(
    ask: impl Fn(*mut c_uint, *mut T) -> NvmlReturn,
    mut take: impl FnMut(T),
) -> bool {
    // SAFETY: called with entries of this type.
    let mut take = |entry: *const u8| take(unsafe { entry.cast::<T>().read_unaligned() });
    Entries::of::<T>().each_of_ours(&|count, entries| ask(count, entries.cast()), &mut take)
}

type Ask<'a> = &'a dyn Fn(*mut c_uint, *mut u8) -> NvmlReturn;

/// The layout of a list's entries. Lists differ in nothing else, and one body for all keeps the library small.
#[derive(Clone, Copy)]
struct Entries {
    size: usize,
    pid_at: usize,
}

impl Entries {
    const fn of<T: Process>() -> Self {
        Self {
            size: size_of::<T>(),
            pid_at: T::PID_AT,
        }
    }

    #[inline(never)]
    fn keep_ours(self, ask: Ask<'_>, count: *mut c_uint, infos: *mut u8, none: NvmlReturn) -> NvmlReturn {
        let mut room = 0;
        if !count.is_null() {
            // SAFETY: not null, and by the contract of the entry points it leads to a count.
            room = unsafe { count.read_unaligned() };
        }
        let result = ask(count, infos);
        let is_list = result.is_success() || result == NvmlReturn::INSUFFICIENT_SIZE;
        if !is_list || count.is_null() {
            return result;
        }
        let Some((state, _)) = shared() else { return result };
        errno::preserving(|| {
            let identity = Identity::own(state);
            // SAFETY: NVML succeeded with this pointer, or said how much room it wants.
            let filled = unsafe { count.read_unaligned() };
            let (ours, result) = if !result.is_success() {
                let Some(mut gathered) = self.gather(filled, ask) else {
                    return result;
                };
                let ours = gathered.keep(&identity);
                if ours > 0 && (infos.is_null() || ours > room) {
                    (ours, result)
                } else {
                    gathered.hand_over(infos);
                    (ours, NvmlReturn::SUCCESS)
                }
            } else if infos.is_null() {
                (filled, result)
            } else {
                (self.keep(infos, filled, &identity), result)
            };
            // SAFETY: as above.
            unsafe { count.write_unaligned(ours) };
            if ours == 0 { none } else { result }
        })
    }

    #[inline(never)]
    fn each_of_ours(self, ask: Ask<'_>, take: &mut dyn FnMut(*const u8)) -> bool {
        let Some((state, _)) = shared() else { return false };
        errno::preserving(|| {
            let mut count: c_uint = 0;
            let result = ask(&raw mut count, core::ptr::null_mut());
            if result == NvmlReturn::NOT_FOUND || (result.is_success() && count == 0) {
                return true;
            }
            if !result.is_success() && result != NvmlReturn::INSUFFICIENT_SIZE {
                return false;
            }
            let is_nobody = core::cell::Cell::new(false);
            let gathered = self.gather(count, &|count, entries| {
                let result = ask(count, entries);
                is_nobody.set(result == NvmlReturn::NOT_FOUND);
                result
            });
            let Some(mut gathered) = gathered else {
                return is_nobody.get();
            };
            gathered.keep(&Identity::own(state));
            for index in 0..gathered.filled {
                take(gathered.entries.wrapping_add((index as usize).wrapping_mul(self.size)));
            }
            true
        })
    }

    /// Moves the job's processes of a list to its front; answers how many they are.
    fn keep(self, entries: *mut u8, filled: c_uint, identity: &Identity) -> c_uint {
        let mut kept = 0;
        let place = |index: c_uint| entries.wrapping_add((index as usize).wrapping_mul(self.size));
        for index in 0..filled {
            // SAFETY: NVML filled that many.
            let pid = unsafe { place(index).wrapping_add(self.pid_at).cast::<c_uint>().read_unaligned() };
            if identity.is_shared_by(pid) {
                // SAFETY: `kept` never passes `index`, and both are whole entries.
                unsafe { core::ptr::copy(place(index), place(kept), self.size) };
                kept += 1;
            }
        }
        kept
    }

    /// A whole list in memory of our own: the program's room, enough for its job's processes, may be too small for
    /// everybody's. `None`: NVML fails with it, or the host has no memory.
    fn gather(self, expected: c_uint, ask: Ask<'_>) -> Option<Gathered> {
        let mut wanted = expected;
        // Processes come and go between two calls.
        for _ in 0..4 {
            wanted = wanted.checked_mul(2)?.checked_add(16)?;
            let bytes = (wanted as usize)
                .checked_mul(self.size)?
                .checked_next_multiple_of(4096)?;
            let mut own = Gathered {
                layout: self,
                entries: sys::map_private(bytes)?.cast(),
                bytes,
                filled: wanted,
            };
            let result = ask(&raw mut own.filled, own.entries);
            if result.is_success() {
                own.filled = own.filled.min(wanted);
                return Some(own);
            }
            if result != NvmlReturn::INSUFFICIENT_SIZE {
                return None;
            }
            wanted = own.filled.max(wanted);
        }
        None
    }
}

/// A list in memory of our own.
struct Gathered {
    layout: Entries,
    entries: *mut u8,
    bytes: usize,
    filled: c_uint,
}

impl Gathered {
    fn keep(&mut self, identity: &Identity) -> c_uint {
        self.filled = self.layout.keep(self.entries, self.filled, identity);
        self.filled
    }

    /// Copies to the program, which has room for it; nothing when nothing is left.
    fn hand_over(&self, infos: *mut u8) {
        let bytes = (self.filled as usize).wrapping_mul(self.layout.size);
        if !infos.is_null() {
            // SAFETY: within our list, and within the room that the program says it has.
            unsafe { core::ptr::copy_nonoverlapping(self.entries, infos, bytes) };
        }
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and nothing points there any more.
        unsafe { sys::unmap(self.entries.cast(), self.bytes) };
    }
}

const VARIABLE: &[u8] = b"PARTAGE_TOKEN=";

/// What the processes of our job have in common.
#[expect(clippy::large_enum_variant, reason = "lives on one frame, and nothing may allocate")]
enum Identity {
    Token([u8; TOKEN_BYTES]),
    ControlGroup(Text<PATH_BYTES>),
}

impl Identity {
    fn own(state: &State) -> Self {
        if state.settings().has_token {
            return Self::Token(state.settings().token);
        }
        Self::ControlGroup(control_group(sys::open_own(c"cgroup", libc::O_RDONLY)))
    }

    fn is_shared_by(&self, pid: c_uint) -> bool {
        if pid == sys::pid() {
            return true;
        }
        let mut path = Text::<64>::new();
        path.push("/proc/").push_number(pid.into());
        match self {
            Self::Token(token) => {
                path.push("/environ");
                environment_has(sys::open(path.as_c_str(), libc::O_RDONLY, 0), token)
            }
            Self::ControlGroup(own) => {
                path.push("/cgroup");
                !own.is_empty()
                    && control_group(sys::open(path.as_c_str(), libc::O_RDONLY, 0)).as_bytes() == own.as_bytes()
            }
        }
    }
}

fn control_group(opened: isize) -> Text<PATH_BYTES> {
    let mut text = Text::new();
    read_parts(opened, |part| {
        text.push(part);
        true
    });
    text
}

/// Does the environment that a process was started with hold this token?
fn environment_has(opened: isize, token: &[u8; TOKEN_BYTES]) -> bool {
    let mut wanted = Text::<{ 14 + 2 * TOKEN_BYTES + 1 }>::new();
    wanted.push(VARIABLE).push_hex(token);
    let wanted = wanted.as_bytes();
    // How much of the wanted entry the bytes so far match; `None` inside an entry that is another.
    let mut matched = Some(0);
    let mut found = false;
    read_parts(opened, |part| {
        for byte in part {
            if *byte == 0 {
                found |= matched == Some(wanted.len());
                matched = Some(0);
            } else {
                matched = matched.filter(|at| same(wanted.get(*at), *byte)).map(|at| at + 1);
            }
        }
        !found
    });
    found
}

/// Hexadecimal digits may be written in either case.
fn same(wanted: Option<&u8>, byte: u8) -> bool {
    wanted.is_some_and(|wanted| {
        *wanted == byte || (text::hex_digit(byte).is_some() && wanted.eq_ignore_ascii_case(&byte))
    })
}

/// Reads a file just opened in parts until it ends or `take` has enough.
fn read_parts(opened: isize, mut take: impl FnMut(&[u8]) -> bool) {
    let Some(fd) = i32::try_from(opened).ok().filter(|fd| *fd >= 0) else {
        return;
    };
    let mut buffer = [0_u8; 4096];
    loop {
        let length = sys::read(fd, &mut buffer);
        let part = usize::try_from(length)
            .ok()
            .and_then(|length| buffer.get(..length))
            .unwrap_or(&[]);
        if part.is_empty() || !take(part) {
            break;
        }
    }
    sys::close(fd);
}
