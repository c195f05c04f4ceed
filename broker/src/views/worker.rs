// SPDX-License-Identifier: Apache-2.0
//! The thread that makes views: one batch at a time, each document as soon as it is made.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SendError, Sender, SyncSender};

use nix::sys::eventfd::{EfdFlags, EventFd};
use partage_protocol::frame;

use super::answers::Found;
use super::published::{Published, ViewRequest};
use crate::error::Error;
use crate::host::proc::{Proc, Processes};
use crate::peer::{ConnectionId, Packet};

/// Documents that are made and not taken yet: a bound on memory. The worker waits for the loop, never the loop for it.
const UNTAKEN: usize = 4;

/// Requests, and what they are answered from.
struct Batch {
    published: Published,
    requests: Vec<ViewRequest>,
}

/// What the worker says.
#[derive(Debug)]
pub enum Answer {
    /// Which of the live jobs are stopped: it comes before the views that show it.
    Stopped(Found),
    /// A view.
    View {
        /// Where it goes.
        to: ConnectionId,
        /// Its document in packets; none where it cannot be written as one.
        packets: Vec<Packet>,
    },
}

/// The worker's end. `None`: its batch is answered.
struct Outlet {
    answers: SyncSender<Option<Answer>>,
    bell: Arc<EventFd>,
}

/// The thread, as the event loop has it. It ends when this is dropped, and nobody waits for that.
#[derive(Debug)]
pub(super) struct Worker {
    batches: Sender<Batch>,
    answers: Receiver<Option<Answer>>,
    bell: Arc<EventFd>,
    has_batch: bool,
}

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::System`] when the system has no thread or descriptor to give.
    pub(super) fn start() -> Result<Self, Error> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let bell = EventFd::from_flags(flags).map_err(Error::system("make the bell of views"))?;
        let bell = Arc::new(bell);
        let (sender, batches) = mpsc::channel();
        let (answers, receiver) = mpsc::sync_channel(UNTAKEN);
        let outlet = Outlet {
            answers,
            bell: Arc::clone(&bell),
        };
        let thread = std::thread::Builder::new().name("views".to_owned());
        let started = thread.spawn(move || run(&batches, &outlet));
        started.map_err(|source| Error::System {
            what: "start the worker of views",
            source,
        })?;
        Ok(Self {
            batches: sender,
            answers: receiver,
            bell,
            has_batch: false,
        })
    }

    /// Has it no batch? Then it may be given one.
    pub(super) fn is_idle(&self) -> bool {
        !self.has_batch
    }

    /// Has these requests answered. Precondition: it is idle.
    pub(super) fn give(&mut self, published: Published, requests: Vec<ViewRequest>) {
        self.has_batch = self.batches.send(Batch { published, requests }).is_ok();
    }

    /// Readable when [`Worker::take`] has something to give, or is idle again.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// What it said since.
    pub(super) fn take(&mut self) -> Vec<Answer> {
        // What comes after this rings again.
        let _ = self.bell.read();
        let mut answers = Vec::new();
        for said in self.answers.try_iter() {
            self.has_batch = said.is_some();
            answers.extend(said);
        }
        answers
    }
}

impl Outlet {
    /// Fails where nobody listens any more.
    fn say(&self, said: Option<Answer>) -> Result<(), SendError<Option<Answer>>> {
        self.answers.send(said)?;
        let _ = self.bell.write(1);
        Ok(())
    }
}

fn run(batches: &Receiver<Batch>, outlet: &Outlet) {
    while let Ok(batch) = batches.recv() {
        if serve(batch, &Proc, outlet).is_err() {
            return;
        }
    }
}

/// Answers a batch.
fn serve(batch: Batch, processes: &dyn Processes, outlet: &Outlet) -> Result<(), SendError<Option<Answer>>> {
    let Batch {
        mut published,
        requests,
    } = batch;
    if requests.iter().any(|request| request.what.tells_stopped()) {
        let (shown, found) = published.find_stopped(processes);
        published = shown;
        outlet.say(Some(Answer::Stopped(found)))?;
    }
    let mut lists: Vec<(ViewRequest, Vec<Packet>)> = Vec::new();
    for request in requests {
        let (to, list) = (
            request.to,
            lists.iter().find(|(other, _)| request.shares_its_answer(other)),
        );
        let packets = match list {
            Some((_, packets)) => packets.clone(),
            None => {
                let document = serde_json::to_vec(&published.answer(&request, processes));
                let packets = document.map(|document| frame::packets(&document).map(Packet::from).collect());
                let packets: Vec<Packet> = packets.unwrap_or_default();
                if request.shares_its_answer(&request) {
                    lists.push((request, packets.clone()));
                }
                packets
            }
        };
        outlet.say(Some(Answer::View { to, packets }))?;
    }
    // Before the last word: the loop may then make another copy.
    drop(published);
    outlet.say(None)
}
