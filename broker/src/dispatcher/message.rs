// SPDX-License-Identifier: Apache-2.0
//! Messages from the event loop to the dispatcher.

use std::sync::Arc;

use partage_policy::UnmanagedLoad;
use partage_protocol::units::{ClientId, DeviceUuid, JobId};
use partage_scheduling::Terms;

use crate::state::pages::PagePair;

/// What the event loop tells.
#[derive(Debug)]
pub enum Message {
    /// A job's terms on its devices, from now on.
    Terms {
        /// The job.
        job: JobId,
        /// Its devices.
        devices: Vec<DeviceUuid>,
        /// Its terms.
        terms: Terms,
    },
    /// The job is gone.
    JobGone(JobId),
    /// A client whose pages are mapped.
    Joined(Joined),
    /// The client is gone.
    Left(ClientId),
    /// A client's hold was closed: it opens by itself unless its heartbeat goes on.
    Held,
    /// Processes of no job use so much of a device's time from now on.
    Unmanaged(DeviceUuid, UnmanagedLoad),
    /// Jobs had more of a device's time than they were charged, or less.
    Correct {
        /// The device.
        device: DeviceUuid,
        /// The jobs, and by how much each, in nanoseconds.
        charges: Vec<(JobId, i64)>,
        /// To be charged evenly over this time.
        over_ns: u64,
    },
}

/// A client that came, or came back.
#[derive(Debug)]
pub struct Joined {
    /// The client.
    pub client: ClientId,
    /// Its job.
    pub job: JobId,
    /// Its process.
    pub pid: u32,
    /// The job's devices in slot order.
    pub devices: Vec<DeviceUuid>,
    /// Its pages.
    pub pages: Arc<PagePair>,
}
