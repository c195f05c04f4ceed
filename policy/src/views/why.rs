// SPDX-License-Identifier: Apache-2.0
//! `partage why`: one job in sentences, worst first.
//!
//! The order: what is wrong now (a lost device, processes that cannot die, a limit below use, notes), how it ended,
//! what it waits for, what was denied and who held the card, why it is slow, which words set each number, and what it
//! uses. Only the owner and administrators read them; everyone else gets the state.

use super::sentences::{ceiling_rules, counts, preemptible_rule, rules, saved_rule, terms_rule, use_text};
use crate::books::Books;
use crate::books::{Access, may_see};
use crate::caller::Caller;
use crate::event::TargetQuery;
use crate::job::{Denial, Held, Job, Unfreed};
use crate::machine::Machine;
use crate::refusal::{Refusal, Why};
use partage_protocol::admin::{DenialView, Holder, JobDeviceView, JobView, Reply, UnfreedView, WhyView};

impl Books {
    /// Answer to `why`.
    ///
    /// # Errors
    /// The target is none, several, or no target.
    pub fn why<M: Machine>(
        &self,
        caller: &Caller,
        target: &TargetQuery,
        now_ns: u64,
        machine: &M,
    ) -> Result<Reply, Refusal> {
        let id = self.resolve(target, caller, Access::Look)?;
        let job = self.jobs.get(&id).ok_or(Why::Unknown(id))?;
        let view = self.view(job, caller, machine);
        if !may_see(job, caller) {
            let text = format!(
                "{id} belongs to {} and is {}; more is said to its owner and to administrators",
                job.record.user, view.state
            );
            return Ok(Reply::Why(WhyView {
                job: view,
                sentences: vec![text],
                denials: Vec::new(),
                causes: Vec::new(),
            }));
        }
        let denials = denials(job, &view);
        let mut sentences = self.troubles(job, &view, machine);
        sentences.extend(self.ending(job, now_ns));
        sentences.extend(self.waiting(job, caller, now_ns, machine));
        sentences.extend(self.returning_text(job, now_ns));
        for (denial, device) in &denials {
            let slot = view.devices.iter().position(|other| other.uuid == device.uuid);
            let numbers = (denial.used, denial.asked);
            let advice = slot.and_then(|slot| {
                if job.state().is_over() {
                    self.advice_for_another(id, slot, numbers)
                } else {
                    self.advice(id, slot, numbers, machine)
                }
            });
            let of = (*device, advice);
            sentences.push(self.denial_text(&view.job, denial, of, caller, now_ns));
        }
        sentences.extend(counts(&view));
        sentences.extend(self.overcommit_notes(job, machine));
        let (causes, slowness) = self.slowness(job, caller);
        sentences.extend(slowness);
        if sentences.is_empty() {
            sentences.push(format!("{id} runs within its limits, and nothing was denied to it"));
        }
        sentences.extend(rules(job, &view));
        sentences.extend(self.own_limits(job));
        sentences.extend(self.totals_text(job, machine));
        sentences.extend(terms_rule(job, &view));
        sentences.extend(ceiling_rules(job));
        sentences.extend(preemptible_rule(job));
        sentences.extend(saved_rule(job));
        sentences.extend(view.devices.iter().filter_map(|device| use_text(device, &view)));
        let denials = denials
            .iter()
            .map(|(denial, device)| self.denial_view(denial, device.index, caller));
        let denials = denials.collect();
        Ok(Reply::Why(WhyView {
            job: view,
            sentences,
            denials,
            causes,
        }))
    }

    /// A denial as its owner and administrators see it; holders with the names that this caller may see.
    pub(crate) fn denial_view(&self, denial: &Denial, gpu: u32, caller: &Caller) -> DenialView {
        let holder = |held: &Held| Holder {
            who: self.holder_name(&held.who, caller),
            gpu,
            bytes: held.bytes,
            compute: None,
        };
        DenialView {
            time_ns: denial.unix_ns,
            gpu,
            pid: denial.pid,
            asked_bytes: denial.asked,
            limit_bytes: denial.limit,
            used_bytes: denial.used,
            reason: denial.word().into(),
            holders: denial.holders.iter().map(holder).collect(),
            unfreed: denial.unfreed.map(|Unfreed { pid, bytes }| UnfreedView { pid, bytes }),
        }
    }
}

/// The last denial on each device, the newest first.
fn denials<'a>(job: &'a Job, view: &'a JobView) -> Vec<(&'a Denial, &'a JobDeviceView)> {
    let slots = job.slots.iter().zip(&view.devices);
    let mut denials: Vec<_> = slots
        .filter_map(|(slot, device)| Some((slot.last_denial.as_ref()?, device)))
        .collect();
    denials.sort_by_key(|(denial, _)| std::cmp::Reverse(denial.unix_ns));
    denials
}
