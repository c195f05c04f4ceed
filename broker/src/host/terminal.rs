// SPDX-License-Identifier: Apache-2.0
//! The terminal of a process, which another one may share the number of: each container has its own `/dev/pts`.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use super::tasks;

const FLAGS: libc::c_int = libc::O_WRONLY | libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOFOLLOW;

/// The terminal with a number as a process sees it: below its own root, through no link.
#[must_use]
pub fn of(pid: u32, number: u64) -> Option<File> {
    let path = terminal_path(number)?;
    let root = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
        .open(tasks::folder(pid).join("root"))
        .ok()?;
    match open_below(&root, path.trim_start_matches('/')) {
        Ok(terminal) => Some(terminal),
        // Before Linux 5.6: then only for a process that has this one's terminals.
        Err(libc::ENOSYS) if is_shared(pid) => here(number),
        Err(_) => None,
    }
}

/// The terminal with a number as this process sees it.
#[must_use]
pub fn here(number: u64) -> Option<File> {
    let path = terminal_path(number)?;
    OpenOptions::new().write(true).custom_flags(FLAGS).open(path).ok()
}

/// Are a process's terminals those that this process sees? Only then its number may be remembered without it.
#[must_use]
pub fn is_shared(pid: u32) -> bool {
    let device = |path: PathBuf| std::fs::metadata(path).ok().map(|facts| (facts.dev(), facts.ino()));
    let own = device("/dev/pts/ptmx".into());
    own.is_some() && device(tasks::folder(pid).join("root/dev/pts/ptmx")) == own
}

/// # Errors
/// The kernel's error number.
fn open_below(root: &File, path: &str) -> Result<File, i32> {
    let path = std::ffi::CString::new(path).map_err(|_| libc::EINVAL)?;
    // SAFETY: all-zero memory is a set of options.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = FLAGS as u64;
    // What a container's root put in the place of a folder must not lead to the host's terminals.
    how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS;
    // SAFETY: the path and the options live during the call; what it answers is a descriptor of ours alone.
    unsafe {
        let size = size_of::<libc::open_how>();
        let fd = libc::syscall(libc::SYS_openat2, root.as_raw_fd(), path.as_ptr(), &raw const how, size);
        match i32::try_from(fd) {
            Ok(fd) if fd >= 0 => Ok(File::from_raw_fd(fd)),
            _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
        }
    }
}

/// Device file of a pseudo-terminal by its number; none for what is no pseudo-terminal.
fn terminal_path(number: u64) -> Option<String> {
    // Unix98 pseudo-terminals have majors 136 to 143 (Documentation/admin-guide/devices.txt).
    let (major, minor) = (libc::major(number), libc::minor(number));
    (136..=143)
        .contains(&major)
        .then(|| format!("/dev/pts/{}", u64::from(major - 136) * 256 + u64::from(minor)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pseudo_terminals_have_a_path() {
        assert_eq!(terminal_path(libc::makedev(136, 7)).as_deref(), Some("/dev/pts/7"));
        assert_eq!(terminal_path(libc::makedev(137, 1)).as_deref(), Some("/dev/pts/257"));
        assert_eq!(terminal_path(libc::makedev(4, 1)), None);
        assert_eq!(terminal_path(0), None);
    }

    #[test]
    fn a_link_in_the_place_of_a_folder_leads_nowhere() {
        let folder = crate::testing::Scratch::new("terminal");
        std::os::unix::fs::symlink("/dev", folder.path().join("dev")).expect("linked");
        let root = File::open(folder.path()).expect("there");
        assert_eq!(open_below(&root, "dev/null").err(), Some(libc::ELOOP));
        let whole = File::open("/").expect("there");
        assert!(open_below(&whole, "dev/null").is_ok());
        assert!(is_shared(std::process::id()) || std::fs::metadata("/dev/pts/ptmx").is_err());
    }
}
