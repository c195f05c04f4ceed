// SPDX-License-Identifier: Apache-2.0
//! The broker's memory that outlives it: one mapped file with a line per client and the words **L**, **O** and **P**.
//!
//! The file is as long as all lines, and its blocks are allocated in steps ([`STEP`] lines) before they are touched:
//! touching a page that a full file system cannot hold is SIGBUS, while a refused step is an error with a sentence.
//!
//! Every change is a store to the mapping, so that a broker killed between two instructions leaves exactly what it had
//! decided; the page cache keeps it. A machine that crashes loses all clients with it, so nothing is synced, and a file
//! of another boot is void. A broker that dies while a grant grows has raised L, or L and G: the next one sets G := L
//! ([`JobLedger::adopt`](partage_protocol::job_ledger::JobLedger::adopt)), and the client, which got no answer, asks
//! again. A line is filled before its state says *used*, and its words are zero before it says *free*.

use std::fs::File;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::fcntl::posix_fallocate;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use partage_policy::Process;
use partage_protocol::message::MAX_DEVICES;
use partage_protocol::units::{ClientId, JobId};

use crate::error::Error;

/// Most clients at a time. Each costs the broker two descriptors and two mappings, and the usual limits
/// (`vm.max_map_count` 65530, 65536 descriptors or fewer) end before four times this number.
pub const CAPACITY: usize = 16384;

/// Lines that the file grows by: 64 KiB.
pub const STEP: usize = 128;

const MAGIC: u64 = u64::from_le_bytes(*b"PTGLEDGR");
const LAYOUT: u64 = 3;
const USED: u64 = 1;

#[repr(C, align(4096))]
struct Head {
    magic: AtomicU64,
    layout: AtomicU64,
    boot: [AtomicU64; 2],
    /// Counts the brokers that opened this file.
    epoch: AtomicU64,
    next_client: AtomicU64,
    next_job: AtomicU64,
    /// Lines below this number were used at some time; the others may be holes in the file.
    touched: AtomicU64,
}

#[repr(C, align(256))]
struct Line {
    state: AtomicU64,
    client: AtomicU64,
    pid: AtomicU64,
    start: AtomicU64,
    job: AtomicU64,
    uid: AtomicU64,
    image: [AtomicU64; 2],
    words: [AtomicU64; MAX_DEVICES],
    overheads: [AtomicU64; MAX_DEVICES],
    owed: [AtomicU64; MAX_DEVICES],
}

#[repr(C)]
struct Layout {
    head: Head,
    lines: [Line; CAPACITY],
}

/// A client as the file knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub client: ClientId,
    /// Its process.
    pub process: Process,
    /// Its job.
    pub job: JobId,
    /// Its user.
    pub uid: u32,
    /// Where its program lay when it attached.
    pub image: (u64, u64),
}

/// Why a client has no line.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// All lines are in use.
    #[error("the broker has {CAPACITY} clients, and room for no other")]
    Full,
    /// The file cannot grow.
    #[error("the broker's ledger {} cannot grow for another client: {source}; free some space there", path.display())]
    Space {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// Place of a client's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineIndex(usize);

/// The mapped file.
#[derive(Debug)]
pub struct Ledger {
    at: NonNull<Layout>,
    path: PathBuf,
    file: File,
    /// Lines whose memory the file system has given: what lies beyond must not be touched.
    backed: usize,
    /// Lines below `backed` that are free, the lowest last.
    free: Vec<usize>,
    epoch: u64,
}

impl Ledger {
    /// Opens the file, or begins a new one where it is missing, of another boot or of an older layout. Answers the
    /// clients in it.
    ///
    /// # Errors
    /// [`Error::File`]; also where it is of this boot and of a newer layout, and then it stays as it is.
    pub fn open(path: &Path, boot: [u8; 16]) -> Result<(Self, Vec<(LineIndex, Entry)>), Error> {
        let file = crate::kept_file::open_kept(path).map_err(Error::file("open", path))?;
        super::refuse_newer(&file, (MAGIC, LAYOUT), boot).map_err(Error::file("read", path))?;
        file.set_len(size_of::<Layout>() as u64)
            .map_err(Error::file("size", path))?;
        posix_fallocate(&file, 0, size_of::<Head>() as i64).map_err(Error::file("find space for", path))?;
        let length = NonZeroUsize::new(size_of::<Layout>()).unwrap_or(NonZeroUsize::MIN);
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; nothing of ours lies there.
        let at = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, &file, 0) }
            .map_err(Error::file("map", path))?;
        let mut ledger = Self {
            at: at.cast(),
            path: path.to_owned(),
            file,
            backed: 0,
            free: Vec::new(),
            epoch: 0,
        };
        ledger.begin(boot).map_err(Error::file("begin", path))?;
        let touched = (ledger.layout().head.touched.load(Ordering::Relaxed) as usize).min(CAPACITY);
        // What an earlier broker used has its memory already; only a hole among it could fail here.
        while ledger.backed < touched {
            ledger.grow().map_err(Error::file("find space for", path))?;
        }
        let mut found = Vec::new();
        ledger.free.clear();
        for index in (0..ledger.backed).rev() {
            match (index < touched).then(|| ledger.entry(index)).flatten() {
                Some(entry) => found.push((LineIndex(index), entry)),
                None => ledger.free.push(index),
            }
        }
        found.reverse();
        Ok((ledger, found))
    }

    /// Asks for the memory of the next lines.
    fn grow(&mut self) -> std::io::Result<()> {
        let end = (self.backed + STEP).min(CAPACITY);
        let at = |line: usize| (size_of::<Head>() + line * size_of::<Line>()) as i64;
        posix_fallocate(&self.file, at(self.backed), at(end) - at(self.backed))?;
        self.free.extend((self.backed..end).rev());
        self.backed = end;
        Ok(())
    }

    fn begin(&mut self, boot: [u8; 16]) -> std::io::Result<()> {
        let (low, high) = boot.split_at(8);
        let boot = [low, high].map(|half| half.try_into().map_or(0, u64::from_le_bytes));
        let head = &self.layout().head;
        let is_ours = head.magic.load(Ordering::Acquire) == MAGIC
            && head.layout.load(Ordering::Relaxed) == LAYOUT
            && head
                .boot
                .iter()
                .zip(boot)
                .all(|(word, now)| word.load(Ordering::Relaxed) == now);
        if !is_ours {
            // The magic goes first and comes last: a broker killed in between leaves a file that is begun again.
            head.magic.store(0, Ordering::Release);
            self.file.set_len(0)?;
            self.file.set_len(size_of::<Layout>() as u64)?;
            posix_fallocate(&self.file, 0, size_of::<Head>() as i64)?;
            head.layout.store(LAYOUT, Ordering::Relaxed);
            for (word, now) in head.boot.iter().zip(boot) {
                word.store(now, Ordering::Relaxed);
            }
            head.next_client.store(1, Ordering::Relaxed);
            head.next_job.store(1, Ordering::Relaxed);
            head.magic.store(MAGIC, Ordering::Release);
        }
        self.epoch = self.layout().head.epoch.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(())
    }

    fn layout(&self) -> &Layout {
        // SAFETY: mapped for the life of `self`, as long as Layout (set_len above; the file lies in a directory that
        // only we can write), its memory asked for as far as it is touched, and made of atomics, for which every bit
        // pattern is a value.
        unsafe { self.at.as_ref() }
    }

    /// Number of this broker among those that opened the file.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Lines in use.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.backed - self.free.len()
    }

    /// The lowest number that no job had yet.
    #[must_use]
    pub fn next_job(&self) -> u64 {
        self.layout().head.next_job.load(Ordering::Relaxed)
    }

    /// Numbers up to this one are taken.
    pub fn reserve_job(&self, job: JobId) {
        self.layout().head.next_job.fetch_max(job.0 + 1, Ordering::Relaxed);
    }

    /// Adds a client of no job yet with all words zero. `client` continues an earlier id.
    ///
    /// # Errors
    /// [`LineError`] when there is no room.
    pub fn add(
        &mut self,
        client: Option<ClientId>,
        process: Process,
        image: (u64, u64),
        uid: u32,
    ) -> Result<(LineIndex, ClientId), LineError> {
        if self.free.is_empty() && self.backed < CAPACITY {
            self.grow().map_err(|source| LineError::Space {
                path: self.path.clone(),
                source,
            })?;
        }
        let index = self.free.pop().ok_or(LineError::Full)?;
        let head = &self.layout().head;
        let client = match client {
            Some(client) => {
                head.next_client.fetch_max(client.0 + 1, Ordering::Relaxed);
                client
            }
            None => ClientId(head.next_client.fetch_add(1, Ordering::Relaxed)),
        };
        head.touched.fetch_max(index as u64 + 1, Ordering::Relaxed);
        let line = &self.layout().lines[index];
        line.client.store(client.0, Ordering::Relaxed);
        line.pid.store(u64::from(process.pid), Ordering::Relaxed);
        line.start.store(process.start, Ordering::Relaxed);
        line.job.store(0, Ordering::Relaxed);
        line.image[0].store(image.0, Ordering::Relaxed);
        line.image[1].store(image.1, Ordering::Relaxed);
        line.uid.store(u64::from(uid), Ordering::Relaxed);
        line.state.store(USED, Ordering::Release);
        Ok((LineIndex(index), client))
    }

    /// The client's job, once it is decided.
    pub fn set_job(&self, index: LineIndex, job: JobId) {
        self.layout().lines[index.0].job.store(job.0, Ordering::Release);
    }

    /// Frees a client's line. Its words should be zero already (`reservation::death`); they are made so.
    pub fn remove(&mut self, index: LineIndex) {
        self.layout().lines[index.0].clear();
        self.free.push(index.0);
    }

    /// **L** of a client on a slot. Precondition: `slot` < `MAX_DEVICES`.
    #[must_use]
    pub fn word(&self, index: LineIndex, slot: usize) -> &AtomicU64 {
        &self.layout().lines[index.0].words[slot]
    }

    /// **O** of a client on a slot. Precondition: `slot` < `MAX_DEVICES`.
    #[must_use]
    pub fn overhead(&self, index: LineIndex, slot: usize) -> &AtomicU64 {
        &self.layout().lines[index.0].overheads[slot]
    }

    /// **P** of a client on a slot. Precondition: `slot` < `MAX_DEVICES`.
    #[must_use]
    pub fn owed(&self, index: LineIndex, slot: usize) -> &AtomicU64 {
        &self.layout().lines[index.0].owed[slot]
    }

    fn entry(&self, index: usize) -> Option<Entry> {
        let line = &self.layout().lines[index];
        (line.state.load(Ordering::Acquire) == USED).then(|| Entry {
            client: ClientId(line.client.load(Ordering::Relaxed)),
            process: Process {
                pid: line.pid.load(Ordering::Relaxed) as u32,
                start: line.start.load(Ordering::Relaxed),
            },
            job: JobId(line.job.load(Ordering::Relaxed)),
            uid: line.uid.load(Ordering::Relaxed) as u32,
            image: (
                line.image[0].load(Ordering::Relaxed),
                line.image[1].load(Ordering::Relaxed),
            ),
        })
    }
}

impl Line {
    fn clear(&self) {
        for word in self.words.iter().chain(&self.overheads).chain(&self.owed) {
            word.store(0, Ordering::SeqCst);
        }
        self.state.store(0, Ordering::Release);
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `open` made; `layout` lends no longer than `self` lives.
        let _ = unsafe { munmap(self.at.cast(), size_of::<Layout>()) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::testing::Scratch;

    const PROCESS: Process = Process { pid: 40, start: 4000 };

    #[test]
    fn a_ledger_of_a_newer_partage_is_left_as_it_is() {
        let scratch = Scratch::new("newer-ledger");
        let path = scratch.path().join("ledger");
        drop(Ledger::open(&path, [1; 16]).expect("opened"));
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("ours");
        file.write_all_at(&(LAYOUT + 1).to_le_bytes(), 8).expect("written");
        // One that is longer keeps its length.
        file.set_len(size_of::<Layout>() as u64 + 4096).expect("sized");
        let error = Ledger::open(&path, [1; 16]).expect_err("refused").to_string();
        assert!(error.contains("a newer Partage wrote it"), "{error}");
        assert_eq!(file.metadata().expect("there").len(), size_of::<Layout>() as u64 + 4096);
        drop(Ledger::open(&path, [2; 16]).expect("of another boot: begun again"));
    }

    #[test]
    fn a_dropped_ledger_is_found_again_and_another_boot_is_not_believed() {
        let scratch = Scratch::new("ledger");
        let path = scratch.path().join("ledger");
        let (mut ledger, found) = Ledger::open(&path, [1; 16]).expect("opened");
        assert!(found.is_empty());
        let job = JobId(ledger.next_job());
        ledger.reserve_job(job);
        let (line, client) = ledger.add(None, PROCESS, (8, 9), 1000).expect("room");
        ledger.set_job(line, job);
        ledger.word(line, 3).store(77, Ordering::SeqCst);
        ledger.overhead(line, 3).store(5, Ordering::SeqCst);
        ledger.owed(line, 3).store(82, Ordering::SeqCst);
        let epoch = ledger.epoch();
        drop(ledger);

        let (ledger, found) = Ledger::open(&path, [1; 16]).expect("opened");
        let expected = Entry {
            client,
            process: PROCESS,
            job,
            uid: 1000,
            image: (8, 9),
        };
        assert_eq!(found, [(line, expected)]);
        assert_eq!(ledger.word(line, 3).load(Ordering::SeqCst), 77);
        assert_eq!(ledger.overhead(line, 3).load(Ordering::SeqCst), 5);
        assert_eq!(ledger.owed(line, 3).load(Ordering::SeqCst), 82);
        assert_eq!(ledger.epoch(), epoch + 1);
        assert!(ledger.next_job() > job.0);
        drop(ledger);

        let (ledger, found) = Ledger::open(&path, [2; 16]).expect("opened");
        assert!(found.is_empty());
        assert_eq!(ledger.word(line, 3).load(Ordering::SeqCst), 0);
        ledger.reserve_job(JobId(40));
        assert_eq!(
            ledger.next_job(),
            41,
            "numbers known from elsewhere are not given again"
        );
    }

    #[test]
    fn a_full_ledger_refuses_and_a_removed_line_is_used_again() {
        let scratch = Scratch::new("ledger");
        let (mut ledger, _) = Ledger::open(&scratch.path().join("l"), [0; 16]).expect("opened");
        let lines: Vec<_> = (0..CAPACITY)
            .map(|_| ledger.add(None, PROCESS, (0, 0), 0).expect("room"))
            .collect();
        assert!(matches!(ledger.add(None, PROCESS, (0, 0), 0), Err(LineError::Full)));
        assert_eq!(ledger.clients(), CAPACITY);
        let (line, old) = lines[9];
        ledger.word(line, 0).store(5, Ordering::SeqCst);
        ledger.overhead(line, 0).store(6, Ordering::SeqCst);
        ledger.owed(line, 0).store(11, Ordering::SeqCst);
        ledger.remove(line);
        let (again, new) = ledger.add(None, PROCESS, (0, 0), 0).expect("room");
        assert_eq!(again, line);
        assert!(new > old);
        assert_eq!(ledger.word(again, 0).load(Ordering::SeqCst), 0);
        assert_eq!(ledger.overhead(again, 0).load(Ordering::SeqCst), 0);
        assert_eq!(ledger.owed(again, 0).load(Ordering::SeqCst), 0);
    }

    /// A file system of its own with `bytes` of room.
    struct Small(Scratch);

    impl Small {
        /// `None` where this user may not mount.
        fn mount(bytes: usize) -> Option<Self> {
            let scratch = Scratch::new("small");
            let text = |text: &str| std::ffi::CString::new(text).expect("no zero byte");
            let (at, kind) = (text(scratch.path().to_str().expect("UTF-8")), text("tmpfs"));
            let options = text(&format!("size={bytes}"));
            // SAFETY: four texts that live longer than the call, and no flags.
            let mounted = unsafe { libc::mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), 0, options.as_ptr().cast()) };
            (mounted == 0).then_some(Self(scratch))
        }

        fn fill(&self) {
            let mut file = File::create(self.0.path().join("fill")).expect("a name is left");
            while std::io::Write::write_all(&mut file, &[1; 4096]).is_ok() {}
        }
    }

    impl Drop for Small {
        fn drop(&mut self) {
            let at = std::ffi::CString::new(self.0.path().to_str().expect("UTF-8")).expect("no zero byte");
            // SAFETY: a text that lives longer than the call.
            unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) };
        }
    }

    #[test]
    fn a_full_file_system_is_a_sentence_and_what_was_written_is_found_again() {
        let Some(small) = Small::mount(256 * 1024) else {
            eprintln!("SKIPPED: a full file system needs a tmpfs of its own, and this user may not mount one");
            return;
        };
        let path = small.0.path().join("ledger");
        let (mut ledger, _) = Ledger::open(&path, [1; 16]).expect("opened");
        let (line, client) = ledger.add(None, PROCESS, (8, 9), 1000).expect("room");
        small.fill();
        let mut refused = None;
        for added in 1..CAPACITY {
            match ledger.add(None, PROCESS, (8, 9), 1000) {
                Ok((line, _)) => ledger.word(line, 0).store(added as u64, Ordering::SeqCst),
                Err(error) => {
                    refused = Some((added, error.to_string()));
                    break;
                }
            }
        }
        let (added, why) = refused.expect("the file system is full");
        assert_eq!(added, STEP, "a step was there");
        assert!(why.contains("No space left") && why.contains("ledger"), "{why}");
        ledger.remove(line);
        let (again, _) = ledger.add(None, PROCESS, (8, 9), 1000).expect("its line is free");
        assert_eq!(again, line);
        drop(ledger);

        let (ledger, found) = Ledger::open(&path, [1; 16]).expect("a full disk keeps no broker from starting");
        assert_eq!(found.len(), STEP);
        assert!(found.iter().all(|(_, entry)| entry.client > client));
        assert_eq!(ledger.word(found[5].0, 0).load(Ordering::SeqCst), 5);
        drop(ledger);
        std::fs::remove_file(&path).expect("removed");
        small.fill();
        let error = Ledger::open(&path, [1; 16]).expect_err("no room for its head");
        assert!(error.to_string().contains("ledger: No space left"), "{error}");
    }
}
