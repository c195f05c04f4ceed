// SPDX-License-Identifier: Apache-2.0
//! This process as a client: attaching, asking, coming back after the broker was away.
//!
//! Whoever talks holds `State::talk`. Every wait has an end; what cannot be asked is refused, never guessed. An ask has
//! an even sequence number, a question about use an odd one: a late answer to an ask still lifts its pin.

use core::sync::atomic::{AtomicU64, Ordering};

use partage_protocol::message::{
    Answer, Ask, Devices, ENVIRONMENT_BYTES, HELLO_ENVIRONMENT_CUT, HELLO_NVML_ONLY, HELLO_PAGES_LOST, Hello,
    MAX_DEVICES, Measure, NOTICE_NO_BROKER, NOTICE_SHARING_OFF, Notice, ToClient, Usage, VERDICT_CARD_FULL,
    VERDICT_GRANTED, VERDICT_LIMIT, VERDICT_RETRY, WELCOME_DEFAULT_JOB, Welcome,
};
use partage_protocol::page::{
    BROKER_MAGIC, BrokerPage, CLIENT_BYTES, CLIENT_MAGIC, ClientFile, ClientPage, LAYOUT, PAGE_BYTES,
};
use partage_protocol::reservation::{self, AskAnswer, Denial};
use zerocopy::IntoBytes;

use crate::account;
use crate::descriptor::Kept;
use crate::explain;
use crate::note;
use crate::private_broker;
use crate::socket::{self, Refusal};
use crate::state::{Phase, State};
use crate::sys;

/// Longest wait for a broker at the first attach, in nanoseconds.
const ATTACH_WAIT_NS: u64 = 3_000_000_000;
/// Longest wait for one answer, reconnecting included.
const ASK_WAIT_NS: u64 = 3_000_000_000;
/// After a wait in vain nobody else waits for this long: a caching allocator retries at once.
const NOBODY_NS: u64 = 1_000_000_000;
/// What a broker that was just started may take until it listens.
const START_WAIT_NS: u64 = 2_000_000_000;
/// Between two attempts to connect.
const RETRY_NS: u64 = 10_000_000;

/// The connection. All-zero memory is "never connected". Guarded by `State::talk`.
pub struct Session {
    socket: Kept,
    broker_file: Kept,
    client_file: Kept,
    client: u64,
    sequence: u32,
    devices: Option<Devices>,
    /// Refusals without a broker that one was told of.
    reported_refusals: AtomicU64,
}

/// Attaches if no attach was tried yet. Waits a bounded time when somebody put this process into a job.
pub fn ensure(state: &'static State, is_nvml: bool) {
    if state.phase() != Phase::Fresh {
        return;
    }
    let _setup = state.setup.hold();
    ensure_held(state, is_nvml);
}

/// [`ensure`] for a caller that holds `State::setup`.
pub fn ensure_held(state: &'static State, is_nvml: bool) {
    if state.phase() != Phase::Fresh {
        return;
    }
    let _talk = state.talk.hold();
    // SAFETY: `talk` is held.
    let session = unsafe { &mut *state.session.get() };
    crate::inherited::close_all();
    let wait = if state.settings().expects_broker() {
        ATTACH_WAIT_NS
    } else {
        0
    };
    let flags = if is_nvml { HELLO_NVML_ONLY } else { 0 };
    if !connect(state, session, flags, sys::now_ns().saturating_add(wait)) {
        note::say(state, "no broker answers; the limit of the environment holds");
        let granted = state.settings().memory_limit.unwrap_or(u64::MAX);
        for line in &state.own_broker_page.devices {
            line.granted.store(granted, Ordering::Relaxed);
            line.limit.store(granted, Ordering::Relaxed);
        }
        state.set_phase(Phase::Standalone);
    }
}

/// Connects until `deadline_ns`, starting a private broker when there is none.
fn connect(state: &State, session: &mut Session, flags: u32, mut deadline_ns: u64) -> bool {
    let mut turn = None;
    let mut has_started = false;
    loop {
        match try_connect(state, session, flags, deadline_ns) {
            Ok(()) => return true,
            Err(Refusal::Final) => return false,
            Err(Refusal::Absent) if !has_started => {
                turn = turn.or_else(|| private_broker::take_turn(state));
                // The first failure may have been the moment before another's broker listened: look once more.
                if turn.is_some() && try_connect(state, session, flags, deadline_ns).is_ok() {
                    return true;
                }
                has_started = turn.is_some() && private_broker::start(state);
                if has_started {
                    // Keeping the turn until it listens keeps hundreds of others from starting one each.
                    deadline_ns = deadline_ns.max(sys::now_ns().saturating_add(START_WAIT_NS));
                }
            }
            Err(_) => {}
        }
        if sys::now_ns() >= deadline_ns {
            return false;
        }
        sys::sleep_ns(RETRY_NS);
    }
}

/// One attempt: connects and says who we are; takes the pages at the first time.
fn try_connect(state: &State, session: &mut Session, flags: u32, deadline_ns: u64) -> Result<(), Refusal> {
    session.drop_socket();
    let fd = socket::connect(state.settings(), deadline_ns)?;
    let Some(kept) = Kept::take(fd) else {
        return Err(Refusal::Final);
    };
    session.socket = kept;
    let is_back = session.client != 0;
    let files = [session.broker_file.fd(), session.client_file.fd()];
    let (mut send, mut count) = ([-1; 2], 0);
    let mut flags = flags;
    if let (true, [Some(broker), Some(client)]) = (is_back, files) {
        (send, count) = ([broker, client], 2);
    } else if is_back {
        flags |= HELLO_PAGES_LOST;
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
        client: session.client,
        environment_limit: settings.memory_limit.unwrap_or(0),
        pid: sys::pid(),
        flags,
        environment_length: packed.len() as u32,
        reserved: 0,
        environment,
    };
    let result = socket::greet(&kept, hello.as_bytes(), send.get(..count).unwrap_or(&[]), deadline_ns);
    let (message, descriptors) = match result {
        Ok(answer) => answer,
        Err(refusal) => {
            session.drop_socket();
            return Err(refusal);
        }
    };
    let taken = match message {
        ToClient::Welcome(welcome) if is_back => welcome_back(session, &welcome, descriptors),
        ToClient::Welcome(welcome) => move_in(state, session, &welcome, descriptors),
        ToClient::Refused(refused) => {
            socket::discard(descriptors);
            let text = refused.text.get(..refused.text_length as usize).unwrap_or(&[]);
            note::write(state, note::line().push("the broker refuses this process: ").push(text));
            Err(Refusal::Final)
        }
        ToClient::Answer(_) => {
            socket::discard(descriptors);
            Err(Refusal::Busy)
        }
    };
    if taken.is_err() {
        session.drop_socket();
        return taken;
    }
    crate::inherited::remember([session.socket, session.broker_file, session.client_file]);
    if let Some(devices) = &session.devices {
        socket::send(&session.socket, devices.as_bytes());
    }
    report_refusals(state, session);
    note::say(state, if is_back { "connected again" } else { "attached" });
    Ok(())
}

/// Allocations that nobody was there to refuse: the broker counts them once it hears of them.
fn report_refusals(state: &State, session: &Session) {
    let refused = state.counters().refused_no_broker.load(Ordering::Relaxed);
    let new = refused.wrapping_sub(session.reported_refusals.load(Ordering::Relaxed));
    if new == 0 {
        return;
    }
    let notice = Notice {
        header: Notice::header(0),
        what: NOTICE_NO_BROKER,
        slot: state.refused_slot.load(Ordering::Relaxed),
        value: new,
    };
    if socket::send(&session.socket, notice.as_bytes()) {
        session.reported_refusals.store(refused, Ordering::Relaxed);
    }
}

/// An allocation on a slot was refused because no broker answered.
#[cold]
pub fn note_refusal(state: &State, slot: usize) {
    state.counters().refused_no_broker.fetch_add(1, Ordering::Relaxed);
    state.refused_slot.store(slot as u32, Ordering::Relaxed);
    let _talk = state.talk.hold();
    // SAFETY: `talk` is held.
    let session = unsafe { &*state.session.get() };
    if session.socket.fd().is_some() {
        // It is there and too slow: it reads this when it gets to it.
        report_refusals(state, session);
    }
}

/// Another broker, or the same one, takes us back under our old id: the pages stay what they are.
fn welcome_back(session: &Session, welcome: &Welcome, descriptors: [i32; 2]) -> Result<(), Refusal> {
    socket::discard(descriptors);
    if welcome.client == session.client {
        Ok(())
    } else {
        Err(Refusal::Final)
    }
}

/// The first welcome: maps the pages and takes over the job's devices.
fn move_in(state: &State, session: &mut Session, welcome: &Welcome, descriptors: [i32; 2]) -> Result<(), Refusal> {
    let [broker_fd, client_fd] = descriptors;
    if broker_fd < 0 || client_fd < 0 {
        socket::discard(descriptors);
        return Err(Refusal::Final);
    }
    session.broker_file.close();
    session.client_file.close();
    session.broker_file = Kept::take(broker_fd).unwrap_or(Kept::NONE);
    session.client_file = Kept::take(client_fd).unwrap_or(Kept::NONE);
    let (broker_file, client_file) = (session.broker_file, session.client_file);
    let map = |file: Kept, length, protection| {
        let memory = sys::map(length, protection, libc::MAP_SHARED, file.fd()?)?;
        sys::advise(memory, length, libc::MADV_DONTFORK);
        Some(memory)
    };
    let pages = (
        map(broker_file, PAGE_BYTES, libc::PROT_READ),
        map(client_file, CLIENT_BYTES, libc::PROT_READ | libc::PROT_WRITE),
    );
    let (Some(broker), Some(client)) = pages else {
        return Err(Refusal::Final);
    };
    let (broker, client): (*mut BrokerPage, *mut ClientFile) = (broker.cast(), client.cast());
    // SAFETY: just mapped; the broker sealed the files against shrinking. Only the first page of each is read before its
    // layout is known.
    let (broker_page, client_page) = unsafe { (&*broker, &*client.cast::<ClientPage>()) };
    let is_understood = broker_page.head.magic.load(Ordering::Acquire) == BROKER_MAGIC
        && broker_page.head.layout.load(Ordering::Relaxed) == LAYOUT
        && client_page.head.magic.load(Ordering::Relaxed) == CLIENT_MAGIC
        && client_page.head.layout.load(Ordering::Relaxed) == LAYOUT;
    if !is_understood {
        return Err(Refusal::Final);
    }
    session.client = welcome.client;
    // SAFETY: `talk` is held, and nobody reads the job before the pages are published below.
    let job = unsafe { &mut *state.job.get() };
    job.number = welcome.job;
    job.is_default = welcome.flags & WELCOME_DEFAULT_JOB != 0;
    job.count = (welcome.device_count as usize).min(MAX_DEVICES);
    job.devices = welcome.devices;
    account::move_in(state, job, client_page, || {
        state.client_file.store(client, Ordering::Release);
        state.broker_page.store(broker, Ordering::Release);
        state.set_phase(Phase::Attached);
    });
    Ok(())
}

impl Session {
    fn drop_socket(&mut self) {
        self.socket.close();
    }

    /// The next number: even for an ask, odd for a question about use.
    fn next_sequence(&mut self, is_ask: bool) -> u32 {
        self.sequence = self.sequence.wrapping_add(2);
        self.sequence & !1 | u32::from(!is_ask)
    }
}

/// One round trip. `None`: nobody answered in time.
fn converse(state: &State, is_ask: bool, build: impl Fn(u32) -> Packet) -> Option<Answer> {
    let deadline = sys::now_ns().saturating_add(ASK_WAIT_NS);
    let _talk = state.talk.hold();
    // SAFETY: `talk` is held.
    let session = unsafe { &mut *state.session.get() };
    loop {
        if session.socket.fd().is_none() {
            let now = sys::now_ns();
            if now < state.nobody_until_ns.load(Ordering::Relaxed) || !connect(state, session, 0, deadline) {
                break;
            }
        }
        let sequence = session.next_sequence(is_ask);
        if socket::send(&session.socket, build(sequence).bytes()) {
            match wait_for_answer(state, session, sequence, deadline) {
                Wait::Answer(answer) => return Some(answer),
                Wait::Lost => {}
                // The connection stands, the broker does not move: nothing is gained by asking again.
                Wait::TimedOut => break,
            }
        }
        session.drop_socket();
        if sys::now_ns() >= deadline {
            break;
        }
    }
    state
        .nobody_until_ns
        .store(sys::now_ns().saturating_add(NOBODY_NS), Ordering::Relaxed);
    None
}

enum Wait {
    Answer(Answer),
    Lost,
    TimedOut,
}

fn wait_for_answer(state: &State, session: &Session, sequence: u32, deadline_ns: u64) -> Wait {
    loop {
        match socket::receive(&session.socket, deadline_ns) {
            Ok((ToClient::Answer(answer), descriptors)) => {
                socket::discard(descriptors);
                if answer.header.sequence == sequence {
                    return Wait::Answer(answer);
                }
                // Late: whoever asked has given up, and with it the grant that the broker keeps for it.
                if answer.header.sequence & 1 == 0 && answer.verdict == VERDICT_GRANTED {
                    settle(state, answer.slot as usize);
                }
            }
            Ok((ToClient::Refused(refused), descriptors)) => {
                socket::discard(descriptors);
                let text = refused.text.get(..refused.text_length as usize).unwrap_or(&[]);
                note::write(state, note::line().push("the broker says: ").push(text));
            }
            Ok((ToClient::Welcome(_), descriptors)) => socket::discard(descriptors),
            Err(Refusal::Busy) => return Wait::TimedOut,
            Err(_) => return Wait::Lost,
        }
    }
}

fn settle(state: &State, slot: usize) {
    if let Some(line) = state.client_page().and_then(|page| page.devices.get(slot)) {
        reservation::settle(&line.settled);
    }
}

/// A message ready to send, whichever it is.
enum Packet {
    Ask(Ask),
    Usage(Usage),
    Measure(Measure),
}

impl Packet {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Ask(ask) => ask.as_bytes(),
            Self::Usage(usage) => usage.as_bytes(),
            Self::Measure(measure) => measure.as_bytes(),
        }
    }
}

/// Asks for a grant of `wanted` bytes on a slot, for an allocation of `request`.
pub fn ask(state: &State, slot: usize, wanted: u64, request: u64) -> AskAnswer {
    let build = |sequence| {
        Packet::Ask(Ask {
            header: Ask::header(sequence),
            slot: slot as u32,
            reserved: 0,
            wanted,
            request,
        })
    };
    match converse(state, true, build) {
        Some(answer) => {
            if let Some(last) = state.last_job_used.get(slot) {
                // For the line that explains a denial.
                last.store(answer.job_used, Ordering::Relaxed);
            }
            match answer.verdict {
                VERDICT_GRANTED => AskAnswer::Granted,
                VERDICT_RETRY => AskAnswer::Retry,
                VERDICT_LIMIT => AskAnswer::Denied(Denial::Limit),
                VERDICT_CARD_FULL => AskAnswer::Denied(Denial::CardFull),
                _ => AskAnswer::Denied(Denial::Invalid),
            }
        }
        None => AskAnswer::Denied(Denial::NoBroker),
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
    /// Says so in one line.
    pub fn explain(&self, state: &State, slot: usize, what: &str) {
        explain::excess(state, slot, what, self.needed, (self.job_used, self.limit), self.denial);
    }
}

/// Has the broker compare what the driver holds for this process in a slot with what was charged (`MEASURE_*`).
///
/// # Errors
/// The [`Excess`] when the job is over its limit with it, or has no room for what is announced.
pub fn measure(state: &State, slot: usize, stage: u32) -> Result<(), Excess> {
    let build = |sequence| {
        Packet::Measure(Measure {
            header: Measure::header(sequence),
            slot: slot as u32,
            stage,
        })
    };
    // Nobody to measure: the next broker does, before it admits anything on the device.
    let Some(answer) = converse(state, false, build) else {
        return Ok(());
    };
    let denial = match answer.verdict {
        VERDICT_LIMIT => Denial::Limit,
        VERDICT_CARD_FULL => Denial::CardFull,
        _ => return Ok(()),
    };
    Err(Excess {
        denial,
        needed: answer.granted,
        limit: answer.limit,
        job_used: answer.job_used,
    })
}

/// What the whole job uses in a slot. `None`: nobody answered.
pub fn job_used(state: &State, slot: usize) -> Option<u64> {
    let build = |sequence| {
        Packet::Usage(Usage {
            header: Usage::header(sequence),
            slot: slot as u32,
            reserved: 0,
        })
    };
    converse(state, false, build).map(|answer| answer.job_used)
}

/// Says what the program sees after the driver initialised, now and at every reconnect.
pub fn send_devices(state: &State, devices: Devices) {
    let _talk = state.talk.hold();
    // SAFETY: `talk` is held.
    let session = unsafe { &mut *state.session.get() };
    session.devices = Some(devices);
    socket::send(&session.socket, devices.as_bytes());
}

/// Tells the broker something that needs no answer; lost when it is away.
#[cold]
pub fn notice(state: &State, what: u32, slot: usize, value: u64) {
    let _talk = state.talk.hold();
    // SAFETY: `talk` is held.
    let session = unsafe { &mut *state.session.get() };
    let notice = Notice {
        header: Notice::header(0),
        what,
        slot: slot as u32,
        value,
    };
    socket::send(&session.socket, notice.as_bytes());
}

/// An invariant of this process broke: its calls go straight to the driver from now on, and everybody is told.
#[cold]
pub fn turn_off(state: &State, place: u64) {
    if state.phase() == Phase::Off {
        return;
    }
    state.set_phase(Phase::Off);
    state.time.way.forget();
    note::write(
        state,
        note::line()
            .push("sharing is off in this process: broken invariant ")
            .push_number(place),
    );
    notice(state, NOTICE_SHARING_OFF, 0, place);
}

/// What [`keep_alive`] found.
pub enum Health {
    /// A broker is there; the step has waited already.
    Connected,
    /// None answered, or somebody else is talking to one right now: try again after a pause.
    Away,
}

/// One step of the background thread: notices a lost connection and tries to get it back.
pub fn keep_alive(state: &State, step_ns: u64) -> Health {
    let fd = {
        let _talk = state.talk.hold();
        // SAFETY: `talk` is held.
        unsafe { (*state.session.get()).socket.fd() }
    };
    if let Some(fd) = fd {
        // No event is asked for: only the other end's leaving is reported, answers stay for whoever asked.
        if sys::poll(fd, 0, step_ns) & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) == 0 {
            return Health::Connected;
        }
    }
    let Some(_talk) = state.talk.try_hold() else {
        return Health::Away;
    };
    // SAFETY: `talk` is held.
    let session = unsafe { &mut *state.session.get() };
    if let Some(fd) = session.socket.fd()
        && sys::poll(fd, 0, 0) & (libc::POLLHUP | libc::POLLERR) == 0
    {
        return Health::Connected;
    }
    // Short attempts: whoever needs an answer meanwhile waits for this lock.
    let is_back = connect(state, session, 0, sys::now_ns().saturating_add(RETRY_NS));
    if is_back {
        state.nobody_until_ns.store(0, Ordering::Relaxed);
        return Health::Connected;
    }
    Health::Away
}
