// SPDX-License-Identifier: Apache-2.0
//! Converts the scheduler's view of a job into the policy's.

use partage_policy::JobTime;
use partage_protocol::units::DeviceUuid;
use partage_scheduling::{JobView, TimeState};

/// A job on a device. `stretch`: how many times the device's clients were told to leave marks; `has_stuck`: a client of
/// the job does not drain there.
pub fn job_time(view: &JobView, device: DeviceUuid, stretch: u32, has_stuck: bool) -> JobTime {
    JobTime {
        job: view.job,
        device,
        asked_ppm: view.asked_ppm,
        got_1s_ppm: view.got_ppm_1s,
        got_60s_ppm: view.got_ppm_60s,
        used_ns: view.used_ns,
        corrected_ns: view.corrected_ns,
        stretch,
        waited_ns: view.waited_ns,
        state: view.state,
        waits_for: view.waits_for,
        wanted_60s_ppm: view.wanted_ppm_60s,
        unit_ns: view.unit_ns,
        regime: view.regime,
        is_not_draining: view.state == TimeState::NotDraining || has_stuck,
    }
}
