// SPDX-License-Identifier: Apache-2.0
//! The life of a job: its states, what can happen to it, and the state that follows, as one table.
//!
//! ```text
//!             Admitted               Emptied                  LingerOver, PlaceWanted
//!   Waiting ───────────► Running ───────────────► Lingering ─────────────────────────► Ended
//!    │   ▲                │ │ ▲                    │  │                                ▲  │
//!    │   └────────────────┘ │ └────────────────────┘  │ EmptiedStopping                │  │ Expired
//!    │       RoomTaken      │        Resumed          └────────────────────────────────┤  ▼
//!    │ GivenUp              └──────────────────────────────────────────────────────────┘ (forgotten)
//!    ▼                                       EmptiedStopping
//!   (forgotten)
//! ```
//! *Running*: the job was admitted and a process of it may run. *Lingering*: no process of it is left; a child that has
//! not met the driver yet may still attach. *Ended*: nothing changes any more; the job answers `why` until it is
//! forgotten. A job is new in *Waiting* (a request of `run`), *Running* (a default job, or one that is adopted) or
//! *Ended* (remembered by the broker before).
//!
//! Over limit, stopped and dying are no states of this table: they follow from memory and processes of a running job
//! ([`JobState`](super::JobState)). Neither is a stop that was ordered: it decides only where an emptied job goes.
//!
//! A new state is a row of [`TABLE`], and an answer to each question of [`State`]; a new happening is a column.

use partage_protocol::units::SECOND_NS;

use super::queued::Queued;

/// A job outlives its last process by this much, for a child that has not met the driver yet.
pub const LINGER_NS: u64 = 5 * SECOND_NS;
/// Ended jobs are shown this long.
pub const REMEMBER_NS: u64 = 24 * 3_600 * SECOND_NS;

/// Where a job is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// In the queue.
    Waiting,
    /// Admitted.
    Running,
    /// No process is left, and a late child may still come.
    Lingering,
    /// Over.
    Ended,
}

/// What can happen to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    /// It has its devices.
    Admitted,
    /// Other jobs used what it was admitted to, before it was told.
    RoomTaken,
    /// Its request is withdrawn, refused, or answered by another job.
    GivenUp,
    /// Its first process and all of its clients are gone.
    Emptied,
    /// Likewise, and it was told to stop.
    EmptiedStopping,
    /// A process of it attached, or asked for it.
    Resumed,
    /// The time for a late child has passed.
    LingerOver,
    /// A request needs what it holds, or its name.
    PlaceWanted,
    /// It was remembered for long enough.
    Expired,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another state.
    To(State),
    /// The same state.
    Stays,
    /// The job is removed.
    Forgotten,
    /// That cannot happen in this state; who says so all the same is ignored.
    Impossible,
}

impl State {
    /// All of them, in the order of the table's rows.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 4] = [Self::Waiting, Self::Running, Self::Lingering, Self::Ended];
}

impl Happening {
    /// All of them, in the order of the table's columns.
    #[cfg(test)]
    pub(crate) const ALL: [Self; COLUMNS] = [
        Self::Admitted,
        Self::RoomTaken,
        Self::GivenUp,
        Self::Emptied,
        Self::EmptiedStopping,
        Self::Resumed,
        Self::LingerOver,
        Self::PlaceWanted,
        Self::Expired,
    ];
}

const COLUMNS: usize = 9;
const NO: Next = Next::Impossible;
const SAME: Next = Next::Stays;
const GONE: Next = Next::Forgotten;
const WAIT: Next = Next::To(State::Waiting);
const RUN: Next = Next::To(State::Running);
const LING: Next = Next::To(State::Lingering);
const END: Next = Next::To(State::Ended);

/// The state that follows, by state (rows) and happening (columns), both in the order of their variants.
#[rustfmt::skip]
const TABLE: [[Next; COLUMNS]; 4] = [
    //            Admitted RoomTaken GivenUp Emptied EmptiedStopping Resumed LingerOver PlaceWanted Expired
    /* Waiting   */ [RUN,  NO,       GONE,   NO,     NO,             NO,     NO,        NO,         NO],
    /* Running   */ [NO,   WAIT,     NO,     LING,   END,            SAME,   NO,        NO,         NO],
    /* Lingering */ [NO,   NO,       NO,     SAME,   END,            RUN,    END,       END,        NO],
    /* Ended     */ [NO,   NO,       NO,     NO,     NO,             NO,     NO,        NO,         GONE],
];

impl State {
    /// What follows when that happens in this state.
    pub(crate) const fn after(self, what: Happening) -> Next {
        TABLE[self as usize][what as usize]
    }

    /// Memory of its devices is charged to it.
    pub(crate) const fn holds_memory(self) -> bool {
        self.was_admitted()
    }

    /// Its promises of memory and of time are kept for it.
    pub(crate) const fn counts_as_promised(self) -> bool {
        self.was_admitted()
    }

    /// Its work may have its devices' time.
    pub(crate) const fn may_get_time(self) -> bool {
        self.was_admitted()
    }

    /// A process that belongs to it may attach, or ask for it.
    pub(crate) const fn takes_processes(self) -> bool {
        self.was_admitted()
    }

    /// A deadline, a signal or the end of its last process may end it.
    pub(crate) const fn may_end(self) -> bool {
        self.was_admitted()
    }

    /// A private broker stays for it.
    pub(crate) const fn keeps_the_broker(self) -> bool {
        self.was_admitted()
    }

    /// Its name, its first process and its token mean it and no other job.
    pub(crate) const fn takes_name(self) -> bool {
        !matches!(self, Self::Ended)
    }

    /// A process of it may run.
    pub(crate) const fn is_running(self) -> bool {
        matches!(self, Self::Running)
    }

    /// For its user it is over: no process of it is left.
    pub(crate) const fn is_over(self) -> bool {
        matches!(self, Self::Lingering | Self::Ended)
    }

    const fn was_admitted(self) -> bool {
        matches!(self, Self::Running | Self::Lingering)
    }
}

/// A job's state with what belongs to it. Each change asks the table; one that the table does not have answers `false`
/// or `None`, and nothing is changed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Life(Phase);

#[derive(Clone, Debug, PartialEq)]
enum Phase {
    Waiting(Box<Queued>),
    Running,
    Lingering { until_ns: u64 },
    Ended { forget_at_ns: u64 },
}

impl Life {
    /// Of a request.
    pub(crate) fn waiting(queued: Queued) -> Self {
        Self(Phase::Waiting(Box::new(queued)))
    }

    /// Of a default job, or of one that another broker admitted.
    pub(crate) const fn running() -> Self {
        Self(Phase::Running)
    }

    /// Of a job that ended under another broker.
    pub(crate) const fn ended(forget_at_ns: u64) -> Self {
        Self(Phase::Ended { forget_at_ns })
    }

    pub(crate) const fn state(&self) -> State {
        match self.0 {
            Phase::Waiting(_) => State::Waiting,
            Phase::Running => State::Running,
            Phase::Lingering { .. } => State::Lingering,
            Phase::Ended { .. } => State::Ended,
        }
    }

    /// Its place in the queue, while it waits.
    pub(crate) fn queued(&self) -> Option<&Queued> {
        match &self.0 {
            Phase::Waiting(queued) => Some(queued),
            _ => None,
        }
    }

    /// The same, to be changed.
    pub(crate) fn queued_mut(&mut self) -> Option<&mut Queued> {
        match &mut self.0 {
            Phase::Waiting(queued) => Some(queued),
            _ => None,
        }
    }

    /// Until when a late child may come, while it lingers.
    pub(crate) const fn linger_until_ns(&self) -> Option<u64> {
        match self.0 {
            Phase::Lingering { until_ns } => Some(until_ns),
            _ => None,
        }
    }

    /// When it is to be forgotten, once it ended.
    pub(crate) const fn forget_at_ns(&self) -> Option<u64> {
        match self.0 {
            Phase::Ended { forget_at_ns } => Some(forget_at_ns),
            _ => None,
        }
    }

    /// It is admitted; answers the place in the queue that it leaves.
    pub(crate) fn admit(&mut self) -> Option<Box<Queued>> {
        self.leads_to(Happening::Admitted, State::Running).then_some(())?;
        match std::mem::replace(&mut self.0, Phase::Running) {
            Phase::Waiting(queued) => Some(queued),
            _ => None,
        }
    }

    /// What it was admitted to is used: it waits again, as before.
    pub(crate) fn put_back(&mut self, queued: Box<Queued>) -> bool {
        self.change(Happening::RoomTaken, Phase::Waiting(queued))
    }

    /// It is given up while it waits; answers the place in the queue that it leaves. Its job is to be removed.
    pub(crate) fn give_up(self) -> Option<Box<Queued>> {
        match (self.state().after(Happening::GivenUp), self.0) {
            (Next::Forgotten, Phase::Waiting(queued)) => Some(queued),
            _ => None,
        }
    }

    /// No process is left: a late child may come until then.
    pub(crate) fn linger(&mut self, until_ns: u64) -> bool {
        self.change(Happening::Emptied, Phase::Lingering { until_ns })
    }

    /// A process is about to come: it is waited for until then. Only while it lingers.
    pub(crate) fn linger_on(&mut self, until_ns: u64) {
        if let Phase::Lingering { until_ns: until } = &mut self.0 {
            *until = until_ns;
        }
    }

    /// A late child came. False where none was waited for.
    pub(crate) fn resume(&mut self) -> bool {
        self.change(Happening::Resumed, Phase::Running)
    }

    /// It ends for this reason, and is remembered until then.
    pub(crate) fn end(&mut self, what: Happening, forget_at_ns: u64) -> bool {
        self.change(what, Phase::Ended { forget_at_ns })
    }

    /// Is it to be forgotten at this instant?
    pub(crate) fn is_expired(&self, now_ns: u64) -> bool {
        let is_kept = self.state().after(Happening::Expired) != Next::Forgotten;
        !is_kept && self.forget_at_ns().is_some_and(|at| now_ns >= at)
    }

    fn leads_to(&self, what: Happening, state: State) -> bool {
        self.state().after(what) == Next::To(state)
    }

    fn change(&mut self, what: Happening, phase: Phase) -> bool {
        let next = Self(phase);
        let is_so = self.leads_to(what, next.state());
        if is_so {
            *self = next;
        }
        is_so
    }
}

#[cfg(test)]
mod tests;
