// SPDX-License-Identifier: Apache-2.0
//! What the scheduler wants done, each with its reason, and what it shows of a job.
//!
//! Commands are carried out in order, before the next observation is taken.

use partage_protocol::units::{ClientId, JobId};

use crate::event::DeviceKey;

/// How a device is shared (see the crate's diagram).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Regime {
    /// Several gates are open; who is ahead of its share is closed.
    Overlap,
    /// One job at a time; the device is drained in between.
    Turns,
}

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open the client's gate.
    Open {
        /// Where.
        device: DeviceKey,
        /// Whose.
        client: ClientId,
        /// Predicted device time that may be in flight; 0: one unit at a time; `None`: no bound.
        depth_ns: Option<u64>,
    },
    /// Close the client's gate.
    Close {
        /// Where.
        device: DeviceKey,
        /// Whose.
        client: ClientId,
    },
    /// The bound on the work in flight of an open gate has changed.
    Depth {
        /// Where.
        device: DeviceKey,
        /// Whose.
        client: ClientId,
        /// As in [`Action::Open`].
        depth_ns: Option<u64>,
    },
    /// The device is shared in another way from now on.
    Regime {
        /// Where.
        device: DeviceKey,
        /// How.
        regime: Regime,
    },
    /// The client's gate is closed, its work does not end, and others are no longer made to wait for it.
    NotDraining {
        /// Where.
        device: DeviceKey,
        /// Whose.
        client: ClientId,
    },
    /// The client that did not drain retires work again or is idle.
    Draining {
        /// Where.
        device: DeviceKey,
        /// Whose.
        client: ClientId,
    },
}

/// One thing to do and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// What.
    pub action: Action,
    /// Why, a few words for the log.
    pub reason: &'static str,
}

/// What a job is doing on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeState {
    /// Its gates are open and it uses or just used the device.
    Open,
    /// It wants the device and its gates are closed.
    Waiting,
    /// Its cap is used up for this period.
    Capped,
    /// It wants nothing.
    Idle,
    /// Its gates are closed and its work does not end.
    NotDraining,
}

/// Why a job waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// It does not wait.
    None,
    /// Its own cap.
    Cap,
    /// This job is owed time first.
    Neighbour(JobId),
    /// This job is of a higher class.
    Priority(JobId),
    /// Processes that nobody controls.
    Unmanaged,
}

/// A job on a device, as `ps` and `why` show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobView {
    /// Which job.
    pub job: JobId,
    /// Where.
    pub device: DeviceKey,
    /// The share it is entitled to now, among the jobs that want the device, and never more than its cap.
    pub asked_ppm: u32,
    /// What it was charged over the last second, as a part of that second.
    pub got_ppm_1s: u32,
    /// The same over the last minute.
    pub got_ppm_60s: u32,
    /// What it was charged since it came, in nanoseconds of device time.
    pub used_ns: u64,
    /// The part of it that no look saw: what [`Event::Corrected`](crate::Event::Corrected) told, as far as it is
    /// charged.
    pub corrected_ns: i64,
    /// For how long it wanted the device with its gates closed, since it came.
    pub waited_ns: u64,
    /// What it does.
    pub state: TimeState,
    /// How the device is shared.
    pub regime: Regime,
    /// Longest recent unit of its clients; 0: unknown.
    pub unit_ns: u64,
    /// What it waits for at this instant.
    pub held_by: Cause,
    /// What it waited for most, of late.
    pub waits_for: Cause,
    /// For what part of the last minute it wanted the device: had work on it or a thread at its gate.
    pub wanted_ppm_60s: u32,
}
