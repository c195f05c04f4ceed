// SPDX-License-Identifier: Apache-2.0
//! What lies at a file's path now, and who else writes to it.

use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use partage_protocol::snapshot::OpenFile;

use super::copy;
use super::found::{Key, held_by, key};
use crate::host::proc::{Proc, Processes, boot_id};

/// What lies at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Now {
    /// Nothing.
    Gone,
    /// A link, a folder, or whatever else is no file.
    Odd,
    /// Another file of that length.
    Other(u64),
    /// The file.
    Same {
        /// Its length in bytes.
        bytes: u64,
        /// It holds what was saved, as far as that is known: by its copy, else by when it was written.
        is_as_saved: bool,
    },
}

/// A file as it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub now: Now,
    /// Its permissions, where there is one.
    pub mode: u32,
    /// Where it is, for who writes to it.
    pub key: Option<Key>,
}

/// A process that writes to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Writer {
    pub pid: u32,
    pub name: String,
}

/// This boot, as text.
pub(super) fn boot() -> String {
    boot_id().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// When a file was last written, in nanoseconds of unix time.
pub(super) fn modified_ns(facts: &Metadata) -> i64 {
    facts
        .mtime()
        .saturating_mul(1_000_000_000)
        .saturating_add(facts.mtime_nsec())
}

/// Is it the file that was saved, by its number?
pub(super) fn is_it(file: &OpenFile, facts: &Metadata, is_this_boot: bool) -> bool {
    file.inode == facts.ino() && is_on(file.device, facts.dev(), is_this_boot)
}

/// Is it the file system that was saved? Numbers of those without hardware are of one boot alone.
pub(super) fn is_on(saved: u64, now: u64, is_this_boot: bool) -> bool {
    let without_hardware = |device: u64| libc::major(device) == 0;
    saved == now || !is_this_boot && without_hardware(saved) && without_hardware(now)
}

/// What lies at a file's path. `copy`: what was saved of its content.
pub(super) fn find(file: &OpenFile, copy: Option<&Path>, is_this_boot: bool) -> std::io::Result<Seen> {
    let path = Path::new(&file.path);
    let facts = match path.symlink_metadata() {
        Ok(facts) => facts,
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(Seen {
                now: Now::Gone,
                mode: 0,
                key: None,
            });
        }
        Err(error) => return Err(error),
    };
    Ok(Seen {
        now: match facts.is_file() {
            true => of_file(file, &facts, copy, is_this_boot)?,
            false => Now::Odd,
        },
        mode: facts.mode() & 0o7777,
        key: Some(key(&facts)),
    })
}

fn of_file(file: &OpenFile, facts: &Metadata, saved: Option<&Path>, is_this_boot: bool) -> std::io::Result<Now> {
    let bytes = facts.len();
    let same = |is_as_saved| Ok(Now::Same { bytes, is_as_saved });
    if let Some(saved) = saved
        && bytes == file.bytes
        && copy::are_equal(&open(Path::new(&file.path))?, &open(saved)?)?
    {
        // Whichever file it is.
        return same(true);
    }
    if !is_it(file, facts, is_this_boot) {
        return Ok(Now::Other(bytes));
    }
    // Its number may be another file's by now, and it may have been begun again. What is written in place is no sign.
    if saved.is_none()
        && bytes >= file.bytes
        && copy::end_sum(&open(Path::new(&file.path))?, file.bytes)? != file.end_sum
    {
        return Ok(Now::Other(bytes));
    }
    same(saved.is_none() && bytes == file.bytes && modified_ns(facts) == file.modified_ns)
}

fn open(path: &Path) -> std::io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Who writes to files, as far as this process may see: by file. Neither this process nor `partage restore`, whose
/// child it is: that one's words may go to the job's log (`partage restore DIR >> train.log`).
pub(super) fn writers(wanted: &[Key]) -> BTreeMap<Key, Vec<Writer>> {
    let mut writers: BTreeMap<Key, Vec<Writer>> = BTreeMap::new();
    let own = [std::process::id(), std::os::unix::process::parent_id()];
    for pid in Proc.all().into_iter().filter(|pid| !own.contains(pid)) {
        for (way, hold) in held_by(pid) {
            if !hold.can_write() {
                continue;
            }
            let Some(key) = std::fs::metadata(way).ok().map(|facts| key(&facts)) else {
                continue;
            };
            if !wanted.contains(&key) {
                continue;
            }
            let list = writers.entry(key).or_default();
            if list.iter().all(|writer| writer.pid != pid) {
                let name = Proc.name(pid).unwrap_or_default();
                list.push(Writer { pid, name });
            }
        }
    }
    writers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    fn saved(path: &Path) -> OpenFile {
        let facts = path.symlink_metadata().expect("there");
        OpenFile {
            path: path.display().to_string(),
            device: facts.dev(),
            inode: facts.ino(),
            bytes: facts.len(),
            modified_ns: modified_ns(&facts),
            end_sum: copy::end_sum(&File::open(path).expect("there"), facts.len()).expect("read"),
            ..OpenFile::default()
        }
    }

    #[test]
    fn each_thing_that_may_lie_at_a_path_is_told() {
        let folder = Scratch::new("now");
        let (path, copy) = (folder.path().join("log"), folder.path().join("copy"));
        std::fs::write(&path, b"12345").expect("written");
        std::fs::write(&copy, b"12345").expect("written");
        let file = saved(&path);
        let now = |copy: Option<&Path>| find(&file, copy, true).expect("seen").now;
        let same = |bytes, is_as_saved| Now::Same { bytes, is_as_saved };
        assert_eq!((now(None), now(Some(&copy))), (same(5, true), same(5, true)));
        let long_ago = std::time::SystemTime::UNIX_EPOCH;
        let opened = File::options().write(true).open(&path).expect("ours");
        opened.set_modified(long_ago).expect("ours");
        // Written at another time, and the copy says that it is the same.
        assert_eq!((now(None), now(Some(&copy))), (same(5, false), same(5, true)));
        std::fs::write(&copy, b"12346").expect("written");
        assert_eq!(now(Some(&copy)), same(5, false));
        opened.set_len(7).expect("ours");
        assert_eq!(now(None), same(7, false));
        // It was begun again, and is as long by now.
        std::os::unix::fs::FileExt::write_all_at(&opened, b"abcde", 0).expect("ours");
        assert_eq!((now(None), now(Some(&copy))), (Now::Other(7), same(7, false)));
        std::fs::rename(&path, folder.path().join("log.1")).expect("ours");
        assert_eq!(now(None), Now::Gone);
        std::os::unix::fs::symlink("log.1", &path).expect("ours");
        assert_eq!(now(None), Now::Odd);
        std::fs::remove_file(&path).expect("ours");
        std::fs::write(&path, b"123").expect("written");
        assert_eq!(now(None), Now::Other(3));
        // Another file that holds what was saved is as good.
        std::fs::write(&copy, b"12345").expect("written");
        std::fs::write(&path, b"12345").expect("written");
        assert_eq!((now(None), now(Some(&copy))), (Now::Other(5), same(5, true)));
    }

    #[test]
    fn numbers_of_devices_without_hardware_mean_nothing_after_a_boot() {
        let folder = Scratch::new("boot");
        let path = folder.path().join("log");
        std::fs::write(&path, b"12345").expect("written");
        let facts = path.symlink_metadata().expect("there");
        let disk = libc::makedev(259, 7);
        for (device, here, there) in [(facts.dev(), true, true), (disk, false, false)] {
            let file = OpenFile { device, ..saved(&path) };
            assert_eq!((is_it(&file, &facts, true), is_it(&file, &facts, false)), (here, there));
        }
        let file = OpenFile {
            device: libc::makedev(0, 77),
            ..saved(&path)
        };
        assert!(!is_it(&file, &facts, true));
        assert_eq!(is_it(&file, &facts, false), libc::major(facts.dev()) == 0);
    }

    #[test]
    fn another_process_that_writes_is_found_by_its_number() {
        let folder = Scratch::new("writers");
        let path = folder.path().join("log");
        let mut child = std::process::Command::new("sh")
            .args(["-c", "exec 3>>\"$0\"; echo; read end"])
            .arg(&path)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut said = [0];
        let output = child.stdout.as_mut().expect("piped");
        std::io::Read::read_exact(output, &mut said).expect("it says so");
        let own = File::options().append(true).open(&path).expect("ours");
        let key = key(&path.symlink_metadata().expect("there"));
        let found = writers(&[key]).remove(&key).unwrap_or_default();
        let expected = Writer {
            pid: child.id(),
            name: "sh".to_owned(),
        };
        child.kill().expect("ours");
        child.wait().expect("ours");
        assert_eq!(found, [expected]);
        assert!(
            writers(&[key]).remove(&key).unwrap_or_default().is_empty(),
            "ours alone"
        );
        drop(own);
    }
}
