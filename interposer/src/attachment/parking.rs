// SPDX-License-Identifier: Apache-2.0
//! Parking: this process lets go of everything that it has of a broker's, so that it can be dumped, and gets it again.
//!
//! In the place of both shared pages come private copies, at the same addresses: the gates' and the hold's words are
//! found there by addresses that every thread may know. A thread that writes to a page while it is exchanged may write
//! to the old one. So this is done at a hard hold with nobody inside: the threads that stand there write their own
//! words again at each step of their wait, and what they add up is [counted anew](recount).

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use partage_protocol::message::{NOTICE_PARKED, Notice, Welcome};
use partage_protocol::page::{BrokerPage, ClientFile};
use partage_records::exchange::Exchanged;
use zerocopy::IntoBytes;

use super::link::Link;
use super::mapping;
use super::pages::Attachment;
use crate::guest::inherited;
use crate::socket::{self, Refusal};

/// Says so, and lets go: the connection last, by whose end the broker knows. `false`: all is as it was.
pub fn park(attachment: &Attachment, link: &mut Link) -> bool {
    let (Some(broker), Some(client)) = (attachment.broker_page(), attachment.client_file()) else {
        return false;
    };
    let Ok(broker_copy) = mapping::copy(broker) else {
        return false;
    };
    let Ok(client_copy) = mapping::copy(client) else {
        mapping::discard::<BrokerPage>(broker_copy);
        return false;
    };
    let notice = Notice {
        header: Notice::header(0),
        what: NOTICE_PARKED,
        slot: 0,
        value: 0,
    };
    let is_said = socket::send(link.socket(), notice.as_bytes()).is_ok();
    let exchanged = if is_said {
        mapping::move_over(client_copy, client)
    } else {
        Exchanged::Not
    };
    if exchanged != Exchanged::Moved {
        mapping::discard::<ClientFile>(client_copy);
    }
    if exchanged == Exchanged::Not {
        mapping::discard::<BrokerPage>(broker_copy);
        return false;
    }
    // With the client's page private a mapping of the broker's is all that is left of it: harmless, and seen in the
    // dump.
    if mapping::move_over(broker_copy, broker) != Exchanged::Moved {
        mapping::discard::<BrokerPage>(broker_copy);
    }
    recount(client);
    link.close_files();
    link.set_parked(true);
    link.lost();
    inherited::remember(link.kept());
    true
}

/// Puts the pages of a welcome in the place of the private copies; what was counted goes over to them.
///
/// # Errors
/// No room for them, or a layout that this library does not know.
pub fn take_again(
    attachment: &Attachment,
    link: &mut Link,
    welcome: &Welcome,
    descriptors: [c_int; 2],
) -> Result<(), Refusal> {
    let (Some(broker), Some(client)) = (attachment.broker_page(), attachment.client_file()) else {
        socket::discard(descriptors);
        return Err(Refusal::Final);
    };
    let (broker_file, client_file) = link.keep_files(descriptors);
    let (broker_pages, client_pages) = mapping::map(broker_file, client_file).inspect_err(|_| link.close_files())?;
    forget_times(client);
    // SAFETY: just mapped, and given up only where nobody has seen it.
    let pages = unsafe { &*client_pages };
    mapping::copy_words(client, pages);
    let early = client.page.head.early.load(Ordering::Relaxed);
    pages.page.head.early.store(early, Ordering::Relaxed);
    let is_moved = mapping::move_over(client_pages.cast(), client) == Exchanged::Moved;
    if !is_moved {
        mapping::discard::<ClientFile>(client_pages.cast());
    }
    if !is_moved || mapping::move_over(broker_pages.cast(), broker) != Exchanged::Moved {
        // The kernel has no memory for its own tables. The next attempt begins with what lies there now.
        mapping::discard::<BrokerPage>(broker_pages.cast());
        link.close_files();
        return Err(Refusal::Unable);
    }
    recount(client);
    attachment.set_number(welcome.job);
    link.set_client(welcome.client);
    link.set_parked(false);
    Ok(())
}

/// Counts again how many threads stand at the hold: one may have counted itself in or out on the other page.
fn recount(file: &ClientFile) {
    let stand = |place: &&partage_protocol::gate::ThreadSlot| place.wants.load(Ordering::Acquire) != 0;
    let count = file.time.places().filter(stand).count() as u32;
    file.page.head.wants.store(count, Ordering::Release);
}

/// Times of the monotonic clock mean nothing after a reboot.
fn forget_times(file: &ClientFile) {
    for page in &file.time.devices {
        for lane in &page.lanes {
            if lane.unmarked_until_ns.load(Ordering::Relaxed) != 0 {
                lane.unmarked_until_ns.store(0, Ordering::Relaxed);
            }
        }
    }
}
