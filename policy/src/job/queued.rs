// SPDX-License-Identifier: Apache-2.0
//! The queue, and a waiting job's place in it.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

use partage_protocol::units::{JobId, SECOND_NS};

use crate::caller::Ticket;
use crate::request::RunSpec;

/// A waiting `run` hears again after this long.
const REMIND_NS: u64 = 60 * SECOND_NS;

/// A command that waits in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub ticket: Ticket,
    pub since_ns: u64,
    pub deadline_ns: Option<u64>,
    pub next_reminder_ns: u64,
    /// It has heard what it waits for.
    pub was_told: bool,
    pub reason: String,
    /// It waits for room, and does not fail at once.
    pub is_patient: bool,
}

/// A waiting job's place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Queued {
    pub wait: Wait,
    pub spec: RunSpec,
    pub mem_text: Option<String>,
}

/// The place of a job that is away and is to come back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Returning {
    /// The commands that wait for it.
    pub waits: Vec<Wait>,
    /// It had no room although the books had: it is not tried again before this.
    pub not_before_ns: Option<u64>,
    /// It was told to come, or is on its way anyhow: it is not in the queue.
    pub is_coming: bool,
    /// It comes back without a command.
    pub own: Option<Own>,
}

/// Why a job that comes back without a command is not back yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    pub since_ns: u64,
    /// Empty until it was looked for room.
    pub reason: String,
}

impl Deref for Queued {
    type Target = Wait;

    fn deref(&self) -> &Wait {
        &self.wait
    }
}

impl DerefMut for Queued {
    fn deref_mut(&mut self) -> &mut Wait {
        &mut self.wait
    }
}

impl Returning {
    /// One more command waits for it; `is_coming` says that it is on its way already.
    pub(crate) fn join(&mut self, wait: Wait, is_coming: bool) {
        self.is_coming |= is_coming;
        self.waits.push(wait);
    }

    /// The commands that waited long enough; they wait no more.
    pub(crate) fn take_late(&mut self, now_ns: u64) -> Vec<Wait> {
        let (late, on) = std::mem::take(&mut self.waits)
            .into_iter()
            .partition(|wait| wait.ran_out(now_ns));
        self.waits = on;
        late
    }

    /// It comes back without a command from now on.
    pub(crate) fn come_by_itself(&mut self, now_ns: u64) {
        self.own.get_or_insert_with(|| Own {
            since_ns: now_ns,
            reason: String::new(),
        });
    }

    /// It is not tried before this.
    pub(crate) const fn let_pass_until(&mut self, not_before_ns: u64) {
        self.not_before_ns = Some(not_before_ns);
    }

    /// It comes back only if a command waits for that.
    pub(crate) fn stay(&mut self) {
        self.own = None;
    }

    /// Does anything want it back?
    pub(crate) fn is_wanted(&self) -> bool {
        self.own.is_some() || !self.waits.is_empty()
    }

    /// Since when it waits, by itself or by the first command.
    pub(crate) fn since_ns(&self) -> Option<u64> {
        let own = self.own.iter().map(|own| own.since_ns);
        own.chain(self.waits.iter().map(|wait| wait.since_ns)).min()
    }

    /// It waits for this.
    pub(crate) fn wait_for(&mut self, reason: &str) {
        if let Some(own) = &mut self.own {
            reason.clone_into(&mut own.reason);
        }
        self.waits.iter_mut().for_each(|wait| wait.wait_for(reason));
    }

    /// It is told to come.
    pub(crate) fn come(&mut self) {
        self.is_coming = true;
    }

    /// These commands wait on.
    pub(crate) fn wait_on(&mut self, waits: Vec<Wait>) {
        self.waits = waits;
    }

    /// May it be tried now? A time before which it may not is over with this.
    pub(crate) fn may_try(&mut self, now_ns: u64) -> bool {
        self.not_before_ns = self.not_before_ns.filter(|not_before| now_ns < *not_before);
        self.not_before_ns.is_none()
    }
}

impl Queued {
    /// The user database knows more of its user.
    pub(crate) fn learn_user(&mut self, user: &str, groups: &[String]) {
        self.spec.facts.learn(user, groups);
    }

    /// Another request in the same place.
    pub(crate) fn set_spec(&mut self, spec: RunSpec) {
        self.mem_text = spec.shown();
        self.spec = spec;
    }
}

impl Wait {
    /// From now on, at most for so long.
    pub(crate) fn new(ticket: Ticket, now_ns: u64, timeout_ns: Option<u64>) -> Self {
        Self {
            ticket,
            since_ns: now_ns,
            deadline_ns: timeout_ns.map(|timeout| now_ns.saturating_add(timeout)),
            next_reminder_ns: now_ns,
            was_told: false,
            reason: String::new(),
            is_patient: true,
        }
    }

    /// It waited as long as it was to.
    pub(crate) fn ran_out(&self, now_ns: u64) -> bool {
        self.deadline_ns.is_some_and(|deadline| now_ns >= deadline)
    }

    /// It waits for this.
    pub(crate) fn wait_for(&mut self, reason: &str) {
        reason.clone_into(&mut self.reason);
    }

    /// What it waits for may be over in a moment: until then it hears nothing.
    pub(crate) fn hear_nothing_until(&mut self, until_ns: u64) {
        self.next_reminder_ns = self.next_reminder_ns.max(until_ns);
    }

    /// Is it to hear now what it waits for? Answers whether that is the first time; it hears again after a minute.
    pub(crate) fn take_reminder(&mut self, now_ns: u64) -> Option<bool> {
        (now_ns >= self.next_reminder_ns).then(|| {
            self.next_reminder_ns = now_ns.saturating_add(REMIND_NS);
            !std::mem::replace(&mut self.was_told, true)
        })
    }
}

/// The jobs that wait, in their order. Everybody reads it; what changes it is a method.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Queue(VecDeque<JobId>);

impl Deref for Queue {
    type Target = VecDeque<JobId>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Queue {
    /// A request waits, behind all others.
    pub(crate) fn join(&mut self, job: JobId) {
        self.0.push_back(job);
    }

    /// It waits on, in front of all others: it had its turn.
    pub(crate) fn rejoin(&mut self, job: JobId) {
        self.0.push_front(job);
    }

    /// All that wait, in another order.
    pub(crate) fn arrange(&mut self, jobs: impl Iterator<Item = JobId>) {
        self.0 = jobs.collect();
    }

    /// It waits no more.
    pub(crate) fn leave(&mut self, job: JobId) {
        self.0.retain(|queued| *queued != job);
    }
}
