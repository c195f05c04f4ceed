// SPDX-License-Identifier: Apache-2.0
//! The state that the policy owns, and how words and time reach it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use partage_protocol::admin::Reply;
use partage_protocol::aliases::Family;
use partage_protocol::job_ledger::{Pages, Words};
use partage_protocol::reservation::Word;
use partage_protocol::terms::Class;
use partage_protocol::time_aliases::TimeVariable;
use partage_protocol::units::{ClientId, DeviceUuid, JobId};

use crate::audit::Audit;
use crate::command::{Action, Command};
use crate::device::Device;
use crate::event::{DriverState, Event, Ticket};
use crate::job::{Client, Job, Presence};
use crate::measured_time::Measured;
use crate::overhead::{Gauge, Measuring, Reading};

/// Where clients' reservation words are: the broker's ledger file and pages, or a model.
pub trait Machine {
    /// The word type.
    type Word: Word;
    /// The words of a client on a slot; `None` only for a client without a ledger row.
    fn words(&self, client: ClientId, slot: usize) -> Option<Words<'_, Self::Word>>;
    /// What the client's page says of a slot now; `None` while its pages are not reachable.
    fn reading(&self, client: ClientId, slot: usize) -> Option<Reading>;
}

/// One slot of a machine, as a job's ledger wants it.
pub(crate) struct OnSlot<'a, M> {
    pub machine: &'a M,
    pub slot: usize,
}

impl<M: Machine> Pages for OnSlot<'_, M> {
    type Word = M::Word;
    fn words(&self, client: ClientId) -> Option<Words<'_, M::Word>> {
        self.machine.words(client, self.slot)
    }
}

/// What does not change while the broker runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Serves one user: its promises hold among that user's jobs.
    pub is_private: bool,
    /// The next job's number, where no adoption says more; 1 on a fresh host.
    pub first_job: u64,
    /// How much of what jobs can share on a device may be promised, in millionths; [`Config::ALL_ONCE`] and more.
    pub overcommit_millionths: u64,
    /// How much of a device's time may be promised, in millionths; [`Config::ALL_ONCE`] and more.
    pub compute_overcommit_millionths: u64,
    /// The highest class that everybody may ask for; administrators may ask for any.
    pub max_class: Class,
    /// Other tools' memory variables that count for nothing.
    pub aliases_off: Vec<Family>,
    /// Their variables about time that count for nothing.
    pub time_aliases_off: Vec<TimeVariable>,
    /// What is done about clients that contradict NVML, and about GPU processes of no job.
    pub audit: Audit,
}

impl Config {
    /// Promises within what there is.
    pub const ALL_ONCE: u64 = 1_000_000;

    /// What may be promised on a device of `usable` bytes.
    pub(crate) fn promisable(&self, usable: u64) -> u64 {
        let all = u128::from(usable) * u128::from(self.overcommit_millionths.max(Self::ALL_ONCE));
        u64::try_from(all / u128::from(Self::ALL_ONCE)).unwrap_or(u64::MAX)
    }

    pub(crate) fn is_on(&self, family: Family) -> bool {
        !self.aliases_off.contains(&family)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            is_private: true,
            first_job: 1,
            overcommit_millionths: Self::ALL_ONCE,
            compute_overcommit_millionths: Self::ALL_ONCE,
            max_class: Class::Realtime,
            aliases_off: Vec::new(),
            time_aliases_off: Vec::new(),
            audit: Audit::default(),
        }
    }
}

/// All jobs, devices and clients, and every decision about them.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(crate) config: Config,
    pub(crate) driver: DriverState,
    pub(crate) devices: BTreeMap<DeviceUuid, Device>,
    pub(crate) jobs: BTreeMap<JobId, Job>,
    pub(crate) queue: VecDeque<JobId>,
    pub(crate) clients: BTreeMap<ClientId, Client>,
    pub(crate) next_job: u64,
    /// Clients of the broker before that have not come back.
    pub(crate) awaited: BTreeSet<ClientId>,
    /// When they are no longer waited for.
    pub(crate) adoption_until_ns: Option<u64>,
    /// What is known of the clients' overhead, by client and slot.
    pub(crate) gauges: BTreeMap<(ClientId, usize), Gauge>,
    /// Clients that wait for a measurement.
    pub(crate) measures: Vec<Measuring>,
    /// What was measured of the jobs' time, by job and device.
    pub(crate) times: BTreeMap<(JobId, DeviceUuid), Measured>,
    /// When something is due; kept so that asks need not look at every job.
    pub(crate) due_ns: Option<u64>,
    /// Unix time less the monotonic time, in nanoseconds and modulo 2^64; see [`Policy::set_clock`].
    pub(crate) unix_offset_ns: u64,
    /// Filled during a step.
    pub(crate) out: Vec<Command>,
}

impl Policy {
    /// A policy that knows no device, job or client yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let next_job = config.first_job.max(1);
        Self {
            config,
            driver: DriverState::Missing("not looked for yet".into()),
            devices: BTreeMap::new(),
            jobs: BTreeMap::new(),
            queue: VecDeque::new(),
            clients: BTreeMap::new(),
            next_job,
            awaited: BTreeSet::new(),
            adoption_until_ns: None,
            gauges: BTreeMap::new(),
            measures: Vec::new(),
            times: BTreeMap::new(),
            due_ns: None,
            unix_offset_ns: 0,
            out: Vec::new(),
        }
    }

    /// Says what Unix time it is at `now_ns`: what is remembered for people has the date. Without it, the epoch.
    pub fn set_clock(&mut self, now_ns: u64, unix_ns: u64) {
        self.unix_offset_ns = unix_ns.wrapping_sub(now_ns);
    }

    pub(crate) fn unix_ns(&self, now_ns: u64) -> u64 {
        now_ns.wrapping_add(self.unix_offset_ns)
    }

    /// Takes one event at a time `now_ns` (monotonic) that never goes back; answers what to do, in order. Grants are
    /// already written through `machine` when it returns.
    #[must_use]
    pub fn step<M: Machine>(&mut self, now_ns: u64, event: Event, machine: &M) -> Vec<Command> {
        let is_due = self.due_ns.is_some_and(|due| now_ns >= due);
        if is_due {
            self.expire(machine, now_ns);
        }
        let may_admit = is_due || event.may_admit();
        match event {
            // The frequent ones first; they change nobody's room.
            Event::Ask {
                client,
                slot,
                wanted,
                request,
                sequence,
            } => {
                self.ask((client, slot, sequence), (wanted, request), machine, now_ns);
                return std::mem::take(&mut self.out);
            }
            Event::Usage { client, slot, sequence } => {
                self.usage(client, slot, sequence, machine);
                return std::mem::take(&mut self.out);
            }
            Event::Measure {
                client,
                slot,
                stage,
                sequence,
            } => {
                self.measure_client((client, slot, sequence), stage, machine, now_ns);
                self.due_ns = self.next_due();
                return std::mem::take(&mut self.out);
            }
            Event::Time(times) => {
                self.take_times(times, now_ns);
                return std::mem::take(&mut self.out);
            }
            Event::Asking(device) => {
                self.asking(device, machine);
                return std::mem::take(&mut self.out);
            }
            Event::Adopt(adoption) => self.adopt(adoption, machine, now_ns),
            Event::Devices { driver, found } => self.see_devices(driver, found, machine, now_ns),
            Event::DeviceSlow(device) => {
                if let Some(known) = self.devices.get_mut(&device) {
                    known.is_slow = true;
                }
            }
            Event::DeviceLost { device, why } => self.lose_device(device, why, machine, now_ns),
            Event::Measured(measured) => self.measure(measured, machine, now_ns),
            Event::Run(run) => self.run(*run, machine, now_ns),
            Event::TicketGone(ticket) => self.ticket_gone(ticket),
            Event::Set {
                ticket,
                caller,
                target,
                change,
            } => {
                self.set((ticket, &caller), &target, &change, machine, now_ns);
            }
            Event::Stop {
                ticket,
                caller,
                target,
                grace_ns,
            } => {
                self.stop((ticket, &caller), &target, grace_ns, machine, now_ns);
            }
            Event::Attach(attaching) => self.attach(*attaching, machine, now_ns),
            Event::Reattach {
                client,
                process,
                are_pages_lost,
            } => {
                self.reattach(client, process, are_pages_lost, machine);
            }
            Event::ClientAway(client) => self.set_presence(client, Presence::Away),
            Event::ClientDying(client) => self.set_presence(client, Presence::Dying),
            Event::ClientGone(client) => self.client_gone(client, machine, now_ns),
            Event::Exited { process, code } => {
                let is_first = |job: &&mut Job| job.record.first == Some(process);
                let mut ended = Vec::new();
                for job in self.jobs.values_mut().filter(is_first) {
                    job.exit_code = Some(code);
                    ended.extend(job.end.is_some().then(|| job.id()));
                }
                // The kernel may tell the code after the end was written down.
                ended.into_iter().for_each(|job| self.remember(job));
            }
            Event::ProcessGone(process) => {
                let is_first = |job: &&mut Job| job.record.first == Some(process);
                let gone: Vec<JobId> = self
                    .jobs
                    .values_mut()
                    .filter(is_first)
                    .map(|job| {
                        job.is_first_alive = false;
                        job.id()
                    })
                    .collect();
                for job in gone {
                    self.look_after(job, machine, now_ns);
                }
            }
            Event::Notice {
                client,
                what,
                slot,
                value,
            } => self.notice(client, (what, slot, value), machine, now_ns),
            Event::Stopped(jobs) => {
                for (id, job) in &mut self.jobs {
                    job.is_stopped = jobs.contains(id);
                }
            }
            Event::Tick => {}
        }
        if may_admit {
            self.serve_queue(machine, now_ns);
        }
        self.due_ns = self.next_due();
        std::mem::take(&mut self.out)
    }

    /// When the policy wants a [`Event::Tick`] at the latest, if nothing else happens; `None` for never.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.due_ns
    }

    /// The processes a job is known by: its first while it lives, then its clients.
    #[must_use]
    pub fn processes(&self, job: JobId) -> Vec<crate::job::Process> {
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
        !self.awaited.is_empty()
    }

    fn set_presence(&mut self, client: ClientId, presence: Presence) {
        if let Some(known) = self.clients.get_mut(&client) {
            // A dying client's connection closes too; it stays dying.
            if known.presence != Presence::Dying {
                known.presence = presence;
            }
        }
    }

    pub(crate) fn command(&mut self, action: Action, reason: &str) {
        self.out.push(Command {
            action,
            reason: reason.to_owned(),
        });
    }

    pub(crate) fn reply(&mut self, ticket: Ticket, reply: Reply, reason: &str) {
        self.command(
            Action::Reply {
                ticket,
                reply: Box::new(reply),
            },
            reason,
        );
    }

    pub(crate) fn publish(&mut self, kind: &'static str, job: Option<JobId>, pid: Option<u32>, text: String) {
        let reason = text.clone();
        self.command(Action::Publish { kind, job, pid, text }, &reason);
    }
}
