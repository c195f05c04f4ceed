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

use partage_protocol::units::{ClientId, DeviceUuid, JobId};

use super::Policy;
use crate::action::Action;
use crate::books::seen::evidence::Evidence;
use crate::caller::Process;
use crate::config::Response;
use crate::device::{CONFIRM_NS, Member};
use crate::event::ProcessUse;
use crate::job::Placement;
use crate::machine::{Machine, OnSlot};
use crate::notice::Notice;

impl Policy {
    /// Judges a process by one look.
    pub(crate) fn audit<M: Machine>(&mut self, evidence: &Evidence<'_>, machine: &M, now_ns: u64) {
        let Some(newest) = evidence.members.last().copied() else {
            return;
        };
        let found = self.contradiction(evidence, machine, now_ns);
        let Some(state) = self.books.overheads.get_mut(newest.client, newest.slot) else {
            return;
        };
        match found {
            Some(found) => {
                if let Some(text) = state.contradict(found, now_ns) {
                    let what = Notice::Drifts(evidence.pid, newest.job, text);
                    self.publish("drift", Some(newest.job), Some(evidence.pid), what);
                }
                self.answer_drift(newest, evidence.pid);
            }
            None if evidence.is_quiet && state.agree() => {
                let what = Notice::Agrees(evidence.pid, newest.job);
                self.publish("drift-over", Some(newest.job), Some(evidence.pid), what);
            }
            None => {}
        }
    }

    fn answer_drift(&mut self, member: Member, pid: u32) {
        if self.books.config.audit.drift != Response::Kill {
            return;
        }
        let state = self.books.overheads.get_mut(member.client, member.slot);
        let Some(text) = state.and_then(|state| state.take_answer()) else {
            return;
        };
        let Some(process) = self.books.clients.get(&member.client).map(|known| known.process) else {
            return;
        };
        let what = Notice::KilledFor(pid, member.job, text);
        if let Some(job) = self.books.jobs.get_mut(&member.job) {
            job.note(&what);
        }
        self.act(Action::KillProcess(process));
        self.publish("drift-killed", Some(member.job), Some(pid), what);
    }

    /// Bars the grants of jobs with a client that drifts, and frees those whose clients agree again.
    pub(crate) fn bar_drifting<M: Machine>(&mut self, job: JobId, machine: &M, now_ns: u64) {
        let denies = self.books.config.audit.drift == Response::DenyNew;
        let Some(state) = self.books.jobs.get(&job) else { return };
        let is_barred = |(slot, place): (usize, &Placement)| {
            let drifts = |client: &ClientId| {
                let state = self.books.overheads.get(*client, slot);
                state
                    .and_then(|state| state.drift())
                    .is_some_and(|drift| drift.is_confirmed())
            };
            let measured = self.books.times.get(&(job, place.device));
            let takes_time = measured.is_some_and(|measured| measured.audit.is_confirmed(now_ns));
            denies && (takes_time || state.clients.iter().any(drifts))
        };
        let barred: Vec<bool> = state.record.devices.iter().enumerate().map(is_barred).collect();
        let Some(state) = self.books.jobs.get_mut(&job) else {
            return;
        };
        for ((slot, place), is_barred) in state.slots_mut().zip(barred) {
            place
                .ledger_mut()
                .set_barred(&OnSlot { machine, slot }, is_barred, now_ns);
        }
    }

    /// Ends unmanaged processes that two looks have shown, as far as the rules and the broker's kind allow.
    pub(crate) fn answer_unmanaged(&mut self, device: DeviceUuid, now_ns: u64) {
        if self.books.config.audit.unmanaged != Response::Kill || self.is_adopting_any() {
            return;
        }
        let managed = self.managed_pids();
        let (config, is_private) = (self.books.config.audit, self.books.config.is_private);
        let Some(known) = self.books.devices.get_mut(&device) else {
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
                let what = Notice::Spared(pid, process.uid, index);
                self.publish("unmanaged-spared", process.descends_from, Some(pid), what);
                continue;
            }
            self.act(Action::KillProcess(Process { pid, start }));
            let what = Notice::Killed(pid, index);
            self.publish("unmanaged-killed", process.descends_from, Some(pid), what);
        }
    }
}
