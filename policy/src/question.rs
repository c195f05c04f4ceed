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

/// What a question waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// That clients of a job come back.
    OfJob(JobId),
    /// That clients of any job of a device come back.
    OnDevice(DeviceUuid),
    /// That the memory of processes that end is free.
    Dying,
    /// Which processes have ended: they are being looked at.
    Search,
}

/// When a question was asked, and what was done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AskedAt {
    /// The time.
    pub(crate) ns: u64,
    /// It was looked for processes that have ended unnoticed.
    pub(crate) is_searched: bool,
}

impl AskedAt {
    /// Just now.
    pub(crate) const fn now(now_ns: u64) -> Self {
        Self {
            ns: now_ns,
            is_searched: false,
        }
    }
}

/// A question that is not decided yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The client that asked.
    pub(crate) client: ClientId,
    /// What it asked.
    pub(crate) question: Question,
    /// When it asked.
    pub(crate) at: AskedAt,
    /// What the answer depends on.
    pub(crate) awaited: Awaited,
}

impl Kept {
    /// It was looked for processes that have ended unnoticed.
    pub(crate) const fn searched(mut self) -> Self {
        self.at.is_searched = true;
        self
    }
}

/// The questions that are not decided yet, one of each client at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Undecided {
    kept: Vec<Kept>,
    /// Memory came back: what waits for that is asked again.
    is_some_freed: bool,
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

    /// Memory came back.
    pub(crate) fn note_freed(&mut self) {
        self.is_some_freed = !self.kept.is_empty();
    }

    /// Did memory come back since this was asked last?
    pub(crate) fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.is_some_freed)
    }

    /// What the answers depend on; several may depend on the same.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = Awaited> {
        self.kept.iter().map(|kept| kept.awaited)
    }

    /// When the oldest of them was asked.
    pub(crate) fn first_ns(&self) -> Option<u64> {
        self.kept.iter().map(|kept| kept.at.ns).min()
    }

    /// The clients that wait.
    pub(crate) fn clients(&self) -> impl Iterator<Item = &ClientId> {
        self.kept.iter().map(|kept| &kept.client)
    }
}
