// SPDX-License-Identifier: Apache-2.0
//! Does with files what was decided.
//!
//! The order is the promise: what is taken from a file lies beside it under its last name, on the disk, before the
//! file is touched. So whoever dies between two steps leaves the file as it was, and perhaps a copy of it. A file is
//! known by its number on the descriptor that changes it, so that no other file can take its place meanwhile.

use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::fcntl::{OFlag, RenameFlags, openat, renameat2};
use nix::sys::stat::Mode;
use nix::unistd::{LinkatFlags, UnlinkatFlags, linkat, unlinkat};
use partage_protocol::size::format_bytes;
use partage_protocol::snapshot::OpenFile;

use super::copy;
use super::judge::{Action, Left};
use super::now::{is_it, is_on, modified_ns};

/// Names that are tried for what is kept.
const MOST_NAMES: u32 = 10_000;

/// Where what is replaced is kept, and under which name.
#[derive(Debug)]
pub(super) struct Keeper {
    /// The number of the generation that is restored.
    pub generation: u64,
    /// A way to the snapshot's folder.
    pub folder: PathBuf,
    /// Its name.
    pub shown: PathBuf,
    /// The files were noted in this boot.
    pub is_this_boot: bool,
}

/// A folder by descriptor, and its name.
struct Place {
    folder: OwnedFd,
    shown: PathBuf,
}

impl Place {
    fn open(way: &Path, shown: &Path) -> io::Result<Self> {
        let options = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY)
            .open(way)?;
        Ok(Self {
            folder: options.into(),
            shown: shown.to_owned(),
        })
    }

    fn sync(&self) -> io::Result<()> {
        Ok(nix::unistd::fsync(self.folder.as_fd())?)
    }

    fn open_file(&self, name: &OsStr, flags: OFlag, mode: u32) -> io::Result<File> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(mode);
        Ok(openat(self.folder.as_fd(), name, flags, mode)?.into())
    }

    /// A new file that nobody looks for.
    fn passing(&self) -> io::Result<(File, String)> {
        let name = format!(".partage-{}", std::process::id());
        match unlinkat(self.folder.as_fd(), name.as_str(), UnlinkatFlags::NoRemoveDir) {
            // Of a process of this number that was killed.
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL;
        Ok((self.open_file(OsStr::new(&name), flags, 0o600)?, name))
    }

    /// Another name for a file, under which there is nothing yet.
    fn rename(&self, from: &OsStr, to: &OsStr) -> nix::Result<()> {
        let at = self.folder.as_fd();
        match renameat2(at, from, at, to, RenameFlags::RENAME_NOREPLACE) {
            // A file system that does not know this.
            Err(Errno::EINVAL | Errno::ENOSYS) => {
                linkat(at, from, at, to, LinkatFlags::empty())?;
                unlinkat(at, from, UnlinkatFlags::NoRemoveDir)
            }
            renamed => renamed,
        }
    }

    /// The first free name for what is kept of `name`.
    fn rename_to_kept(&self, from: &OsStr, name: &OsStr, generation: u64) -> io::Result<PathBuf> {
        for count in 1..MOST_NAMES {
            let mut kept = name.to_owned();
            kept.push(format!(".after-gen-{generation}"));
            if count > 1 {
                kept.push(format!(".{count}"));
            }
            match self.rename(from, &kept) {
                Ok(()) => return Ok(self.shown.join(kept)),
                Err(Errno::EEXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

/// Which part of a file is kept.
#[derive(Clone, Copy)]
enum Part {
    /// From this byte on.
    From(u64),
    Whole,
}

impl Keeper {
    /// Does it; answers what people are told. `copy`: what was saved of the file's content.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn apply(&self, file: &OpenFile, action: Action, copy: Option<&Path>) -> Result<Option<String>, String> {
        let path = &file.path;
        let had = format_bytes(file.bytes);
        let done = match action {
            Action::Nothing => return Ok(None),
            Action::Leave(left) => return Ok(Some(left_words(path, left))),
            Action::Cut => self
                .change(file, Part::From(file.bytes), |to| to.set_len(file.bytes))
                .map(|(kept, bytes)| {
                    let (bytes, kept) = (format_bytes(bytes), kept.display());
                    format!("{path} has the {had} again that the job knows; the {bytes} behind them are kept in {kept}")
                }),
            Action::PutBack => self
                .change(file, Part::Whole, |to| copy::whole(&saved(copy)?, to))
                .map(|(kept, _)| {
                    format!(
                        "{path} holds again what the job knows; what it held is kept in {}",
                        kept.display()
                    )
                }),
            Action::Make => self.make(file, copy).map(|()| match copy {
                Some(_) => format!("{path} was gone, and is made again as the job knows it"),
                None => format!("{path} was gone: the job goes on in a new one"),
            }),
            Action::Replace => self.replace(file, copy).map(|kept| {
                format!(
                    "{path} was another file, which is kept as {}; it is made again as the job knows it",
                    kept.display()
                )
            }),
        };
        done.map(Some).map_err(|error| match error.get_ref() {
            Some(_) => format!("{path}: {error}"),
            None => format!("cannot put {path} back as it was: {error}"),
        })
    }

    /// Changes a file once a part of it is kept. Answers where, and its bytes.
    fn change(
        &self,
        file: &OpenFile,
        part: Part,
        change: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<(PathBuf, u64)> {
        let (folder, name) = split(file)?;
        let place = Place::open(folder, folder);
        let to = match &place {
            Ok(place) => place.open_file(name, OFlag::O_RDWR, 0)?,
            // One that may be passed and not read.
            Err(_) => OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                .open(&file.path)?,
        };
        if file.copy.is_some() && place.is_ok() {
            // By its number alone it might be another one's, in a folder that took the place of the old one.
            self.own_place(file)?;
        }
        let before = to.metadata()?;
        if !before.is_file() || !is_it(file, &before, self.is_this_boot) {
            return Err(io::Error::other(
                "another file took its place meanwhile; nothing was done to it",
            ));
        }
        let kept = self.keep(place.ok(), name, (&to, &before), part)?;
        let now = to.metadata()?;
        if (now.len(), modified_ns(&now)) != (before.len(), modified_ns(&before)) {
            return Err(io::Error::other("somebody writes to it; nothing was done to it"));
        }
        change(&to)?;
        set_modified(&to, file)?;
        to.sync_all()?;
        Ok(kept)
    }

    /// Keeps a part of a file: beside it, or in the snapshot's folder where no file can be made beside it.
    fn keep(
        &self,
        beside: Option<Place>,
        name: &OsStr,
        (from, facts): (&File, &Metadata),
        part: Part,
    ) -> io::Result<(PathBuf, u64)> {
        let keep_in = |place: &Place| {
            let (to, passing) = place.passing()?;
            let kept = keep_part(from, facts, part, &to).and_then(|bytes| {
                Ok((
                    place.rename_to_kept(OsStr::new(&passing), name, self.generation)?,
                    bytes,
                ))
            });
            if kept.is_err() {
                // It is a part of what is still there.
                let _ = unlinkat(place.folder.as_fd(), passing.as_str(), UnlinkatFlags::NoRemoveDir);
            }
            place.sync()?;
            kept
        };
        match beside.as_ref().map(keep_in) {
            Some(Err(error)) if is_shut(&error) => {}
            Some(kept) => return kept,
            None => {}
        }
        keep_in(&Place::open(&self.folder, &self.shown)?)
    }

    /// The folder that the file was in.
    fn own_place<'a>(&self, file: &'a OpenFile) -> io::Result<(Place, &'a OsStr)> {
        let (folder, name) = split(file)?;
        let place = Place::open(folder, folder)?;
        let facts = File::from(place.folder.try_clone()?).metadata()?;
        if facts.ino() != file.folder || !is_on(file.device, facts.dev(), self.is_this_boot) {
            return Err(io::Error::other(
                "its folder is another one now, and nothing is made there",
            ));
        }
        Ok((place, name))
    }

    /// Makes a file that is gone.
    fn make(&self, file: &OpenFile, copy: Option<&Path>) -> io::Result<()> {
        let (place, name) = self.own_place(file)?;
        let (to, passing) = place.passing()?;
        let made = fill(&to, file, copy).and_then(|()| Ok(place.rename(OsStr::new(&passing), name)?));
        if made.is_err() {
            let _ = unlinkat(place.folder.as_fd(), passing.as_str(), UnlinkatFlags::NoRemoveDir);
        }
        made.and_then(|()| place.sync())
    }

    /// Gives what is there another name, and makes the file. Whoever dies between the two leaves one that is gone.
    fn replace(&self, file: &OpenFile, copy: Option<&Path>) -> io::Result<PathBuf> {
        let (place, name) = self.own_place(file)?;
        let kept = place.rename_to_kept(name, name, self.generation)?;
        place.sync()?;
        self.make(file, copy).map(|()| kept)
    }
}

fn left_words(path: &str, left: Left) -> String {
    match left {
        Left::Other => format!("{path} is another file than it was (rotated?): the job goes on at its end"),
        Left::Taken => format!("{path} is another file than it was, of the same length: it is left as it is"),
        Left::Shorter => format!("{path} is shorter than it was: the job goes on at its end"),
        Left::Longer => format!("{path} is left as it is: the job goes on at its end"),
        Left::Shared => format!("others can write to {path}, too: it is left as it is, and the job goes on at its end"),
        Left::Written => format!("{path} was written since, at the same length: it is left as it is"),
    }
}

fn split(file: &OpenFile) -> io::Result<(&Path, &OsStr)> {
    let path = Path::new(&file.path);
    let parts = path.parent().zip(path.file_name());
    parts.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn saved(copy: Option<&Path>) -> io::Result<File> {
    let copy = copy.ok_or(io::ErrorKind::NotFound)?;
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(copy)
}

/// Can no file be made in this folder?
fn is_shut(error: &io::Error) -> bool {
    let shut = [libc::EACCES, libc::EPERM, libc::EROFS, libc::ENAMETOOLONG];
    error.raw_os_error().is_some_and(|code| shut.contains(&code))
}

fn keep_part(from: &File, facts: &Metadata, part: Part, to: &File) -> io::Result<u64> {
    let bytes = match part {
        Part::From(start) => copy::tail(from, (start, facts.len()), to)?,
        Part::Whole => copy::whole(from, to).map(|()| facts.len())?,
    };
    dress(to, (facts.uid(), facts.gid()), facts.mode() & 0o7777)?;
    to.sync_all()?;
    Ok(bytes)
}

fn fill(to: &File, file: &OpenFile, copy: Option<&Path>) -> io::Result<()> {
    if copy.is_some() {
        copy::whole(&saved(copy)?, to)?;
    }
    dress(to, (file.uid, file.gid), file.mode)?;
    if copy.is_some() {
        set_modified(to, file)?;
    }
    to.sync_all()
}

/// The mode last: a change of the owner clears bits of it.
fn dress(to: &File, (uid, gid): (u32, u32), mode: u32) -> io::Result<()> {
    let facts = to.metadata()?;
    if (facts.uid(), facts.gid()) != (uid, gid) {
        match fchown(to, Some(uid), Some(gid)) {
            // It is then its maker's: bits that would make another one's program of it go.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return to.set_permissions(Permissions::from_mode(mode & 0o777));
            }
            changed => changed?,
        }
    }
    to.set_permissions(Permissions::from_mode(mode))
}

/// As it was last written when the job was saved: the same snapshot may be restored again.
fn set_modified(to: &File, file: &OpenFile) -> io::Result<()> {
    let since = Duration::from_nanos(file.modified_ns.unsigned_abs());
    let when = match file.modified_ns < 0 {
        true => SystemTime::UNIX_EPOCH.checked_sub(since),
        false => SystemTime::UNIX_EPOCH.checked_add(since),
    };
    match when.map(|when| to.set_modified(when)) {
        // Only its owner may say so; then it counts as written, which people are told.
        Some(Err(error)) if error.kind() != io::ErrorKind::PermissionDenied => Err(error),
        _ => Ok(()),
    }
}
