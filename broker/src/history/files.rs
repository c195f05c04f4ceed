// SPDX-License-Identifier: Apache-2.0
//! The files: `OWNER.FIRST.jsonl`, with the events of one user from number FIRST on, a document a line.
//!
//! Each user has files of its own, and where all together are too large the oldest one of the user with the most goes:
//! no user pushes out another's events. A line is one write; a line that a killed broker or a full disk cut is left
//! out, and the next event begins another file.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use partage_protocol::admin::EventView;

/// So long an event stays at most.
pub const KEPT_FOR: Duration = Duration::from_secs(30 * 24 * 3600);
/// Bytes of all files together: some 200,000 events.
pub const HISTORY_BYTES: u64 = 64 << 20;
/// The same of a broker that serves one user.
pub const HISTORY_BYTES_PRIVATE: u64 = 8 << 20;
/// Bytes at which a user's next file is begun, as a part of all.
const PARTS: u64 = 64;
/// The longest line that is read: a document of a job with many GPUs.
const LONGEST_LINE: u64 = 1 << 20;
/// The owner's part of the name of files with events of no user.
const NOBODY: &str = "broker";

/// Whose events.
pub(super) type Owner = Option<u32>;

/// One file.
#[derive(Debug)]
struct Segment {
    /// The number of its first event.
    first: u64,
    bytes: u64,
    /// Nothing may be added: its last line may be cut.
    is_closed: bool,
}

/// The folder and what is in it.
#[derive(Debug)]
pub struct Files {
    folder: PathBuf,
    most_bytes: u64,
    by_owner: BTreeMap<Owner, VecDeque<Segment>>,
    bytes: u64,
}

impl Files {
    /// Finds what earlier brokers left in this folder, which is made where it is missing.
    ///
    /// # Errors
    /// The system's, where the folder cannot be made or read.
    pub fn open(folder: &Path, most_bytes: u64) -> io::Result<Self> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let mut files = Self {
            folder: folder.to_owned(),
            most_bytes,
            by_owner: BTreeMap::new(),
            bytes: 0,
        };
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let Some((owner, first)) = entry.file_name().to_str().and_then(parse_name) else {
                continue;
            };
            let data = entry.metadata()?;
            if !data.is_file() {
                continue;
            }
            let segment = Segment {
                first,
                bytes: data.len(),
                is_closed: true,
            };
            files.bytes += segment.bytes;
            files.by_owner.entry(owner).or_default().push_back(segment);
        }
        for (owner, segments) in &mut files.by_owner {
            segments.make_contiguous().sort_by_key(|segment| segment.first);
            // Brokers that come and go do not leave a file each.
            if let Some(last) = segments.back_mut() {
                last.is_closed = !is_whole(&path_of(folder, *owner, last.first));
            }
        }
        files.forget_old();
        files.make_room(0);
        Ok(files)
    }

    /// No files at all.
    pub(super) fn none() -> Self {
        Self {
            folder: PathBuf::new(),
            most_bytes: 0,
            by_owner: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// The number after that of the newest event.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        let newest = self.by_owner.iter().map(|(owner, segments)| {
            let last = segments.back().map(|segment| segment.first);
            let lines = last.and_then(|first| Lines::open(&self.path(*owner, first)).ok());
            let numbers = lines.into_iter().flatten().map(|(event, _)| event.number);
            numbers.chain(last).max().unwrap_or(0)
        });
        newest.max().unwrap_or(0) + 1
    }

    /// Adds an event.
    ///
    /// # Errors
    /// The system's; nothing of it is kept then.
    pub(super) fn add(&mut self, owner: Owner, event: &EventView) -> io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        let length = line.len() as u64;
        let most = self.most_bytes / PARTS;
        self.make_room(length);
        let is_new = |last: Option<&Segment>| last.is_none_or(|last| last.is_closed || last.bytes + length > most);
        if is_new(self.by_owner.get(&owner).and_then(VecDeque::back)) {
            self.forget_old();
            self.by_owner.entry(owner).or_default().push_back(Segment {
                first: event.number,
                bytes: 0,
                is_closed: false,
            });
        }
        let first = self
            .by_owner
            .get(&owner)
            .and_then(VecDeque::back)
            .map(|last| last.first);
        let written = append(&self.path(owner, first.unwrap_or(event.number)), &line);
        let Some(last) = self.by_owner.get_mut(&owner).and_then(VecDeque::back_mut) else {
            return written;
        };
        match written {
            Ok(()) => {
                last.bytes += length;
                self.bytes += length;
            }
            // A part of it may stand there.
            Err(_) => last.is_closed = true,
        }
        written
    }

    /// Whose events there are.
    pub(super) fn owners(&self) -> impl Iterator<Item = Owner> {
        self.by_owner.keys().copied()
    }

    /// Events of this owner after this number, the oldest first, each with the bytes that it was read from. A file that
    /// cannot be read has none.
    pub(super) fn events(&self, owner: Owner, after: u64) -> impl Iterator<Item = (EventView, u64)> {
        let segments = self.by_owner.get(&owner).into_iter().flatten();
        let mut firsts: Vec<u64> = segments.map(|segment| segment.first).collect();
        // All before the last one that begins at or before the next number have nothing newer.
        let passed = firsts.partition_point(|first| *first <= after.saturating_add(1));
        firsts.drain(..passed.saturating_sub(1));
        let paths = firsts.into_iter().map(move |first| self.path(owner, first));
        paths.flat_map(|path| Lines::open(&path).into_iter().flatten())
    }

    fn path(&self, owner: Owner, first: u64) -> PathBuf {
        path_of(&self.folder, owner, first)
    }

    /// Removes files whose newest event is too old.
    fn forget_old(&mut self) {
        let Some(oldest) = SystemTime::now().checked_sub(KEPT_FOR) else {
            return;
        };
        for owner in self.owners().collect::<Vec<_>>() {
            while let Some(segment) = self.by_owner.get(&owner).and_then(VecDeque::front) {
                let written = std::fs::metadata(self.path(owner, segment.first)).and_then(|data| data.modified());
                if written.is_ok_and(|written| written >= oldest) {
                    break;
                }
                self.remove_oldest(owner);
            }
        }
    }

    /// Removes the oldest file of the user with the most bytes, until so many more have room.
    fn make_room(&mut self, more: u64) {
        while self.bytes + more > self.most_bytes {
            let sum = |segments: &VecDeque<Segment>| segments.iter().map(|segment| segment.bytes).sum::<u64>();
            // Of equals the one whose oldest event is older.
            let age = |segments: &VecDeque<Segment>| segments.front().map(|oldest| Reverse(oldest.first));
            let most = self.by_owner.iter();
            let most = most.max_by_key(|(_, segments)| (sum(segments), age(segments)));
            let Some(owner) = most.map(|(owner, _)| *owner) else {
                return;
            };
            self.remove_oldest(owner);
        }
    }

    fn remove_oldest(&mut self, owner: Owner) {
        let Some(segments) = self.by_owner.get_mut(&owner) else {
            return;
        };
        let gone = segments.pop_front();
        if segments.is_empty() {
            self.by_owner.remove(&owner);
        }
        if let Some(gone) = gone {
            self.bytes -= gone.bytes;
            // One that stays takes room, and is found again by the next broker.
            let _ = std::fs::remove_file(self.path(owner, gone.first));
        }
    }
}

fn path_of(folder: &Path, owner: Owner, first: u64) -> PathBuf {
    let owner = owner.map_or_else(|| NOBODY.to_owned(), |uid| uid.to_string());
    folder.join(format!("{owner}.{first:016x}.jsonl"))
}

/// Does this file end with a line's end? One that cannot be read does not.
fn is_whole(path: &Path) -> bool {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NOFOLLOW).open(path);
    let last = file.and_then(|mut file| {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        Ok(last)
    });
    last.is_ok_and(|last| last == *b"\n")
}

/// Adds a line, or nothing.
fn append(path: &Path, line: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600);
    let mut file = options.custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC).open(path)?;
    let before = file.metadata()?.len();
    let written = file.write_all(line);
    if written.is_err() {
        // Where that fails too, the cut line is left out by readers.
        let _ = file.set_len(before);
    }
    written
}

/// `1000.000000000000002a.jsonl`: user 1000, from event 42 on.
fn parse_name(name: &str) -> Option<(Owner, u64)> {
    let (owner, first) = name.strip_suffix(".jsonl")?.split_once('.')?;
    let owner = match owner {
        NOBODY => None,
        uid => Some(uid.parse().ok()?),
    };
    let is_number = first.len() == 16 && first.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    Some((owner, u64::from_str_radix(first, 16).ok().filter(|_| is_number)?))
}

/// The events of a file. Lines that are none are passed over.
struct Lines(BufReader<File>);

impl Lines {
    fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
        Ok(Self(BufReader::new(file)))
    }
}

impl Iterator for Lines {
    type Item = (EventView, u64);

    fn next(&mut self) -> Option<Self::Item> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let length = self.0.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line).ok()?;
            if length == 0 {
                return None;
            }
            if let Ok(event) = serde_json::from_slice(&line) {
                return Some((event, length as u64));
            }
        }
    }
}
