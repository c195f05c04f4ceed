// SPDX-License-Identifier: Apache-2.0
//! What is remembered of a client that contradicts NVML, or itself, until the two agree again.

use partage_protocol::units::SECOND_NS;

/// A client must drift for this long before anything is done to it: two looks at least, so that a figure of NVML that
/// lags behind a free harms nobody.
pub const CONFIRM_NS: u64 = SECOND_NS * 2 / 5;

/// One contradiction, as one look shows it.
pub(crate) struct Contradiction {
    pub kind: Kind,
    /// What, with the numbers.
    pub text: String,
    /// Its size, where it has one.
    pub bytes: Option<u64>,
}

/// What contradicts what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Its words each other.
    Words,
    /// It claims more than NVML shows.
    Claims,
    /// NVML shows more than its job may have.
    Past,
}

/// A client that contradicts NVML, or itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drift {
    kind: Kind,
    /// What, with the numbers, as last seen.
    text: String,
    /// Bytes of the contradiction when it was last published, or how often it was seen where no bytes are meant.
    published: u64,
    seen: u64,
    since_ns: u64,
    is_confirmed: bool,
    is_answered: bool,
}

impl Drift {
    /// Nothing of it has been published yet.
    pub(crate) const fn new(kind: Kind, now_ns: u64) -> Self {
        Self {
            kind,
            text: String::new(),
            published: 0,
            seen: 0,
            since_ns: now_ns,
            is_confirmed: false,
            is_answered: false,
        }
    }

    /// One more look shows it. Answers whether that is to be published: the first of its kind, and each doubling.
    pub(crate) fn see(&mut self, found: Contradiction, now_ns: u64) -> bool {
        let is_new = self.seen == 0 || self.kind != found.kind;
        self.seen += 1;
        self.kind = found.kind;
        self.text = found.text;
        self.is_confirmed |= now_ns >= self.since_ns.saturating_add(CONFIRM_NS);
        let size = found.bytes.unwrap_or(self.seen);
        let is_published = is_new || size / 2 >= self.published.max(1);
        if is_published {
            self.published = size;
        }
        is_published
    }

    /// What contradicts what, with the numbers, as last seen.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// It lasts for so long that the rules answer.
    pub(crate) const fn is_confirmed(&self) -> bool {
        self.is_confirmed
    }

    /// Is it to be answered now? Once, when it is confirmed.
    pub(crate) fn take_answer(&mut self) -> bool {
        self.is_confirmed && !std::mem::replace(&mut self.is_answered, true)
    }
}
