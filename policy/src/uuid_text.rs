// SPDX-License-Identifier: Apache-2.0
//! UUIDs in records are written as people know them.

use partage_protocol::units::DeviceUuid;
use serde::{Deserialize, Deserializer, Serializer, de::Error};

pub(crate) fn serialize<S: Serializer>(uuid: &DeviceUuid, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(uuid)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<DeviceUuid, D::Error> {
    let text = String::deserialize(input)?;
    DeviceUuid::parse(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is no device UUID")))
}
