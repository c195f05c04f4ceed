// SPDX-License-Identifier: Apache-2.0
//! Folders by descriptor: a snapshot's, opened once, and one on whose way nobody else can change anything.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, fstat, mkdirat};

/// Anybody may make files in such a folder, and only their owner removes them.
const STICKY: u32 = 0o1000;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// A snapshot's folder. Whatever its name means later, this is the folder that was looked at.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    shown: PathBuf,
}

impl Folder {
    /// Opens a folder that is its owner's alone.
    ///
    /// # Errors
    /// A sentence: it is a link, somebody else's, or open to others.
    pub fn open(path: &Path) -> Result<Self, String> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = open(path, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::ELOOP | Errno::ENOTDIR => format!("{} is no folder (links are not followed)", path.display()),
            // One that is somebody else's cannot be opened by everybody.
            Errno::EACCES => path.symlink_metadata().map_or_else(
                |_| format!("cannot look at {}: {}", path.display(), errno.desc()),
                |facts| not_ours(path, facts.uid()),
            ),
            errno => format!("cannot look at {}: {}", path.display(), errno.desc()),
        })?;
        Self::of(fd, path)
    }

    /// One that is open already.
    ///
    /// # Errors
    /// A sentence: it is somebody else's, or open to others.
    pub fn of(fd: OwnedFd, shown: &Path) -> Result<Self, String> {
        let facts = File::from(fd);
        let data = facts
            .metadata()
            .map_err(|error| format!("cannot look at {}: {error}", shown.display()))?;
        if !data.is_dir() {
            return Err(format!("{} is no folder", shown.display()));
        }
        if data.uid() != own_uid() {
            return Err(not_ours(shown, data.uid()));
        }
        let mode = data.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(format!(
                "{} has mode {mode:o}: others could read the job's memory in it (chmod 700 {})",
                shown.display(),
                shown.display()
            ));
        }
        Ok(Self {
            fd: facts.into(),
            shown: shown.to_owned(),
        })
    }

    /// A path to the folder, for this process and for those that inherit the descriptor.
    #[must_use]
    pub fn way(&self) -> PathBuf {
        way_to(&self.fd)
    }

    /// The same words, with the folder's name for the way to it.
    #[must_use]
    pub fn named(&self, words: &str) -> String {
        words.replace(&self.way().display().to_string(), &self.shown.display().to_string())
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn not_ours(path: &Path, uid: u32) -> String {
    format!("{} belongs to uid {uid}, not to uid {}", path.display(), own_uid())
}

fn own_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// A path to what this process has open.
pub(super) fn way_to(fd: &impl AsRawFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
}

/// Opens a folder by its whole path without following a link. On the way, itself included, every folder has to be
/// root's or ours, and one that others may write to sticky: so nobody else can put another one in its place. What is
/// missing is made, for us alone, or the answer is `None`.
///
/// # Errors
/// A sentence: which folder on the way is another's.
pub fn beyond_others(path: &Path, is_to_make: bool) -> Result<Option<OwnedFd>, String> {
    if !path.is_absolute() {
        return Err(format!("{} is no whole path", path.display()));
    }
    let fail = |at: &Path, errno: Errno| format!("cannot open {}: {}", at.display(), errno.desc());
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut at = PathBuf::from("/");
    let mut folder = open("/", flags, Mode::empty()).map_err(|errno| fail(&at, errno))?;
    for part in path.components() {
        let name = match part {
            Component::RootDir => continue,
            Component::Normal(name) => name,
            _ => return Err(format!("{} is no plain path", path.display())),
        };
        at.push(name);
        let found = match openat(&folder, name, flags, Mode::empty()) {
            Err(Errno::ENOENT) if !is_to_make => return Ok(None),
            Err(Errno::ENOENT) => match mkdirat(&folder, name, Mode::S_IRWXU) {
                // Whoever was quicker is looked at below.
                Ok(()) | Err(Errno::EEXIST) => openat(&folder, name, flags, Mode::empty()),
                Err(errno) => return Err(format!("cannot make {}: {}", at.display(), errno.desc())),
            },
            found => found,
        };
        folder = found.map_err(|errno| match errno {
            Errno::ENOTDIR | Errno::ELOOP => {
                format!("{} is a link or no folder (links are not followed)", at.display())
            }
            errno => fail(&at, errno),
        })?;
        let facts = fstat(&folder).map_err(|errno| fail(&at, errno))?;
        if let Some(who) = who_else(&facts) {
            return Err(format!("{} {who}: remove it, or have root own it", at.display()));
        }
    }
    Ok(Some(folder))
}

/// Who else than root and this process's user can change what is at this place: its owner, or those who may write to
/// it.
pub(crate) fn who_else(facts: &FileStat) -> Option<String> {
    if facts.st_uid != 0 && facts.st_uid != own_uid() {
        return Some(format!("belongs to uid {}", facts.st_uid));
    }
    let is_own_group = facts.st_gid == 0 || facts.st_gid == nix::unistd::getegid().as_raw();
    let others = match is_own_group {
        true => OTHERS_WRITE,
        false => OTHERS_WRITE | GROUP_WRITES,
    };
    let is_sticky = facts.st_mode & libc::S_IFMT == libc::S_IFDIR && facts.st_mode & STICKY != 0;
    let is_open = facts.st_mode & others != 0 && !is_sticky;
    is_open.then(|| format!("has mode {:o}, and others may write to it", facts.st_mode & 0o7777))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};

    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn a_folder_that_was_opened_stays_the_same_whatever_its_name_means_then() {
        let scratch = Scratch::new("folder-once");
        let (path, aside) = (scratch.path().join("saved"), scratch.path().join("aside"));
        std::fs::DirBuilder::new().mode(0o700).create(&path).expect("ours");
        let folder = Folder::open(&path).expect("ours alone");
        std::fs::write(path.join("mine"), "mine").expect("ours");
        std::fs::rename(&path, &aside).expect("ours");
        symlink("/etc", &path).expect("ours");
        assert_eq!(std::fs::read(folder.way().join("mine")).expect("there"), b"mine");
        let words = format!("cannot read {}/x", folder.way().display());
        assert_eq!(folder.named(&words), format!("cannot read {}/x", path.display()));
        let why = Folder::open(&path).expect_err("a link");
        assert!(why.contains("links are not followed"), "{why}");
        std::fs::set_permissions(&aside, std::fs::Permissions::from_mode(0o750)).expect("ours");
        let why = Folder::open(&aside).expect_err("open to others");
        assert!(why.contains("has mode 750"), "{why}");
    }

    #[test]
    fn no_part_of_the_way_may_be_anothers() {
        let scratch = Scratch::new("folder-way");
        let root = scratch.path().canonicalize().expect("there");
        let at = |name: &str| root.join(name);
        assert!(beyond_others(&at("a/b"), false).expect("nothing there").is_none());
        assert!(beyond_others(&at("a/b"), true).expect("made").is_some());
        assert_eq!(std::fs::metadata(at("a/b")).expect("made").mode() & 0o777, 0o700);
        symlink(at("a"), at("link")).expect("ours");
        let why = beyond_others(&at("link/b"), true).expect_err("a link");
        assert!(why.contains("link is a link or no folder"), "{why}");
        assert!(!at("link/c").exists());
        std::fs::set_permissions(at("a"), std::fs::Permissions::from_mode(0o777)).expect("ours");
        let why = beyond_others(&at("a/b"), true).expect_err("open to all");
        assert!(why.contains("a has mode 777, and others may write to it"), "{why}");
        // Only their owners remove what is in a sticky one.
        std::fs::set_permissions(at("a"), std::fs::Permissions::from_mode(0o1777)).expect("ours");
        assert!(beyond_others(&at("a/b"), true).expect("ours").is_some());
        if own_uid() == 0 {
            std::os::unix::fs::chown(at("a/b"), Some(65_534), None).expect("root may");
            let why = beyond_others(&at("a/b/c"), true).expect_err("another's");
            assert!(why.contains("a/b belongs to uid 65534"), "{why}");
            assert!(!at("a/b/c").exists());
        }
        assert!(beyond_others(Path::new("a/b"), true).is_err(), "a path from here");
    }
}
