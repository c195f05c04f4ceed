// SPDX-License-Identifier: Apache-2.0
//! The one function of precedence: (asked, facts, rules, devices) to numbers with the words behind each, or a refusal.
//!
//! [`Judge::new`] takes facts and rules: the preset, and the strictest `max` of each key. [`Judge::memory`] and
//! [`Judge::terms`] then take what is asked. Nothing here depends on a clock, on other jobs, or on what is in use.

mod ceiling;
mod lowering;
mod process;
mod total;

use std::cmp::Ordering;

use partage_protocol::size::{Amount, format_bytes};
use partage_protocol::terms::{Class, DEFAULT_WEIGHT, WHOLE_PPM, format_part};

use super::asked::{AskedMemory, AskedTerms, Facts, Said, Standing};
use super::{NotAllowed, Preset, Rule, Rules, Written};
use crate::gpu_name::GpuName;
use crate::terms::{Terms, TermsOrigin};

/// A most, and the words that name it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cap<T> {
    value: T,
    /// As it is written: `16GiB`.
    text: String,
    /// `rule students, max.mem = 16GiB (/etc/partage/partage.toml:12)`.
    words: String,
    /// It binds administrators too, unless they force.
    binds_administrators: bool,
}

/// The strictest most of each key, of all rules that match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Caps {
    /// Sizes and parts of a device: which is the strictest depends on the device.
    mem: Vec<Cap<Amount>>,
    mem_request: Vec<Cap<Amount>>,
    process_mem: Vec<Cap<Amount>>,
    compute_promise: Option<Cap<u32>>,
    compute_max: Option<Cap<u32>>,
    weight: Option<Cap<u32>>,
    priority: Option<Cap<Class>>,
    max_class: Option<Cap<Class>>,
    gpus: Option<Cap<usize>>,
    time_limit: Option<Cap<u64>>,
    /// Which GPUs each rule allows.
    gpu: Vec<Cap<Vec<GpuName>>>,
}

/// Limit and promise of memory on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Limit in bytes; none is the whole card.
    pub limit: Option<u64>,
    /// What set it; empty where nothing did.
    pub limit_words: String,
    /// Promise in bytes, at most the limit.
    pub request: u64,
    /// What set it; empty where it follows the limit, or nothing is promised.
    pub request_words: String,
    /// Limit of each process in bytes; none is the job's limit alone.
    pub process: Option<u64>,
    /// What set it; empty where nothing did.
    pub process_words: String,
}

/// How much memory a device has, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardSize {
    /// What jobs can share: what percentages are of.
    pub usable: u64,
    /// All of it. A most beyond it limits nothing.
    pub total: u64,
}

/// What rules make of a job with certain facts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judge {
    preset: Option<Preset>,
    caps: Caps,
    is_strict: bool,
    /// The words of a rule that leaves its jobs nothing.
    barred: Option<String>,
}

/// A number after the rules: what it is, its words, and whether a rule set or lowered it.
struct Judged<T> {
    value: T,
    words: String,
    is_ruled: bool,
}

impl Judge {
    /// The rules about a job with these facts that names this preset, or none.
    ///
    /// # Errors
    /// [`NotAllowed`] where the preset does not exist, a matching rule does not list it, or one bars such jobs.
    pub fn new(rules: &Rules, max_class: Class, facts: &Facts, named: Option<&str>) -> Result<Self, NotAllowed> {
        let judge = Self::read(rules, max_class, facts, named)?;
        judge.bars().map(|()| judge)
    }

    /// The same of a job that may be barred.
    fn read(rules: &Rules, max_class: Class, facts: &Facts, named: Option<&str>) -> Result<Self, NotAllowed> {
        let preset = match named {
            Some(name) => Some(rules.named(name, facts)?),
            None => rules.default_rule(facts).and_then(|rule| rule.preset.as_deref()),
        };
        let mut judge = Self {
            preset: preset.and_then(|name| rules.presets.get(name)).cloned(),
            ..Self::default()
        };
        judge.caps.max_class = Some(Cap {
            value: max_class,
            text: format!("priority {max_class}"),
            words: format!("rule [time] max_class = \"{max_class}\""),
            binds_administrators: false,
        })
        .filter(|_| !facts.is_admin);
        for rule in rules.matching(facts) {
            judge.caps.add(rule);
            judge.is_strict |= rule.is_strict;
            judge.barred = judge.barred.or_else(|| rule.bar());
        }
        // A process without `run` asks for nothing that could be refused: what its environment says only lowers.
        if let (Some(preset), true) = (&judge.preset, facts.scope.is_some())
            && let Some(rule) = rules.default_rule(facts)
        {
            judge.caps.add_preset(rule, preset);
        }
        judge.caps.lower(&facts.lowered, rules);
        let engine = facts.for_engine();
        let by = format!("--at-most of the registration{engine}");
        judge.caps.add_ceiling(&by, &facts.lowered.at_most, None);
        if let Some(ceiling) = &facts.ceiling {
            let by = format!("registration by root{engine}");
            judge.caps.add_ceiling(&by, ceiling, judge.preset.as_ref());
        }
        Ok(judge)
    }

    /// As [`Judge::new`] for a job that was accepted: a preset that it named and that is gone is none, and a rule that
    /// bars it leaves it no memory.
    #[must_use]
    pub fn of_accepted(rules: &Rules, max_class: Class, facts: &Facts, named: Option<&str>) -> Self {
        let named = named.filter(|name| rules.presets.contains_key(*name));
        let judge = Self::read(rules, max_class, facts, named);
        // One that it may not name any more is no preset either.
        judge
            .or_else(|_| Self::read(rules, max_class, facts, None))
            .unwrap_or_default()
    }

    /// A matching rule says `strict`.
    #[must_use]
    pub const fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// Limit and promise on a device of this size. A preset's numbers are at most what it has for jobs.
    ///
    /// # Errors
    /// [`NotAllowed`] where something firm is above a rule, or the promise above the limit.
    pub fn memory(&self, asked: &AskedMemory, size: CardSize) -> Result<Memory, NotAllowed> {
        const NONE: u64 = u64::MAX;
        let usable = size.usable;
        let on_card = |written: &Written<Amount>| written.value.on(usable).min(usable);
        let preset = |written: &Option<Written<Amount>>| written.as_ref().map(on_card);
        let of_preset = self.preset.as_ref();
        let start = of_preset.and_then(|start| self.said(start, "mem", &start.mem, preset(&start.mem)?));
        let wanted = asked.limit.as_ref().map(|said| said.with(said.value.unwrap_or(NONE)));
        // A limit is promised where one was asked for; a card without a limit is not, nor is what a rule leaves of it.
        let wanted = wanted.or(start);
        let is_asked = wanted.as_ref().is_some_and(|said| said.value != NONE);
        // A limit of 0 would read as none.
        let on_device = |cap: &Cap<Amount>| cap.value.on(usable).max(1);
        let caps = self.caps.mem.iter().map(|cap| cap.with(on_device(cap)));
        let cap = caps.filter(|cap| cap.value < size.total).min_by(Cap::stricter);
        let are_both_asked = asked.limit.is_some() && asked.request.is_some();
        let limit = within(wanted, Said::soft(NONE, ""), cap.as_ref())?;

        let start = of_preset.and_then(|start| {
            let value = preset(&start.mem_request)?;
            self.said(start, "mem_request", &start.mem_request, value)
        });
        let request = self.request_within(asked.request.clone().or(start), usable)?;
        let (process, process_words) = self.process_limit(asked.process.as_ref(), size)?;
        let mut memory = Memory {
            limit: Some(limit.value).filter(|limit| *limit != NONE),
            limit_words: limit.words,
            process,
            process_words,
            ..Memory::default()
        };
        match request {
            None if is_asked => {
                // The promise that follows the limit has no words of its own, unless something lowers it.
                let follows = Said::soft(memory.limit.unwrap_or(0), "");
                if let Some(said) = self.request_within(Some(follows), usable)? {
                    (memory.request, memory.request_words) = (said.value, said.words);
                }
            }
            None => {}
            Some(said) if said.value <= limit.value => {
                memory.request = said.value;
                memory.request_words = said.words;
            }
            Some(said) if limit.is_ruled && said.standing == Standing::Firm => {
                return Err(NotAllowed::Above(
                    said.words,
                    memory.limit_words,
                    format_bytes(limit.value).replace(' ', ""),
                ));
            }
            Some(said) if said.standing == Standing::Firm || are_both_asked && !limit.is_ruled => {
                return Err(NotAllowed::RequestAboveLimit(said.words, memory.limit_words));
            }
            Some(_) => memory.request = limit.value,
        }
        Ok(memory)
    }

    /// Terms of time on each device.
    ///
    /// # Errors
    /// [`NotAllowed`] where something firm is above a rule, or the promise above the cap.
    pub fn terms(&self, asked: &AskedTerms) -> Result<Terms, NotAllowed> {
        const FOR_EVER: u64 = u64::MAX;
        let caps = &self.caps;
        let start = self.preset.clone().unwrap_or_default();
        let (cap, promise) = self.cap_and_promise(asked, &start)?;
        let weight = self.chosen(asked.weight.as_ref(), &start, "weight", &start.weight, DEFAULT_WEIGHT);
        let weight = within(Some(weight), Said::soft(DEFAULT_WEIGHT, ""), caps.weight.as_ref())?;
        let priority = self.chosen(
            asked.priority.as_ref(),
            &start,
            "priority",
            &start.priority,
            Class::default(),
        );
        let priority = self.priority(priority)?;
        let time_start = start
            .time_limit
            .as_ref()
            .and_then(|written| self.said(&start, "time_limit", &start.time_limit, written.value));
        let time_asked = asked
            .time_limit
            .as_ref()
            .map(|said| said.with(said.value.unwrap_or(FOR_EVER)));
        let time = within(
            time_asked.or(time_start),
            Said::soft(FOR_EVER, ""),
            caps.time_limit.as_ref(),
        )?;
        Ok(Terms {
            promise_ppm: promise.value,
            cap_ppm: Some(cap.value).filter(|cap| *cap < WHOLE_PPM),
            weight: weight.value,
            class: priority.value,
            time_limit_ns: Some(time.value).filter(|limit| *limit != FOR_EVER),
            origin: TermsOrigin {
                promise: promise.words,
                cap: cap.words,
                weight: weight.words,
                class: priority.words,
                time_limit: time.words,
            },
        })
    }

    /// Cap and promise: the promise is within the cap.
    fn cap_and_promise(&self, asked: &AskedTerms, start: &Preset) -> Result<(Judged<u32>, Judged<u32>), NotAllowed> {
        let caps = &self.caps;
        let cap_start = start
            .compute_max
            .as_ref()
            .and_then(|written| self.said(start, "compute_max", &start.compute_max, written.value));
        let cap_asked = asked
            .cap
            .as_ref()
            .map(|said| said.with(said.value.unwrap_or(WHOLE_PPM)));
        let cap = within(
            cap_asked.or(cap_start),
            Said::soft(WHOLE_PPM, ""),
            caps.compute_max.as_ref(),
        )?;

        let is_of_preset = asked.promise.is_none();
        let promise = self.chosen(asked.promise.as_ref(), start, "compute", &start.compute_promise, 0);
        let is_promise_firm = promise.standing == Standing::Firm;
        let mut promise = within(Some(promise), Said::soft(0, ""), caps.compute_promise.as_ref())?;
        if promise.value > cap.value {
            if cap.is_ruled && is_promise_firm {
                return Err(NotAllowed::Above(
                    promise.words,
                    cap.words,
                    format_part(cap.value).replace(' ', ""),
                ));
            }
            if !is_of_preset && !cap.is_ruled && (is_promise_firm || asked.cap.is_some()) {
                return Err(NotAllowed::PromiseAboveCap(promise.value, cap.value));
            }
            promise.words = lowered(&cap.words, &promise.words);
            promise.value = cap.value;
        }
        Ok((cap, promise))
    }

    /// A priority under both the rules and `[time] max_class`; the stricter one is named.
    fn priority(&self, said: Said<Class>) -> Result<Judged<Class>, NotAllowed> {
        let mut caps: Vec<&Cap<Class>> = self.caps.priority.iter().chain(&self.caps.max_class).collect();
        caps.retain(|cap| cap.binds_administrators || !said.is_by_admin);
        let cap = caps.into_iter().min_by(|one, other| one.stricter(other));
        within(Some(said), Said::soft(Class::default(), ""), cap)
    }

    /// May jobs use this GPU?
    ///
    /// # Errors
    /// [`NotAllowed::GpuNotAllowed`], with the rule.
    pub fn gpu(&self, index: u32, uuid: &str) -> Result<(), NotAllowed> {
        let is_in = |names: &[GpuName]| names.iter().any(|name| name.means(index, uuid));
        match self.caps.gpu.iter().find(|cap| !is_in(&cap.value)) {
            None => Ok(()),
            Some(cap) => Err(NotAllowed::GpuNotAllowed(format!("GPU {index}"), cap.words.clone())),
        }
    }

    /// How many GPUs a job may have at most; `usize::MAX` without a rule.
    #[must_use]
    pub fn most_gpus(&self) -> usize {
        self.caps.gpus.as_ref().map_or(usize::MAX, |cap| cap.value)
    }

    /// May a job that says so have that many GPUs?
    ///
    /// # Errors
    /// [`NotAllowed::Above`].
    pub fn gpus(&self, count: usize, words: &str) -> Result<(), NotAllowed> {
        match &self.caps.gpus {
            Some(cap) if count > cap.value => {
                Err(NotAllowed::Above(words.to_owned(), cap.words.clone(), cap.text.clone()))
            }
            _ => Ok(()),
        }
    }

    /// What is asked, else the preset's number, else the usual one.
    fn chosen<T: Copy>(
        &self,
        asked: Option<&Said<T>>,
        preset: &Preset,
        key: &str,
        written: &Option<Written<T>>,
        usual: T,
    ) -> Said<T> {
        let of_preset = || self.said(preset, key, written, written.as_ref()?.value);
        asked
            .cloned()
            .or_else(of_preset)
            .unwrap_or_else(|| Said::soft(usual, ""))
    }

    /// A preset's number with its words.
    fn said<T, V>(&self, preset: &Preset, key: &str, written: &Option<Written<V>>, value: T) -> Option<Said<T>> {
        let written = written.as_ref()?;
        let words = format!("class {}, {key} = {} ({})", preset.name, written.text, written.at);
        Some(Said::soft(value, words))
    }
}

impl Caps {
    /// What this rule allows at most, where that is stricter.
    fn add(&mut self, rule: &Rule) {
        let max = &rule.max;
        self.mem
            .extend(max.mem.as_ref().map(|written| Cap::of(rule, "max.mem", written)));
        let process_mem = max.process_mem.as_ref();
        self.process_mem
            .extend(process_mem.map(|written| Cap::of(rule, "max.process_mem", written)));
        strictest(
            &mut self.compute_promise,
            rule,
            "max.compute",
            max.compute_promise.as_ref(),
        );
        strictest(&mut self.compute_max, rule, "max.compute_max", max.compute_max.as_ref());
        strictest(&mut self.weight, rule, "max.weight", max.weight.as_ref());
        strictest(&mut self.priority, rule, "max.priority", max.priority.as_ref());
        strictest(&mut self.gpus, rule, "max.gpus", max.gpus.as_ref());
        strictest(&mut self.time_limit, rule, "max.time_limit", max.time_limit.as_ref());
        self.add_totals(rule);
        self.gpu
            .extend(rule.gpu.as_ref().map(|written| Cap::of(rule, "gpu", written)));
    }
}

impl<T: Clone> Cap<T> {
    fn of(rule: &Rule, key: &str, written: &Written<T>) -> Self {
        Self {
            value: written.value.clone(),
            text: written.text.clone(),
            words: format!("rule {}, {key} = {} ({})", rule.name, written.text, written.at),
            binds_administrators: true,
        }
    }
}

impl<T> Cap<T> {
    fn with<V>(&self, value: V) -> Cap<V> {
        Cap {
            value,
            text: self.text.clone(),
            words: self.words.clone(),
            binds_administrators: self.binds_administrators,
        }
    }
}

impl<T: Ord> Cap<T> {
    /// The lower first; of two that are the same the one whose words come first, whatever their order in the file.
    fn stricter(&self, other: &Self) -> Ordering {
        self.value.cmp(&other.value).then_with(|| self.words.cmp(&other.words))
    }
}

impl<T> Said<T> {
    fn with<V>(&self, value: V) -> Said<V> {
        Said {
            value,
            words: self.words.clone(),
            standing: self.standing,
            is_by_admin: self.is_by_admin,
        }
    }
}

fn strictest<T: Ord + Clone>(place: &mut Option<Cap<T>>, rule: &Rule, key: &str, written: Option<&Written<T>>) {
    let Some(cap) = written.map(|written| Cap::of(rule, key, written)) else {
        return;
    };
    if place.as_ref().is_none_or(|other| cap.stricter(other) == Ordering::Less) {
        *place = Some(cap);
    }
}

/// `rule students, max.mem = 2GiB (…), below PARTAGE_MEM=8GiB`.
fn lowered(cap: &str, asked: &str) -> String {
    match asked {
        "" => cap.to_owned(),
        asked => format!("{cap}, below {asked}"),
    }
}

/// What is said, or the usual, within what a rule allows.
fn within<T: Ord + Copy>(said: Option<Said<T>>, usual: Said<T>, cap: Option<&Cap<T>>) -> Result<Judged<T>, NotAllowed> {
    let said = said.unwrap_or(usual);
    match cap.filter(|cap| said.value > cap.value) {
        Some(cap) if said.standing == Standing::Firm => {
            Err(NotAllowed::Above(said.words, cap.words.clone(), cap.text.clone()))
        }
        Some(cap) if said.standing == Standing::Soft => Ok(Judged {
            value: cap.value,
            words: lowered(&cap.words, &said.words),
            is_ruled: true,
        }),
        beyond => Ok(Judged {
            value: said.value,
            words: match beyond {
                None => said.words,
                Some(cap) => format!("{}, beyond {}", said.words, cap.words),
            },
            is_ruled: false,
        }),
    }
}
