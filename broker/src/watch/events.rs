// SPDX-License-Identifier: Apache-2.0
//! Events for `partage events`: the newest are kept in memory, each new event goes to the followers.

use std::collections::{BTreeMap, VecDeque};

use partage_protocol::admin::{EventNumbers, EventView, Reply};
use partage_protocol::frame;

use crate::peer::Packet;

/// Events kept: a day on a busy node, about a megabyte.
const KEPT: usize = 4096;

/// One event, its owner, and how it travels: written once, however many ask for it.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Owner of the job it concerns; none concerns nobody in particular.
    uid: Option<u32>,
    view: EventView,
    /// As its owner and administrators get it.
    whole: Vec<Packet>,
    /// As others get it.
    hidden: Vec<Packet>,
}

/// The newest events, oldest first.
#[derive(Debug, Default)]
pub struct EventLog {
    events: VecDeque<Recorded>,
    /// How many events each user has.
    of_user: BTreeMap<Option<u32>, usize>,
}

impl EventLog {
    /// Adds an event. When there are too many, the oldest event of the user with the most goes: no user pushes out
    /// another's events.
    pub fn push(&mut self, event: Recorded) {
        if self.events.len() == KEPT {
            let most = self
                .of_user
                .iter()
                .max_by_key(|(_, count)| **count)
                .map(|(uid, _)| *uid);
            let place = self
                .events
                .iter()
                .position(|event| Some(event.uid) == most)
                .unwrap_or(0);
            if let Some(gone) = self.events.remove(place)
                && let Some(count) = self.of_user.get_mut(&gone.uid)
            {
                *count -= 1;
                if *count == 0 {
                    self.of_user.remove(&gone.uid);
                }
            }
        }
        *self.of_user.entry(event.uid).or_default() += 1;
        self.events.push_back(event);
    }

    /// Whose events are kept.
    pub fn owners(&self) -> impl Iterator<Item = Option<u32>> {
        self.of_user.keys().copied()
    }

    /// All that are kept, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Recorded> {
        self.events.iter()
    }
}

impl Recorded {
    /// An event of a job of `uid`'s, or of no user.
    #[must_use]
    pub fn new(uid: Option<u32>, view: EventView) -> Self {
        let packed = |view: &EventView| -> Vec<Packet> {
            let document = serde_json::to_vec(&Reply::Event(view.clone())).unwrap_or_default();
            frame::packets(&document).map(Packet::from).collect()
        };
        Self {
            uid,
            whole: packed(&view),
            hidden: packed(&silent(view.clone())),
            view,
        }
    }

    /// Whose job it concerns.
    #[must_use]
    pub fn uid(&self) -> Option<u32> {
        self.uid
    }

    /// What it says.
    #[must_use]
    pub fn view(&self) -> &EventView {
        &self.view
    }

    /// The event as `viewer` may see it, or somebody who is no user here: others' sentences may name their commands, so
    /// that only the kind is left.
    #[must_use]
    pub fn packets(&self, viewer: Option<u32>, is_admin: bool) -> &[Packet] {
        match is_hidden(self.uid, viewer, is_admin) {
            true => &self.hidden,
            false => &self.whole,
        }
    }
}

/// The event as `viewer` may see it: see [`Recorded::packets`].
#[must_use]
pub fn as_seen_by(view: EventView, owner: Option<u32>, viewer: Option<u32>, is_admin: bool) -> EventView {
    match is_hidden(owner, viewer, is_admin) {
        true => silent(view),
        false => view,
    }
}

fn is_hidden(owner: Option<u32>, viewer: Option<u32>, is_admin: bool) -> bool {
    owner.is_some_and(|owner| Some(owner) != viewer) && !is_admin
}

fn silent(view: EventView) -> EventView {
    EventView {
        uid: None,
        user: None,
        text: String::new(),
        numbers: EventNumbers::default(),
        ..view
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64, uid: Option<u32>) -> Recorded {
        let view = EventView {
            number,
            time_ns: number,
            kind: "job-admitted".into(),
            uid,
            user: Some("alice".into()),
            job: None,
            pid: None,
            text: "text".into(),
            numbers: EventNumbers {
                used_bytes: Some(number),
                ..EventNumbers::default()
            },
        };
        Recorded::new(uid, view)
    }

    fn text(event: &Recorded, viewer: u32, is_admin: bool) -> String {
        let mut assembler = frame::Assembler::default();
        let packets = event.packets(Some(viewer), is_admin).iter();
        let document = packets
            .filter_map(|packet| assembler.push(packet).expect("a packet of ours"))
            .next();
        match serde_json::from_slice(&document.expect("whole")).expect("a reply") {
            Reply::Event(view) => {
                assert_eq!(
                    view.numbers.used_bytes.is_none(),
                    view.text.is_empty(),
                    "hidden as the text is"
                );
                view.text
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_oldest_goes_first_and_others_text_is_hidden() {
        let mut log = EventLog::default();
        for number in 0..KEPT as u64 + 3 {
            log.push(event(number, Some(5)));
        }
        assert_eq!(log.iter().count(), KEPT);
        assert_eq!(log.iter().next().map(|event| event.view().time_ns), Some(3));
        assert_eq!(text(&event(1, Some(5)), 6, false), "");
        for (viewer, is_admin) in [(5, false), (6, true)] {
            assert_eq!(text(&event(1, Some(5)), viewer, is_admin), "text");
        }
        assert_eq!(text(&event(1, None), 6, false), "text");
    }

    #[test]
    fn a_flood_of_one_users_events_pushes_out_that_users_own() {
        let mut log = EventLog::default();
        for number in 0..100 {
            log.push(event(number, Some(6)));
        }
        for number in 100..3 * KEPT as u64 {
            log.push(event(number, Some(5)));
        }
        assert_eq!(log.iter().filter(|event| event.uid == Some(6)).count(), 100);
        assert_eq!(log.iter().count(), KEPT);
        let newest = log.iter().last().map(|event| event.view.time_ns);
        assert_eq!(newest, Some(3 * KEPT as u64 - 1));
    }
}
