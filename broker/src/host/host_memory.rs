// SPDX-License-Identifier: Apache-2.0
//! Room in host memory for what leaves a device: the machine's, and that of the tightest memory cgroup of a process.

use std::path::{Path, PathBuf};

use partage_policy::HostRoom;

use super::tasks;

/// A v1 limit that is none (`PAGE_COUNTER_MAX` in bytes, for pages of 4 KiB) begins here.
const NO_LIMIT: u64 = 1 << 62;

/// What the kernel says for a process. What it does not say counts as room: the driver refuses in time.
#[must_use]
pub fn room(pid: u32) -> HostRoom {
    room_below(Path::new("/proc"), Path::new("/sys/fs/cgroup"), pid)
}

/// `MemAvailable` of this machine in bytes; none where the kernel does not say.
#[must_use]
pub fn available_here() -> Option<u64> {
    available(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn room_below(proc: &Path, cgroups: &Path, pid: u32) -> HostRoom {
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let available = available(&read(proc.join("meminfo"))).unwrap_or(u64::MAX);
    let of_process = read(tasks::folder_below(proc, pid).join("cgroup"));
    HostRoom {
        available,
        cgroup: tightest(cgroups, &of_process),
    }
}

/// `MemAvailable` in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib.saturating_mul(1024))
}

/// Of all memory cgroups from the process's own up: the one with the least left, as path, limit and what is used of it.
fn tightest(cgroups: &Path, of_process: &str) -> Option<(String, u64, u64)> {
    let mut found: Option<(String, u64, u64)> = None;
    for line in of_process.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let (root, limit_file, used_file) = match controllers {
            "" => (cgroups.to_owned(), "memory.max", "memory.current"),
            names if names.split(',').any(|name| name == "memory") => {
                (cgroups.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes")
            }
            _ => continue,
        };
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            let number = |name: &str| -> Option<u64> {
                let text = std::fs::read_to_string(root.join(group).join(name)).ok()?;
                text.trim().parse().ok()
            };
            let (Some(limit), Some(used)) = (number(limit_file), number(used_file)) else {
                continue;
            };
            // What the kernel would give up first is room.
            let stat = std::fs::read_to_string(root.join(group).join("memory.stat")).unwrap_or_default();
            let used = used.saturating_sub(inactive_file(&stat));
            let left = |limit: u64, used: u64| limit.saturating_sub(used);
            let is_tighter = found
                .as_ref()
                .is_none_or(|(_, other, of_it)| left(limit, used) < left(*other, *of_it));
            if limit < NO_LIMIT && is_tighter {
                found = Some((format!("/{}", group.display()), limit, used));
            }
        }
    }
    found
}

/// File pages that were not used for a while: `inactive_file`, in version 1 with those of the groups below.
fn inactive_file(stat: &str) -> u64 {
    let field = |name: &str| {
        let mut lines = stat.lines().map(str::split_whitespace);
        lines.find_map(|mut words| (words.next() == Some(name)).then(|| words.next()?.parse().ok())?)
    };
    field("total_inactive_file")
        .or_else(|| field("inactive_file"))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    }

    #[test]
    fn the_tightest_cgroup_counts_in_both_versions() {
        let scratch = Scratch::new("host-memory");
        let (proc, cgroups) = (scratch.path().join("proc"), scratch.path().join("cgroup"));
        write(&proc.join("meminfo"), "MemTotal: 9 kB\nMemAvailable:    4 kB\n");
        write(&proc.join("7/cgroup"), "0::/a/b\n");
        let none = room_below(&proc, &cgroups, 7);
        assert_eq!((none.available, none.cgroup), (4096, None));
        write(&cgroups.join("a/b/memory.max"), "max\n");
        write(&cgroups.join("a/b/memory.current"), "10\n");
        write(&cgroups.join("a/memory.max"), "100\n");
        write(&cgroups.join("a/memory.current"), "60\n");
        assert_eq!(room_below(&proc, &cgroups, 7).cgroup, Some(("/a".into(), 100, 60)));
        write(&cgroups.join("a/b/memory.max"), "20\n");
        assert_eq!(room_below(&proc, &cgroups, 7).cgroup, Some(("/a/b".into(), 20, 10)));
        write(
            &cgroups.join("a/b/memory.stat"),
            "anon 3\ninactive_file 7\nactive_file 1\n",
        );
        assert_eq!(room_below(&proc, &cgroups, 7).cgroup, Some(("/a/b".into(), 20, 3)));
        write(&proc.join("8/cgroup"), "5:cpu,memory:/job\n3:freezer:/a/b\n");
        write(&cgroups.join("memory/job/memory.limit_in_bytes"), "30\n");
        write(&cgroups.join("memory/job/memory.usage_in_bytes"), "29\n");
        write(&cgroups.join("memory/memory.limit_in_bytes"), "9223372036854771712\n");
        write(&cgroups.join("memory/memory.usage_in_bytes"), "5\n");
        assert_eq!(room_below(&proc, &cgroups, 8).cgroup, Some(("/job".into(), 30, 29)));
    }

    #[test]
    fn a_kernel_that_says_nothing_stands_in_nobodys_way() {
        let scratch = Scratch::new("host-memory-none");
        let room = room_below(scratch.path(), scratch.path(), 7);
        assert_eq!((room.available, room.cgroup), (u64::MAX, None));
    }
}
