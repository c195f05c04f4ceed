// SPDX-License-Identifier: Apache-2.0
//! What clients ask, and the questions that are not answered at once.

use partage_protocol::units::ClientId;

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

/// The questions that are not decided yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Undecided {
    questions: Vec<(ClientId, Question)>,
}

impl Undecided {
    /// Keeps a question. A client has one at a time: it has given up an older one.
    pub(crate) fn keep(&mut self, client: ClientId, question: Question) {
        self.forget(client);
        self.questions.push((client, question));
    }

    /// Takes every question.
    pub(crate) fn take(&mut self) -> Vec<(ClientId, Question)> {
        std::mem::take(&mut self.questions)
    }

    /// The client is gone.
    pub(crate) fn forget(&mut self, client: ClientId) {
        self.questions.retain(|(of, _)| *of != client);
    }
}
