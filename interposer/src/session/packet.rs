// SPDX-License-Identifier: Apache-2.0
//! The questions of a client, and what an answer says.

use partage_protocol::message::{
    Answer, Ask, Measure, Usage, VERDICT_CARD_FULL, VERDICT_GRANTED, VERDICT_LIMIT, VERDICT_PROCESS_LIMIT,
    VERDICT_RETRY, VERDICT_UNFREED,
};
use partage_protocol::reservation::{AskAnswer, Denial};
use zerocopy::IntoBytes;

/// A message ready to send, whichever it is.
pub enum Packet {
    /// Asks for a grant.
    Ask(Ask),
    /// Asks what the job uses.
    Usage(Usage),
    /// Has the broker measure what the driver holds.
    Measure(Measure),
}

impl Packet {
    /// Asks for a grant of `wanted` bytes on a slot, for an allocation of `request`.
    pub fn ask(sequence: u32, slot: usize, wanted: u64, request: u64) -> Self {
        Self::Ask(Ask {
            header: Ask::header(sequence),
            slot: slot as u32,
            reserved: 0,
            wanted,
            request,
        })
    }

    /// Asks what the job uses on a slot.
    pub fn usage(sequence: u32, slot: usize) -> Self {
        Self::Usage(Usage {
            header: Usage::header(sequence),
            slot: slot as u32,
            reserved: 0,
        })
    }

    /// Asks for a look at what the driver holds on a slot.
    pub fn measure(sequence: u32, slot: usize, stage: u32) -> Self {
        Self::Measure(Measure {
            header: Measure::header(sequence),
            slot: slot as u32,
            stage,
        })
    }

    /// The bytes of the packet.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Ask(ask) => ask.as_bytes(),
            Self::Usage(usage) => usage.as_bytes(),
            Self::Measure(measure) => measure.as_bytes(),
        }
    }
}

/// What the broker decided.
pub fn verdict(answer: &Answer) -> AskAnswer {
    match answer.verdict {
        VERDICT_GRANTED => AskAnswer::Granted,
        VERDICT_RETRY => AskAnswer::Retry,
        VERDICT_LIMIT => AskAnswer::Denied(Denial::Limit),
        VERDICT_PROCESS_LIMIT => AskAnswer::Denied(Denial::ProcessLimit),
        VERDICT_CARD_FULL => AskAnswer::Denied(Denial::CardFull),
        VERDICT_UNFREED => AskAnswer::Denied(Denial::Unfreed(answer.physical_free as u32)),
        _ => AskAnswer::Denied(Denial::Invalid),
    }
}
