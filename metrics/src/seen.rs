// SPDX-License-Identifier: Apache-2.0
//! What metrics are read from.

use partage_protocol::admin::{JobView, StatusView, TotalView, UnmanagedView};

/// What the broker shows of one moment.
#[derive(Clone, Debug)]
pub struct Seen {
    /// `status`.
    pub status: StatusView,
    /// `ps`: the jobs that live.
    pub jobs: Vec<JobView>,
    /// `ps`: the processes of no job.
    pub unmanaged: Vec<UnmanagedView>,
    /// The totals of rules, where they are known.
    pub totals: Vec<TotalView>,
    /// Series that earlier scrapes summed.
    pub dropped_before: u64,
}
