// SPDX-License-Identifier: Apache-2.0
//! What steps wait for: helpers, threads, looks at the devices, time.

use partage_policy::{Answer, Place, Process, ProcessState, Step};
use partage_protocol::size::format_bytes;
use partage_protocol::units::{DeviceUuid, JobId, MIB, SECOND_NS};

use super::code;
use super::way::{Begun, Phase, Waiting, Way};
use crate::clock::Now;
use crate::driver::effect::Effect;
use crate::driver::state_driver::StateDriver;
use crate::host::checkpoint::{self, Ask, Outcome, State};
use crate::host::gpu::Sample;

/// Between two looks at what threads say: one that leaves the driver is seen within this.
const INSIDE_POLL_NS: u64 = SECOND_NS / 1_000;
/// Between two looks at whether a look was answered.
const SAMPLE_POLL_NS: u64 = SECOND_NS / 100;
/// A helper makes a context and asks the driver for room.
const PROOF_NS: u64 = 30 * SECOND_NS;
/// What a restore may need beyond what the process held: a driver's own tables, and fragments.
const SPARE_BYTES: u64 = 256 * MIB;

impl StateDriver {
    /// What became of a question about a job's process.
    pub fn helper_answered(&mut self, job: JobId, outcome: Outcome, now: Now) {
        let Some(mut way) = self.ways.by_job.remove(&job) else {
            return;
        };
        if let Outcome::Failed(why) = &outcome {
            self.say_helper_lost(job, why, now);
        }
        match &mut way.phase {
            Phase::Asking { .. } => self.take_state(job, way, outcome, now),
            Phase::Trying { .. } => self.take_map(job, way, &outcome, now),
            Phase::Passing { step, .. } => {
                if let Some(mut begun) = step.take() {
                    let answer = self.answer_of(job, &mut way, &mut begun, outcome);
                    self.end_or_wait(&mut way, begun, answer, now);
                }
                self.follow(job, way, now);
            }
        }
    }

    /// A helper that ended by itself is worth a word to administrators: its user may have had a hand in it.
    fn say_helper_lost(&mut self, job: JobId, why: &str, now: Now) {
        let text = format!("{job}: the helper that calls the driver for it was lost: {why}");
        self.publish(now, "helper-lost", Some(job), None, text);
    }

    fn end_or_wait(&mut self, way: &mut Way, begun: Begun, answer: Option<Answer>, now: Now) {
        match answer {
            Some(answer) => self.end_step(way, &begun, answer, now),
            None => {
                if let Phase::Passing { step, .. } = &mut way.phase {
                    *step = Some(begun);
                }
            }
        }
    }

    /// What a helper's word means for the step; none while it is not the last.
    fn answer_of(&mut self, job: JobId, way: &mut Way, begun: &mut Begun, outcome: Outcome) -> Option<Answer> {
        let answer = match outcome {
            Outcome::Answered(answer) => answer,
            Outcome::Late => {
                way.why = Some("the driver did not answer in time".to_owned());
                return Some(match begun.wait {
                    Waiting::Newcomers { .. } => Answer::Refused(code::UNKNOWN),
                    _ => Answer::TimedOut,
                });
            }
            Outcome::Failed(why) => {
                way.why = Some(format!("the helper that calls the driver failed: {why}"));
                return Some(match begun.wait {
                    Waiting::Newcomers { .. } => Answer::Refused(code::UNKNOWN),
                    _ => Answer::HelperLost,
                });
            }
        };
        if matches!(begun.wait, Waiting::Newcomers { .. }) {
            return self.take_newcomer(job, way, begun, &answer);
        }
        Some(match answer {
            checkpoint::Answer::Done => {
                if let Waiting::Proof { left } = &mut begun.wait {
                    let left = std::mem::take(left);
                    return self.prove_next(job, begun, left);
                }
                Answer::Done
            }
            checkpoint::Answer::State(state) => Answer::Is(state_of(state)),
            // Of a proof: somebody has the memory.
            checkpoint::Answer::Code(2) if matches!(begun.wait, Waiting::Proof { .. }) => Answer::NoRoom,
            checkpoint::Answer::Code(code) => Answer::Refused(code),
            checkpoint::Answer::Gone => Answer::Gone,
            checkpoint::Answer::Stopped => Answer::Stopped,
            checkpoint::Answer::NoDriver(why) => {
                way.why = Some(why);
                Answer::Refused(code::UNKNOWN)
            }
            checkpoint::Answer::Ready(_) => Answer::HelperLost,
        })
    }

    /// Looks after everything that is under way.
    pub(in crate::driver) fn tick_ways(&mut self, now: Now) {
        for (job, process) in std::mem::take(&mut self.ways.gone) {
            self.take_gone(job, process, now);
        }
        self.take_ended_moves(now);
        self.tick_restores(now);
        let jobs: Vec<JobId> = self.ways.by_job.keys().copied().collect();
        for job in jobs {
            let Some(mut way) = self.ways.by_job.remove(&job) else {
                continue;
            };
            if let Phase::Passing { step, .. } = &mut way.phase
                && let Some(mut begun) = step.take()
            {
                let answer = self.poll_step(job, &mut way, &mut begun, now);
                self.end_or_wait(&mut way, begun, answer, now);
            }
            self.follow(job, way, now);
        }
    }

    /// When [`tick_ways`](Self::tick_ways) has something to do, at the latest.
    pub(in crate::driver) fn ways_due_ns(&self) -> u64 {
        if !self.ways.gone.is_empty() || !self.ways.ended_moves.is_empty() {
            return 0;
        }
        let due = |way: &Way| match &way.phase {
            Phase::Asking { .. } | Phase::Trying { .. } => u64::MAX,
            Phase::Passing { step, .. } => step.as_ref().map_or(0, Begun::due_ns),
        };
        let due = self.ways.by_job.values().map(due);
        let due = due.chain(self.ways.restores.values().copied()).min();
        due.unwrap_or(u64::MAX)
    }

    /// Has what a step waits for come?
    fn poll_step(&mut self, job: JobId, way: &mut Way, begun: &mut Begun, now: Now) -> Option<Answer> {
        let since_ns = begun.since_ns;
        begun.looked_ns = now.ns;
        match &begun.wait {
            Waiting::Helper | Waiting::Proof { .. } | Waiting::Newcomers { .. } => None,
            Waiting::Time { until_ns } => (now.ns >= *until_ns).then_some(Answer::Done),
            wait @ (Waiting::Parked { .. } | Waiting::Unparked { .. } | Waiting::Ended { .. }) => {
                self.poll_save(job, wait, now)
            }
            Waiting::Dumped => self.dumped(job, way),
            Waiting::Inside { until_ns } => {
                if !self.is_anybody_inside(job) {
                    return self.nobody_inside(job, way, begun);
                }
                (now.ns >= *until_ns).then_some(Answer::TimedOut)
            }
            Waiting::Books { place } => {
                let target = self.policy.residence(job).and_then(|mark| mark.target);
                match self.policy.ask_room(job, *place, target, &self.clients) {
                    Ok(()) => Some(Answer::Done),
                    Err(_) if self.policy.is_adopting_any() => None,
                    Err(shortage) => {
                        way.why = Some(shortage.to_string());
                        Some(Answer::NoRoom)
                    }
                }
            }
            Waiting::Clear { processes, until_ns } => self.poll_clear(job, processes, (since_ns, *until_ns), now),
            Waiting::Place { process, until_ns } => {
                let target = self.policy.residence(job).and_then(|mark| mark.target);
                let Some(target) = target else {
                    return Some(Answer::At(Place::Source));
                };
                let is_there = |sample: &Sample| sample.processes.iter().any(|shown| shown.pid == process.pid);
                match self.devices.sample_since(target.device, since_ns).map(is_there) {
                    Some(true) => Some(Answer::At(Place::Target)),
                    Some(false) => Some(Answer::At(Place::Source)),
                    None => {
                        self.want_samples(&[target.device]);
                        (now.ns >= *until_ns).then_some(Answer::TimedOut)
                    }
                }
            }
            Waiting::Room {
                process,
                place,
                until_ns,
            } => {
                let (process, until_ns) = (*process, *until_ns);
                let owed = self.owed(job, process, *place);
                match self.room_for(&owed, since_ns) {
                    Some(Ok(shared)) => self.prove_next(job, begun, shared),
                    Some(Err(why)) => {
                        way.why = Some(why);
                        Some(Answer::NoRoom)
                    }
                    None => {
                        let devices: Vec<DeviceUuid> = owed.iter().map(|(device, _)| *device).collect();
                        self.want_samples(&devices);
                        (now.ns >= until_ns).then_some(Answer::TimedOut)
                    }
                }
            }
        }
    }

    /// Has NVML stopped to show these processes?
    fn poll_clear(
        &mut self,
        job: JobId,
        processes: &[Process],
        (since_ns, until_ns): (u64, u64),
        now: Now,
    ) -> Option<Answer> {
        let devices = self.jobs.devices(job);
        let is_clear = |process: &Process| self.devices.is_gone_since(since_ns, Some(process.pid), &devices);
        if processes.iter().all(is_clear) {
            return Some(Answer::Done);
        }
        self.want_samples(&devices);
        (now.ns >= until_ns).then_some(Answer::TimedOut)
    }

    /// Nobody is in the driver any more. A call that was on its way may have made a tie, or a process have begun to use
    /// CUDA that the passage does not know.
    fn nobody_inside(&mut self, job: JobId, way: &mut Way, begun: &mut Begun) -> Option<Answer> {
        if way.has_left {
            return Some(Answer::Done);
        }
        if let Some(why) = self.tied(job) {
            way.why = Some(why);
            return Some(Answer::Refused(code::NOT_SUPPORTED));
        }
        let mut left = self.processes_with_library(job);
        left.retain(|process| !way.processes.contains(process));
        self.ask_newcomer(job, begun, left)
    }

    fn ask_newcomer(&mut self, job: JobId, begun: &mut Begun, left: Vec<Process>) -> Option<Answer> {
        let Some(next) = left.first().copied() else {
            return Some(Answer::Done);
        };
        self.ask_state(job, next);
        begun.wait = Waiting::Newcomers { left };
        None
    }

    /// What the driver says of a process that came after the passage was begun.
    fn take_newcomer(
        &mut self,
        job: JobId,
        way: &mut Way,
        begun: &mut Begun,
        answer: &checkpoint::Answer,
    ) -> Option<Answer> {
        let Waiting::Newcomers { left } = &mut begun.wait else {
            return Some(Answer::Done);
        };
        let mut left = std::mem::take(left);
        let process = left.remove(0);
        match answer {
            // It waits before it has any CUDA.
            checkpoint::Answer::Code(code::NOT_INITIALIZED) | checkpoint::Answer::Gone => {
                self.ask_newcomer(job, begun, left)
            }
            _ => {
                way.why = Some(format!("pid {} began to use the GPU meanwhile: try again", process.pid));
                Some(Answer::Refused(code::NOT_SUPPORTED))
            }
        }
    }

    fn want_samples(&mut self, devices: &[DeviceUuid]) {
        devices.iter().for_each(|device| self.devices.look_at(*device));
    }

    /// Does NVML show these bytes as free, in looks begun after this? Answers those devices where processes of nobody
    /// are, of whom NVML may not tell all; none while looks are awaited.
    fn room_for(&self, owed: &[(DeviceUuid, u64)], since_ns: u64) -> Option<Result<Vec<(DeviceUuid, u64)>, String>> {
        let mut shared = Vec::new();
        for (device, bytes) in owed {
            let sample = self.devices.sample_since(*device, since_ns)?;
            let mut strangers = Vec::new();
            for shown in &sample.processes {
                let stat = self.processes.stat(shown.pid);
                let of = stat.and_then(|stat| self.job_by_kernel(stat.id));
                if of.is_none() {
                    strangers.push(shown.pid);
                }
            }
            // The books count their room to the byte. What nobody of ours uses may grow at any time.
            let spare = if strangers.is_empty() {
                0
            } else {
                bytes / 50 + SPARE_BYTES
            };
            let needed = bytes.saturating_add(spare);
            if sample.free < needed {
                let by = match strangers.as_slice() {
                    [] => String::new(),
                    pids => {
                        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
                        format!("; pid {} of no job use it", pids.join(", "))
                    }
                };
                let gpu = self.devices.list().get(device).map(|facts| facts.index);
                let gpu = gpu.map_or_else(|| device.to_string(), |index| format!("GPU {index}"));
                return Some(Err(format!(
                    "NVML shows {} free on {gpu}, and {} are needed{by}",
                    format_bytes(sample.free),
                    format_bytes(needed)
                )));
            }
            if !strangers.is_empty() {
                shared.push((*device, *bytes));
            }
        }
        Some(Ok(shared))
    }

    /// Has a helper allocate on the next device; done where none is left.
    fn prove_next(&mut self, job: JobId, begun: &mut Begun, mut left: Vec<(DeviceUuid, u64)>) -> Option<Answer> {
        let Some((device, bytes)) = left.pop() else {
            return Some(Answer::Done);
        };
        let Step::RoomProve { process, .. } = begun.step else {
            return Some(Answer::Done);
        };
        self.effects.push(Effect::AskHelper {
            job,
            user: self.user_of(job, process),
            ask: Ask::Room {
                uuid: device.to_string(),
                bytes,
            },
            patience_ns: PROOF_NS,
        });
        begun.wait = Waiting::Proof { left };
        None
    }
}

impl Begun {
    /// When it is to be looked at again, at the latest.
    fn due_ns(&self) -> u64 {
        match &self.wait {
            Waiting::Helper | Waiting::Proof { .. } | Waiting::Newcomers { .. } => u64::MAX,
            Waiting::Time { until_ns } => *until_ns,
            Waiting::Inside { .. } | Waiting::Parked { .. } | Waiting::Unparked { .. } => {
                self.looked_ns + INSIDE_POLL_NS
            }
            Waiting::Dumped | Waiting::Ended { .. } => self.looked_ns + SAMPLE_POLL_NS,
            Waiting::Clear { .. } | Waiting::Room { .. } | Waiting::Place { .. } | Waiting::Books { .. } => {
                self.looked_ns + SAMPLE_POLL_NS
            }
        }
    }
}

fn state_of(state: State) -> ProcessState {
    match state {
        State::Running => ProcessState::Running,
        State::Locked => ProcessState::Locked,
        State::Checkpointed => ProcessState::Checkpointed,
        State::Failed => ProcessState::Failed,
    }
}
