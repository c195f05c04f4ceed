// SPDX-License-Identifier: Apache-2.0
//! The thread that writes and reads the files, and the event loop's end of it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use partage_protocol::admin::Reply;
use partage_protocol::frame;
use tracing::{debug, info, warn};

use super::files::Files;
use super::page::{Ask, page};
use crate::error::Error;
use crate::peer::{ConnectionId, Packet};
use crate::watch::events::{EventLog, Recorded};
use crate::watch::program::Program;
use crate::watch::services::{Service, Services};

/// Events and questions that wait for the thread.
const WAITING: usize = 4096;
/// Pages that are made and not taken yet: one is asked for at a time.
const UNTAKEN: usize = 1;
/// Bytes that one user's waiting questions may have written together.
const WRITTEN_PER_USER: usize = 1024 * 1024;
/// So long the end of the broker waits for what was said last.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// What the thread is to do.
enum Message {
    Record(Box<Recorded>),
    Ask(Box<Ask>),
    /// All before it is written.
    Written(SyncSender<()>),
}

/// The event loop's end. The thread ends when this is dropped.
#[derive(Debug)]
pub struct History {
    messages: SyncSender<Message>,
    pages: Receiver<(ConnectionId, Vec<Packet>)>,
    bell: Arc<EventFd>,
    /// Questions that wait, by user. The thread has one at a time, each user's in turn: events are written between
    /// them, and who asks a lot waits for itself.
    waiting: BTreeMap<u32, VecDeque<Ask>>,
    /// Whose question was the last.
    last: u32,
    is_asked: bool,
    /// Asked for, and not to be answered: too much waits.
    refused: Vec<ConnectionId>,
    /// Which is told of events.
    program: Option<Program>,
    services: Arc<Services>,
}

/// What the thread has.
struct Writer {
    /// None where the folder cannot be had.
    files: Option<Files>,
    /// What the files did not take.
    unwritten: EventLog,
    services: Arc<Services>,
}

impl History {
    /// Starts the thread. `files`: as [`Files::open`] found them; without any, events are kept in memory alone, and the
    /// reason is told.
    ///
    /// # Errors
    /// [`Error::System`] when the system has no thread or descriptor to give.
    pub fn start(
        (folder, files): (&Path, io::Result<Files>),
        program: Option<Program>,
        services: Arc<Services>,
    ) -> Result<Self, Error> {
        if let Err(why) = &files {
            let text = format!("events are not kept on disk: {}: {why}", folder.display());
            warn!(text, "no history");
            services.set(Service::Events, Some(text));
        }
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let bell = EventFd::from_flags(flags).map_err(Error::system("make the bell of events"))?;
        let bell = Arc::new(bell);
        let (messages, receiver) = mpsc::sync_channel(WAITING);
        let (sender, pages) = mpsc::sync_channel(UNTAKEN);
        let mut writer = Writer {
            files: files.ok(),
            unwritten: EventLog::default(),
            services: Arc::clone(&services),
        };
        let rung = Arc::clone(&bell);
        let thread = std::thread::Builder::new().name("history".to_owned());
        let started = thread.spawn(move || {
            writer.serve(&receiver, |to, packets| {
                let is_taken = sender.send((to, packets)).is_ok();
                let _ = rung.write(1);
                is_taken
            });
        });
        started.map_err(|source| Error::System {
            what: "start the writer of events",
            source,
        })?;
        Ok(Self {
            messages,
            pages,
            bell,
            waiting: BTreeMap::new(),
            last: 0,
            is_asked: false,
            refused: Vec::new(),
            program,
            services,
        })
    }

    /// Has an event written, and the administrator's program told of it.
    pub fn record(&self, event: &Recorded) {
        if let Some(program) = &self.program {
            program.tell(event.view());
        }
        if self
            .messages
            .try_send(Message::Record(Box::new(event.clone())))
            .is_err()
        {
            self.services.count_unwritten();
        }
    }

    /// Has a page made for a connection of this user. Where too much of the user's waits, an empty answer comes: the
    /// connection is closed.
    pub fn ask(&mut self, uid: u32, ask: Ask) {
        let waiting = self.waiting.entry(uid).or_default();
        let written: usize = waiting.iter().map(Ask::written_bytes).sum();
        if written > 0 && written + ask.written_bytes() > WRITTEN_PER_USER {
            debug!(uid, "too much of this user's waits for an answer");
            self.refused.push(ask.to);
            let _ = self.bell.write(1);
            return;
        }
        waiting.push_back(ask);
        self.hand_on();
    }

    /// Nobody waits for this answer any more.
    pub fn forget(&mut self, uid: u32, to: ConnectionId) {
        if let Some(waiting) = self.waiting.get_mut(&uid) {
            waiting.retain(|ask| ask.to != to);
            if waiting.is_empty() {
                self.waiting.remove(&uid);
            }
        }
    }

    /// Gives the thread the next question, if it has none.
    fn hand_on(&mut self) {
        let next = self.last.saturating_add(1);
        let users = self.waiting.range(next..).chain(self.waiting.range(..next));
        let Some(uid) = users.map(|(uid, _)| *uid).next().filter(|_| !self.is_asked) else {
            return;
        };
        let Some(ask) = self.waiting.get_mut(&uid).and_then(VecDeque::pop_front) else {
            return;
        };
        match self.messages.try_send(Message::Ask(Box::new(ask))) {
            Ok(()) => {
                (self.is_asked, self.last) = (true, uid);
                if self.waiting.get(&uid).is_some_and(VecDeque::is_empty) {
                    self.waiting.remove(&uid);
                }
            }
            // The thread hangs at a disk: the question waits, and its asker as long as it likes.
            Err(TrySendError::Full(Message::Ask(ask)) | TrySendError::Disconnected(Message::Ask(ask))) => {
                self.waiting.entry(uid).or_default().push_front(*ask);
            }
            Err(_) => {}
        }
    }

    /// Readable when [`History::pages`] has something to give.
    #[must_use]
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// What was made since, and where it goes.
    pub fn pages(&mut self) -> Vec<(ConnectionId, Vec<Packet>)> {
        // What comes after this rings again.
        let _ = self.bell.read();
        let mut pages: Vec<_> = self.pages.try_iter().collect();
        if !pages.is_empty() {
            self.is_asked = false;
        }
        self.hand_on();
        pages.extend(self.refused.drain(..).map(|to| (to, Vec::new())));
        pages
    }

    /// Waits a moment for what was said last to be written.
    pub fn finish(self) {
        let (sender, written) = mpsc::sync_channel(1);
        if self.messages.try_send(Message::Written(sender)).is_ok() {
            // Nobody takes pages any more: the thread must not wait for that.
            drop(self.pages);
            let _ = written.recv_timeout(LAST_WORDS);
        }
    }
}

impl Writer {
    fn serve(&mut self, messages: &Receiver<Message>, mut tell: impl FnMut(ConnectionId, Vec<Packet>) -> bool) {
        while let Ok(message) = messages.recv() {
            match message {
                Message::Record(event) => self.record(*event),
                Message::Ask(ask) => {
                    let to = ask.to;
                    let packets = self.answer(&ask);
                    let _ = tell(to, packets);
                }
                Message::Written(sender) => {
                    let _ = sender.send(());
                }
            }
        }
    }

    fn record(&mut self, event: Recorded) {
        let Some(files) = &mut self.files else {
            self.services.count_unwritten();
            return self.unwritten.push(event);
        };
        match files.add(event.uid(), event.view()) {
            Ok(()) => {
                if self.services.set(Service::Events, None) {
                    info!("events are kept on disk again");
                }
            }
            Err(why) => {
                let text = format!("events are not kept on disk: {why}");
                if self.services.set(Service::Events, Some(text)) {
                    warn!(%why, "events are not kept on disk");
                }
                self.services.count_unwritten();
                self.unwritten.push(event);
            }
        }
    }

    fn answer(&self, ask: &Ask) -> Vec<Packet> {
        let reply = match &self.files {
            Some(files) => page(files, &self.unwritten, ask),
            None => page(&Files::none(), &self.unwritten, ask),
        };
        packets(&reply)
    }
}

fn packets(reply: &Reply) -> Vec<Packet> {
    let document = serde_json::to_vec(reply).unwrap_or_default();
    frame::packets(&document).map(Packet::from).collect()
}
