// SPDX-License-Identifier: Apache-2.0
//! Words for the search: an operation runs as real code, one shared access further each time it is resumed.
//!
//! A resumed operation runs again from its start; the results of its earlier accesses come from its log, the next one
//! is done on the shared words, and whatever follows gets answers that let it end (an exchange succeeds, a load is the
//! greatest number) and is thrown away. So an operation's state is its log, which can be hashed and cloned.

use std::cell::RefCell;

use partage_protocol::job_ledger::{Pages, Shared, Words};
use partage_protocol::reservation::{AskAnswer, Denial, Word};
use partage_protocol::units::ClientId;

pub const CLIENTS: usize = 3;
/// Positions of a client's words.
pub const LEDGER: usize = 0;
pub const GRANTED: usize = 1;
pub const USED: usize = 2;
pub const SETTLED: usize = 3;
pub const OVERHEAD: usize = 4;
pub const OWED: usize = 5;
pub const WORDS: usize = 6;

pub type Shelf = [[u64; WORDS]; CLIENTS];

/// What an operation does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// An access to a word, or sending a message: always possible.
    Access,
    /// Waits for the broker's answer.
    Receive,
    /// Waits until a client has finished so many operations.
    Await(usize, usize),
    /// It has returned.
    Finished,
}

/// What a client says to the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    Hello,
    Ask(u64),
}

/// One resumption.
pub struct Run {
    pub shelf: Shelf,
    pub log: Vec<u64>,
    position: usize,
    /// Accesses that may still be done for real.
    budget: usize,
    pub next: Next,
    pub sent: Option<Message>,
    /// What a receive answers, as `code(answer)`.
    pub answer: Option<u64>,
    /// The actor is its process's only thread: its own words change by its own hand alone, so reading them is no step.
    pub is_alone: bool,
    /// Bytes of the allocation that the operation is about.
    pub bytes: u64,
}

impl Run {
    pub fn new(shelf: Shelf, log: Vec<u64>, budget: usize, answer: Option<u64>) -> RefCell<Self> {
        RefCell::new(Self {
            shelf,
            log,
            position: 0,
            budget,
            next: Next::Finished,
            sent: None,
            answer,
            is_alone: false,
            bytes: 0,
        })
    }

    /// One access: `None` when the operation has used its budget and its result no longer counts.
    pub fn access(&mut self, kind: Next, effect: impl FnOnce(&mut Self) -> u64) -> Option<u64> {
        if let Some(known) = self.log.get(self.position) {
            self.position += 1;
            return Some(*known);
        }
        if self.next != Next::Finished {
            return None;
        }
        if self.budget == 0 {
            self.next = kind;
            return None;
        }
        self.budget -= 1;
        let result = effect(self);
        self.log.push(result);
        self.position += 1;
        Some(result)
    }

    /// A read of something that only this actor writes: no step of its own.
    fn read_own(&mut self, client: usize, word: usize) -> u64 {
        if let Some(known) = self.log.get(self.position) {
            self.position += 1;
            return *known;
        }
        if self.next != Next::Finished {
            return u64::MAX;
        }
        let value = self.shelf[client][word];
        self.log.push(value);
        self.position += 1;
        value
    }
}

/// A word on the shelf.
pub struct ReplayWord<'a> {
    pub run: &'a RefCell<Run>,
    pub client: usize,
    pub word: usize,
}

impl Word for ReplayWord<'_> {
    fn load(&self) -> u64 {
        let mut run = self.run.borrow_mut();
        // The broker's file is its own; the rest of this line is a lone client's own.
        if matches!(self.word, LEDGER | OVERHEAD | OWED) || (run.is_alone && self.word != GRANTED) {
            return run.read_own(self.client, self.word);
        }
        run.access(Next::Access, |run| run.shelf[self.client][self.word])
            .unwrap_or(u64::MAX)
    }

    fn store(&self, value: u64) {
        let _done = self.run.borrow_mut().access(Next::Access, |run| {
            run.shelf[self.client][self.word] = value;
            0
        });
    }

    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        let found = self.run.borrow_mut().access(Next::Access, |run| {
            let found = run.shelf[self.client][self.word];
            if found == current {
                run.shelf[self.client][self.word] = new;
            }
            found
        });
        match found {
            Some(found) if found != current => Err(found),
            _ => Ok(current),
        }
    }

    // The search interleaves in a sequentially consistent order; loom checks the fences.
    fn fence() {}
    fn fence_after_exchange() {}
}

/// All words, as the broker reaches them.
pub struct ReplayPages<'a> {
    words: Vec<[ReplayWord<'a>; WORDS]>,
    /// Whose pages this broker has.
    pub is_reachable: [bool; CLIENTS],
}

impl<'a> ReplayPages<'a> {
    pub fn new(run: &'a RefCell<Run>, is_reachable: [bool; CLIENTS]) -> Self {
        let words = (0..CLIENTS)
            .map(|client| [LEDGER, GRANTED, USED, SETTLED, OVERHEAD, OWED].map(|word| ReplayWord { run, client, word }))
            .collect();
        Self { words, is_reachable }
    }
}

impl<'a> Pages for ReplayPages<'a> {
    type Word = ReplayWord<'a>;
    fn words(&self, client: ClientId) -> Option<Words<'_, Self::Word>> {
        let at = usize::try_from(client.0).ok()?;
        let words = self.words.get(at)?;
        let shared = Shared {
            granted: &words[GRANTED],
            used: &words[USED],
            settled: &words[SETTLED],
        };
        Some(Words {
            ledger: &words[LEDGER],
            overhead: &words[OVERHEAD],
            owed: &words[OWED],
            shared: self.is_reachable[at].then_some(shared),
        })
    }
}

/// Sends a message and waits for the answer.
pub fn call(run: &RefCell<Run>, message: Message) -> AskAnswer {
    let _sent = run.borrow_mut().access(Next::Access, |run| {
        run.sent = Some(message);
        if let Message::Ask(wanted) = message {
            // From here on only `wanted` matters. A log that says no more than "U and the bytes make `wanted`, G is 0"
            // brings the code to this very point, and all ways that led here become one state. (It also starts the
            // count of attempts again, which the search has no use for: attempts without end are a cycle.)
            let bytes = run.bytes;
            run.log = vec![wanted.saturating_sub(bytes), 0];
            run.position = run.log.len();
        }
        0
    });
    let answer = run.borrow_mut().access(Next::Receive, |run| {
        run.answer.take().expect("only resumed with an answer")
    });
    answer.map_or(AskAnswer::Granted, decode)
}

pub fn code(answer: AskAnswer) -> u64 {
    match answer {
        AskAnswer::Granted => 0,
        AskAnswer::Retry => 1,
        AskAnswer::Denied(Denial::Limit) => 2,
        AskAnswer::Denied(Denial::CardFull) => 3,
        AskAnswer::Denied(Denial::NoBroker) => 4,
        AskAnswer::Denied(Denial::Invalid) => 5,
        AskAnswer::Denied(Denial::ProcessLimit) => 6,
        AskAnswer::Denied(Denial::Unfreed(pid)) => 7 | u64::from(pid) << 8,
    }
}

fn decode(code: u64) -> AskAnswer {
    match code {
        0 => AskAnswer::Granted,
        1 => AskAnswer::Retry,
        2 => AskAnswer::Denied(Denial::Limit),
        3 => AskAnswer::Denied(Denial::CardFull),
        4 => AskAnswer::Denied(Denial::NoBroker),
        6 => AskAnswer::Denied(Denial::ProcessLimit),
        code if code & 0xff == 7 => AskAnswer::Denied(Denial::Unfreed((code >> 8) as u32)),
        _ => AskAnswer::Denied(Denial::Invalid),
    }
}
