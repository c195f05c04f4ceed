// SPDX-License-Identifier: Apache-2.0
//! Which devices are drained, on disk, for the next broker: a JSON list with the UUID of each, when it was drained and
//! by whom. Brokers before wrote the UUIDs alone.

use std::collections::BTreeMap;
use std::path::Path;

use partage_policy::DrainMark;
use partage_protocol::units::DeviceUuid;
use serde::{Deserialize, Serialize};

/// One device.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Entry {
    Uuid(String),
    Marked {
        gpu: String,
        since_unix_ns: Option<u64>,
        uid: Option<u32>,
    },
}

/// Reads the list; a file that is not there is an empty one.
///
/// # Errors
/// The system's, or a file that holds something else.
pub fn read(path: &Path) -> std::io::Result<BTreeMap<DeviceUuid, DrainMark>> {
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        other => other?,
    };
    let entries: Vec<Entry> = serde_json::from_slice(&bytes)?;
    let parsed = entries.into_iter().map(|entry| {
        let (name, mark) = match entry {
            Entry::Uuid(gpu) => (gpu, DrainMark::default()),
            Entry::Marked {
                gpu,
                since_unix_ns,
                uid,
            } => (gpu, DrainMark { since_unix_ns, uid }),
        };
        let no_uuid = || std::io::Error::new(std::io::ErrorKind::InvalidData, format!("{name:?} is no UUID"));
        Ok((DeviceUuid::parse(&name).ok_or_else(no_uuid)?, mark))
    });
    parsed.collect()
}

/// Writes the list in place of the one before, which stands where this fails.
///
/// # Errors
/// The system's.
pub fn write(path: &Path, devices: &BTreeMap<DeviceUuid, DrainMark>) -> std::io::Result<()> {
    let entries = devices.iter().map(|(device, mark)| Entry::Marked {
        gpu: device.to_string(),
        since_unix_ns: mark.since_unix_ns,
        uid: mark.uid,
    });
    let entries: Vec<Entry> = entries.collect();
    crate::kept_file::write_whole(path, &serde_json::to_vec(&entries)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn what_is_written_is_read_and_anything_else_is_an_error() {
        let folder = Scratch::new("drained");
        let path = folder.path().join("drained");
        assert!(read(&path).expect("an empty list").is_empty());
        let uuid = DeviceUuid::parse("GPU-00000000-0000-0000-0000-000000000007").expect("a UUID");
        let mark = DrainMark {
            since_unix_ns: Some(1_795_213_560_000_000_000),
            uid: Some(1000),
        };
        let all = BTreeMap::from([(uuid, mark)]);
        write(&path, &all).expect("written");
        assert_eq!(read(&path).expect("read"), all);
        write(&path, &BTreeMap::new()).expect("written");
        assert!(read(&path).expect("read").is_empty());
        std::fs::write(&path, format!("[\"{uuid}\"]")).expect("writable");
        let unmarked = BTreeMap::from([(uuid, DrainMark::default())]);
        assert_eq!(read(&path).expect("of a broker before"), unmarked);
        std::fs::write(&path, "[\"GPU-\"]").expect("writable");
        assert!(read(&path).is_err());
    }
}
