// SPDX-License-Identifier: Apache-2.0
//! The event loop's side: takes requests, gives them to the worker in batches, and has what it made.

use std::os::fd::BorrowedFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::published::{Published, ViewRequest};
use super::queue::Queue;
use super::worker::{Answer, Worker};
use crate::error::Error;
use crate::peer::ConnectionId;

/// So long [`Views::wait`] waits at most.
const WAIT_MS: u8 = 10;

/// The event loop's side.
#[derive(Debug)]
pub struct Views {
    queue: Queue,
    worker: Worker,
}

impl Views {
    /// Starts the worker.
    ///
    /// # Errors
    /// [`Error::System`] when the system has no thread or descriptor to give.
    pub fn start() -> Result<Self, Error> {
        Ok(Self {
            queue: Queue::default(),
            worker: Worker::start()?,
        })
    }

    /// Another view is asked for.
    ///
    /// # Errors
    /// Too much of its user's waits: the request is dropped.
    pub fn add(&mut self, request: ViewRequest) -> Result<(), &'static str> {
        self.queue.add(request)
    }

    /// Nobody waits for this answer any more.
    pub fn forget(&mut self, uid: u32, to: ConnectionId) {
        self.queue.forget(uid, to);
    }

    /// Gives the worker what waits, if it is idle, with a copy made now: it is newer than all of them.
    pub fn serve(&mut self, publish: impl FnOnce() -> Published) {
        if self.worker.is_idle() && !self.queue.is_empty() {
            self.worker.give(publish(), self.queue.take_batch());
        }
    }

    /// Readable when [`Views::answers`] has something to give, or [`Views::serve`] something to do.
    #[must_use]
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.worker.bell()
    }

    /// What was made since.
    pub fn answers(&mut self) -> Vec<Answer> {
        self.worker.take()
    }

    /// Is anything asked for that was not answered?
    #[must_use]
    pub fn are_awaited(&self) -> bool {
        !self.worker.is_idle() || !self.queue.is_empty()
    }

    /// Waits a moment for the bell.
    pub fn wait(&self) {
        let bell = PollFd::new(self.bell(), PollFlags::POLLIN);
        let _ = poll(&mut [bell], PollTimeout::from(WAIT_MS));
    }
}
