// SPDX-License-Identifier: Apache-2.0
//! The process that asks the user database in the broker's stead (`partaged --user-helper`).
//!
//! It asks nothing on its own, and ends when the broker closes the socket or dies (`helper/channel.rs`).

use std::ffi::CString;

use nix::errno::Errno;
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};

use super::messages::{Account, Answer, Ask};
use crate::helper::channel;

/// Serves requests on descriptor 0 until its other end closes.
pub fn serve() {
    channel::serve(|ask| answer(&ask));
}

pub(super) fn answer(ask: &Ask) -> Answer {
    let result = match ask {
        Ask::User(uid) => account(*uid).map(Answer::User),
        Ask::Group(name) => {
            found(Group::from_name(name)).map(|group| Answer::Group(group.map(|group| group.gid.as_raw())))
        }
    };
    result.unwrap_or_else(|error| Answer::Failed(error.to_string()))
}

fn account(uid: u32) -> nix::Result<Option<Account>> {
    let Some(user) = found(User::from_uid(Uid::from_raw(uid)))? else {
        return Ok(None);
    };
    let name = CString::new(user.name.as_bytes()).map_err(|_| Errno::EINVAL)?;
    let mut groups = Vec::new();
    for gid in getgrouplist(&name, user.gid)? {
        groups.push((gid.as_raw(), name_of(gid)?));
    }
    Ok(Some(Account {
        name: user.name,
        groups,
    }))
}

fn name_of(gid: Gid) -> nix::Result<Option<String>> {
    Ok(found(Group::from_gid(gid))?.map(|group| group.name))
}

/// Some of the database's modules answer with one of these where there is no such entry.
fn found<T>(answer: nix::Result<Option<T>>) -> nix::Result<Option<T>> {
    match answer {
        Err(Errno::ENOENT | Errno::ESRCH | Errno::EPERM | Errno::EBADF) => Ok(None),
        answer => answer,
    }
}
