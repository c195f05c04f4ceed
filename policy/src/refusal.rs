// SPDX-License-Identifier: Apache-2.0
//! Why a command is refused, as facts. Each is a row of the table in `views/said/refusals.rs`, which has its words.

use std::fmt::Display;

use partage_protocol::aliases::AliasError;
use partage_protocol::size::Amount;
use partage_protocol::units::{DeviceUuid, JobId};

use crate::holding::Holding;
use crate::residence::Residence;
use crate::rules::NotAllowed;

/// A refusal. It displays as its sentence, and becomes the document that its caller gets.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal(pub(crate) Box<Why>);

refusal_table!(facts);

/// Indices of GPUs, as a sentence lists them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gpus(pub(crate) Vec<u32>);

impl From<Why> for Refusal {
    fn from(why: Why) -> Self {
        Self(Box::new(why))
    }
}

impl From<NotAllowed> for Refusal {
    fn from(why: NotAllowed) -> Self {
        Why::Rules(why).into()
    }
}

impl Why {
    /// Who holds what is short.
    pub(crate) fn holders(&self) -> &[Holding] {
        match self {
            Self::NoPromise(.., holders) | Self::NoPromiseInTotal(.., holders) | Self::NoTime(.., holders) => holders,
            Self::NoRoom(.., holders) | Self::NoRoomWithin(.., holders) | Self::StaysAway(.., holders) => holders,
            Self::StaysAwayAfter(.., holders) | Self::Stays(_, holders) => holders,
            _ => &[],
        }
    }
}

impl Refusal {
    /// Is a promise refused that could be made if there were room?
    pub(crate) fn is_of_a_promise(&self) -> bool {
        use Why::{NoPromise, NoPromiseInTotal, NoTime, NoTimeInTotal, TakesNoPromise};
        matches!(
            *self.0,
            TakesNoPromise(..) | NoPromise(..) | NoPromiseInTotal(..) | NoTime(..) | NoTimeInTotal(..)
        )
    }
}

/// A value that cannot be read, and what stands before it.
pub(crate) fn unreadable<E: Display>(before: impl Into<String>) -> impl FnOnce(E) -> Refusal {
    move |why| Why::Value(before.into(), why.to_string()).into()
}
