// SPDX-License-Identifier: Apache-2.0
//! What a snapshot's folder is written and read with.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use partage_protocol::snapshot::Sum;

/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;

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
    /// A file's length, and the sum of its content.
    fn sum(&self, path: &Path) -> io::Result<(u64, u64)>;
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

    fn sum(&self, path: &Path) -> io::Result<(u64, u64)> {
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)?;
        let (mut sum, mut length, mut piece) = (Sum::default(), 0, vec![0; PIECE]);
        loop {
            match file.read(&mut piece)? {
                0 => return Ok((length, sum.finish())),
                count => {
                    sum.add(&piece[..count]);
                    length += count as u64;
                }
            }
        }
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
