// SPDX-License-Identifier: Apache-2.0
//! What the broker's threads cannot do, in a sentence each, for commands that ask about the broker.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::turns::Turns;

/// What a thread is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// Keeping events on disk.
    Events,
    /// Serving metrics.
    Metrics,
    /// Telling a program of the administrator's of events.
    Notify,
}

/// What does not work. Any thread says it, the event loop shows it.
#[derive(Debug, Default)]
pub struct Services {
    errors: Mutex<BTreeMap<Service, String>>,
    unwritten: AtomicU64,
    untold: AtomicU64,
    turns: Mutex<Turns>,
}

impl Services {
    /// Says why a service does not work, or that it does. `true`: that is news.
    pub fn set(&self, service: Service, error: Option<String>) -> bool {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        match error {
            Some(text) => errors.insert(service, text).is_none(),
            None => errors.remove(&service).is_some(),
        }
    }

    /// What does not work, in sentences.
    #[must_use]
    pub fn errors(&self) -> Vec<String> {
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        errors.values().cloned().collect()
    }

    /// The loop was at work from then on until now.
    pub fn note_turn(&self, woke_ns: u64, now_ns: u64) {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.note(now_ns.saturating_sub(woke_ns), now_ns);
    }

    /// The longest time in the last one to two minutes for which the loop was at work and took no event.
    #[must_use]
    pub fn longest_turn_ns(&self) -> u64 {
        let turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.longest_ns()
    }

    /// An event was not written to disk.
    pub fn count_unwritten(&self) {
        self.unwritten.fetch_add(1, Ordering::Relaxed);
    }

    /// Events that were not written to disk.
    #[must_use]
    pub fn unwritten(&self) -> u64 {
        self.unwritten.load(Ordering::Relaxed)
    }

    /// The program was not told of an event, or did not take it.
    pub fn count_untold(&self) {
        self.untold.fetch_add(1, Ordering::Relaxed);
    }

    /// Events that the program was not told of, or did not take.
    #[must_use]
    pub fn untold(&self) -> u64 {
        self.untold.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_told_once() {
        let services = Services::default();
        assert!(!services.set(Service::Events, None));
        assert!(services.set(Service::Events, Some("a".into())));
        assert!(!services.set(Service::Events, Some("b".into())));
        assert_eq!(services.errors(), ["b"]);
        assert!(services.set(Service::Events, None));
        assert!(services.errors().is_empty());
    }
}
