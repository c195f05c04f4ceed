// SPDX-License-Identifier: Apache-2.0
//! The policy's state. Each file of this folder makes one decision about it; no other code can write it.

use std::collections::BTreeMap;

use partage_protocol::admin::{EventNumbers, Reply};
use partage_protocol::message::NO_INDEX;
use partage_protocol::units::{ClientId, DeviceUuid, JobId};

use crate::action::Action;
use crate::caller::{Process, Ticket};
use crate::client::{Client, Clients};
use crate::config::{Config, Order};
use crate::device::{Device, Overheads};
use crate::drain_mark::DrainMark;
use crate::event::DriverState;
use crate::job::{Job, Jobs, Queue, Returning, Swaps};
use crate::question::Undecided;
use crate::rules::Rules;
use crate::time::{Measured, Times, Usage};

mod admission;
mod admitted;
mod adoption;
mod advice;
mod attaching;
mod audit;
mod ceiling;
mod change;
mod change_terms;
mod check;
mod claims;
mod default_job;
mod denials;
mod draining;
mod dying;
mod emptying;
mod ending;
mod evidence;
mod expected;
mod fairness;
mod foreseen;
mod headroom;
mod idling;
mod least;
mod measured_time;
mod measuring;
mod moving;
mod overhead;
mod placement;
mod polls;
mod preempting;
mod process_limits;
mod registered;
mod rejudging;
mod residence;
mod returning;
mod said;
mod step;
mod survey;
mod target;
mod time_audit;
mod time_limit;
mod time_promises;
mod totals;
mod undecided;
mod unmanaged;

pub use adoption::ADOPTION_NS;
pub(crate) use advice::Advice;
pub use attaching::MAX_CLIENTS_PER_JOB;
pub use check::Violation;
pub use dying::GIVEN_UP_NS;
pub use emptying::{Emptying, Next, Stay};
pub use measuring::MEASURE_NS;
pub use moving::Exchange;
pub(crate) use placement::Unplaced;
pub use residence::Shortage;
pub use returning::stands;
pub(crate) use survey::Survey;
pub use target::Access;
pub(crate) use target::may_see;
pub use time_limit::TIME_LIMIT_GRACE_NS;
pub use undecided::PATIENCE_NS;

/// All jobs, devices and clients, and every decision about them.
#[derive(Clone, Debug)]
pub struct Policy {
    config: Config,
    driver: DriverState,
    devices: BTreeMap<DeviceUuid, Device>,
    /// Devices on which nothing is admitted.
    drained: BTreeMap<DeviceUuid, DrainMark>,
    jobs: Jobs,
    queue: Queue,
    /// Jobs in the queue that are away and are to come back.
    returning: BTreeMap<JobId, Returning>,
    swaps: Swaps,
    clients: Clients,
    overheads: Overheads,
    undecided: Undecided,
    times: Times,
    usage: Usage,
    /// Jobs of the broker before whose devices were not seen since: the rules of today are not yet about them.
    unjudged: Vec<JobId>,
    /// When runs that waited at the broker before have asked again.
    runs_back_ns: u64,
    /// The time of the step that is under way, or was the last.
    now_ns: u64,
    /// When something is due; kept so that asks need not look at every job.
    due_ns: Option<u64>,
    /// Unix time less the monotonic time, in nanoseconds and modulo 2^64; see [`Policy::set_clock`].
    unix_offset_ns: u64,
    /// Filled during a step.
    out: Vec<Action>,
}

impl Policy {
    /// A policy that knows no device, job or client yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let jobs = Jobs::new(config.first_job);
        Self {
            config,
            driver: DriverState::Missing("not looked for yet".into()),
            devices: BTreeMap::new(),
            drained: BTreeMap::new(),
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
            due_ns: None,
            unix_offset_ns: 0,
            out: Vec::new(),
        }
    }

    /// Says what Unix time it is at `now_ns`: what is remembered for people has the date. Without it, the epoch.
    pub fn set_clock(&mut self, now_ns: u64, unix_ns: u64) {
        self.unix_offset_ns = unix_ns.wrapping_sub(now_ns);
    }

    /// A step begins at this time.
    pub(crate) fn begin_step(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Something is due at `due_ns`, perhaps before all else.
    pub(crate) fn bring_forward(&mut self, due_ns: u64) {
        self.due_ns = Some(self.due_ns.map_or(due_ns, |other| other.min(due_ns)));
    }

    pub(crate) fn unix_ns(&self, now_ns: u64) -> u64 {
        now_ns.wrapping_add(self.unix_offset_ns)
    }

    /// When the policy wants a [`Event::Tick`] at the latest, if nothing else happens; `None` for never.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.due_ns
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

    /// When something is due, after all that a step did.
    pub(crate) fn note_due(&mut self) {
        self.due_ns = self.next_due();
    }

    /// Whether the driver's list of devices can be trusted.
    pub(crate) fn note_driver(&mut self, driver: DriverState) {
        self.driver = driver;
    }

    pub(crate) fn act(&mut self, action: Action) {
        self.out.push(action);
    }

    pub(crate) fn reply(&mut self, ticket: Ticket, reply: Reply) {
        self.act(Action::Reply {
            ticket,
            reply: Box::new(reply),
        });
    }

    pub(crate) fn publish(&mut self, kind: &'static str, job: Option<JobId>, pid: Option<u32>, text: String) {
        self.publish_numbers(kind, (job, pid), text, EventNumbers::default());
    }

    /// The same with the numbers of the sentence.
    pub(crate) fn publish_numbers(
        &mut self,
        kind: &'static str,
        (job, pid): (Option<JobId>, Option<u32>),
        text: String,
        numbers: EventNumbers,
    ) {
        let uid = job.and_then(|job| self.owner(job));
        self.act(Action::Publish {
            kind,
            job,
            uid,
            pid,
            text,
            numbers: Box::new(numbers),
        });
    }

    /// Until then runs that waited at the broker before ask again.
    pub(crate) const fn let_runs_pass_until(&mut self, until_ns: u64) {
        self.runs_back_ns = until_ns;
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

    /// Every job that is known, by its number.
    pub(crate) fn jobs(&self) -> &BTreeMap<JobId, Job> {
        &self.jobs
    }

    /// Classes and rules.
    pub(crate) const fn rules(&self) -> &Rules {
        &self.config.rules
    }

    /// Every device that was ever enumerated.
    pub(crate) const fn devices(&self) -> &BTreeMap<DeviceUuid, Device> {
        &self.devices
    }

    /// Every client that is not gone.
    pub(crate) fn clients(&self) -> &BTreeMap<ClientId, Client> {
        &self.clients
    }

    /// What was measured of the jobs' time, by job and device.
    pub(crate) fn times(&self) -> &BTreeMap<(JobId, DeviceUuid), Measured> {
        &self.times
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
    pub(crate) const fn queue_order(&self) -> Order {
        self.config.queue.order
    }

    /// Jobs that wait.
    #[must_use]
    pub fn waiting_jobs(&self) -> usize {
        self.queue.len()
    }
}
