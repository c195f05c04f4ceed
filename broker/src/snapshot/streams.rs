// SPDX-License-Identifier: Apache-2.0
//! The standard streams of a tree's first process: whoever restores gives his own in the place of pipes to outside.
//!
//! A pipe of which the tree has the other end too is its own, and comes back with it: a notebook's kernel reads what
//! its cells print.

use std::collections::BTreeSet;
use std::path::Path;

/// How the kernel names a pipe.
const PIPE: &str = "pipe:[";

/// Standard input, output and error as `/proc/PID/fd` names them; nothing for what is closed, and for a pipe within the
/// tree.
pub fn of(tree: &BTreeSet<u32>, first: u32) -> Vec<String> {
    let stream = |fd: i32| {
        let link = std::fs::read_link(format!("/proc/{first}/fd/{fd}"));
        let link = link.map_or_else(|_| String::new(), |link| link.to_string_lossy().into_owned());
        let is_own = link.starts_with(PIPE) && tree.iter().any(|pid| has_other_end(*pid, &link, fd == 0));
        if is_own { String::new() } else { link }
    };
    (0..3).map(stream).collect()
}

/// Has a process the end of a pipe that writes, or the one that reads?
fn has_other_end(pid: u32, pipe: &str, writes: bool) -> bool {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd"));
    let mut ends = entries.into_iter().flatten().flatten().filter(|entry| {
        let link = std::fs::read_link(entry.path());
        link.is_ok_and(|link| link.as_os_str() == pipe)
    });
    ends.any(|entry| {
        let fd = entry.file_name();
        let path = Path::new("/proc").join(pid.to_string()).join("fdinfo").join(fd);
        access(&std::fs::read_to_string(path).unwrap_or_default()) == Some(i32::from(writes))
    })
}

/// `O_RDONLY` or `O_WRONLY`, as `fdinfo` has it.
fn access(fdinfo: &str) -> Option<i32> {
    let flags = fdinfo.lines().find_map(|line| line.strip_prefix("flags:"))?;
    Some(i32::from_str_radix(flags.trim(), 8).ok()? & libc::O_ACCMODE)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_pipe_is_the_trees_own_with_both_its_ends() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("cat");
        let (pid, me) = (child.id(), std::process::id());
        let outside = of(&[pid].into(), pid);
        assert!(
            outside[0].starts_with(PIPE) && outside[1].starts_with(PIPE),
            "{outside:?}"
        );
        assert_eq!(outside[2], "/dev/null");
        let both = of(&[pid, me].into(), pid);
        assert_eq!(both, ["", "", "/dev/null"]);
        let ours = child.stdin.as_ref().expect("piped").as_raw_fd();
        let info = std::fs::read_to_string(format!("/proc/{me}/fdinfo/{ours}")).expect("there");
        assert_eq!(access(&info), Some(libc::O_WRONLY));
        drop(child.stdin.take());
        child.wait().expect("ours");
    }
}
