// SPDX-License-Identifier: Apache-2.0
//! Sentences about a job: its troubles, its end, its wait, its denials and what they advise, its limits and its use.

use partage_protocol::admin::{DeniedView, Holder, JobDeviceView, JobView};
use partage_protocol::message::NO_INDEX;
use partage_protocol::size::{Amount, format_bytes, format_duration, format_request, raised_limit};
use partage_protocol::summary::times;
use partage_protocol::terms::format_part;
use partage_protocol::units::JobId;

use crate::books::Books;
use crate::books::{Advice, Survey, Unplaced};
use crate::caller::Caller;
use crate::client::Presence;
use crate::device::DeviceState;
use crate::holding::Holding;
use crate::job::{Denial, Job, JobState, OwnLimit, Placement, Reason};
use crate::machine::Machine;
use crate::residence::Residence;

impl Books {
    /// What is wrong at the moment.
    pub(crate) fn troubles<M: Machine>(&self, job: &Job, view: &JobView, machine: &M) -> Vec<String> {
        let mut texts = Vec::new();
        if job.state().holds_memory() {
            for place in &job.record.devices {
                if let Some(device) = self.devices.get(&place.device)
                    && device.state == DeviceState::Lost
                {
                    texts.push(format!("GPU {} is lost: {}", device.seen.index, device.why));
                }
            }
        }
        let bytes = self.returning_bytes(job.id(), machine);
        texts.extend(residence_text(job, bytes).filter(|_| !job.state().is_over()));
        if let Some(why) = job.stuck.as_ref().filter(|_| !job.state().is_over()) {
            texts.push(format!(
                "it stands there: {why}; it goes on by itself once that is over"
            ));
        }
        if job.is_stopped && !job.state().is_over() {
            let pid = job
                .record
                .first
                .map_or_else(|| "PID".to_owned(), |first| first.pid.to_string());
            texts.push(format!(
                "it is stopped (Ctrl-Z, or another signal that stops): it keeps what it holds and does nothing until \
                 it goes on, by `fg` in its shell or: kill -CONT {pid}"
            ));
        }
        let clients = job.clients.iter().filter_map(|id| self.clients.get(id));
        let pids_of = |presence| {
            let pids = clients.clone().filter(|client| client.presence == presence);
            pids.map(|client| client.process.pid.to_string()).collect::<Vec<_>>()
        };
        let dying = pids_of(Presence::Dying);
        if !dying.is_empty() {
            texts.push(format!(
                "pid {} ended or was killed and is not gone yet: what it holds stays charged until the driver has \
                 freed it",
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

    pub(crate) fn ending(&self, job: &Job, now_ns: u64) -> Option<String> {
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
    pub(crate) fn waiting<M: Machine>(&self, job: &Job, caller: &Caller, now_ns: u64, machine: &M) -> Option<String> {
        let queued = job.life.queued()?;
        let before = self.queue().take_while(|id| *id != job.id()).count();
        let survey = Survey::default();
        let claimed = self.claims(before, &survey, machine);
        let holders = match self.place(&queued.spec, &claimed, &survey, machine) {
            Err(Unplaced::NoRoom { shortages, .. }) => self.shortage_holders(&shortages, &survey, machine),
            _ => Vec::new(),
        };
        let waited = format_duration(now_ns.saturating_sub(queued.since_ns));
        let mut text = format!(
            "it waits since {waited} (place {} in the queue): {}",
            before + 1,
            queued.reason
        );
        if !holders.is_empty() {
            text.push_str("; held by ");
            text.push_str(&self.holders_text(&holders, caller));
        }
        Some(text)
    }

    pub(crate) fn holders_text(&self, holders: &[Holding], caller: &Caller) -> String {
        let one = |holding: &Holding| {
            let holder = holding.view();
            let who = self.holder_name(&holder.who, caller);
            let memory = Some(format_bytes(holder.bytes)).filter(|_| holder.bytes > 0 || holder.compute.is_none());
            let time = holding.ppm.map(|ppm| format!("{} of the time", format_part(ppm)));
            let held: Vec<String> = memory.into_iter().chain(time).collect();
            format!("{who} {} on {}", held.join(" and "), holder.gpu())
        };
        holders.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn denial_text(
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
        if let Some(unfreed) = denial.unfreed {
            let (pid, bytes) = (unfreed.pid, format_bytes(unfreed.bytes));
            return format!(
                "{start}: pid {pid} had ended, but the driver had not freed its {bytes}; without that there was room \
                 ({used} in use of {limit})"
            );
        }
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
            Reason::ProcessLimit => format!(
                "{start}: with the {used} that this process has it is more than the {limit} that it may have; raise it \
                 with: partage set process:{} mem={}, or for every process of the job: partage set {id} process-mem={}",
                denial.pid,
                Amount::Bytes(raised_limit(denial.used, denial.asked)),
                Amount::Bytes(raised_limit(denial.used, denial.asked))
            ),
            Reason::CardFull => format!(
                "{start}: within the limit ({used} in use of {limit}), but the card had no room that is not promised \
                 to or used by others{}",
                self.held_text(denial, device.index, caller)
            ),
            Reason::Total => format!(
                "{start}: the {} had no room for it{}",
                denial.rule.as_deref().unwrap_or("total that the job shares"),
                self.held_text(denial, device.index, caller)
            ),
            Reason::NoBroker => format!("{start}: no broker answered, and what was granted before was used up"),
            Reason::OverheadCardFull => format!(
                "{start}: a context, module or heap of that size was within the limit ({used} in use of {limit}), but \
                 the card had no room for it{}",
                self.held_text(denial, device.index, caller)
            ),
            Reason::Overhead => format!(
                "{start}: a context, module or heap of that size did not fit the limit of {limit} with {used} in use"
            ),
        }
    }

    pub(crate) fn held_text(&self, denial: &Denial, gpu: u32, caller: &Caller) -> String {
        let view = self.denial_view(denial, gpu, caller);
        let one = |holder: &Holder| format!("{} {}", holder.who, format_bytes(holder.bytes));
        match view.holders.as_slice() {
            [] => String::new(),
            holders => format!("; held by {}", holders.iter().map(one).collect::<Vec<_>>().join(", ")),
        }
    }

    /// The processes with a limit of their own.
    pub(crate) fn own_limits(&self, job: &Job) -> Vec<String> {
        let is_there = |process| {
            let mut clients = job.clients.iter().filter_map(|client| self.clients.get(client));
            clients.any(|client| client.process == process)
        };
        let of_place = |place: &Placement| {
            let gpu = self.gpu(place.device);
            let there = place.own.iter().filter(|own| is_there(own.process));
            let text = |own: &OwnLimit| match own.limit {
                Some(limit) => format!(
                    "{gpu}: pid {} at most {} by {}",
                    own.process.pid,
                    format_bytes(limit),
                    own.words
                ),
                None => format!("{gpu}: pid {} no limit but the job's by {}", own.process.pid, own.words),
            };
            there.map(text).collect::<Vec<_>>()
        };
        job.record.devices.iter().flat_map(of_place).collect()
    }

    pub(crate) fn overcommit_notes<M: Machine>(&self, job: &Job, machine: &M) -> Vec<String> {
        let live = job.record.devices.iter().filter(|_| job.state().counts_as_promised());
        let accounts = live.filter_map(|place| self.account(place.device, machine));
        let time = job.record.devices.iter().filter(|_| job.state().counts_as_promised());
        let memory = accounts.filter_map(|account| account.overcommit_note());
        memory
            .chain(time.filter_map(|place| self.time_note(place.device)))
            .collect()
    }
}

pub(crate) fn is_over(device: &JobDeviceView) -> bool {
    device.limit_bytes.is_some_and(|limit| device.granted_bytes > limit)
}

pub(crate) fn limit_text(device: &JobDeviceView) -> String {
    device.limit_bytes.map_or("none".to_owned(), format_bytes)
}

/// How often each device denied, where it was more than once.
pub(crate) fn counts(view: &JobView) -> Vec<String> {
    let text = |device: &JobDeviceView| {
        let DeniedView {
            limit,
            card_full,
            no_broker,
            overhead,
            process_limit,
            total,
            recovered: _,
        } = device.denied;
        let parts = [
            (limit, "by the limit"),
            (process_limit, "by the process limit"),
            (total, "by a total of several jobs"),
            (card_full, "because the card was full"),
            (no_broker, "without a broker"),
            (overhead, "for overhead"),
        ];
        let all = device.denied.all();
        let said: Vec<String> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, why)| format!("{count} {why}"))
            .collect();
        let (gpu, recovered) = (device.gpu(), device.denied.recovered_text());
        if all > 0 && device.denied.failed() == 0 {
            return Some(format!(
                "it was short of memory on {gpu} {} and got some after that, as a caching allocator does: no failure",
                times(all)
            ));
        }
        (all > 1).then(|| format!("denied on {gpu} so far: {}{recovered}", said.join(", ")))
    };
    view.devices.iter().filter_map(text).collect()
}

/// Which words set each number. Devices of which the same is to be said share a sentence.
pub(crate) fn rules(job: &Job, view: &JobView) -> Vec<String> {
    let is_default = job.record.default_scope.is_some();
    // Others may have what it is promised until it comes back.
    let later = match job.record.residence.residence() {
        Residence::Away => " again once it is back",
        _ => "",
    };
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
            bytes if device.request_from.is_empty() => format!("all of it promised{later} ({})", format_bytes(bytes)),
            bytes => format!("promised{later} {}{}", format_bytes(bytes), by(&device.request_from)),
        };
        let each = match device.process_limit_bytes {
            Some(each) => format!(
                ", each process at most {}{}",
                format_bytes(each),
                by(&device.process_limit_from)
            ),
            None => String::new(),
        };
        format!("{limit}, {request}{each}")
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
pub(crate) fn use_text(device: &JobDeviceView, view: &JobView) -> Option<String> {
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

impl Advice {
    /// As a part of a sentence about the denial.
    pub(crate) fn text(&self, id: &str, gpu: &str, held: &str) -> String {
        match self {
            Self::Raise { mem } => format!("raise it with: partage set {id} mem={}", Amount::Bytes(*mem)),
            Self::RaiseLimit { mem, request } => format!(
                "no more can be promised on {gpu}; raise the limit alone with: partage set {id} mem={} mem-request={}",
                Amount::Bytes(*mem),
                format_request(Amount::Bytes(*request))
            ),
            Self::Another { mem } => format!("start the next one with: partage run -m {}", Amount::Bytes(*mem)),
            Self::Ruled { rule } => format!("the {rule} allows no more"),
            Self::WholeDevice { total } => format!("{gpu} has {} in all", format_bytes(*total)),
            Self::NoRoom { room, .. } => format!(
                "a higher limit does not help: {gpu} has {} for this job that is not promised to or used by others\
                 {held}",
                format_bytes(*room)
            ),
        }
    }
}

/// For whom, or why, a job is away; empty where a command sent it.
fn why_away(job: &Job) -> String {
    let record = &job.record.residence;
    match record.left_for {
        Some(other) => format!(" for {}, and comes back by itself", JobId(other)),
        None if record.left_idle => " because it was idle, and comes back at its next call".to_owned(),
        None => String::new(),
    }
}

/// Where a job's memory is, if not on its devices: so many bytes of it.
fn residence_text(job: &Job, bytes: u64) -> Option<String> {
    let record = &job.record.residence;
    if bytes == 0 && record.residence() == Residence::Away {
        return Some(format!(
            "it is suspended{}: no process of it uses a GPU yet; its promises are free for others, its first process \
             that comes waits, and its time limit stands still",
            why_away(job)
        ));
    }
    let bytes = format_bytes(bytes);
    let still = "its threads wait, and its time limit stands still";
    Some(match record.residence() {
        Residence::Here => return None,
        Residence::Leaving => format!("it is being suspended: {bytes} move into host memory, and its threads wait"),
        Residence::Away => format!(
            "it is suspended{}: its {bytes} are in host memory, and its GPU memory and promises are free for others; \
             {still}",
            why_away(job)
        ),
        Residence::Coming => format!("its {bytes} come back from host memory; {still} until then"),
        Residence::Moving => format!("it moves to another GPU with its {bytes}; {still} until then"),
        Residence::Saving => format!("it is being saved with its {bytes}; {still} until then"),
        Residence::Poisoned => {
            let pids: Vec<_> = record
                .mark
                .poisoned
                .iter()
                .map(|process| process.pid.to_string())
                .collect();
            format!(
                "the driver could not restore pid {}, which can never run again and stays charged until it ends; to \
                 end the job: partage stop {}",
                pids.join(", "),
                job.id()
            )
        }
    })
}

/// Who may raise its numbers, of a job that root registered? And which are held down beside that?
pub(crate) fn ceiling_rules(job: &Job) -> Vec<String> {
    if job.state().is_over() {
        return Vec::new();
    }
    let facts = job.record.facts();
    let engine = facts.for_engine();
    let most = Some(facts.lowered.at_most.words()).filter(|words| !words.is_empty());
    let most = most.map(|words| format!("it was registered{engine} with at most {words} (--at-most)"));
    let by_root = facts.ceiling.map(|ceiling| {
        let class = job.record.asked.preset.as_ref().map(|name| format!("class {name}"));
        let said = [class.unwrap_or_default(), ceiling.words()];
        let said: Vec<&str> = said
            .iter()
            .map(String::as_str)
            .filter(|words| !words.is_empty())
            .collect();
        let with = match said.as_slice() {
            [] => String::new(),
            said => format!(" with {}", said.join(", ")),
        };
        format!("root registered it{engine}{with}: its owner may lower that, and only an administrator may raise it")
    });
    by_root.into_iter().chain(most).collect()
}

/// May it be suspended for another job?
pub(crate) fn preemptible_rule(job: &Job) -> Option<String> {
    let is_said = job.record.asked.preemptible.is_some();
    let by = if is_said { "--preemptible" } else { "priority low" };
    let is_so = job.record.is_preemptible() && !job.state().is_over();
    is_so.then(|| format!("a waiting run of a higher priority may have it suspended for its memory ({by})"))
}

/// Is it saved again and again?
pub(crate) fn saved_rule(job: &Job) -> Option<String> {
    let saved = job.record.asked.saved.as_ref().filter(|_| !job.state().is_over())?;
    let every = format_duration(saved.every_ns);
    Some(format!(
        "it is saved in {} every {every} (--checkpoint-every)",
        saved.out
    ))
}
