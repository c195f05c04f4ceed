// SPDX-License-Identifier: Apache-2.0
//! What devices show against what clients say of memory.

use crate::books::Books;
use crate::books::seen::evidence::Evidence;
use crate::config::Response;
use crate::device::{Contradiction, Kind};
use crate::job::Job;
use crate::machine::{Machine, OnSlot, Reading};
use partage_protocol::size::format_bytes;
use partage_protocol::units::DeviceUuid;

/// Words that cannot all be true.
pub(crate) fn contradicts_itself(now: &Reading, last: Option<&Reading>) -> Option<&'static str> {
    let is_backwards = |last: &Reading| now.started < last.started || now.finished < last.finished;
    if now.finished > now.started {
        Some("more operations ended than began")
    } else if last.is_some_and(is_backwards) {
        Some("its counters of operations went backwards")
    } else if now.managed > now.used && now.is_at_rest() {
        Some("its managed part is more than all it uses")
    } else {
        None
    }
}

impl Books {
    pub(crate) fn contradiction<M: Machine>(
        &self,
        evidence: &Evidence<'_>,
        machine: &M,
        now_ns: u64,
    ) -> Option<Contradiction> {
        let tolerance = self.config.audit.tolerance;
        let newest = evidence.members.last()?;
        let states = evidence
            .members
            .iter()
            .map(|member| self.overheads.get(member.client, member.slot));
        for (reading, state) in evidence.readings.iter().zip(states) {
            if let Some(text) = contradicts_itself(reading, state.and_then(|state| state.last())) {
                let text = format!("what it says contradicts itself: {text}");
                let (kind, bytes) = (Kind::Words, None);
                return Some(Contradiction { kind, text, bytes });
            }
        }
        let shown = evidence.shown?;
        let claimed = evidence
            .readings
            .iter()
            .fold(0, |sum: u64, reading| sum.saturating_add(reading.charged(u64::MAX)));
        if evidence.is_quiet && claimed > shown.saturating_add(tolerance) {
            let text = format!(
                "it claims to hold {}, and NVML shows {}",
                format_bytes(claimed),
                format_bytes(shown)
            );
            let (kind, bytes) = (Kind::Claims, Some(claimed.saturating_sub(shown)));
            return Some(Contradiction { kind, text, bytes });
        }
        let slot = self.jobs.get(&newest.job)?.slots.get(newest.slot)?;
        let limit = slot.ledger.limit();
        let pages = OnSlot {
            machine,
            slot: newest.slot,
        };
        let is_past = shown > limit.saturating_add(tolerance) && slot.ledger.used_sum(&pages) > limit;
        let state = self.overheads.get(newest.client, newest.slot)?;
        // A pool may hold more for the instant of one call.
        let is_settled = evidence.is_quiet || state.is_unaudited();
        let is_explained = slot.is_lowered || state.is_explained(now_ns);
        if is_past && is_settled && !is_explained {
            let text = format!(
                "NVML shows {} for it, and its job's limit is {}: it allocates past Partage",
                format_bytes(shown),
                format_bytes(limit)
            );
            let (kind, bytes) = (Kind::Past, Some(shown.saturating_sub(limit)));
            return Some(Contradiction { kind, text, bytes });
        }
        None
    }

    /// What a job's owner should know of drifting clients.
    pub(crate) fn drift_notes(&self, job: &Job) -> Vec<String> {
        let mut notes = Vec::new();
        for client in &job.clients {
            let Some(pid) = self.clients.get(client).map(|client| client.process.pid) else {
                continue;
            };
            for (slot, _) in job.slots.iter().enumerate() {
                let drift = self.overheads.get(*client, slot).and_then(|state| state.drift());
                let Some(drift) = drift else { continue };
                let denied = if drift.is_confirmed() && self.config.audit.drift == Response::DenyNew {
                    "; nothing more is granted to the job there until they agree"
                } else {
                    ""
                };
                notes.push(format!("pid {pid} drifts on device {slot}: {}{denied}", drift.text()));
            }
        }
        notes.extend(self.time_drift_notes(job));
        notes
    }

    /// The unmanaged process that keeps a device from new jobs, if the rules say so.
    pub(crate) fn unmanaged_bar(&self, device: DeviceUuid) -> Option<String> {
        if self.config.audit.unmanaged == Response::Report {
            return None;
        }
        let known = self.devices.get(&device)?;
        let managed = self.managed_pids();
        let processes = &known.measured.as_ref()?.processes;
        let unmanaged = processes
            .iter()
            .find(|process| !managed.contains_key(&process.pid) && !process.is_graphics_only)?;
        Some(format!(
            "GPU {} is used by pid {}, which is unmanaged (audit.unmanaged = {})",
            known.seen.index,
            unmanaged.pid,
            self.config.audit.unmanaged.word()
        ))
    }
}
