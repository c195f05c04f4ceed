// SPDX-License-Identifier: Apache-2.0
//! Which view is asked for, and the copy that it is made of.

use std::collections::{BTreeMap, BTreeSet};

use partage_policy::{Books, Caller, TargetQuery};
use partage_protocol::admin::{BrokerView, MetricsRequest};
use partage_protocol::units::JobId;

use super::frozen::Frozen;
use crate::peer::ConnectionId;

/// Who asks for a view, and which. Whether they may was checked.
#[derive(Debug)]
pub struct ViewRequest {
    /// Where the answer goes.
    pub to: ConnectionId,
    /// Who asks.
    pub caller: Caller,
    /// Which.
    pub what: What,
}

/// Which view.
#[derive(Debug, PartialEq, Eq)]
pub enum What {
    /// `ps`, one page.
    Ps {
        /// Ended jobs too.
        all: bool,
        /// From the job after this one on.
        after: Option<JobId>,
    },
    /// `status`.
    Status,
    /// `queue`.
    Queue,
    /// `metrics`.
    Metrics(MetricsRequest),
    /// `get`.
    Get(TargetQuery),
    /// `why`.
    Why(TargetQuery),
}

impl ViewRequest {
    /// Is the answer to the other one the same, from the same copy? Only which process asks is different, and that
    /// changes no list.
    pub(super) fn shares_its_answer(&self, other: &Self) -> bool {
        let is_list = matches!(
            self.what,
            What::Ps { .. } | What::Status | What::Queue | What::Metrics(_)
        );
        let process = self.caller.process;
        is_list
            && self.what == other.what
            && self.caller.uid == other.caller.uid
            && self.caller
                == Caller {
                    process,
                    ..other.caller.clone()
                }
    }
}

impl What {
    /// Does it say whether a job is stopped?
    pub(super) fn tells_stopped(&self) -> bool {
        matches!(self, Self::Ps { .. } | Self::Metrics(_) | Self::Get(_) | Self::Why(_))
    }

    /// Bytes of what the caller wrote.
    pub(super) fn written_bytes(&self) -> usize {
        match self {
            Self::Ps { .. } | Self::Status | Self::Queue => 0,
            Self::Metrics(asked) => asked.labels.iter().map(String::len).sum(),
            Self::Get(target) | Self::Why(target) => target.text.len(),
        }
    }
}

/// All that views are made of, as it was at one moment. Nothing that the event loop changes is in it.
#[derive(Debug)]
pub struct Published {
    /// The books.
    pub books: Books,
    /// The clients' words.
    pub machine: Frozen,
    /// The broker's view of itself, as for a caller who is no administrator.
    pub broker: BrokerView,
    /// Names of the users whose processes are on the devices.
    pub users: BTreeMap<u32, String>,
    /// Jobs whose processes are all stopped, as far as the loop knows.
    pub stopped: BTreeSet<JobId>,
    /// The moment.
    pub now_ns: u64,
}
