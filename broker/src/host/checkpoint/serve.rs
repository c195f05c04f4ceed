// SPDX-License-Identifier: Apache-2.0
//! The process that makes the driver's checkpoint calls in the broker's stead (`partaged --checkpoint-helper`).
//!
//! Its effective user is the target's, because the driver serves a caller of the same user. It calls nothing on its
//! own, and ends when the broker closes the socket or dies (`helper/channel.rs`).

use std::path::Path;

use partage_policy::Process;

use super::library::{Driver, Refused};
use super::messages::{Answer, Ask};
use super::probe;
use crate::helper::channel;
use crate::helper::process::be_wholly_the_user;
use crate::host::proc::{Proc, Processes};

/// `CUDA_ERROR_OPERATING_SYSTEM`.
const OPERATING_SYSTEM: i32 = 304;
/// `CUDA_ERROR_NOT_PERMITTED`.
const NOT_PERMITTED: i32 = 800;

/// Serves requests on descriptor 0 until its other end closes.
pub fn serve(driver_file: Option<&Path>) {
    let mut opened = None;
    channel::serve(|ask| answer(&mut opened, driver_file, ask));
}

/// `opened` holds the driver and its version once it is initialised.
fn answer(opened: &mut Option<(Driver, i32)>, driver_file: Option<&Path>, ask: Ask) -> Answer {
    if let Ask::Call { target, .. } = &ask
        && let Some(why_not) = why_not(&Proc, *target)
    {
        return why_not;
    }
    let (driver, version) = match opened {
        Some(opened) => opened,
        None => match Driver::open(driver_file) {
            Ok(driver) => opened.insert(driver),
            Err(why) => return Answer::NoDriver(why),
        },
    };
    let result = match ask {
        Ask::Open => return Answer::Ready(*version),
        Ask::Call { target, call } => {
            let pid = i32::try_from(target.pid).unwrap_or(i32::MAX);
            match driver.checkpoint(pid, &call) {
                // No driver was seen to look at another user of a caller than the effective one. One that does refuses
                // by these codes, and is called once more by a process that is wholly the user's.
                Err(Refused::Code(OPERATING_SYSTEM | NOT_PERMITTED))
                    if why_not(&Proc, target).is_none() && be_wholly_the_user().is_ok_and(|is_news| is_news) =>
                {
                    driver.checkpoint(pid, &call)
                }
                result => result,
            }
        }
        Ask::Context { uuid } => driver.keep_context(&uuid).map(|()| None),
        Ask::Map { device, is_masked, all } => return probe::try_map(driver, driver_file, (&device, is_masked, &all)),
        Ask::Room { uuid, bytes } => driver.room(&uuid, bytes).map(|()| None),
    };
    match result {
        Ok(Some(state)) => Answer::State(state),
        Ok(None) => Answer::Done,
        Err(Refused::Code(code)) => Answer::Code(code),
        Err(refused) => Answer::NoDriver(refused.to_string()),
    }
}

/// Why a process is not called: it is another one, or stopped, and a call would hang until it goes on.
pub(super) fn why_not(processes: &dyn Processes, target: Process) -> Option<Answer> {
    match processes.stat(target.pid) {
        Some(stat) if stat.id != target || stat.is_exiting => Some(Answer::Gone),
        Some(stat) if stat.is_stopped => Some(Answer::Stopped),
        Some(_) => None,
        None => Some(Answer::Gone),
    }
}
