// SPDX-License-Identifier: Apache-2.0
//! What happened, for `partage events`: the newest in memory, each new one to those who follow.

use std::collections::VecDeque;

use partage_protocol::admin::EventView;

/// Events kept: a day on a busy node, about a megabyte.
const KEPT: usize = 4096;

/// One event and whose it is.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Owner of the job it concerns; none concerns nobody in particular.
    pub uid: Option<u32>,
    /// What users see.
    pub view: EventView,
}

/// The newest events, oldest first.
#[derive(Debug, Default)]
pub struct EventLog {
    events: VecDeque<Recorded>,
}

impl EventLog {
    /// Adds one; the oldest goes when there are too many.
    pub fn push(&mut self, event: Recorded) {
        if self.events.len() == KEPT {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// All that are kept, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Recorded> {
        self.events.iter()
    }
}

impl Recorded {
    /// The event as `viewer` may see it: others' sentences may name their commands, so that only the kind is left.
    #[must_use]
    pub fn for_viewer(&self, viewer: u32, is_admin: bool) -> EventView {
        let mut view = self.view.clone();
        if self.uid.is_some_and(|owner| owner != viewer) && !is_admin {
            view.text = String::new();
        }
        view
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64, uid: Option<u32>) -> Recorded {
        let view = EventView {
            time_ns: number,
            kind: "job-admitted".into(),
            job: None,
            pid: None,
            text: "text".into(),
        };
        Recorded { uid, view }
    }

    #[test]
    fn the_oldest_goes_first_and_others_text_is_hidden() {
        let mut log = EventLog::default();
        for number in 0..KEPT as u64 + 3 {
            log.push(event(number, Some(5)));
        }
        assert_eq!(log.iter().count(), KEPT);
        assert_eq!(log.iter().next().map(|event| event.view.time_ns), Some(3));
        assert_eq!(event(1, Some(5)).for_viewer(6, false).text, "");
        for (viewer, is_admin) in [(5, false), (6, true)] {
            assert_eq!(event(1, Some(5)).for_viewer(viewer, is_admin).text, "text");
        }
        assert_eq!(event(1, None).for_viewer(6, false).text, "text");
    }
}
