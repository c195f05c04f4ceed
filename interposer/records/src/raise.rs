// SPDX-License-Identifier: Apache-2.0
//! How high a process without a broker may raise its grant on a device, beside the other processes of its job.

/// What comes of wanting more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raise {
    /// The grant covers it already: nothing is to be written.
    Enough,
    /// The grant may rise to this.
    To(u64),
    /// The limit does not leave it.
    Denied,
}

/// Decides about `wanted` bytes in all. `granted` and `used` are the process's own, `others` what the job's other
/// processes were granted, `limit` the job's.
///
/// A thread worked out `wanted` before it waited for its turn. Another one may have got and used more since, so a
/// grant never falls here, and never ends below the use.
#[must_use]
pub fn raise(wanted: u64, (granted, used): (u64, u64), others: u64, limit: u64) -> Raise {
    if wanted <= granted {
        return Raise::Enough;
    }
    let to = wanted.max(used);
    if others.saturating_add(to) > limit {
        Raise::Denied
    } else {
        Raise::To(to)
    }
}
