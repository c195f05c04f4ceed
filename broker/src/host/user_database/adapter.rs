// SPDX-License-Identifier: Apache-2.0
//! Which question the helper is asked next, and what a missed deadline or a dead helper means.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use partage_protocol::units::SECOND_NS;

use super::messages::{Answer, Ask};
use crate::error::Error;
use crate::helper::process::{BackOff, Helper, HelperCommand, Killed};

/// A database over the network answers within milliseconds; one whose server is tried again within a second or two.
pub(super) const ANSWER_NS: u64 = 5 * SECOND_NS;
/// First and longest pause before a question that was not answered is asked again.
pub(super) const PAUSE_NS: (u64, u64) = (SECOND_NS, 60 * SECOND_NS);
/// A helper without a question ends after this long. A new one reads again which databases there are.
pub(super) const USER_REST_NS: u64 = 10 * SECOND_NS;
/// Questions that wait at most: what is not asked now is asked when its user is met again.
pub(super) const MOST_WAITING: usize = 1_024;

/// The command of this program's own helper.
#[must_use]
pub fn helper_command() -> HelperCommand {
    HelperCommand::own("--user-helper", None)
}

/// What came of the questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserEvent {
    /// A question was answered.
    Answered(Ask, Answer),
    /// A question was not answered, and is asked again later: why.
    Silent(String),
}

/// The helper, with what it is asked and will be.
#[derive(Debug)]
pub struct UserHelper {
    command: HelperCommand,
    epoll: Epoll,
    helper: Option<Helper<Ask>>,
    /// The first one is under way while a helper has a request.
    waiting: VecDeque<Ask>,
    start: BackOff,
    /// Without a question since.
    resting_ns: u64,
    killed: Killed,
}

impl UserHelper {
    /// No helper yet; it is started by `command`.
    ///
    /// # Errors
    /// The system's, without an epoll set.
    pub fn new(command: HelperCommand) -> Result<Self, Error> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(Error::system("make an epoll set"))?;
        Ok(Self {
            command,
            epoll,
            helper: None,
            waiting: VecDeque::new(),
            start: BackOff::new(0, PAUSE_NS),
            resting_ns: 0,
            killed: Killed::default(),
        })
    }

    /// Readable when [`events`](Self::events) has something to do.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// A question, unless it waits already.
    pub fn ask(&mut self, ask: Ask) {
        if self.waiting.len() < MOST_WAITING && !self.waiting.contains(&ask) {
            self.waiting.push_back(ask);
        }
    }

    /// What was answered or not, and begins what can begin.
    pub fn events(&mut self, now_ns: u64) -> Vec<UserEvent> {
        self.killed.reap();
        let mut out = Vec::new();
        while self.drive(now_ns, &mut out) {}
        out
    }

    /// When [`events`](Self::events) has something to do without an answer.
    #[must_use]
    pub fn deadline_ns(&self) -> Option<u64> {
        match self.helper.as_ref().map(|helper| helper.channel.request()) {
            Some(Some(request)) => Some(request.deadline_ns),
            // At once.
            Some(None) if !self.waiting.is_empty() => Some(0),
            Some(None) => Some(self.resting_ns + USER_REST_NS),
            None if self.waiting.is_empty() => None,
            None => Some(self.start.at_ns()),
        }
    }

    /// One step; `false` when there is nothing to do now.
    fn drive(&mut self, now_ns: u64, out: &mut Vec<UserEvent>) -> bool {
        let Some(helper) = &mut self.helper else {
            return self.begin(now_ns, out);
        };
        if helper.channel.request().is_none() {
            // It died, or says what nobody asked. Its socket would be readable until its rest is over.
            if !matches!(helper.channel.answer::<Answer>(), Ok(None)) {
                self.end();
                return true;
            }
            return match self.waiting.front() {
                Some(ask) => {
                    helper.channel.ask(ask.clone(), now_ns, ANSWER_NS);
                    true
                }
                None if now_ns >= self.resting_ns + USER_REST_NS => {
                    self.end();
                    false
                }
                None => false,
            };
        }
        match helper.channel.answer::<Answer>() {
            Ok(Some(Answer::Failed(why))) => self.fail(now_ns, why, out),
            Ok(Some(answer)) => {
                helper.channel.finish();
                self.resting_ns = now_ns;
                self.start.succeed();
                out.extend(self.waiting.pop_front().map(|ask| UserEvent::Answered(ask, answer)));
            }
            Ok(None) if helper.channel.is_late(now_ns) => {
                let why = format!("no answer within {} s", ANSWER_NS / SECOND_NS);
                self.fail(now_ns, why, out);
            }
            Ok(None) => return false,
            Err(why) => self.fail(now_ns, why.to_string(), out),
        }
        true
    }

    fn begin(&mut self, now_ns: u64, out: &mut Vec<UserEvent>) -> bool {
        if self.waiting.is_empty() || !self.start.is_over(now_ns) {
            return false;
        }
        match Helper::start(&self.command) {
            Ok(helper) => {
                // Without it an answer waits until the deadline, at most.
                let _ = self.epoll.add(&helper.channel, EpollEvent::new(EpollFlags::EPOLLIN, 0));
                self.helper = Some(helper);
            }
            Err(error) => self.fail(now_ns, error.to_string(), out),
        }
        true
    }

    /// Ends the helper. The question goes behind the others: one that hangs holds up no other one for long.
    fn fail(&mut self, now_ns: u64, why: String, out: &mut Vec<UserEvent>) {
        self.end();
        self.start.fail(now_ns);
        if let Some(ask) = self.waiting.pop_front() {
            self.waiting.push_back(ask);
        }
        out.push(UserEvent::Silent(why));
    }

    fn end(&mut self) {
        if let Some(helper) = self.helper.take() {
            let _ = self.epoll.delete(&helper.channel);
            self.killed.kill(helper);
        }
    }
}

impl Drop for UserHelper {
    fn drop(&mut self) {
        self.end();
        self.killed.reap();
    }
}
