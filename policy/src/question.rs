// SPDX-License-Identifier: Apache-2.0
//! What clients ask, and the questions that are not answered at once.

use partage_protocol::units::{ClientId, DeviceUuid, JobId};

/// What a client asked, with the number of its question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// `Ask`: the client's use is to become `wanted` bytes, for an allocation of `request` bytes.
    Ask {
        slot: usize,
        sequence: u32,
        wanted: u64,
        request: u64,
    },
    /// `Measure` with `MEASURE_BEFORE`: a context is about to be made.
    Announcement { slot: usize, sequence: u32 },
}

/// Whose return a question waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// Clients of a job.
    OfJob(JobId),
    /// Clients of any job of a device.
    OnDevice(DeviceUuid),
}

/// A question that is not decided yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The client that asked.
    pub(crate) client: ClientId,
    /// What it asked.
    pub(crate) question: Question,
    /// When it asked.
    pub(crate) asked_ns: u64,
    /// What the answer depends on.
    pub(crate) awaited: Awaited,
}

/// The questions that are not decided yet, one of each client at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Undecided {
    kept: Vec<Kept>,
}

impl Undecided {
    /// Keeps a question. The client has none here: a client has one at a time.
    pub(crate) fn keep(&mut self, kept: Kept) {
        self.kept.push(kept);
    }

    /// Takes the questions that are meant.
    pub(crate) fn take(&mut self, is_meant: impl Fn(&Kept) -> bool) -> Vec<Kept> {
        self.kept.extract_if(.., |kept| is_meant(kept)).collect()
    }

    /// The client asks something else, its connection is gone, or it is.
    pub(crate) fn forget(&mut self, client: ClientId) {
        self.kept.retain(|kept| kept.client != client);
    }

    /// What the answers depend on; several may depend on the same.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = Awaited> {
        self.kept.iter().map(|kept| kept.awaited)
    }

    /// When the oldest of them was asked.
    pub(crate) fn first_ns(&self) -> Option<u64> {
        self.kept.iter().map(|kept| kept.asked_ns).min()
    }

    /// The clients that wait.
    pub(crate) fn clients(&self) -> impl Iterator<Item = &ClientId> {
        self.kept.iter().map(|kept| &kept.client)
    }
}
