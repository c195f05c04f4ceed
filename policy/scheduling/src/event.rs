// SPDX-License-Identifier: Apache-2.0
//! What the scheduler is told: who is there under which terms, and what was seen on a device.
//!
//! Times are nanoseconds of one monotonic clock, parts of device time are parts per million.

use partage_gpu_time::DeviceTime;
use partage_protocol::terms::{Class, DEFAULT_WEIGHT};
use partage_protocol::units::{ClientId, JobId};

/// A device; the caller's numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceKey(pub u32);

/// The terms of a job on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Promised part of device time, parts per million; 0: none.
    pub promise_ppm: u32,
    /// Weight among the jobs without a promise; 0 counts as 1.
    pub weight: u32,
    /// Class.
    pub class: Class,
    /// The user (uid) with whose other jobs it shares one part of the time that is not promised; `None`: it counts by
    /// itself.
    pub user: Option<u32>,
    /// Part of device time never exceeded, parts per million.
    pub cap_ppm: Option<u32>,
    /// The job's work on several devices waits for one another (collectives): its gates open and close together.
    pub is_gang: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            promise_ppm: 0,
            weight: DEFAULT_WEIGHT,
            class: Class::Normal,
            user: None,
            cap_ppm: None,
            is_gang: false,
        }
    }
}

/// What was seen of one client on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Whose.
    pub client: ClientId,
    /// A thread stands at the closed gate or at the depth limit.
    pub is_waiting: bool,
    /// A thread is between its gate check and the end of its launch call.
    pub is_entering: bool,
    /// Submitted compute work has not retired.
    pub is_busy: bool,
    /// Submitted work has not begun, and none has that has not retired: it waits for the device, or in its stream for a
    /// host function, a copy, another stream.
    pub is_pending: bool,
    /// What its retired work took.
    pub device_time: DeviceTime,
    /// Changes whenever work retires.
    pub retired: u64,
    /// Longest recent unit (kernel or graph); 0: unknown.
    pub unit_ns: u64,
    /// The process is stopped.
    pub is_stopped: bool,
}

impl Observation {
    /// An idle client that never did anything.
    pub fn idle(client: ClientId) -> Self {
        Self {
            client,
            is_waiting: false,
            is_entering: false,
            is_busy: false,
            is_pending: false,
            device_time: DeviceTime::UNKNOWN,
            retired: 0,
            unit_ns: 0,
            is_stopped: false,
        }
    }
}

/// Something happened.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The job's terms on the device are these, from now on.
    JobTerms {
        /// Whose.
        job: JobId,
        /// Where.
        device: DeviceKey,
        /// What.
        terms: Terms,
    },
    /// The job is gone, with all its clients, on all devices.
    JobGone {
        /// Which.
        job: JobId,
    },
    /// A client may use the device. Its gate is closed until a command opens it.
    ClientJoined {
        /// Who.
        client: ClientId,
        /// Its job.
        job: JobId,
        /// Where.
        device: DeviceKey,
    },
    /// The client is gone, on all devices.
    ClientLeft {
        /// Who.
        client: ClientId,
    },
    /// What is to be seen of the clients of a device, now, after all earlier commands were carried out.
    Observe {
        /// Where.
        device: DeviceKey,
        /// One for each client; one that is missing is as it was.
        seen: &'a [Observation],
    },
    /// One job at a time must have the device (memory is swapped, or isolation was asked for), or no longer.
    Residency {
        /// Where.
        device: DeviceKey,
        /// Whether it must.
        exclusive: bool,
    },
    /// Processes that nobody controls use the device's time, or no longer.
    Unmanaged {
        /// Where.
        device: DeviceKey,
        /// Whether they do, as much as one more client that always has work.
        busy: bool,
        /// Whether what nobody else can be told to have had may be theirs: they use some of it, or nobody knows.
        felt: bool,
    },
    /// The clients of a device mark their work from now on: what was seen of them before was no measure of what they
    /// got.
    Marked {
        /// Where.
        device: DeviceKey,
    },
    /// What a job was charged was not what it used, as somebody found out who sees the device itself.
    Corrected {
        /// Where.
        device: DeviceKey,
        /// Whose.
        job: JobId,
        /// What it had beyond what it was charged, in nanoseconds; negative where it was charged too much.
        ns: i64,
        /// It is charged evenly over this time from now on, so that no window shows all of it at once.
        over_ns: u64,
    },
    /// Time has passed.
    Tick,
}
