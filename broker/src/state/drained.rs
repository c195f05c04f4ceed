// SPDX-License-Identifier: Apache-2.0
//! Which devices are drained, on disk: a JSON list of UUIDs, for the next broker.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use partage_protocol::units::DeviceUuid;

/// Reads the list; a file that is not there is an empty one.
///
/// # Errors
/// The system's, or a file that holds something else.
pub fn read(path: &Path) -> std::io::Result<BTreeSet<DeviceUuid>> {
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        other => other?,
    };
    let names: Vec<String> = serde_json::from_slice(&bytes)?;
    let parsed = names.iter().map(|name| {
        let no_uuid = || std::io::Error::new(std::io::ErrorKind::InvalidData, format!("{name:?} is no UUID"));
        DeviceUuid::parse(name).ok_or_else(no_uuid)
    });
    parsed.collect()
}

/// Writes the list in place of the one before, which stands where this fails.
///
/// # Errors
/// The system's.
pub fn write(path: &Path, devices: &BTreeSet<DeviceUuid>) -> std::io::Result<()> {
    let beside = path.with_extension("new");
    let names: Vec<String> = devices.iter().map(ToString::to_string).collect();
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)?;
    file.write_all(&serde_json::to_vec(&names)?)?;
    drop(file);
    std::fs::rename(&beside, path)
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
        let all = BTreeSet::from([uuid]);
        write(&path, &all).expect("written");
        assert_eq!(read(&path).expect("read"), all);
        write(&path, &BTreeSet::new()).expect("written");
        assert!(read(&path).expect("read").is_empty());
        std::fs::write(&path, "[\"GPU-\"]").expect("writable");
        assert!(read(&path).is_err());
    }
}
