// SPDX-License-Identifier: Apache-2.0
//! Whether this driver takes a map of a process like a job's: tried once, on a process of our own, before the first job
//! is touched.

use partage_protocol::admin::{ErrorCode, ErrorView};
use partage_protocol::units::{DeviceUuid, JobId, SECOND_NS};

use super::engine::Engine;
use crate::helper::process::User;
use crate::host::checkpoint::Ask;
use crate::site::effect::Effect;
use crate::site::{Site, error_view};

/// A process is started, gets a context and is moved without any memory.
const TRY_NS: u64 = 90 * SECOND_NS;

impl Engine {
    /// Does the driver take maps of processes like this job's? None: not tried yet.
    pub(super) fn takes_map(&self, site: &Site, job: JobId) -> Option<bool> {
        self.ways.maps.get(&is_masked(site, job)).copied()
    }
}

/// Do its processes see some of the devices only?
pub(super) fn is_masked(site: &Site, job: JobId) -> bool {
    site.jobs.devices(job).len() < whole_devices(site).len()
}

fn whole_devices(site: &Site) -> Vec<String> {
    let whole = site.devices.list().keys().filter(|device| !device.is_mig);
    whole.map(ToString::to_string).collect()
}

/// Has it tried on the device where the job is to go: there is room.
pub(super) fn try_map(site: &mut Site, job: JobId, device: DeviceUuid) {
    let ask = Ask::Map {
        device: device.to_string(),
        is_masked: is_masked(site, job),
        all: whole_devices(site),
    };
    // As the broker's own user: the answer holds for every job, and the process that is tried is of our own.
    site.effects.push(Effect::AskHelper {
        job,
        user: User::own(),
        ask,
        patience_ns: TRY_NS,
    });
}

/// The driver moves no process like this job's.
pub(super) fn map_refused(site: &Site, job: JobId) -> ErrorView {
    let (which, hint) = match is_masked(site, job) {
        true => (
            "a process that sees some of the GPUs only",
            Some("only a job of all GPUs can move with this driver"),
        ),
        false => ("a process", None),
    };
    let message = format!(
        "this driver does not exchange the GPUs of {which}: it answered CUDA_ERROR_INVALID_VALUE (1) for a \
         process of Partage's own, and {job} was not touched"
    );
    error_view(ErrorCode::Failed, message, hint)
}
