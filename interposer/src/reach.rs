// SPDX-License-Identifier: Apache-2.0
//! How this process reaches a broker, and how often it tries.
//!
//! ```text
//!   nothing ── connect, hello ──► greeting ── welcome ──► connected
//!      ▲                            │ no answer yet: stays, and is looked at later
//!      └── pause, longer each time ──┴── refused, or the connection broke ──┘
//! ```
//! *Nobody there* (no socket, or one that nobody listens at) and *there and not serving* (full, out of descriptors,
//! slow, stopped, deaf) are told apart: with nobody there the job's processes share its limit by themselves
//! ([`job_word`](crate::job_word)); with somebody there who may have promised the memory to others, none is given out.

use core::sync::atomic::Ordering;

use partage_protocol::message::{
    ENVIRONMENT_BYTES, HELLO_ENVIRONMENT_CUT, HELLO_PAGES_LOST, HELLO_PARKED, Hello, NOTICE_NO_BROKER, Notice,
    REFUSED_CAPACITY, REFUSED_DEVICES, REFUSED_OWN, Refused, ToClient,
};
use zerocopy::IntoBytes;

use crate::attachment::{self, moved};
use crate::connection::{self, Session};
use crate::guest::sys;
use crate::hold::early;
use crate::nodes;
use crate::note;
use crate::private_broker;
use crate::socket::{self, Refusal};
use crate::state::{Found, Phase, State};

/// What a broker that was just started may take until it listens.
const START_WAIT_NS: u64 = 2_000_000_000;
/// What a broker that accepted a connection may take to answer, whoever asks, unless it is known to be silent.
const MOMENT_NS: u64 = 1_000_000_000;
/// The longest that somebody who waits for an answer waits for the next attempt.
const WAITED_PAUSE_NS: u64 = 160_000_000;
/// After a refusal that time does not mend; another broker may.
const REFUSED_PAUSE_NS: u64 = 60_000_000_000;

/// Connects until `deadline_ns`, starting a private broker when there is none.
///
/// # Errors
/// Why not; `State::found` says the same.
pub fn connect(state: &State, session: &mut Session, flags: u32, deadline_ns: u64) -> Result<(), Refusal> {
    if session.is_final {
        return Err(Refusal::Final);
    }
    if session.link.is_parked() && flags & HELLO_PARKED == 0 {
        // Our own thread is to find the moment.
        return Err(Refusal::Busy);
    }
    let result = connect_until(state, session, flags, deadline_ns);
    session.start_turn.close();
    result
}

fn connect_until(state: &State, session: &mut Session, flags: u32, mut deadline_ns: u64) -> Result<(), Refusal> {
    let mut has_turn = false;
    // A silent broker is left to the background thread: a start takes longer than its caller may wait.
    let mut has_started =
        flags & HELLO_PARKED != 0 || connection::of(state).is_silent() && deadline_ns <= sys::now_ns();
    loop {
        let pause = session.pause.left_ns(sys::now_ns()).min(WAITED_PAUSE_NS);
        if !session.link.is_greeting() && pause > 0 {
            if sys::now_ns().saturating_add(pause) > deadline_ns {
                return Err(state.found().refusal());
            }
            sys::sleep_ns(pause);
        }
        let mut result = try_connect(state, session, flags, deadline_ns);
        if result == Err(Refusal::Absent) && !has_started {
            has_turn = has_turn || private_broker::take_turn(state, &mut session.start_turn);
            // The first failure may have been the moment before another's broker listened: look once more.
            if has_turn {
                result = try_connect(state, session, flags, deadline_ns);
            }
            has_started = result == Err(Refusal::Absent) && has_turn && private_broker::start(state);
            if has_started {
                // Keeping the turn until it listens keeps hundreds of others from starting one each.
                deadline_ns = deadline_ns.max(sys::now_ns().saturating_add(START_WAIT_NS));
            }
        }
        match result {
            Ok(()) => return Ok(()),
            Err(refusal) => state.set_found(Found::by(refusal)),
        }
        let is_over = matches!(result, Err(Refusal::Final | Refusal::Barred)) || session.link.lacks_room();
        if is_over || sys::now_ns() >= deadline_ns {
            return result;
        }
    }
}

/// One attempt now, for a caller that is about to act on nobody being there: a broker may have come in the pause.
///
/// # Errors
/// As for [`connect`].
pub fn look(state: &State, session: &mut Session) -> Result<(), Refusal> {
    let pause = session.pause;
    let result = try_connect(state, session, 0, sys::now_ns());
    if let Err(refusal) = result {
        state.set_found(Found::by(refusal));
        if Found::by(refusal).is_alone() {
            // The next attempt of the background thread is as near as it was.
            session.pause = pause;
        }
    }
    result
}

/// One attempt: connects and says who we are, or goes on waiting for the answer; takes the pages at the first time.
fn try_connect(state: &State, session: &mut Session, flags: u32, deadline_ns: u64) -> Result<(), Refusal> {
    let now = sys::now_ns();
    if !session.link.is_greeting() || session.link.socket().fd().is_none() {
        session.link.lost();
        session.pause.attempt(now);
        greet(state, session, flags, deadline_ns)?;
    }
    let moment = if connection::of(state).is_silent() {
        0
    } else {
        MOMENT_NS
    };
    let answer = socket::receive(session.link.socket(), deadline_ns.max(now.saturating_add(moment)));
    let (message, descriptors) = match answer {
        Ok(answer) => answer,
        // It may be stopped, or busy with others: the hello is there for when it gets to it.
        Err(Refusal::Busy) => return Err(Refusal::Busy),
        Err(refusal) => {
            session.link.lost();
            return Err(refusal);
        }
    };
    session.link.answered();
    let taken = match message {
        ToClient::Welcome(welcome) => {
            attachment::welcomed(state, &mut session.link, &welcome, descriptors, early::attached)
        }
        ToClient::Refused(refused_for) => {
            socket::discard(descriptors);
            Err(refused(state, session, &refused_for))
        }
        ToClient::Answer(_) | ToClient::Park(_) => {
            socket::discard(descriptors);
            Err(Refusal::Busy)
        }
    };
    let is_back = taken.inspect_err(|_| session.link.lost())?;
    session.pause.welcomed(sys::now_ns());
    session.keeps_grants = false;
    if let Some(devices) = &mut session.devices {
        moved::follow(state, devices);
        let _ = socket::send(session.link.socket(), devices.as_bytes());
    }
    heard(state, session);
    note::say(state, if is_back { "connected again" } else { "attached" });
    Ok(())
}

/// Connects and says hello.
fn greet(state: &State, session: &mut Session, flags: u32, deadline_ns: u64) -> Result<(), Refusal> {
    let fd = socket::connect(state.settings(), deadline_ns)?;
    let (mut send, mut count) = ([-1; 2], 0);
    let mut flags = flags;
    if session.link.client() != 0 && !session.link.is_parked() {
        match session.link.files() {
            Some(files) => (send, count) = (files, 2),
            None => flags |= HELLO_PAGES_LOST,
        }
    }
    let settings = state.settings();
    let mut environment = [0; ENVIRONMENT_BYTES];
    let packed = settings.environment.as_bytes();
    for (to, from) in environment.iter_mut().zip(packed) {
        *to = *from;
    }
    if !settings.environment.is_complete() {
        flags |= HELLO_ENVIRONMENT_CUT;
    }
    let hello = Hello {
        header: Hello::header(0),
        token: settings.token,
        client: session.link.client(),
        environment_limit: settings.memory_limit.unwrap_or(0),
        pid: sys::pid(),
        flags,
        environment_length: packed.len() as u32,
        nodes: nodes::openable(),
        environment,
    };
    session.link.connect(fd, |socket| {
        socket::send_with(socket, hello.as_bytes(), send.get(..count).unwrap_or(&[]))
    })
}

/// The broker refuses this process, at its hello or later: whether that is for good.
pub fn refused(state: &State, session: &mut Session, refused: &Refused) -> Refusal {
    let text = refused.text.get(..refused.text_length as usize).unwrap_or(&[]);
    note::write(state, note::line().push("the broker refuses this process: ").push(text));
    match refused.code {
        // Others leave.
        REFUSED_CAPACITY => Refusal::Busy,
        REFUSED_OWN => {
            session.is_final = true;
            state.set_phase(Phase::Off);
            Refusal::Final
        }
        REFUSED_DEVICES => {
            // What the driver shows does not change in the life of a process.
            session.is_final = true;
            Refusal::Final
        }
        _ => {
            session.pause.refused(sys::now_ns(), REFUSED_PAUSE_NS);
            if state.settings().expects_broker()
                && !connection::of(state).has_told_refusal.swap(true, Ordering::Relaxed)
            {
                let mut line = note::Line::new();
                line.push("partage: the broker refuses this process, which gets no GPU memory: ");
                note::warn(state, line.push(text));
            }
            Refusal::Final
        }
    }
}

/// The first attach was in vain: says so in the log.
pub fn say_unreached(state: &State, refusal: Refusal) {
    let text = match Found::by(refusal) {
        Found::Nobody => "no broker is there; the job's processes share its limit by themselves",
        Found::Unserving => "the broker does not answer; memory stays closed until it does",
        Found::Unable => "this process has no descriptor or no memory left to attach; memory stays closed until it has",
        Found::Refusal => "the broker refuses this process; memory stays closed",
        Found::Barred => "no permission to enter the broker's folder; the environment's limit holds",
    };
    note::say(state, text);
}

/// The broker said something: from now on it is waited for again.
pub fn heard(state: &State, session: &mut Session) {
    connection::of(state).set_silent(false);
    report_refusals(state, session);
}

/// Allocations that nobody was there to refuse: the broker counts them once it hears of them.
pub fn report_refusals(state: &State, session: &mut Session) {
    let refused = attachment::of(state)
        .counters()
        .refused_no_broker
        .load(Ordering::Relaxed);
    let new = refused.wrapping_sub(session.reported_refusals);
    if new == 0 {
        return;
    }
    let notice = Notice {
        header: Notice::header(0),
        what: NOTICE_NO_BROKER,
        slot: connection::of(state).refused_slot.load(Ordering::Relaxed),
        value: new,
    };
    if socket::send(session.link.socket(), notice.as_bytes()).is_ok() {
        session.reported_refusals = refused;
    }
}
