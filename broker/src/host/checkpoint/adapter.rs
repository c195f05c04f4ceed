// SPDX-License-Identifier: Apache-2.0
//! Which helper makes which call, and what a missed deadline or a dead helper means.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use partage_protocol::units::{JobId, SECOND_NS};

use super::messages::{Answer, Ask};
use crate::error::Error;
use crate::helper::process::{Helper, HelperCommand, Killed, User};

/// A driver that starts a cold eight-device node without persistence mode needs some 2 s a device.
pub(super) const INIT_DEADLINE_NS: u64 = 30 * SECOND_NS;
/// A helper without a call ends after this long: the next job to be moved comes soon or much later, and `cuInit` takes
/// from 0.15 to 2.7 s.
pub(super) const REST_NS: u64 = 10 * SECOND_NS;

/// The command of this program's own helper. `driver_file` may say where the driver is.
#[must_use]
pub fn helper_command(driver_file: Option<&Path>) -> HelperCommand {
    HelperCommand::own("--checkpoint-helper", driver_file)
}

/// Which question an outcome is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number(pub u64);

/// What became of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The answer.
    Answered(Answer),
    /// None within the deadline. The helper was killed; whether the call is done only the target's state says.
    Late,
    /// The helper did not start, or died: why. The call may have been made.
    Failed(String),
}

/// A question that waits for its turn, or is under way.
#[derive(Clone, Debug)]
struct Question {
    number: Number,
    ask: Ask,
    patience_ns: u64,
}

/// A helper of one user, with what it is asked and will be.
#[derive(Debug, Default)]
struct Desk {
    /// The job that it was asked about last.
    job: Option<JobId>,
    helper: Option<Helper<Ask>>,
    waiting: VecDeque<Question>,
    under_way: Option<Question>,
    /// Without anything to do since.
    resting_ns: u64,
}

/// All helpers.
#[derive(Debug)]
pub struct CheckpointHelpers {
    command: HelperCommand,
    epoll: Epoll,
    /// Of each user as many as jobs of it are asked about at a time.
    desks: BTreeMap<(User, usize), Desk>,
    killed: Killed,
    next: u64,
}

impl CheckpointHelpers {
    /// No helper yet; each is started by `command`.
    ///
    /// # Errors
    /// The system's, without an epoll set.
    pub fn new(command: HelperCommand) -> Result<Self, Error> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(Error::system("make an epoll set"))?;
        Ok(Self {
            command,
            epoll,
            desks: BTreeMap::new(),
            killed: Killed::default(),
            next: 0,
        })
    }

    /// Readable when [`outcomes`](Self::outcomes) has something to do.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// A question that a helper of `user` answers after those about the same job that wait already. Other jobs do not
    /// wait for it: a call may hang. `patience_ns` begins with its turn.
    pub fn ask(&mut self, user: User, job: JobId, ask: Ask, patience_ns: u64) -> Number {
        let number = Number(self.next);
        self.next += 1;
        let place = self.place(&user, job);
        let desk = self.desks.entry((user, place)).or_default();
        desk.job = Some(job);
        desk.waiting.push_back(Question {
            number,
            ask,
            patience_ns,
        });
        number
    }

    /// The desk that asks about this job, else one with nothing to do, else a new one.
    fn place(&self, user: &User, job: JobId) -> usize {
        let desk = |place: &usize| self.desks.get(&(user.clone(), *place));
        let is_for = |place: &usize| desk(place).is_some_and(|desk| !desk.is_idle() && desk.job == Some(job));
        let is_free = |place: &usize| desk(place).is_none_or(Desk::is_idle);
        let places = 0..=self.desks.len();
        let found = places.clone().find(is_for).or_else(|| { places }.find(is_free));
        found.unwrap_or(0)
    }

    /// Is a process one of these helpers? It has the driver open, and is nobody's job.
    #[must_use]
    pub fn is_own(&self, pid: u32) -> bool {
        let mut helpers = self.desks.values().filter_map(|desk| desk.helper.as_ref());
        helpers.any(|helper| helper.pid() == pid) || self.killed.has(pid)
    }

    /// What has come to an end, and begins what can begin.
    pub fn outcomes(&mut self, now_ns: u64) -> Vec<(Number, Outcome)> {
        self.killed.reap();
        let mut out = Vec::new();
        let mut desks = std::mem::take(&mut self.desks);
        for ((user, _), desk) in &mut desks {
            while self.drive(user, desk, now_ns, &mut out) {}
        }
        desks.retain(|_, desk| desk.helper.is_some() || !desk.waiting.is_empty());
        self.desks = desks;
        out
    }

    /// When [`outcomes`](Self::outcomes) has something to do without an answer.
    #[must_use]
    pub fn deadline_ns(&self) -> Option<u64> {
        self.desks.values().filter_map(Desk::deadline_ns).min()
    }

    /// One step of one desk; `false` when there is nothing to do now.
    fn drive(&mut self, user: &User, desk: &mut Desk, now_ns: u64, out: &mut Vec<(Number, Outcome)>) -> bool {
        let Some(helper) = &mut desk.helper else {
            return self.start(user, desk, now_ns, out);
        };
        if helper.channel.request().is_none() {
            // It died, or says what nobody asked. Its socket would be readable until its rest is over.
            if !matches!(helper.channel.answer::<Answer>(), Ok(None)) {
                self.end(desk);
                return true;
            }
            return match desk.waiting.pop_front() {
                Some(question) => {
                    helper.channel.ask(question.ask.clone(), now_ns, question.patience_ns);
                    desk.under_way = Some(question);
                    true
                }
                None if now_ns >= desk.resting_ns + REST_NS => {
                    self.end(desk);
                    false
                }
                None => false,
            };
        }
        match helper.channel.answer::<Answer>() {
            Ok(Some(answer)) => {
                helper.channel.finish();
                desk.resting_ns = now_ns;
                self.take(desk, answer, out);
            }
            Ok(None) if helper.channel.is_late(now_ns) => self.fail(desk, Outcome::Late, out),
            Ok(None) => return false,
            Err(why) => self.fail(desk, Outcome::Failed(why.to_string()), out),
        }
        true
    }

    fn start(&mut self, user: &User, desk: &mut Desk, now_ns: u64, out: &mut Vec<(Number, Outcome)>) -> bool {
        if desk.waiting.is_empty() {
            return false;
        }
        match Helper::start(&self.command.clone().of_user(user)) {
            Ok(mut helper) => {
                let event = EpollEvent::new(EpollFlags::EPOLLIN, 0);
                // Without it an answer waits until the deadline, at most.
                let _ = self.epoll.add(&helper.channel, event);
                helper.channel.ask(Ask::Open, now_ns, INIT_DEADLINE_NS);
                desk.helper = Some(helper);
            }
            Err(error) => self.fail(desk, Outcome::Failed(error.to_string()), out),
        }
        true
    }

    fn take(&mut self, desk: &mut Desk, answer: Answer, out: &mut Vec<(Number, Outcome)>) {
        if let Some(question) = desk.under_way.take() {
            out.push((question.number, Outcome::Answered(answer)));
        } else if !matches!(answer, Answer::Ready(_)) {
            // The helper's first request was to open the driver, and is nobody's question.
            self.fail(desk, Outcome::Answered(answer), out);
        }
    }

    /// Ends the helper, and with it the question that is under way or, while none is, the one whose turn it is.
    fn fail(&mut self, desk: &mut Desk, outcome: Outcome, out: &mut Vec<(Number, Outcome)>) {
        self.end(desk);
        if let Some(question) = desk.under_way.take().or_else(|| desk.waiting.pop_front()) {
            out.push((question.number, outcome));
        }
    }

    fn end(&mut self, desk: &mut Desk) {
        if let Some(helper) = desk.helper.take() {
            let _ = self.epoll.delete(&helper.channel);
            self.killed.kill(helper);
        }
    }
}

impl Desk {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_none()
    }

    fn deadline_ns(&self) -> Option<u64> {
        match self.helper.as_ref().map(|helper| helper.channel.request()) {
            Some(Some(request)) => Some(request.deadline_ns),
            // At once.
            _ if !self.waiting.is_empty() => Some(0),
            Some(None) => Some(self.resting_ns + REST_NS),
            None => None,
        }
    }
}

impl Drop for CheckpointHelpers {
    fn drop(&mut self) {
        for desk in std::mem::take(&mut self.desks).into_values() {
            if let Some(helper) = desk.helper {
                self.killed.kill(helper);
            }
        }
        self.killed.reap();
    }
}
