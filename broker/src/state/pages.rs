// SPDX-License-Identifier: Apache-2.0
//! The two memfds that the broker shares with one client (layout: `partage_protocol::page`).
//!
//! The broker's page reaches the client as a read-only open file whose inode only the broker's user may open for
//! writing; the next broker does just that when the client hands it back. Both files are sealed SHRINK|GROW|SEAL, so
//! that no one can take mapped memory away (SIGBUS). What the client writes is a hint.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::stat::{FileStat, fstat};
use partage_protocol::gate::{OPEN, TimePages, UNBOUNDED};
use partage_protocol::page::{
    BROKER_MAGIC, BrokerPage, CLIENT_BYTES, CLIENT_MAGIC, ClientFile, ClientPage, LAYOUT, PAGE_BYTES,
};
use partage_protocol::units::{ClientId, JobId};

/// The seals of both pages. A FUTURE_WRITE seal would shut out the next broker too.
const SEALS: SealFlag = SealFlag::F_SEAL_SHRINK
    .union(SealFlag::F_SEAL_GROW)
    .union(SealFlag::F_SEAL_SEAL);

/// Seals that make a page useless to us.
const FATAL_SEALS: SealFlag = SealFlag::F_SEAL_WRITE.union(SealFlag::F_SEAL_FUTURE_WRITE);

/// Why a page cannot be made or taken back.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The system refused.
    #[error("cannot {0} a shared page: {1}")]
    System(&'static str, nix::Error),
    /// What the client handed back is not the page that a broker gave it.
    #[error("the page handed back {0}")]
    Foreign(&'static str),
}

/// The pages that came with a `Hello`, or why what came is none.
pub type HandedBack = Result<PagePair, PageError>;

fn system(what: &'static str) -> impl FnOnce(nix::Error) -> PageError {
    move |error| PageError::System(what, error)
}

/// One file, mapped shared and writable.
struct Mapped<T> {
    at: NonNull<T>,
}

// SAFETY: the mapping belongs to the value wherever that goes, and holds only atomics.
unsafe impl<T: Sync> Send for Mapped<T> {}
// SAFETY: as above; threads that share the value share atomics.
unsafe impl<T: Sync> Sync for Mapped<T> {}

impl<T> std::fmt::Debug for Mapped<T> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:p}", self.at)
    }
}

impl<T> Mapped<T> {
    /// Precondition: `T` is pages of atomics, for which every bit pattern is a value, and the file is as long.
    fn new(file: &impl AsFd) -> Result<Self, PageError> {
        let length = std::num::NonZeroUsize::new(size_of::<T>()).unwrap_or(std::num::NonZeroUsize::MIN);
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; nothing of ours lies there.
        let at = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, file, 0) }.map_err(system("map"))?;
        Ok(Self { at: at.cast() })
    }

    fn get(&self) -> &T {
        // SAFETY: mapped for the life of `self`, as long as T and page aligned as T asks (asserted in the protocol); T
        // holds only atomics, so that the other process's writes are no data race.
        unsafe { self.at.as_ref() }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `new` made; `get` lends no longer than `self` lives.
        let _ = unsafe { munmap(self.at.cast(), size_of::<T>()) };
    }
}

/// A file's identity: two descriptors with the same one are the same page.
type Inode = (u64, u64);

/// Both files of one client.
#[derive(Debug)]
pub struct PagePair {
    broker: Mapped<BrokerPage>,
    client: Mapped<ClientFile>,
    inodes: [Inode; 2],
}

impl PagePair {
    /// New pages, and the two descriptors for the client: the broker's page read-only, its own page.
    ///
    /// # Errors
    /// [`PageError::System`].
    pub fn create(client: ClientId, epoch: u64) -> Result<(Self, [OwnedFd; 2]), PageError> {
        let broker_file = sealed_file("partage-grants", PAGE_BYTES)?;
        let client_file = sealed_file("partage-use", CLIENT_BYTES)?;
        let pair = Self {
            broker: Mapped::new(&broker_file)?,
            client: Mapped::new(&client_file)?,
            inodes: [inode(broker_file.as_fd())?, inode(client_file.as_fd())?],
        };
        pair.client().head.layout.store(LAYOUT, Ordering::Relaxed);
        // Until the client has looked for calls that began before it is one.
        pair.client().head.early.store(1, Ordering::Relaxed);
        pair.client().head.magic.store(CLIENT_MAGIC, Ordering::Release);
        for line in &pair.broker().devices {
            // Open until somebody has a reason to close it.
            line.gate.store(OPEN, Ordering::Relaxed);
            line.depth_ns.store(UNBOUNDED, Ordering::Relaxed);
        }
        let head = &pair.broker().head;
        head.layout.store(LAYOUT, Ordering::Relaxed);
        head.client.store(client.0, Ordering::Relaxed);
        head.epoch.store(epoch, Ordering::Relaxed);
        head.magic.store(BROKER_MAGIC, Ordering::Release);
        let read_only = reopen(broker_file.as_fd(), false)?;
        Ok((pair, [read_only.into(), client_file.into()]))
    }

    /// Takes back the pages that an earlier broker gave to `client`.
    ///
    /// # Errors
    /// [`PageError::Foreign`] when they are not those.
    pub fn take_back(descriptors: [BorrowedFd<'_>; 2], client: ClientId) -> Result<Self, PageError> {
        let [broker, own] = descriptors;
        if verify(broker, PAGE_BYTES)?.st_uid != nix::unistd::geteuid().as_raw() {
            return Err(PageError::Foreign("was not made by this broker's user"));
        }
        verify(own, CLIENT_BYTES)?;
        let broker_file = reopen(broker, true)?;
        let pair = Self {
            broker: Mapped::new(&broker_file)?,
            client: Mapped::new(&own)?,
            inodes: [inode(broker)?, inode(own)?],
        };
        let head = &pair.broker().head;
        let is_ours = head.magic.load(Ordering::Acquire) == BROKER_MAGIC
            && head.layout.load(Ordering::Relaxed) == LAYOUT
            && head.client.load(Ordering::Relaxed) == client.0;
        let client_head = &pair.client().head;
        let is_its = client_head.magic.load(Ordering::Acquire) == CLIENT_MAGIC
            && client_head.layout.load(Ordering::Relaxed) == LAYOUT;
        match (is_ours, is_its) {
            (true, true) => Ok(pair),
            (false, _) => Err(PageError::Foreign("is no broker's page of this client")),
            (_, false) => Err(PageError::Foreign("is no client's page")),
        }
    }

    /// Are these the very files that are mapped here?
    #[must_use]
    pub fn are_these(&self, other: &Self) -> bool {
        self.inodes == other.inodes
    }

    /// The page that only we write.
    #[must_use]
    pub fn broker(&self) -> &BrokerPage {
        self.broker.get()
    }

    /// The page that the client writes.
    #[must_use]
    pub fn client(&self) -> &ClientPage {
        &self.client.get().page
    }

    /// All that the client writes.
    #[must_use]
    pub fn file(&self) -> &ClientFile {
        self.client.get()
    }

    /// What the client and its devices write about time.
    #[must_use]
    pub fn time(&self) -> &TimePages {
        &self.client.get().time
    }

    /// Writes what the client should know about its attachment.
    pub fn show(&self, job: JobId, epoch: u64, clients_in_job: u32, (limits, of_process): (&[u64], &[u64])) {
        let head = &self.broker().head;
        head.job.store(job.0, Ordering::Relaxed);
        head.epoch.store(epoch, Ordering::Relaxed);
        head.device_count.store(limits.len() as u32, Ordering::Relaxed);
        for ((line, limit), own) in self.broker().devices.iter().zip(limits).zip(of_process) {
            line.limit.store(*limit, Ordering::Relaxed);
            line.process_limit.store(*own, Ordering::Relaxed);
        }
        head.clients_in_job.store(clients_in_job, Ordering::Release);
    }

    /// Writes what the driver holds for the client beyond its charges, slot 0 first.
    pub fn show_overheads(&self, overheads: &[u64]) {
        for (line, bytes) in self.broker().devices.iter().zip(overheads) {
            line.overhead.store(*bytes, Ordering::Relaxed);
        }
    }

    /// **G** of a slot.
    #[must_use]
    pub fn granted(&self, slot: usize) -> &AtomicU64 {
        &self.broker().devices[slot].granted
    }
}

fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> PageError {
    move |error| PageError::System(what, nix::Error::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
}

fn sealed_file(name: &str, length: usize) -> Result<File, PageError> {
    let plain = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    // Hosts with vm.memfd_noexec=2 refuse memfds that could be executed; kernels before 6.3 do not know the flag.
    let no_exec = plain | MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);
    let fd = match memfd_create(name, no_exec) {
        Err(nix::Error::EINVAL) => memfd_create(name, plain),
        other => other,
    }
    .map_err(system("make"))?;
    // A memfd is born 0777 or 0666: without this any user could open a read-only one for writing through /proc.
    nix::sys::stat::fchmod(&fd, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR)
        .map_err(system("protect"))?;
    nix::unistd::ftruncate(&fd, length as i64).map_err(system("size"))?;
    // Of the words that every client has, the memory now. What is behind them is touched where time is measured alone,
    // and memory files are on no file system that could be full.
    let first = length.min(PAGE_BYTES) as i64;
    nix::fcntl::posix_fallocate(&fd, 0, first).map_err(system("find memory for"))?;
    fcntl(&fd, FcntlArg::F_ADD_SEALS(SEALS)).map_err(system("seal"))?;
    Ok(File::from(fd))
}

/// The seals come first: only memory files have them, and only of those is it known that nothing about them waits.
fn verify(file: BorrowedFd<'_>, length: usize) -> Result<FileStat, PageError> {
    // Another file answers EINVAL.
    let seals = fcntl(file, FcntlArg::F_GET_SEALS).map_err(|_| PageError::Foreign("is no memory file"))?;
    let seals = SealFlag::from_bits_retain(seals);
    if !seals.contains(SEALS) || seals.intersects(FATAL_SEALS) {
        return Err(PageError::Foreign("is not sealed as ours are"));
    }
    let facts = fstat(file).map_err(system("look at"))?;
    if facts.st_size != length as i64 || facts.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(PageError::Foreign("has another size"));
    }
    Ok(facts)
}

/// By the calling thread's own table: the one that takes pages back is not the process's.
fn reopen(file: BorrowedFd<'_>, writable: bool) -> Result<File, PageError> {
    OpenOptions::new()
        .read(true)
        .write(writable)
        .custom_flags(libc::O_CLOEXEC)
        .open(format!("/proc/thread-self/fd/{}", file.as_raw_fd()))
        .map_err(io("reopen"))
}

fn inode(file: BorrowedFd<'_>) -> Result<Inode, PageError> {
    let facts = fstat(file).map_err(system("look at"))?;
    Ok((facts.st_dev, facts.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lent(fds: &[OwnedFd; 2]) -> [BorrowedFd<'_>; 2] {
        [fds[0].as_fd(), fds[1].as_fd()]
    }

    #[test]
    fn the_client_cannot_write_the_brokers_page_and_the_next_broker_can() {
        let (pair, fds) = PagePair::create(ClientId(7), 1).expect("made");
        pair.granted(2).store(99, Ordering::SeqCst);
        let length = std::num::NonZeroUsize::new(PAGE_BYTES).expect("not zero");
        let writable = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a fresh mapping that is expected to fail.
        let refused = unsafe { mmap(None, length, writable, MapFlags::MAP_SHARED, &fds[0], 0) };
        assert_eq!(refused.err(), Some(nix::Error::EACCES));
        assert_eq!(nix::unistd::ftruncate(&fds[1], 0), Err(nix::Error::EPERM));

        let again = PagePair::take_back(lent(&fds), ClientId(7)).expect("taken back");
        assert!(again.are_these(&pair) && !again.are_these(&PagePair::create(ClientId(7), 1).expect("made").0));
        assert_eq!(again.granted(2).load(Ordering::SeqCst), 99);
        again.granted(2).store(5, Ordering::SeqCst);
        assert_eq!(pair.granted(2).load(Ordering::SeqCst), 5);
    }

    #[test]
    fn foreign_files_and_other_clients_pages_are_refused() {
        let (_pair, fds) = PagePair::create(ClientId(7), 1).expect("made");
        assert!(PagePair::take_back(lent(&fds), ClientId(8)).is_err());
        let [a, b] = lent(&fds);
        assert!(PagePair::take_back([b, a], ClientId(7)).is_err(), "swapped");
        let plain = File::open("/proc/self/exe").expect("there");
        assert!(PagePair::take_back([plain.as_fd(), plain.as_fd()], ClientId(7)).is_err());
        let unsealed = memfd_create("x", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).expect("made");
        nix::unistd::ftruncate(&unsealed, PAGE_BYTES as i64).expect("sized");
        let [a, _] = lent(&fds);
        assert!(PagePair::take_back([a, unsealed.as_fd()], ClientId(7)).is_err());
    }
}
