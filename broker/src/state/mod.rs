// SPDX-License-Identifier: Apache-2.0
//! State that outlives a request: clients, and the files from which the next broker goes on.
//!
//! A file of a newer Partage about jobs that live is never touched: the broker does not start, and says which file it
//! is. One of another boot is of no job that lives, whoever wrote it.

pub mod clients;
pub mod devices;
pub mod directory;
pub mod drained;
pub mod ended;
pub mod job_store;
pub mod jobs;
pub mod ledger;
pub mod pages;
pub mod sick;
pub mod usage;

use std::fs::File;
use std::os::unix::fs::FileExt;

/// What is said of a file that is of a newer format than this broker knows.
fn newer(found: u64, known: u64) -> std::io::Error {
    std::io::Error::new(
        std::io::ErrorKind::Unsupported,
        format!(
            "a newer Partage wrote it (format {found}, this one knows {known}), and jobs of this boot are in it; start \
             that version again, or stop its jobs first"
        ),
    )
}

/// Is a mapped file, which begins with magic, layout and boot whatever its layout, of this boot and of a layout above
/// the one that this broker knows?
///
/// # Errors
/// It is.
fn refuse_newer(file: &File, (magic, known): (u64, u64), boot: [u8; 16]) -> std::io::Result<()> {
    let mut head = [0; 32];
    if file.read_exact_at(&mut head, 0).is_err() {
        // Too short to be one of any layout.
        return Ok(());
    }
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
    match word(0) == magic && word(8) > known && head[16..] == boot {
        true => Err(newer(word(8), known)),
        false => Ok(()),
    }
}
