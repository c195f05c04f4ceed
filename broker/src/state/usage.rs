// SPDX-License-Identifier: Apache-2.0
//! What users had of the GPUs of late, in one file of JSON, so that the next broker's queue goes on with it.
//!
//! The file is written beside its place and renamed: a broker killed at any instant leaves the old or the new one. The
//! policy bounds how many users are in it. A file that cannot be read costs their history and nothing else. Not synced,
//! for the reason in `ledger.rs`.

use std::path::Path;

use partage_policy::UserUsage;
use tracing::warn;

/// Reads the file; nothing where there is none, or none that can be read.
pub fn read(path: &Path) -> Vec<UserUsage> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            warn!(%error, path = %path.display(), "what users had cannot be read: everybody begins with nothing");
            return Vec::new();
        }
    };
    serde_json::from_slice(&bytes).unwrap_or_else(|error| {
        warn!(%error, path = %path.display(), "what users had cannot be read: everybody begins with nothing");
        Vec::new()
    })
}

/// Writes the file in place of the old one.
///
/// # Errors
/// The system's; the old file stands then.
pub fn write(path: &Path, users: &[UserUsage]) -> std::io::Result<()> {
    crate::kept_file::write_whole(path, &serde_json::to_vec(users)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn what_was_written_is_read_and_a_broken_file_is_nobodys_history() {
        let scratch = Scratch::new("usage");
        let path = scratch.path().join("usage.json");
        assert_eq!(read(&path), []);
        let user = |uid| UserUsage {
            uid,
            gpu_ns: u64::from(uid) * 1_000,
            unix_ns: 7,
        };
        write(&path, &[user(1), user(2)]).expect("written");
        write(&path, &[user(2), user(3)]).expect("written again");
        assert_eq!(read(&path), [user(2), user(3)]);
        // A write that was cut short.
        std::fs::write(path.with_extension("new"), "[{").expect("written");
        assert_eq!(read(&path), [user(2), user(3)]);
        std::fs::write(&path, "[{\"uid\":1}]").expect("written");
        assert_eq!(read(&path), []);
    }
}
