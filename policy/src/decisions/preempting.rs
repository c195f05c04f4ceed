// SPDX-License-Identifier: Apache-2.0
//! Preemption: a request that waits for memory has jobs of lower classes suspended that agreed to it.
//!
//! ```text
//!   a request waits ── would it have room without some of them? ──► Action::Leave(victim) ──► leaving
//!                                                                                               │ Residence: away
//!   back in its turn, without a command ◄── in the queue (returning.rs) ◄───────────────────────┘
//! ```
//! A job agrees with `--preemptible`, or by its class `low`. The victims are those that hold the fewest bytes whose
//! leaving makes room. A job is left alone until it ran for ten times what a swap costs (`job/swaps.rs`): however many
//! requests come, its swaps take at most a tenth of its time here.

use crate::books::seen::idle::can_leave;
use partage_protocol::terms::Class;
use partage_protocol::units::JobId;

use super::Policy;
use crate::action::Action;
use crate::books::room::claims::Claims;
use crate::books::room::placement::Shortages;
use crate::books::room::survey::{Absent, Survey};
use crate::job::{Job, Returning};
use crate::machine::Machine;
use crate::notice::Notice;
use crate::residence::Residence;

/// Of so many possible victims every choice is looked at; of more, those are spared that are not needed, the largest
/// first.
const EXACT: usize = 8;

impl Policy {
    /// Has jobs of lower classes leave where that makes room for a waiting request; answers what it waits for then.
    pub(crate) fn preempt<M: Machine>(
        &mut self,
        id: JobId,
        (claimed, shortages): (&Claims, &Shortages),
        machine: &M,
        now_ns: u64,
    ) -> Option<String> {
        let queued = self.books.jobs.get(&id)?.life.queued()?;
        let is_memory_short = shortages.values().any(|(is_memory_short, _)| *is_memory_short);
        if !queued.spec.wait || !is_memory_short {
            return None;
        }
        let (spec, class) = (&queued.spec, queued.spec.terms.class);
        let fits = |absent: &Absent| {
            self.place(spec, claimed, &Survey::without(absent.clone()), machine)
                .is_ok()
        };
        let leaving: Absent = self.books.jobs.values().filter(is_leaving).map(Job::id).collect();
        if !leaving.is_empty() && fits(&leaving) {
            return Some(Notice::Leaving(leaving.into_iter().collect()).to_string());
        }
        let is_near = |job: &Job| shortages.keys().any(|device| job.slot_of(*device).is_some());
        let mut possible = Vec::new();
        let mut due_ns = Vec::new();
        for job in self
            .books
            .jobs
            .values()
            .filter(|job| may_leave_for(job, class) && is_near(job))
        {
            let bytes = self.returning_bytes(job.id(), machine);
            let run_ns = job.record.run_ns(self.unix_ns(now_ns));
            let earliest_ns = self.books.swaps.earliest_ns(job.id(), (bytes, run_ns), now_ns);
            match earliest_ns <= now_ns {
                true => possible.push((bytes, job.id())),
                false => due_ns.push(earliest_ns),
            }
        }
        let chosen = fewest(possible, &leaving, fits);
        for due_ns in due_ns {
            self.books.swaps.note_due(due_ns);
        }
        let mut victims = chosen?;
        for victim in &victims {
            self.send_away(*victim, (id, class));
        }
        victims.extend(leaving);
        Some(Notice::Leaving(victims.into_iter().collect()).to_string())
    }

    fn send_away(&mut self, victim: JobId, (id, class): (JobId, Class)) {
        let Some(job) = self.books.jobs.get_mut(&victim) else {
            return;
        };
        job.record_mut().residence.leave_for(id.0);
        let record = job.record.clone();
        let own = record.terms.class;
        self.act(Action::SaveJob(Box::new(record)));
        self.act(Action::tell(victim, Notice::LeavesFor(id, class)));
        let what = Notice::Leaves(victim, own, id, class);
        self.publish("job-preempted", Some(victim), None, what);
        self.act(Action::Leave(victim));
    }

    /// A job that was told to leave did not begin to.
    pub(crate) fn not_left(&mut self, id: JobId, why: &str, now_ns: u64) {
        let is_meant = |job: &&mut Job| job.record.residence.left_by_itself() && job.residence() == Residence::Here;
        let Some(job) = self.books.jobs.get_mut(&id).filter(is_meant) else {
            return;
        };
        job.record_mut().residence.forget_leaving();
        let record = job.record.clone();
        self.books.swaps.refuse(id, now_ns);
        self.act(Action::SaveJob(Box::new(record)));
        self.publish("suspend-failed", Some(id), None, Notice::GoesOn(id, why.to_owned()));
    }

    /// A command wants it suspended until another one brings it back.
    pub(crate) fn stay_away(&mut self, id: JobId) {
        let Some(job) = self.books.jobs.get_mut(&id) else {
            return;
        };
        if !job.record.residence.left_by_itself() {
            return;
        }
        job.record_mut().residence.forget_leaving();
        let record = job.record.clone();
        self.act(Action::SaveJob(Box::new(record)));
        if let Some(returning) = self.books.returning.get_mut(&id) {
            returning.stay();
            if !returning.is_wanted() && !returning.is_coming {
                self.books.returning.remove(&id);
                self.books.queue.leave(id);
            }
        }
    }

    /// A job's residence changed: one that left for another job is in the queue from then on.
    pub(crate) fn follow_residence(&mut self, id: JobId, turn: (Residence, Residence), now_ns: u64) {
        if turn.0 == turn.1 {
            return;
        }
        self.books.swaps.follow(id, turn, now_ns);
        let job = self
            .books
            .jobs
            .get(&id)
            .filter(|job| job.residence() == Residence::Away);
        if job.is_some_and(|job| job.record.residence.left_for.is_some()) {
            self.come_back(id, now_ns);
        }
    }

    /// A run waits: behind all others but, at a new broker, before the jobs that left for runs. It may be one of those,
    /// and asked the broker before.
    pub(super) fn queue_run(&mut self, id: JobId, now_ns: u64) {
        self.books.queue.join(id);
        if now_ns >= self.books.runs_back_ns {
            return;
        }
        let lets_them_pass =
            |returning: &Returning| !returning.is_coming && returning.not_before_ns == Some(self.books.runs_back_ns);
        let returning = self
            .books
            .returning
            .iter()
            .filter(|(_, returning)| lets_them_pass(returning));
        let behind: Vec<JobId> = returning.map(|(job, _)| *job).collect();
        for job in behind {
            self.books.queue.leave(job);
            self.books.queue.join(job);
        }
    }

    /// A job that is away waits in the queue to come back, without a command.
    pub(crate) fn come_back(&mut self, id: JobId, now_ns: u64) {
        let left_for_a_run = |job: &Job| job.record.residence.left_for.is_some();
        let is_early = now_ns < self.books.runs_back_ns && self.books.jobs.get(&id).is_some_and(left_for_a_run);
        let returning = self.books.returning.entry(id).or_default();
        let was_wanted = returning.is_wanted();
        returning.come_by_itself(now_ns);
        if is_early {
            returning.let_pass_until(self.books.runs_back_ns);
            returning.wait_for(&Notice::RunMayAskAgain().to_string());
        }
        if !was_wanted && !returning.is_coming {
            self.books.queue.join(id);
        }
    }
}

/// Is it on its way off its devices, or told to be, for whatever reason?
fn is_leaving(job: &&Job) -> bool {
    let is_on_its_way = match job.residence() {
        Residence::Here => job.record.residence.left_by_itself(),
        residence => residence == Residence::Leaving,
    };
    // One that stands on its way may do so for ever: nobody waits for it, and others may leave in its stead.
    job.state().holds_memory() && is_on_its_way && job.stuck.is_none()
}

/// May it be suspended for a request of this class?
fn may_leave_for(job: &Job, class: Class) -> bool {
    let is_lower = job.record.terms.class < class && job.record.is_preemptible();
    is_lower && can_leave(job)
}

/// Those that hold the fewest bytes together without whom, and without those that are leaving anyhow, it fits.
fn fewest(mut possible: Vec<(u64, JobId)>, leaving: &Absent, fits: impl Fn(&Absent) -> bool) -> Option<Absent> {
    let is_enough = |chosen: &Absent| fits(&chosen.union(leaving).copied().collect());
    possible.sort_unstable();
    let all: Absent = possible.iter().map(|(_, id)| *id).collect();
    if all.is_empty() || !is_enough(&all) {
        return None;
    }
    if possible.len() > EXACT {
        let mut chosen = all;
        for (_, id) in possible.iter().rev() {
            let without: Absent = chosen.iter().filter(|other| *other != id).copied().collect();
            if is_enough(&without) {
                chosen = without;
            }
        }
        return Some(chosen);
    }
    let mut choices: Vec<(u64, Absent)> = (1..1_u32 << possible.len())
        .map(|mask| {
            let chosen = possible.iter().enumerate().filter(|(place, _)| mask >> place & 1 == 1);
            let bytes = chosen
                .clone()
                .fold(0, |sum: u64, (_, (bytes, _))| sum.saturating_add(*bytes));
            (bytes, chosen.map(|(_, (_, id))| *id).collect())
        })
        .collect();
    choices.sort_by_key(|(bytes, chosen)| (*bytes, chosen.len()));
    choices.into_iter().map(|(_, chosen)| chosen).find(is_enough)
}
