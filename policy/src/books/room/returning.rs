// SPDX-License-Identifier: Apache-2.0
//! When a job that is away may come back, and what it lacks.

use crate::books::Books;
use crate::books::room::claims::Claims;
use crate::books::room::placement::Shortages;
use crate::books::room::residence::Shortage;
use crate::job::Job;
use crate::machine::Machine;
use partage_protocol::size::format_duration;
use partage_protocol::units::JobId;

impl Books {
    /// Is this job in the queue to come back?
    pub(crate) fn is_returning(&self, id: JobId) -> bool {
        self.returning.get(&id).is_some_and(|returning| !returning.is_coming)
    }

    /// When somebody who waits for a job's return is to hear something.
    pub(crate) fn returning_due_ns(&self) -> impl Iterator<Item = u64> + '_ {
        self.returning.values().flat_map(|returning| {
            let is_queued = !returning.is_coming;
            let waits = returning.waits.iter();
            let due = waits.flat_map(move |wait| {
                let reminder = is_queued.then_some(wait.next_reminder_ns);
                wait.deadline_ns.into_iter().chain(reminder)
            });
            due.chain(returning.not_before_ns.filter(|_| is_queued))
        })
    }

    /// Why a job cannot come back yet, and what is short.
    pub(crate) fn shortage<M: Machine>(
        &self,
        job: &Job,
        claimed: &Claims,
        machine: &M,
    ) -> Option<(Shortage, Shortages)> {
        // What a job keeps in memory that the device shares may be what those before it wait for: it waits for room,
        // and not for them.
        let nobody = Claims::default();
        let mut devices = job
            .record
            .devices
            .iter()
            .filter_map(|place| self.devices.get(&place.device));
        let claimed = match devices.any(|device| device.seen.is_unified) {
            true => &nobody,
            false => claimed,
        };
        let mut first = None;
        let mut shortages = Shortages::new();
        for (slot, place) in job.record.devices.iter().enumerate() {
            if let Err(shortage) = self.room_on(job, (slot, place.device), claimed, machine) {
                let is_time = matches!(shortage, Shortage::Time(..));
                let is_total = matches!(shortage, Shortage::Total(..));
                shortages.insert(place.device, (!is_time && !is_total, is_time));
                // A total comes first: what waits for one claims nothing of a device.
                first = first.filter(|_| !is_total).or(Some(shortage));
            }
        }
        Some((first?, shortages))
    }

    /// What a job that is to come back was last found to wait for; empty where it was not looked for room.
    pub(crate) fn returning_reason(&self, id: JobId) -> String {
        let Some(returning) = self.returning.get(&id) else {
            return String::new();
        };
        let own = returning.own.iter().map(|own| &own.reason);
        let mut reasons = own.chain(returning.waits.iter().map(|wait| &wait.reason));
        reasons.find(|reason| !reason.is_empty()).cloned().unwrap_or_default()
    }

    /// What a job that is to come back waits for, as a sentence.
    pub(crate) fn returning_text(&self, job: &Job, now_ns: u64) -> Option<String> {
        let returning = self.returning.get(&job.id())?;
        let own = returning.own.iter().map(|own| (own.since_ns, &own.reason));
        let waits = returning.waits.iter().map(|wait| (wait.since_ns, &wait.reason));
        let (since_ns, reason) = own.chain(waits).next()?;
        let waited = format_duration(now_ns.saturating_sub(since_ns));
        Some(format!("it waits since {waited} to come back: {reason}")).filter(|_| !reason.is_empty())
    }
}
