// SPDX-License-Identifier: Apache-2.0
//! What a command hears that wants a job back on its devices.

use partage_protocol::admin::{ErrorCode, ErrorView, Holder, Reply, Waiting};
use partage_protocol::units::JobId;

/// It is so.
pub(crate) fn done(message: String) -> Reply {
    Reply::Done { message }
}

/// It cannot come back as things are.
pub(crate) fn refused(message: String, hint: String) -> ErrorView {
    ErrorView {
        code: ErrorCode::Failed,
        message,
        hint: Some(hint),
        holders: Vec::new(),
    }
}

/// It ended while the command waited.
pub(crate) fn ended(id: JobId) -> ErrorView {
    ErrorView {
        code: ErrorCode::NoTarget,
        message: format!("{id} has ended"),
        hint: None,
        holders: Vec::new(),
    }
}

/// It has no room, and nobody waits any longer.
pub(crate) fn no_room(message: String, holders: Vec<Holder>) -> ErrorView {
    ErrorView {
        code: ErrorCode::NoRoom,
        message,
        hint: Some("partage status shows who holds what".to_owned()),
        holders,
    }
}

/// It has no room where it was to go.
pub(crate) fn no_room_there(message: String, holders: Vec<Holder>) -> ErrorView {
    ErrorView {
        code: ErrorCode::Failed,
        ..no_room(message, holders)
    }
}

/// It waits on.
pub(crate) fn waits(position: u32, reason: String, holders: Vec<Holder>) -> Reply {
    Reply::Waiting(Waiting {
        position,
        reason,
        holders,
    })
}
