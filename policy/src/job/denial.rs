// SPDX-License-Identifier: Apache-2.0
//! A denial: why an allocation was denied, and what is remembered of the last one.

use partage_protocol::denied::Denied;
use partage_protocol::job_ledger::Verdict;
use partage_protocol::message::{VERDICT_CARD_FULL, VERDICT_PROCESS_LIMIT};
use partage_protocol::size::format_bytes;
use serde::{Deserialize, Serialize};

/// Why a job cannot have more on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Short {
    /// The device has no room for it.
    Card,
    /// A total that it shares has none.
    Total,
}

/// Why an allocation was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The job's limit.
    Limit,
    /// The limit of the process that asked.
    ProcessLimit,
    /// The card had no room for this job, within its limit.
    CardFull,
    /// No broker answered the client; it told the next one.
    NoBroker,
    /// A context or module was not let in: what it takes did not fit the limit, or the card.
    Overhead,
    /// Likewise, within the limit: the card had no room for it.
    OverheadCardFull,
    /// A total that the job shares with others had no room.
    Total,
}

impl Reason {
    /// Why a context or module had to go, by the verdict (`VERDICT_*`) on its measurement, and what had no room.
    pub(crate) const fn of_overhead(verdict: u32, short: Short) -> Self {
        match verdict {
            VERDICT_CARD_FULL if matches!(short, Short::Total) => Self::Total,
            VERDICT_CARD_FULL => Self::OverheadCardFull,
            VERDICT_PROCESS_LIMIT => Self::ProcessLimit,
            _ => Self::Overhead,
        }
    }

    /// Was it the card and not the limit? Then others matter.
    pub(crate) const fn is_of_card(self) -> bool {
        matches!(self, Self::CardFull | Self::OverheadCardFull)
    }

    /// Was something too much that was there already? Then nothing more was asked for.
    pub(crate) const fn is_measured(self) -> bool {
        matches!(self, Self::Overhead | Self::OverheadCardFull)
    }

    /// Can it be that memory of a process that has ended was in the way?
    pub(crate) const fn may_be_unfreed(self) -> bool {
        !matches!(self, Self::ProcessLimit | Self::NoBroker)
    }

    /// The reason in a ledger's answer, and what had no room; `None` when it denies nothing.
    pub(crate) const fn of(verdict: Verdict, short: Short) -> Option<Self> {
        match verdict {
            Verdict::Limit => Some(Self::Limit),
            Verdict::ProcessLimit => Some(Self::ProcessLimit),
            Verdict::CardFull { .. } if matches!(short, Short::Total) => Some(Self::Total),
            Verdict::CardFull { .. } => Some(Self::CardFull),
            Verdict::Granted | Verdict::Retry | Verdict::Invalid => None,
        }
    }

    /// The word that users see.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::ProcessLimit => "process limit",
            Self::CardFull => "card full",
            Self::NoBroker => "no broker",
            Self::Overhead | Self::OverheadCardFull => "overhead",
            Self::Total => "rule",
        }
    }

    /// As a part of a sentence.
    pub(crate) const fn because(self) -> &'static str {
        match self {
            Self::Limit => "the job's limit",
            Self::ProcessLimit => "the process's limit",
            Self::CardFull => "the card has no room for this job",
            Self::NoBroker => "no broker answered",
            Self::Overhead => "what a context or module takes does not fit",
            Self::OverheadCardFull => "the card has no room for what a context or module takes",
            Self::Total => "a total that it shares with other jobs",
        }
    }

    /// Its counter.
    pub(crate) fn counter(self, denied: &mut Denied) -> &mut u64 {
        match self {
            Self::Limit => &mut denied.limit,
            Self::ProcessLimit => &mut denied.process_limit,
            Self::CardFull => &mut denied.card_full,
            Self::NoBroker => &mut denied.no_broker,
            Self::Overhead | Self::OverheadCardFull => &mut denied.overhead,
            Self::Total => &mut denied.total,
        }
    }
}

/// The denials of two slots, or jobs, together.
pub(crate) fn both(one: &Denied, other: &Denied) -> Denied {
    Denied {
        limit: one.limit.saturating_add(other.limit),
        card_full: one.card_full.saturating_add(other.card_full),
        no_broker: one.no_broker.saturating_add(other.no_broker),
        overhead: one.overhead.saturating_add(other.overhead),
        process_limit: one.process_limit.saturating_add(other.process_limit),
        total: one.total.saturating_add(other.total),
        recovered: one.recovered.saturating_add(other.recovered),
    }
}

/// Memory of a process that has ended, which the driver has not freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfreed {
    /// The process.
    pub pid: u32,
    /// What it holds.
    pub bytes: u64,
}

impl Unfreed {
    /// As a part of a sentence.
    pub(crate) fn text(&self) -> String {
        let bytes = format_bytes(self.bytes);
        format!("pid {} has ended, but the driver has not freed its {bytes}", self.pid)
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
    /// The job's limit then; the process's, where that denied.
    pub limit: u64,
    /// The job's use then; the process's, where its limit denied.
    pub used: u64,
    /// Why.
    pub reason: Reason,
    /// Who held the device, the greatest first; only where it was the card or a total and not the limit.
    pub holders: Vec<Held>,
    /// `rule students, each_user.mem = 24GiB (…)`, where a total denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// There was room but for the memory of a process that had ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfreed: Option<Unfreed>,
}

impl Denial {
    /// `limit`, `rule students`, …
    #[must_use]
    pub fn word(&self) -> &str {
        let name = self.rule.as_deref().and_then(|rule| rule.split(',').next());
        name.unwrap_or(self.reason.word())
    }
}

/// Who held how much.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// `j42`, `pid 77`.
    pub who: String,
    /// The greater of promised and used, in bytes.
    pub bytes: u64,
}
