// SPDX-License-Identifier: Apache-2.0
//! Who asks: processes, callers of the command line, and where their replies go.

use partage_protocol::units::JobId;
use serde::{Deserialize, Serialize};

/// A process, told apart from later ones of the same pid by its start time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Process {
    /// Process id in the broker's namespace.
    pub pid: u32,
    /// Start time in clock ticks since boot (field 22 of /proc/PID/stat).
    pub start: u64,
}

/// A connection of the command line on which a reply is owed; chosen by the broker, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Who asks, from the kernel's credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Real uid of the peer.
    pub uid: u32,
    /// Login name, or the uid in digits.
    pub user: String,
    /// May act on other people's jobs (root, or a member of the administrators' group on `admin.sock`).
    pub is_admin: bool,
    /// It may change the jobs of its uid. Not so root without `admin.sock` on a managed host: root of the host has that
    /// socket, so it may be root in any container.
    pub may_change_own: bool,
    /// The peer's process.
    pub process: Process,
    /// The peer is in the control group that this job owns (a container): it looks, and changes nothing.
    pub inside: Option<JobId>,
}
