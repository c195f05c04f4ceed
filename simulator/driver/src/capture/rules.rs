// SPDX-License-Identifier: Apache-2.0
//! Which calls may be made while streams are captured, and what a refused call leads to: pure.
//!
//! ```text
//!             begin                    forbidden call
//!   idle ─────────────► capturing ─────────────────────► invalidated
//!    ▲                      │ end                             │ end (code 901)
//!    └──────────────────────┴─────────────────────────────────┘
//! ```
//! Terms: a *session* is one capture, begun on its *origin* stream; a *member* is a stream that takes part: the origin
//! and every stream that waited for an event recorded in it. A member's *tips* are the nodes that its next operation
//! depends on. Keys are numbers that the caller chooses and never reuses.
//!
//! Every refused operation invalidates the sessions that it would have broken, as the programming guide says
//! (section on prohibited and unhandled operations). Codes: 900 unsupported, 901 invalidated, 902 merge, 903
//! unmatched, 904 unjoined, 905 isolation, 906 implicit, 907 captured event, 908 wrong thread.

use std::collections::{HashMap, HashSet};

use partage_abi::types::CuResult;

/// A node of a graph.
pub type NodeKey = u64;

/// Who may make potentially unsafe calls while a stream is captured (`CU_STREAM_CAPTURE_MODE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No thread.
    Global,
    /// Every thread but the one that began the capture.
    ThreadLocal,
    /// Every thread.
    Relaxed,
}

impl Mode {
    /// The mode of the driver's number.
    pub fn from_number(number: i32) -> Option<Self> {
        [Self::Global, Self::ThreadLocal, Self::Relaxed]
            .into_iter()
            .find(|mode| mode.number() == number)
    }

    /// The driver's number.
    pub fn number(self) -> i32 {
        match self {
            Self::Global => 0,
            Self::ThreadLocal => 1,
            Self::Relaxed => 2,
        }
    }
}

/// A stream as the rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamFacts {
    /// Unique among all streams of the process.
    pub key: u64,
    /// Its context.
    pub context: u64,
    /// It is its context's legacy default stream.
    pub is_legacy: bool,
    /// It synchronises with the legacy default stream.
    pub is_blocking: bool,
}

/// State of a stream, as `cuStreamIsCapturing` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not part of a capture.
    Idle,
    /// Captured by this session.
    Active(u64),
    /// Captured by this session, which a forbidden call has spoilt.
    Invalidated(u64),
}

struct Session {
    mode: Mode,
    thread: u64,
    origin: u64,
    is_invalid: bool,
    /// Tips of members that are gone: what they did must still be joined.
    left: Vec<NodeKey>,
}

struct Member {
    session: u64,
    facts: StreamFacts,
    tips: Vec<NodeKey>,
}

/// All captures of the process.
#[derive(Default)]
pub struct Captures {
    sessions: HashMap<u64, Session>,
    members: HashMap<u64, Member>,
    events: HashMap<u64, (u64, Vec<NodeKey>)>,
    last: u64,
}

impl Captures {
    /// Begins a capture; `tips` are the nodes that its first operation depends on. Returns the session's number.
    ///
    /// 900 for the legacy default stream, 401 if the stream is captured already.
    pub fn begin(&mut self, stream: StreamFacts, mode: Mode, thread: u64, tips: Vec<NodeKey>) -> Result<u64, CuResult> {
        if stream.is_legacy {
            return Err(CuResult::STREAM_CAPTURE_UNSUPPORTED);
        }
        if self.members.contains_key(&stream.key) {
            return Err(CuResult::ILLEGAL_STATE);
        }
        self.last += 1;
        let session = self.last;
        self.sessions.insert(
            session,
            Session {
                mode,
                thread,
                origin: stream.key,
                is_invalid: false,
                left: Vec::new(),
            },
        );
        self.members.insert(
            stream.key,
            Member {
                session,
                facts: stream,
                tips,
            },
        );
        Ok(session)
    }

    /// Ends the capture that was begun on the stream. `parents` gives the nodes that a node depends on. Returns the
    /// session, which is over also when it failed, except with 401, 903 and 908.
    pub fn end(
        &mut self,
        stream: StreamFacts,
        thread: u64,
        parents: impl Fn(NodeKey) -> Vec<NodeKey>,
    ) -> (Option<u64>, Result<(), CuResult>) {
        let Some(member) = self.members.get(&stream.key) else {
            return (None, Err(CuResult::ILLEGAL_STATE));
        };
        let number = member.session;
        let Some(session) = self.sessions.get_mut(&number) else {
            return (None, Err(CuResult::ILLEGAL_STATE));
        };
        if session.origin != stream.key {
            session.is_invalid = true;
            return (None, Err(CuResult::STREAM_CAPTURE_UNMATCHED));
        }
        if session.mode != Mode::Relaxed && session.thread != thread {
            return (None, Err(CuResult::STREAM_CAPTURE_WRONG_THREAD));
        }
        let is_invalid = session.is_invalid;
        let is_joined = self.is_joined(number, &member.tips, parents);
        self.sessions.remove(&number);
        self.members.retain(|_, member| member.session != number);
        match (is_invalid, is_joined) {
            (true, _) => (Some(number), Err(CuResult::STREAM_CAPTURE_INVALIDATED)),
            (_, false) => (Some(number), Err(CuResult::STREAM_CAPTURE_UNJOINED)),
            _ => (Some(number), Ok(())),
        }
    }

    /// Whether everything that the members did lies before the origin's tips.
    fn is_joined(&self, session: u64, tips: &[NodeKey], parents: impl Fn(NodeKey) -> Vec<NodeKey>) -> bool {
        let mut reached: HashSet<NodeKey> = HashSet::new();
        let mut left = tips.to_vec();
        while let Some(node) = left.pop() {
            if reached.insert(node) {
                left.extend(parents(node));
            }
        }
        let members = self.members.values().filter(|member| member.session == session);
        let left = self.sessions.get(&session).map(|session| &session.left);
        let mut tips = members
            .flat_map(|member| &member.tips)
            .chain(left.into_iter().flatten());
        tips.all(|tip| reached.contains(tip))
    }

    /// What a stream is doing. 906 for the legacy default stream while a blocking stream of its context is captured.
    pub fn status(&self, stream: StreamFacts) -> Result<Status, CuResult> {
        if stream.is_legacy && !self.blocking_sessions(stream.context).is_empty() {
            return Err(CuResult::STREAM_CAPTURE_IMPLICIT);
        }
        let Some(member) = self.members.get(&stream.key) else {
            return Ok(Status::Idle);
        };
        match self.sessions.get(&member.session) {
            Some(session) if session.is_invalid => Ok(Status::Invalidated(member.session)),
            Some(_) => Ok(Status::Active(member.session)),
            None => Ok(Status::Idle),
        }
    }

    /// Asks whether an operation submitted to a stream is to be captured: its session and tips, or `None` if it is
    /// to run. 901 or 906 if it may do neither.
    pub fn admit(&mut self, stream: StreamFacts) -> Result<Option<(u64, Vec<NodeKey>)>, CuResult> {
        match self.status(stream) {
            Ok(Status::Idle) => Ok(None),
            Ok(Status::Active(session)) => Ok(Some((session, self.tips(stream)))),
            Ok(Status::Invalidated(_)) => Err(CuResult::STREAM_CAPTURE_INVALIDATED),
            Err(code) => {
                self.invalidate(&self.blocking_sessions(stream.context));
                Err(code)
            }
        }
    }

    /// The nodes that the stream's next operation depends on.
    pub fn tips(&self, stream: StreamFacts) -> Vec<NodeKey> {
        self.members
            .get(&stream.key)
            .map(|member| member.tips.clone())
            .unwrap_or_default()
    }

    /// Sets them. 401 if the stream is not captured, 901 if its session is invalidated.
    pub fn set_tips(&mut self, stream: StreamFacts, tips: Vec<NodeKey>) -> Result<(), CuResult> {
        match self.status(stream)? {
            Status::Idle => Err(CuResult::ILLEGAL_STATE),
            Status::Invalidated(_) => Err(CuResult::STREAM_CAPTURE_INVALIDATED),
            Status::Active(_) => {
                if let Some(member) = self.members.get_mut(&stream.key) {
                    member.tips = tips;
                }
                Ok(())
            }
        }
    }

    /// An event is recorded in a stream. True if that was captured; then it has no execution status.
    pub fn record(&mut self, event: u64, stream: StreamFacts) -> Result<bool, CuResult> {
        match self.admit(stream)? {
            Some(captured) => {
                self.events.insert(event, captured);
                Ok(true)
            }
            None => {
                self.events.remove(&event);
                Ok(false)
            }
        }
    }

    /// The event is gone.
    pub fn forget_event(&mut self, event: u64) {
        self.events.remove(&event);
    }

    /// A stream waits for an event. True if that was captured, as a dependency or by making the stream a member.
    pub fn wait(&mut self, stream: StreamFacts, event: u64) -> Result<bool, CuResult> {
        let own = self.members.get(&stream.key).map(|member| member.session);
        let recorded = self.events.get(&event).cloned();
        let Some((session, tips)) = recorded else {
            let Some(own) = own else {
                return self.admit(stream).map(|_| false);
            };
            self.admit(stream)?;
            self.invalidate(&[own]);
            return Err(CuResult::STREAM_CAPTURE_ISOLATION);
        };
        let Some(state) = self.sessions.get(&session) else {
            // Its capture is over: the event never had an execution to wait for.
            self.invalidate(own.as_slice());
            return Err(CuResult::CAPTURED_EVENT);
        };
        if own.is_some_and(|own| own != session) {
            self.invalidate(&[session]);
            self.invalidate(own.as_slice());
            return Err(CuResult::STREAM_CAPTURE_MERGE);
        }
        if state.is_invalid {
            return Err(CuResult::STREAM_CAPTURE_INVALIDATED);
        }
        if stream.is_legacy {
            self.invalidate(&[session]);
            return Err(CuResult::STREAM_CAPTURE_IMPLICIT);
        }
        let member = self.members.entry(stream.key);
        let member = member.or_insert_with(|| Member {
            session,
            facts: stream,
            tips: Vec::new(),
        });
        for tip in tips {
            if !member.tips.contains(&tip) {
                member.tips.push(tip);
            }
        }
        Ok(true)
    }

    /// Somebody asks for the execution status of an event: 907 if it was recorded in a captured stream.
    pub fn query_event(&mut self, event: u64) -> Result<(), CuResult> {
        let Some(&(session, _)) = self.events.get(&event) else {
            return Ok(());
        };
        self.invalidate(&[session]);
        Err(CuResult::CAPTURED_EVENT)
    }

    /// Somebody asks for the execution status of a stream: 900 if it is captured.
    pub fn query_stream(&mut self, stream: StreamFacts) -> Result<(), CuResult> {
        match self.admit(stream)? {
            None => Ok(()),
            Some((session, _)) => {
                self.invalidate(&[session]);
                Err(CuResult::STREAM_CAPTURE_UNSUPPORTED)
            }
        }
    }

    /// Somebody asks for the execution status of a whole context: 900 if one of its streams is captured.
    pub fn query_context(&mut self, context: u64) -> Result<(), CuResult> {
        let members = self.members.values().filter(|member| member.facts.context == context);
        let sessions: Vec<u64> = members.map(|member| member.session).collect();
        self.refuse_if_any(&sessions)
    }

    /// A call that may synchronise implicitly, as an allocation may, by a thread in capture mode `mode`.
    pub fn unsafe_call(&mut self, thread: u64, mode: Mode) -> Result<(), CuResult> {
        let is_broken = |session: &Session| match (mode, session.mode) {
            (Mode::Relaxed, _) | (_, Mode::Relaxed) => false,
            (Mode::Global, Mode::Global) => true,
            _ => session.thread == thread,
        };
        let sessions = self.sessions.iter().filter(|(_, session)| is_broken(session));
        let sessions: Vec<u64> = sessions.map(|(&number, _)| number).collect();
        self.refuse_if_any(&sessions)
    }

    /// The stream is gone. A capture that it began is over; one that it had joined goes on, as cuda.core relies on: it
    /// destroys a stream once another one waits for what that did.
    pub fn forget_stream(&mut self, stream: StreamFacts) -> Option<u64> {
        let member = self.members.remove(&stream.key)?;
        let session = self.sessions.get_mut(&member.session)?;
        if session.origin != stream.key {
            session.left.extend(member.tips);
            return None;
        }
        self.sessions.remove(&member.session);
        self.members.retain(|_, other| other.session != member.session);
        Some(member.session)
    }

    fn blocking_sessions(&self, context: u64) -> Vec<u64> {
        let members = self.members.values();
        let blocking = members.filter(|member| member.facts.context == context && member.facts.is_blocking);
        blocking.map(|member| member.session).collect()
    }

    fn refuse_if_any(&mut self, sessions: &[u64]) -> Result<(), CuResult> {
        self.invalidate(sessions);
        if sessions.is_empty() {
            Ok(())
        } else {
            Err(CuResult::STREAM_CAPTURE_UNSUPPORTED)
        }
    }

    fn invalidate(&mut self, sessions: &[u64]) {
        for session in sessions {
            if let Some(session) = self.sessions.get_mut(session) {
                session.is_invalid = true;
            }
        }
    }
}

#[cfg(test)]
mod tests;
