// SPDX-License-Identifier: Apache-2.0
//! The auditor: clients whose words contradict what NVML shows, and GPU processes of no job; what is done about them.
//!
//! A client *drifts* in three cases: its words claim more than NVML shows; NVML shows more for it than the whole limit
//! of its job (and the limit was not lowered, no context was announced); its words contradict each other. What its job
//! is charged with follows NVML in any case (`overhead.rs`); the auditor says so and answers:
//!
//! ```text
//!   agrees ─► drifts: event, and again at each doubling ─► still after CONFIRM_NS: deny-new bars the job's grants on
//!      ▲                                                    that device, kill ends the process
//!      └──────────── a quiet reading agrees: event, grants are free again
//! ```
//! An unmanaged process is reported; `deny-new` admits nothing on its device; `kill` ends it once two polls have shown
//! the same process. A private broker kills only processes of its own user. A process that only draws is never killed.
//! While clients of the previous broker are awaited, nothing is judged.

use partage_protocol::size::format_bytes;
use partage_protocol::units::{ClientId, DeviceUuid, JobId};

use super::Policy;
use super::evidence::Evidence;
use crate::action::Action;
use crate::caller::Process;
use crate::config::Response;
use crate::device::{CONFIRM_NS, Contradiction, Kind, Member};
use crate::event::ProcessUse;
use crate::job::{Job, Placement};
use crate::machine::{Machine, OnSlot, Reading};

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

impl Policy {
    /// Judges a process by one look.
    pub(crate) fn audit<M: Machine>(&mut self, evidence: &Evidence<'_>, machine: &M, now_ns: u64) {
        let Some(newest) = evidence.members.last().copied() else {
            return;
        };
        let found = self.contradiction(evidence, machine, now_ns);
        let Some(state) = self.overheads.get_mut(newest.client, newest.slot) else {
            return;
        };
        match found {
            Some(found) => {
                if let Some(text) = state.contradict(found, now_ns) {
                    let text = format!("pid {} of {}: {text}", evidence.pid, newest.job);
                    self.publish("drift", Some(newest.job), Some(evidence.pid), text);
                }
                self.answer_drift(newest, evidence.pid);
            }
            None if evidence.is_quiet && state.agree() => {
                let text = format!("pid {} of {} and NVML agree again", evidence.pid, newest.job);
                self.publish("drift-over", Some(newest.job), Some(evidence.pid), text);
            }
            None => {}
        }
    }

    fn contradiction<M: Machine>(&self, evidence: &Evidence<'_>, machine: &M, now_ns: u64) -> Option<Contradiction> {
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

    fn answer_drift(&mut self, member: Member, pid: u32) {
        if self.config.audit.drift != Response::Kill {
            return;
        }
        let state = self.overheads.get_mut(member.client, member.slot);
        let Some(text) = state.and_then(|state| state.take_answer()) else {
            return;
        };
        let reason = format!("audit.drift = kill: {text}");
        let Some(process) = self.clients.get(&member.client).map(|known| known.process) else {
            return;
        };
        let text = format!("pid {pid} of {} is killed: {}", member.job, reason);
        if let Some(job) = self.jobs.get_mut(&member.job) {
            job.note(text.clone());
        }
        self.act(Action::KillProcess(process));
        self.publish("drift-killed", Some(member.job), Some(pid), text);
    }

    /// Bars the grants of jobs with a client that drifts, and frees those whose clients agree again.
    pub(crate) fn bar_drifting<M: Machine>(&mut self, job: JobId, machine: &M, now_ns: u64) {
        let denies = self.config.audit.drift == Response::DenyNew;
        let Some(state) = self.jobs.get(&job) else { return };
        let is_barred = |(slot, place): (usize, &Placement)| {
            let drifts = |client: &ClientId| {
                let state = self.overheads.get(*client, slot);
                state
                    .and_then(|state| state.drift())
                    .is_some_and(|drift| drift.is_confirmed())
            };
            let measured = self.times.get(&(job, place.device));
            let takes_time = measured.is_some_and(|measured| measured.audit.is_confirmed(now_ns));
            denies && (takes_time || state.clients.iter().any(drifts))
        };
        let barred: Vec<bool> = state.record.devices.iter().enumerate().map(is_barred).collect();
        let Some(state) = self.jobs.get_mut(&job) else { return };
        for ((slot, place), is_barred) in state.slots_mut().zip(barred) {
            place
                .ledger_mut()
                .set_barred(&OnSlot { machine, slot }, is_barred, now_ns);
        }
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

    /// Ends unmanaged processes that two looks have shown, as far as the rules and the broker's kind allow.
    pub(crate) fn answer_unmanaged(&mut self, device: DeviceUuid, now_ns: u64) {
        if self.config.audit.unmanaged != Response::Kill || self.is_adopting_any() {
            return;
        }
        let managed = self.managed_pids();
        let (config, is_private) = (self.config.audit, self.config.is_private);
        let Some(known) = self.devices.get_mut(&device) else {
            return;
        };
        let index = known.seen.index;
        let shown = known.measured.iter().flat_map(|measured| &measured.processes);
        let is_meant = |process: &&ProcessUse| !managed.contains_key(&process.pid) && !process.is_graphics_only;
        let shown: Vec<ProcessUse> = shown.filter(is_meant).cloned().collect();
        let condemned: Vec<(u32, u64)> = shown
            .iter()
            .filter_map(|process| Some((process.pid, process.start?)))
            .collect();
        let due = known.condemn(&condemned, CONFIRM_NS, now_ns);
        let due = shown.into_iter().filter_map(|process| {
            let start = process.start?;
            due.contains(&(process.pid, start)).then_some((process, start))
        });
        for (process, start) in due {
            let pid = process.pid;
            let may = process.uid.is_some_and(|uid| !is_private || uid == config.uid);
            if !may {
                let whose = process
                    .uid
                    .map_or("an unknown user".to_owned(), |uid| format!("uid {uid}"));
                let text = format!(
                    "pid {pid} of {whose} uses GPU {index} without Partage and is not killed: a private broker ends \
                     processes of its own user only"
                );
                self.publish("unmanaged-spared", process.descends_from, Some(pid), text);
                continue;
            }
            let text = format!("pid {pid} is killed: it uses GPU {index} without Partage (audit.unmanaged = kill)");
            self.act(Action::KillProcess(Process { pid, start }));
            self.publish("unmanaged-killed", process.descends_from, Some(pid), text);
        }
    }
}
