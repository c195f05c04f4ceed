// SPDX-License-Identifier: Apache-2.0
//! Begins the steps of passages: what is done at once is answered at once.

use std::sync::atomic::{AtomicU64, Ordering};

use partage_policy::{Answer, Event, Machine, Mark, Place, Process, ProcessState, Residence, Step};
use partage_protocol::job_ledger::Words;
use partage_protocol::units::{ClientId, DeviceUuid, JobId, SECOND_NS};

use super::code;
use super::device_map::{note_mapped, restored_map};
use super::engine::Engine;
use super::facts::{processes_with_library, user_of, whole_map};
use super::way::{Beginning, Begun, Closed, Phase, Turn, Waiting, Way};
use crate::host::checkpoint::{Ask, Call};
use crate::site::Site;
use crate::site::effect::Effect;

/// A state is known in a millisecond; a process that is locked by others may take their time.
const STATE_NS: u64 = 10 * SECOND_NS;
/// The driver answers from 1 ms (a state) to some 20 ms (Unlock); measured on RTX 4090, 580 and 595.
const SHORT_CALL_NS: u64 = 10 * SECOND_NS;
/// A call that copies takes 0.7 s and, at the slowest, 1 s for 1.1 GB (580); MIG and IPC hang without end.
const COPY_NS: u64 = 30 * SECOND_NS;
const COPY_NS_PER_BYTE: u64 = 2;
/// NVML may show a process for a second after it has left (595).
const CLEAR_NS: u64 = 10 * SECOND_NS;
/// A sample of a device takes milliseconds; one that is lost or slow is not waited for.
const SHOWN_NS: u64 = 5 * SECOND_NS;

impl Engine {
    /// Carries a way's steps out as far as it goes without waiting. What waits for the policy alone goes on at the
    /// next turn.
    pub(super) fn carry_on(&mut self, site: &mut Site, job: JobId, way: &mut Way) {
        loop {
            let Phase::Passing { passage, step } = &mut way.phase else {
                return;
            };
            if step.is_some() {
                return;
            }
            let Some(next) = passage.next_step() else { return };
            let beginning = self.begin_step(site, job, &next, way);
            let begun = |wait| Begun {
                step: next,
                since_ns: site.now.ns,
                looked_ns: 0,
                wait,
            };
            match beginning {
                Beginning::Answered(answer) => end_step(site, way, &begun(Waiting::Helper), answer),
                Beginning::Waits(wait) => {
                    if wait.is_for_policy() {
                        self.ways.hurry(Turn::Job(job));
                    }
                    if let Phase::Passing { step, .. } = &mut way.phase {
                        *step = Some(begun(wait));
                    }
                }
            }
        }
    }

    fn begin_step(&mut self, site: &mut Site, job: JobId, step: &Step, way: &mut Way) -> Beginning {
        let done = Beginning::Answered(Answer::Done);
        match step {
            Step::Write(mark) => self.write_mark(site, job, mark),
            Step::RoomAsk(place) => begin_to_ask(site, job, *place, way),
            Step::HoldSoft => {
                self.set_hold(site, job, Some(Closed::Soft));
                done
            }
            Step::Barrier => match self.barrier(site, job) {
                true => done,
                false => Beginning::Answered(Answer::Refused(code::OPERATING_SYSTEM)),
            },
            Step::NobodyInside { within_ns } => Beginning::Waits(Waiting::Inside {
                until_ns: site.now.ns.saturating_add(*within_ns),
            }),
            Step::HoldHard => self.harden(site, job, way),
            Step::Checkpoint(process) if note_mapped(site, job, *process).is_err() => {
                way.why = Some("the broker cannot write to its folder".to_owned());
                Beginning::Answered(Answer::Refused(code::OPERATING_SYSTEM))
            }
            Step::NvmlClear(processes) => Beginning::Waits(Waiting::Clear {
                processes: processes.clone(),
                until_ns: site.now.ns + CLEAR_NS,
            }),
            Step::LedgerLeave(processes) => {
                // A client without CUDA was granted room too.
                let unattached = processes.is_empty().then(|| processes_with_library(site, job));
                let processes = unattached.as_deref().unwrap_or(processes);
                site.policy.ledger_leave(job, processes, &site.clients, site.now.ns);
                done
            }
            Step::LedgerCome(processes) => {
                site.policy.ledger_come(job, processes, &site.clients, site.now.ns);
                done
            }
            Step::LedgerBack => {
                site.policy.ledger_back(job, &site.clients, site.now.ns);
                done
            }
            Step::RoomProve { process, place } => Beginning::Waits(Waiting::Room {
                process: *process,
                place: *place,
                until_ns: site.now.ns + SHOWN_NS,
            }),
            Step::Locate(process) => Beginning::Waits(Waiting::Place {
                process: *process,
                until_ns: site.now.ns + SHOWN_NS,
            }),
            Step::Pause { ns } => Beginning::Waits(Waiting::Time {
                until_ns: site.now.ns.saturating_add(*ns),
            }),
            Step::Placement => {
                show_placement(site, job);
                done
            }
            Step::Open => {
                self.set_hold(site, job, None);
                done
            }
            other => match driver_call(site, job, other) {
                Some((process, asked, patience_ns)) => call(site, job, process, asked, patience_ns),
                None => self.save_step(site, job, other, way),
            },
        }
    }

    /// Before anything has left, the pages are asked once more: a soft hold may have been passed without a heartbeat.
    fn harden(&mut self, site: &mut Site, job: JobId, way: &Way) -> Beginning {
        if self.ways.closed.get(&job) != Some(&Closed::Parked) {
            self.set_hold(site, job, Some(Closed::Hard));
        }
        let is_away = matches!(&way.phase, Phase::Passing { passage, .. } if passage.residence() == Residence::Away);
        if way.has_left || is_away {
            return Beginning::Answered(Answer::Done);
        }
        if !self.barrier(site, job) {
            return Beginning::Answered(Answer::Refused(code::OPERATING_SYSTEM));
        }
        Beginning::Waits(Waiting::Inside {
            until_ns: site.now.ns.saturating_add(way.patience.inside_ns),
        })
    }

    /// The policy writes it: whether that went well is known at the next turn.
    fn write_mark(&mut self, site: &mut Site, job: JobId, mark: &Mark) -> Beginning {
        self.note_written(job, true);
        let mark = Box::new(mark.clone());
        site.tell_next(Event::Residence { job, mark });
        Beginning::Waits(Waiting::Written)
    }
}

/// A step came to something.
pub(super) fn end_step(site: &Site, way: &mut Way, begun: &Begun, answer: Answer) {
    tracing::debug!(step = ?begun.step, ?answer, "passage");
    if let Some(stage) = begun.step.stage() {
        way.note_stage(stage, site.now.ns.saturating_sub(begun.since_ns));
    }
    let is_away = answer == Answer::Is(ProcessState::Checkpointed);
    way.has_left |= is_away || matches!(begun.step, Step::Checkpoint(_));
    let Phase::Passing { passage, step } = &mut way.phase else {
        return;
    };
    *step = None;
    passage.take(answer);
}

fn begin_to_ask(site: &mut Site, job: JobId, place: Place, way: &mut Way) -> Beginning {
    let target = site.policy.residence(job).and_then(|mark| mark.target);
    if let Some(target) = target.filter(|_| place == Place::Target)
        && site.policy.ask_room(job, place, Some(target), &site.clients).is_err()
    {
        // What lingers there gives way, and the books are asked once more.
        site.tell_next(Event::MakeRoom(target.device));
        return Beginning::Waits(Waiting::Books { place });
    }
    match room_in_books(site, job, place, way) {
        Some(answer) => Beginning::Answered(answer),
        None => Beginning::Waits(Waiting::Books { place }),
    }
}

/// Have the books room for a job? None while clients of the broker before are awaited: who holds what is not known yet.
pub(super) fn room_in_books(site: &Site, job: JobId, place: Place, way: &mut Way) -> Option<Answer> {
    let target = site.policy.residence(job).and_then(|mark| mark.target);
    match site.policy.ask_room(job, place, target, &site.clients) {
        Ok(()) => Some(Answer::Done),
        Err(_) if site.policy.is_adopting_any() => None,
        Err(shortage) => {
            way.why = Some(shortage.to_string());
            Some(Answer::NoRoom)
        }
    }
}

/// The driver's call that a step is, and how long a helper may take for it.
fn driver_call(site: &Site, job: JobId, step: &Step) -> Option<(Process, Call, u64)> {
    Some(match step {
        Step::Lock { process, timeout_ns } => {
            let timeout_ms = u32::try_from(timeout_ns / 1_000_000).unwrap_or(u32::MAX).max(1);
            (*process, Call::Lock { timeout_ms }, timeout_ns + SHORT_CALL_NS)
        }
        Step::Checkpoint(process) => (*process, Call::Checkpoint, copy_ns(site, job)),
        Step::Restore { process, pair, .. } => {
            let restored = || restored_map(site, job, *process);
            let map = pair.map_or_else(restored, |pair| whole_map(site, *process, pair));
            (*process, Call::Restore { map }, copy_ns(site, job))
        }
        Step::Unlock(process) => (*process, Call::Unlock, SHORT_CALL_NS),
        // It waits for a call that another helper left behind.
        Step::State(process) => (*process, Call::State, copy_ns(site, job)),
        _ => return None,
    })
}

/// Has a helper of the process's user make a call.
pub(super) fn call(site: &mut Site, job: JobId, target: Process, call: Call, patience_ns: u64) -> Beginning {
    let user = user_of(site, job, target);
    site.effects.push(Effect::AskHelper {
        job,
        user,
        ask: Ask::Call { target, call },
        patience_ns,
    });
    Beginning::Waits(Waiting::Helper)
}

fn copy_ns(site: &Site, job: JobId) -> u64 {
    let bytes = site.policy.returning_bytes(job, &site.clients);
    COPY_NS.saturating_add(bytes.saturating_mul(COPY_NS_PER_BYTE))
}

/// What a process has to get back of each of its job's devices at a place.
pub(super) fn owed(site: &Site, job: JobId, process: Process, place: Place) -> Vec<(DeviceUuid, u64)> {
    let target = site.policy.residence(job).and_then(|mark| mark.target);
    let devices = site.jobs.devices(job).into_iter().enumerate();
    let of_slot = |(slot, own): (usize, DeviceUuid)| {
        let device = match target.filter(|target| place == Place::Target && target.slot == slot) {
            Some(target) => target.device,
            None => own,
        };
        let clients = site.clients.of_process(process).into_iter();
        let words = clients.filter_map(|client| site.clients.words(client, slot));
        let bytes = words.fold(0, |sum: u64, words| sum.saturating_add(cost(&words)));
        (device, bytes)
    };
    devices.map(of_slot).filter(|(_, bytes)| *bytes > 0).collect()
}

/// What a client has to get back, slot 0 first.
pub(super) fn owed_words(site: &Site, client: ClientId, slots: usize) -> Vec<u64> {
    let words = (0..slots).map(|slot| site.clients.words(client, slot));
    words.map(|words| words.map_or(0, |words| cost(&words))).collect()
}

/// Every client of a job learns which devices the job has: at its next call, where one is another.
fn show_placement(site: &mut Site, job: JobId) {
    let (shown, devices) = (site.policy.devices_of(job), site.jobs.devices(job));
    for id in site.clients.of_job(job) {
        let Some(client) = site.clients.get_mut(id) else {
            continue;
        };
        client.devices.clone_from(&devices);
        if let Some(pages) = &client.pages {
            pages.broker().show_devices(&shown);
        }
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

/// Has the driver asked in which state a process is.
pub(super) fn ask_state(site: &mut Site, job: JobId, process: Process) {
    call(site, job, process, Call::State, STATE_NS);
}
