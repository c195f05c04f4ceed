// SPDX-License-Identifier: Apache-2.0
//! Denials: counted by job, device and reason; the last one on each device is kept with who held what at that instant.

use partage_protocol::admin::{DenialView, DeniedView, Holder};
use partage_protocol::job_ledger::Verdict;
use partage_protocol::message::VERDICT_CARD_FULL;
use partage_protocol::size::format_bytes;
use partage_protocol::summary::denied_times;
use partage_protocol::units::{ClientId, JobId};
use serde::{Deserialize, Serialize};

use crate::event::Caller;
use crate::policy::{Machine, OnSlot, Policy};

/// Holders that a denial remembers, the greatest first.
const HOLDERS: usize = 8;

/// Why an allocation was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The job's limit.
    Limit,
    /// The card had no room for this job, within its limit.
    CardFull,
    /// No broker answered the client; it told the next one.
    NoBroker,
    /// A context or module was not let in: what it takes did not fit the limit, or the card.
    Overhead,
    /// Likewise, within the limit: the card had no room for it.
    OverheadCardFull,
}

impl Reason {
    /// Why a context or module had to go, by the verdict (`VERDICT_*`) on its measurement.
    pub(crate) const fn of_overhead(verdict: u32) -> Self {
        match verdict {
            VERDICT_CARD_FULL => Self::OverheadCardFull,
            _ => Self::Overhead,
        }
    }

    /// Was it the card and not the limit? Then others matter.
    pub(crate) const fn is_of_card(self) -> bool {
        matches!(self, Self::CardFull | Self::OverheadCardFull)
    }

    /// The reason in a ledger's answer; `None` when it denies nothing.
    #[must_use]
    pub const fn of(verdict: Verdict) -> Option<Self> {
        match verdict {
            Verdict::Limit => Some(Self::Limit),
            Verdict::CardFull { .. } => Some(Self::CardFull),
            Verdict::Granted | Verdict::Retry | Verdict::Invalid => None,
        }
    }

    /// The word that users see.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::CardFull => "card full",
            Self::NoBroker => "no broker",
            Self::Overhead | Self::OverheadCardFull => "overhead",
        }
    }

    const fn because(self) -> &'static str {
        match self {
            Self::Limit => "the job's limit",
            Self::CardFull => "the card has no room for this job",
            Self::NoBroker => "no broker answered",
            Self::Overhead => "what a context or module takes does not fit",
            Self::OverheadCardFull => "the card has no room for what a context or module takes",
        }
    }

    fn counter(self, denied: &mut DeniedView) -> &mut u64 {
        match self {
            Self::Limit => &mut denied.limit,
            Self::CardFull => &mut denied.card_full,
            Self::NoBroker => &mut denied.no_broker,
            Self::Overhead | Self::OverheadCardFull => &mut denied.overhead,
        }
    }
}

/// The last denial of a job on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    /// Unix time in nanoseconds.
    pub unix_ns: u64,
    /// Who asked.
    pub pid: u32,
    /// Bytes of the allocation; 0 where the client did not say.
    pub asked: u64,
    /// The job's limit then.
    pub limit: u64,
    /// The job's use then.
    pub used: u64,
    /// Why.
    pub reason: Reason,
    /// Who held the device, the greatest first; only where it was the card and not the limit.
    pub holders: Vec<Held>,
}

/// Who held how much.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// `j42`, `pid 77`.
    pub who: String,
    /// The greater of promised and used, in bytes.
    pub bytes: u64,
}

impl Policy {
    /// Counts a denial that happened so many times; the 1st, 2nd, 4th, 8th … of a job is published, so that a retrying
    /// allocator floods nobody.
    pub(crate) fn deny<M: Machine>(
        &mut self,
        job: JobId,
        slot: usize,
        (client, asked, times): (ClientId, u64, u64),
        reason: Reason,
        machine: &M,
        now_ns: u64,
    ) {
        let pid = self.clients.get(&client).map(|client| client.process.pid);
        let device = self.jobs.get(&job).and_then(|job| job.record.devices.get(slot));
        let device = device.map(|place| place.device);
        let picture = device
            .filter(|_| reason.is_of_card())
            .and_then(|device| self.picture(device, machine));
        let holders = picture.map(|picture| picture.holders()).unwrap_or_default();
        let gpu = device.map_or_else(|| format!("its device {slot}"), |device| self.gpu(device));
        let unix_ns = self.unix_ns(now_ns);
        let Some(state) = self.jobs.get_mut(&job) else { return };
        let count = reason.counter(&mut state.denied);
        let before = *count;
        *count = before.saturating_add(times);
        let count = *count;
        let Some(place) = state.slots.get_mut(slot) else { return };
        let here = reason.counter(&mut place.denied);
        *here = here.saturating_add(times);
        let pages = OnSlot { machine, slot };
        let (limit, used) = (place.ledger.limit(), place.ledger.used_sum(&pages));
        let overhead = place.ledger.overhead_sum(&pages);
        let own = job.to_string();
        let others = holders.into_iter().filter(|holder| holder.who != own);
        let held = others.take(HOLDERS).map(|holder| Held {
            who: holder.who,
            bytes: holder.bytes,
        });
        place.last_denial = Some(Denial {
            unix_ns,
            pid: pid.unwrap_or(0),
            asked,
            limit,
            used,
            reason,
            holders: held.collect(),
        });
        if before.checked_ilog2() != count.checked_ilog2() {
            let what = match asked {
                0 => "an allocation".to_owned(),
                asked => format_bytes(asked),
            };
            let text = format!(
                "{job} was denied {what} on {gpu} ({}): it uses {} of {}{}; {} so far",
                reason.because(),
                format_bytes(used),
                format_bytes(limit),
                match overhead {
                    0 => String::new(),
                    bytes => format!(", {} of it overhead", format_bytes(bytes)),
                },
                denied_times(count)
            );
            self.publish("denied", Some(job), pid, text);
        }
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
            reason: denial.reason.word().into(),
            holders: denial.holders.iter().map(holder).collect(),
        }
    }
}
