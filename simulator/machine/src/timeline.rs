// SPDX-License-Identifier: Apache-2.0
//! The device timeline: when each operation of each process runs on the devices of a simulated machine.
//!
//! One file per device (`timeline-0`, …) is mapped by every process of the machine; [`arbiter`] decides in it who
//! runs, this module adds what the decision needs: the wall clock, a lock that survives the death of its holder,
//! futex waits, and the removal of processes that are gone. There is no daemon: whoever looks replays what happened
//! since somebody last looked, so device times are exact however late a process wakes.
//!
//! Units are nanoseconds. *Device time* is the clock of one device, see [`arbiter`].
//!
//! Lock order: at most one device's lock is held at a time, for microseconds, never across a wait.

pub mod arbiter;

use std::cell::UnsafeCell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::process::{ProcessId, machine_time, own_time};
use crate::shared::{Shared, SharedGuard, SharedLayout};

pub use arbiter::{Ask, Departed, DeviceTruth, ENGINES, Engine, FULL, Owner, SeatTruth, Settings, Span};

/// Contexts of all processes on one device, and simultaneous requests of one context.
const SEATS: usize = 512;
const REQUESTS: usize = 32;
/// How far a device may run ahead of the wall clock, so that short operations do not each cost a sleep.
const LEAD: u64 = 100_000;
/// Shortest and longest sleep before looking again: the first bounds what a stalled device costs its waiters, the
/// second is how soon a dead process is noticed.
const NAP: (u64, u64) = (50_000, 100_000_000);

type Device = arbiter::Arbiter<SEATS, REQUESTS>;

/// The shared file of one device.
#[repr(C)]
struct Layout {
    /// 1 while somebody changes `device`: found set by the next one, that process died meanwhile.
    is_torn: AtomicU32,
    /// Changes when somebody may complete sooner than it was told. Waiters sleep on it.
    news: AtomicU32,
    device: UnsafeCell<Device>,
}

// SAFETY: `device` is touched only under the file's lock.
unsafe impl Sync for Layout {}

// SAFETY: `repr(C)`, integers only, no pointers; zero bytes are a device that nobody may use before `reset`, which
// `Shared::open` runs first. What the lock protects is repaired when `is_torn` is found set.
unsafe impl SharedLayout for Layout {
    const MAGIC: u64 = u64::from_le_bytes(*b"timelin6");
}

/// The timelines of a machine's devices.
pub struct Timeline {
    /// The machine's.
    folder: PathBuf,
    devices: Vec<Shared<Layout>>,
    owner: Owner,
    /// What this process's device time is ahead of the file's, by device: where a process comes to that had a time
    /// already, it goes on from there.
    ahead: Vec<AtomicU64>,
}

impl Timeline {
    /// Opens the timelines in a machine's folder for the calling process, `id`, one for each of `settings`; makes them
    /// if this is the first process. Settings hold for the life of the files.
    ///
    /// Fails with the operating system's error.
    pub fn open(folder: &Path, settings: &[Settings], id: ProcessId) -> io::Result<Self> {
        let devices = settings
            .iter()
            .enumerate()
            .map(|(index, settings)| open(folder, index, *settings));
        Ok(Self::of(folder, devices.collect::<io::Result<_>>()?, id))
    }

    /// Opens the timeline of one device only, which is number 0 of it.
    ///
    /// Fails with the operating system's error.
    pub fn open_only(folder: &Path, device: usize, settings: Settings) -> io::Result<Self> {
        let device = open(folder, device, settings)?;
        Ok(Self::of(folder, vec![device], ProcessId::current()))
    }

    fn of(folder: &Path, devices: Vec<Shared<Layout>>, id: ProcessId) -> Self {
        let owner = Owner {
            pid: u64::from(id.pid),
            start: id.start,
            stack: id.stack,
            namespace: id.namespace,
            ticket: id.ticket,
        };
        let ahead = devices.iter().map(|_| AtomicU64::new(0)).collect();
        Self {
            folder: folder.to_owned(),
            devices,
            owner,
            ahead,
        }
    }

    /// Gives a context of this process its place on a device. `context` is reported in [`SeatTruth`].
    ///
    /// `None` when the device has [`SEATS`] contexts of living processes.
    pub fn join(self: &Arc<Self>, device: usize, context: u64) -> Option<Seat> {
        let mut view = self.view(device);
        let joined = view
            .device()
            .join(self.owner, context)
            .or_else(|full| match self.reap(&mut view) {
                0 => Err(full),
                _ => view.device().join(self.owner, context),
            });
        drop(view);
        Some(Seat {
            timeline: Arc::clone(self),
            device,
            index: joined.ok()?,
        })
    }

    /// Device time now.
    pub fn clock(&self, device: usize) -> u64 {
        self.own(device, self.view(device).device().clock())
    }

    /// The time of a device as this process counts it.
    fn own(&self, device: usize, time: u64) -> u64 {
        time.wrapping_add(self.ahead[device].load(Ordering::Relaxed))
    }

    /// From now on the device's time goes on from `time`, in this process.
    pub fn go_on_from(&self, device: usize, time: u64) {
        let now = self.view(device).device().clock();
        self.ahead[device].store(time.wrapping_sub(now), Ordering::Relaxed);
    }

    /// What every process used of a device, after dropping those that are gone. Each has the number that the PID
    /// namespace of this process gives it, 0 when it cannot be seen from there; who departed has its own.
    pub fn truth(&self, device: usize) -> DeviceTruth {
        let mut view = self.view(device);
        if self.reap(&mut view) > 0 {
            view.wake_waiters();
        }
        let mut truth = view.device().truth();
        drop(view);
        let here = ProcessId::current();
        for seat in &mut truth.seats {
            let number = id_of(seat.owner).number(&self.folder, &here);
            seat.owner.pid = number.unwrap_or(0).into();
        }
        truth
    }

    /// Drops the contexts of processes that are gone; gives how many.
    fn reap(&self, view: &mut View<'_>) -> usize {
        let here = ProcessId::current();
        view.device()
            .reap(|owner| id_of(owner).number(&self.folder, &here).is_none())
    }

    fn view(&self, device: usize) -> View<'_> {
        let guard = self.devices[device].lock();
        let was_torn = guard.is_torn.swap(1, Ordering::Relaxed) != 0;
        let mut view = View { guard };
        if was_torn {
            view.device().repair();
            self.reap(&mut view);
            view.wake_waiters();
        }
        view.device().advance(wall());
        view
    }

    /// Sleeps until somebody has news or until the wall clock reads `until`.
    fn sleep(&self, device: usize, seen: u32, until: u64) {
        // A restored process's clock stood still while it was away: the kernel sleeps by that.
        let until = own_time(until);
        let time = libc::timespec {
            tv_sec: (until / 1_000_000_000) as libc::time_t,
            tv_nsec: (until % 1_000_000_000) as libc::c_long,
        };
        let word = self.devices[device].news.as_ptr();
        // SAFETY: the word is mapped for the life of the process; the operation is not private, because other
        // processes wake it; with BITSET the time is absolute on the monotonic clock.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word,
                libc::FUTEX_WAIT_BITSET,
                seen,
                &raw const time,
                std::ptr::null::<u32>(),
                u32::MAX,
            );
        }
    }
}

/// Maps the file of one device, making it if this is the first process.
fn open(folder: &Path, index: usize, settings: Settings) -> io::Result<Shared<Layout>> {
    Shared::open(&folder.join(format!("timeline-{index}")), |layout: &Layout| {
        // SAFETY: `open` runs this before anybody else can reach the layout.
        unsafe { &mut *layout.device.get() }.reset(settings, wall());
    })
}

/// A device under its lock, advanced to now.
struct View<'a> {
    guard: SharedGuard<'a, Layout>,
}

impl View<'_> {
    fn device(&mut self) -> &mut Device {
        // SAFETY: the lock is held, and this borrow is the only one because it borrows the view.
        unsafe { &mut *self.guard.device.get() }
    }

    fn news(&self) -> u32 {
        self.guard.news.load(Ordering::Relaxed)
    }

    fn wake_waiters(&self) {
        self.guard.news.fetch_add(1, Ordering::Release);
        // SAFETY: wakes sleepers on a mapped word.
        unsafe { libc::syscall(libc::SYS_futex, self.guard.news.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        self.guard.is_torn.store(0, Ordering::Relaxed);
    }
}

/// The place of one context of this process on a device. Dropping it gives the place back.
pub struct Seat {
    timeline: Arc<Timeline>,
    device: usize,
    index: usize,
}

/// What a thread that holds a wake was woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A request is complete.
    End,
    /// A request is to be handed in.
    Start,
}

/// A request that was handed in and not completed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    index: usize,
    serial: u64,
}

impl Seat {
    /// The device's number.
    pub fn device(&self) -> usize {
        self.device
    }

    /// Device time now.
    pub fn clock(&self) -> u64 {
        self.timeline.clock(self.device)
    }

    /// Hands in a request. While all of the context's places are taken it waits for one. The `wake` that the caller
    /// holds ends.
    pub fn begin(&self, ask: Ask, mut wake: Option<Wake>) -> Pending {
        loop {
            let news = {
                let mut view = self.timeline.view(self.device);
                let begun = view.device().begin(self.index, ask);
                // Nobody waits for who waits for the device.
                end_wake(&mut view, self.index, wake.take());
                if let Ok(index) = begun {
                    return Pending {
                        index,
                        serial: view.device().serial(self.index, index),
                    };
                }
                view.news()
            };
            self.timeline.sleep(self.device, news, wall() + NAP.0);
        }
    }

    /// Hands in a request without effects that begins when `after` is complete, whatever this process does meanwhile.
    /// `None` if it has to be handed in when its turn has come: see [`arbiter::Arbiter::chain`].
    pub fn chain(&self, ask: Ask, after: Pending) -> Option<Pending> {
        let mut view = self.timeline.view(self.device);
        let index = view.device().chain(self.index, ask, after.index, after.serial)?;
        let serial = view.device().serial(self.index, index);
        Some(Pending { index, serial })
    }

    /// Whether a request was served, whether or not its thread has learnt of it.
    pub fn is_over(&self, pending: Pending) -> bool {
        let mut view = self.timeline.view(self.device);
        view.device().is_over(self.index, pending.index, pending.serial)
    }

    /// Announces that another request of this context follows `pending` directly: the device then does not go idle,
    /// nor to another context, for the time this process needs to hand it in.
    pub fn announce(&self, pending: Pending) {
        self.timeline
            .view(self.device)
            .device()
            .announce(self.index, pending.index, pending.serial);
    }

    /// A thread of this process is to hand in a request, which takes no time on a real device; whoever then runs holds
    /// the wake ([`Wake::Start`]), until the next [`Seat::begin`] or [`Seat::settle`] of its.
    pub fn wake(&self) {
        self.timeline.view(self.device).device().wake(self.index);
    }

    /// A wake that the caller holds ends: what it was for is done.
    pub fn woken(&self, wake: Wake) {
        end_wake(&mut self.timeline.view(self.device), self.index, Some(wake));
    }

    /// Ends the wake that the caller holds. What was announced to follow, if it `is_announced`, does not come now,
    /// because the context waits for something else.
    pub fn settle(&self, wake: Wake, is_announced: bool) {
        let mut view = self.timeline.view(self.device);
        end_wake(&mut view, self.index, Some(wake));
        if is_announced {
            view.device().settle(self.index);
        }
    }

    /// The effects are done: sleeps until the request was served. `need_ns` gives the length if it was not known. The
    /// caller then holds a wake ([`Wake::End`]).
    pub fn finish(&self, pending: Pending, need_ns: Option<u64>) -> Span {
        let mut is_first = true;
        loop {
            let (news, until) = {
                let mut view = self.timeline.view(self.device);
                if std::mem::take(&mut is_first) {
                    view.device().finish(self.index, pending.index, need_ns);
                    if need_ns.is_some() {
                        // Others could not know when this would end.
                        view.wake_waiters();
                    }
                }
                let ahead = self.lead(&mut view, pending);
                view.device().run_ahead(ahead);
                if let Some(span) = view.device().take(self.index, pending.index) {
                    let own = |time| self.timeline.own(self.device, time);
                    return Span {
                        queued: own(span.queued),
                        started: own(span.started),
                        ended: own(span.ended),
                    };
                }
                let bound = view
                    .device()
                    .earliest_completion(self.index, pending.index)
                    .unwrap_or(NAP.1);
                let (now, due) = (wall(), view.device().wall().saturating_add(bound));
                (
                    view.news(),
                    due.saturating_sub(LEAD / 2).clamp(now + NAP.0, now + NAP.1),
                )
            };
            let asleep = wall();
            self.timeline.sleep(self.device, news, until);
            if wall() - asleep >= NAP.1 {
                self.timeline.truth(self.device);
            }
        }
    }

    /// Drops a request that will not be finished.
    pub fn cancel(&self, pending: Pending) {
        let mut view = self.timeline.view(self.device);
        view.device().cancel(self.index, pending.index);
        view.wake_waiters();
    }

    /// The wall time to which the device may run for this request's sake: a little ahead of the clock.
    fn lead(&self, view: &mut View<'_>, pending: Pending) -> u64 {
        let now = wall();
        let Some(bound) = view.device().earliest_completion(self.index, pending.index) else {
            return now;
        };
        let wanted = view.device().wall().max(now) + bound;
        if view.device().is_stalled() || wanted > now + LEAD {
            now
        } else {
            wanted
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut view = self.timeline.view(self.device);
        view.device().leave(self.index);
        view.wake_waiters();
    }
}

fn end_wake(view: &mut View<'_>, seat: usize, wake: Option<Wake>) {
    match wake {
        Some(Wake::End) => view.device().woken(seat),
        Some(Wake::Start) => view.device().started(seat),
        None => {}
    }
}

/// The host's monotonic clock in nanoseconds; all processes of a machine read the same.
pub fn wall() -> u64 {
    // SAFETY: a plain structure to be filled in; the clock always exists.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time);
        time
    };
    machine_time(Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_nanos() as u64)
}

fn id_of(owner: Owner) -> ProcessId {
    ProcessId {
        pid: owner.pid as u32,
        start: owner.start,
        stack: owner.stack,
        namespace: owner.namespace,
        ticket: owner.ticket,
    }
}
