// SPDX-License-Identifier: Apache-2.0
//! A file of fixed layout that all processes of the machine map, with a lock that survives the death of its holder.
//!
//! The layout is words that are valid when zero. The lock is a robust mutex: when its holder is killed the kernel
//! passes it on, so what it protects must be right after every single store. There is nothing to repair.
//!
//! A driver's own critical sections are in the kernel, where a stop signal waits until they are left. Here they are in
//! the program, so a stopped holder is continued until it has given the lock up, and stopped again: nobody waits for a
//! stopped process.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::mem::size_of;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::process;

/// A type that may live in a shared file.
///
/// # Safety
/// Zero bytes are a valid value, every field is `repr(C)` and an atomic (or an array or struct of them), and there
/// are no pointers: processes map the file at different addresses.
pub unsafe trait SharedLayout: Sync + 'static {
    /// Identifies the layout; changed whenever the layout changes, so that two builds never share one file.
    const MAGIC: u64;
}

/// The page in front of the layout.
#[repr(C)]
struct Header {
    magic: AtomicU64,
    size: AtomicU64,
    /// 1 once the lock and the layout are initialised.
    is_ready: AtomicU32,
    /// The PID namespace of the lock's latest holder: the thread id in the lock is one of that namespace.
    namespace: AtomicU64,
    lock: std::cell::UnsafeCell<libc::pthread_mutex_t>,
}

const HEADER_BYTES: usize = 4096;

/// A mapped shared file. What must outlive the destructors of static objects, because runtimes call the driver after
/// them, is kept in what is never dropped.
pub struct Shared<T: SharedLayout> {
    /// Of the file.
    folder: PathBuf,
    header: NonNull<Header>,
    layout: NonNull<T>,
}

// SAFETY: what the pointers lead to is `Sync` by the contract of `SharedLayout`, and the mutex is made for sharing.
unsafe impl<T: SharedLayout> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: SharedLayout> Sync for Shared<T> {}

impl<T: SharedLayout> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nobody borrows any more.
        unsafe { libc::munmap(self.header.as_ptr().cast(), Self::BYTES) };
    }
}

/// Whoever may make files in a folder reaches a new one there, whatever the umask of the process that made it. Where it
/// is another user's file, its own user does so.
fn open_to_those_of(folder: Option<&Path>, file: &File) {
    const OTHERS_WRITE: u32 = 0o002;
    let mode = folder
        .and_then(|folder| folder.metadata().ok())
        .map_or(0, |facts| facts.mode());
    if mode & OTHERS_WRITE != 0 {
        let _ = file.set_permissions(Permissions::from_mode(0o666));
    }
}

impl<T: SharedLayout> Shared<T> {
    const BYTES: usize = HEADER_BYTES + size_of::<T>();

    /// Maps the file, creating it if needed. `initialise` runs once in the life of the file, before anybody else
    /// sees it; it runs again if the process that ran it was killed half-way.
    ///
    /// Fails with the operating system's error, or `InvalidData` for a file of another layout.
    pub fn open(path: &Path, initialise: impl FnOnce(&T)) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        // Made long ago, in most cases: then nobody waits for a process that was stopped while it made or opened it.
        if file.metadata()?.len() >= Self::BYTES as u64 {
            let shared = Self::map(&file, path, Self::BYTES)?;
            if shared.header().is_ready.load(Ordering::Acquire) == 1 {
                return shared.checked(path);
            }
        }
        // An advisory lock of the open file: only one process initialises. It must be given back by word, because the
        // mapping keeps the open file, and with it the lock, alive after the descriptor is closed.
        // SAFETY: flock on a descriptor that is open.
        retry(|| unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) })?;
        let opened = Self::open_locked(&file, path, initialise);
        // SAFETY: as above.
        unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
        opened
    }

    /// Opens the file where it is there and somebody has finished making it. `None`: it is not there, or not yet made.
    ///
    /// Fails as [`open`](Self::open).
    pub fn open_made(path: &Path) -> io::Result<Option<Self>> {
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        if file.metadata()?.len() < Self::BYTES as u64 {
            return Ok(None);
        }
        let shared = Self::map(&file, path, Self::BYTES)?;
        if shared.header().is_ready.load(Ordering::Acquire) == 0 {
            return Ok(None);
        }
        shared.checked(path).map(Some)
    }

    fn open_locked(file: &File, path: &Path, initialise: impl FnOnce(&T)) -> io::Result<Self> {
        let bytes = Self::BYTES;
        if file.metadata()?.len() < bytes as u64 {
            file.set_len(bytes as u64)?;
            open_to_those_of(path.parent(), file);
        }
        let shared = Self::map(file, path, bytes)?;
        let header = shared.header();
        if header.is_ready.load(Ordering::Acquire) == 0 {
            initialise_lock(header.lock.get())?;
            header.magic.store(T::MAGIC, Ordering::Relaxed);
            header.size.store(size_of::<T>() as u64, Ordering::Relaxed);
            initialise(&shared);
            header.is_ready.store(1, Ordering::Release);
        }
        shared.checked(path)
    }

    fn checked(self, path: &Path) -> io::Result<Self> {
        let header = self.header();
        let same_layout = header.magic.load(Ordering::Relaxed) == T::MAGIC
            && header.size.load(Ordering::Relaxed) == size_of::<T>() as u64;
        if !same_layout {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{} was made by another build of the simulator", path.display()),
            ));
        }
        Ok(self)
    }

    fn map(file: &File, path: &Path, bytes: usize) -> io::Result<Self> {
        // SAFETY: a fresh shared mapping of a file that is at least `bytes` long.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: mmap does not return null, and the layout starts inside the mapping.
        unsafe {
            Ok(Self {
                folder: path.parent().unwrap_or(Path::new("")).to_owned(),
                header: NonNull::new_unchecked(at.cast()),
                layout: NonNull::new_unchecked(at.cast::<u8>().add(HEADER_BYTES).cast()),
            })
        }
    }

    /// Puts bare pages in the place of the mapping: the file is not mapped any more, and what a stale address leads to
    /// is zero and this process's own. A lock of the same kind is made in them.
    ///
    /// Fails with the operating system's error; the mapping is then as it was, or bare already.
    pub fn lay_bare(&mut self) -> io::Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: replaces our own mapping, which nobody else borrows.
        let at = unsafe { libc::mmap(self.header.as_ptr().cast(), Self::BYTES, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        initialise_lock(self.header().lock.get())
    }

    /// The folder that the file is in: the machine's.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn header(&self) -> &Header {
        // SAFETY: mapped as long as this lives; its fields are atomics and a mutex.
        unsafe { self.header.as_ref() }
    }

    /// Takes the lock of the file, across all processes. Held for microseconds only; never across a wait.
    pub fn lock(&self) -> SharedGuard<'_, T> {
        let mutex = self.header().lock.get();
        let mut continued = None;
        let result = loop {
            let result = lock_within(mutex, PATIENCE);
            if result != libc::ETIMEDOUT {
                break result;
            }
            // Of a namespace that is not below this one nobody here can continue anything: wait on.
            let Some(holder) = self.holder() else { continue };
            if process::is_stopped(holder) {
                // SAFETY: a signal to a process of this machine that stands in its critical section.
                unsafe { libc::kill(holder as libc::pid_t, libc::SIGCONT) };
                continued = Some(holder);
            }
        };
        if result == libc::EOWNERDEAD {
            // SAFETY: we hold it. What it protects is right after every store (module comment).
            unsafe { libc::pthread_mutex_consistent(mutex) };
        }
        self.header().namespace.store(own_namespace(), Ordering::Relaxed);
        if let Some(holder) = continued {
            // SAFETY: as above; whoever stopped it finds it stopped.
            unsafe { libc::kill(holder as libc::pid_t, libc::SIGSTOP) };
        }
        SharedGuard { shared: self }
    }

    /// The thread that holds the lock, by its number here.
    fn holder(&self) -> Option<u32> {
        let header = self.header();
        let namespace = header.namespace.load(Ordering::Relaxed);
        let number = holder(header.lock.get());
        if namespace == 0 || namespace == own_namespace() {
            return Some(number);
        }
        process::number_of_thread(namespace, number)
    }
}

impl<T: SharedLayout> Deref for Shared<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: mapped as long as this lives, valid by the contract of `SharedLayout`.
        unsafe { self.layout.as_ref() }
    }
}

/// Holds the lock of a shared file.
pub struct SharedGuard<'a, T: SharedLayout> {
    shared: &'a Shared<T>,
}

impl<T: SharedLayout> SharedGuard<'_, T> {
    /// The folder that the file is in.
    pub fn folder(&self) -> &Path {
        self.shared.folder()
    }
}

impl<T: SharedLayout> Deref for SharedGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.shared
    }
}

impl<T: SharedLayout> Drop for SharedGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: this thread holds it.
        unsafe { libc::pthread_mutex_unlock(self.shared.header().lock.get()) };
    }
}

/// A critical section takes microseconds: after this long its holder may be stopped.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(20);

fn lock_within(mutex: *mut libc::pthread_mutex_t, patience: std::time::Duration) -> libc::c_int {
    // SAFETY: initialised in `open`, never destroyed.
    match unsafe { libc::pthread_mutex_trylock(mutex) } {
        libc::EBUSY => {}
        result => return result,
    }
    let now = std::time::SystemTime::now();
    let until = (now + patience)
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let until = libc::timespec {
        tv_sec: until.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(until.subsec_nanos()),
    };
    // SAFETY: as above.
    unsafe { libc::pthread_mutex_timedlock(mutex, &raw const until) }
}

/// [`process::own_namespace`], asked once: a process's own never changes, and a forked child's may.
fn own_namespace() -> u64 {
    static KNOWN: AtomicU64 = AtomicU64::new(0);
    static OF: AtomicU32 = AtomicU32::new(0);
    let here = std::process::id();
    if OF.load(Ordering::Acquire) != here {
        KNOWN.store(process::own_namespace(), Ordering::Relaxed);
        OF.store(here, Ordering::Release);
    }
    KNOWN.load(Ordering::Relaxed)
}

/// The thread that holds a robust mutex, 0 for none, by its number in its own PID namespace. Its first word is the one
/// that the kernel knows it by (robust
/// futexes): the owner's thread id and two flags, changed in one step with the ownership. A signal to a thread id is
/// one to its process.
fn holder(mutex: *mut libc::pthread_mutex_t) -> u32 {
    const THREAD_ID: u32 = 0x3fff_ffff;
    // SAFETY: the mutex is mapped for the life of the process, and its first word is only ever changed atomically.
    let word = unsafe { AtomicU32::from_ptr(mutex.cast()) };
    word.load(Ordering::Relaxed) & THREAD_ID
}

fn initialise_lock(mutex: *mut libc::pthread_mutex_t) -> io::Result<()> {
    // SAFETY: the attribute object lives on the stack for these calls; the mutex is ours alone until `is_ready`.
    let result = unsafe {
        let mut attributes = std::mem::zeroed();
        let mut result = libc::pthread_mutexattr_init(&mut attributes);
        result |= libc::pthread_mutexattr_setpshared(&mut attributes, libc::PTHREAD_PROCESS_SHARED);
        result |= libc::pthread_mutexattr_setrobust(&mut attributes, libc::PTHREAD_MUTEX_ROBUST);
        std::ptr::write_bytes(mutex, 0, 1);
        result |= libc::pthread_mutex_init(mutex, &attributes);
        libc::pthread_mutexattr_destroy(&mut attributes);
        result
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(result))
    }
}

fn retry(mut call: impl FnMut() -> libc::c_int) -> io::Result<()> {
    loop {
        if call() == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Words([AtomicU64; 4]);

    // SAFETY: an array of atomics.
    unsafe impl SharedLayout for Words {
        const MAGIC: u64 = 1;
    }

    struct OtherWords(#[allow(dead_code)] [AtomicU64; 5]);

    // SAFETY: an array of atomics.
    unsafe impl SharedLayout for OtherWords {
        const MAGIC: u64 = 2;
    }

    #[test]
    fn a_file_is_initialised_once_and_seen_by_all_who_map_it() {
        let path = std::env::temp_dir().join(format!("partage-shared-{}", std::process::id()));
        let first = Shared::<Words>::open(&path, |words| words.0[0].store(7, Ordering::Relaxed)).expect("made");
        let second = Shared::<Words>::open(&path, |_| panic!("initialised twice")).expect("opened");
        first.lock().0[1].store(8, Ordering::Relaxed);
        let guard = second.lock();
        assert_eq!(
            [guard.0[0].load(Ordering::Relaxed), guard.0[1].load(Ordering::Relaxed)],
            [7, 8]
        );
        drop(guard);
        let error = Shared::<OtherWords>::open(&path, |_| ())
            .err()
            .expect("another layout is refused");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        std::fs::remove_file(&path).expect("clean up");
    }

    #[test]
    fn a_stopped_holder_is_let_out_and_stopped_again() {
        let path = std::env::temp_dir().join(format!("partage-stopped-{}", std::process::id()));
        let shared = Shared::<Words>::open(&path, |_| ()).expect("made");
        // SAFETY: the child takes the lock, stops itself, gives the lock up and waits for the signal that ends it.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let guard = shared.lock();
            // SAFETY: stops this process until it is continued.
            unsafe { libc::raise(libc::SIGSTOP) };
            drop(guard);
            loop {
                // SAFETY: waits for the signal that ends it.
                unsafe { libc::pause() };
            }
        }
        let stopped = || {
            let mut status = 0;
            // SAFETY: our own child.
            unsafe { libc::waitpid(child, &raw mut status, libc::WUNTRACED) == child && libc::WIFSTOPPED(status) }
        };
        assert!(stopped(), "inside its critical section");
        drop(shared.lock());
        assert!(stopped(), "again, outside");
        drop(shared.lock());
        // SAFETY: our own child.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        std::fs::remove_file(&path).expect("clean up");
    }

    #[test]
    fn the_lock_of_a_killed_holder_passes_on() {
        let path = std::env::temp_dir().join(format!("partage-robust-{}", std::process::id()));
        let shared = Shared::<Words>::open(&path, |_| ()).expect("made");
        // SAFETY: the child only takes the lock and is killed.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let guard = shared.lock();
            guard.0[2].store(1, Ordering::Release);
            loop {
                // SAFETY: waits for the signal that ends it.
                unsafe { libc::pause() };
            }
        }
        while shared.0[2].load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        // SAFETY: our own child.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        drop(shared.lock());
        drop(shared.lock());
        std::fs::remove_file(&path).expect("clean up");
    }
}
