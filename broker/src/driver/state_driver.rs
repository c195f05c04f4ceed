// SPDX-License-Identifier: Apache-2.0
//! The state and its only step: gives an event to the policy and carries out its actions, until no follow-up event is
//! left.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use partage_policy::{Adoption, EndedJob, Event, JobRecord, LedgerClient, Policy, Process};
use partage_protocol::message::{Hello, ToBroker};
use partage_protocol::units::{ClientId, JobId, SECOND_NS};
use tracing::{info, trace, warn};

use super::held::Hold;
use super::reading::Reading;
use super::user_database::UserDatabase;
use crate::clock::Now;
use crate::config::Config;
use crate::dispatcher::report::Report;
use crate::error::Error;
use crate::host::checkpoint::Outcome;
use crate::host::gpu::GpuEvent;
use crate::host::proc::{Processes, boot_id};
use crate::host::user_database::UserEvent;
use crate::invariants::Invariants;
use crate::kind::Kind;
use crate::peer::{ConnectionId, Peer};
use crate::residence::Engine;
use crate::site::effect::{Effect, WatchId};
use crate::site::{Site, Watches};
use crate::state::clients::{Client, Clients};
use crate::state::devices::Devices;
use crate::state::directory::SocketDir;
use crate::state::ended::EndedJobs;
use crate::state::job_store::Store;
use crate::state::jobs::Jobs;
use crate::state::ledger::Ledger;
use crate::state::pages::HandedBack;
use crate::state::usage;
use crate::state::{drained, sick};
use crate::watch::audit_log::{AuditLog, Cause};
use crate::watch::events::EventLog;
use crate::watch::flood::Flood;
use crate::watch::other_brokers::OtherBrokers;
use crate::watch::services::Services;
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
    /// What the broker's threads cannot do.
    pub services: Arc<Services>,
    /// The number of the first event.
    pub first_event: u64,
    /// Nanoseconds without job, client or request after which the broker leaves.
    pub idle_exit_ns: Option<u64>,
}

/// The state.
pub struct StateDriver {
    pub(super) site: Site,
    pub(super) engine: Engine,
    pub(super) store: Store,
    pub(super) ended_jobs: EndedJobs,
    pub(super) reading: Reading,
    pub(super) database: UserDatabase,
    pub(super) other_brokers: OtherBrokers,
    pub(super) audit: AuditLog,
    /// What the event under way changes numbers by.
    pub(super) cause: Cause,
    pub(super) random: fn() -> [u8; 32],
    /// What the broker inherited and could not shed, and what the system refuses it.
    pub(super) notes: Vec<String>,
    /// How many of them a run was told.
    pub(super) notes_told: usize,
    /// What the broker's threads cannot do.
    pub(super) services: Arc<Services>,
    /// What waits until the devices are known.
    pub(super) held: VecDeque<Hold>,
    pub(super) started: Now,
    idle_exit_ns: Option<u64>,
    idle_since_ns: Option<u64>,
    /// Jobs whose processes are all stopped, as last told.
    pub(super) stopped: BTreeSet<JobId>,
    /// Until then what was found of those that wait is new enough.
    stopped_until_ns: u64,
    /// Clients whose question waits until it is known which of the others have ended.
    pub(super) searches: VecDeque<(ClientId, Vec<ClientId>)>,
    invariants: Invariants,
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
        let config = parts.config.for_policy(parts.directory.kind(), ledger.next_job());
        let own = (parts.directory.kind() == Kind::Private).then(|| nix::unistd::geteuid().as_raw());
        let site = Site {
            now,
            policy: Policy::new(config),
            clients: Clients::new(ledger),
            devices: Devices::default(),
            jobs: Jobs::default(),
            directory: parts.directory,
            config: parts.config,
            processes: parts.processes,
            users: Users::default(),
            events: EventLog::default(),
            next_event: parts.first_event,
            flood: Flood::default(),
            tickets: BTreeSet::new(),
            watches: Watches::default(),
            effects: Vec::new(),
            todo: VecDeque::new(),
        };
        let mut driver = Self {
            site,
            engine: Engine::new(),
            store,
            ended_jobs,
            reading: Reading::new(parts.config_file, now),
            database: UserDatabase::default(),
            other_brokers: OtherBrokers::new(own),
            audit,
            cause: Cause::default(),
            random: parts.random,
            notes: parts.notes,
            notes_told: 0,
            services: parts.services,
            held: VecDeque::new(),
            started: now,
            idle_exit_ns: parts.idle_exit_ns,
            idle_since_ns: None,
            stopped: BTreeSet::new(),
            stopped_until_ns: 0,
            searches: VecDeque::new(),
            invariants: Invariants::default(),
        };
        driver.adopt(found.jobs, ended, &lines);
        driver.leave_word();
        Ok(driver)
    }

    fn adopt(
        &mut self,
        jobs: BTreeMap<JobId, JobRecord>,
        ended: Vec<EndedJob>,
        lines: &[(crate::state::ledger::LineIndex, crate::state::ledger::Entry)],
    ) {
        let mut adoption = Adoption {
            next_job: self.site.clients.ledger.next_job(),
            ended,
            usage: usage::read(&self.site.directory.usage_file()),
            drained: read_or_note(
                "drained",
                drained::read(&self.site.directory.drained_file()),
                &mut self.notes,
            ),
            sick: read_or_note("sick", sick::read(&self.site.directory.sick_file()), &mut self.notes),
            ..Adoption::default()
        };
        for record in jobs.into_values() {
            self.site.jobs.save(record.clone());
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
                devices: self.site.jobs.devices(entry.job),
                // It says so again when it is back.
                has_driver: false,
                connection: None,
                dying: None,
                doubt_since_ns: None,
                was_shown: false,
                is_parked: false,
            };
            self.site.clients.insert(entry.client, client);
            adoption.clients.push(LedgerClient {
                client: entry.client,
                job: entry.job,
                process: entry.process,
            });
        }
        if !adoption.jobs.is_empty() || !adoption.clients.is_empty() {
            info!(jobs = adoption.jobs.len(), clients = adoption.clients.len(), "adopting");
        }
        self.step(Event::Adopt(adoption));
        self.meet_users();
        for (_, entry) in lines {
            if !self.site.watch(entry.process) {
                self.process_gone(entry.process);
            }
        }
        self.settle();
        self.engine.recover_ways(&mut self.site);
        self.settle();
    }

    /// Tells the policy, and [settles](Self::settle).
    fn step(&mut self, event: Event) {
        self.site.tell(event);
        self.settle();
    }

    /// Does what the policy says, until there is nothing more to tell it. Nothing that is done meanwhile calls this: it
    /// tells the site what it found.
    pub(super) fn settle(&mut self) {
        loop {
            match self.site.todo.pop_front() {
                Some(event) => self.decide(event),
                None if self.engine.is_ready() => {}
                None => {
                    // Last: what it finds is heard before the question that asked for it.
                    let Some((client, looked_at)) = self.searches.pop_front() else {
                        return;
                    };
                    self.find_ended(&looked_at);
                    self.site.tell(Event::Searched(client));
                }
            }
            // What the policy told to come back claims its room before any other event.
            self.engine.go_on(&mut self.site);
        }
    }

    fn decide(&mut self, event: Event) {
        self.site.policy.set_clock(self.site.now.ns, self.site.now.unix_ns);
        let is_fresh = self.site.now.ns < self.stopped_until_ns;
        if event.may_admit() && !is_fresh && self.site.policy.waiting_jobs() > 0 {
            let waiting: Vec<JobId> = self.site.policy.queue().collect();
            self.stopped_until_ns = self.site.now.ns.saturating_add(STOPPED_LOOK_NS);
            if let Some(stopped) = self.find_stopped(waiting) {
                self.carry_out(stopped);
            }
        }
        self.carry_out(event);
    }

    fn carry_out(&mut self, event: Event) {
        self.cause = self.cause_of(&event);
        // Tokens are in these: not even a debug log has them.
        trace!(?event, "event");
        for action in self.site.policy.step(self.site.now.ns, event, &self.site.clients) {
            trace!(?action, "action");
            self.apply(action);
        }
    }

    /// What the policy is to hear of these jobs, where another set of jobs is stopped than before.
    fn find_stopped(&mut self, jobs: Vec<JobId>) -> Option<Event> {
        let is_stopped = |process: &Process| {
            let stat = self.site.processes.stat(process.pid);
            stat.is_some_and(|stat| stat.id == *process && stat.is_stopped)
        };
        let mut stopped = self.stopped.clone();
        for job in jobs {
            let processes = self.site.policy.processes(job);
            match !processes.is_empty() && processes.iter().all(is_stopped) {
                true => stopped.insert(job),
                false => stopped.remove(&job),
            };
        }
        (stopped != self.stopped).then(|| {
            self.stopped.clone_from(&stopped);
            Event::Stopped(stopped)
        })
    }

    /// A connection's first binary packet, and the pages that came with it.
    pub fn hello(&mut self, peer: Peer, hello: Hello, pages: Option<HandedBack>, now: Now) {
        self.site.now = now;
        self.greet(peer, hello, pages);
        self.settle();
    }

    /// A packet of an attached client.
    ///
    /// # Errors
    /// What the client did wrong; close its connection.
    pub fn message(&mut self, connection: ConnectionId, message: ToBroker, now: Now) -> Result<(), &'static str> {
        self.site.now = now;
        let heard = self.hear(connection, message);
        self.settle();
        heard
    }

    /// A whole request came in.
    pub fn request(&mut self, peer: Peer, document: &[u8], now: Now) {
        self.site.now = now;
        self.serve(peer, document);
        self.settle();
    }

    /// A connection closed, by either side.
    pub fn closed(&mut self, connection: ConnectionId, now: Now) {
        self.site.now = now;
        self.lose(connection);
        self.settle();
    }

    /// A watched process ended.
    pub fn ended(&mut self, id: WatchId, now: Now) {
        self.site.now = now;
        self.take_end(id);
        self.settle();
    }

    /// The devices' side told something.
    pub fn gpu(&mut self, event: GpuEvent, now: Now) {
        self.site.now = now;
        self.see(event);
        self.settle();
    }

    /// The dispatcher reported something.
    pub fn report(&mut self, report: Report, now: Now) {
        self.site.now = now;
        self.take_report(report);
        self.settle();
    }

    /// The user database answered, or did not.
    pub fn user_event(&mut self, event: UserEvent, now: Now) {
        self.site.now = now;
        self.hear_of_users(event);
        self.settle();
    }

    /// What became of a question about a job's process.
    pub fn helper_answered(&mut self, job: JobId, outcome: Outcome, now: Now) {
        self.site.now = now;
        self.engine.helper_answered(&mut self.site, job, outcome);
        self.settle();
    }

    /// The system refuses the broker something: a sentence for commands that ask about the broker.
    pub fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// What the server is to do now.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.site.effects)
    }

    /// Does what time brings.
    pub fn tick(&mut self, now: Now) {
        self.site.now = now;
        let due_ns = self.site.policy.next_deadline();
        if due_ns.is_some_and(|due_ns| now.ns >= due_ns) {
            self.step(Event::Tick);
        }
        self.tick_devices();
        self.engine.tick(&mut self.site);
        self.settle();
        self.site.say_unsaid();
        // Not in `step`: an answer that waits to be sent does not wait for this.
        let (policy, clients) = (&self.site.policy, &self.site.clients);
        self.invariants.check(now.ns, || policy.check(clients));
        let is_idle = self.site.clients.count() == 0
            && self.site.jobs.is_empty()
            && self.site.tickets.is_empty()
            && self.held.is_empty();
        if !is_idle {
            self.idle_since_ns = None;
            return;
        }
        let since = *self.idle_since_ns.get_or_insert(now.ns);
        if let Some(patience) = self.idle_exit_ns
            && now.ns >= since + patience
        {
            info!("no job for a while: leaving");
            self.site.effects.push(Effect::Exit);
        }
    }

    /// When [`StateDriver::tick`] is due, at the latest.
    #[must_use]
    pub fn deadline_ns(&self) -> u64 {
        let idle = match (self.idle_since_ns, self.idle_exit_ns) {
            (Some(since), Some(patience)) => since + patience,
            _ => u64::MAX,
        };
        let policy = self.site.policy.next_deadline().unwrap_or(u64::MAX);
        let unsaid = self.site.flood.due_ns().unwrap_or(u64::MAX);
        let ways = self.engine.due_ns();
        policy
            .min(self.site.devices.next_look_ns())
            .min(idle)
            .min(unsaid)
            .min(ways)
    }
}

/// Which GPUs the broker before marked as `what`; none, and a note, where that cannot be read.
fn read_or_note<T: Default>(what: &str, read: std::io::Result<T>, notes: &mut Vec<String>) -> T {
    read.unwrap_or_else(|error| {
        warn!(%error, what, "which GPUs are marked so cannot be read");
        notes.push(format!("which GPUs are {what} cannot be read: {error}"));
        T::default()
    })
}
