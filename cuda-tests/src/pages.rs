// SPDX-License-Identifier: Apache-2.0
//! A client's shared pages, opened behind the broker's back: a test plays the broker's part at the gate.
//!
//! The broker is stopped meanwhile, so that there is one writer. The pages are found among the client's descriptors by
//! their first words and mapped through `/proc`, as the next broker would do it.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use partage_machine::process::stop;
use partage_protocol::gate::{self, HELD, TimePage};
use partage_protocol::hold;
use partage_protocol::page::{BROKER_MAGIC, BrokerPage, CLIENT_BYTES, CLIENT_MAGIC, ClientFile, GrantLine, PAGE_BYTES};

use crate::rig::Rig;

/// Longest wait for something that the client does within microseconds.
const SOON: Duration = Duration::from_secs(30);

/// The two pages of one client.
pub struct Pages {
    broker: *mut BrokerPage,
    client: *mut ClientFile,
}

impl Pages {
    /// Those of a process that is attached.
    ///
    /// # Panics
    /// When it has none.
    pub fn of(pid: u32) -> Self {
        let (broker, client) = (find(pid, BROKER_MAGIC), find(pid, CLIENT_MAGIC));
        Self {
            broker: map(&broker, PAGE_BYTES).cast(),
            client: map(&client, CLIENT_BYTES).cast(),
        }
    }

    /// The broker's page.
    pub fn broker(&self) -> &BrokerPage {
        // SAFETY: mapped below with its size; it holds atomics only.
        unsafe { &*self.broker }
    }

    /// The client's file.
    pub fn client(&self) -> &ClientFile {
        // SAFETY: as above.
        unsafe { &*self.client }
    }

    /// What the broker says about a device.
    pub fn line(&self, device: usize) -> &GrantLine {
        &self.broker().devices[device]
    }

    /// What the client says about its time on a device.
    pub fn time(&self, device: usize) -> &TimePage {
        &self.client().time.devices[device]
    }

    /// Has a broker that is stopped count as alive for the hour, however long this machine takes.
    pub fn keep_alive(&self) {
        let heartbeat = now_ns() + 3_600_000_000_000;
        self.broker().head.heartbeat_ns.store(heartbeat, Ordering::Relaxed);
    }

    /// Closes the gate, and keeps the broker alive.
    pub fn close(&self, device: usize) {
        self.keep_alive();
        gate::close(&self.line(device).gate);
        self.barrier();
    }

    /// Opens the gate and wakes who waits.
    pub fn open(&self, device: usize) {
        let line = self.line(device);
        gate::open(&line.gate);
        // SAFETY: a word of a shared mapping; nobody is harmed by a wake.
        unsafe { libc::syscall(libc::SYS_futex, line.gate.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }

    /// Closes the hold, softly or hard, and answers the word under which whoever is inside shows. Keeps the broker
    /// alive.
    pub fn close_hold(&self, close: fn(&AtomicU32) -> u32) -> u32 {
        self.keep_alive();
        for line in &self.broker().devices {
            line.gate_flags.fetch_or(HELD, Ordering::Relaxed);
        }
        let word = close(&self.broker().head.hold);
        self.barrier();
        word
    }

    /// Opens the hold and wakes who stands at it.
    pub fn open_hold(&self) {
        for line in &self.broker().devices {
            line.gate_flags.fetch_and(!HELD, Ordering::Relaxed);
        }
        let word = &self.broker().head.hold;
        hold::open(word);
        // SAFETY: a word of a shared mapping; nobody is harmed by a wake.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }

    /// Threads that stand at the hold now.
    pub fn wants(&self) -> u32 {
        self.client().page.head.wants.load(Ordering::Acquire)
    }

    /// Waits until so many threads stand at the hold.
    #[track_caller]
    pub fn wait_for_wants(&self, rig: &Rig, threads: u32) {
        rig.eventually(SOON, "threads stand at the hold", || self.wants() == threads);
    }

    /// Waits until nobody is in the driver, under a closed word of the hold.
    #[track_caller]
    pub fn wait_for_nobody(&self, rig: &Rig, word: u32) {
        rig.eventually(SOON, "nobody is inside", || !self.client().is_anybody_inside(word));
    }

    /// The heavy barrier of the gate's protocol.
    pub fn barrier(&self) {
        const GLOBAL_EXPEDITED: i32 = 1 << 1;
        // SAFETY: a barrier touches no memory of ours.
        let result = unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL_EXPEDITED, 0, 0) };
        assert_eq!(result, 0, "this kernel has no membarrier");
    }

    /// Threads at a gate now.
    pub fn waiting(&self, device: usize) -> u32 {
        self.time(device).waiting.load(Ordering::Acquire)
    }

    /// Waits until so many threads stand at a gate.
    #[track_caller]
    pub fn wait_for(&self, rig: &Rig, device: usize, threads: u32) {
        rig.eventually(SOON, "threads wait at the gate", || self.waiting(device) == threads);
    }

    /// No launch is between its look at the gate and its end.
    pub fn is_quiet(&self) -> bool {
        let time = &self.client().time;
        (0..time.crowd.len()).all(|device| !time.is_entering(device))
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: our mappings, to which nobody refers any more.
        unsafe {
            libc::munmap(self.broker.cast(), PAGE_BYTES);
            libc::munmap(self.client.cast(), CLIENT_BYTES);
        }
    }
}

/// Nanoseconds of the monotonic clock, which the pages are in.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the structure it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn find(pid: u32, magic: u32) -> File {
    let folder = PathBuf::from(format!("/proc/{pid}/fd"));
    let descriptors = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    descriptors
        .flatten()
        .filter(|entry| {
            let target = std::fs::read_link(entry.path()).unwrap_or_default();
            target.to_string_lossy().starts_with("/memfd:")
        })
        .filter_map(|entry| OpenOptions::new().read(true).write(true).open(entry.path()).ok())
        .find(|file| {
            let mut word = [0; 4];
            file.read_exact_at(&mut word, 0).is_ok() && u32::from_ne_bytes(word) == magic
        })
        .unwrap_or_else(|| panic!("process {pid} has no page that begins with {magic:#x}"))
}

fn map(file: &File, length: usize) -> *mut libc::c_void {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of a file that is at least so long (it was read above).
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            protection,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(memory, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    memory
}

/// A broker that is stopped; it goes on when this goes.
pub struct Stopped(u32);

impl Stopped {
    /// Stops a rig's broker.
    ///
    /// # Panics
    /// When it has none.
    pub fn broker(rig: &Rig) -> Self {
        let pid = rig.broker_pid_quick().expect("a broker runs");
        // What a thread of it still writes would come after what the test does.
        stop(pid);
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::kill(self.0 as libc::pid_t, libc::SIGCONT) };
    }
}
