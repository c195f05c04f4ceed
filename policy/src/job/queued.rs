// SPDX-License-Identifier: Apache-2.0
//! A waiting job's place in the queue.

use crate::caller::Ticket;
use crate::request::RunSpec;

/// A waiting job's place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Queued {
    pub ticket: Ticket,
    pub spec: RunSpec,
    pub mem_text: Option<String>,
    pub since_ns: u64,
    pub deadline_ns: Option<u64>,
    pub next_reminder_ns: u64,
    pub reason: String,
}
