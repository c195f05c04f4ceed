// SPDX-License-Identifier: Apache-2.0
//! Begins the steps of passages: what is done at once is answered at once.

use std::sync::atomic::{AtomicU64, Ordering};

use partage_policy::{
    Answer, Event, Machine, Mark, Obstacle, Passage, Patience, Place, Process, ProcessState, Residence, Shortage, Step,
    Target,
};
use partage_protocol::job_ledger::Words;
use partage_protocol::units::{ClientId, DeviceUuid, JobId, SECOND_NS};

use super::code;
use super::way::{Beginning, Begun, Closed, Phase, Purpose, Waiting, Way};
use crate::clock::Now;
use crate::driver::effect::Effect;
use crate::driver::state_driver::StateDriver;
use crate::host::checkpoint::{Ask, Call};

/// The driver answers from 1 ms (a state) to some 20 ms (Unlock); measured on RTX 4090, 580 and 595.
const SHORT_CALL_NS: u64 = 10 * SECOND_NS;
/// A call that copies takes 0.7 s and, at the slowest, 1 s for 1.1 GB (580); MIG and IPC hang without end.
const COPY_NS: u64 = 30 * SECOND_NS;
const COPY_NS_PER_BYTE: u64 = 2;
/// NVML may show a process for a second after it has left (595).
const CLEAR_NS: u64 = 10 * SECOND_NS;
/// A sample of a device takes milliseconds; one that is lost or slow is not waited for.
const SHOWN_NS: u64 = 5 * SECOND_NS;

impl StateDriver {
    /// Carries a way's steps out as far as it goes without waiting.
    pub(super) fn go_on(&mut self, job: JobId, way: &mut Way, now: Now) {
        loop {
            let Phase::Passing { passage, step } = &mut way.phase else {
                return;
            };
            if step.is_some() {
                return;
            }
            let Some(next) = passage.next_step() else { return };
            let residence = passage.residence();
            match self.begin_step(job, &next, residence, way, now) {
                Beginning::Answered(answer) => {
                    let begun = Begun {
                        step: next,
                        since_ns: now.ns,
                        looked_ns: 0,
                        wait: Waiting::Helper,
                    };
                    self.end_step(way, &begun, answer, now);
                }
                Beginning::Waits(wait) => {
                    if let Phase::Passing { step, .. } = &mut way.phase {
                        *step = Some(Begun {
                            step: next,
                            since_ns: now.ns,
                            looked_ns: 0,
                            wait,
                        });
                    }
                }
            }
        }
    }

    /// A step came to something.
    pub(super) fn end_step(&mut self, way: &mut Way, begun: &Begun, answer: Answer, now: Now) {
        tracing::debug!(step = ?begun.step, ?answer, "passage");
        if let Some(stage) = begun.step.stage() {
            way.note_stage(stage, now.ns.saturating_sub(begun.since_ns));
        }
        let is_away = answer == Answer::Is(ProcessState::Checkpointed);
        way.has_left |= is_away || matches!(begun.step, Step::Checkpoint(_));
        let Phase::Passing { passage, step } = &mut way.phase else {
            return;
        };
        *step = None;
        passage.take(answer);
    }

    fn begin_step(&mut self, job: JobId, step: &Step, residence: Residence, way: &mut Way, now: Now) -> Beginning {
        let done = Beginning::Answered(Answer::Done);
        match step {
            Step::Write(mark) => Beginning::Answered(self.write_mark(job, mark, now)),
            Step::RoomAsk(place) => self.begin_to_ask(job, *place, way, now),
            Step::HoldSoft => {
                self.set_hold(job, Some(Closed::Soft));
                done
            }
            Step::Barrier => match self.barrier(job) {
                true => done,
                false => Beginning::Answered(Answer::Refused(code::OPERATING_SYSTEM)),
            },
            Step::NobodyInside { within_ns } => Beginning::Waits(Waiting::Inside {
                until_ns: now.ns.saturating_add(*within_ns),
            }),
            Step::HoldHard => self.harden(job, way, residence, now),
            Step::Checkpoint(process) if self.note_mapped(job, *process).is_err() => {
                way.why = Some("the broker cannot write to its folder".to_owned());
                Beginning::Answered(Answer::Refused(code::OPERATING_SYSTEM))
            }
            Step::NvmlClear(processes) => Beginning::Waits(Waiting::Clear {
                processes: processes.clone(),
                until_ns: now.ns + CLEAR_NS,
            }),
            Step::LedgerLeave(processes) => {
                // A client without CUDA was granted room too.
                let unattached = processes.is_empty().then(|| self.processes_with_library(job));
                let processes = unattached.as_deref().unwrap_or(processes);
                self.policy.ledger_leave(job, processes, &self.clients, now.ns);
                done
            }
            Step::LedgerCome(processes) => {
                self.policy.ledger_come(job, processes, &self.clients, now.ns);
                done
            }
            Step::LedgerBack => {
                self.policy.ledger_back(job, &self.clients, now.ns);
                done
            }
            Step::RoomProve { process, place } => Beginning::Waits(Waiting::Room {
                process: *process,
                place: *place,
                until_ns: now.ns + SHOWN_NS,
            }),
            Step::Locate(process) => Beginning::Waits(Waiting::Place {
                process: *process,
                until_ns: now.ns + SHOWN_NS,
            }),
            Step::Pause { ns } => Beginning::Waits(Waiting::Time {
                until_ns: now.ns.saturating_add(*ns),
            }),
            Step::Placement => {
                self.show_placement(job);
                done
            }
            Step::Open => {
                self.set_hold(job, None);
                done
            }
            other => match self.driver_call(job, other) {
                Some((process, call, patience_ns)) => self.call(job, process, call, patience_ns),
                None => self.save_step(job, other, way, now),
            },
        }
    }

    fn begin_to_ask(&mut self, job: JobId, place: Place, way: &mut Way, now: Now) -> Beginning {
        let target = self.policy.residence(job).and_then(|mark| mark.target);
        match self.ask_room(job, place, target, now) {
            Ok(()) => Beginning::Answered(Answer::Done),
            // Clients of the broker before are awaited: who holds what is not known yet.
            Err(_) if self.policy.is_adopting_any() => Beginning::Waits(Waiting::Books { place }),
            Err(shortage) => {
                way.why = Some(shortage.to_string());
                Beginning::Answered(Answer::NoRoom)
            }
        }
    }

    /// Asks the books for room; at a target, once more when what lingers there has given way.
    pub(super) fn ask_room(
        &mut self,
        job: JobId,
        place: Place,
        target: Option<Target>,
        now: Now,
    ) -> Result<(), Shortage> {
        let found = self.policy.ask_room(job, place, target, &self.clients);
        match target.filter(|_| place == Place::Target && found.is_err()) {
            Some(target) => {
                self.step(now, Event::MakeRoom(target.device));
                self.policy.ask_room(job, place, Some(target), &self.clients)
            }
            None => found,
        }
    }

    /// Before anything has left, the pages are asked once more: a soft hold may have been passed without a heartbeat.
    fn harden(&mut self, job: JobId, way: &Way, residence: Residence, now: Now) -> Beginning {
        if self.ways.closed.get(&job) != Some(&Closed::Parked) {
            self.set_hold(job, Some(Closed::Hard));
        }
        if way.has_left || residence == Residence::Away {
            return Beginning::Answered(Answer::Done);
        }
        if !self.barrier(job) {
            return Beginning::Answered(Answer::Refused(code::OPERATING_SYSTEM));
        }
        Beginning::Waits(Waiting::Inside {
            until_ns: now.ns.saturating_add(way.patience.inside_ns),
        })
    }

    /// The driver's call that a step is, and how long a helper may take for it.
    fn driver_call(&self, job: JobId, step: &Step) -> Option<(Process, Call, u64)> {
        Some(match step {
            Step::Lock { process, timeout_ns } => {
                let timeout_ms = u32::try_from(timeout_ns / 1_000_000).unwrap_or(u32::MAX).max(1);
                (*process, Call::Lock { timeout_ms }, timeout_ns + SHORT_CALL_NS)
            }
            Step::Checkpoint(process) => (*process, Call::Checkpoint, self.copy_ns(job)),
            Step::Restore { process, pair, .. } => {
                let restored = || self.restored_map(job, *process);
                let map = pair.map_or_else(restored, |pair| self.whole_map(*process, pair));
                (*process, Call::Restore { map }, self.copy_ns(job))
            }
            Step::Unlock(process) => (*process, Call::Unlock, SHORT_CALL_NS),
            // It waits for a call that another helper left behind.
            Step::State(process) => (*process, Call::State, self.copy_ns(job)),
            _ => return None,
        })
    }

    fn write_mark(&mut self, job: JobId, mark: &Mark, now: Now) -> Answer {
        let event = Event::Residence {
            job,
            mark: Box::new(mark.clone()),
        };
        self.ways.note_written(job, true);
        self.step(now, event);
        match self.ways.unwritten.contains(&job) {
            true => Answer::Refused(code::OPERATING_SYSTEM),
            false => Answer::Done,
        }
    }

    /// Has a helper of the process's user make a call.
    pub(super) fn call(&mut self, job: JobId, target: Process, call: Call, patience_ns: u64) -> Beginning {
        let user = self.user_of(job, target);
        self.effects.push(Effect::AskHelper {
            job,
            user,
            ask: Ask::Call { target, call },
            patience_ns,
        });
        Beginning::Waits(Waiting::Helper)
    }

    fn copy_ns(&self, job: JobId) -> u64 {
        let bytes = self.policy.returning_bytes(job, &self.clients);
        COPY_NS.saturating_add(bytes.saturating_mul(COPY_NS_PER_BYTE))
    }

    /// What a process has to get back of each of its job's devices at a place.
    pub(super) fn owed(&self, job: JobId, process: Process, place: Place) -> Vec<(DeviceUuid, u64)> {
        let target = self.policy.residence(job).and_then(|mark| mark.target);
        let devices = self.jobs.devices(job).into_iter().enumerate();
        let of_slot = |(slot, own): (usize, DeviceUuid)| {
            let device = match target.filter(|target| place == Place::Target && target.slot == slot) {
                Some(target) => target.device,
                None => own,
            };
            let clients = self.clients.of_process(process).into_iter();
            let words = clients.filter_map(|client| self.clients.words(client, slot));
            let bytes = words.fold(0, |sum: u64, words| sum.saturating_add(cost(&words)));
            (device, bytes)
        };
        devices.map(of_slot).filter(|(_, bytes)| *bytes > 0).collect()
    }

    /// What a client has to get back, slot 0 first.
    pub(super) fn owed_words(&self, client: ClientId, slots: usize) -> Vec<u64> {
        let words = (0..slots).map(|slot| self.clients.words(client, slot));
        words.map(|words| words.map_or(0, |words| cost(&words))).collect()
    }

    /// What ties a job's processes to their devices by now, in words.
    pub(super) fn tied(&self, job: JobId) -> Option<String> {
        let facts = self.job_facts(job, None);
        let found = facts.processes.into_iter().find_map(|process| {
            let pid = process.process.pid;
            let ties = Some(process.ties).filter(|ties| !ties.is_empty());
            let tied = ties.map(|ties| Obstacle::Tied { pid, ties });
            tied.or_else(|| process.is_uncounted.then_some(Obstacle::Uncounted(pid)))
        });
        found.map(|obstacle| obstacle.to_string())
    }

    /// Every client of a job learns which devices the job has: at its next call, where one is another.
    fn show_placement(&mut self, job: JobId) {
        let (shown, devices) = (self.policy.devices_of(job), self.jobs.devices(job));
        for id in self.clients.of_job(job) {
            let Some(client) = self.clients.get_mut(id) else {
                continue;
            };
            client.devices.clone_from(&devices);
            if let Some(pages) = &client.pages {
                pages.broker().show_devices(&shown);
            }
        }
    }

    /// How the passage of a new mark begins: of every job whose record says that it is not here.
    pub(in crate::driver) fn recover_ways(&mut self, now: Now) {
        self.sweep_saving();
        let jobs: Vec<JobId> = self.policy.live().collect();
        self.recover_restores(&jobs, now);
        for job in jobs {
            self.recover_way(job, now);
        }
    }

    /// Goes on with what a job's record says, unless something is under way.
    pub(super) fn recover_way(&mut self, job: JobId, now: Now) {
        let Some(mark) = self.policy.residence(job).cloned() else {
            return;
        };
        if mark.residence == Residence::Here || self.ways.has(job) {
            return;
        }
        let (devices, processes) = (self.jobs.devices(job), self.processes_with_library(job));
        // From the first moment on, for processes that begin now. A broker before may have left less.
        let closed = match mark.residence {
            Residence::Leaving => Closed::Soft,
            Residence::Saving => Closed::Parked,
            _ => Closed::Hard,
        };
        self.set_hold(job, Some(closed));
        let owes = |process: &Process| !self.owed(job, *process, Place::Source).is_empty();
        if matches!(mark.residence, Residence::Away | Residence::Poisoned) && !processes.iter().any(owes) {
            // Nothing of it is to come back: it stays as it is, and takes no room without asking.
            return;
        }
        let passage = Passage::recover(&mark, &devices, &processes, Patience::default());
        let way = Way::passing(passage, Purpose::Recover(mark.residence), processes, now.ns);
        self.follow(job, way, now);
    }
}

/// What a client has to get back: P, or before that is written what it holds.
fn cost(words: &Words<'_, AtomicU64>) -> u64 {
    let (owed, held) = (words.owed.load(Ordering::SeqCst), words.ledger.load(Ordering::SeqCst));
    if owed > 0 {
        return owed;
    }
    let used = words.shared.as_ref().map(|shared| shared.used.load(Ordering::SeqCst));
    let used = used.unwrap_or(held).min(held);
    used.saturating_add(words.overhead.load(Ordering::SeqCst))
}
