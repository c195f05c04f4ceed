// SPDX-License-Identifier: Apache-2.0
//! The library file that COMMAND preloads, and the broker that it starts where a private one is gone: versioned copies
//! that no upgrade ever changes and no uninstallation takes away.
//!
//! An installed file may be overwritten under running jobs (their mapped pages would vanish: SIGBUS) or be deleted (a
//! virtual environment; the job would never have a broker again). A copy's name carries version and content hash, or
//! for the broker version, time and length; it appears by rename, and it is never written again. ld.so splits
//! `LD_PRELOAD` at blanks and colons and maps the file executable, so a path with either, or on a `noexec` file system,
//! is passed over.

use std::env;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::Uid;

use crate::failure::{Failure, Outcome, reason};
use crate::launch::installed;
use crate::launch::place;

/// Copies the installed library to where COMMAND will load it from, unless that copy exists, and gives its path.
///
/// # Errors
/// The library is missing, or no directory can take a copy that ld.so would load.
pub fn provide(socket_dir: &Path) -> Outcome<PathBuf> {
    let installed = installed::find(installed::LIBRARY)?;
    let (name, content) = versioned()?;
    let mut refused = Vec::new();
    for dir in candidates(socket_dir) {
        match copy(&content, &dir, &name) {
            Ok(path) => return Ok(path),
            Err(why) => refused.push(format!("{}: {why}", dir.display())),
        }
    }
    let message = format!(
        "no place for the copy of {} that COMMAND loads ({})",
        installed.display(),
        refused.join("; ")
    );
    Err(Failure::failed(message).hint("choose a directory for it: --socket-dir DIR"))
}

/// The broker's file for the processes of a job, which start it where their private broker is gone: beside the copy of
/// the library. Where no folder takes it, the installed file.
///
/// # Errors
/// The broker is missing.
pub fn provide_broker(socket_dir: &Path) -> Outcome<PathBuf> {
    let installed = installed::find(installed::BROKER)?;
    let made = candidates(socket_dir)
        .into_iter()
        .find_map(|dir| keep_broker(&installed, &dir).ok());
    Ok(made.unwrap_or(installed))
}

/// `DIR/broker-VERSION-TIME-LENGTH/partaged`: a process of it has the same name as one of the installed file.
fn keep_broker(installed: &Path, dir: &Path) -> Result<PathBuf, String> {
    // Through links: a link to what was deleted would be kept otherwise.
    let installed = &fs::canonicalize(installed).map_err(|e| reason(&e))?;
    let data = fs::metadata(installed).map_err(|e| reason(&e))?;
    let version = env!("PARTAGE_VERSION");
    let (time, nanoseconds) = (data.mtime(), data.mtime_nsec());
    let folder = dir.join(format!("broker-{version}-{time:x}.{nanoseconds:x}-{:x}", data.len()));
    let path = folder.join(installed::BROKER);
    prepare(dir)?;
    if is_whole(&path, data.len()) {
        return Ok(path);
    }
    own_folder(&folder)?;
    // The same file where that is possible: whoever replaces or deletes the installed name leaves this one.
    if fs::hard_link(installed, &path).is_ok() {
        return Ok(path);
    }
    let content = fs::read(installed).map_err(|e| reason(&e))?;
    place_content(&content, &folder, installed::BROKER)
}

/// The name of a copy of the installed library, by its version and content, and that content.
///
/// # Errors
/// The library is missing, or cannot be read.
pub fn versioned() -> Outcome<(String, Vec<u8>)> {
    let installed = installed::find(installed::LIBRARY)?;
    let content = fs::read(&installed).map_err(|e| Failure::cannot("read", installed, e))?;
    let name = format!("libpartage-{}-{:016x}.so", env!("PARTAGE_VERSION"), hash(&content));
    Ok((name, content))
}

/// Is this `LD_PRELOAD` entry a copy of ours, or the installed library?
pub fn is_ours(entry: &str) -> bool {
    let name = entry.rsplit('/').next().unwrap_or(entry);
    name == installed::LIBRARY || (name.starts_with("libpartage-") && name.ends_with(".so"))
}

/// A path to the same copy that carries a job's token, 64 hexadecimal digits: a step that changes nothing for each bit,
/// the highest first (`/` for 0, `/.` for 1), which the library reads (`interposer/src/carried.rs`). `None` where the
/// token is none, or ld.so would not take so long a path.
pub fn carrying(copy: &Path, token: &str) -> Option<PathBuf> {
    const LONGEST: usize = 4095;
    let (folder, name) = (copy.parent()?, copy.file_name()?);
    let digits: Option<Vec<u32>> = token.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() == 64)?;
    let mut path = folder.as_os_str().to_owned();
    for digit in digits {
        for bit in (0..4).rev() {
            path.push(if digit >> bit & 1 == 0 { "/" } else { "/." });
        }
    }
    path.push("/");
    path.push(name);
    (path.len() <= LONGEST).then(|| path.into())
}

/// The socket directory when it is the caller's; on a managed host the caller's own private directory instead; then the
/// cache, for hosts whose /tmp is `noexec`.
fn candidates(socket_dir: &Path) -> Vec<PathBuf> {
    let uid = Uid::effective().as_raw();
    let is_own = socket_dir
        .symlink_metadata()
        .is_ok_and(|data| data.is_dir() && data.uid() == uid);
    let mut dirs = vec![if is_own {
        socket_dir.join("lib")
    } else {
        place::private_dir(uid).join("lib")
    }];
    let cache = env::var_os("XDG_CACHE_HOME")
        .filter(|v| !v.is_empty())
        .map(PathBuf::from);
    let cache = cache.or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    dirs.extend(cache.filter(|dir| dir.is_absolute()).map(|dir| dir.join("partage/lib")));
    dirs
}

fn copy(content: &[u8], dir: &Path, name: &str) -> Result<PathBuf, String> {
    prepare(dir)?;
    let path = dir.join(name);
    if is_whole(&path, content.len() as u64) {
        return Ok(path);
    }
    place_content(content, dir, name)
}

/// Makes the folder of copies, or says why it cannot have any.
fn prepare(dir: &Path) -> Result<(), String> {
    if let Some(byte) = dir.as_os_str().as_bytes().iter().find(|b| b": \t\n".contains(b)) {
        let what = if *byte == b':' { "a colon" } else { "a blank" };
        return Err(format!("ld.so would cut the path at {what}"));
    }
    // The parent first, with the checks of a socket directory: in /tmp anybody could have made it.
    if let Some(parent) = dir.parent().filter(|p| p.starts_with("/tmp")) {
        place::make_own_dir(parent).map_err(|failure| failure.message)?;
    }
    own_folder(dir)?;
    if statvfs(dir).is_ok_and(|fs| fs.flags().contains(FsFlags::ST_NOEXEC)) {
        return Err("its file system is mounted noexec".to_owned());
    }
    Ok(())
}

fn own_folder(dir: &Path) -> Result<(), String> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|e| reason(&e))?;
    let data = dir.symlink_metadata().map_err(|e| reason(&e))?;
    match data.is_dir() && data.uid() == Uid::effective().as_raw() {
        true => Ok(()),
        false => Err("not your own directory".to_owned()),
    }
}

fn is_whole(path: &Path, length: u64) -> bool {
    path.symlink_metadata()
        .is_ok_and(|data| data.is_file() && data.len() == length)
}

fn place_content(content: &[u8], dir: &Path, name: &str) -> Result<PathBuf, String> {
    let path = dir.join(name);
    // A name of this process's own: two first runs at once write two files, and either rename gives the same content.
    let draft = dir.join(format!(".{name}.{}", std::process::id()));
    let written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o755)
        .open(&draft)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| fs::rename(&draft, &path));
    written.map(|()| path).map_err(|error| {
        let _ = fs::remove_file(&draft);
        reason(&error)
    })
}

/// FNV-1a, 64 bits: tells versions apart; the directory is the user's own, so nobody is there to forge.
fn hash(content: &[u8]) -> u64 {
    content.iter().fold(0xcbf2_9ce4_8422_2325, |h, byte| {
        (h ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = env::temp_dir().join(format!("partage-copy-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        place::make_own_dir(&dir).expect("make a test directory");
        dir
    }

    #[test]
    fn a_copy_is_made_once_and_kept() {
        let dir = scratch("once");
        let path = copy(b"first", &dir.join("lib"), "libpartage-1-x.so").expect("copied");
        let inode = path.metadata().expect("there").ino();
        assert_eq!(
            copy(b"first", &dir.join("lib"), "libpartage-1-x.so").expect("again"),
            path
        );
        assert_eq!(
            path.metadata().expect("there").ino(),
            inode,
            "the file of running jobs is never touched"
        );
        assert_eq!(
            fs::read_dir(dir.join("lib")).expect("list").count(),
            1,
            "no draft is left"
        );
        fs::remove_dir_all(dir).expect("clean up");
    }

    #[test]
    fn a_broker_stays_when_what_was_installed_goes() {
        let dir = scratch("broker");
        // An environment may have a link to it.
        let (file, installed) = (dir.join("file"), dir.join("partaged"));
        fs::write(&file, "one").expect("writable");
        std::os::unix::fs::symlink(&file, &installed).expect("linked");
        let kept = keep_broker(&installed, &dir.join("lib")).expect("kept");
        assert_eq!(keep_broker(&installed, &dir.join("lib")).expect("again"), kept);
        fs::remove_file(&file).expect("there");
        fs::remove_file(&installed).expect("there");
        fs::write(&installed, "another").expect("writable");
        let next = keep_broker(&installed, &dir.join("lib")).expect("kept");
        assert_ne!(kept, next);
        let both = [kept, next].map(|path| fs::read_to_string(path).expect("there"));
        assert_eq!(both, ["one", "another"]);
        fs::remove_dir_all(dir).expect("clean up");
    }

    #[test]
    fn a_path_that_the_loader_would_cut_is_refused() {
        assert!(
            copy(b"", Path::new("/tmp/a b/lib"), "x")
                .expect_err("blank")
                .contains("a blank")
        );
        assert!(
            copy(b"", Path::new("/tmp/a:b/lib"), "x")
                .expect_err("colon")
                .contains("a colon")
        );
    }

    #[test]
    fn a_path_that_carries_a_token_leads_to_the_same_file() {
        let dir = scratch("carrying");
        let plain = copy(b"one", &dir.join("lib"), "libpartage-1-x.so").expect("copied");
        let token = format!("a0{}", "0".repeat(62));
        let path = carrying(&plain, &token).expect("a token");
        // 1010, and 252 bits of 0.
        let steps = format!("/.//./{}", "/".repeat(252));
        let written = format!("{}{steps}/libpartage-1-x.so", dir.join("lib").display());
        assert_eq!(path.as_os_str().to_str(), Some(written.as_str()));
        assert_eq!(fs::read(&path).expect("the same file"), b"one");
        assert!(is_ours(&path.to_string_lossy()));
        assert_eq!(carrying(&plain, "ab"), None);
        fs::remove_dir_all(dir).expect("clean up");
    }

    #[test]
    fn our_own_entries_are_recognised() {
        assert!(is_ours("/tmp/partage-0/lib/libpartage-0.1.0-00ff.so") && is_ours("libpartage.so"));
        assert!(!is_ours("/usr/lib/libpartage-tools.so.1") && !is_ours("libfoo.so"));
    }

    #[test]
    fn hashes_tell_contents_apart() {
        assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_ne!(hash(b"a"), hash(b"b"));
    }
}
