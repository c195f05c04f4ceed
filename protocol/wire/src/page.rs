// SPDX-License-Identifier: Apache-2.0
//! The two files that a client and the broker share.
//!
//! Both are memfds made by the broker and sealed SHRINK|GROW|SEAL. The *broker's page* ([`PAGE_BYTES`]) is writable by
//! the broker alone (the client gets a read-only open file); the *client's file* ([`ClientFile`]) begins with the
//! *client's page* and goes on with its time pages ([`gate`](crate::gate)); the client and its devices write it, and
//! the broker reads it as hints: what it enforces it recomputes. All words are naturally aligned atomics; one 128-byte
//! line per device (two cache lines: adjacent-line prefetch) keeps devices from contending.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::gate::TimePages;
use crate::message::{MAX_DEVICES, NO_INDEX};

/// Size of a page, and of the broker's file, in bytes.
pub const PAGE_BYTES: usize = 4096;
/// Size of the client's file in bytes.
pub const CLIENT_BYTES: usize = size_of::<ClientFile>();
/// First word of the broker's page (`PTGB`).
pub const BROKER_MAGIC: u32 = u32::from_le_bytes(*b"PTGB");
/// First word of the client's page (`PTGC`).
pub const CLIENT_MAGIC: u32 = u32::from_le_bytes(*b"PTGC");
/// Layout version of both pages; another layout is another protocol major.
pub const LAYOUT: u32 = 7;

/// The page that only the broker writes.
#[repr(C, align(4096))]
pub struct BrokerPage {
    /// Identity and state of the client's attachment.
    pub head: BrokerHead,
    /// One line per slot.
    pub devices: [GrantLine; MAX_DEVICES],
}

/// First line of the broker's page.
#[repr(C, align(128))]
pub struct BrokerHead {
    /// [`BROKER_MAGIC`], written last when the page is ready.
    pub magic: AtomicU32,
    /// [`LAYOUT`].
    pub layout: AtomicU32,
    /// The client's id.
    pub client: AtomicU64,
    /// The job's number.
    pub job: AtomicU64,
    /// Which broker instance wrote last; changes when a new broker adopts the client.
    pub epoch: AtomicU64,
    /// Clients of the job that are attached: 1 means that this client's use is the job's use.
    pub clients_in_job: AtomicU32,
    /// Slots in use.
    pub device_count: AtomicU32,
    /// Monotonic nanoseconds at which the broker last looked at its gates. While one is closed, or the hold is, it
    /// looks at least every tenth of [`HEARTBEAT_NS`](crate::gate::HEARTBEAT_NS).
    pub heartbeat_ns: AtomicU64,
    /// Every call looks at what follows: a cache line of its own beside what the broker writes all the time.
    padding: [AtomicU64; 2],
    /// The hold word ([`hold`](crate::hold)). Whoever waits at the hold waits on it as a futex.
    pub hold: AtomicU32,
    /// Changes when a slot has another device than before: the job moved. The slot's own words are written first.
    pub placement: AtomicU32,
}

/// The device of a slot is a MIG instance: its UUID is written `MIG-…`.
pub const DEVICE_IS_MIG: u32 = 1;
/// From this bit of a device's flags on, a byte: its number among the GPUs that the client can open, plus one. That is
/// what `CUDA_VISIBLE_DEVICES` means where nobody but the host's user, or its manager of jobs, can have set it. 0: the
/// variable means places among the job's devices.
pub const DEVICE_NUMBER_SHIFT: u32 = 8;
const DEVICE_NUMBER: u32 = 0xff << DEVICE_NUMBER_SHIFT;

/// One device of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// UUID bytes as `cuDeviceGetUuid` gives them.
    pub uuid: [u8; 16],
    /// `nvidia-smi`'s index (PCI order) on this machine, or [`NO_INDEX`].
    pub index: u32,
    /// [`DEVICE_IS_MIG`], and the number at [`DEVICE_NUMBER_SHIFT`].
    pub flags: u32,
    /// The device's whole memory in bytes.
    pub total: u64,
}

impl Default for DeviceInfo {
    fn default() -> Self {
        Self {
            uuid: [0; 16],
            index: NO_INDEX,
            flags: 0,
            total: 0,
        }
    }
}

/// What the broker says about one device.
#[repr(C, align(128))]
pub struct GrantLine {
    /// **G**: bytes that this client may use without asking.
    pub granted: AtomicU64,
    /// The job's limit in bytes.
    pub limit: AtomicU64,
    /// **O**: bytes that the driver holds for this client's process beyond what its calls charged (contexts, modules,
    /// local memory, rounding), as last measured. What the job uses is Σ U + Σ O.
    pub overhead: AtomicU64,
    /// Work in flight that is allowed, in predicted nanoseconds; 0: one launch at a time;
    /// [`UNBOUNDED`](crate::gate::UNBOUNDED).
    pub depth_ns: AtomicU64,
    /// The gate word: [`OPEN`](crate::gate::OPEN) and an epoch. Whoever waits for the gate waits on it as a futex.
    pub gate: AtomicU32,
    /// [`MEASURED`](crate::gate::MEASURED) and the other flags beside it.
    pub gate_flags: AtomicU32,
    /// Changes when somebody else came to the device before work that began with [`UNSHARED`](crate::gate::UNSHARED)
    /// was done.
    pub spoiled: AtomicU32,
    /// `DEVICE_*` bits of the slot's device.
    pub device_flags: AtomicU32,
    /// The most that this client's process may hold, overhead included, in bytes; 0: the job's limit alone. What is
    /// enforced is the grant; this is what the program is to see.
    pub process_limit: AtomicU64,
    /// UUID of the slot's device, as two words in memory order. Written before the welcome, and when the job moved.
    pub uuid: [AtomicU64; 2],
    /// Its whole memory in bytes.
    pub total: AtomicU64,
    /// Its index, or [`NO_INDEX`].
    pub index: AtomicU32,
}

impl GrantLine {
    /// UUID of the slot's device.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        let mut uuid = [0; 16];
        let (first, second) = uuid.split_at_mut(8);
        let [low, high] = &self.uuid;
        first.copy_from_slice(&low.load(Ordering::Relaxed).to_ne_bytes());
        second.copy_from_slice(&high.load(Ordering::Relaxed).to_ne_bytes());
        uuid
    }

    /// Is the slot's device a MIG instance?
    #[must_use]
    pub fn is_mig(&self) -> bool {
        self.device_flags.load(Ordering::Relaxed) & DEVICE_IS_MIG != 0
    }

    /// What `CUDA_VISIBLE_DEVICES` calls the slot's device. `None`: its place among the job's devices.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        let number = (self.device_flags.load(Ordering::Relaxed) & DEVICE_NUMBER) >> DEVICE_NUMBER_SHIFT;
        number.checked_sub(1)
    }

    /// Says which device the slot has; it keeps the number under which the client came to know it. Answers whether it
    /// had another one before.
    pub fn show_device(&self, device: &DeviceInfo) -> bool {
        let before = self.uuid();
        let (first, second) = device.uuid.split_at(8);
        for (word, bytes) in self.uuid.iter().zip([first, second]) {
            word.store(bytes.try_into().map_or(0, u64::from_ne_bytes), Ordering::Relaxed);
        }
        self.total.store(device.total, Ordering::Relaxed);
        self.index.store(device.index, Ordering::Relaxed);
        let known = match device.flags & DEVICE_NUMBER {
            0 => self.device_flags.load(Ordering::Relaxed) & DEVICE_NUMBER,
            _ => 0,
        };
        self.device_flags.store(device.flags | known, Ordering::Relaxed);
        before != device.uuid && before != [0; 16]
    }
}

impl BrokerPage {
    /// Says which devices the job has, slot 0 first. A client that knew others learns by `placement` that it moved.
    pub fn show_devices(&self, devices: &[DeviceInfo]) {
        let mut has_moved = false;
        for (line, device) in self.devices.iter().zip(devices) {
            has_moved |= line.show_device(device);
        }
        if has_moved {
            self.head.placement.fetch_add(1, Ordering::Release);
        }
    }
}

/// The page that the client writes.
#[repr(C, align(4096))]
pub struct ClientPage {
    /// Identity and process-wide counters.
    pub head: ClientHead,
    /// One line per slot.
    pub devices: [UseLine; MAX_DEVICES],
}

/// The client's file.
#[repr(C, align(4096))]
pub struct ClientFile {
    /// What it uses.
    pub page: ClientPage,
    /// What it does with its time.
    pub time: TimePages,
}

/// First line of the client's page.
#[repr(C, align(128))]
pub struct ClientHead {
    /// [`CLIENT_MAGIC`], written by the broker at creation.
    pub magic: AtomicU32,
    /// [`LAYOUT`].
    pub layout: AtomicU32,
    /// Allocations refused because no broker answered.
    pub refused_no_broker: AtomicU64,
    /// Calls let through because sharing is off in this process.
    pub failed_open: AtomicU64,
    /// Rows of the driver table asked for by address that map to no row of ours.
    pub unknown_entry_points: AtomicU64,
    /// What ties the process to its device ([`ties`](crate::hold::ties)).
    pub ties: AtomicU64,
    /// Threads that stand at the hold now.
    pub wants: AtomicU32,
    /// Not 0 while a call that began before the process attached may be in the driver; 1 at creation, until the client
    /// has looked.
    pub early: AtomicU32,
}

/// What the client says about one device.
#[repr(C, align(128))]
pub struct UseLine {
    /// **U**: bytes charged, allocations in flight included.
    pub used: AtomicU64,
    /// Highest value of `used` seen.
    pub peak: AtomicU64,
    /// Live allocations.
    pub allocations: AtomicU64,
    /// Allocations denied by the limit.
    pub denied_limit: AtomicU64,
    /// Allocations denied because the device is full.
    pub denied_full: AtomicU64,
    /// Granted asks that the client has used or given up; lifts the broker's pin (`reservation::settle`).
    pub settled: AtomicU64,
    /// The part of `used` that the driver need not hold on the device: managed memory, charged in full, is resident
    /// only where it was touched.
    pub managed: AtomicU64,
    /// Operations on the ledger that began: an allocation before it is charged, a free before the driver is called.
    pub started: AtomicU64,
    /// Operations that ended, charged or refunded. While it equals `started`, and both stay what they are, `used` is
    /// what the driver has given; a reading of NVML in between can be compared with it.
    pub finished: AtomicU64,
}

const _: () = assert!(core::mem::offset_of!(BrokerHead, hold) == 64);
const _: () = assert!(size_of::<BrokerPage>() == PAGE_BYTES && size_of::<ClientPage>() == PAGE_BYTES);
