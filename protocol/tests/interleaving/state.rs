// SPDX-License-Identifier: Apache-2.0
//! A state of the search: words, clients, broker; and how each of them moves by one step.

use std::cell::RefCell;

use partage_protocol::job_ledger::{JobLedger, PIN_NS, Verdict};
use partage_protocol::reservation::{AskAnswer, ClientWords, Denial, Word, refund, reserve, settle};
use partage_protocol::units::ClientId;

use crate::replay::{
    CLIENTS, GRANTED, Message, Next, ReplayPages, ReplayWord, Run, SETTLED, Shelf, USED, WORDS, call, code,
};

/// What a client's program does, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Says hello and waits for the welcome.
    Attach,
    /// Reserves; the driver then allocates.
    Allocate(u64),
    /// Reserves without the second look at G: the planted defect.
    AllocateCarelessly(u64),
    /// Reserves, the driver refuses, the bytes go back.
    AllocateInVain(u64),
    /// The driver frees (where that much is held).
    DriverFree(u64),
    /// The bytes that the driver freed go back.
    Refund(u64),
    /// Waits until the client `.0` has finished `.1` operations.
    Await(usize, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    Done,
    Denied(Denial0),
}

/// [`Denial`] with a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Denial0 {
    Limit,
    ProcessLimit,
    NoBroker,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mail {
    Empty,
    Sent(Message),
    Answered(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    pub is_alive: bool,
    /// The ledger has a row for it.
    pub has_row: bool,
    pub step: usize,
    pub log: Vec<u64>,
    pub next: Next,
    /// Bytes that the driver holds for it.
    pub held: u64,
    /// Freed by the driver and not given back yet.
    pub to_refund: u64,
    /// No operation of it begins.
    pub is_at_hold: bool,
    /// What the driver holds of it in the host's memory.
    pub away: u64,
    pub outcomes: Vec<Outcome>,
    pub mail: Mail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Job {
    Attach(usize),
    Ask(usize, u64),
    Death(usize),
    Reattach(usize),
    SetLimit(u64),
    /// What the driver holds beyond the charges of a client was measured.
    SetOverhead(usize, u64),
    /// A client announces a context of so many bytes.
    ReserveOverhead(usize, u64),
    /// A client gets a limit of its own.
    SetOwnLimit(usize, u64),
    Move(Move),
}

/// A step of a client's way off the device and back, each of which may begin again under the next broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Move {
    /// Its threads stand at the hold and the driver holds nothing for it any more.
    Leave(usize),
    /// It gets its room again; then the driver restores it. Given up where there is none.
    MakeReturn(usize),
    /// The driver has restored it; then its threads go on.
    CameBack(usize),
}

impl Move {
    pub fn client(self) -> usize {
        let (Self::Leave(at) | Self::MakeReturn(at) | Self::CameBack(at)) = self;
        at
    }
}

/// Something about overhead, or about a client's own limit, that the broker does at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overhead {
    Measured(usize, u64),
    Announced(usize, u64),
    Limited(usize, u64),
}

/// A job in progress: what, when it began (an event carries its time), and its log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Work {
    pub job: Job,
    now_ns: u64,
    log: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Broker {
    pub ledger: JobLedger,
    pub is_reachable: [bool; CLIENTS],
    /// What it does now, and how far.
    pub job: Option<Work>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub shelf: Shelf,
    pub clients: [Client; CLIENTS],
    pub broker: Option<Broker>,
    pub limit: u64,
    /// What single clients may hold at most.
    pub own_limits: [Option<u64>; CLIENTS],
    pub now_ns: u64,
    pub broker_kills: u8,
    pub client_kills: u8,
    pub expiries: u8,
    pub new_limit: Option<u64>,
    /// What is still to be measured, in order.
    pub overheads: &'static [Overhead],
    /// Steps of clients' ways off the device and back that are still to be done, in order.
    pub moves: &'static [Move],
}

/// What the programs are and whose words they use; the same in every state of a search.
#[derive(Clone, Copy)]
pub struct Programs<'a> {
    pub ops: [&'a [Op]; CLIENTS],
    /// Threads of one process share a client's words.
    pub words_of: [usize; CLIENTS],
}

impl State {
    /// Is thread `at` the first of its process?
    pub fn is_process(programs: &Programs<'_>, at: usize) -> bool {
        programs.words_of[at] == at
    }

    /// Resumes a client's operation with `budget` more accesses (0: only finds out what it waits for).
    pub fn resume_client(&mut self, at: usize, budget: usize, programs: &Programs<'_>) {
        let Some(op) = programs.ops[at].get(self.clients[at].step).copied() else {
            self.clients[at].next = Next::Finished;
            return;
        };
        let answer = match self.clients[at].mail {
            Mail::Answered(answer) => Some(answer),
            _ => None,
        };
        let run = Run::new(self.shelf, self.clients[at].log.clone(), budget, answer);
        run.borrow_mut().is_alone = programs
            .words_of
            .iter()
            .filter(|words| **words == programs.words_of[at])
            .count()
            == 1;
        if let Op::Allocate(bytes) | Op::AllocateCarelessly(bytes) | Op::AllocateInVain(bytes) = op {
            run.borrow_mut().bytes = bytes;
        }
        let result = perform(&run, op, programs.words_of[at], &self.clients[at]);
        let run = run.into_inner();
        self.shelf = run.shelf;
        let next = run.next;
        let client = &mut self.clients[at];
        if answer.is_some() && run.answer.is_none() {
            client.mail = Mail::Empty;
        }
        if let Some(message) = run.sent {
            let no_broker = code(AskAnswer::Denied(Denial::NoBroker));
            client.mail = if self.broker.is_some() {
                Mail::Sent(message)
            } else {
                Mail::Answered(no_broker)
            };
        }
        client.log = run.log;
        client.next = next;
        if next != Next::Finished {
            return;
        }
        client.log.clear();
        client.step += 1;
        self.settle_client(at, op, result, programs);
        // What does the next operation wait for?
        self.resume_client(at, 0, programs);
    }

    /// The operation returned: what does the driver do?
    fn settle_client(&mut self, at: usize, op: Op, result: Result<(), Denial>, programs: &Programs<'_>) {
        let process = programs.words_of[at];
        match (op, result) {
            (Op::Allocate(bytes) | Op::AllocateCarelessly(bytes), Ok(())) => self.clients[process].held += bytes,
            (Op::DriverFree(bytes), _) if self.clients[process].held >= bytes => {
                self.clients[process].held -= bytes;
                self.clients[process].to_refund += bytes;
            }
            // It says hello again; the broker takes the row of the same process.
            (Op::Attach, Err(_)) => self.clients[at].step -= 1,
            (Op::Refund(_), _) => self.clients[process].to_refund = 0,
            _ => {}
        }
        let outcome = match result {
            Ok(()) => Outcome::Done,
            Err(Denial::Limit) => Outcome::Denied(Denial0::Limit),
            Err(Denial::ProcessLimit) => Outcome::Denied(Denial0::ProcessLimit),
            Err(Denial::NoBroker) => Outcome::Denied(Denial0::NoBroker),
            Err(_) => Outcome::Denied(Denial0::Other),
        };
        // Only the last outcome is ever looked at, so earlier ones would only multiply states.
        self.clients[at].outcomes = vec![outcome];
    }

    /// Resumes the broker's work by one access, after starting it if need be.
    pub fn resume_broker(&mut self, started: Option<Job>, programs: &Programs<'_>) {
        let Some(broker) = self.broker.as_mut() else { return };
        if let Some(job) = started {
            broker.job = Some(Work {
                job,
                now_ns: self.now_ns,
                log: Vec::new(),
            });
        }
        let Some(Work { job, now_ns, log }) = broker.job.take() else {
            return;
        };
        if let Job::Attach(at) | Job::Reattach(at) = job {
            // The ledger's row names the process before any L is written there.
            broker.is_reachable[at] = true;
            self.clients[at].has_row = true;
        }
        let run = Run::new(self.shelf, log, 1, None);
        let mut ledger = broker.ledger.clone();
        let answer = work(&run, &mut ledger, job, broker.is_reachable, (now_ns, programs));
        let run = run.into_inner();
        self.shelf = run.shelf;
        if run.next != Next::Finished {
            broker.job = Some(Work {
                job,
                now_ns,
                log: run.log,
            });
            return;
        }
        broker.ledger = ledger;
        match job {
            Job::Attach(at) => {
                self.clients[at].mail = Mail::Answered(code(AskAnswer::Granted));
            }
            Job::Ask(at, _) => self.clients[at].mail = Mail::Answered(code(answer)),
            Job::Death(at) => {
                self.clients[at].has_row = false;
                // Nobody reads these words any more.
                self.shelf[at] = [0; WORDS];
                for thread in 0..CLIENTS {
                    if programs.words_of[thread] == at {
                        self.clients[thread].mail = Mail::Empty;
                    }
                }
            }
            Job::SetLimit(limit) => {
                self.limit = limit;
                self.new_limit = None;
            }
            Job::SetOverhead(..) | Job::ReserveOverhead(..) => self.overheads = &self.overheads[1..],
            Job::SetOwnLimit(at, limit) => {
                self.overheads = &self.overheads[1..];
                self.own_limits[at] = Some(limit);
            }
            Job::Move(step) => self.end_move(step, answer),
            Job::Reattach(_) => {}
        }
    }

    /// Nobody of the client is in the driver, which has checkpointed it.
    pub fn begin_leaving(&mut self, at: usize) {
        let client = &mut self.clients[at];
        client.is_at_hold = true;
        client.away += std::mem::take(&mut client.held);
    }

    /// What the driver and the hold do once the ledger is done.
    fn end_move(&mut self, step: Move, answer: AskAnswer) {
        let client = &mut self.clients[step.client()];
        self.moves = &self.moves[1..];
        match step {
            Move::MakeReturn(_) if answer == AskAnswer::Granted => client.held += std::mem::take(&mut client.away),
            // No room: it stays away, and the step that would follow is not done.
            Move::MakeReturn(_) => self.moves = &self.moves[1..],
            Move::CameBack(_) => client.is_at_hold = false,
            Move::Leave(_) => {}
        }
    }

    /// A new broker: it has the ledger's L words and nobody's pages.
    pub fn restart_broker(&mut self) {
        let mut ledger = JobLedger::new(self.limit, self.limit);
        let run = Run::new(self.shelf, Vec::new(), 0, None);
        let is_reachable = [false; CLIENTS];
        for at in 0..CLIENTS {
            let pages = ReplayPages::new(&run, is_reachable);
            ledger.set_own_limit(&pages, ClientId(at as u64), self.own_limits[at], 0);
            if self.clients[at].has_row {
                ledger.adopt(&ReplayPages::new(&run, is_reachable), ClientId(at as u64));
            }
        }
        self.broker = Some(Broker {
            ledger,
            is_reachable,
            job: None,
        });
    }

    pub fn kill_broker(&mut self) {
        self.broker = None;
        for client in &mut self.clients {
            if matches!(client.mail, Mail::Sent(_)) {
                client.mail = Mail::Answered(code(AskAnswer::Denied(Denial::NoBroker)));
            }
        }
    }

    pub fn kill_process(&mut self, process: usize, programs: &Programs<'_>) {
        for thread in 0..CLIENTS {
            if programs.words_of[thread] == process {
                let client = &mut self.clients[thread];
                client.is_alive = false;
                client.held = 0;
                client.away = 0;
                client.is_at_hold = false;
                client.to_refund = 0;
                client.step = usize::MAX;
                client.outcomes.clear();
                client.log.clear();
                client.next = Next::Finished;
                client.mail = Mail::Empty;
            }
        }
    }

    pub fn run_out_pins(&mut self) {
        self.now_ns += PIN_NS;
    }
}

/// A client's operation as real code.
fn perform(run: &RefCell<Run>, op: Op, process: usize, client: &Client) -> Result<(), Denial> {
    let word = |word| ReplayWord {
        run,
        client: process,
        word,
    };
    let (granted, used, settled) = (word(GRANTED), word(USED), word(SETTLED));
    let words = ClientWords {
        used: &used,
        granted: &granted,
        settled: &settled,
    };
    let ask = |wanted| call(run, Message::Ask(wanted));
    match op {
        Op::Attach => match call(run, Message::Hello) {
            AskAnswer::Granted => Ok(()),
            _ => Err(Denial::NoBroker),
        },
        Op::Allocate(bytes) => reserve(&words, bytes, ask),
        Op::AllocateInVain(bytes) => {
            reserve(&words, bytes, ask)?;
            let _left = refund(&used, bytes);
            Ok(())
        }
        Op::AllocateCarelessly(bytes) => reserve_carelessly(&words, bytes, ask),
        Op::DriverFree(_) => {
            // A step of its own: what the driver holds must be seen before and after.
            let _freed = run.borrow_mut().access(Next::Access, |_| 0);
            Ok(())
        }
        Op::Refund(_) => {
            if client.to_refund > 0 {
                let _left = refund(&used, client.to_refund);
            }
            Ok(())
        }
        Op::Await(other, steps) => {
            let _waited = run.borrow_mut().access(Next::Await(other, steps), |_| 0);
            Ok(())
        }
    }
}

/// [`reserve`] without the second look at G.
fn reserve_carelessly<W: Word>(
    words: &ClientWords<'_, W>,
    bytes: u64,
    ask: impl Fn(u64) -> AskAnswer,
) -> Result<(), Denial> {
    for _ in 0..4 {
        let before = words.used.load();
        let after = before.saturating_add(bytes);
        if after <= words.granted.load() {
            if words.used.compare_exchange(before, after).is_ok() {
                return Ok(());
            }
            continue;
        }
        match ask(after) {
            AskAnswer::Denied(why) => return Err(why),
            AskAnswer::Granted => settle(words.settled),
            AskAnswer::Retry => {}
        }
    }
    Err(Denial::Limit)
}

/// The broker's work as real code.
fn work(
    run: &RefCell<Run>,
    ledger: &mut JobLedger,
    job: Job,
    is_reachable: [bool; CLIENTS],
    (now_ns, programs): (u64, &Programs<'_>),
) -> AskAnswer {
    let pages = ReplayPages::new(run, is_reachable);
    let id = |thread: usize| ClientId(programs.words_of[thread] as u64);
    match job {
        Job::Attach(at) => ledger.attach(&pages, id(at), now_ns),
        Job::Death(at) => ledger.death(&pages, id(at), now_ns),
        Job::Reattach(at) => ledger.adopt(&pages, id(at)),
        Job::SetLimit(limit) => {
            ledger.set_limit(&pages, limit, limit, now_ns);
        }
        Job::SetOverhead(at, bytes) => ledger.set_overhead(&pages, id(at), bytes, now_ns),
        Job::ReserveOverhead(at, bytes) => {
            let _verdict = ledger.reserve_overhead(&pages, id(at), bytes, now_ns);
        }
        Job::SetOwnLimit(at, limit) => ledger.set_own_limit(&pages, id(at), Some(limit), now_ns),
        Job::Ask(at, wanted) => return answer(ledger.ask(&pages, id(at), wanted, now_ns).verdict),
        Job::Move(Move::Leave(at)) => {
            let _owed = ledger.leave(&pages, id(at), now_ns);
        }
        Job::Move(Move::MakeReturn(at)) => return answer(ledger.make_return(&pages, id(at), now_ns)),
        Job::Move(Move::CameBack(at)) => ledger.came_back(&pages, id(at), now_ns),
    }
    AskAnswer::Granted
}

fn answer(verdict: Verdict) -> AskAnswer {
    match verdict {
        Verdict::Granted => AskAnswer::Granted,
        Verdict::Retry => AskAnswer::Retry,
        Verdict::Limit => AskAnswer::Denied(Denial::Limit),
        Verdict::ProcessLimit => AskAnswer::Denied(Denial::ProcessLimit),
        Verdict::CardFull { .. } => AskAnswer::Denied(Denial::CardFull),
        Verdict::Invalid => AskAnswer::Denied(Denial::Invalid),
    }
}
