// SPDX-License-Identifier: Apache-2.0
//! What one user or one connection can cost: silent connections are closed after [`HELLO_NS`] and, when one user has
//! more than [`SILENT_PER_USER`], oldest first, so that a flood closes its own connections and a program that speaks at
//! once always gets in. Each connection is read for at most [`PACKETS_PER_TURN`] packets before the next one.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use partage_protocol::units::SECOND_NS;

use super::connection::MAX_UNSENT_COMMAND;

/// A connection that said nothing whole for this long is closed.
pub const HELLO_NS: u64 = 10 * SECOND_NS;
/// Silent connections of one user; the oldest goes when another comes.
pub const SILENT_PER_USER: usize = 512;
/// Commands of one user that wait for replies or follow events.
pub(super) const COMMANDS_PER_USER: usize = 2048;
/// Bytes of replies and events that one user's commands may leave unread together; beyond, the oldest of those
/// connections goes.
pub(super) const UNREAD_PER_USER: usize = MAX_UNSENT_COMMAND;
/// Packets of one connection in one turn of the loop.
pub(super) const PACKETS_PER_TURN: usize = 32;
/// Connections accepted in one turn.
pub(super) const ACCEPTS_PER_TURN: usize = 64;
/// Pause of accepting when no descriptor is left and nobody can be closed.
pub(super) const ACCEPT_PAUSE_NS: u64 = SECOND_NS / 20;
/// Descriptors wanted: two for each client of a full ledger, and as many connections again.
pub(super) const WANTED_DESCRIPTORS: u64 = 65536;

/// Raises the limit of open descriptors as far as the hard limit lets. Answers the new limit.
pub fn raise_descriptor_limit() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return 0;
    };
    let wanted = WANTED_DESCRIPTORS.min(hard).max(soft);
    if setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).is_ok() {
        wanted
    } else {
        soft
    }
}
