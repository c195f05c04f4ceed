// SPDX-License-Identifier: Apache-2.0
//! What lets a denied allocation through: the `partage set` that works as typed, or what stands in its way.
//!
//! A promise that equals the limit follows it, so that `mem=` alone asks for more of the card than the allocation
//! needs. Where that much cannot be promised any more, the limit is raised beside the promise; where the card has no
//! room at all, no limit helps.

use crate::books::Books;
use crate::device::DeviceState;
use crate::holding::{Holding, Who};
use crate::machine::Machine;
use crate::rules::{AskedMemory, NotAllowed, Said};
use partage_protocol::size::raised_limit;
use partage_protocol::units::JobId;

/// What to do about an allocation that the limit denied.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Advice {
    /// `mem=` alone.
    Raise { mem: u64 },
    /// `mem=`, and the promise stays what it is.
    RaiseLimit { mem: u64, request: u64 },
    /// It ended: `-m` of the next one.
    Another { mem: u64 },
    /// A rule allows no more.
    Ruled { rule: String },
    /// The device has no more in all.
    WholeDevice { total: u64 },
    /// The device has so much for the job, whatever its limit is.
    NoRoom { room: u64, holders: Vec<Holding> },
}

impl Books {
    /// What lets a job that uses `used` have `asked` more on a slot, as things are; `None` for an unknown device.
    pub(crate) fn advice<M: Machine>(
        &self,
        job: JobId,
        slot: usize,
        (used, asked): (u64, u64),
        machine: &M,
    ) -> Option<Advice> {
        let place = self.jobs.get(&job)?.record.devices.get(slot)?;
        let known = self.devices.get(&place.device)?;
        let mem = raised_limit(used, asked);
        let total = known.seen.total_bytes;
        if mem > total {
            return Some(Advice::WholeDevice { total });
        }
        let wanted = AskedMemory {
            limit: Some(Said::firm(Some(mem), "")),
            ..AskedMemory::default()
        };
        if let Err(NotAllowed::Above(_, rule, _)) = self.judge_of(job).memory(&wanted, known.size()) {
            return Some(Advice::Ruled { rule });
        }
        let account = self.account(place.device, machine)?;
        let room = account.room(Some(job));
        if used.saturating_add(asked) > room {
            let mut holders = account.holders();
            holders.retain(|holder| holder.who != Who::Job(job));
            return Some(Advice::NoRoom { room, holders });
        }
        let follows = place.request > 0 && place.limit == Some(place.request);
        let is_open = known.state == DeviceState::Ok && !self.is_adopting(place.device);
        let is_promisable = is_open && mem <= account.promisable(Some(job));
        Some(if !follows || is_promisable {
            Advice::Raise { mem }
        } else {
            let request = place.request;
            Advice::RaiseLimit { mem, request }
        })
    }
}

impl Books {
    /// What lets another job like this one, which ended, have `asked` more than `used` on a slot: nothing can be set
    /// any more, and how full the device will be then is not known.
    pub(crate) fn advice_for_another(&self, job: JobId, slot: usize, (used, asked): (u64, u64)) -> Option<Advice> {
        let place = self.jobs.get(&job)?.record.devices.get(slot)?;
        let mem = raised_limit(used, asked);
        let total = self.devices.get(&place.device).map(|known| known.seen.total_bytes);
        Some(match total {
            Some(total) if mem > total => Advice::WholeDevice { total },
            _ => Advice::Another { mem },
        })
    }
}
