// SPDX-License-Identifier: Apache-2.0
//! The timekeeper: the thread that watches the clients' marks and opens and closes their gates.
//!
//! A thread of its own, because a gate has to move within some ten microseconds of its reason, and the event loop may
//! write a file meanwhile. It owns the scheduler and everything it decides about; the event loop tells it of jobs, terms
//! and clients over a channel and reads what it last published. It sleeps for as long as no device has anything to judge.
//!
//! ```text
//!   event loop ── Message ──► Keeper (scheduler, clients' pages) ── gate words, futex wakes ──► clients
//!        ▲                        │          ▲
//!        └──── published views ◄──┘          └── slots, marks (read every 50 us .. 1 ms while contended)
//! ```
//! Whoever drops the [`Timekeeper`] ends the thread; it opens every gate before it goes. A broker that is killed leaves
//! gates as they are: clients open them by themselves when the heartbeat stops.

mod keeper;
mod kernel;

use std::os::fd::AsFd;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use partage_policy::{JobTime, UnmanagedLoad};
use partage_protocol::units::{ClientId, DeviceUuid, JobId};
use partage_scheduling::Terms;

use crate::error::Error;
use crate::invariants::Invariants;
use crate::pages::PagePair;
use crate::server::now;

pub use keeper::Keeper;
pub use kernel::Kernel;

/// What the event loop tells.
#[derive(Debug)]
pub enum Message {
    /// A job's terms on its devices, from now on.
    Terms {
        /// Whose.
        job: JobId,
        /// Where.
        devices: Vec<DeviceUuid>,
        /// What.
        terms: Terms,
    },
    /// The job is gone.
    JobGone(JobId),
    /// A client whose pages are mapped.
    Joined(Joined),
    /// The client is gone.
    Left(ClientId),
    /// Processes of no job use so much of a device's time from now on.
    Unmanaged(DeviceUuid, UnmanagedLoad),
    /// Jobs had more of a device's time than they were charged, or less.
    Correct {
        /// Where.
        device: DeviceUuid,
        /// Whose, and by how much, in nanoseconds.
        charges: Vec<(JobId, i64)>,
        /// To be charged evenly over this time.
        over_ns: u64,
    },
}

/// A client that came, or came back.
#[derive(Debug)]
pub struct Joined {
    /// Who.
    pub client: ClientId,
    /// Its job.
    pub job: JobId,
    /// Its process.
    pub pid: u32,
    /// The job's devices in slot order.
    pub devices: Vec<DeviceUuid>,
    /// Its pages.
    pub pages: Arc<PagePair>,
}

/// The thread.
#[derive(Debug)]
pub struct Timekeeper {
    sender: Option<Sender<Message>>,
    bell: Arc<EventFd>,
    published: Arc<Mutex<Vec<JobTime>>>,
    thread: Option<JoinHandle<()>>,
}

impl Timekeeper {
    /// Starts it.
    ///
    /// # Errors
    /// [`Error::System`] when the system has no thread or descriptor to give.
    pub fn start() -> Result<Self, Error> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let bell = EventFd::from_flags(flags).map_err(Error::system("make the timekeeper's bell"))?;
        let bell = Arc::new(bell);
        let published = Arc::new(Mutex::new(Vec::new()));
        let (sender, receiver) = mpsc::channel();
        let thread = {
            let (bell, published) = (Arc::clone(&bell), Arc::clone(&published));
            std::thread::Builder::new()
                .name("timekeeper".to_owned())
                .spawn(move || run(&receiver, &bell, &published))
        };
        let no_thread = |error: std::io::Error| {
            let errno = nix::Error::from_raw(error.raw_os_error().unwrap_or(libc::EAGAIN));
            Error::system("start the timekeeper")(errno)
        };
        Ok(Self {
            sender: Some(sender),
            bell,
            published,
            thread: Some(thread.map_err(no_thread)?),
        })
    }

    /// Tells it something.
    pub fn tell(&self, message: Message) {
        if let Some(sender) = &self.sender
            && sender.send(message).is_ok()
        {
            let _ = self.bell.write(1);
        }
    }

    /// What it last measured, of all jobs that it measures.
    #[must_use]
    pub fn published(&self) -> Vec<JobTime> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Timekeeper {
    fn drop(&mut self) {
        self.sender = None;
        let _ = self.bell.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How often the views are written down while anything changes, in nanoseconds.
const PUBLISH_NS: u64 = 100_000_000;

fn run(receiver: &Receiver<Message>, bell: &EventFd, published: &Mutex<Vec<JobTime>>) {
    let mut keeper = Keeper::new(kernel::Linux::new());
    let mut publish_at = 0;
    let mut invariants = Invariants::default();
    loop {
        loop {
            match receiver.try_recv() {
                Ok(message) => {
                    keeper.take(now().ns, message);
                    // Perhaps the last change for long: what was said before it is not to stand until the next.
                    publish_at = 0;
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    keeper.open_all();
                    return;
                }
            }
        }
        let time = now().ns;
        let due = keeper.turn(time);
        invariants.check(time, || keeper.check());
        if time >= publish_at {
            publish_at = time + PUBLISH_NS;
            *published.lock().unwrap_or_else(PoisonError::into_inner) = keeper.view(time);
        }
        wait(bell, due.map(|at| at.saturating_sub(now().ns)));
        let _ = bell.read();
    }
}

/// Sleeps until the bell rings or the time has passed.
fn wait(bell: &EventFd, time_ns: Option<u64>) {
    let timeout = time_ns.map(|ns| TimeSpec::new((ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64));
    let mut fds = [PollFd::new(bell.as_fd(), PollFlags::POLLIN)];
    // An interrupted wait is a short one.
    let _ = ppoll(&mut fds, timeout, None);
}
