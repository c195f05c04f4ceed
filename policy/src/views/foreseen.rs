// SPDX-License-Identifier: Apache-2.0
//! The answer to a look before a lazy admission.

use crate::books::room::foreseen::Foreseen;
use partage_protocol::admin::{ForeseenDevice, Reply};

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
