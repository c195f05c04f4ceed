// SPDX-License-Identifier: Apache-2.0
//! What the parts of the broker's loop share: the policy with its books, what is known of this machine, and what is to
//! be told and sent.
//!
//! ```text
//!   driver (events come in) ──┐            ┌──► todo: events for the policy, told by whoever found something
//!                             ├──► Site ───┤
//!   residence (the engine) ───┘            └──► effects: packets, watches, questions to helpers
//! ```
//! No part steps the policy but the driver's loop: the others [`tell`](Site::tell) it an event, and look again later.

use std::collections::{BTreeSet, VecDeque};

use partage_policy::{Caller, Event, Policy};

use crate::clock::Now;
use crate::config::Config;
use crate::host::proc::Processes;
use crate::kind::Kind;
use crate::peer::ConnectionId;
use crate::state::clients::Clients;
use crate::state::devices::Devices;
use crate::state::directory::SocketDir;
use crate::state::jobs::Jobs;
use crate::watch::events::EventLog;
use crate::watch::flood::Flood;
use crate::watch::users::Users;

pub mod effect;
mod kin;
mod outgoing;
mod publish;
mod signals;
mod watches;

pub(crate) use outgoing::error_view;
pub(crate) use watches::Watches;

/// What the parts share.
pub(crate) struct Site {
    /// When the event under way happened.
    pub now: Now,
    pub policy: Policy,
    pub clients: Clients,
    pub devices: Devices,
    pub jobs: Jobs,
    pub directory: SocketDir,
    pub config: Config,
    pub processes: Box<dyn Processes>,
    pub users: Users,
    pub events: EventLog,
    /// The number of the next event.
    pub next_event: u64,
    pub flood: Flood,
    /// Connections on which a reply is owed.
    pub tickets: BTreeSet<ConnectionId>,
    pub watches: Watches,
    /// What the server is to do.
    pub effects: Vec<effect::Effect>,
    /// What the policy has not heard yet.
    pub todo: VecDeque<Event>,
}

impl Site {
    /// The policy hears of this after all that it was told before.
    pub(crate) fn tell(&mut self, event: Event) {
        self.todo.push_back(event);
    }

    /// The policy hears of this next: what was decided rests on it.
    pub(crate) fn tell_next(&mut self, event: Event) {
        self.todo.push_front(event);
    }

    /// An administrator; of a private broker, its user.
    pub(crate) fn may_administer(&self, caller: &Caller) -> bool {
        let me = nix::unistd::geteuid().as_raw();
        caller.is_admin
            || self.directory.kind() == Kind::Private
                && caller.uid == me
                && caller.may_change_own
                && caller.inside.is_none()
    }
}
