// SPDX-License-Identifier: Apache-2.0
//! What a restored job finds where its processes know it, in mounts that nobody else sees: the folder of the broker's
//! sockets, and the library.
//!
//! Both have paths below folders that anybody may have made since the save (`/tmp/partage-0` after a reboot). So every
//! way is walked by descriptor, no link is followed, and a folder that another user could change is refused.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{Mode, fstat};
use partage_protocol::snapshot::{FILES, Manifest, SavedFile, Sum};

use super::folder::{beyond_others, way_to, who_else};

/// Whoever finds this folder takes the host for a managed one: nobody makes it but a managed broker.
const SYSTEM_DIR: &str = "/run/partage";
/// Bytes that are copied at a time.
const PIECE: usize = 1 << 20;

/// How the library is found at the place where the processes have it from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// As it was.
    Same,
    /// There is none.
    Missing,
}

/// The library as a snapshot has it.
///
/// # Errors
/// A sentence: it has none.
pub fn saved_library(manifest: &Manifest) -> Result<&SavedFile, String> {
    let name = Path::new(&manifest.library).file_name().unwrap_or_default();
    let path = format!("{FILES}/{}", name.to_string_lossy());
    let saved = manifest.files.iter().find(|file| file.path == path);
    saved.ok_or_else(|| format!("{path} is not in the snapshot"))
}

/// Looks at the place of the library without changing anything.
///
/// # Errors
/// A sentence: another file is there, or a folder on the way is another user's.
pub fn find_library(library: &Path, saved: &SavedFile) -> Result<Found, String> {
    match beyond_others(folder_of(library), false)? {
        Some(folder) => find_in(&folder, library, saved),
        None => Ok(Found::Missing),
    }
}

fn find_in(folder: &OwnedFd, library: &Path, saved: &SavedFile) -> Result<Found, String> {
    let name = library.file_name().unwrap_or_default();
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let shown = library.display();
    let file = match openat(folder, name, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(Errno::ENOENT) => return Ok(Found::Missing),
        Err(Errno::ELOOP) => return Err(format!("{shown} is a link, and links are not followed")),
        Err(errno) => return Err(format!("cannot read {shown}: {}", errno.desc())),
    };
    let facts = fstat(&file).map_err(|errno| format!("cannot look at {shown}: {}", errno.desc()))?;
    if let Some(who) = who_else(&facts) {
        return Err(format!("{shown} {who}"));
    }
    let is_file = file.metadata().is_ok_and(|facts| facts.is_file());
    let found = is_file.then(|| copy_to(&file, &mut io::sink())).transpose();
    match found.map_err(|error| format!("cannot read {shown}: {error}"))? {
        Some(found) if found == (saved.bytes, saved.sum) => Ok(Found::Same),
        _ => Err(format!("{shown} is another file than the one that the processes had")),
    }
}

/// Has the processes find the library where they have it mapped from. Where it is gone, a folder of their own comes
/// over the one that it lay in. Precondition: this process has mounts of its own.
///
/// # Errors
/// A sentence: another file is there, or a folder on the way is another user's, or the system's.
pub fn library(manifest: &Manifest, generation: &Path) -> Result<(), String> {
    let saved = saved_library(manifest)?;
    let library = Path::new(&manifest.library);
    let fail = |error: io::Error| format!("cannot put {} back: {error}", library.display());
    let place = folder_of(library);
    let folder = beyond_others(place, true)?.ok_or_else(|| fail(io::ErrorKind::NotFound.into()))?;
    if find_in(&folder, library, saved)? == Found::Same {
        return Ok(());
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let over = way_to(&folder);
    mount(Some("partage"), &over, Some("tmpfs"), flags, Some("mode=0755")).map_err(|errno| fail(errno.into()))?;
    // By its path: the descriptor is of the folder below.
    let own = beyond_others(place, false)?.ok_or_else(|| fail(io::ErrorKind::NotFound.into()))?;
    if is_same(&own, &folder).map_err(fail)? {
        return Err(format!("{} was changed meanwhile", place.display()));
    }
    let name = library.file_name().unwrap_or_default();
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mode = Mode::from_bits_truncate(0o755);
    let mut made = File::from(openat(&own, name, flags, mode).map_err(|errno| fail(errno.into()))?);
    let from = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(generation.join(&saved.path))
        .map_err(fail)?;
    let copied = copy_to(&from, &mut made).map_err(fail)?;
    match copied == (saved.bytes, saved.sum) {
        true => Ok(()),
        false => Err(format!("{} was damaged meanwhile", saved.path)),
    }
}

/// Has the processes find `here`, the folder of the broker's sockets, where they knew one when they were saved.
/// Precondition: this process has mounts of its own.
///
/// # Errors
/// A sentence: it cannot be there.
pub fn sockets(saved: &str, here: &Path) -> Result<(), String> {
    let at = Path::new(saved);
    if saved.is_empty() || is_same_folder(at, here) {
        return Ok(());
    }
    let elsewhere = |why: String| {
        format!(
            "its processes look for the broker in {saved}, and {} cannot be mounted there: {why} (partage --socket-dir \
             {saved} restores it by the broker there)",
            here.display()
        )
    };
    let is_to_make = at != Path::new(SYSTEM_DIR);
    let place = beyond_others(at, is_to_make).map_err(elsewhere)?;
    let place = place.ok_or_else(|| elsewhere("there is no such folder".to_owned()))?;
    let none = None::<&str>;
    let flags = MsFlags::MS_BIND;
    mount(Some(here), &way_to(&place), none, flags, none).map_err(|errno| elsewhere(errno.desc().to_owned()))
}

/// The folder that a file lies in.
fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// Do these paths lead to one folder?
#[must_use]
pub fn is_same_folder(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().map(|facts| (facts.dev(), facts.ino()));
    one == other || identity(one).is_some_and(|found| identity(other) == Some(found))
}

fn is_same(one: &OwnedFd, other: &OwnedFd) -> io::Result<bool> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// Copies a file's content; answers its length and sum.
fn copy_to(from: &File, to: &mut impl Write) -> io::Result<(u64, u64)> {
    let mut from = from;
    let (mut sum, mut length, mut piece) = (Sum::default(), 0, vec![0; PIECE]);
    loop {
        match from.read(&mut piece)? {
            0 => return Ok((length, sum.finish())),
            count => {
                sum.add(&piece[..count]);
                to.write_all(&piece[..count])?;
                length += count as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn a_library_is_the_same_only_as_an_own_file_with_its_content() {
        let scratch = Scratch::new("own-mounts");
        let root = scratch.path().canonicalize().expect("there");
        let at = root.join("lib/libpartage-1.so");
        let mut sum = Sum::default();
        sum.add(b"library");
        let saved = SavedFile {
            path: "files/libpartage-1.so".to_owned(),
            bytes: 7,
            sum: sum.finish(),
        };
        assert_eq!(find_library(&at, &saved), Ok(Found::Missing), "no folder");
        std::fs::create_dir(root.join("lib")).expect("ours");
        assert_eq!(find_library(&at, &saved), Ok(Found::Missing));
        std::fs::write(&at, "library").expect("ours");
        assert_eq!(find_library(&at, &saved), Ok(Found::Same));
        std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o666)).expect("ours");
        let why = find_library(&at, &saved).expect_err("anybody may write to it");
        assert!(why.contains("has mode 666, and others may write to it"), "{why}");
        std::fs::remove_file(&at).expect("ours");
        std::fs::write(&at, "another").expect("ours");
        let why = find_library(&at, &saved).expect_err("another content");
        assert!(
            why.contains("is another file than the one that the processes had"),
            "{why}"
        );
        std::fs::rename(&at, root.join("aside")).expect("ours");
        symlink(root.join("aside"), &at).expect("ours");
        let why = find_library(&at, &saved).expect_err("a link");
        assert!(why.contains("is a link"), "{why}");
    }
}
