// SPDX-License-Identifier: Apache-2.0
//! What ties this process to a broker: socket, descriptors, mapped pages, job, where slots went.
//!
//! ```text
//!              attach                lost
//!   nothing ───────────► standing ──────────► gone
//!                           ▲     reattach     │
//!                           └──────────────────┘
//! ```
//! *attach* maps the pages that the first welcome brings, once in the life of a process. *lost* closes the socket and
//! nothing else: charges and launches go on against the pages, which the next broker adopts. *reattach* takes the
//! connection of a broker that welcomes this process under its old id. No other module maps a broker's page.
//!
//! [`Link`] belongs to the session, which has a lock. [`Attachment`](pages::Attachment) is what every thread reads:
//! written once, before the phase becomes `Attached`. A forked child starts from nothing: both lie in memory that is
//! wiped, the mappings are not copied, and the child closes the descriptors that [`inherited`] knows. The driver's
//! registration of the marks' page belongs to the contexts that made it; the page stays mapped as long as the process,
//! and so outlives them.

pub mod job;
pub mod link;
mod mapping;
pub mod pages;
pub mod ties;

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use partage_protocol::message::{MAX_DEVICES, Welcome};
use partage_records::attachment::{self, Transition};

use crate::attachment::job::Job;
use crate::attachment::link::Link;
use crate::attachment::pages::FOREIGN;
use crate::devices::names;
use crate::gate::early;
use crate::guest::inherited;
use crate::own_pages;
use crate::socket::{self, Refusal};
use crate::state::{NAMELESS, Phase, State};

/// A broker's welcome: the first attaches, any other reattaches. `true`: it was not the first.
///
/// # Errors
/// The welcome is not for this process, or its pages are not to be had. The connection is gone then.
pub fn welcomed(state: &State, link: &mut Link, welcome: &Welcome, descriptors: [c_int; 2]) -> Result<bool, Refusal> {
    let has_files = descriptors.iter().all(|fd| *fd >= 0);
    let transition = attachment::welcomed(link.client(), welcome.client, has_files);
    let result = match transition {
        Transition::Attach => attach(state, link, welcome, descriptors),
        // The pages stay what they are.
        Transition::Reattach | Transition::Refuse => {
            socket::discard(descriptors);
            if transition == Transition::Reattach {
                Ok(())
            } else if link.client() == 0 && welcome.client != 0 && !has_files {
                // The kernel leaves out the descriptors that a process has no room for.
                Err(Refusal::Unable)
            } else {
                Err(Refusal::Final)
            }
        }
    };
    link.judged(result);
    if result.is_ok() {
        inherited::remember(link.kept());
    }
    result.map(|()| transition == Transition::Reattach)
}

/// Maps the pages and takes over the job's devices.
fn attach(state: &State, link: &mut Link, welcome: &Welcome, descriptors: [c_int; 2]) -> Result<(), Refusal> {
    let (broker, client) = link.keep_files(descriptors);
    let (broker_page, client_file) = mapping::map(broker, client).inspect_err(|_| link.close_files())?;
    link.set_client(welcome.client);
    // SAFETY: the session, and with it its link, belongs to this thread; the pages are published below, and mapped as
    // long as the process.
    let job = unsafe { state.attachment.take_job(welcome, &*broker_page) };
    let is_late = state.phase() == Phase::Standalone;
    let held = state.tables.hold();
    number_slots(state, job);
    // SAFETY: mapped above, as long as the process.
    own_pages::move_in(state, unsafe { &(*client_file).page });
    // SAFETY: as above.
    unsafe { state.attachment.publish(broker_page, client_file) };
    state.is_uncovered.store(is_late, Ordering::Release);
    state.set_phase(Phase::Attached);
    drop(held);
    // SAFETY: as above.
    let file = unsafe { &*client_file };
    early::attached(file);
    ties::carry(state, &file.page);
    if is_late {
        names::tell_foreign(state);
    }
    Ok(())
}

/// Numbers the slots as the job does. Precondition: `State::tables` is held.
fn number_slots(state: &State, job: &Job) {
    for slot in 0..MAX_DEVICES {
        let to = job.slot_of(&own_pages::standalone_uuid(state, slot));
        state.attachment.move_slot(slot, to);
    }
    for (ordinal, slot) in state.ordinal_slots.iter().enumerate() {
        let uuid = state.ordinal_uuid(ordinal);
        let other = if uuid == [0; 16] { NAMELESS } else { FOREIGN };
        let to = job.slot_of(&uuid).map_or(other, |to| to as i32);
        slot.store(to, Ordering::Relaxed);
    }
}
