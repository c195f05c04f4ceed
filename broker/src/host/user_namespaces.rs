// SPDX-License-Identifier: Apache-2.0
//! Whose user namespace a process is in, by the kernel's word (ioctl_ns(2)).

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;

use super::tasks;

const NS_GET_PARENT: libc::c_ulong = 0xB702;
const NS_GET_OWNER_UID: libc::c_ulong = 0xB704;

/// Namespaces that are looked at, from the process's own outwards: the kernel nests at most 32.
const DEEPEST: usize = 33;

/// Is a process in a user namespace that this user owns, or in one below such a one? The namespace that we are in
/// counts for nobody.
#[must_use]
pub fn is_in_one_of(pid: u32, uid: u32) -> bool {
    let Ok(own) = std::fs::metadata("/proc/self/ns/user") else {
        return false;
    };
    let mut next = File::open(tasks::folder(pid).join("ns/user")).ok();
    for _ in 0..DEEPEST {
        let Some(namespace) = next else { return false };
        let is_own = namespace
            .metadata()
            .is_ok_and(|facts| (facts.dev(), facts.ino()) == (own.dev(), own.ino()));
        if is_own {
            return false;
        }
        if owner(&namespace) == Some(uid) {
            return true;
        }
        next = parent(&namespace);
    }
    false
}

/// The uid that made a user namespace, as ours numbers it.
fn owner(namespace: &File) -> Option<u32> {
    let mut uid: libc::uid_t = 0;
    // SAFETY: NS_GET_OWNER_UID writes one uid_t to the place it is given.
    let done = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_OWNER_UID as _, &raw mut uid) };
    (done == 0).then_some(uid)
}

/// The namespace in which another was made; none beyond what we may see.
fn parent(namespace: &File) -> Option<File> {
    // SAFETY: NS_GET_PARENT takes no argument and answers a new descriptor or -1.
    let found = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_PARENT as _) };
    // SAFETY: the descriptor is new, and nobody else's.
    (found >= 0).then(|| unsafe { File::from_raw_fd(found) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_namespace_is_nobodys() {
        // SAFETY: geteuid only asks.
        let me = unsafe { libc::geteuid() };
        assert!(!is_in_one_of(std::process::id(), me));
        assert!(!is_in_one_of(u32::MAX, me), "no such process");
    }

    #[test]
    fn a_namespace_that_we_made_is_ours() {
        let mut child = std::process::Command::new("unshare")
            .args(["--user", "sh", "-c", "echo; read wait"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("unshare");
        let mut line = [0; 1];
        let said = child
            .stdout
            .take()
            .map(|mut out| std::io::Read::read(&mut out, &mut line));
        // SAFETY: geteuid only asks.
        let me = unsafe { libc::geteuid() };
        if matches!(said, Some(Ok(1))) {
            assert!(is_in_one_of(child.id(), me));
            assert!(!is_in_one_of(child.id(), me + 1));
        } else {
            eprintln!("skipped: this system lets nobody make a user namespace");
        }
        drop(child.stdin.take());
        child.wait().expect("reaped");
    }
}
