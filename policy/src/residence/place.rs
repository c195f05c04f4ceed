// SPDX-License-Identifier: Apache-2.0
//! Where memory can be, and in which state the driver has a process.

use partage_protocol::units::DeviceUuid;
use serde::{Deserialize, Serialize};

/// Where memory is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// On the devices that the job has.
    Source,
    /// On the same devices but one, which a [`Target`] replaces.
    Target,
}

/// The device that replaces one of the job's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Target {
    /// The place of the replaced device in the job.
    pub slot: usize,
    /// The device that replaces it.
    #[serde(with = "crate::uuid_text")]
    pub device: DeviceUuid,
}

/// What the driver says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProcessState {
    /// 0.
    Running,
    /// 1.
    Locked,
    /// 2.
    Checkpointed,
    /// 3, *uncorrectable*, or a number that is not known.
    Failed,
}
