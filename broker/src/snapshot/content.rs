// SPDX-License-Identifier: Apache-2.0
//! Copies what files hold.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

/// Bytes that are copied at a time.
const PIECE: usize = 1 << 20;

/// Copies all that a file holds into an empty one, with its holes.
pub(super) fn copy_content(from: &File, to: &File) -> io::Result<()> {
    let length = from.metadata()?.len();
    to.set_len(length)?;
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < length {
        let start = match lseek(from, at.cast_signed(), Whence::SeekData) {
            Ok(start) => start.cast_unsigned(),
            // Nothing but a hole is left.
            Err(Errno::ENXIO) => break,
            // A file system that tells no holes has none.
            Err(_) => at,
        };
        let end = lseek(from, start.cast_signed(), Whence::SeekHole).map_or(length, i64::cast_unsigned);
        at = start;
        while at < end {
            let most = usize::try_from(end - at).map_or(PIECE, |left| left.min(PIECE));
            let count = from.read_at(&mut piece[..most], at)?;
            if count == 0 {
                return Ok(());
            }
            to.write_all_at(&piece[..count], at)?;
            at += count as u64;
        }
    }
    Ok(())
}
