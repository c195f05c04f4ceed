// SPDX-License-Identifier: Apache-2.0
//! The state and its only step: gives an event to the policy and carries out its actions, until no follow-up event is
//! left.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use partage_policy::{Adoption, DrainMark, EndedJob, Event, JobRecord, LedgerClient, Policy, Process};
use partage_protocol::units::{ClientId, DeviceUuid, JobId, SECOND_NS};
use tracing::{info, trace, warn};

use super::effect::Effect;
use super::held::Hold;
use super::reading::Reading;
use super::residence::Ways;
use super::user_database::UserDatabase;
use super::watches::Watches;
use crate::clock::Now;
use crate::config::Config;
use crate::dispatcher::kernel::Linux;
use crate::error::Error;
use crate::host::proc::{Processes, boot_id};
use crate::invariants::Invariants;
use crate::kind::Kind;
use crate::peer::ConnectionId;
use crate::state::clients::{Client, Clients};
use crate::state::devices::Devices;
use crate::state::directory::SocketDir;
use crate::state::drained;
use crate::state::ended::EndedJobs;
use crate::state::job_store::Store;
use crate::state::jobs::Jobs;
use crate::state::ledger::Ledger;
use crate::state::usage;
use crate::watch::audit_log::{AuditLog, Cause};
use crate::watch::events::EventLog;
use crate::watch::flood::Flood;
use crate::watch::other_brokers::OtherBrokers;
use crate::watch::users::Users;

/// Waiting requests' processes are looked at again after so long: a queue may be long, and events many.
const STOPPED_LOOK_NS: u64 = SECOND_NS / 10;

/// What the driver is made of; everything outside it.
pub struct Parts {
    /// Where state lies and what kind of broker this is.
    pub directory: SocketDir,
    /// The configuration.
    pub config: Config,
    /// Where it was read, and is to be read again; none for a private broker, which reads nothing.
    pub config_file: Option<std::path::PathBuf>,
    /// Processes.
    pub processes: Box<dyn Processes>,
    /// 32 unpredictable bytes.
    pub random: fn() -> [u8; 32],
    /// Sentences about what the broker inherited and could not shed.
    pub notes: Vec<String>,
    /// Nanoseconds without job, client or request after which the broker leaves.
    pub idle_exit_ns: Option<u64>,
}

/// The state.
pub struct StateDriver {
    pub(super) policy: Policy,
    pub(super) clients: Clients,
    pub(super) devices: Devices,
    pub(super) jobs: Jobs,
    pub(super) store: Store,
    pub(super) ended_jobs: EndedJobs,
    pub(super) directory: SocketDir,
    pub(super) config: Config,
    pub(super) reading: Reading,
    pub(super) processes: Box<dyn Processes>,
    pub(super) users: Users,
    pub(super) database: UserDatabase,
    pub(super) other_brokers: OtherBrokers,
    pub(super) audit: AuditLog,
    /// What the event under way changes numbers by.
    pub(super) cause: Cause,
    pub(super) random: fn() -> [u8; 32],
    pub(super) events: EventLog,
    pub(super) flood: Flood,
    /// What the broker inherited and could not shed, and what the system refuses it.
    pub(super) notes: Vec<String>,
    /// How many of them a run was told.
    pub(super) notes_told: usize,
    /// Connections on which a reply is owed.
    pub(super) tickets: BTreeSet<ConnectionId>,
    /// What waits until the devices are known.
    pub(super) held: VecDeque<Hold>,
    pub(super) started: Now,
    pub(super) effects: Vec<Effect>,
    pub(super) watches: Watches,
    pub(super) ways: Ways,
    pub(super) kernel: Linux,
    idle_exit_ns: Option<u64>,
    idle_since_ns: Option<u64>,
    /// Jobs whose processes are all stopped, as last told.
    stopped: BTreeSet<JobId>,
    /// Until then what was found of those that wait is new enough.
    stopped_until_ns: u64,
    pub(super) todo: VecDeque<Event>,
    /// Clients whose question waits until it is known which of the others have ended.
    pub(super) searches: VecDeque<(ClientId, Vec<ClientId>)>,
    invariants: Invariants,
}

/// What the policy is told of the configuration; jobs get numbers from `first_job` on.
fn policy_config(parts: &Parts, first_job: u64) -> partage_policy::Config {
    partage_policy::Config {
        is_private: parts.directory.kind() == Kind::Private,
        first_job,
        overcommit_millionths: parts.config.overcommit_millionths,
        compute_overcommit_millionths: parts.config.compute_overcommit_millionths,
        max_class: parts.config.class_rule(parts.directory.kind()),
        aliases_off: parts.config.aliases_off.clone(),
        time_aliases_off: parts.config.time_aliases_off.clone(),
        audit: partage_policy::Audit {
            uid: nix::unistd::geteuid().as_raw(),
            ..parts.config.audit
        },
        split: parts.config.split_rule(parts.directory.kind()),
        queue: parts.config.queue,
        rules: parts.config.rules.clone(),
    }
}

impl StateDriver {
    /// Opens the state that an earlier broker left and adopts it.
    ///
    /// # Errors
    /// [`Error`] when the state cannot be opened.
    pub fn start(parts: Parts, now: Now) -> Result<Self, Error> {
        let boot = boot_id();
        let (ledger, lines) = Ledger::open(&parts.directory.ledger_file(), boot)?;
        let (store, found) = Store::open(&parts.directory.jobs(), boot)?;
        if found.bad > 0 {
            warn!(count = found.bad, "job records that cannot be read were set aside");
        }
        let (ended_jobs, ended) = EndedJobs::open(&parts.directory.ended_file(), now.unix_ns)?;
        let [audit_file, users_file] = parts.directory.audit_files();
        let audit = AuditLog::open(&audit_file, &users_file).map_err(Error::file("open", &audit_file))?;
        let last_ended = ended.iter().map(|ended| ended.job.id).max().unwrap_or(0);
        ledger.reserve_job(JobId(found.last_job.max(last_ended)));
        let config = policy_config(&parts, ledger.next_job());
        let own = (parts.directory.kind() == Kind::Private).then(|| nix::unistd::geteuid().as_raw());
        let mut driver = Self {
            policy: Policy::new(config),
            clients: Clients::new(ledger),
            devices: Devices::default(),
            jobs: Jobs::default(),
            store,
            ended_jobs,
            directory: parts.directory,
            config: parts.config,
            reading: Reading::new(parts.config_file, now),
            processes: parts.processes,
            users: Users::default(),
            database: UserDatabase::default(),
            other_brokers: OtherBrokers::new(own),
            audit,
            cause: Cause::default(),
            random: parts.random,
            events: EventLog::default(),
            flood: Flood::default(),
            notes: parts.notes,
            notes_told: 0,
            tickets: BTreeSet::new(),
            held: VecDeque::new(),
            started: now,
            effects: Vec::new(),
            watches: Watches::default(),
            ways: Ways::default(),
            kernel: Linux::here(),
            idle_exit_ns: parts.idle_exit_ns,
            idle_since_ns: None,
            stopped: BTreeSet::new(),
            stopped_until_ns: 0,
            todo: VecDeque::new(),
            searches: VecDeque::new(),
            invariants: Invariants::default(),
        };
        driver.adopt(found.jobs, ended, &lines, now);
        driver.leave_word();
        Ok(driver)
    }

    fn adopt(
        &mut self,
        jobs: BTreeMap<JobId, JobRecord>,
        ended: Vec<EndedJob>,
        lines: &[(crate::state::ledger::LineIndex, crate::state::ledger::Entry)],
        now: Now,
    ) {
        let mut adoption = Adoption {
            next_job: self.clients.ledger.next_job(),
            ended,
            usage: usage::read(&self.directory.usage_file()),
            drained: self.read_drained(),
            ..Adoption::default()
        };
        for record in jobs.into_values() {
            self.jobs.save(record.clone());
            adoption.jobs.push(record);
        }
        for (line, entry) in lines {
            let client = Client {
                line: *line,
                pages: None,
                gift: None,
                process: entry.process,
                image: entry.image,
                uid: entry.uid,
                job: entry.job,
                devices: self.jobs.devices(entry.job),
                // It says so again when it is back.
                has_driver: false,
                connection: None,
                dying: None,
                doubt_since_ns: None,
                was_shown: false,
                is_parked: false,
            };
            self.clients.insert(entry.client, client);
            adoption.clients.push(LedgerClient {
                client: entry.client,
                job: entry.job,
                process: entry.process,
            });
        }
        if !adoption.jobs.is_empty() || !adoption.clients.is_empty() {
            info!(jobs = adoption.jobs.len(), clients = adoption.clients.len(), "adopting");
        }
        self.step(now, Event::Adopt(adoption));
        self.meet_users();
        for (_, entry) in lines {
            if !self.watch(entry.process) {
                self.process_gone(entry.process, now);
            }
        }
        self.recover_ways(now);
    }

    /// Devices that a broker before drained.
    fn read_drained(&mut self) -> BTreeMap<DeviceUuid, DrainMark> {
        let read = drained::read(&self.directory.drained_file());
        read.unwrap_or_else(|error| {
            warn!(%error, "which GPUs are drained cannot be read");
            self.note(format!("which GPUs are drained cannot be read: {error}"));
            BTreeMap::new()
        })
    }

    /// Tells the policy and does what it says, until there is nothing more to tell.
    pub(super) fn step(&mut self, now: Now, event: Event) {
        self.policy.set_clock(now.ns, now.unix_ns);
        self.cause = self.cause_of(&event);
        let is_fresh = now.ns < self.stopped_until_ns;
        if event.may_admit() && !is_fresh && self.policy.waiting_jobs() > 0 {
            let waiting: Vec<JobId> = self.policy.queue().collect();
            self.stopped_until_ns = now.ns.saturating_add(STOPPED_LOOK_NS);
            self.find_stopped(waiting);
        }
        self.todo.push_back(event);
        loop {
            while let Some(event) = self.todo.pop_front() {
                // Tokens are in these: not even a debug log has them.
                trace!(?event, "event");
                for command in self.policy.step(now.ns, event, &self.clients) {
                    trace!(?command, "command");
                    self.apply(command, now);
                }
            }
            // Last: what it finds is told in steps of its own.
            let Some((client, looked_at)) = self.searches.pop_front() else {
                return;
            };
            self.find_ended(&looked_at, now);
            self.todo.push_back(Event::Searched(client));
        }
    }

    /// Tells the policy which of these jobs are stopped, where that has changed.
    fn find_stopped(&mut self, jobs: Vec<JobId>) {
        let is_stopped = |process: &Process| {
            let stat = self.processes.stat(process.pid);
            stat.is_some_and(|stat| stat.id == *process && stat.is_stopped)
        };
        let mut stopped = self.stopped.clone();
        for job in jobs {
            let processes = self.policy.processes(job);
            match !processes.is_empty() && processes.iter().all(is_stopped) {
                true => stopped.insert(job),
                false => stopped.remove(&job),
            };
        }
        if stopped != self.stopped {
            self.stopped.clone_from(&stopped);
            self.todo.push_back(Event::Stopped(stopped));
        }
    }

    /// Tells the policy which live jobs are stopped, before a command is answered about them.
    pub(super) fn find_stopped_jobs(&mut self, now: Now) {
        let live: Vec<JobId> = self.policy.live().collect();
        self.stopped
            .retain(|job| live.contains(job) || self.policy.queue().any(|waiting| waiting == *job));
        self.find_stopped(live);
        if let Some(event) = self.todo.pop_front() {
            self.step(now, event);
        }
    }

    /// The system refuses the broker something: a sentence for commands that ask about the broker.
    pub fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// What the server is to do now.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Does what time brings.
    pub fn tick(&mut self, now: Now) {
        if self.policy.next_deadline().is_some_and(|deadline| now.ns >= deadline) {
            self.step(now, Event::Tick);
        }
        self.tick_devices(now);
        self.tick_ways(now);
        self.tick_idle(now);
        self.tick_periodic(now);
        self.say_unsaid(now);
        // Not in `step`: an answer that waits to be sent does not wait for this.
        let (policy, clients) = (&self.policy, &self.clients);
        self.invariants.check(now.ns, || policy.check(clients));
        let is_idle =
            self.clients.count() == 0 && self.jobs.is_empty() && self.tickets.is_empty() && self.held.is_empty();
        if !is_idle {
            self.idle_since_ns = None;
            return;
        }
        let since = *self.idle_since_ns.get_or_insert(now.ns);
        if let Some(patience) = self.idle_exit_ns
            && now.ns >= since + patience
        {
            info!("no job for a while: leaving");
            self.effects.push(Effect::Exit);
        }
    }

    /// When [`StateDriver::tick`] is due, at the latest.
    #[must_use]
    pub fn deadline_ns(&self) -> u64 {
        let idle = match (self.idle_since_ns, self.idle_exit_ns) {
            (Some(since), Some(patience)) => since + patience,
            _ => u64::MAX,
        };
        let policy = self.policy.next_deadline().unwrap_or(u64::MAX);
        let unsaid = self.flood.due_ns().unwrap_or(u64::MAX);
        let ways = self.ways_due_ns().min(self.idle_due_ns()).min(self.periodic_due_ns());
        policy.min(self.devices.next_look_ns()).min(idle).min(unsaid).min(ways)
    }
}
