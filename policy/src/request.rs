// SPDX-License-Identifier: Apache-2.0
//! Checks a request of `partage run`: amounts with units, devices, names.

use partage_protocol::admin::{ErrorView, RunRequest};
use partage_protocol::aliases::{Asked, asked};
use partage_protocol::labels;
use partage_protocol::message::MAX_DEVICES;
use partage_protocol::size::{Amount, SizeError, format_request, parse_amount, parse_request};

use crate::config::Config;
use crate::job::Origin;
use crate::refusal::{invalid, unusable_alias};
use crate::terms::Terms;

/// A valid request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSpec {
    /// Limit per device; none is the whole card.
    pub mem: Option<Amount>,
    /// Promise per device; none is the limit where there is one, else nothing.
    pub mem_request: Option<Amount>,
    /// The words of both.
    pub origin: Origin,
    /// What other tools' variables ask for, where neither of the above is given.
    pub aliases: Option<Asked>,
    /// Which devices.
    pub gpu: GpuChoice,
    /// `CUDA_VISIBLE_DEVICES` of the caller.
    pub visible_devices: Option<String>,
    /// Wait when there is no room.
    pub wait: bool,
    /// What it may have of the devices' time.
    pub terms: Terms,
}

/// A request on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Amounts {
    /// None is the whole card.
    pub limit: Option<u64>,
    /// Promised bytes.
    pub request: u64,
    /// What set them.
    pub origin: Origin,
}

/// `-g`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuChoice {
    /// So many of the least committed.
    Auto(usize),
    /// These, in this order.
    Named(Vec<GpuName>),
}

/// One device as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuName {
    /// `nvidia-smi`'s number.
    Index(u32),
    /// `GPU-…` or `MIG-…`, whole or the beginning of one, in lower case.
    Uuid(String),
}

impl RunSpec {
    /// Judges a request.
    ///
    /// # Errors
    /// What is wrong with it, code `Invalid`.
    pub fn from_request(request: &RunRequest, config: &Config) -> Result<Self, ErrorView> {
        type Parse = fn(&str) -> Result<Amount, SizeError>;
        let amount = |flag: &str, text: &Option<String>, parse: Parse| match text {
            None => Ok(None),
            Some(text) => parse(text)
                .map(Some)
                .map_err(|why| invalid(format!("{flag}: {why}"), None)),
        };
        check_length(request)?;
        let mem = amount("--mem", &request.mem, parse_amount)?;
        let mem_request = amount("--mem-request", &request.mem_request, parse_request)?;
        let aliases = if mem.is_none() && mem_request.is_none() {
            let is_on = |family| config.is_on(family);
            asked(&request.aliases, is_on).map_err(|why| unusable_alias(&why, "--mem SIZE"))?
        } else {
            None
        };
        if let Some(name) = &request.name {
            check_name("--name: ", name)?;
        }
        labels::check(&request.labels).map_err(|why| invalid(format!("--label: {why}"), None))?;
        let gpu = GpuChoice::parse(request.gpu.as_deref().unwrap_or("auto"))?;
        let visible_devices = request.visible_devices.clone();
        Ok(Self {
            mem,
            mem_request,
            origin: Origin {
                limit: written("--mem", "PARTAGE_MEM", request.mem_from.as_deref(), mem),
                request: written(
                    "--mem-request",
                    "PARTAGE_MEM_REQUEST",
                    request.mem_request_from.as_deref(),
                    mem_request,
                ),
            },
            aliases,
            gpu,
            visible_devices,
            wait: request.wait,
            terms: Terms::from_request(request, |variable| config.is_time_on(variable))?,
        })
    }

    /// Other tools' variables may tell devices apart, which the amounts of `partage set` do not: of theirs the lowest
    /// stays.
    pub(crate) fn drop_aliases(&mut self) {
        let Some(aliases) = self.aliases.take() else { return };
        if let Some(limit) = aliases.lowest() {
            self.mem = Some(Amount::Bytes(limit.bytes));
            self.origin.limit.clone_from(&limit.text);
        }
        if let Some(request) = &aliases.request {
            self.mem_request = Some(Amount::Bytes(request.bytes));
            self.origin.request.clone_from(&request.text);
        }
    }

    /// Another limit, or none, which these words set; what is promised stays what it was.
    pub(crate) fn set_mem(&mut self, amount: Option<Amount>, text: &str) {
        if self.mem_request.is_none() {
            match (self.mem, amount) {
                (None, Some(_)) => self.mem_request = Some(Amount::Bytes(0)),
                (Some(limit), None) => {
                    self.mem_request = Some(limit);
                    self.origin.request.clone_from(&self.origin.limit);
                }
                _ => {}
            }
        }
        self.mem = amount;
        text.clone_into(&mut self.origin.limit);
    }

    /// Another promise, which these words set.
    pub(crate) fn set_mem_request(&mut self, amount: Amount, text: &str) {
        self.mem_request = Some(amount);
        text.clone_into(&mut self.origin.request);
    }

    /// Its terms of time from now on.
    pub(crate) fn set_terms(&mut self, terms: Terms) {
        self.terms = terms;
    }

    /// Limit and promise on a device of `usable` bytes that will be one of `slots` in the job: of several the ones with
    /// the greatest promise, so that whichever it becomes has its room.
    ///
    /// # Errors
    /// `Invalid` when the promise exceeds the limit.
    pub(crate) fn amounts(&self, usable: u64, uuid: &str, slots: std::ops::Range<u32>) -> Result<Amounts, ErrorView> {
        if let Some(aliases) = &self.aliases {
            let of_slot = |slot| by_alias(aliases, Some(slot), uuid);
            let greatest = slots
                .map(of_slot)
                .max_by_key(|amounts| (amounts.request, amounts.limit));
            return Ok(greatest.unwrap_or_else(|| by_alias(aliases, None, uuid)));
        }
        let limit = self.mem.map(|amount| amount.on(usable));
        let request = self.mem_request.map(|amount| amount.on(usable)).or(limit).unwrap_or(0);
        if let (Some(limit), Some(written)) = (limit, self.mem_request)
            && request > limit
        {
            let limit_text = self.mem.map(|amount| amount.to_string()).unwrap_or_default();
            return Err(invalid(
                format!("--mem-request {written} is more than the limit --mem {limit_text}"),
                Some("a promise cannot exceed the limit: raise --mem or lower --mem-request".into()),
            ));
        }
        let origin = self.origin.clone();
        Ok(Amounts { limit, request, origin })
    }

    /// What it asks, as the queue shows it.
    pub(crate) fn shown(&self) -> Option<String> {
        let by_alias = || Some(Amount::Bytes(self.aliases.as_ref()?.lowest()?.bytes));
        self.mem.or_else(by_alias).map(|amount| amount.to_string())
    }
}

fn by_alias(aliases: &Asked, slot: Option<u32>, uuid: &str) -> Amounts {
    let limit = aliases.limit(slot, uuid);
    let request = aliases.request.as_ref();
    Amounts {
        limit: limit.map(|said| said.bytes),
        request: request.or(limit).map_or(0, |said| said.bytes),
        origin: Origin {
            limit: limit.map(|said| said.text.clone()).unwrap_or_default(),
            request: request.map(|said| said.text.clone()).unwrap_or_default(),
        },
    }
}

/// Amounts are kept and shown as they were written, and zeros before a number have no end.
fn check_length(request: &RunRequest) -> Result<(), ErrorView> {
    const LONGEST: usize = 256;
    let options = [&request.mem, &request.mem_request].into_iter().flatten();
    match options
        .chain(request.aliases.iter().map(|(_, value)| value))
        .find(|text| text.len() > LONGEST)
    {
        Some(text) => Err(invalid(
            format!("an amount of {} characters is too long: at most {LONGEST}", text.len()),
            None,
        )),
        None => Ok(()),
    }
}

/// `--mem 25%`, or `PARTAGE_MEM=25%` when the value came from there; empty for none.
fn written(flag: &str, twin: &str, from: Option<&str>, amount: Option<Amount>) -> String {
    match amount {
        None => String::new(),
        Some(amount) if from == Some(twin) => format!("{twin}={}", format_request(amount)),
        Some(amount) => format!("{flag} {}", format_request(amount)),
    }
}

impl GpuChoice {
    /// Reads `auto`, `auto:4`, `2`, `0,1`, `GPU-…` and lists of these.
    ///
    /// # Errors
    /// `Invalid` with what is accepted.
    pub fn parse(text: &str) -> Result<Self, ErrorView> {
        let hint = || Some("--gpu takes auto, auto:N, an index, a UUID, or a list such as 0,1".to_owned());
        if text == "auto" {
            return Ok(Self::Auto(1));
        }
        if let Some(count) = text.strip_prefix("auto:") {
            return match count.parse::<usize>() {
                Ok(count @ 1..=MAX_DEVICES) => Ok(Self::Auto(count)),
                _ => Err(invalid(
                    format!("--gpu {text:?}: the number of devices must be 1 to {MAX_DEVICES}"),
                    hint(),
                )),
            };
        }
        let mut names = Vec::new();
        for part in text.split(',') {
            let Some(name) = GpuName::parse(part) else {
                return Err(invalid(
                    format!("--gpu {text:?}: {part:?} is neither an index nor a UUID"),
                    hint(),
                ));
            };
            names.push(name);
        }
        if names.len() > MAX_DEVICES {
            return Err(invalid(
                format!("--gpu names {} devices: at most {MAX_DEVICES}", names.len()),
                hint(),
            ));
        }
        Ok(Self::Named(names))
    }
}

impl GpuName {
    /// Reads one name; `None` when it is neither an index nor the beginning of a UUID.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            return text.parse().ok().map(Self::Index);
        }
        let lower = text.to_ascii_lowercase();
        let is_uuid = |prefix: &str| lower.strip_prefix(prefix).is_some_and(is_hexadecimal);
        (is_uuid("gpu-") || is_uuid("mig-")).then_some(Self::Uuid(lower))
    }
}

fn is_hexadecimal(text: &str) -> bool {
    text.len() <= 36 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// Names are `[A-Za-z][A-Za-z0-9._-]{0,63}`, so that no name looks like a pid, an id is told apart, and none needs
/// quoting. `option` is what it was written behind.
///
/// # Errors
/// `Invalid` with the rule.
pub fn check_name(option: &str, name: &str) -> Result<(), ErrorView> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic());
    if !starts_well || !name.chars().all(is_plain) || name.len() > 64 {
        return Err(invalid(
            format!("{option}bad name {name:?}"),
            Some("use a letter, then up to 63 letters, digits, '.', '_' or '-'".into()),
        ));
    }
    if job_number(name).is_some() {
        return Err(invalid(
            format!("{option}{name:?} reads like a job id"),
            Some("choose another name".into()),
        ));
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
