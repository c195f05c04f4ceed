// SPDX-License-Identifier: Apache-2.0
//! How the broker writes and opens files that outlive it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a file by rename: whoever dies meanwhile leaves the old one, or the new one whole.
///
/// # Errors
/// The system's; the old file stands then.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let beside = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.custom_flags(libc::O_NOFOLLOW).open(&beside)?;
    file.write_all(content)?;
    drop(file);
    std::fs::rename(&beside, path)
}

/// Opens a file that is there from then on, to be locked or mapped; never through somebody's link.
///
/// # Errors
/// The system's.
pub(crate) fn open_kept(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW).open(path)
}
