// SPDX-License-Identifier: Apache-2.0
//! All that is known of jobs, devices and clients, and every question about it.
//!
//! What answers a question has a `&Books`: it can change nothing and tell the broker nothing to do. Only
//! [`Policy`](crate::Policy) writes, in `decisions/`.

use std::collections::{BTreeMap, BTreeSet};

use partage_protocol::job_ledger::JobLedger;
use partage_protocol::message::NO_INDEX;
use partage_protocol::units::{DeviceUuid, JobId};

use crate::caller::Process;
use crate::client::Clients;
use crate::config::{Config, Order};
use crate::device::{Device, DeviceState, Overheads};
use crate::drain_mark::DrainMark;
use crate::event::{DriverState, Measurement, ProcessUse};
use crate::job::{Job, Jobs, Placement, Queue, Returning, Swaps};
use crate::question::Undecided;
use crate::rules::Rules;
use crate::shared::Shared;
use crate::sick::Health;
use crate::time::{Times, Usage};

mod check;
pub(crate) mod room;
pub(crate) mod seen;
pub(crate) mod who;

pub use check::Violation;
pub(crate) use room::advice::Advice;
pub use room::dying::GIVEN_UP_NS;
pub use room::moving::Exchange;
pub(crate) use room::placement::Unplaced;
pub use room::residence::Shortage;
pub(crate) use room::survey::Survey;
pub use room::undecided::PATIENCE_NS;
pub use seen::due::TIME_LIMIT_GRACE_NS;
pub use who::Access;
pub(crate) use who::may_see;

/// The books: what was seen, asked and decided up to now.
#[derive(Clone, Debug)]
pub struct Books {
    pub(crate) config: Shared<Config>,
    pub(crate) driver: DriverState,
    pub(crate) devices: BTreeMap<DeviceUuid, Device>,
    /// Devices on which nothing is admitted.
    pub(crate) drained: BTreeMap<DeviceUuid, DrainMark>,
    /// Errors of devices, and which are sick.
    pub(crate) health: BTreeMap<DeviceUuid, Health>,
    pub(crate) jobs: Jobs,
    pub(crate) queue: Queue,
    /// Jobs in the queue that are away and are to come back.
    pub(crate) returning: BTreeMap<JobId, Returning>,
    pub(crate) swaps: Swaps,
    pub(crate) clients: Clients,
    pub(crate) overheads: Overheads,
    pub(crate) undecided: Undecided,
    pub(crate) times: Times,
    pub(crate) usage: Usage,
    /// Jobs of the broker before whose devices were not seen since: the rules of today are not yet about them.
    pub(crate) unjudged: Vec<JobId>,
    /// When runs that waited at the broker before have asked again.
    pub(crate) runs_back_ns: u64,
    /// The time of the step that is under way, or was the last.
    pub(crate) now_ns: u64,
    /// Unix time less the monotonic time, in nanoseconds and modulo 2^64.
    pub(crate) unix_offset_ns: u64,
}

impl Books {
    /// Books without a device, job or client.
    pub(crate) fn new(config: Config) -> Self {
        let jobs = Jobs::new(config.first_job);
        Self {
            config: Shared::new(config),
            driver: DriverState::Missing("not looked for yet".into()),
            devices: BTreeMap::new(),
            drained: BTreeMap::new(),
            health: BTreeMap::new(),
            jobs,
            queue: Queue::default(),
            returning: BTreeMap::new(),
            swaps: Swaps::default(),
            clients: Clients::default(),
            overheads: Overheads::default(),
            undecided: Undecided::default(),
            times: Times::default(),
            usage: Usage::default(),
            unjudged: Vec::new(),
            runs_back_ns: 0,
            now_ns: 0,
            unix_offset_ns: 0,
        }
    }

    /// A step begins at this time.
    pub(crate) fn begin_step(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// See [`Policy::set_clock`](crate::Policy::set_clock).
    pub(crate) fn set_clock(&mut self, now_ns: u64, unix_ns: u64) {
        self.unix_offset_ns = unix_ns.wrapping_sub(now_ns);
    }

    /// Whether the driver's list of devices can be trusted.
    pub(crate) fn note_driver(&mut self, driver: DriverState) {
        self.driver = driver;
    }

    /// A look at the device takes long.
    pub(crate) fn note_slow(&mut self, device: DeviceUuid) {
        if let Some(known) = self.devices.get_mut(&device) {
            known.note_slow();
        }
    }

    /// Until then runs that waited at the broker before ask again.
    pub(crate) fn let_runs_pass_until(&mut self, until_ns: u64) {
        self.runs_back_ns = until_ns;
    }

    pub(crate) fn unix_ns(&self, now_ns: u64) -> u64 {
        now_ns.wrapping_add(self.unix_offset_ns)
    }

    /// The processes a job is known by: its first while it lives, then its clients.
    #[must_use]
    pub fn processes(&self, job: JobId) -> Vec<Process> {
        let Some(job) = self.jobs.get(&job) else {
            return Vec::new();
        };
        let first = job.record.first.filter(|_| job.is_first_alive);
        let clients = job
            .clients
            .iter()
            .filter_map(|id| self.clients.get(id))
            .map(|client| client.process);
        first.into_iter().chain(clients).collect()
    }

    /// The jobs that wait, in their order.
    pub fn queue(&self) -> impl Iterator<Item = JobId> + '_ {
        self.queue.iter().copied()
    }

    /// The jobs that were admitted and have not ended, lingering ones too.
    pub fn live(&self) -> impl Iterator<Item = JobId> + '_ {
        let may_stop = |job: &&Job| job.state().takes_processes();
        self.jobs.values().filter(may_stop).map(Job::id)
    }

    /// Clients of the broker before are still awaited, so some devices admit nothing.
    #[must_use]
    pub fn is_adopting_any(&self) -> bool {
        !self.clients.awaited().is_empty()
    }

    /// What was measured last of a device.
    pub(crate) fn measured(&self, device: DeviceUuid) -> Option<&Measurement> {
        self.devices.get(&device)?.measured.as_ref()
    }

    /// The processes that were measured last on a device.
    pub(crate) fn processes_on(&self, device: DeviceUuid) -> &[ProcessUse] {
        self.measured(device).map_or(&[], |measured| &measured.processes)
    }

    /// Is a device there, and measured?
    pub(crate) fn is_ok(&self, device: DeviceUuid) -> bool {
        let known = self.devices.get(&device);
        known.is_some_and(|known| known.state == DeviceState::Ok)
    }

    /// The places of a job; none of one that is not known.
    pub(crate) fn places(&self, job: JobId) -> Vec<Placement> {
        self.jobs
            .get(&job)
            .map_or_else(Vec::new, |job| job.record.devices.clone())
    }

    /// What is granted of one of a job's devices.
    pub(crate) fn ledger(&self, job: JobId, slot: usize) -> Option<&JobLedger> {
        Some(&self.jobs.get(&job)?.slots.get(slot)?.ledger)
    }

    /// `nvidia-smi`'s index of a device, or [`NO_INDEX`].
    pub(crate) fn index_of(&self, device: DeviceUuid) -> u32 {
        self.devices.get(&device).map_or(NO_INDEX, |known| known.seen.index)
    }

    /// `GPU 3`, or the UUID of a device that was not seen.
    #[must_use]
    pub fn gpu(&self, device: DeviceUuid) -> String {
        self.devices
            .get(&device)
            .map_or_else(|| device.to_string(), |known| format!("GPU {}", known.seen.index))
    }

    /// Classes and rules.
    pub(crate) fn rules(&self) -> &Rules {
        &self.config.rules
    }

    /// Whose a job is, while it is known: waiting, live, or ended within the last day.
    #[must_use]
    pub fn owner(&self, job: JobId) -> Option<u32> {
        self.jobs.get(&job).map(|job| job.record.uid)
    }

    /// Jobs that are live or lingering; a private broker leaves when there is none and nobody waits.
    #[must_use]
    pub fn live_jobs(&self) -> usize {
        self.jobs.values().filter(|job| job.state().keeps_the_broker()).count()
    }

    /// In which order those that wait have their turn.
    pub(crate) fn queue_order(&self) -> Order {
        self.config.queue.order
    }

    /// Jobs that wait.
    #[must_use]
    pub fn waiting_jobs(&self) -> usize {
        self.queue.len()
    }

    /// How many devices a job has: the slots on which its clients have words.
    #[must_use]
    pub fn slots(&self, job: JobId) -> usize {
        self.jobs.get(&job).map_or(0, |job| job.slots.len())
    }

    /// Whose processes the last looks at the devices showed.
    #[must_use]
    pub fn shown_users(&self) -> BTreeSet<u32> {
        let shown = self.devices.keys().flat_map(|device| self.processes_on(*device));
        shown.filter_map(|process| process.uid).collect()
    }

    /// These books with exactly these jobs stopped by a signal: for a copy that is shown. The books themselves hear it
    /// as [`Event::Stopped`](crate::Event::Stopped).
    #[must_use]
    pub fn with_stopped(&self, stopped: &BTreeSet<JobId>) -> Self {
        Self {
            jobs: self.jobs.with_stopped(stopped),
            ..self.clone()
        }
    }
}
