// SPDX-License-Identifier: Apache-2.0
//! The answer to a look before a lazy admission.

use partage_protocol::admin::{ForeseenDevice, Reply};
use partage_protocol::units::DeviceUuid;

/// A device of a job that there is or would be.
pub(crate) struct Foreseen {
    pub device: DeviceUuid,
    pub index: Option<u32>,
    pub total_bytes: u64,
    pub limit_bytes: u64,
}

pub(crate) fn foreseen_reply(devices: &[Foreseen]) -> Reply {
    let view = |foreseen: &Foreseen| ForeseenDevice {
        uuid: foreseen.device.to_string(),
        index: foreseen.index,
        total_bytes: foreseen.total_bytes,
        limit_bytes: foreseen.limit_bytes,
    };
    Reply::Foreseen {
        devices: devices.iter().map(view).collect(),
    }
}
