// SPDX-License-Identifier: Apache-2.0
//! Checks a request of `partage run`: amounts with units, devices, names.

use partage_protocol::aliases::{Asked as Aliases, asked};
use partage_protocol::labels;
use partage_protocol::message::MAX_DEVICES;
use partage_protocol::request::RunRequest;
use partage_protocol::size::{Amount, SizeError, format_duration, format_request, parse_amount, parse_request};
use partage_protocol::terms::{TermError, parse_cap, parse_class, parse_promise, parse_weight};
use partage_protocol::time_aliases::{self, TimeVariable};

use crate::config::Config;
use crate::gpu_name::GpuName;
use crate::origin::Origin;
use crate::refusal::{Refusal, Why, unreadable};
use crate::registration::{Ceiling, Lowered};
use crate::rules::{AskedMemory, AskedTerms, CardSize, Facts, Judge, Said, TotalId};
use crate::terms::Terms;

/// A valid request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSpec {
    /// Limit per device that is asked; none within is the whole card.
    pub mem: Option<Said<Option<Amount>>>,
    /// Promise per device that is asked.
    pub mem_request: Option<Said<Amount>>,
    /// The limit of each process; none within is the job's limit alone.
    pub process_mem: Option<Said<Option<Amount>>>,
    /// What other tools' variables ask for, where neither of the above is given.
    pub aliases: Option<Aliases>,
    /// The preset that is named.
    pub preset: Option<String>,
    /// What is asked of the devices' time.
    pub asked_terms: AskedTerms,
    /// Who asks, as the kernel knows it.
    pub facts: Facts,
    /// What the rules make of it.
    pub judge: Judge,
    /// The totals that it is going to share.
    pub(crate) totals: Vec<TotalId>,
    /// Which devices.
    pub gpu: GpuChoice,
    /// `CUDA_VISIBLE_DEVICES` of the caller.
    pub visible_devices: Option<String>,
    /// The GPUs that the caller may open: bit N for the node `/dev/nvidiaN`. 0: each.
    pub nodes: u32,
    /// Wait when there is no room.
    pub wait: bool,
    /// `--strict` is asked; rules may want it as well.
    pub strict: bool,
    /// What it may have of the devices' time: `asked_terms` after the rules.
    pub terms: Terms,
}

/// A request on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Amounts {
    /// None is the whole card.
    pub limit: Option<u64>,
    /// Promised bytes.
    pub request: u64,
    /// What each process may hold at most; none is the job's limit alone.
    pub process: Option<u64>,
    /// What set them.
    pub origin: Origin,
    /// What was asked here, before the rules.
    pub asked: AskedMemory,
}

/// `-g`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuChoice {
    /// So many of the least committed.
    Auto(usize),
    /// Each that the request may use.
    All,
    /// These, in this order.
    Named(Vec<GpuName>),
}

impl RunSpec {
    /// Judges a request of a process with these facts.
    ///
    /// # Errors
    /// What is wrong with it, code `Invalid`; or what the rules do not allow, code `NotAllowed`.
    pub fn from_request(request: &RunRequest, facts: Facts, config: &Config) -> Result<Self, Refusal> {
        type Parse = fn(&str) -> Result<Amount, SizeError>;
        let amount = |flag: &str, text: &Option<String>, parse: Parse| {
            let parsed = text.as_deref().map(parse).transpose();
            parsed.map_err(unreadable(format!("{flag}: ")))
        };
        check_length(request)?;
        let mem = amount("--mem", &request.mem, parse_amount)?;
        let mem = mem.map(|mem| said(("--mem", "PARTAGE_MEM"), request.mem_from.as_deref(), mem));
        let names = ("--mem-request", "PARTAGE_MEM_REQUEST");
        let mem_request = amount(names.0, &request.mem_request, parse_request)?;
        let mem_request = mem_request.map(|mem| said(names, request.mem_request_from.as_deref(), mem));
        let process_mem = amount("--process-mem", &request.process_mem, parse_amount)?;
        let process_mem = process_mem.map(|mem| Written(request).said("--process-mem", &mem.to_string(), Some(mem)));
        let aliases = if mem.is_none() && mem_request.is_none() {
            asked(&request.aliases, |family| config.is_on(family)).map_err(|why| Why::Alias(why, "--mem SIZE"))?
        } else {
            None
        };
        if let Some(name) = &request.name {
            check_name("--name: ", name)?;
        }
        labels::check(&request.labels).map_err(unreadable("--label: "))?;
        let gpu_text = request.gpu.as_deref().unwrap_or("auto");
        let gpu = GpuChoice::parse(gpu_text)?;
        let asked_terms = AskedTerms::from_request(request, |variable| config.is_time_on(variable))?;
        let preset = request.class.clone();
        let judge = Judge::new(&config.rules, config.max_class, &facts, preset.as_deref())?;
        if gpu != GpuChoice::All {
            // How many `all` are is known where it is placed.
            judge.gpus(gpu.count(0), &format!("--gpu {gpu_text}"))?;
        }
        Ok(Self {
            mem: mem.map(|said| said.map(Some)),
            mem_request,
            process_mem,
            aliases,
            preset,
            terms: judge.terms(&asked_terms)?,
            asked_terms,
            totals: config.rules.totals_of(&facts),
            facts,
            judge,
            gpu,
            visible_devices: request.visible_devices.clone(),
            nodes: request.nodes,
            wait: request.wait,
            strict: request.strict,
        })
    }

    /// Is the job to be strict, as asked or by a rule?
    pub(crate) const fn is_strict(&self) -> bool {
        self.strict || self.judge.is_strict()
    }

    /// A registration beside which somebody wrote what only lowers: what was asked is lowered to that, and not refused.
    ///
    /// # Errors
    /// What is wrong with what is written, code `Invalid`.
    pub(crate) fn lowered(mut self, lowered: &Lowered, config: &Config) -> Result<Self, Refusal> {
        if let Some(text) = &lowered.most_mem {
            parse_amount(text).map_err(unreadable("annotation partage.dev/mem: "))?;
        }
        if let Some(text) = &lowered.most_compute {
            parse_cap(text).map_err(unreadable("annotation partage.dev/compute: "))?;
        }
        if let Some(name) = &lowered.most_class
            && !config.rules.presets.contains_key(name)
        {
            let known = config.rules.presets.keys().cloned().collect();
            return Err(Why::Class(name.clone(), known).into());
        }
        lowered.at_most.check()?;
        for said in [&mut self.mem, &mut self.process_mem].into_iter().flatten() {
            said.settle();
        }
        self.mem_request.iter_mut().for_each(Said::settle);
        self.asked_terms = self.asked_terms.settled();
        self.facts = self.facts.with_lowered(lowered.clone());
        self.rejudged(config)
    }

    /// The same request under another ceiling, if there is one.
    ///
    /// # Errors
    /// As [`Self::rejudged`].
    pub(crate) fn under(&self, ceiling: Option<Ceiling>, config: &Config) -> Result<Self, Refusal> {
        let Some(ceiling) = ceiling else {
            return Ok(self.clone());
        };
        let facts = self.facts.clone().with_ceiling(ceiling);
        Self { facts, ..self.clone() }.rejudged(config)
    }

    /// The same request under other rules. It was accepted, but an option above a new rule is refused as any other.
    ///
    /// # Errors
    /// What the rules do not allow.
    pub(crate) fn rejudged(&self, config: &Config) -> Result<Self, Refusal> {
        let preset = self.preset.as_deref();
        let judge = Judge::new(&config.rules, config.max_class, &self.facts, preset)?;
        let count = self.gpu.count(0);
        judge.gpus(count, &format!("a request of {count} GPUs"))?;
        Ok(Self {
            terms: judge.terms(&self.asked_terms)?,
            judge,
            totals: config.rules.totals_of(&self.facts),
            ..self.clone()
        })
    }

    /// Other tools' variables may tell devices apart, which the amounts of `partage set` do not: of theirs the lowest
    /// counts.
    pub(crate) fn drop_aliases(&mut self) {
        let Some(aliases) = self.aliases.take() else { return };
        if let Some(limit) = aliases.lowest() {
            self.mem = Some(Said::soft(Some(Amount::Bytes(limit.bytes)), limit.text.clone()));
        }
        if let Some(request) = &aliases.request {
            self.mem_request = Some(Said::soft(Amount::Bytes(request.bytes), request.text.clone()));
        }
    }

    /// Another limit, or none; what is promised stays what it was.
    pub(crate) fn set_mem(&mut self, mem: Said<Option<Amount>>) {
        if self.mem_request.is_none() {
            let had = self
                .mem
                .as_ref()
                .and_then(|said| Some((said.value?, said.words.clone())));
            match (had, mem.value) {
                (None, Some(_)) => self.mem_request = Some(Said::soft(Amount::Bytes(0), "")),
                (Some((limit, words)), None) => self.mem_request = Some(Said::soft(limit, words)),
                _ => {}
            }
        }
        self.mem = Some(mem);
    }

    /// Other terms of time.
    ///
    /// # Errors
    /// What the rules do not allow.
    pub(crate) fn set_terms(&mut self, asked: AskedTerms) -> Result<(), Refusal> {
        self.terms = self.judge.terms(&asked)?;
        self.asked_terms = asked;
        Ok(())
    }

    /// Limit and promise on a device of this size that will be one of `slots` in the job: of several the ones with
    /// the greatest promise, so that whichever it becomes has its room.
    ///
    /// # Errors
    /// `Invalid` when the promise exceeds the limit, `NotAllowed` when a rule allows less.
    pub(crate) fn amounts(&self, size: CardSize, uuid: &str, slots: std::ops::Range<u32>) -> Result<Amounts, Refusal> {
        let usable = size.usable;
        let process = self.process_mem.clone();
        let process = process.map(|said| said.map(|amount| amount.map(|mem| mem.on(usable))));
        let judged = |mut asked: AskedMemory| {
            asked.process.clone_from(&process);
            let memory = self.judge.memory(&asked, size)?;
            let origin = Origin {
                limit: memory.limit_words,
                request: memory.request_words,
                process: memory.process_words,
            };
            Ok(Amounts {
                limit: memory.limit,
                request: memory.request,
                process: memory.process,
                origin,
                asked,
            })
        };
        let Some(aliases) = &self.aliases else {
            return judged(AskedMemory {
                limit: self
                    .mem
                    .clone()
                    .map(|said| said.map(|amount| amount.map(|mem| mem.on(usable)))),
                request: self.mem_request.clone().map(|said| said.map(|mem| mem.on(usable))),
                process: None,
            });
        };
        let mut greatest = judged(by_alias(aliases, None, uuid))?;
        for (count, slot) in slots.enumerate() {
            let amounts = judged(by_alias(aliases, Some(slot), uuid))?;
            let key = |amounts: &Amounts| (amounts.request, amounts.limit);
            if count == 0 || key(&amounts) >= key(&greatest) {
                greatest = amounts;
            }
        }
        Ok(greatest)
    }

    /// What it asks, as the queue shows it.
    pub(crate) fn shown(&self) -> Option<String> {
        let by_alias = || Some(Amount::Bytes(self.aliases.as_ref()?.lowest()?.bytes));
        let mem = self.mem.as_ref().and_then(|said| said.value);
        mem.or_else(by_alias).map(|amount| amount.to_string())
    }
}

/// What variables ask for on one device. Of a device that none names nothing is asked.
pub(crate) fn by_alias(aliases: &Aliases, slot: Option<u32>, uuid: &str) -> AskedMemory {
    let limit = aliases.limit(slot, uuid);
    AskedMemory {
        limit: limit.map(|said| Said::soft(Some(said.bytes), said.text.clone())),
        // What is not said copies the limit.
        request: match &aliases.request {
            Some(said) => Some(Said::soft(said.bytes, said.text.clone())),
            None => limit.map(|said| Said::soft(said.bytes, "")),
        },
        process: None,
    }
}

/// Amounts are kept and shown as they were written, and zeros before a number have no end.
fn check_length(request: &RunRequest) -> Result<(), Refusal> {
    const LONGEST: usize = 256;
    let options = [&request.mem, &request.mem_request, &request.process_mem]
        .into_iter()
        .flatten();
    let mut options = options.chain(request.aliases.iter().map(|(_, value)| value));
    match options.find(|text| text.len() > LONGEST) {
        Some(text) => Err(Why::TooLong(text.len(), LONGEST).into()),
        None => Ok(()),
    }
}

/// `--mem 25%`, which is firm, or `PARTAGE_MEM=25%` when the value came from there.
fn said((flag, twin): (&str, &str), from: Option<&str>, amount: Amount) -> Said<Amount> {
    let text = format_request(amount);
    match from == Some(twin) {
        true => Said::soft(amount, format!("{twin}={text}")),
        false => Said::firm(amount, format!("{flag} {text}")),
    }
}

impl GpuChoice {
    /// How many devices, of the `candidates` that the request may use.
    #[must_use]
    pub fn count(&self, candidates: usize) -> usize {
        match self {
            Self::All => candidates,
            Self::Auto(count) => *count,
            Self::Named(names) => names.len(),
        }
    }

    /// Reads `auto`, `auto:4`, `all`, `2`, `0,1`, `GPU-…` and lists of these.
    ///
    /// # Errors
    /// `Invalid` with what is accepted.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        if text == "auto" {
            return Ok(Self::Auto(1));
        }
        if text == "all" {
            return Ok(Self::All);
        }
        if let Some(count) = text.strip_prefix("auto:") {
            return match count.parse::<usize>() {
                Ok(count @ 1..=MAX_DEVICES) => Ok(Self::Auto(count)),
                _ => Err(Why::GpuCount(text.to_owned()).into()),
            };
        }
        let mut names = Vec::new();
        for part in text.split(',') {
            let Some(name) = GpuName::parse(part) else {
                return Err(Why::GpuPart(text.to_owned(), part.to_owned()).into());
            };
            names.push(name);
        }
        if names.len() > MAX_DEVICES {
            return Err(Why::GpuMany(names.len()).into());
        }
        Ok(Self::Named(names))
    }
}

/// Names are `[A-Za-z][A-Za-z0-9._-]{0,63}`, so that no name looks like a pid, an id is told apart, and none needs
/// quoting. `option` is what it was written behind.
///
/// # Errors
/// `Invalid` with the rule.
pub fn check_name(option: &str, name: &str) -> Result<(), Refusal> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic());
    if !starts_well || !name.chars().all(is_plain) || name.len() > 64 {
        return Err(Why::Name(option.to_owned(), name.to_owned()).into());
    }
    if job_number(name).is_some() {
        return Err(Why::NameIsId(option.to_owned(), name.to_owned()).into());
    }
    Ok(())
}

/// The number in `j42`.
#[must_use]
pub fn job_number(text: &str) -> Option<u64> {
    let digits = text.strip_prefix('j')?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        None
    } else {
        digits.parse().ok()
    }
}

impl AskedTerms {
    /// Reads what `run` asks.
    ///
    /// # Errors
    /// `Invalid`, naming what is wrong.
    pub fn from_request(request: &RunRequest, is_on: impl Fn(TimeVariable) -> bool) -> Result<Self, Refusal> {
        let from = Written(request);
        let mut terms = Self {
            promise: from.read("--compute", &request.compute, parse_promise)?,
            cap: from.read("--compute-max", &request.compute_max, parse_cap)?,
            weight: from.read("--weight", &request.weight, parse_weight)?,
            priority: from.read("--priority", &request.priority, parse_class)?,
            time_limit: None,
        };
        if let Some(limit_ns) = request.time_limit_ns {
            if limit_ns == 0 {
                return Err(Why::NoTimeToRun().into());
            }
            terms.set_time_limit(from.said("--time-limit", &format_duration(limit_ns), Some(limit_ns)));
        }
        let is_silent = request.compute.is_none() && request.compute_max.is_none();
        let counts = |variable| match variable {
            TimeVariable::TaskPriority => request.priority.is_none() && is_on(variable),
            TimeVariable::SmLimit | TimeVariable::ActiveThreads => is_silent && is_on(variable),
        };
        let aliases = time_aliases::asked(&request.aliases, counts).map_err(|why| {
            let is_class = TimeVariable::of(why.name().as_bytes()) == Some(TimeVariable::TaskPriority);
            let instead = if is_class {
                "--priority CLASS"
            } else {
                "--compute-max PCT"
            };
            Why::Alias(why, instead)
        })?;
        terms.take_aliases(aliases);
        Ok(terms)
    }
}

/// Where the terms of a request were written.
struct Written<'a>(&'a RunRequest);

impl Written<'_> {
    /// `--compute 30%`, or `PARTAGE_COMPUTE=30%` when it came from there.
    fn said<T>(&self, flag: &str, text: &str, value: T) -> Said<T> {
        let twin = format!("PARTAGE_{}", flag[2..].replace('-', "_").to_ascii_uppercase());
        match self.0.from_variables.contains(&twin) {
            true => Said::soft(value, format!("{twin}={text}")),
            false => Said::firm(value, format!("{flag} {text}")),
        }
    }

    fn read<T>(
        &self,
        flag: &str,
        text: &Option<String>,
        parse: fn(&str) -> Result<T, TermError>,
    ) -> Result<Option<Said<T>>, Refusal> {
        let Some(text) = text else { return Ok(None) };
        let value = parse(text).map_err(unreadable(format!("{flag}: ")))?;
        Ok(Some(self.said(flag, text, value)))
    }
}
