// SPDX-License-Identifier: Apache-2.0
//! A save: which files are noted, and which are copied.
//!
//! A file that is written in place is copied, unless the job has not written to it since it began and there is no room:
//! a restore then takes it only as it was. What is mapped is copied in any case: some file systems do not note when it
//! was written.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use partage_protocol::size::format_bytes;
use partage_protocol::snapshot::{FILES, OpenFile, OpenFiles, Writes};

use super::copy;
use super::found::{Found, in_tree};
use super::now::{boot, modified_ns};
use super::writes::{self, Use};
use crate::host::proc::{Proc, Processes};

/// What decides whether a file is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
struct InPlace {
    path: String,
    bytes: u64,
    /// A restore needs its content.
    is_needed: bool,
}

/// Has a job more of files that are written in place than may be copied?
///
/// # Errors
/// A clause: which, how much, and what to ask for.
pub fn refuse_too_large(tree: u32, most: u64) -> Result<(), String> {
    let files: Vec<InPlace> = noted(tree)?.into_iter().filter_map(|note| note.in_place).collect();
    copied(&files, most).map(drop)
}

/// Notes the files of a tree that is held still, and copies into a snapshot's folder those that are written in place.
///
/// # Errors
/// A sentence.
pub fn save(tree: u32, most: u64, into: &Path) -> Result<OpenFiles, String> {
    let noted = noted(tree)?;
    let in_place: Vec<InPlace> = noted.iter().filter_map(|note| note.in_place.clone()).collect();
    let wanted = copied(&in_place, most)?;
    let mut files = Vec::new();
    for Noted { mut file, found, .. } in noted {
        if wanted.contains(&file.path.as_str()) {
            let name = format!("{FILES}/open-{}", files.len());
            copy_one(&found.way, &into.join(&name)).map_err(|error| format!("cannot save {}: {error}", file.path))?;
            file.copy = Some(name);
        }
        let end_sum = File::open(&found.way).and_then(|held| copy::end_sum(&held, file.bytes));
        file.end_sum = end_sum.map_err(|error| format!("cannot read {}: {error}", file.path))?;
        files.push(file);
    }
    Ok(OpenFiles { boot: boot(), files })
}

/// A file, and what it takes to save it.
struct Noted {
    file: OpenFile,
    found: Found,
    in_place: Option<InPlace>,
}

fn noted(tree: u32) -> Result<Vec<Noted>, String> {
    let started_ns = started_unix_ns(tree);
    let mut noted = Vec::new();
    for found in in_tree(tree) {
        let Some(used) = writes::of(&found.holds, found.facts.len()) else {
            continue;
        };
        let is_in_place = used.writes == Writes::InPlace;
        let Some(path) = found.path.to_str().map(str::to_owned) else {
            if is_in_place {
                return Err(format!(
                    "{} is written in place, and its name is no text: a snapshot cannot note it",
                    found.path.display()
                ));
            }
            // CRIU looks at its length.
            continue;
        };
        let file = note(path, &found, used);
        let is_needed = used.is_mapped || file.modified_ns >= started_ns;
        let in_place = is_in_place.then(|| InPlace {
            path: file.path.clone(),
            bytes: file.bytes.min(found.facts.blocks() * 512),
            is_needed,
        });
        noted.push(Noted { file, found, in_place });
    }
    Ok(noted)
}

fn note(path: String, found: &Found, used: Use) -> OpenFile {
    let facts = &found.facts;
    OpenFile {
        path,
        device: facts.dev(),
        inode: facts.ino(),
        // One that cannot be looked at has no number: nothing is made there.
        folder: found
            .path
            .parent()
            .and_then(|folder| folder.metadata().ok())
            .map_or(0, |folder| folder.ino()),
        bytes: facts.len(),
        modified_ns: modified_ns(facts),
        mode: facts.mode() & 0o7777,
        uid: facts.uid(),
        gid: facts.gid(),
        writes: used.writes,
        is_mapped: used.is_mapped,
        position: used.position,
        any_length: used.any_length,
        end_sum: 0,
        copy: None,
    }
}

/// Which of the files that are written in place are copied.
fn copied(files: &[InPlace], most: u64) -> Result<Vec<&str>, String> {
    let needed = files.iter().filter(|file| file.is_needed);
    let mut sum = needed.clone().fold(0, |sum: u64, file| sum.saturating_add(file.bytes));
    if sum > most
        && let Some(largest) = needed.clone().max_by_key(|file| file.bytes)
    {
        return Err(format!(
            "{} is written in place and has to be copied: {}, {} with all such files, and --files-max is {}. Ask for \
             --files-max {}",
            largest.path,
            format_bytes(largest.bytes),
            format_bytes(sum),
            format_bytes(most),
            asked(sum)
        ));
    }
    let mut copied: Vec<&str> = needed.map(|file| file.path.as_str()).collect();
    let mut others: Vec<&InPlace> = files.iter().filter(|file| !file.is_needed).collect();
    others.sort_by_key(|file| file.bytes);
    for file in others {
        sum = sum.saturating_add(file.bytes);
        if sum <= most {
            copied.push(&file.path);
        }
    }
    Ok(copied)
}

/// A round amount with room for what is written meanwhile.
fn asked(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    match (bytes.saturating_add(bytes / 4)).div_ceil(MIB) {
        mib if mib < 4096 => format!("{mib}MiB"),
        mib => format!("{}GiB", mib.div_ceil(1024)),
    }
}

fn copy_one(from: &Path, to: &Path) -> std::io::Result<()> {
    let from = File::open(from)?;
    let to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    copy::whole(&from, &to)
}

/// When a process began; never where that cannot be told: then all was written since.
fn started_unix_ns(pid: u32) -> i64 {
    let started = || {
        let ticks = i128::from(Proc.stat(pid)?.id.start);
        let each = i128::from(nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok()??);
        let clock = |id| nix::time::clock_gettime(id).ok();
        let nanoseconds =
            |time: nix::sys::time::TimeSpec| i128::from(time.tv_sec()) * 1_000_000_000 + i128::from(time.tv_nsec());
        let now = nanoseconds(clock(nix::time::ClockId::CLOCK_REALTIME)?);
        let up = nanoseconds(clock(nix::time::ClockId::CLOCK_BOOTTIME)?);
        i64::try_from(now - up + ticks * 1_000_000_000 / each).ok()
    };
    started().unwrap_or(i64::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    fn in_place(path: &str, bytes: u64, is_needed: bool) -> InPlace {
        InPlace {
            path: path.to_owned(),
            bytes,
            is_needed,
        }
    }

    #[test]
    fn what_was_written_is_copied_or_refused_and_the_rest_as_far_as_there_is_room() {
        let files = [
            in_place("/large", 900, false),
            in_place("/mapped", 600, true),
            in_place("/small", 300, false),
        ];
        assert_eq!(copied(&files, 1000).expect("fits"), ["/mapped", "/small"]);
        assert_eq!(copied(&files, 600).expect("fits"), ["/mapped"]);
        assert_eq!(copied(&files, 1800).expect("fits"), ["/mapped", "/small", "/large"]);
        let why = copied(&files, 599).expect_err("too large");
        assert!(
            why.starts_with("/mapped is written in place") && why.ends_with("Ask for --files-max 1MiB"),
            "{why}"
        );
        assert_eq!(copied(&files[..1], 1).expect("not written"), [""; 0]);
        assert_eq!(asked(5 << 30), "7GiB");
    }

    #[test]
    fn files_of_this_process_are_noted_and_copied() {
        let folder = Scratch::new("noted");
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at(FILES)).expect("made");
        let open = |name: &str, read| {
            std::fs::write(at(name), b"12345").expect("written");
            File::options()
                .read(read)
                .write(true)
                .append(!read)
                .open(at(name))
                .expect("there")
        };
        let kept = [open("log", false), open("database", true)];
        let me = std::process::id();
        let saved = save(me, 1 << 20, folder.path()).expect("saved");
        let one = |name: &str| {
            let file = saved.files.iter().find(|file| Path::new(&file.path) == at(name));
            file.unwrap_or_else(|| panic!("{name} is not there")).clone()
        };
        let (log, database) = (one("log"), one("database"));
        assert_eq!((log.writes, log.any_length, log.copy), (Writes::Append, true, None));
        assert_eq!((database.writes, database.bytes), (Writes::InPlace, 5));
        let copy = database.copy.expect("copied");
        assert_eq!(std::fs::read(at(&copy)).expect("there"), b"12345");
        let why = refuse_too_large(me, 1).expect_err("it was written just now");
        assert!(why.contains(" is written in place"), "{why}");
        drop(kept);
    }
}
