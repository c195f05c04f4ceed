// SPDX-License-Identifier: Apache-2.0
//! Requests that wait for the worker, and how much of its next batch each user has.

use std::collections::{BTreeMap, VecDeque};

use super::published::ViewRequest;
use crate::peer::ConnectionId;

/// Different answers to one user in one batch: whoever asks a lot waits for itself, and others for a batch at most.
const PER_BATCH: usize = 16;
/// Bytes that one user's waiting requests may have written together: 2,000 targets of 500 bytes each.
const WRITTEN_PER_USER: usize = 1024 * 1024;

/// Requests that wait, by user.
#[derive(Debug, Default)]
pub struct Queue {
    by_user: BTreeMap<u32, VecDeque<ViewRequest>>,
}

impl Queue {
    /// Another request waits.
    ///
    /// # Errors
    /// Its user has too many of them: it is dropped.
    pub fn add(&mut self, request: ViewRequest) -> Result<(), &'static str> {
        let requests = self.by_user.entry(request.caller.uid).or_default();
        let new = request.what.written_bytes();
        let written: usize = requests.iter().map(|waiting| waiting.what.written_bytes()).sum();
        if new > 0 && written > 0 && written + new > WRITTEN_PER_USER {
            return Err("too much of this user's waits for an answer");
        }
        requests.push_back(request);
        Ok(())
    }

    /// Nobody waits for this answer any more.
    pub fn forget(&mut self, uid: u32, to: ConnectionId) {
        if let Some(requests) = self.by_user.get_mut(&uid) {
            requests.retain(|waiting| waiting.to != to);
            if requests.is_empty() {
                self.by_user.remove(&uid);
            }
        }
    }

    /// Does nobody wait?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_user.is_empty()
    }

    /// Takes the next batch: of each user those that waited longest.
    #[must_use]
    pub fn take_batch(&mut self) -> Vec<ViewRequest> {
        let mut batch = Vec::new();
        for requests in self.by_user.values_mut() {
            let (mut different, mut count): (Vec<&ViewRequest>, usize) = (Vec::new(), 0);
            for request in requests.iter() {
                if !different.iter().any(|other| request.shares_its_answer(other)) {
                    if different.len() == PER_BATCH {
                        break;
                    }
                    different.push(request);
                }
                count += 1;
            }
            batch.extend(requests.drain(..count));
        }
        self.by_user.retain(|_, requests| !requests.is_empty());
        batch
    }
}
