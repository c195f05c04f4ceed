// SPDX-License-Identifier: Apache-2.0
//! The threads that wait in the broker's stead, and their descriptor tables.

use std::os::fd::{OwnedFd, RawFd};
use std::sync::mpsc::{self, Sender};

use nix::sched::{CloneFlags, unshare};

/// A worker's stack: it maps two files.
const STACK_BYTES: usize = 256 * 1024;

/// The descriptor table that porter and workers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    /// Each its own.
    Own,
    /// All the broker's: the system gives no other.
    Shared,
}

/// A worker that does not end before it is released.
pub(super) struct Worker {
    pub(super) number: libc::pid_t,
    pub(super) table: Table,
    pub(super) released: Sender<Vec<OwnedFd>>,
}

impl Worker {
    /// Lets it end, and with it `descriptors`: the worker is the last to close them.
    pub(super) fn release(self, descriptors: Vec<OwnedFd>) {
        match self.table {
            // Its own of them are still open.
            Table::Own => drop(descriptors),
            // A worker that is not there has panicked; then they are closed here.
            Table::Shared => drop(self.released.send(descriptors)),
        }
    }
}

/// Starts a thread and does `work` there. Only `keep` is open in its table, if it has one of its own.
pub(super) fn start_worker(table: Table, keep: Vec<RawFd>, work: impl FnOnce() + Send + 'static) -> Option<Worker> {
    let (released, is_released) = mpsc::channel();
    let (ready, is_ready) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name("porter's".to_owned())
        .stack_size(STACK_BYTES);
    let started = thread.spawn(move || {
        let is_ready = table == Table::Shared || own_table(&keep).is_ok();
        let _ = ready.send(is_ready.then(|| nix::unistd::gettid().as_raw()));
        if is_ready {
            work();
            // With a table of its own an error, since nobody sends: the other end is dropped. Else what is to be
            // closed.
            drop(is_released.recv());
        }
    });
    started.ok()?;
    let number = is_ready.recv().ok().flatten()?;
    Some(Worker {
        number,
        table,
        released,
    })
}

/// As [`own_table`], where the system lets us.
pub(super) fn own_or_shared_table(keep: &[RawFd]) -> Result<Table, nix::Error> {
    match own_table(keep) {
        Ok(()) => Ok(Table::Own),
        // Only `unshare` answers these.
        Err(nix::Error::EPERM | nix::Error::ENOSYS) => Ok(Table::Shared),
        Err(error) => Err(error),
    }
}

/// Gives the calling thread a table of its own and closes there all but `keep`. The caller's caller holds what is
/// closed, so that nothing is closed for good.
pub(super) fn own_table(keep: &[RawFd]) -> Result<(), nix::Error> {
    unshare(CloneFlags::CLONE_FILES)?;
    let entries = std::fs::read_dir("/proc/thread-self/fd").map_err(|_| nix::Error::ENOENT)?;
    let numbers: Vec<RawFd> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for number in numbers.into_iter().filter(|number| !keep.contains(number)) {
        // SAFETY: this table is this thread's alone, and no value in this thread owns any of these numbers. The
        // listing's own number is closed already, which is an error without effect.
        unsafe { libc::close(number) };
    }
    Ok(())
}

/// Is this thread of ours still there, with whatever it has open?
pub(super) fn is_alive(thread: libc::pid_t) -> bool {
    std::path::Path::new(&format!("/proc/self/task/{thread}")).exists()
}
