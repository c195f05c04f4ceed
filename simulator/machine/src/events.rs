// SPDX-License-Identifier: Apache-2.0
//! Events that several processes record and wait for: a small file for each in the machine's folder, mapped by all of
//! them.
//!
//! Terms: a *recording* has a number, the *latest* the greatest. Who records says so under the file's lock, and later
//! that the recording was reached. What a dead process recorded counts as reached, as what it had submitted is gone:
//! nobody waits for ever. The file holds the last [`KEPT`] recordings; an older one counts as reached.
//!
//! A waiter sleeps in the kernel and is woken by whoever reaches a recording; it looks for the dead now and then.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::presence;
use crate::process::ProcessId;
use crate::shared::{Shared, SharedLayout};

/// Recordings that are told apart.
const KEPT: usize = 32;
/// How often a waiter looks whether the recorder is dead, or the wait is over for another reason.
const GLANCE: Duration = Duration::from_millis(20);

/// A process; all zero before it is known.
#[repr(C)]
struct Who {
    pid: AtomicU64,
    start: AtomicU64,
    stack: AtomicU64,
    namespace: AtomicU64,
    ticket: AtomicU64,
}

/// A recording; its number is 0 while it is being written.
#[repr(C)]
struct Recording {
    number: AtomicU64,
    is_reached: AtomicU64,
    by: Who,
}

/// The layout of the file.
#[repr(C)]
struct Page {
    latest: AtomicU64,
    /// Counts the times that a recording was reached; who waits sleeps on it.
    wakes: AtomicU32,
    padding: AtomicU32,
    maker: Who,
    recordings: [Recording; KEPT],
}

// SAFETY: atomics, arrays and structs of them, all `repr(C)`; zero is an event that was never recorded.
unsafe impl SharedLayout for Page {
    const MAGIC: u64 = 0x4556_4e54_0000_0001;
}

impl Who {
    fn write(&self, id: &ProcessId) {
        self.start.store(id.start, Ordering::Relaxed);
        self.stack.store(id.stack, Ordering::Relaxed);
        self.namespace.store(id.namespace, Ordering::Relaxed);
        self.ticket.store(id.ticket, Ordering::Relaxed);
        self.pid.store(u64::from(id.pid), Ordering::Release);
    }

    fn read(&self) -> ProcessId {
        ProcessId {
            pid: self.pid.load(Ordering::Acquire) as u32,
            start: self.start.load(Ordering::Relaxed),
            stack: self.stack.load(Ordering::Relaxed),
            namespace: self.namespace.load(Ordering::Relaxed),
            ticket: self.ticket.load(Ordering::Relaxed),
        }
    }
}

/// Removes the files of dead processes' events: a process that is killed leaves its own. Who has one open keeps it.
pub fn sweep(folder: &Path, own: &ProcessId) {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for path in files.map(|entry| entry.path()).filter(|path| is_event(path)) {
        // One that is being made has no maker yet, and is left alone.
        if let Ok(Some(page)) = Shared::<Page>::open_made(&path)
            && page.maker.read().number(folder, own).is_none()
        {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// An event that several processes have, as this one sees it. Its maker's end removes the file; who has it open keeps
/// it.
pub struct SharedEvent {
    page: Shared<Page>,
    id: u64,
    /// This process.
    own: ProcessId,
    /// Its end is the file's.
    is_maker: bool,
}

impl Drop for SharedEvent {
    fn drop(&mut self) {
        if self.is_maker {
            let _ = std::fs::remove_file(path_of(self.page.folder(), self.id));
        }
    }
}

/// What the names of the files begin with.
const PREFIX: &str = "event-";

fn path_of(folder: &Path, id: u64) -> PathBuf {
    folder.join(format!("{PREFIX}{id:016x}"))
}

fn is_event(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(PREFIX))
}

impl SharedEvent {
    /// Makes one in the machine's folder, for the calling process, which is `own`.
    ///
    /// Fails with the operating system's error.
    pub fn make(folder: &Path, own: ProcessId) -> io::Result<Self> {
        let id = presence::random()?;
        let page = Shared::<Page>::open(&path_of(folder, id), |page| page.maker.write(&own))?;
        let is_maker = true;
        Ok(Self {
            page,
            id,
            own,
            is_maker,
        })
    }

    /// Opens one by its number. `None` when there is none, or its maker is dead.
    pub fn open(folder: &Path, own: ProcessId, id: u64) -> Option<Self> {
        let path = path_of(folder, id);
        let page = Shared::<Page>::open_made(&path).ok()??;
        if page.maker.read().number(folder, &own).is_none() {
            let _ = std::fs::remove_file(&path);
            return None;
        }
        let is_maker = false;
        Some(Self {
            page,
            id,
            own,
            is_maker,
        })
    }

    /// Its number, by which others open it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether this process made it.
    pub fn is_own(&self) -> bool {
        self.page.maker.read().is_same_run(&self.own)
    }

    /// Begins a recording of this process.
    pub fn record(&self) -> u64 {
        let page = self.page.lock();
        let number = page.latest.load(Ordering::Relaxed) + 1;
        let recording = recording(&page, number);
        // Right after every store: without its number the recording is none.
        recording.number.store(0, Ordering::Release);
        recording.is_reached.store(0, Ordering::Relaxed);
        recording.by.write(&self.own);
        recording.number.store(number, Ordering::Release);
        page.latest.store(number, Ordering::Release);
        number
    }

    /// A recording of this process was reached.
    pub fn reach(&self, number: u64) {
        {
            let page = self.page.lock();
            let recording = recording(&page, number);
            if recording.number.load(Ordering::Relaxed) == number {
                recording.is_reached.store(1, Ordering::Release);
            }
        }
        self.page.wakes.fetch_add(1, Ordering::Release);
        // SAFETY: wakes whoever sleeps on a word of our mapping; a futex that is not private, as processes share it.
        unsafe { libc::syscall(libc::SYS_futex, self.page.wakes.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }

    /// The latest recording of all processes; 0 when there was none.
    pub fn latest(&self) -> u64 {
        self.page.latest.load(Ordering::Acquire)
    }

    /// Whether a recording was reached, or will never be.
    pub fn is_reached(&self, number: u64) -> bool {
        let recording = recording(&self.page, number);
        let is_it = || recording.number.load(Ordering::Acquire) == number;
        if number == 0 || !is_it() || recording.is_reached.load(Ordering::Acquire) != 0 {
            return true;
        }
        let by = recording.by.read();
        // If it is another's by now, it is none of this number any more.
        !is_it() || by.number(self.page.folder(), &self.own).is_none()
    }

    /// Sleeps until a recording was reached, or `is_over`, which is asked now and then.
    pub fn wait(&self, number: u64, is_over: impl Fn() -> bool) {
        loop {
            let seen = self.page.wakes.load(Ordering::Acquire);
            if self.is_reached(number) || is_over() {
                return;
            }
            let glance = libc::timespec {
                tv_sec: 0,
                tv_nsec: GLANCE.as_nanos() as libc::c_long,
            };
            // SAFETY: sleeps while the word of our mapping is what it was, for a time that lives on the stack.
            unsafe {
                let word = self.page.wakes.as_ptr();
                libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, seen, &raw const glance);
            }
        }
    }
}

fn recording(page: &Page, number: u64) -> &Recording {
    &page.recordings[number as usize % KEPT]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("partage-events-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("made");
        folder
    }

    /// A process that runs until it is killed. It has echoed a line: `spawn` returns while `execve` still changes the
    /// child's stack, by which [`ProcessId`] knows a run.
    fn runs_on() -> std::process::Child {
        use std::io::{BufRead, BufReader, Write};
        use std::process::{Command, Stdio};
        let mut cat = Command::new("cat");
        let mut child = cat
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        child
            .stdin
            .as_mut()
            .expect("piped")
            .write_all(b"up\n")
            .expect("it reads");
        let mut line = String::new();
        let said = BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line);
        assert!(said.is_ok() && line == "up\n");
        child
    }

    #[test]
    fn recordings_are_reached_each_by_itself() {
        let folder = folder("each");
        let own = ProcessId::current();
        let event = SharedEvent::make(&folder, own).expect("made");
        let other = SharedEvent::open(&folder, own, event.id()).expect("there");
        assert!(other.latest() == 0 && other.is_reached(0));
        let (first, second) = (event.record(), other.record());
        assert_eq!((first, second, event.latest()), (1, 2, 2));
        event.reach(second);
        assert!(!other.is_reached(first) && other.is_reached(second));
        event.reach(first);
        other.wait(first, || false);
        // More than the file holds: the oldest count as reached.
        let old = event.record();
        (0..KEPT).for_each(|_| assert!(event.record() > old));
        assert!(event.is_reached(old) && !event.is_reached(event.latest()));
        drop(event);
        assert!(
            SharedEvent::open(&folder, own, other.id()).is_none(),
            "its file is gone"
        );
        std::fs::remove_dir_all(folder).expect("clean up");
    }

    #[test]
    fn what_a_dead_process_recorded_is_waited_for_no_longer() {
        let folder = folder("dead");
        let own = ProcessId::current();
        let event = SharedEvent::make(&folder, own).expect("made");
        let mut child = runs_on();
        let other = SharedEvent {
            page: Shared::open_made(&path_of(&folder, event.id()))
                .expect("readable")
                .expect("there"),
            id: event.id(),
            own: ProcessId::of(child.id()).expect("it lives"),
            is_maker: false,
        };
        let number = other.record();
        assert!(!event.is_reached(number));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| event.wait(number, || false));
            assert!(!waiter.is_finished());
            child.kill().expect("ours");
            child.wait().expect("ours");
        });
        assert!(event.is_reached(number));
        std::fs::remove_dir_all(folder).expect("clean up");
    }

    #[test]
    fn a_dead_makers_file_goes_and_a_living_ones_stays() {
        let folder = folder("sweep");
        let own = ProcessId::current();
        let mut child = runs_on();
        let others = SharedEvent::make(&folder, ProcessId::of(child.id()).expect("it lives")).expect("made");
        let event = SharedEvent::make(&folder, own).expect("made");
        let unfinished = path_of(&folder, 4711);
        std::fs::write(&unfinished, "").expect("writable");
        let left = |event: &SharedEvent| path_of(&folder, event.id()).exists();
        sweep(&folder, &own);
        assert!(left(&event) && left(&others) && unfinished.exists());
        child.kill().expect("ours");
        child.wait().expect("ours");
        sweep(&folder, &own);
        assert!(left(&event) && !left(&others) && unfinished.exists());
        std::fs::remove_dir_all(folder).expect("clean up");
    }

    #[test]
    fn on_a_machine_that_is_open_to_all_everybody_reaches_an_event() {
        use std::os::unix::fs::PermissionsExt;
        let folder = folder("open");
        let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
        for (of_folder, is_shared) in [(0o700, false), (0o777, true)] {
            std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(of_folder)).expect("ours");
            let event = SharedEvent::make(&folder, ProcessId::current()).expect("made");
            assert_eq!(mode(&path_of(&folder, event.id())) == 0o666, is_shared);
        }
        std::fs::remove_dir_all(folder).expect("clean up");
    }
}
