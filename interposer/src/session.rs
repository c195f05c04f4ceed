// SPDX-License-Identifier: Apache-2.0
//! This process as a client: attaching, asking, coming back after the broker was away.
//!
//! The thread that talks holds the connection. Every wait has an end; what cannot be asked is refused, never guessed.
//! A wait in vain is not repeated: the process is *silent* from then on and asks no broker until it hears one again,
//! which the background thread or the next caller notices without waiting. An ask has an even sequence number, any
//! other question an odd one: a late answer to an ask still lifts its pin.

mod packet;

use core::sync::atomic::Ordering;

use partage_protocol::message::{
    Answer, HELLO_NVML_ONLY, MEASURE_BEFORE, NOTICE_SHARING_OFF, Notice, ToClient, VERDICT_GRANTED,
};
use partage_protocol::reservation::{self, AskAnswer, Denial};
use zerocopy::IntoBytes;

use self::packet::Packet;
use crate::attachment;
use crate::attachment::own_use;
use crate::connection::{self, Session};
use crate::explain;
use crate::guest::lock::Guard;
use crate::guest::sys;
use crate::hold;
use crate::job_word;
use crate::lazy;
use crate::managed;
use crate::note;
use crate::reach;
use crate::socket::{self, Refusal};
use crate::state::{Phase, State};

/// Longest wait for a broker at the first attach, in nanoseconds.
const ATTACH_WAIT_NS: u64 = 3_000_000_000;
/// The same for the broker of a managed host, which its administrator may be restarting.
const MANAGED_WAIT_NS: u64 = 10_000_000_000;
/// Longest wait for one answer, reconnecting included.
const ASK_WAIT_NS: u64 = 3_000_000_000;

/// Attaches if no attach was tried yet. Waits a bounded time when somebody put this process into a job.
pub fn ensure(state: &'static State, is_nvml: bool) {
    // A process that only looks at NVML is not admitted for that, and does not wait for an admission: it sees the
    // machine.
    if state.phase() != Phase::Fresh || (is_nvml && state.settings().is_lazy) {
        return;
    }
    let setup = state.setup.hold_after_work();
    ensure_held(state, is_nvml);
    drop(setup);
    if is_nvml {
        hold::nvml::arrive();
    } else {
        hold::arrive(state);
    }
}

/// [`ensure`] for the first `cuInit`, which holds `State::setup`: a process that begins while its job is held waits
/// here; others of its threads wait for it as for the driver.
pub fn ensure_in_setup(state: &'static State) {
    ensure_held(state, false);
    hold::arrive(state);
}

fn ensure_held(state: &'static State, is_nvml: bool) {
    if state.phase() != Phase::Fresh {
        return;
    }
    if state.settings().is_lazy {
        if lazy::is_blind() {
            return;
        }
        if !lazy::admit(state) {
            return shut(state);
        }
    }
    let mut session = connection::of(state).session.hold();
    crate::guest::inherited::close_all();
    let is_managed = managed::is_closed(state.settings());
    let wait = match (is_managed, is_nvml) {
        // Looking needs no memory, and so no broker.
        (true, true) => 0,
        (true, false) => MANAGED_WAIT_NS,
        (false, _) if state.settings().expects_broker() => ATTACH_WAIT_NS,
        (false, _) => 0,
    };
    let flags = if is_nvml { HELLO_NVML_ONLY } else { 0 };
    let deadline = sys::now_ns().saturating_add(wait);
    let Err(refusal) = reach::connect(state, &mut session, flags, deadline) else {
        return;
    };
    // One of the broker's own, or one that may need memory later: the wait is for then.
    if state.phase() == Phase::Off || is_managed && is_nvml && refusal == Refusal::Busy {
        return;
    }
    connection::of(state).set_silent(true);
    reach::say_unreached(state, refusal);
    // The job's memory is given out as it is asked for; none while a broker is there that does not answer.
    let limit = state.settings().memory_limit.unwrap_or(u64::MAX);
    // A job that began without a limit may have one meanwhile.
    let is_open = limit == u64::MAX && !state.settings().has_token && state.found().is_alone();
    let granted = if is_open { limit } else { 0 };
    attachment::of(state).own.begin(granted, limit);
    state.set_phase(Phase::Standalone);
}

/// This process belongs to no job and was not admitted as one: it gets no memory, and asks nobody again.
fn shut(state: &State) {
    give_up(state);
    attachment::of(state).own.begin(0, u64::MAX);
    state.set_phase(Phase::Standalone);
}

/// The connection, to talk. `None` while the broker is silent and somebody else has it: nobody waits then.
fn talk(state: &State) -> Option<Guard<'_, Session>> {
    if connection::of(state).is_silent() {
        connection::of(state).session.try_hold()
    } else {
        Some(connection::of(state).session.hold())
    }
}

/// An allocation on a slot was refused because no broker answered.
#[cold]
pub fn note_refusal(state: &State, slot: usize) {
    attachment::of(state)
        .counters()
        .refused_no_broker
        .fetch_add(1, Ordering::Relaxed);
    connection::of(state).refused_slot.store(slot as u32, Ordering::Relaxed);
    let Some(mut session) = talk(state) else { return };
    if session.link.is_connected() {
        // It is there and too slow: it reads this when it gets to it.
        reach::report_refusals(state, &mut session);
    }
}

/// One round trip. `None`: nobody answered in time, or lately.
fn converse(state: &State, is_ask: bool, build: &dyn Fn(u32) -> Packet) -> Option<Answer> {
    let session = &mut *talk(state)?;
    let mut deadline = sys::now_ns().saturating_add(if connection::of(state).is_silent() {
        0
    } else {
        ASK_WAIT_NS
    });
    while let Some(until) = ready(state, session, deadline) {
        deadline = until;
        let sequence = session.next_sequence(is_ask);
        match socket::send(session.link.socket(), build(sequence).bytes()) {
            Ok(()) => match wait_for_answer(state, session, sequence, deadline) {
                Wait::Answer(answer) => return Some(answer),
                Wait::Lost => session.lose(),
                // The connection stands, the broker does not move: nothing is gained by asking again.
                Wait::TimedOut => break,
            },
            // The connection stands.
            Err(Refusal::Busy | Refusal::Unable) => break,
            // What it said last may be why it left.
            Err(_) => {
                drain(state, session);
                session.lose();
            }
        }
        if sys::now_ns() >= deadline {
            break;
        }
    }
    connection::of(state).set_silent(true);
    None
}

/// Makes sure of a broker that answers; until when it may take for an answer. `None`: there is none.
fn ready(state: &State, session: &mut Session, deadline_ns: u64) -> Option<u64> {
    if session.link.is_connected() && connection::of(state).is_silent() && !drain(state, session) {
        return None;
    }
    if !session.link.is_connected() {
        reach::connect(state, session, 0, deadline_ns).ok()?;
    }
    // A broker that was just heard gets its time.
    let now = sys::now_ns();
    Some(if deadline_ns > now {
        deadline_ns
    } else {
        now.saturating_add(ASK_WAIT_NS)
    })
}

/// Takes what came since nobody listened: late answers. `true`: the broker lives, or its connection is gone.
pub(crate) fn drain(state: &State, session: &mut Session) -> bool {
    let mut is_heard = false;
    loop {
        match socket::receive(session.link.socket(), 0) {
            Ok((message, descriptors)) => {
                is_heard = true;
                take_late(state, session, &message, descriptors);
            }
            Err(Refusal::Busy) => break,
            Err(_) => {
                session.lose();
                return true;
            }
        }
    }
    if is_heard {
        reach::heard(state, session);
    }
    is_heard
}

enum Wait {
    Answer(Answer),
    Lost,
    TimedOut,
}

fn wait_for_answer(state: &State, session: &mut Session, sequence: u32, deadline_ns: u64) -> Wait {
    loop {
        match socket::receive(session.link.socket(), deadline_ns) {
            Ok((ToClient::Answer(answer), descriptors)) if answer.header.sequence == sequence => {
                socket::discard(descriptors);
                return Wait::Answer(answer);
            }
            Ok((message, descriptors)) => take_late(state, session, &message, descriptors),
            Err(Refusal::Busy) => return Wait::TimedOut,
            Err(_) => return Wait::Lost,
        }
    }
}

/// A message that nobody waits for.
fn take_late(state: &State, session: &mut Session, message: &ToClient, descriptors: [i32; 2]) {
    socket::discard(descriptors);
    match message {
        // The asking thread has given up, and with it the grant that the broker keeps for it.
        ToClient::Answer(answer) if answer.header.sequence & 1 == 0 && answer.verdict == VERDICT_GRANTED => {
            settle(state, answer.slot as usize);
        }
        ToClient::Answer(_) | ToClient::Welcome(_) => {}
        ToClient::Refused(refused) => {
            reach::refused(state, session, refused);
        }
        // Our own thread does it.
        ToClient::Park(park) => session.park_for = park.job,
    }
}

fn settle(state: &State, slot: usize) {
    if let Some(line) = attachment::of(state)
        .client_page()
        .and_then(|page| page.devices.get(slot))
    {
        reservation::settle(&line.settled);
    }
}

/// Asks for a grant of `wanted` bytes on a slot, for an allocation of `request`.
pub fn ask(state: &State, slot: usize, wanted: u64, request: u64) -> AskAnswer {
    match converse(state, true, &|sequence| Packet::ask(sequence, slot, wanted, request)) {
        Some(answer) => {
            if let Some(last) = attachment::of(state).last_job_used.get(slot) {
                // For the line that explains a denial.
                last.store(answer.job_used, Ordering::Relaxed);
            }
            packet::verdict(&answer)
        }
        None => AskAnswer::Denied(Denial::NoBroker),
    }
}

/// [`ask`] while no broker has answered yet: of a broker that has come meanwhile, or of the job's word where nobody is.
#[cold]
pub fn ask_alone(state: &State, slot: usize, wanted: u64) -> AskAnswer {
    let result = attend(state);
    if result.is_ok() || attachment::of(state).broker_page().is_some() {
        cover_earlier_use(state);
        return AskAnswer::Retry;
    }
    match result {
        Err(Refusal::Absent | Refusal::Barred) => job_word::raise(state, slot, wanted),
        _ => AskAnswer::Denied(Denial::NoBroker),
    }
}

/// Looks for a broker that serves, before the caller acts as if there were none.
///
/// # Errors
/// What was found instead: that nobody is there was seen just now.
pub fn attend(state: &State) -> Result<(), Refusal> {
    // Where no broker was found, this thread looks again, and waits for a thread that looks now: for a start of a
    // broker at the longest.
    let session = if state.found().is_alone() {
        Some(connection::of(state).session.hold())
    } else {
        talk(state)
    };
    session.map_or(Err(Refusal::Busy), |mut session| look_for_broker(state, &mut session))
}

/// [`attend`] for a caller that has the connection.
fn look_for_broker(state: &State, session: &mut Session) -> Result<(), Refusal> {
    if session.link.is_connected() {
        // A thread before this one found the broker; or the connection stands, and the broker does not move.
        return if connection::of(state).is_silent() {
            Err(Refusal::Busy)
        } else {
            Ok(())
        };
    }
    let patience = if connection::of(state).is_silent() {
        0
    } else {
        ASK_WAIT_NS
    };
    let mut result = reach::connect(state, session, 0, sys::now_ns().saturating_add(patience));
    if matches!(result, Err(Refusal::Absent | Refusal::Barred)) {
        result = reach::look(state, session);
    }
    if result.is_err() {
        connection::of(state).set_silent(true);
    }
    result
}

/// After a late attach, once: the broker learns what was charged before it came, and grants it if it can.
pub fn cover_earlier_use(state: &State) {
    if !attachment::of(state).is_uncovered.swap(false, Ordering::AcqRel) {
        return;
    }
    let (Some(client), Some(broker)) = (attachment::of(state).client_page(), attachment::of(state).broker_page())
    else {
        return;
    };
    for (slot, (line, grant)) in client.devices.iter().zip(&broker.devices).enumerate() {
        let used = line.used.load(Ordering::Relaxed);
        if used > grant.granted.load(Ordering::Relaxed) && ask(state, slot, used, 0) == AskAnswer::Granted {
            reservation::settle(&line.settled);
        }
    }
}

/// A context, module or heap that takes the job beyond what it may use.
pub struct Excess {
    /// Why.
    pub denial: Denial,
    /// What it takes, in bytes; 0 where nobody knows.
    pub needed: u64,
    /// The job's limit on the device.
    pub limit: u64,
    /// What the job uses there.
    pub job_used: u64,
}

impl Excess {
    /// A broker is there and does not measure.
    pub fn unmeasured(state: &State, slot: usize) -> Self {
        let (job_used, limit) = own_use::used_and_limit(state, slot);
        Self {
            denial: Denial::NoBroker,
            needed: 0,
            limit,
            job_used,
        }
    }

    /// Says so in one line.
    pub fn explain(&self, state: &State, slot: usize, what: &str) {
        if self.denial == Denial::NoBroker {
            note_refusal(state, slot);
        }
        explain::excess(state, slot, what, self.needed, (self.job_used, self.limit), self.denial);
    }
}

/// Has the broker compare what the driver holds for this process in a slot with what was charged (`MEASURE_*`).
///
/// # Errors
/// The [`Excess`] when the job is over its limit with it, or has no room for what is announced. What is announced has
/// no room while a broker is there and does not serve.
pub fn measure(state: &State, slot: usize, stage: u32) -> Result<(), Excess> {
    let build = |sequence| Packet::measure(sequence, slot, stage);
    let mut answer = converse(state, false, &build);
    if answer.is_none() && stage == MEASURE_BEFORE {
        match attend(state) {
            Ok(()) => answer = converse(state, false, &build),
            Err(Refusal::Absent | Refusal::Barred) => return Ok(()),
            Err(_) => {}
        }
        if answer.is_none() {
            return Err(Excess::unmeasured(state, slot));
        }
    }
    // Nobody to measure: the next broker does, before it admits anything on the device.
    let Some(answer) = answer else {
        return Ok(());
    };
    let AskAnswer::Denied(denial) = packet::verdict(&answer) else {
        return Ok(());
    };
    if denial == Denial::Invalid {
        return Ok(());
    }
    Err(Excess {
        denial,
        needed: answer.granted,
        limit: answer.limit,
        job_used: answer.job_used,
    })
}

/// What the whole job uses in a slot. `None`: nobody answered.
pub fn job_used(state: &State, slot: usize) -> Option<u64> {
    converse(state, false, &|sequence| Packet::usage(sequence, slot)).map(|answer| answer.job_used)
}

/// This process gets no device of a job, ever: it asks no broker again.
pub fn give_up(state: &State) {
    connection::of(state).session.hold().is_final = true;
}

/// Tells the broker something that needs no answer; lost when it is away.
#[cold]
pub fn notice(state: &State, what: u32, slot: usize, value: u64) {
    let Some(session) = talk(state) else { return };
    let notice = Notice {
        header: Notice::header(0),
        what,
        slot: slot as u32,
        value,
    };
    if session.link.is_connected() {
        let _ = socket::send(session.link.socket(), notice.as_bytes());
    }
}

/// An invariant of this process broke: its calls go straight to the driver from now on, and everybody is told.
#[cold]
pub fn turn_off(state: &State, place: u64) {
    if state.phase() == Phase::Off {
        return;
    }
    state.set_phase(Phase::Off);
    hold::path::fast_path().forget();
    note::write(
        state,
        note::line()
            .push("sharing is off in this process: broken invariant ")
            .push_number(place),
    );
    notice(state, NOTICE_SHARING_OFF, 0, place);
}
