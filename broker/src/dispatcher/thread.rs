// SPDX-License-Identifier: Apache-2.0
//! The dispatcher's thread: messages in, one run of the dispatcher, reports out, and sleep until something is due.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::JoinHandle;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use partage_protocol::units::SECOND_NS;

use super::gates::Dispatcher;
use super::kernel::Linux;
use super::message::Message;
use super::report::{self, Report, Reporter, Reports};
use crate::clock::now;
use crate::error::Error;
use crate::invariants::Invariants;

/// The thread, as the event loop has it. Its drop ends the thread, which opens every gate before it goes.
#[derive(Debug)]
pub struct DispatcherThread {
    sender: Option<Sender<Message>>,
    bell: Arc<EventFd>,
    reports: Reports,
    thread: Option<JoinHandle<()>>,
}

impl DispatcherThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::System`] when the system has no thread or descriptor to give.
    pub fn start() -> Result<Self, Error> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let bell = EventFd::from_flags(flags).map_err(Error::system("make the dispatcher's bell"))?;
        let bell = Arc::new(bell);
        let (reporter, reports) = report::queue().map_err(Error::system("make the dispatcher's queue"))?;
        let (sender, receiver) = mpsc::channel();
        let thread = {
            let bell = Arc::clone(&bell);
            std::thread::Builder::new()
                .name("dispatcher".to_owned())
                .spawn(move || run(&receiver, &bell, &reporter))
        };
        let no_thread = |error: std::io::Error| {
            let errno = nix::Error::from_raw(error.raw_os_error().unwrap_or(libc::EAGAIN));
            Error::system("start the dispatcher")(errno)
        };
        Ok(Self {
            sender: Some(sender),
            bell,
            reports,
            thread: Some(thread.map_err(no_thread)?),
        })
    }

    /// Tells the dispatcher something.
    pub fn tell(&self, message: Message) {
        if let Some(sender) = &self.sender
            && sender.send(message).is_ok()
        {
            let _ = self.bell.write(1);
        }
    }

    /// Readable when [`DispatcherThread::reports`] has something to give.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.reports.bell()
    }

    /// What the dispatcher reported since.
    #[must_use]
    pub fn reports(&self) -> Vec<Report> {
        self.reports.take()
    }
}

impl Drop for DispatcherThread {
    fn drop(&mut self) {
        self.sender = None;
        let _ = self.bell.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(receiver: &Receiver<Message>, bell: &EventFd, reporter: &Reporter) {
    let kernel = Linux::here();
    kernel.be_punctual();
    let mut dispatcher = Dispatcher::new(kernel);
    let mut invariants = Invariants::default();
    loop {
        loop {
            match receiver.try_recv() {
                Ok(message) => dispatcher.take(now().ns, message),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    dispatcher.open_all();
                    return;
                }
            }
        }
        let time = now().ns;
        let due = dispatcher.run_once(time);
        invariants.check(time, || dispatcher.check());
        reporter.send(dispatcher.take_reports(time));
        let due = due.into_iter().chain(dispatcher.report_due_ns()).min();
        wait(bell, due.map(|at| at.saturating_sub(now().ns)));
        let _ = bell.read();
    }
}

/// Sleeps until the bell rings or the time has passed.
fn wait(bell: &EventFd, time_ns: Option<u64>) {
    let timeout = time_ns.map(|ns| TimeSpec::new((ns / SECOND_NS) as i64, (ns % SECOND_NS) as i64));
    let mut fds = [PollFd::new(bell.as_fd(), PollFlags::POLLIN)];
    // An interrupted wait is a short one.
    let _ = ppoll(&mut fds, timeout, None);
}
