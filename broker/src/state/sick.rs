// SPDX-License-Identifier: Apache-2.0
//! Which devices are sick, on disk, for the next broker: a JSON list with the UUID of each, since when it is, of what,
//! and in which boot of the host that was found. A boot resets the devices.

use std::collections::BTreeMap;
use std::path::Path;

use partage_policy::{SickMark, Sickness};
use partage_protocol::units::DeviceUuid;
use serde::{Deserialize, Serialize};

use crate::host::proc::boot_id;

/// One device.
#[derive(Serialize, Deserialize)]
struct Entry {
    gpu: String,
    since_unix_ns: u64,
    cause: String,
    boot: [u8; 16],
}

/// Reads the list; a file that is not there is an empty one.
///
/// # Errors
/// The system's, or a file that holds something else.
pub fn read(path: &Path) -> std::io::Result<BTreeMap<DeviceUuid, SickMark>> {
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        other => other?,
    };
    let entries: Vec<Entry> = serde_json::from_slice(&bytes)?;
    let now = boot_id();
    let wrong = |what: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, format!("{what:?} is not known"));
    let parsed = entries.into_iter().map(|entry| {
        let device = DeviceUuid::parse(&entry.gpu).ok_or_else(|| wrong(&entry.gpu))?;
        let mark = SickMark {
            since_unix_ns: entry.since_unix_ns,
            cause: Sickness::parse(&entry.cause).ok_or_else(|| wrong(&entry.cause))?,
            is_of_earlier_boot: entry.boot != now,
        };
        Ok((device, mark))
    });
    parsed.collect()
}

/// Writes the list in place of the one before, which stands where this fails. A mark of an earlier boot stays one.
///
/// # Errors
/// The system's.
pub fn write(path: &Path, devices: impl Iterator<Item = (DeviceUuid, SickMark)>) -> std::io::Result<()> {
    let now = boot_id();
    let entries = devices.map(|(device, mark)| Entry {
        gpu: device.to_string(),
        since_unix_ns: mark.since_unix_ns,
        cause: mark.cause.word(),
        boot: if mark.is_of_earlier_boot { [0; 16] } else { now },
    });
    let entries: Vec<Entry> = entries.collect();
    crate::kept_file::write_whole(path, &serde_json::to_vec(&entries)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn what_is_written_is_read_and_an_earlier_boot_is_told() {
        let folder = Scratch::new("sick");
        let path = folder.path().join("sick");
        assert!(read(&path).expect("an empty list").is_empty());
        let uuid = |number: u32| {
            DeviceUuid::parse(&format!("GPU-00000000-0000-0000-0000-00000000000{number}")).expect("a UUID")
        };
        let mark = |cause, is_of_earlier_boot| SickMark {
            since_unix_ns: 1_795_213_560_000_000_000,
            cause,
            is_of_earlier_boot,
        };
        let all = BTreeMap::from([
            (uuid(1), mark(Sickness::Xid(79), false)),
            (uuid(2), mark(Sickness::RemapFailed, true)),
        ]);
        write(&path, all.clone().into_iter()).expect("written");
        assert_eq!(read(&path).expect("read"), all);
        write(&path, std::iter::empty()).expect("written");
        assert!(read(&path).expect("read").is_empty());
        let other = format!(
            "[{{\"gpu\":\"{}\",\"since_unix_ns\":1,\"cause\":\"flu\",\"boot\":{:?}}}]",
            uuid(1),
            [0; 16]
        );
        std::fs::write(&path, other).expect("writable");
        assert!(read(&path).is_err());
    }
}
