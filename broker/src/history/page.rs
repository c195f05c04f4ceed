// SPDX-License-Identifier: Apache-2.0
//! One page: the events of all files, merged by their numbers, as far as the caller may see them.

use std::iter::Peekable;

use partage_protocol::admin::{EventView, EventsRequest, Reply};

use super::files::{Files, Owner};
use crate::peer::ConnectionId;
use crate::watch::events::{EventLog, as_seen_by};

/// Events of a page.
const PER_PAGE: usize = 1000;
/// Bytes that are read for a page: events that are not asked for cost time, too.
const READ_PER_PAGE: u64 = 4 << 20;

/// Who asks, and for what.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Where the answer goes.
    pub to: ConnectionId,
    /// The user whose events are told in full; none for a caller who is no user outside its container.
    pub viewer: Option<u32>,
    /// Everybody's are.
    pub is_admin: bool,
    /// Which.
    pub request: EventsRequest,
}

impl Ask {
    /// Bytes that its caller wrote.
    #[must_use]
    pub fn written_bytes(&self) -> usize {
        let texts = self.request.job.iter().chain(&self.request.kinds);
        texts.map(|text| text.len() + size_of::<String>()).sum()
    }
}

/// The next events of one owner.
type Source<'a> = Peekable<Box<dyn Iterator<Item = (EventView, u64)> + 'a>>;

/// The answer, from the files and from what they did not take.
pub(super) fn page(files: &Files, unwritten: &EventLog, ask: &Ask) -> Reply {
    let after = ask.request.after.unwrap_or(0);
    let is_wanted = |owner: Owner| ask.request.uid.is_none() || ask.request.uid == owner;
    let in_files = files.owners().filter(|owner| is_wanted(*owner)).map(|owner| {
        let events: Box<dyn Iterator<Item = _>> = Box::new(files.events(owner, after));
        (owner, events.peekable())
    });
    let mut sources: Vec<(Owner, Source<'_>)> = in_files.collect();
    let owners: Vec<Owner> = unwritten.owners().filter(|owner| is_wanted(*owner)).collect();
    for owner in owners {
        let kept = unwritten.iter().filter(move |event| event.uid() == owner);
        let events: Box<dyn Iterator<Item = _>> = Box::new(kept.map(|event| (event.view().clone(), 0)));
        sources.push((owner, events.peekable()));
    }
    let (mut events, mut read) = (Vec::new(), 0);
    let mut more = None;
    while let Some((owner, (event, bytes))) = next(&mut sources) {
        read += bytes;
        let number = event.number;
        let event = as_seen_by(event, owner, ask.viewer, ask.is_admin);
        if ask.request.wants(&event) {
            events.push(event);
        }
        if events.len() == PER_PAGE || read >= READ_PER_PAGE {
            more = Some(number);
            break;
        }
    }
    Reply::Events { events, more }
}

/// Takes the event with the least number.
fn next(sources: &mut [(Owner, Source<'_>)]) -> Option<(Owner, (EventView, u64))> {
    let numbers = sources.iter_mut().enumerate();
    let numbers = numbers.filter_map(|(place, (_, source))| Some((source.peek()?.0.number, place)));
    let (_, place) = numbers.min()?;
    let (owner, source) = &mut sources[place];
    Some((*owner, source.next()?))
}
