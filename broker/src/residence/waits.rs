// SPDX-License-Identifier: Apache-2.0
//! What steps wait for: helpers, threads, looks at the devices, time.

use partage_policy::{Answer, Place, Process, ProcessState, Step};
use partage_protocol::size::format_bytes;
use partage_protocol::units::{DeviceUuid, JobId, MIB, SECOND_NS};

use super::code;
use super::dumping::{dumped, poll_save};
use super::engine::Engine;
use super::facts::{processes_with_library, user_of};
use super::holds::is_anybody_inside;
use super::steps::{ask_state, end_step, owed, room_in_books};
use super::way::{Begun, Phase, Waiting, Way};
use crate::host::checkpoint::{self, Ask, Outcome, State};
use crate::host::gpu::Sample;
use crate::site::Site;
use crate::site::effect::Effect;

/// Between two looks at what threads say: one that leaves the driver is seen within this.
const INSIDE_POLL_NS: u64 = SECOND_NS / 1_000;
/// Between two looks at whether a look was answered.
const SAMPLE_POLL_NS: u64 = SECOND_NS / 100;
/// A helper makes a context and asks the driver for room.
const PROOF_NS: u64 = 30 * SECOND_NS;
/// What a restore may need beyond what the process held: a driver's own tables, and fragments.
const SPARE_BYTES: u64 = 256 * MIB;

impl Engine {
    /// Ends the step under way if what it waits for has come.
    pub(super) fn poll(&mut self, site: &mut Site, job: JobId, way: &mut Way) -> bool {
        let Phase::Passing { step, .. } = &mut way.phase else {
            return false;
        };
        let Some(mut begun) = step.take() else { return true };
        let answer = self.poll_step(site, job, way, &mut begun);
        let is_over = answer.is_some();
        end_or_wait(site, way, begun, answer);
        is_over
    }

    /// Has what a step waits for come?
    fn poll_step(&mut self, site: &mut Site, job: JobId, way: &mut Way, begun: &mut Begun) -> Option<Answer> {
        let since_ns = begun.since_ns;
        begun.looked_ns = site.now.ns;
        match &begun.wait {
            Waiting::Helper | Waiting::Proof { .. } | Waiting::Newcomers { .. } => None,
            Waiting::Time { until_ns } => (site.now.ns >= *until_ns).then_some(Answer::Done),
            wait @ (Waiting::Parked { .. } | Waiting::Unparked { .. } | Waiting::Ended { .. }) => {
                poll_save(site, job, wait)
            }
            Waiting::Dumped => dumped(site, job, way),
            Waiting::Inside { until_ns } => {
                if !is_anybody_inside(site, job) {
                    return self.nobody_inside(site, job, way, begun);
                }
                (site.now.ns >= *until_ns).then_some(Answer::TimedOut)
            }
            Waiting::Written => Some(match self.ways.unwritten.contains(&job) {
                true => Answer::Refused(code::OPERATING_SYSTEM),
                false => Answer::Done,
            }),
            Waiting::Books { place } => room_in_books(site, job, *place, way),
            Waiting::Clear { processes, until_ns } => poll_clear(site, job, processes, (since_ns, *until_ns)),
            Waiting::Place { process, until_ns } => {
                let target = site.policy.residence(job).and_then(|mark| mark.target);
                let Some(target) = target else {
                    return Some(Answer::At(Place::Source));
                };
                let is_there = |sample: &Sample| sample.processes.iter().any(|shown| shown.pid == process.pid);
                match site.devices.sample_since(target.device, since_ns).map(is_there) {
                    Some(true) => Some(Answer::At(Place::Target)),
                    Some(false) => Some(Answer::At(Place::Source)),
                    None => {
                        want_samples(site, &[target.device]);
                        (site.now.ns >= *until_ns).then_some(Answer::TimedOut)
                    }
                }
            }
            Waiting::Room {
                process,
                place,
                until_ns,
            } => {
                let (process, until_ns) = (*process, *until_ns);
                let owed = owed(site, job, process, *place);
                match room_for(site, &owed, since_ns) {
                    Some(Ok(shared)) => prove_next(site, job, begun, shared),
                    Some(Err(why)) => {
                        way.why = Some(why);
                        Some(Answer::NoRoom)
                    }
                    None => {
                        let devices: Vec<DeviceUuid> = owed.iter().map(|(device, _)| *device).collect();
                        want_samples(site, &devices);
                        (site.now.ns >= until_ns).then_some(Answer::TimedOut)
                    }
                }
            }
        }
    }

    /// Nobody is in the driver any more. A call that was on its way may have made a tie, or a process have begun to use
    /// CUDA that the passage does not know.
    fn nobody_inside(&mut self, site: &mut Site, job: JobId, way: &mut Way, begun: &mut Begun) -> Option<Answer> {
        if way.has_left {
            return Some(Answer::Done);
        }
        if let Some(why) = self.tied(site, job) {
            way.why = Some(why);
            return Some(Answer::Refused(code::NOT_SUPPORTED));
        }
        let mut left = processes_with_library(site, job);
        left.retain(|process| !way.processes.contains(process));
        ask_newcomer(site, job, begun, left)
    }
}

pub(super) fn end_or_wait(site: &Site, way: &mut Way, begun: Begun, answer: Option<Answer>) {
    match answer {
        Some(answer) => end_step(site, way, &begun, answer),
        None => {
            if let Phase::Passing { step, .. } = &mut way.phase {
                *step = Some(begun);
            }
        }
    }
}

/// What a helper's word means for the step; none while it is not the last.
pub(super) fn answer_of(
    site: &mut Site,
    job: JobId,
    way: &mut Way,
    begun: &mut Begun,
    outcome: Outcome,
) -> Option<Answer> {
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
        return take_newcomer(site, job, way, begun, &answer);
    }
    Some(match answer {
        checkpoint::Answer::Done => {
            if let Waiting::Proof { left } = &mut begun.wait {
                let left = std::mem::take(left);
                return prove_next(site, job, begun, left);
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

/// Has NVML stopped to show these processes?
fn poll_clear(site: &mut Site, job: JobId, processes: &[Process], (since_ns, until_ns): (u64, u64)) -> Option<Answer> {
    let devices = site.jobs.devices(job);
    let is_clear = |process: &Process| site.devices.is_gone_since(since_ns, Some(process.pid), &devices);
    if processes.iter().all(is_clear) {
        return Some(Answer::Done);
    }
    want_samples(site, &devices);
    (site.now.ns >= until_ns).then_some(Answer::TimedOut)
}

fn ask_newcomer(site: &mut Site, job: JobId, begun: &mut Begun, left: Vec<Process>) -> Option<Answer> {
    let Some(next) = left.first().copied() else {
        return Some(Answer::Done);
    };
    ask_state(site, job, next);
    begun.wait = Waiting::Newcomers { left };
    None
}

/// What the driver says of a process that came after the passage was begun.
fn take_newcomer(
    site: &mut Site,
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
            ask_newcomer(site, job, begun, left)
        }
        _ => {
            way.why = Some(format!("pid {} began to use the GPU meanwhile: try again", process.pid));
            Some(Answer::Refused(code::NOT_SUPPORTED))
        }
    }
}

fn want_samples(site: &mut Site, devices: &[DeviceUuid]) {
    devices.iter().for_each(|device| site.devices.look_at(*device));
}

/// Does NVML show these bytes as free, in looks begun after this? Answers those devices where processes of nobody
/// are, of whom NVML may not tell all; none while looks are awaited.
fn room_for(site: &Site, owed: &[(DeviceUuid, u64)], since_ns: u64) -> Option<Result<Vec<(DeviceUuid, u64)>, String>> {
    let mut shared = Vec::new();
    for (device, bytes) in owed {
        let sample = site.devices.sample_since(*device, since_ns)?;
        let mut strangers = Vec::new();
        for shown in &sample.processes {
            let stat = site.processes.stat(shown.pid);
            let of = stat.and_then(|stat| site.job_by_kernel(stat.id));
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
            let gpu = site.devices.list().get(device).map(|facts| facts.index);
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
fn prove_next(site: &mut Site, job: JobId, begun: &mut Begun, mut left: Vec<(DeviceUuid, u64)>) -> Option<Answer> {
    let Some((device, bytes)) = left.pop() else {
        return Some(Answer::Done);
    };
    let Step::RoomProve { process, .. } = begun.step else {
        return Some(Answer::Done);
    };
    site.effects.push(Effect::AskHelper {
        job,
        user: user_of(site, job, process),
        ask: Ask::Room {
            uuid: device.to_string(),
            bytes,
        },
        patience_ns: PROOF_NS,
    });
    begun.wait = Waiting::Proof { left };
    None
}

impl Begun {
    /// When it is to be looked at again, at the latest.
    pub(super) fn due_ns(&self) -> u64 {
        match &self.wait {
            Waiting::Helper | Waiting::Proof { .. } | Waiting::Newcomers { .. } => u64::MAX,
            Waiting::Written => 0,
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
