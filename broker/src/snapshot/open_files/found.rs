// SPDX-License-Identifier: Apache-2.0
//! Which files processes have open or mapped, from `/proc`.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::writes::Hold;
use crate::host::proc::{Proc, shared_memory_of, with_descendants};

/// File systems whose files are the kernel's own words.
const KERNELS: [i64; 6] = [
    libc::PROC_SUPER_MAGIC,
    0x6265_6572, // sysfs
    libc::CGROUP_SUPER_MAGIC,
    libc::CGROUP2_SUPER_MAGIC,
    libc::DEBUGFS_MAGIC,
    libc::TRACEFS_MAGIC,
];

/// A file that a process has.
#[derive(Debug)]
pub(super) struct Found {
    /// Its name, as the processes see it.
    pub path: PathBuf,
    /// A way to the very file.
    pub way: PathBuf,
    /// What it is now.
    pub facts: Metadata,
    /// Everybody who has it.
    pub holds: Vec<Hold>,
}

/// A file by its file system and its number there.
pub(super) type Key = (u64, u64);

/// The key of a file.
pub(super) fn key(facts: &Metadata) -> Key {
    (facts.dev(), facts.ino())
}

/// Every file with a name that a process of a tree has open or mapped, and can be written to by one of them. Not those
/// of `/dev/shm`, which are saved otherwise.
pub(super) fn in_tree(tree: u32) -> Vec<Found> {
    let shared_memory = std::fs::metadata(shared_memory_of(tree)).ok().map(|facts| facts.dev());
    let mut found: BTreeMap<Key, Found> = BTreeMap::new();
    for pid in with_descendants(&Proc, &[tree].into()) {
        for (way, hold) in held_by(pid) {
            // The file that the link stands for, whatever its name is now.
            let Ok(facts) = std::fs::metadata(&way) else { continue };
            if !facts.is_file() || facts.nlink() == 0 || Some(facts.dev()) == shared_memory {
                continue;
            }
            let Ok(path) = std::fs::read_link(&way) else { continue };
            let file = found.entry(key(&facts)).or_insert_with(|| Found {
                path,
                way,
                facts,
                holds: Vec::new(),
            });
            file.holds.push(hold);
        }
    }
    let is_written = |file: &Found| file.holds.iter().any(|hold| hold.can_write()) && !is_kernels(&file.way);
    found.into_values().filter(is_written).collect()
}

/// What a process has: a way to each file, and how.
pub(super) fn held_by(pid: u32) -> Vec<(PathBuf, Hold)> {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let mut held = Vec::new();
    for entry in std::fs::read_dir(folder.join("fd")).into_iter().flatten().flatten() {
        let info = std::fs::read_to_string(folder.join("fdinfo").join(entry.file_name()));
        if let Some(hold) = info.ok().and_then(|text| Hold::parse(&text)) {
            held.push((entry.path(), hold));
        }
    }
    let maps = std::fs::read_to_string(folder.join("maps")).unwrap_or_default();
    for line in maps.lines() {
        if let Some((range, is_written)) = mapping(line) {
            held.push((folder.join("map_files").join(range), Hold::Mapped { is_written }));
        }
    }
    held
}

/// The range of a line of `/proc/PID/maps` that is a file's, and whether writing there writes to the file.
fn mapping(line: &str) -> Option<(String, bool)> {
    let mut words = line.split_ascii_whitespace();
    let (range, may, inode) = (words.next()?, words.next()?.as_bytes(), words.nth(2)?);
    let (start, end) = range.split_once('-')?;
    // The names of `map_files` have no leading zeros.
    let bare = |text: &str| u64::from_str_radix(text, 16).map(|number| format!("{number:x}")).ok();
    let is_written = may.get(1) == Some(&b'w') && may.get(3) == Some(&b's');
    (inode != "0").then_some((format!("{}-{}", bare(start)?, bare(end)?), is_written))
}

fn is_kernels(way: &Path) -> bool {
    nix::sys::statfs::statfs(way).is_ok_and(|facts| KERNELS.contains(&facts.filesystem_type().0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn a_line_of_maps_is_read() {
        let line = "00400000-00452000 rw-s 00000000 08:02 173521      /data/a file";
        assert_eq!(mapping(line), Some(("400000-452000".to_owned(), true)));
        let line = "7f0000-7f1000 rw-p 00000000 08:02 173521 /lib/x.so";
        assert_eq!(mapping(line), Some(("7f0000-7f1000".to_owned(), false)));
        assert_eq!(mapping("7f0000-7f1000 rw-p 00000000 00:00 0 [heap]"), None);
    }

    #[test]
    fn files_with_a_name_that_are_open_to_write_are_found() {
        let folder = Scratch::new("found");
        let at = |name: &str| folder.path().join(name);
        for name in ["read", "gone", "written"] {
            std::fs::write(at(name), b"12345").expect("written");
        }
        let options = |append| std::fs::OpenOptions::new().append(append).write(true).clone();
        let kept = [
            std::fs::File::open(at("read")).expect("there"),
            options(false).open(at("gone")).expect("there"),
            options(true).open(at("written")).expect("there"),
            std::fs::File::open(at("written")).expect("there"),
        ];
        std::fs::remove_file(at("gone")).expect("ours");
        let found = in_tree(std::process::id());
        let own: Vec<&Found> = found
            .iter()
            .filter(|file| file.path.starts_with(folder.path()))
            .collect();
        assert_eq!(own.len(), 1, "{own:?}");
        assert_eq!((own[0].path.clone(), own[0].facts.len()), (at("written"), 5));
        assert_eq!(own[0].holds.len(), 2);
        drop(kept);
    }
}
