// SPDX-License-Identifier: Apache-2.0
//! Where `/proc` shows a process that lives: in its own folder, or in that of a thread.
//!
//! A process lives while one of its threads does. Once its first thread has ended, `/proc/PID` shows a zombie: no
//! program, no files, no mappings, and under cgroup v1 the root group. All of them are still in `/proc/PID/task/TID` of
//! a living thread.

use std::path::{Path, PathBuf};

/// `PF_EXITING` in the kernel's task flags: the task is on its way out and cannot come back.
const PF_EXITING: u64 = 0x4;
/// SIGKILL in a set of signals of `/proc`: bit 0 is signal 1.
const KILLED: u64 = 1 << (libc::SIGKILL - 1);

/// The folder that shows a process: of its first thread, or of another one where the first has ended and that one
/// lives.
#[must_use]
pub fn folder(pid: u32) -> PathBuf {
    folder_below(Path::new("/proc"), pid)
}

/// Does a process live on in other threads after its first one has ended?
#[must_use]
pub fn has_lost_its_first(pid: u32) -> bool {
    folder(pid) != Path::new("/proc").join(pid.to_string())
}

/// [`folder`] in the `/proc` of a test.
pub(super) fn folder_below(proc: &Path, pid: u32) -> PathBuf {
    let first = proc.join(pid.to_string());
    let has_ended = std::fs::read_to_string(first.join("stat")).is_ok_and(|stat| is_exiting(&stat));
    let other = has_ended.then(|| living_thread(&first)).flatten();
    other.unwrap_or(first)
}

/// Is a task ended or ending, by its `stat`?
pub(super) fn is_exiting(stat: &str) -> bool {
    // The name may hold spaces and parentheses; the last one closes it. Field 3 follows.
    let mut fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
    let state = fields.next().unwrap_or_default();
    let flags: u64 = fields.nth(5).and_then(|flags| flags.parse().ok()).unwrap_or(0);
    matches!(state, "Z" | "X") || flags & PF_EXITING != 0
}

/// The folder of a thread that lives, of a process whose first thread has ended.
pub(super) fn living_thread(process: &Path) -> Option<PathBuf> {
    let threads = std::fs::read_dir(process.join("task"));
    let mut threads = threads.into_iter().flatten().flatten().map(|thread| thread.path());
    threads.find(|thread| {
        let read = |name| std::fs::read_to_string(thread.join(name));
        read("stat").is_ok_and(|stat| !is_exiting(&stat)) && read("status").is_ok_and(|status| !is_killed(&status))
    })
}

/// Will a thread end as soon as it leaves the kernel? One that stands in a driver does not yet show it otherwise.
fn is_killed(status: &str) -> bool {
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    pending.is_some_and(|set| u64::from_str_radix(set.trim(), 16).is_ok_and(|set| set & KILLED != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    /// A `/proc` of one process: its first thread in this state, and a second one.
    fn proc_with(first: &str, second: &str, pending: &str) -> Scratch {
        let proc = Scratch::new("tasks");
        let stat = |id: &str, state: &str| format!("{id} (a) b) {state} 1 7 7 0 -1 4194560 1 0\n");
        for (folder, id, state) in [("7", "7", first), ("7/task/7", "7", first), ("7/task/9", "9", second)] {
            let folder = proc.path().join(folder);
            std::fs::create_dir_all(&folder).expect("a folder");
            std::fs::write(folder.join("stat"), stat(id, state)).expect("written");
            std::fs::write(folder.join("status"), format!("Name:\ta\nSigPnd:\t{pending}\n")).expect("written");
        }
        proc
    }

    #[test]
    fn a_process_whose_first_thread_ended_is_shown_by_a_living_one() {
        let none = "0000000000000000";
        for (first, second, pending, shown) in [
            ("S", "S", none, "7"),
            ("Z", "S", none, "7/task/9"),
            ("Z", "T", none, "7/task/9"),
            ("Z", "Z", none, "7"),
            // Killed, and its second thread has not noticed yet.
            ("Z", "D", "0000000000000100", "7"),
            ("Z", "D", "0000000000004000", "7/task/9"),
        ] {
            let proc = proc_with(first, second, pending);
            assert_eq!(
                folder_below(proc.path(), 7),
                proc.path().join(shown),
                "{first} {second}"
            );
        }
        assert_eq!(folder_below(Path::new("/proc"), 0), Path::new("/proc/0"));
    }
}
