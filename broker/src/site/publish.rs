// SPDX-License-Identifier: Apache-2.0
//! Events: their owner, how often each is published, and to whom.

use partage_protocol::admin::{EventNumbers, EventView, event_kind};
use partage_protocol::units::JobId;
use tracing::info;

use super::Site;
use super::effect::Effect;
use crate::watch::events::Recorded;
use crate::watch::flood::{FREE, is_always_said};

impl Site {
    pub(crate) fn publish(&mut self, kind: &str, job: Option<JobId>, pid: Option<u32>, text: String) {
        let uid = job.and_then(|job| self.policy.owner(job));
        self.publish_of(uid, kind, (job, pid), (text, EventNumbers::default()));
    }

    /// The same of a job whose owner is said: it may be forgotten.
    pub(crate) fn publish_of(
        &mut self,
        uid: Option<u32>,
        kind: &str,
        (job, pid): (Option<JobId>, Option<u32>),
        (text, numbers): (String, EventNumbers),
    ) {
        // A process of no job is its owner's, or everybody's would share what may be said of them.
        let of_process = pid
            .filter(|_| kind == "unmanaged")
            .and_then(|pid| self.processes.uid(pid));
        self.say_unsaid();
        let text = match self.flood.count(uid.or(of_process), kind, self.now.ns) {
            None => return,
            Some(number) if number > FREE && !is_always_said(kind) => {
                format!("{text} (number {number} of this kind within a minute)")
            }
            Some(_) => text,
        };
        self.record(uid, kind, (job, pid), (text, numbers));
    }

    /// Says how many events were not, where their minute is over.
    pub(crate) fn say_unsaid(&mut self) {
        for unsaid in self.flood.ended(self.now.ns) {
            let text = format!("{} more events of kind {} were not said", unsaid.count, unsaid.kind);
            self.record(unsaid.uid, "unsaid", (None, None), (text, EventNumbers::default()));
        }
    }

    fn record(
        &mut self,
        uid: Option<u32>,
        kind: &str,
        (job, pid): (Option<JobId>, Option<u32>),
        (text, numbers): (String, EventNumbers),
    ) {
        debug_assert!(
            event_kind(kind).is_some_and(|kind| numbers.fields().iter().all(|field| kind.fields.contains(field))),
            "{kind}: {numbers:?}"
        );
        info!(kind, job = job.map(|job| job.to_string()), pid, text, "event");
        let view = EventView {
            number: self.next_event,
            time_ns: self.now.unix_ns,
            kind: kind.to_owned(),
            uid,
            user: uid.map(|uid| self.users.name(uid)),
            job: job.map(|job| job.to_string()),
            pid,
            text,
            numbers,
        };
        self.next_event += 1;
        let event = Recorded::new(uid, view);
        self.events.push(event.clone());
        self.effects.push(Effect::Publish(Box::new(event)));
    }
}
