// SPDX-License-Identifier: Apache-2.0
//! What a snapshot's folder is written and read with.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{FallocateFlags, fallocate};
use partage_protocol::snapshot::Sum;

/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;
/// Zeros are looked for in blocks of so many bytes; the blocks of file systems are not larger.
const BLOCK: usize = 1 << 16;
static ZEROS: [u8; BLOCK] = [0; BLOCK];

/// The file system, as far as a snapshot needs it.
pub trait Files {
    /// Names in a folder.
    ///
    /// # Errors
    /// The system's, here and below.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;
    /// Paths of all files below a folder, relative to it, sorted; and of all folders, itself last.
    fn walk(&self, folder: &Path) -> io::Result<(Vec<String>, Vec<PathBuf>)>;
    /// A whole file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// A file's length.
    fn length(&self, path: &Path) -> io::Result<u64>;
    /// A file's length, and the sum of its content.
    fn sum(&self, path: &Path) -> io::Result<(u64, u64)>;
    /// The same of a file that was just written, whose zeros take no room on the disk afterwards.
    fn sum_and_thin(&self, path: &Path) -> io::Result<(u64, u64)>;
    /// Makes a folder for its owner alone.
    fn make_folder(&self, path: &Path) -> io::Result<()>;
    /// Makes a file, or writes one anew.
    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()>;
    /// Has the disk keep a file, or the names in a folder.
    fn sync(&self, path: &Path) -> io::Result<()>;
    /// Gives a file or folder another name, at which nothing may be yet.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// The same, over what is there.
    fn rename_over(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a folder and all that is in it.
    fn remove(&self, folder: &Path) -> io::Result<()>;
}

/// The system's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Files for Disk {
    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn walk(&self, folder: &Path) -> io::Result<(Vec<String>, Vec<PathBuf>)> {
        let (mut files, mut folders) = (Vec::new(), Vec::new());
        descend(folder, "", &mut files, &mut folders)?;
        files.sort_unstable();
        Ok((files, folders))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn length(&self, path: &Path) -> io::Result<u64> {
        Ok(path.symlink_metadata()?.len())
    }

    fn sum(&self, path: &Path) -> io::Result<(u64, u64)> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)?;
        each_piece(&file, |_, _| {})
    }

    fn sum_and_thin(&self, path: &Path) -> io::Result<(u64, u64)> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path);
        let file = match file {
            // A copy keeps its mode, and may be for reading alone.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return self.sum(path),
            file => file?,
        };
        each_piece(&file, |at, piece| {
            for (from, length) in zeros(piece) {
                let from = at.saturating_add(from as u64);
                let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
                let place = i64::try_from(from).ok().zip(i64::try_from(length).ok());
                // A file system without holes keeps the zeros.
                let _ = place.map(|(from, length)| fallocate(&file, flags, from, length));
            }
        })
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        std::fs::DirBuilder::new().mode(0o700).create(path)
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)?;
        file.write_all(content)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        let flags = nix::fcntl::RenameFlags::RENAME_NOREPLACE;
        let at = nix::fcntl::AT_FDCWD;
        Ok(nix::fcntl::renameat2(at, from, at, to, flags)?)
    }

    fn rename_over(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, folder: &Path) -> io::Result<()> {
        std::fs::remove_dir_all(folder)
    }
}

/// Reads a file to its end, piece by piece: its length, and the sum of its content.
fn each_piece(mut file: &File, mut each: impl FnMut(u64, &[u8])) -> io::Result<(u64, u64)> {
    let (mut sum, mut length, mut piece) = (Sum::default(), 0, vec![0; PIECE]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok((length, sum.finish())),
            count => {
                sum.add(&piece[..count]);
                each(length, &piece[..count]);
                length += count as u64;
            }
        }
    }
}

/// Places and lengths of the runs of zeros in a piece, in whole blocks of [`BLOCK`].
fn zeros(piece: &[u8]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (number, block) in piece.chunks_exact(BLOCK).enumerate() {
        if block != ZEROS {
            continue;
        }
        let from = number * BLOCK;
        match runs.last_mut().filter(|(at, length)| at + length == from) {
            Some((_, length)) => *length += BLOCK,
            None => runs.push((from, BLOCK)),
        }
    }
    runs
}

fn descend(folder: &Path, prefix: &str, files: &mut Vec<String>, folders: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if prefix.is_empty() {
            name
        } else {
            format!("{prefix}/{name}")
        };
        if entry.file_type()?.is_dir() {
            descend(&entry.path(), &path, files, folders)?;
        } else {
            files.push(path);
        }
    }
    folders.push(folder.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn zeros_are_found_in_whole_blocks() {
        let mut piece = vec![0; 4 * BLOCK + 100];
        assert_eq!(zeros(&piece), [(0, 4 * BLOCK)]);
        piece[2 * BLOCK] = 1;
        assert_eq!(zeros(&piece), [(0, 2 * BLOCK), (3 * BLOCK, BLOCK)]);
        piece.fill(7);
        assert!(zeros(&piece).is_empty());
        assert!(zeros(&[0; BLOCK - 1]).is_empty());
    }

    #[test]
    fn a_file_without_the_room_of_its_zeros_reads_as_before() {
        let scratch = Scratch::new("zeros");
        let path = scratch.path().join("pages");
        let mut content = vec![0; 3 * PIECE + 5];
        content[PIECE + 3] = 9;
        content[3 * PIECE + 4] = 1;
        std::fs::write(&path, &content).expect("ours");
        let before = path.metadata().expect("there").blocks();
        let thin = Disk.sum_and_thin(&path).expect("read");
        assert_eq!(thin, Disk.sum(&path).expect("read"));
        assert_eq!(thin.0, content.len() as u64);
        assert_eq!(std::fs::read(&path).expect("there"), content);
        let after = path.metadata().expect("there").blocks();
        // Of three pieces one block of 64 KiB and the end are no zeros. A file system without holes keeps all.
        assert!(after < before / 4 || after == before, "{before} blocks, then {after}");
    }
}
