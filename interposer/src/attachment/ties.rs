// SPDX-License-Identifier: Apache-2.0
//! What ties this process to its device, for the broker to see ([`ties`](partage_protocol::hold::ties)).

use core::sync::atomic::{Ordering, fence};

use partage_abi::types::CuResult;
use partage_protocol::page::ClientPage;

use super::pages::{Attachment, of};
use crate::state;

/// The driver answered a call that ties the process to its device where it succeeds. A tie stays.
#[inline(never)]
pub fn made(result: CuResult, tie: u64) -> CuResult {
    if result.is_success()
        && let Some(state) = state::get()
    {
        let attachment = of(state);
        attachment.own.client.head.ties.fetch_or(tie, Ordering::SeqCst);
        // Against `carry`: it sees what stands on the own page, or this sees the shared page.
        if let Some(page) = attachment.client_page() {
            page.head.ties.fetch_or(tie, Ordering::SeqCst);
        }
    }
    result
}

/// The shared page says what ties this process already. Precondition: it is published.
pub fn carry(attachment: &Attachment, shared: &ClientPage) {
    fence(Ordering::SeqCst);
    let ties = attachment.own.client.head.ties.load(Ordering::SeqCst);
    shared.head.ties.fetch_or(ties, Ordering::SeqCst);
}
