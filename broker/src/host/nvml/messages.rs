// SPDX-License-Identifier: Apache-2.0
//! What the broker asks an NVML helper, and what the helper answers: each a JSON line.

use serde::{Deserialize, Serialize};

use crate::host::gpu::{DeviceFacts, Driver, Sample};

/// What the broker asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// Load the library and list the devices.
    Open,
    /// Look at the device at this place of the list.
    Sample(usize),
}

/// What the helper answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The devices.
    Devices(Vec<DeviceFacts>),
    /// The device.
    Sample(Sample),
    /// No devices can be listed.
    Driver(Driver),
    /// The one device cannot be looked at.
    Lost(String),
    /// Errors of the device since the answer before, the oldest first, and the answer.
    Xids(Vec<u32>, Box<Self>),
}
