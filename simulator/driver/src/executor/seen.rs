// SPDX-License-Identifier: Apache-2.0
//! What a stream's next operation certainly comes after, as far as events have told: a vector clock over streams.

use std::collections::HashMap;

use super::OpId;

/// For each stream, the last of its operations that is known to come before.
#[derive(Clone, Debug, Default)]
pub struct Seen(HashMap<u64, OpId>);

impl Seen {
    /// An operation of a stream, and so everything before it in that stream, comes before.
    pub fn note(&mut self, stream: u64, op: OpId) {
        let last = self.0.entry(stream).or_insert(op);
        *last = (*last).max(op);
    }

    /// What another one has seen comes before too.
    pub fn join(&mut self, other: &Self) {
        other.0.iter().for_each(|(&stream, &op)| self.note(stream, op));
    }

    /// Whether an operation of a stream comes before.
    pub fn covers(&self, stream: u64, op: OpId) -> bool {
        self.0.get(&stream).is_some_and(|&last| op <= last)
    }
}
