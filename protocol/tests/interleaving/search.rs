// SPDX-License-Identifier: Apache-2.0
//! The search itself: every successor of every state, and what must hold in each.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use xxhash_rust::xxh3::xxh3_128;

use crate::replay::{CLIENTS, GRANTED, LEDGER, Message, Next, OVERHEAD, OWED, USED, WORDS};
use crate::state::{Broker, Client, Job, Mail, Move, Op, Overhead, Programs, State};

/// Far more than any scenario has: beyond it there is a cycle in which a counter grows.
const STATES: usize = 8_000_000;

/// One search.
#[derive(Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    pub limit: u64,
    pub own_limits: [Option<u64>; CLIENTS],
    pub programs: [&'static [Op]; CLIENTS],
    pub words_of: [usize; CLIENTS],
    pub broker_kills: u8,
    pub client_kills: u8,
    pub expiries: u8,
    pub new_limit: Option<u64>,
    /// Overhead that is measured or announced, in this order, each at any step.
    pub overheads: &'static [Overhead],
    /// Ways off the device and back, in this order, each step at any time.
    pub moves: &'static [Move],
    /// All are attached before the search begins.
    pub is_attached: bool,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            name: "",
            limit: 5,
            own_limits: [None; CLIENTS],
            programs: [&[], &[], &[]],
            words_of: [0, 1, 2],
            broker_kills: 0,
            client_kills: 0,
            expiries: 0,
            new_limit: None,
            overheads: &[],
            moves: &[],
            is_attached: false,
        }
    }
}

/// What a search found.
#[derive(Debug)]
pub struct Found {
    pub violation: Option<String>,
}

impl Found {
    pub fn expect_no_violation(self) {
        if let Some(violation) = self.violation {
            panic!("{violation}");
        }
    }
}

/// How a state was reached: its last step and the position of the state before; the first has neither.
type Trace = Option<(Step, usize)>;

/// A transition's name.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "read by Debug in reports")]
pub enum Step {
    Client(usize, Next),
    Broker(Job),
    BrokerGoesOn(Job),
    BrokerRestarts,
    BrokerKilled,
    ClientKilled(usize),
    PinsRunOut,
}

/// Visits every reachable state; `at_rest` judges those in which nothing can move any more.
pub fn search(scenario: &Scenario, at_rest: impl Fn(&State) -> Result<(), String>) -> Found {
    let programs = Programs {
        ops: scenario.programs,
        words_of: scenario.words_of,
    };
    let first = initial(scenario, &programs);
    let mut bytes = Bytes::default();
    let mut seen = Seen::from_iter([bytes.fingerprint(&first)]);
    let mut traces: Vec<Trace> = vec![None];
    let mut stack: Vec<(State, usize)> = vec![(first, 0)];
    let (mut transitions, mut rests) = (0u64, 0u64);
    let mut violation = None;
    'states: while let Some((state, at)) = stack.pop() {
        let (next, can_move) = successors(&state, &programs);
        if !can_move {
            rests += 1;
            if let Err(why) = everything_is_settled(&state, &programs).and_then(|()| at_rest(&state)) {
                violation = Some(report(scenario, &why, &state, &traces, at));
                break 'states;
            }
        }
        for (step, after) in next {
            transitions += 1;
            if !seen.insert(bytes.fingerprint(&after)) {
                continue;
            }
            let judged = judge(&state, &after);
            traces.push(Some((step, at)));
            if let Err(why) = judged {
                violation = Some(report(scenario, &why, &after, &traces, traces.len() - 1));
                break 'states;
            }
            stack.push((after, traces.len() - 1));
        }
        if seen.len() > STATES {
            let why =
                "the search does not end: something grows for ever, as when two siblings take turns without result";
            violation = Some(report(scenario, why, &state, &traces, at));
            break 'states;
        }
    }
    println!(
        "{}: {} states, {transitions} transitions, {rests} ends",
        scenario.name,
        seen.len()
    );
    Found { violation }
}

fn initial(scenario: &Scenario, programs: &Programs<'_>) -> State {
    let client = Client {
        is_alive: true,
        has_row: false,
        step: 0,
        log: Vec::new(),
        next: Next::Finished,
        held: 0,
        to_refund: 0,
        is_at_hold: false,
        away: 0,
        outcomes: Vec::new(),
        mail: Mail::Empty,
    };
    let mut state = State {
        shelf: [[0; WORDS]; CLIENTS],
        clients: [client.clone(), client.clone(), client],
        broker: None::<Broker>,
        limit: scenario.limit,
        own_limits: scenario.own_limits,
        now_ns: 0,
        broker_kills: scenario.broker_kills,
        client_kills: scenario.client_kills,
        expiries: scenario.expiries,
        new_limit: scenario.new_limit,
        overheads: scenario.overheads,
        moves: scenario.moves,
    };
    state.restart_broker();
    if scenario.is_attached {
        for at in (0..CLIENTS).filter(|at| State::is_process(programs, *at) && !programs.ops[*at].is_empty()) {
            state.resume_broker(Some(Job::Attach(at)), programs);
            while state.broker.as_ref().is_some_and(|broker| broker.job.is_some()) {
                state.resume_broker(None, programs);
            }
            state.clients[at].mail = Mail::Empty;
        }
    }
    for at in 0..CLIENTS {
        state.resume_client(at, 0, programs);
    }
    state
}

/// All that can happen next, and whether anything but kills and time can.
fn successors(state: &State, programs: &Programs<'_>) -> (Vec<(Step, State)>, bool) {
    let mut all = Vec::new();
    for at in 0..CLIENTS {
        let client = &state.clients[at];
        let is_ready = match client.next {
            Next::Access => true,
            Next::Receive => matches!(client.mail, Mail::Answered(_)),
            Next::Await(other, steps) => state.clients[other].step >= steps,
            Next::Finished => false,
        };
        // What has begun under an open hold goes on: whoever closes it waits for that.
        if client.is_alive && is_ready && !client.is_at_hold {
            let mut after = state.clone();
            after.resume_client(at, 1, programs);
            all.push((Step::Client(at, client.next), after));
        }
    }
    match &state.broker {
        Some(Broker { job: Some(work), .. }) => {
            let mut after = state.clone();
            after.resume_broker(None, programs);
            all.push((Step::BrokerGoesOn(work.job), after));
        }
        Some(broker) => {
            for job in startable(state, broker, programs) {
                let mut after = state.clone();
                if let Job::Move(Move::Leave(at)) = job {
                    after.begin_leaving(at);
                }
                after.resume_broker(Some(job), programs);
                all.push((Step::Broker(job), after));
            }
        }
        None => {
            let mut after = state.clone();
            after.restart_broker();
            all.push((Step::BrokerRestarts, after));
        }
    }
    let can_move = !all.is_empty();
    if state.broker_kills > 0 && state.broker.is_some() {
        let mut after = state.clone();
        after.broker_kills -= 1;
        after.kill_broker();
        all.push((Step::BrokerKilled, after));
    }
    if state.client_kills > 0 {
        for process in (0..CLIENTS).filter(|at| {
            State::is_process(programs, *at) && !programs.ops[*at].is_empty() && state.clients[*at].is_alive
        }) {
            let mut after = state.clone();
            after.client_kills -= 1;
            after.kill_process(process, programs);
            all.push((Step::ClientKilled(process), after));
        }
    }
    if state.expiries > 0 {
        let mut after = state.clone();
        after.expiries -= 1;
        after.run_out_pins();
        all.push((Step::PinsRunOut, after));
    }
    (all, can_move)
}

/// What the idle broker could do.
fn startable(state: &State, broker: &Broker, programs: &Programs<'_>) -> Vec<Job> {
    let mut jobs = Vec::new();
    for at in 0..CLIENTS {
        let client = &state.clients[at];
        let process = programs.words_of[at];
        match client.mail {
            Mail::Sent(Message::Hello) => jobs.push(Job::Attach(at)),
            // A client that lost its broker comes back with its pages before it asks.
            Mail::Sent(Message::Ask(wanted)) if broker.is_reachable[process] => jobs.push(Job::Ask(at, wanted)),
            _ => {}
        }
        if process != at || !client.has_row {
            continue;
        }
        if !client.is_alive {
            jobs.push(Job::Death(at));
        } else if !broker.is_reachable[at] {
            jobs.push(Job::Reattach(at));
        }
    }
    jobs.extend(state.new_limit.map(Job::SetLimit));
    jobs.extend(state.overheads.first().map(|overhead| match *overhead {
        Overhead::Measured(at, bytes) => Job::SetOverhead(at, bytes),
        Overhead::Announced(at, bytes) => Job::ReserveOverhead(at, bytes),
        Overhead::Limited(at, bytes) => Job::SetOwnLimit(at, bytes),
    }));
    jobs.extend(
        state
            .moves
            .first()
            .filter(|step| may_move(state, **step))
            .map(|step| Job::Move(*step)),
    );
    jobs
}

/// A client leaves once it has a row, nobody of it is in the driver, and no ask of it is on its way. Of a client that
/// died meanwhile nothing is moved.
fn may_move(state: &State, step: Move) -> bool {
    let client = &state.clients[step.client()];
    let is_between = client.log.is_empty() && client.mail == Mail::Empty && client.to_refund == 0;
    client.is_alive && client.has_row && (client.is_at_hold || is_between)
}

/// The invariants of every state.
fn judge(before: &State, after: &State) -> Result<(), String> {
    let sum = |state: &State| (0..CLIENTS).map(|at| state.shelf[at][LEDGER]).sum::<u64>();
    let (was, is) = (sum(before), sum(after));
    let overhead = |state: &State| (0..CLIENTS).map(|at| state.shelf[at][OVERHEAD]).sum::<u64>();
    // A limit that is being lowered counts from the end of that work; overhead at the instant in which it is known.
    let (limit, beyond) = (after.limit, overhead(after));
    if is + beyond > limit && is > was {
        return Err(format!("the ledger grew to {is} and {beyond} beyond the limit {limit}"));
    }
    let is_reserving = |state: &State| {
        let work = state.broker.as_ref().and_then(|broker| broker.job.as_ref());
        work.is_some_and(|work| matches!(work.job, Job::ReserveOverhead(..)))
    };
    if is + beyond > limit && beyond > overhead(before) && is_reserving(before) {
        return Err(format!(
            "an announced context was granted {beyond} beside {is} of {limit}"
        ));
    }
    for (at, limit) in after.own_limits.iter().enumerate() {
        // A client of its way back has its P as L, and nothing measured.
        let [was, ..] = before.shelf[at];
        let [is, _, _, _, beyond, owed] = after.shelf[at];
        let grew = is > was || beyond > before.shelf[at][OVERHEAD] && is_reserving(before);
        if let Some(limit) = limit.filter(|limit| is + beyond > *limit && grew && owed == 0) {
            return Err(format!(
                "client {at} was granted {is} and {beyond} beyond its own limit {limit}"
            ));
        }
    }
    let held: u64 = after.clients.iter().map(|client| client.held).sum();
    if held > is {
        return Err(format!("the driver holds {held} and the ledger only {is}"));
    }
    for (at, client) in after.clients.iter().enumerate().filter(|(_, client)| client.is_alive) {
        let [ledger, _, used, _, _, owed] = after.shelf[at];
        if client.away > ledger.max(owed) {
            let away = client.away;
            return Err(format!(
                "client {at} has {away} away, and the books say {ledger} and {owed}"
            ));
        }
        let is_back = after.shelf[at][GRANTED] != 0 && client.away != 0;
        if is_back && owed != 0 && before.shelf[at][OWED] == owed && before.shelf[at][GRANTED] == 0 {
            return Err(format!("client {at} was granted something while it was away"));
        }
        if client.held > ledger || client.held + client.to_refund > used {
            let held = client.held;
            return Err(format!(
                "client {at} holds {held}, its ledger says {ledger}, its use {used}"
            ));
        }
    }
    Ok(())
}

/// At rest nobody waits, nothing leaked, the dead hold nothing.
fn everything_is_settled(state: &State, programs: &Programs<'_>) -> Result<(), String> {
    let broker = state.broker.as_ref().ok_or("no broker at rest")?;
    for (at, client) in state.clients.iter().enumerate() {
        if client.is_alive && client.next != Next::Finished && !client.is_at_hold {
            return Err(format!("client {at} waits for ever: {:?}", client.next));
        }
        if !State::is_process(programs, at) {
            continue;
        }
        let [ledger, granted, used, _, _, owed] = state.shelf[at];
        if client.has_row && client.is_at_hold != (owed != 0) {
            return Err(format!(
                "client {at} stands at the hold: {}; P is {owed}",
                client.is_at_hold
            ));
        }
        if client.is_at_hold {
            if (ledger, granted, client.held) != (0, 0, 0) {
                return Err(format!("client {at} is away and holds {ledger}, is shown {granted}"));
            }
            continue;
        }
        if !client.is_alive && ledger != 0 && client.has_row {
            return Err(format!("dead client {at} keeps {ledger}"));
        }
        if client.is_alive && client.has_row && used != client.held + client.to_refund {
            return Err(format!("client {at} drifted: use {used}, held {}", client.held));
        }
        // Over a lowered limit everybody is frozen: shown nothing, so that what is freed is not taken back.
        let held: u64 = state.shelf.iter().map(|words| words[LEDGER] + words[OVERHEAD]).sum();
        let [.., beyond, _] = state.shelf[at];
        let is_beyond_own = state.own_limits[at].is_some_and(|limit| ledger + beyond > limit);
        let is_over = held > state.limit || is_beyond_own;
        let shown = if is_over { 0 } else { ledger };
        if client.is_alive && client.has_row && broker.is_reachable[at] && granted != shown {
            return Err(format!("client {at} is shown {granted} and has {ledger}"));
        }
    }
    debug_assert!(
        state
            .shelf
            .iter()
            .all(|words| words[GRANTED] < u64::MAX && words[USED] < u64::MAX)
    );
    Ok(())
}

fn report(scenario: &Scenario, why: &str, state: &State, traces: &[Trace], mut at: usize) -> String {
    let mut steps = Vec::new();
    while let Some((step, before)) = traces[at] {
        steps.push(format!("{step:?}"));
        at = before;
    }
    steps.reverse();
    format!(
        "{}: {why}\n  after: {}\n  state: {state:#?}",
        scenario.name,
        steps.join("\n         ")
    )
}

/// The states that were reached, by their fingerprints.
type Seen = HashSet<u128, BuildHasherDefault<Low>>;

/// What a state feeds into a hasher, in order: hashed as a whole, which is most of the search's time otherwise.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    /// 128 bits: with a million states a chance of 10^-27 that two share one.
    fn fingerprint(&mut self, state: &State) -> u128 {
        self.0.clear();
        state.hash(self);
        xxh3_128(&self.0)
    }
}

impl Hasher for Bytes {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
    fn finish(&self) -> u64 {
        unreachable!("the bytes are asked for")
    }
}

/// The low half of a fingerprint, which is as good a hash as any.
#[derive(Default)]
struct Low(u64);

impl Hasher for Low {
    fn write(&mut self, _: &[u8]) {
        unreachable!("fingerprints are numbers")
    }
    fn write_u128(&mut self, fingerprint: u128) {
        self.0 = fingerprint as u64;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}
