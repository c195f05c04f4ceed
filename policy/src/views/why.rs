// SPDX-License-Identifier: Apache-2.0
//! `partage why`: one job in sentences, worst first.
//!
//! The order: what is wrong now (a lost device, processes that cannot die, a limit below use, notes), how it ended,
//! what it waits for, what was denied and who held the card, why it is slow, which words set each number, and what it
//! uses. Only the owner and administrators read them; everyone else gets the state.

use partage_protocol::admin::{DenialView, DeniedView, ErrorView, Holder, JobDeviceView, JobView, Reply, WhyView};
use partage_protocol::message::NO_INDEX;
use partage_protocol::size::{format_bytes, format_duration};
use partage_protocol::terms::{format_part, ppm};

use super::slow::terms_rule;
use crate::caller::Caller;
use crate::client::Presence;
use crate::decisions::{Access, Advice, Policy, Survey, Unplaced, may_see};
use crate::device::DeviceState;
use crate::event::TargetQuery;
use crate::job::{Denial, Held, Job, JobState, Reason};
use crate::machine::Machine;
use crate::refusal::invalid;

impl Policy {
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
    ) -> Result<Reply, Box<ErrorView>> {
        let id = self.resolve(target, caller, Access::Look).map_err(Box::new)?;
        let unknown = || Box::new(invalid(format!("{id} is unknown"), None));
        let job = self.jobs().get(&id).ok_or_else(unknown)?;
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
        sentences.extend(terms_rule(job, &view));
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

    /// What is wrong at the moment.
    fn troubles<M: Machine>(&self, job: &Job, view: &JobView, machine: &M) -> Vec<String> {
        let mut texts = Vec::new();
        if job.state().holds_memory() {
            for place in &job.record.devices {
                if let Some(device) = self.devices().get(&place.device)
                    && device.state == DeviceState::Lost
                {
                    texts.push(format!("GPU {} is lost: {}", device.seen.index, device.why));
                }
            }
        }
        if job.is_stopped && !job.state().is_over() {
            let pid = job
                .record
                .first
                .map_or_else(|| "PID".to_owned(), |first| first.pid.to_string());
            texts.push(format!(
                "it is stopped (Ctrl-Z, or another signal that stops): it keeps what it holds and does nothing until it \
                 goes on, by `fg` in its shell or: kill -CONT {pid}"
            ));
        }
        let clients = job.clients.iter().filter_map(|id| self.clients().get(id));
        let pids_of = |presence| {
            let pids = clients.clone().filter(|client| client.presence == presence);
            pids.map(|client| client.process.pid.to_string()).collect::<Vec<_>>()
        };
        let dying = pids_of(Presence::Dying);
        if !dying.is_empty() {
            texts.push(format!(
                "pid {} ended or was killed and is not gone yet: what it holds stays charged until the driver has freed it",
                dying.join(", ")
            ));
        }
        if self.state(job, machine) == JobState::OverLimit {
            for device in view.devices.iter().filter(|device| is_over(device)) {
                texts.push(format!(
                    "it is over its limit on {}: {} in use, limit {}; nothing is killed, and nothing more is given \
                     until use is below the limit",
                    device.gpu(),
                    format_bytes(device.used_bytes),
                    limit_text(device)
                ));
            }
        }
        for note in &view.notes {
            if !texts.contains(note) {
                texts.push(note.clone());
            }
        }
        let away = pids_of(Presence::Away);
        if !away.is_empty() {
            texts.push(format!(
                "pid {} has no connection to the broker at the moment: it keeps what it was granted and gets no more",
                away.join(", ")
            ));
        }
        texts
    }

    fn ending(&self, job: &Job, now_ns: u64) -> Option<String> {
        let end = job.end.as_ref()?;
        let age = self.unix_ns(now_ns).saturating_sub(end.unix_ns);
        Some(format!(
            "{} ended {} ago: {}; {}",
            job.id(),
            format_duration(age),
            end.reason,
            job.summary().sentence()
        ))
    }

    /// What a job in the queue waits for, and for whom.
    fn waiting<M: Machine>(&self, job: &Job, caller: &Caller, now_ns: u64, machine: &M) -> Option<String> {
        let queued = job.life.queued()?;
        let position = self.queue().take_while(|id| *id != job.id()).count() + 1;
        let survey = Survey::default();
        let claimed = self.claims(Some(job.id()), &survey, machine);
        let holders = match self.place(&queued.spec, &claimed, &survey, machine) {
            Err(Unplaced::NoRoom { shortages, .. }) => self.shortage_holders(&shortages, &survey, machine),
            _ => Vec::new(),
        };
        let waited = format_duration(now_ns.saturating_sub(queued.since_ns));
        let mut text = format!(
            "it waits since {waited} (place {position} in the queue): {}",
            queued.reason
        );
        if !holders.is_empty() {
            text.push_str("; held by ");
            text.push_str(&self.holders_text(&holders, caller));
        }
        Some(text)
    }

    fn holders_text(&self, holders: &[Holder], caller: &Caller) -> String {
        let one = |holder: &Holder| {
            let who = self.holder_name(&holder.who, caller);
            let memory = Some(format_bytes(holder.bytes)).filter(|_| holder.bytes > 0 || holder.compute.is_none());
            let time = holder
                .compute
                .map(|part| format!("{} of the time", format_part(ppm(part))));
            let held: Vec<String> = memory.into_iter().chain(time).collect();
            format!("{who} {} on {}", held.join(" and "), holder.gpu())
        };
        holders.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    fn denial_text(
        &self,
        id: &str,
        denial: &Denial,
        (device, advice): (&JobDeviceView, Option<Advice>),
        caller: &Caller,
        now_ns: u64,
    ) -> String {
        let age = format_duration(self.unix_ns(now_ns).saturating_sub(denial.unix_ns));
        let what = match denial.asked {
            0 => "an allocation".to_owned(),
            asked => format_bytes(asked),
        };
        let (gpu, used, limit) = (device.gpu(), format_bytes(denial.used), format_bytes(denial.limit));
        let start = format!("{what} was denied on {gpu} {age} ago (pid {})", denial.pid);
        match denial.reason {
            Reason::Limit => {
                let advice = advice.map_or(String::new(), |advice| {
                    let held = match &advice {
                        Advice::NoRoom { holders, .. } if !holders.is_empty() => {
                            format!("; held by {}", self.holders_text(holders, caller))
                        }
                        _ => String::new(),
                    };
                    format!("; {}", advice.text(id, &gpu, &held))
                });
                format!("{start}: with the {used} in use it is more than the limit of {limit}{advice}")
            }
            Reason::CardFull => format!(
                "{start}: within the limit ({used} in use of {limit}), but the card had no room that is not promised to \
                 or used by others{}",
                self.held_text(denial, device.index, caller)
            ),
            Reason::NoBroker => format!("{start}: no broker answered, and what was granted before was used up"),
            Reason::OverheadCardFull => format!(
                "{start}: a context, module or heap of that size was within the limit ({used} in use of {limit}), but the \
                 card had no room for it{}",
                self.held_text(denial, device.index, caller)
            ),
            Reason::Overhead => format!(
                "{start}: a context, module or heap of that size did not fit the limit of {limit} with {used} in use"
            ),
        }
    }

    fn held_text(&self, denial: &Denial, gpu: u32, caller: &Caller) -> String {
        let view = self.denial_view(denial, gpu, caller);
        let one = |holder: &Holder| format!("{} {}", holder.who, format_bytes(holder.bytes));
        match view.holders.as_slice() {
            [] => String::new(),
            holders => format!("; held by {}", holders.iter().map(one).collect::<Vec<_>>().join(", ")),
        }
    }

    /// A denial as its owner and administrators see it; holders with the names that this caller may see.
    fn denial_view(&self, denial: &Denial, gpu: u32, caller: &Caller) -> DenialView {
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
            reason: denial.reason.word().into(),
            holders: denial.holders.iter().map(holder).collect(),
        }
    }

    fn overcommit_notes<M: Machine>(&self, job: &Job, machine: &M) -> Vec<String> {
        let live = job.record.devices.iter().filter(|_| job.state().counts_as_promised());
        let accounts = live.filter_map(|place| self.account(place.device, machine));
        let time = job.record.devices.iter().filter(|_| job.state().counts_as_promised());
        let memory = accounts.filter_map(|account| account.overcommit_note());
        memory
            .chain(time.filter_map(|place| self.time_note(place.device)))
            .collect()
    }
}

fn is_over(device: &JobDeviceView) -> bool {
    device.limit_bytes.is_some_and(|limit| device.granted_bytes > limit)
}

fn limit_text(device: &JobDeviceView) -> String {
    device.limit_bytes.map_or("none".to_owned(), format_bytes)
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

/// How often each device denied, where it was more than once.
fn counts(view: &JobView) -> Vec<String> {
    let text = |device: &JobDeviceView| {
        let DeniedView {
            limit,
            card_full,
            no_broker,
            overhead,
        } = device.denied;
        let parts = [
            (limit, "by the limit"),
            (card_full, "because the card was full"),
            (no_broker, "without a broker"),
            (overhead, "for overhead"),
        ];
        let total = parts.iter().fold(0, |sum: u64, (count, _)| sum.saturating_add(*count));
        let said: Vec<String> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, why)| format!("{count} {why}"))
            .collect();
        (total > 1).then(|| format!("denied on {} so far: {}", device.gpu(), said.join(", ")))
    };
    view.devices.iter().filter_map(text).collect()
}

/// Which words set each number. Devices of which the same is to be said share a sentence.
fn rules(job: &Job, view: &JobView) -> Vec<String> {
    let is_default = job.record.default_scope.is_some();
    let rule = |device: &JobDeviceView| {
        let by = |words: &str| {
            if words.is_empty() {
                String::new()
            } else {
                format!(" by {words}")
            }
        };
        let limit = match device.limit_bytes {
            Some(limit) => format!("limit {}{}", format_bytes(limit), by(&device.limit_from)),
            None if !device.limit_from.is_empty() => format!("no limit{}: the whole card", by(&device.limit_from)),
            None if is_default => "no limit (started without partage run, and no variable sets one)".to_owned(),
            None => "no limit (no --mem was given): the whole card".to_owned(),
        };
        let request = match device.request_bytes {
            0 => format!("nothing promised{}", by(&device.request_from)),
            bytes if device.request_from.is_empty() => format!("all of it promised ({})", format_bytes(bytes)),
            bytes => format!("promised {}{}", format_bytes(bytes), by(&device.request_from)),
        };
        format!("{limit}, {request}")
    };
    let mut rules: Vec<(String, Vec<String>)> = Vec::new();
    for device in &view.devices {
        let text = rule(device);
        let index = match device.index {
            NO_INDEX => device.gpu(),
            index => index.to_string(),
        };
        match rules.iter_mut().find(|(other, _)| *other == text) {
            Some((_, gpus)) => gpus.push(index),
            None => rules.push((text, vec![index])),
        }
    }
    rules
        .into_iter()
        .map(|(text, gpus)| match gpus.as_slice() {
            [one] if one.ends_with(')') => format!("{one}: {text}"),
            gpus => format!("GPU {}: {text}", gpus.join(", ")),
        })
        .collect()
}

/// What is in use, and of what it is made.
fn use_text(device: &JobDeviceView, view: &JobView) -> Option<String> {
    let (gpu, peak) = (device.gpu(), format_bytes(device.peak_bytes));
    match view.state.as_str() {
        "waiting" => return None,
        "ended" => return Some(format!("{gpu}: at most {peak} was in use")),
        _ => {}
    }
    let of = device
        .limit_bytes
        .map_or(String::new(), |limit| format!(" of {}", format_bytes(limit)));
    let charged = match device.overhead_bytes {
        0 => 0,
        overhead => device.used_bytes.saturating_sub(overhead),
    };
    let parts = [
        (charged, "allocated"),
        (device.overhead_bytes, "contexts, modules and other overhead"),
        (device.managed_bytes, "of it managed memory"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(bytes, _)| *bytes > 0)
        .map(|(bytes, what)| format!("{} {what}", format_bytes(*bytes)))
        .collect();
    let parts = if parts.is_empty() {
        String::new()
    } else {
        format!(" ({})", parts.join(", "))
    };
    Some(format!(
        "{gpu}: {}{of} in use{parts}, at most {peak} so far",
        format_bytes(device.used_bytes)
    ))
}
