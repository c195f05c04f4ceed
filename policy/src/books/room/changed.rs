// SPDX-License-Identifier: Apache-2.0
//! What another limit of a job would need, and what speaks against it.

use crate::books::Books;
use crate::caller::Caller;
use crate::device::{Device, DeviceState};
use crate::event::Change;
use crate::holding::Who;
use crate::job::Placement;
use crate::machine::Machine;
use crate::refusal::{Refusal, Why, unreadable};
use crate::request::RunSpec;
use crate::rules::{Judge, NotAllowed, Said};
use crate::terms::Terms;
use partage_protocol::size::{Amount, NONE, format_request, parse_amount, parse_request};
use partage_protocol::units::JobId;

/// A limit as it was written; none within is no limit.
pub(crate) fn read_limit(
    change: &Change,
    (key, text): (&str, Option<&str>),
    caller: &Caller,
) -> Result<Option<Said<Option<Amount>>>, Refusal> {
    Ok(match text {
        None => None,
        Some(NONE) => Some(change.said(key, NONE, None, caller)),
        Some(text) => {
            let amount = parse_amount(text).map_err(unreadable(format!("{key}=")))?;
            Some(change.said(key, &amount.to_string(), Some(amount), caller))
        }
    })
}

/// A [`Change`] that was read: amounts with the words that set them. A limit may be none, the whole card.
pub(crate) struct Wanted {
    mem: Option<Said<Option<Amount>>>,
    mem_request: Option<Said<Amount>>,
    process_mem: Option<Said<Option<Amount>>>,
}

impl Wanted {
    /// `None` when nothing is to change.
    pub(crate) fn read(change: &Change, caller: &Caller) -> Result<Option<Self>, Refusal> {
        let mem = read_limit(change, ("mem", change.mem.as_deref()), caller)?;
        let process_mem = read_limit(change, ("process-mem", change.process_mem.as_deref()), caller)?;
        let mem_request = match change.mem_request.as_deref() {
            None => None,
            Some(text) => {
                let amount = parse_request(text).map_err(unreadable("mem-request="))?;
                Some(change.said("mem-request", &format_request(amount), amount, caller))
            }
        };
        let is_any = mem.is_some() || mem_request.is_some() || process_mem.is_some();
        Ok(is_any.then_some(Self {
            mem,
            mem_request,
            process_mem,
        }))
    }

    /// A waiting request under new amounts; what it does not change stays.
    pub(crate) fn in_queue(&self, old: &RunSpec) -> RunSpec {
        let mut spec = old.clone();
        spec.drop_aliases();
        if let Some(mem) = &self.mem {
            spec.set_mem(mem.clone());
        }
        if let Some(request) = &self.mem_request {
            spec.mem_request = Some(request.clone());
        }
        if let Some(process) = &self.process_mem {
            spec.process_mem = Some(process.clone());
        }
        spec
    }
}

impl Books {
    /// A time limit that is over already would end the job at once, which is what `stop` is for.
    pub(crate) fn check_time_limit(&self, id: JobId, new: &Terms, now_ns: u64) -> Result<(), Refusal> {
        let Some(job) = self.jobs.get(&id) else { return Ok(()) };
        let Some(limit_ns) = new
            .time_limit_ns
            .filter(|_| new.time_limit_ns != job.record.terms.time_limit_ns)
        else {
            return Ok(());
        };
        let run_ns = job.record.run_ns(self.unix_ns(now_ns));
        if run_ns < limit_ns {
            return Ok(());
        }
        Err(Why::TimeOver(limit_ns, id, run_ns).into())
    }

    /// A placement under new amounts.
    pub(crate) fn replaced(&self, place: &Placement, (wanted, judge): &(Wanted, Judge)) -> Result<Placement, Refusal> {
        let Some(device) = self.devices.get(&place.device) else {
            return Err(Why::UnknownDevice(place.device).into());
        };
        let mut new = place.clone();
        let mut asked = place.asked();
        if let Some(said) = &wanted.mem {
            let limit = said.value.map(|amount| amount.on(device.usable()));
            self.check_size(device, limit.unwrap_or(0), device.seen.total_bytes, "mem")?;
            new.set_limit(limit, &said.words);
            asked.set_limit(said.clone().map(|_| limit));
            asked.set_request(Said::soft(new.request, new.origin.request.clone()));
        }
        if let Some(said) = &wanted.mem_request {
            let request = said.value.on(device.usable());
            self.check_size(device, request, device.usable(), "mem-request")?;
            asked.set_request(said.clone().map(|_| request));
        }
        if let Some(said) = &wanted.process_mem {
            let limit = said.value.map(|amount| amount.on(device.usable()));
            self.check_size(device, limit.unwrap_or(0), device.seen.total_bytes, "process-mem")?;
            asked.set_process(said.clone().map(|_| limit));
        }
        let memory = judge
            .memory(&asked, device.size())
            .map_err(|why| match (why, &wanted.mem_request) {
                (NotAllowed::RequestAboveLimit(..), Some(said)) => {
                    Why::RequestAbove(said.value, new.limit.unwrap_or(u64::MAX), device.seen.index).into()
                }
                (why, _) => Refusal::from(why),
            })?;
        new.take(memory, asked);
        Ok(new)
    }

    pub(crate) fn check_size(&self, device: &Device, asked: u64, most: u64, key: &str) -> Result<(), Refusal> {
        if asked <= most {
            return Ok(());
        }
        let (index, total) = (device.seen.index, device.seen.total_bytes);
        Err(Why::TooLarge(key.to_owned(), index, total, device.usable()).into())
    }

    pub(crate) fn check_raise<M: Machine>(
        &self,
        id: JobId,
        old: &Placement,
        new: &Placement,
        machine: &M,
    ) -> Result<(), Refusal> {
        if new.request <= old.request {
            return Ok(());
        }
        let Some(device) = self.devices.get(&new.device) else {
            return Ok(());
        };
        if device.state != DeviceState::Ok || self.is_adopting(new.device) {
            return Err(Why::TakesNoPromise(device.seen.index).into());
        }
        let (left, total) = self.promisable_to(id, new.device, machine);
        if new.request <= left {
            return Ok(());
        }
        Err(self.no_room_for(new, (left, total), machine, id))
    }

    pub(crate) fn no_room_for<M: Machine>(
        &self,
        new: &Placement,
        (left, total): (u64, Option<String>),
        machine: &M,
        id: JobId,
    ) -> Refusal {
        let account = self.account(new.device, machine);
        let mut holders = account.map(|account| account.holders()).unwrap_or_default();
        holders.retain(|holder| holder.who != Who::Job(id));
        let gpu = self.gpu(new.device);
        match total {
            Some(total) => Why::NoPromiseInTotal(new.request, id, gpu, left, total, holders),
            None => Why::NoPromise(new.request, id, gpu, left, holders),
        }
        .into()
    }
}
