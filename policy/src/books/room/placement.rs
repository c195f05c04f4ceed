// SPDX-License-Identifier: Apache-2.0
//! Which devices a request may use, and which of them it gets.
//!
//! Candidates come from `--gpu` narrowed by the caller's `CUDA_VISIBLE_DEVICES`, which is read as the driver reads it:
//! indices and UUID beginnings, a list that ends at its first invalid entry. `auto` takes the least committed ones with
//! room, by the greater of the committed part of their memory and the promised part of their time; ties go to the
//! smaller sum of both, then to the device with fewer jobs, then to the lower index.

mod gpu_totals;

use std::collections::BTreeMap;

use partage_protocol::size::format_bytes;
use partage_protocol::terms::format_part;
use partage_protocol::units::DeviceUuid;

use super::claims::{Claims, Wish};
use super::survey::{Site, Survey};
use crate::books::Books;
use crate::device::{Device, DeviceState};
use crate::event::DriverState;
use crate::gpu_name::GpuName;
use crate::holding::{Holding, sort_holders};
use crate::job::Placement;
use crate::machine::Machine;
use crate::origin::Origin;
use crate::refusal::{Gpus, Refusal, Why};
use crate::request::{Amounts, GpuChoice, RunSpec};
use crate::rules::AskedMemory;
use crate::terms::part;

/// Whether memory and time are short, by device.
pub(crate) type Shortages = BTreeMap<DeviceUuid, (bool, bool)>;

/// Why a request has no place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Unplaced {
    /// Never: the request itself, or this machine.
    Refused(Refusal),
    /// Not now.
    NoRoom {
        /// A sentence with the numbers.
        reason: String,
        /// Where memory and time are short; [`Books::shortage_holders`] says who holds them.
        shortages: Shortages,
        /// What it asks of each device that it could use; later requests may not take that first.
        wishes: Vec<Wish>,
    },
}

/// One candidate that could hold the request some day.
struct Candidate<'a> {
    device: &'a Device,
    limit: Option<u64>,
    request: u64,
    process: Option<u64>,
    origin: Origin,
    asked: AskedMemory,
}

impl<'a> Candidate<'a> {
    fn new(device: &'a Device, amounts: Amounts) -> Self {
        Self {
            device,
            limit: amounts.limit,
            request: amounts.request,
            process: amounts.process,
            origin: amounts.origin,
            asked: amounts.asked,
        }
    }
}

/// What stands against a candidate at the moment.
enum Obstacle {
    State(String),
    /// A total that it would share, in words.
    Total(String),
    /// What is short of memory (bytes) and of time (millionths) has that much left.
    Short {
        bytes: Option<u64>,
        ppm: Option<u64>,
    },
}

impl Books {
    /// Finds devices for a request, beside what those that asked earlier wait for.
    pub(crate) fn place<M: Machine>(
        &self,
        spec: &RunSpec,
        claimed: &Claims,
        survey: &Survey,
        machine: &M,
    ) -> Result<Vec<Placement>, Unplaced> {
        let candidates = self.candidates(spec).map_err(Unplaced::Refused)?;
        let count = spec.gpu.count(candidates.len());
        let is_auto = matches!(spec.gpu, GpuChoice::Auto(_));
        if spec.gpu == GpuChoice::All {
            let within = spec.judge.gpus(count, "--gpu all");
            within.map_err(|why| Unplaced::Refused(why.into()))?;
        }
        let possible = self.possible(spec, &candidates, count).map_err(Unplaced::Refused)?;
        if let Some(reason) = self.jobs_obstacle(&spec.totals) {
            return Err(Unplaced::by_total(reason, &possible));
        }
        let mut free = Vec::new();
        let mut obstacles = Vec::new();
        for (order, candidate) in possible.iter().enumerate() {
            match self.obstacle(candidate, spec, claimed, &survey.site(self, candidate.device, machine)) {
                Some(obstacle) => obstacles.push((candidate, obstacle)),
                None => free.push((order, candidate)),
            }
        }
        if free.len() < count {
            return Err(Self::no_room(spec, &possible, &obstacles, count));
        }
        if is_auto {
            free.sort_by_key(|(order, candidate)| {
                (
                    load(candidate.device, &survey.site(self, candidate.device, machine)),
                    *order,
                )
            });
        }
        let mut free = self.within_gpu_totals(spec, free, count, &possible)?;
        free.sort_by_key(|(order, _)| *order);
        let placement = |(slot, candidate): (usize, &Candidate<'_>)| {
            // Its place in the job is known now.
            let of_slot = |slot| amounts(spec, candidate.device, slot..slot + 1);
            let amounts = u32::try_from(slot).ok().and_then(|slot| of_slot(slot).ok());
            let amounts = amounts.unwrap_or_else(|| Amounts {
                limit: candidate.limit,
                request: candidate.request,
                process: candidate.process,
                origin: candidate.origin.clone(),
                asked: candidate.asked.clone(),
            });
            Placement {
                device: candidate.device.seen.uuid,
                limit: amounts.limit,
                request: amounts.request,
                origin: amounts.origin,
                asked: Some(amounts.asked.settled()),
                process: amounts.process,
                own: Vec::new(),
            }
        };
        let chosen = free.into_iter().map(|(_, candidate)| candidate);
        Ok(chosen.enumerate().map(placement).collect())
    }

    /// Devices that the request names or allows, in job order; never empty.
    fn candidates(&self, spec: &RunSpec) -> Result<Vec<&Device>, Refusal> {
        let mut by_index: Vec<&Device> = self.devices.values().collect();
        by_index.sort_by_key(|device| device.seen.index);
        if by_index.is_empty() {
            return Err(self.no_devices().into());
        }
        let all = list(&by_index);
        by_index.retain(|device| device.seen.is_among(spec.nodes));
        if by_index.is_empty() {
            return Err(Why::NoneOpen(all).into());
        }
        let visible = match &spec.visible_devices {
            None => by_index.clone(),
            Some(text) => {
                let visible = visible(text, &by_index);
                if visible.is_empty() {
                    return Err(Why::NoneVisible(text.clone(), list(&by_index)).into());
                }
                visible
            }
        };
        if let Some(aliases) = &spec.aliases {
            let uuids: Vec<String> = visible.iter().map(|device| device.seen.uuid.to_string()).collect();
            let checked = aliases.check_devices(&uuids);
            checked.map_err(|why| Why::Alias(why, "--mem SIZE"))?;
        }
        let may_use = |device: &Device| spec.judge.gpu(device.seen.index, &device.seen.uuid.to_string());
        let GpuChoice::Named(names) = &spec.gpu else {
            let allowed: Vec<&Device> = visible
                .iter()
                .filter(|device| may_use(device).is_ok())
                .copied()
                .collect();
            return match visible.iter().find_map(|device| may_use(device).err()) {
                Some(why) if allowed.is_empty() => Err(why.into()),
                _ => Ok(allowed),
            };
        };
        let mut chosen: Vec<&Device> = Vec::new();
        for name in names {
            let device = device_named(name, &by_index)?;
            if !visible.iter().any(|other| other.seen.uuid == device.seen.uuid) {
                let text = spec.visible_devices.clone().unwrap_or_default();
                return Err(Why::Excluded(device.seen.index, text).into());
            }
            if chosen.iter().any(|other| other.seen.uuid == device.seen.uuid) {
                return Err(Why::GpuTwice(device.seen.index).into());
            }
            may_use(device)?;
            chosen.push(device);
        }
        Ok(chosen)
    }

    fn no_devices(&self) -> Why {
        match &self.driver {
            DriverState::Missing(why) => Why::NoDriver(why.clone()),
            DriverState::Broken(why) => Why::BrokenDriver(why.clone()),
            DriverState::Ok => Why::NoDevice(),
        }
    }

    /// The candidates that could hold the request if they were empty.
    fn possible<'a>(
        &self,
        spec: &RunSpec,
        candidates: &[&'a Device],
        count: usize,
    ) -> Result<Vec<Candidate<'a>>, Refusal> {
        let mut possible = Vec::new();
        let slots = |order: usize| match &spec.gpu {
            GpuChoice::Auto(_) => 0..u32::try_from(count).unwrap_or(1),
            GpuChoice::All | GpuChoice::Named(_) => u32::try_from(order).map_or(0..1, |order| order..order + 1),
        };
        for (order, device) in candidates.iter().enumerate() {
            let asked = amounts(spec, device, slots(order))?;
            let fits = asked.request <= device.usable() && asked.limit.unwrap_or(0) <= device.seen.total_bytes;
            if fits && device.state != DeviceState::Lost {
                possible.push(Candidate::new(device, asked));
            }
        }
        let needed = if matches!(spec.gpu, GpuChoice::Auto(_)) {
            count
        } else {
            candidates.len()
        };
        if possible.len() >= needed {
            return Ok(possible);
        }
        if candidates.len() < needed {
            return Err(Why::TooFew(needed, candidates.len(), list(candidates)).into());
        }
        if let Some(lost) = candidates.iter().find(|device| device.state == DeviceState::Lost) {
            return Err(Why::Lost(self.gpu(lost.seen.uuid), lost.why.clone()).into());
        }
        let largest = candidates.iter().map(|device| device.usable()).max().unwrap_or(0);
        let mut asked = 0;
        for (order, device) in candidates.iter().enumerate() {
            let amounts = amounts(spec, device, slots(order))?;
            asked = asked.max(amounts.request).max(amounts.limit.unwrap_or(0));
        }
        let offers = candidates.iter().take(4);
        let offers = offers.map(|device| (device.seen.index, device.usable())).collect();
        Err(Why::NeverFits(asked, offers, largest).into())
    }

    fn obstacle(&self, candidate: &Candidate<'_>, spec: &RunSpec, claimed: &Claims, site: &Site) -> Option<Obstacle> {
        if let Some(text) = &site.bar {
            return Some(Obstacle::State(text.clone()));
        }
        if let Some(text) = self.total_obstacle(spec, candidate.request, candidate.device, site) {
            return Some(Obstacle::Total(text));
        }
        let seen = &candidate.device.seen;
        let (left, time_left) = (site.left, site.time_left);
        // A job that is promised nothing needs no room.
        let bytes = (candidate.request > left).then_some(left);
        let ppm = (u64::from(spec.terms.promise_ppm) > time_left).then_some(time_left);
        let wish = |bytes, ppm| Wish {
            device: seen.uuid,
            bytes,
            ppm,
        };
        let most = candidate.limit.unwrap_or(seen.total_bytes).max(candidate.request);
        let asked = wish(most, spec.terms.promise_ppm.into());
        if let Some(job) = claimed.passed_by(asked, wish(left, time_left)) {
            return Some(Obstacle::State(format!(
                "GPU {} goes to {job} first, which asked earlier",
                seen.index
            )));
        }
        (bytes.is_some() || ppm.is_some()).then_some(Obstacle::Short { bytes, ppm })
    }

    fn no_room(
        spec: &RunSpec,
        possible: &[Candidate<'_>],
        obstacles: &[(&Candidate<'_>, Obstacle)],
        count: usize,
    ) -> Unplaced {
        let mut parts: Vec<String> = obstacles
            .iter()
            .take(4)
            .map(|(candidate, obstacle)| match obstacle {
                Obstacle::State(text) | Obstacle::Total(text) => text.clone(),
                Obstacle::Short { bytes, ppm } => {
                    let usable = format_bytes(candidate.device.usable());
                    let memory = bytes.map(|left| format!("{} of {usable} left", format_bytes(left)));
                    let time = ppm.map(|left| format!("{} of its time left to promise", part(left)));
                    let short: Vec<String> = memory.into_iter().chain(time).collect();
                    format!("GPU {} has {}", candidate.device.seen.index, short.join(" and "))
                }
            })
            .collect();
        if obstacles.len() > parts.len() {
            parts.push(format!("{} more likewise", obstacles.len() - parts.len()));
        }
        let request = possible.iter().map(|candidate| candidate.request).max().unwrap_or(0);
        let on = match (&spec.gpu, count) {
            (GpuChoice::Auto(1), _) => "on one device".to_owned(),
            (GpuChoice::Auto(_), count) => format!("on each of {count} devices"),
            (GpuChoice::All, count) => format!("on each of all {count} devices"),
            (GpuChoice::Named(_), 1) => "there".to_owned(),
            (GpuChoice::Named(_), count) => format!("on each of these {count} devices"),
        };
        let promise = spec.terms.promise_ppm;
        let need = match (request, promise) {
            (0, 0) => format!("needs a place {on}"),
            (request, 0) => format!("needs {} {on}", format_bytes(request)),
            (0, promise) => format!("needs {} of the time {on}", format_part(promise)),
            (request, promise) => {
                let time = format_part(promise);
                format!("needs {} and {time} of the time {on}", format_bytes(request))
            }
        };
        let short = |obstacle: &Obstacle| match obstacle {
            Obstacle::State(_) => (true, false),
            Obstacle::Total(_) => (false, false),
            Obstacle::Short { bytes, ppm } => (bytes.is_some(), ppm.is_some()),
        };
        let shortages = obstacles
            .iter()
            .map(|(candidate, obstacle)| (candidate.device.seen.uuid, short(obstacle)));
        Unplaced::NoRoom {
            reason: format!("{need}: {}", parts.join(", ")),
            shortages: shortages.collect(),
            // Who waits for a total is in nobody's way but the sharers'.
            wishes: possible
                .iter()
                .filter(|candidate| {
                    let is_it = |other: &Candidate<'_>| other.device.seen.uuid == candidate.device.seen.uuid;
                    let bars = |(other, obstacle): &(&Candidate<'_>, Obstacle)| {
                        is_it(other) && matches!(obstacle, Obstacle::Total(_))
                    };
                    !obstacles.iter().any(bars)
                })
                .map(|candidate| Wish {
                    device: candidate.device.seen.uuid,
                    bytes: candidate.request,
                    ppm: spec.terms.promise_ppm.into(),
                })
                .collect(),
        }
    }

    /// Who holds what a request is short of, the greatest first.
    pub(crate) fn shortage_holders<M: Machine>(
        &self,
        shortages: &Shortages,
        survey: &Survey,
        machine: &M,
    ) -> Vec<Holding> {
        let mut holders = Vec::new();
        for (device, short) in shortages {
            let site = self.devices.get(device).map(|known| survey.site(self, known, machine));
            let account = site.as_ref().and_then(|site| site.account.as_ref());
            holders.extend(self.holders(*device, *short, account));
        }
        sort_holders(&mut holders);
        holders.truncate(32);
        holders
    }
}

/// How loaded a device is: the greater of the committed part of its memory and the promised part of its time, in
/// millionths, then both, then jobs.
fn load(device: &Device, site: &Site) -> (u64, u64, usize) {
    let Some(account) = &site.account else {
        return (u64::MAX, u64::MAX, usize::MAX);
    };
    let taken = u128::from(account.committed().saturating_add(account.unmanaged()));
    let part = taken * 1_000_000 / u128::from(device.usable().max(1));
    let part = u64::try_from(part).unwrap_or(u64::MAX);
    let time = site.promised_time;
    (part.max(time), part.saturating_add(time), account.holds.len())
}

pub(crate) fn amounts(spec: &RunSpec, device: &Device, slots: std::ops::Range<u32>) -> Result<Amounts, Refusal> {
    spec.amounts(device.size(), &device.seen.uuid.to_string(), slots)
}

/// The devices that `CUDA_VISIBLE_DEVICES=text` leaves, in its order; entries from the first invalid or repeated one on
/// count for nothing, as with the driver.
pub(crate) fn visible<'a>(text: &str, by_index: &[&'a Device]) -> Vec<&'a Device> {
    let mut visible: Vec<&Device> = Vec::new();
    for part in text.split(',') {
        let Some(name) = GpuName::parse(part.trim()) else { break };
        let Ok(device) = device_named(&name, by_index) else {
            break;
        };
        if visible.iter().any(|other| other.seen.uuid == device.seen.uuid) {
            break;
        }
        visible.push(device);
    }
    visible
}

/// The device that a name means.
pub(crate) fn device_named<'a>(name: &GpuName, by_index: &[&'a Device]) -> Result<&'a Device, Refusal> {
    let mut matching = by_index.iter().filter(|device| match name {
        GpuName::Index(index) => device.seen.index == *index,
        GpuName::Uuid(prefix) => device.seen.uuid.to_string().to_ascii_lowercase().starts_with(prefix),
    });
    let written = match name {
        GpuName::Index(index) => index.to_string(),
        // As nvidia-smi writes it: `GPU-` and small digits.
        GpuName::Uuid(prefix) => format!("{}{}", prefix[..4].to_ascii_uppercase(), &prefix[4..]),
    };
    match (matching.next(), matching.next()) {
        (Some(device), None) => Ok(device),
        (None, _) => Err(Why::NoSuchGpu(written, list(by_index)).into()),
        (Some(_), Some(_)) => Err(Why::ManyUuids(written).into()),
    }
}

fn list(devices: &[&Device]) -> Gpus {
    Gpus(devices.iter().map(|device| device.seen.index).collect())
}
