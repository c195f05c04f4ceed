// SPDX-License-Identifier: Apache-2.0
//! What ties this process to a broker: socket, descriptors, mapped pages, job, where slots went.
//!
//! ```text
//!              attach                lost
//!   nothing ───────────► standing ──────────► gone
//!                         │ ▲ ▲   reattach     │
//!                    park │ │ └────────────────┘
//!                         ▼ │ return
//!                        parked
//! ```
//! *attach* maps the pages that the first welcome brings, once in the life of a process. *lost* closes the socket and
//! nothing else: charges and launches go on against the pages, which the next broker adopts. *reattach* takes the
//! connection of a broker that welcomes this process under its old id. *park* and *return*: [`parking`]. No other
//! module maps a broker's page.
//!
//! [`Link`] belongs to the session, which has a lock. [`Attachment`](pages::Attachment) is what every thread reads:
//! written once, before the phase becomes `Attached`. A forked child starts from nothing: both lie in memory that is
//! wiped, the mappings are not copied, and the child closes the descriptors that [`inherited`] knows. The driver's
//! registration of the marks' page belongs to the contexts that made it; the page stays mapped as long as the process,
//! and so outlives them.

pub mod job;
pub mod link;
mod mapping;
pub mod moved;
pub mod names;
pub mod ordinals;
pub mod own_pages;
pub mod own_use;
pub mod pages;
pub mod parking;
pub mod ties;

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use partage_protocol::message::{MAX_DEVICES, Welcome};
use partage_protocol::page::ClientFile;
use partage_records::attachment::{self, Transition};

use crate::attachment::link::Link;
use crate::guest::inherited;
use crate::socket::{self, Refusal};
use crate::state::{Phase, State};

pub use pages::{Attachment, of};

/// A broker's welcome: the first attaches, any other reattaches. `true`: it was not the first. `shown` is for
/// the moment when every thread sees the pages.
///
/// # Errors
/// The welcome is not for this process, or its pages are not to be had. The connection is gone then.
pub fn welcomed(
    state: &State,
    link: &mut Link,
    welcome: &Welcome,
    descriptors: [c_int; 2],
    shown: fn(&ClientFile),
) -> Result<bool, Refusal> {
    let has_files = descriptors.iter().all(|fd| *fd >= 0);
    let transition = attachment::welcomed(link.client(), welcome.client, has_files, link.is_parked());
    let result = match transition {
        Transition::Attach => attach(state, link, welcome, descriptors, shown),
        Transition::Return => parking::take_again(of(state), link, welcome, descriptors),
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
    result.map(|()| transition != Transition::Attach)
}

/// Maps the pages and takes over the job's devices.
fn attach(
    state: &State,
    link: &mut Link,
    welcome: &Welcome,
    descriptors: [c_int; 2],
    shown: fn(&ClientFile),
) -> Result<(), Refusal> {
    let (broker, client) = link.keep_files(descriptors);
    let (broker_page, client_file) = mapping::map(broker, client).inspect_err(|_| link.close_files())?;
    link.set_client(welcome.client);
    let attachment = of(state);
    // SAFETY: the session, and with it its link, belongs to this thread; the pages are published below, and mapped as
    // long as the process.
    let job = unsafe { attachment.take_job(welcome, &*broker_page) };
    let is_late = state.phase() == Phase::Standalone;
    let held = attachment.ledger.hold();
    for slot in 0..MAX_DEVICES {
        let to = job.slot_of(&own_use::standalone_uuid(state, slot));
        attachment.move_slot(slot, to);
    }
    attachment.ordinals.number_slots(job);
    // SAFETY: mapped above, as long as the process.
    own_use::move_in(attachment, unsafe { &(*client_file).page });
    // SAFETY: as above.
    unsafe { attachment.publish(broker_page, client_file) };
    attachment.is_uncovered.store(is_late, Ordering::Release);
    state.set_phase(Phase::Attached);
    drop(held);
    // SAFETY: as above.
    let file = unsafe { &*client_file };
    shown(file);
    ties::carry(attachment, &file.page);
    if is_late {
        names::tell_foreign(state);
    }
    Ok(())
}
