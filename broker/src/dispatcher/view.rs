// SPDX-License-Identifier: Apache-2.0
//! What the scheduler says of a job, in the policy's words.

use partage_policy::{Cause, JobTime, TimeState};
use partage_protocol::units::{DeviceUuid, JobId};
use partage_scheduling::{HeldBy, JobState, JobView, Regime};

/// A job on a device, as the policy keeps it. `stretch`: how many times the device's clients were told to leave marks;
/// `has_stuck`: a client of the job does not drain there.
pub fn job_time(view: &JobView, device: DeviceUuid, stretch: u32, has_stuck: bool) -> JobTime {
    JobTime {
        job: JobId(view.job.0),
        device,
        asked_ppm: view.asked_ppm,
        got_1s_ppm: view.got_ppm_1s,
        got_60s_ppm: view.got_ppm_60s,
        used_ns: view.used_ns,
        corrected_ns: view.corrected_ns,
        stretch,
        waited_ns: view.waited_ns,
        state: match view.state {
            JobState::Open => TimeState::Open,
            JobState::Waiting => TimeState::Waiting,
            JobState::Capped => TimeState::Capped,
            JobState::Idle => TimeState::Idle,
            JobState::NotDraining => TimeState::NotDraining,
        },
        waits_for: match view.waits_for {
            // An open gate is nothing to wait at; what else has the device is known to the part that polls NVML.
            HeldBy::None | HeldBy::Unmanaged => Cause::None,
            HeldBy::Cap => Cause::Cap,
            HeldBy::Neighbour(job) => Cause::Neighbour(JobId(job.0)),
            HeldBy::Priority(job) => Cause::Priority(JobId(job.0)),
        },
        wanted_60s_ppm: view.wanted_ppm_60s,
        unit_ns: view.unit_ns,
        regime: match view.regime {
            Regime::Overlap => partage_policy::Regime::Overlap,
            Regime::Turns => partage_policy::Regime::Turns,
        },
        is_not_draining: view.state == JobState::NotDraining || has_stuck,
    }
}
