// SPDX-License-Identifier: Apache-2.0
//! The machine's process table: one *seat* for each process that uses a device, with the bytes it holds for itself.
//! What several hold is in the table of [`ranges`](crate::ranges) behind it.
//!
//! There is no sum anywhere: what is free is computed from the seats of living processes at each question. So a
//! process may be killed between any two stores without leaving anything wrong. Invariant, under the lock: over all
//! living seats and ranges, the bytes held of a device are at most its capacity.

use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::process::{self, ProcessId};
use crate::ranges::{MAX_SEATS, Ranges};
use crate::shared::{Shared, SharedGuard, SharedLayout};
use crate::tickets;

/// Devices of one machine at most.
pub const MAX_DEVICES: usize = 16;

/// What one process holds. A seat whose `pid` is 0 is free and its other words mean nothing.
#[repr(C)]
#[derive(Debug)]
pub struct Seat {
    pid: AtomicU64,
    start: AtomicU64,
    stack: AtomicU64,
    namespace: AtomicU64,
    ticket: AtomicU64,
    /// Bytes held, per device.
    used: [AtomicU64; MAX_DEVICES],
    /// Live contexts, per device.
    contexts: [AtomicU32; MAX_DEVICES],
    /// The descriptor of the file behind the device memory plus 1, and the file's inode; 0 when there is none.
    backing_fd: [AtomicU32; MAX_DEVICES],
    backing_inode: [AtomicU64; MAX_DEVICES],
    /// Milliseconds of the monotonic clock until which the process is shown although it has left; 0 while it has not.
    shown_until: AtomicU64,
    /// Bytes of the host's that a process that has left keeps, per device that shares the host's memory.
    away: [AtomicU64; MAX_DEVICES],
}

/// The layout of the file `seats`.
#[repr(C)]
#[derive(Debug)]
pub struct Seats {
    /// No seat at or above this index was ever taken.
    high_water: AtomicU64,
    seats: [Seat; MAX_SEATS],
    pub(crate) ranges: Ranges,
}

// SAFETY: atomics and arrays of them, all `repr(C)`; zero is an empty table.
unsafe impl SharedLayout for Seats {
    const MAGIC: u64 = 0x5345_4154_0000_0005;
}

/// A process that uses a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupant {
    /// Its pid in the namespace of who asks; 0 when it cannot be seen from there.
    pub pid: u32,
    /// Bytes of device memory it holds, contexts included.
    pub used: u64,
    /// Its live contexts on the device.
    pub contexts: u32,
}

/// A reservation that did not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Bytes that are free.
    pub free: u64,
}

impl Seats {
    fn taken(&self) -> impl Iterator<Item = (usize, &Seat)> {
        let limit = (self.high_water.load(Ordering::Acquire) as usize).min(MAX_SEATS);
        let seats = self.seats[..limit].iter().enumerate();
        seats.filter(|(_, seat)| seat.pid.load(Ordering::Acquire) != 0)
    }

    /// Whether a process has this seat.
    pub(crate) fn is_taken(&self, seat: usize) -> bool {
        self.seats[seat].pid.load(Ordering::Acquire) != 0
    }

    /// What a seat holds of a device for itself: bytes, and contexts.
    pub(crate) fn held(&self, seat: usize, device: usize) -> (u64, u32) {
        let seat = &self.seats[seat];
        let (used, contexts) = (&seat.used[device], &seat.contexts[device]);
        (used.load(Ordering::Relaxed), contexts.load(Ordering::Relaxed))
    }

    /// Bytes of a device in ranges, by payer.
    pub fn paid(&self, device: usize) -> impl Iterator<Item = (usize, u64)> {
        self.ranges.paid(device, |seat| self.is_taken(seat))
    }

    /// Bytes of a device held by all seats. Call [`sweep`] first when the answer must be exact.
    pub fn used(&self, device: usize) -> u64 {
        // Who has left and is still shown holds nothing.
        let staying = self.taken().filter(|(_, seat)| !seat.has_left());
        let alone = staying.map(|(_, seat)| seat.used[device].load(Ordering::Relaxed));
        alone.chain(self.paid(device).map(|(_, bytes)| bytes)).sum()
    }

    /// Bytes of a device that checkpointed processes keep, where it shares the host's memory.
    fn away(&self, device: usize) -> u64 {
        let left = self.taken().filter(|(_, seat)| seat.has_left());
        left.map(|(_, seat)| seat.away[device].load(Ordering::Relaxed)).sum()
    }

    /// Bytes of all devices together.
    pub fn used_in_all(&self) -> u64 {
        (0..MAX_DEVICES).map(|device| self.used(device)).sum()
    }

    /// Takes `bytes` of a device off a seat.
    pub(crate) fn release(&self, seat: usize, device: usize, bytes: u64) {
        let used = &self.seats[seat].used[device];
        used.store(used.load(Ordering::Relaxed).saturating_sub(bytes), Ordering::Relaxed);
    }

    /// Empties a seat.
    fn clear(&self, place: usize) {
        // The pid first: from here on the seat is free, whatever happens to us. Whoever takes it clears it again.
        self.seats[place].pid.store(0, Ordering::Release);
        self.clear_held(place);
    }

    /// The seat's process holds nothing.
    fn clear_held(&self, place: usize) {
        let seat = &self.seats[place];
        for device in 0..MAX_DEVICES {
            seat.used[device].store(0, Ordering::Relaxed);
            seat.contexts[device].store(0, Ordering::Relaxed);
            seat.backing_fd[device].store(0, Ordering::Relaxed);
            seat.backing_inode[device].store(0, Ordering::Relaxed);
            seat.away[device].store(0, Ordering::Relaxed);
        }
        seat.shown_until.store(0, Ordering::Relaxed);
        self.ranges.let_go_of_all(place, |seat| self.is_taken(seat));
    }
}

impl Seat {
    /// Whether its process has left and is only shown.
    fn has_left(&self) -> bool {
        self.shown_until.load(Ordering::Relaxed) != 0
    }

    fn occupant(&self) -> ProcessId {
        ProcessId {
            pid: self.pid.load(Ordering::Relaxed) as u32,
            start: self.start.load(Ordering::Relaxed),
            stack: self.stack.load(Ordering::Relaxed),
            namespace: self.namespace.load(Ordering::Relaxed),
            ticket: self.ticket.load(Ordering::Relaxed),
        }
    }
}

/// What becomes of what dead processes held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dead {
    /// It is free again.
    Leave,
    /// It stays held, as by a process that the kernel cannot end (fault 8).
    Linger,
}

/// Frees the seats of processes that are gone, unless the dead linger.
pub fn sweep(seats: &SharedGuard<'_, Seats>, dead: Dead) {
    if dead == Dead::Linger {
        return;
    }
    let (folder, here) = (seats.folder(), ProcessId::current());
    for (place, seat) in seats.taken() {
        let occupant = seat.occupant();
        let is_dead = occupant.number(folder, &here).is_none();
        if is_dead {
            tickets::tidy(folder, occupant.ticket);
        }
        if is_dead || seat.has_left() && seat.shown_until.load(Ordering::Relaxed) <= now_ms() {
            seats.clear(place);
        }
    }
}

/// Bytes of a device that are free, after a sweep if fewer than `wanted` seem to be.
pub(crate) fn free(seats: &SharedGuard<'_, Seats>, device: usize, wanted: u64, capacity: u64, dead: Dead) -> u64 {
    let taken = || seats.used(device).saturating_add(seats.away(device));
    let mut free = capacity.saturating_sub(taken());
    if wanted > free {
        sweep(seats, dead);
        free = capacity.saturating_sub(taken());
    }
    free
}

/// Bytes of all devices that the file system already gave to the living processes' backing files, of those that this
/// process can see.
pub fn resident(shared: &Shared<Seats>) -> u64 {
    let here = ProcessId::current();
    let of = |seat: &Seat, device: usize, pid: u32| {
        let fd = seat.backing_fd[device].load(Ordering::Acquire);
        if fd == 0 || pid == 0 {
            return 0;
        }
        // The program may have closed the descriptor and reused its number: then the inode differs.
        let inode = seat.backing_inode[device].load(Ordering::Relaxed);
        match std::fs::metadata(process::folder(pid).join("fd").join((fd - 1).to_string())) {
            Ok(file) if std::os::unix::fs::MetadataExt::ino(&file) == inode => {
                std::os::unix::fs::MetadataExt::blocks(&file) * 512
            }
            _ => 0,
        }
    };
    let of_all = shared.taken().map(|(_, seat)| {
        let pid = seat.occupant().number(shared.folder(), &here).unwrap_or(0);
        (0..MAX_DEVICES).map(|device| of(seat, device, pid)).sum::<u64>()
    });
    of_all.sum()
}

/// Bytes of a device that living processes hold, exactly.
pub fn used(shared: &Shared<Seats>, device: usize, dead: Dead) -> u64 {
    let seats = shared.lock();
    sweep(&seats, dead);
    seats.used(device)
}

/// Bytes of a device of `capacity` bytes that nobody has, exactly.
pub fn left(shared: &Shared<Seats>, device: usize, capacity: u64, dead: Dead) -> u64 {
    free(&shared.lock(), device, u64::MAX, capacity, dead)
}

/// The living processes that use a device, by their numbers in the PID namespace of this process.
pub fn occupants(shared: &Shared<Seats>, device: usize, dead: Dead) -> Vec<Occupant> {
    let seats = shared.lock();
    sweep(&seats, dead);
    let (folder, here) = (seats.folder(), ProcessId::current());
    let mut all: Vec<(ProcessId, Occupant)> = Vec::new();
    let mut paid = vec![0; MAX_SEATS];
    seats.paid(device).for_each(|(seat, bytes)| paid[seat] += bytes);
    for (place, seat) in seats.taken() {
        let used = seat.used[device].load(Ordering::Relaxed) + paid[place];
        let contexts = seat.contexts[device].load(Ordering::Relaxed);
        if used == 0 && contexts == 0 {
            continue;
        }
        let id = seat.occupant();
        // A process in which two copies of the driver are loaded has two seats.
        match all.iter_mut().find(|(other, _)| other.is_same_process(&id)) {
            Some((_, occupant)) => {
                occupant.used += used;
                occupant.contexts += contexts;
            }
            None => all.push((
                id,
                Occupant {
                    pid: shown_number(&id, folder, &here),
                    used,
                    contexts,
                },
            )),
        }
    }
    all.into_iter().map(|(_, occupant)| occupant).collect()
}

/// The number by which a seat's process is shown, dead ones that linger included.
fn shown_number(id: &ProcessId, folder: &Path, here: &ProcessId) -> u32 {
    let is_near = id.namespace == here.namespace;
    id.number(folder, here).unwrap_or(if is_near { id.pid } else { 0 })
}

/// Takes a free seat for the calling process, `id`. `None` when all are taken by living processes.
pub fn take(shared: &Shared<Seats>, id: ProcessId, dead: Dead) -> Option<usize> {
    let seats = shared.lock();
    // An earlier program in this same process, before `exec`, holds nothing any more, nor does this one before it left.
    for (place, seat) in seats.taken() {
        let occupant = seat.occupant();
        if occupant.is_same_process(&id) && (!occupant.is_same_run(&id) || seat.has_left()) {
            seats.clear(place);
        }
    }
    let free = |seats: &Seats| {
        seats
            .seats
            .iter()
            .position(|seat| seat.pid.load(Ordering::Acquire) == 0)
    };
    let index = free(&seats).or_else(|| {
        sweep(&seats, dead);
        free(&seats)
    })?;
    seats.clear(index);
    let seat = &seats.seats[index];
    seat.start.store(id.start, Ordering::Relaxed);
    seat.stack.store(id.stack, Ordering::Relaxed);
    seat.namespace.store(id.namespace, Ordering::Relaxed);
    seat.ticket.store(id.ticket, Ordering::Relaxed);
    seat.pid.store(u64::from(id.pid), Ordering::Release);
    seats.high_water.fetch_max(index as u64 + 1, Ordering::Release);
    Some(index)
}

/// Gives a seat back, with all it holds.
pub fn leave(shared: &Shared<Seats>, seat: usize) {
    shared.lock().clear(seat);
}

/// Gives up all that a seat holds of devices, and keeps `away` of each in the host's memory until its process ends or
/// comes back.
pub fn leave_for_host(shared: &Shared<Seats>, place: usize, away: &[u64]) {
    let seats = shared.lock();
    seats.clear_held(place);
    let seat = &seats.seats[place];
    for (device, bytes) in away.iter().enumerate() {
        seat.away[device].store(*bytes, Ordering::Relaxed);
    }
    seat.shown_until.store(u64::MAX, Ordering::Relaxed);
}

/// Gives up all that a seat holds; who asks for processes is shown it as it was for `milliseconds` more.
pub fn leave_late(shared: &Shared<Seats>, place: usize, milliseconds: u64) {
    let seats = shared.lock();
    let seat = &seats.seats[place];
    seat.shown_until.store(now_ms() + milliseconds, Ordering::Relaxed);
    seat.backing_fd.iter().for_each(|fd| fd.store(0, Ordering::Relaxed));
    seats.ranges.let_go_of_all(place, |seat| seats.is_taken(seat));
}

fn now_ms() -> u64 {
    crate::timeline::wall() / 1_000_000
}

/// Adds `bytes` of a device of `capacity` bytes to a seat, if they are free in the whole machine.
pub fn reserve(
    shared: &Shared<Seats>,
    seat: usize,
    device: usize,
    bytes: u64,
    capacity: u64,
    dead: Dead,
) -> Result<(), Full> {
    let seats = shared.lock();
    let free = free(&seats, device, bytes, capacity, dead);
    if bytes > free {
        return Err(Full { free });
    }
    seats.seats[seat].used[device].fetch_add(bytes, Ordering::Relaxed);
    Ok(())
}

/// Gives back `bytes` that the seat reserved.
pub fn release(shared: &Shared<Seats>, seat: usize, device: usize, bytes: u64) {
    shared.lock().release(seat, device, bytes);
}

/// Counts a context in (`true`) or out.
pub fn count_context(shared: &Shared<Seats>, seat: usize, device: usize, is_new: bool) {
    let contexts = &shared.seats[seat].contexts[device];
    if is_new {
        contexts.fetch_add(1, Ordering::Relaxed);
    } else {
        contexts.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Notes which file is behind a device's memory in the seat's process.
pub fn note_backing(shared: &Shared<Seats>, seat: usize, device: usize, fd: u32, inode: u64) {
    shared.seats[seat].backing_inode[device].store(inode, Ordering::Relaxed);
    shared.seats[seat].backing_fd[device].store(fd + 1, Ordering::Release);
}

/// Sets the process of a seat, as if it were another one.
#[cfg(test)]
pub(crate) fn pretend(seats: &Seats, seat: usize, pid: u64) {
    seats.seats[seat].pid.store(pid, Ordering::Release);
}
