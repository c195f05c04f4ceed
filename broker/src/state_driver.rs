// SPDX-License-Identifier: Apache-2.0
//! The single owner of the broker's state: what happens comes in, the policy decides, effects go out.
//!
//! ```text
//!   server (sockets, epoll) ──► hello / message / request / closed / ended / gpu / tick
//!                                   │ Event
//!                                   ▼
//!                              Policy::step ──► Commands ──► words, records, signals (done here)
//!                                   ▲                   └──► Effects (done by the server: packets, watches, exit)
//!                                   └── facts that carrying out a command brought to light
//! ```
//! Nothing here waits. `attach.rs`, `deaths.rs`, `devices.rs`, `requests.rs` and `signals.rs` hold the parts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use partage_policy::{Action, Adoption, Command, EndedJob, Event, JobRecord, LedgerClient, Policy, Process};
use partage_protocol::admin::{EventView, Reply};
use partage_protocol::message::{self, Answer, MAX_DEVICES, Refused, Welcome};
use partage_protocol::units::{ClientId, JobId, SECOND_NS};
use tracing::{debug, error, info, trace, warn};
use zerocopy::IntoBytes;

use crate::attach::Hold;
use crate::clients::{Client, Clients};
use crate::config::Config;
use crate::connection::{ConnectionId, Packet};
use crate::devices::Devices;
use crate::directory::{Kind, SocketDir};
use crate::ended::EndedJobs;
use crate::error::Error;
use crate::events::{EventLog, Recorded};
use crate::flood::{FREE, Flood, is_always_said};
use crate::host::pidfd::PidFd;
use crate::host::proc::{Processes, boot_id};
use crate::invariants::Invariants;
use crate::ledger::Ledger;
use crate::records::Store;
use crate::timekeeper::{Joined, Message};
use crate::users::Users;

/// Waiting requests' processes are looked at again after so long: a queue may be long, and events many.
const STOPPED_NS: u64 = SECOND_NS / 10;

/// The time of one turn of the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Monotonic, in nanoseconds.
    pub ns: u64,
    /// Since 1970, in nanoseconds.
    pub unix_ns: u64,
}

/// The number of a watched process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub u64);

/// Who is at the other end of a connection.
#[derive(Debug)]
pub struct Peer {
    /// Which connection.
    pub connection: ConnectionId,
    /// Its pid, 0 when it is not visible here.
    pub pid: u32,
    /// Its uid.
    pub uid: u32,
    /// It came over `admin.sock`.
    pub is_admin: bool,
    /// The process; none when it is gone.
    pub pidfd: Option<PidFd>,
}

/// What the server is to do.
#[derive(Debug)]
pub enum Effect {
    /// Send a packet, with descriptors.
    Send {
        /// Where.
        to: ConnectionId,
        /// What.
        packet: Vec<u8>,
        /// With it.
        descriptors: Vec<OwnedFd>,
    },
    /// Send a document; close afterwards if it is the last.
    Document {
        /// Where.
        to: ConnectionId,
        /// What.
        reply: Box<Reply>,
        /// Nothing follows.
        is_last: bool,
    },
    /// Send packets that others may be sent too.
    Packets {
        /// Where.
        to: ConnectionId,
        /// What.
        packets: Vec<Packet>,
    },
    /// Send every new event there from now on.
    Follow(ConnectionId),
    /// Close when everything is sent.
    Close(ConnectionId),
    /// Say when the process behind [`StateDriver::watched`] ends.
    Watch(WatchId),
    /// An event for those who follow.
    Publish(Box<Recorded>),
    /// Something for the timekeeper.
    Time(Message),
    /// Leave.
    Exit,
}

/// What the driver is made of; everything outside it.
pub struct Parts {
    /// Where state lies and whom the broker serves.
    pub directory: SocketDir,
    /// The configuration.
    pub config: Config,
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
    pub(crate) policy: Policy,
    pub(crate) clients: Clients,
    pub(crate) devices: Devices,
    pub(crate) jobs: BTreeMap<JobId, JobRecord>,
    /// First processes of live jobs; of nested `run`s in one process the newest.
    pub(crate) first: BTreeMap<Process, JobId>,
    /// The terminals that jobs were started on: their ends are told there when nothing of them is left to ask.
    pub(crate) terminals: BTreeMap<JobId, u64>,
    pub(crate) store: Store,
    pub(crate) ended_jobs: EndedJobs,
    pub(crate) directory: SocketDir,
    pub(crate) config: Config,
    pub(crate) processes: Box<dyn Processes>,
    pub(crate) users: Users,
    pub(crate) random: fn() -> [u8; 32],
    pub(crate) events: EventLog,
    flood: Flood,
    /// What the broker inherited and could not shed, and what the system refuses it.
    pub(crate) notes: Vec<String>,
    /// Connections on which a reply is owed.
    pub(crate) tickets: BTreeSet<ConnectionId>,
    /// What waits until the devices are known.
    pub(crate) held: VecDeque<Hold>,
    pub(crate) started: Now,
    pub(crate) effects: Vec<Effect>,
    watches: BTreeMap<WatchId, (Process, PidFd)>,
    watch_of: BTreeMap<Process, WatchId>,
    last_watch: u64,
    idle_exit_ns: Option<u64>,
    idle_since_ns: Option<u64>,
    /// When the timekeeper's view is wanted again, and whether the last one held anything.
    pub(crate) times_at_ns: u64,
    pub(crate) has_times: bool,
    /// Jobs whose processes are all stopped, as last told.
    stopped: BTreeSet<JobId>,
    /// Until then what was found of those that wait is new enough.
    stopped_until_ns: u64,
    todo: VecDeque<Event>,
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
        let last_ended = ended.iter().map(|ended| ended.job.id).max().unwrap_or(0);
        ledger.reserve_job(JobId(found.last_job.max(last_ended)));
        let config = partage_policy::Config {
            is_private: parts.directory.kind() == Kind::Private,
            first_job: ledger.next_job(),
            overcommit_millionths: parts.config.overcommit_millionths,
            compute_overcommit_millionths: parts.config.compute_overcommit_millionths,
            max_class: parts.config.class_rule(parts.directory.kind()),
            aliases_off: parts.config.aliases_off.clone(),
            time_aliases_off: parts.config.time_aliases_off.clone(),
            audit: partage_policy::Audit {
                uid: nix::unistd::geteuid().as_raw(),
                ..parts.config.audit
            },
        };
        let mut driver = Self {
            policy: Policy::new(config),
            clients: Clients::new(ledger),
            devices: Devices::default(),
            jobs: BTreeMap::new(),
            first: BTreeMap::new(),
            terminals: BTreeMap::new(),
            store,
            ended_jobs,
            directory: parts.directory,
            config: parts.config,
            processes: parts.processes,
            users: Users::default(),
            random: parts.random,
            events: EventLog::default(),
            flood: Flood::default(),
            notes: parts.notes,
            tickets: BTreeSet::new(),
            held: VecDeque::new(),
            started: now,
            effects: Vec::new(),
            watches: BTreeMap::new(),
            watch_of: BTreeMap::new(),
            last_watch: 0,
            idle_exit_ns: parts.idle_exit_ns,
            idle_since_ns: None,
            times_at_ns: 0,
            has_times: false,
            stopped: BTreeSet::new(),
            stopped_until_ns: 0,
            todo: VecDeque::new(),
            invariants: Invariants::default(),
        };
        driver.adopt(found.jobs, ended, &lines, now);
        Ok(driver)
    }

    fn adopt(
        &mut self,
        jobs: BTreeMap<JobId, JobRecord>,
        ended: Vec<EndedJob>,
        lines: &[(crate::ledger::LineIndex, crate::ledger::Entry)],
        now: Now,
    ) {
        let mut adoption = Adoption {
            next_job: self.clients.ledger.next_job(),
            ended,
            ..Adoption::default()
        };
        for (id, record) in jobs {
            if let Some(first) = record.first {
                self.first.insert(first, id);
            }
            self.jobs.insert(id, record.clone());
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
                devices: self.devices_of(entry.job),
                connection: None,
                dying: None,
                doubt_since_ns: None,
                was_shown: false,
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
        for (_, entry) in lines {
            if !self.watch(entry.process) {
                self.process_gone(entry.process, now);
            }
        }
    }

    pub(crate) fn devices_of(&self, job: JobId) -> Vec<partage_protocol::units::DeviceUuid> {
        let placements = self.jobs.get(&job).map_or(&[][..], |record| &record.devices);
        placements.iter().map(|placement| placement.device).collect()
    }

    /// Tells the policy and does what it says, until there is nothing more to tell.
    pub(crate) fn step(&mut self, now: Now, event: Event) {
        self.policy.set_clock(now.ns, now.unix_ns);
        let is_fresh = now.ns < self.stopped_until_ns;
        if event.may_admit() && !is_fresh && self.policy.waiting_jobs() > 0 {
            let waiting: Vec<JobId> = self.policy.queue().collect();
            self.stopped_until_ns = now.ns.saturating_add(STOPPED_NS);
            self.find_stopped(waiting);
        }
        self.todo.push_back(event);
        while let Some(event) = self.todo.pop_front() {
            // Tokens are in these: not even a debug log has them.
            trace!(?event, "event");
            for command in self.policy.step(now.ns, event, &self.clients) {
                trace!(?command, "command");
                self.apply(command, now);
            }
        }
        let (policy, clients) = (&self.policy, &self.clients);
        self.invariants.check(now.ns, || policy.check(clients));
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

    /// Looks which live jobs are stopped, for somebody who wants to know.
    pub(crate) fn look_who_is_stopped(&mut self, now: Now) {
        let live: Vec<JobId> = self.policy.live().collect();
        self.stopped
            .retain(|job| live.contains(job) || self.policy.queue().any(|waiting| waiting == *job));
        self.find_stopped(live);
        if let Some(event) = self.todo.pop_front() {
            self.step(now, event);
        }
    }

    fn apply(&mut self, command: Command, now: Now) {
        match command.action {
            Action::Reply { ticket, reply } => {
                let is_last = !matches!(*reply, Reply::Waiting(_));
                let to = ConnectionId(ticket.0);
                if is_last {
                    self.tickets.remove(&to);
                }
                self.effects.push(Effect::Document { to, reply, is_last });
            }
            Action::Welcome {
                client,
                job,
                flags,
                devices,
            } => self.welcome(client, job, flags, &devices),
            Action::Refuse { client, code, text } => self.refuse_client(client, code, &text),
            Action::ShowPage {
                client,
                clients_in_job,
                limits,
            } => {
                let epoch = self.clients.ledger.epoch();
                if let Some(client) = self.clients.get(client)
                    && let Some(pages) = &client.pages
                {
                    pages.show(client.job, epoch, clients_in_job, &limits);
                }
            }
            Action::ShowOverheads { client, overheads } => {
                if let Some(pages) = self.clients.pages(client) {
                    pages.show_overheads(&overheads);
                }
            }
            Action::Look(device) => self.devices.look_at(device),
            Action::Answer {
                client,
                sequence,
                slot,
                verdict,
                granted,
                limit,
                job_used,
                physical_free,
            } => {
                let answer = Answer {
                    header: Answer::header(sequence),
                    verdict,
                    slot,
                    granted,
                    limit,
                    job_used,
                    physical_free,
                };
                self.send(client, answer.as_bytes().to_vec(), Vec::new());
            }
            Action::Watch { job: _, process } => {
                if !self.watch(process) {
                    self.todo.push_back(Event::ProcessGone(process));
                }
            }
            Action::SaveJob(record) => self.save_job(*record),
            Action::ShowTerms { job, devices, terms } => {
                self.effects.push(Effect::Time(Message::Terms { job, devices, terms }));
            }
            Action::ShowUnmanaged { device, load } => {
                self.effects.push(Effect::Time(Message::Unmanaged(device, load)));
            }
            Action::CorrectTime {
                device,
                charges,
                over_ns,
            } => self.effects.push(Effect::Time(Message::Correct {
                device,
                charges,
                over_ns,
            })),
            Action::ForgetJob(job) => self.forget_job(job),
            Action::RememberJob(ended) => {
                if let Err(error) = self.ended_jobs.add(&ended) {
                    error!(%error, job = ended.job.id, "an ended job cannot be written down");
                }
            }
            Action::ForgetClient(client) => self.forget_client(client),
            Action::SignalJob { job, signal } => self.signal_job(job, signal),
            Action::KillProcess(process) => self.kill_process(process, now),
            Action::KillUnmanaged { job, pid } => self.kill_unmanaged(job, pid),
            Action::Tell { job, text } => self.tell(job, &text),
            Action::Publish { kind, job, pid, text } => self.publish(now, kind, job, pid, text),
        }
    }

    fn save_job(&mut self, record: JobRecord) {
        let id = JobId(record.id);
        self.clients.ledger.reserve_job(id);
        if let Err(error) = self.store.save(&record) {
            // The job runs all the same; only a broker's death would forget it.
            error!(%error, job = %id, "job record cannot be written");
        }
        if let Some(first) = record.first {
            self.first.insert(first, id);
            let stat = self.processes.stat(first.pid).filter(|stat| stat.id == first);
            if let Some(stat) = stat.filter(|stat| stat.terminal != 0) {
                self.terminals.insert(id, stat.terminal);
            }
        }
        self.jobs.insert(id, record);
    }

    fn forget_job(&mut self, job: JobId) {
        self.store.remove(job);
        self.terminals.remove(&job);
        self.effects.push(Effect::Time(Message::JobGone(job)));
        if let Some(record) = self.jobs.remove(&job)
            && let Some(first) = record.first
            && self.first.get(&first) == Some(&job)
        {
            self.first.remove(&first);
            self.unwatch(first);
        }
    }

    pub(crate) fn forget_client(&mut self, id: ClientId) {
        if let Some(client) = self.clients.remove(id) {
            self.effects.push(Effect::Time(Message::Left(id)));
            self.unwatch(client.process);
            if let Some(connection) = client.connection {
                self.effects.push(Effect::Close(connection));
            }
        }
    }

    fn welcome(&mut self, id: ClientId, job: JobId, flags: u32, devices: &[message::DeviceInfo]) {
        let uuids = self.devices_of(job);
        let Some(client) = self.clients.get_mut(id) else { return };
        client.job = job;
        client.devices = uuids;
        let (line, gift) = (client.line, client.gift.take());
        if let Some(pages) = &client.pages {
            self.effects.push(Effect::Time(Message::Joined(Joined {
                client: id,
                job,
                pid: client.process.pid,
                devices: client.devices.clone(),
                pages: Arc::clone(pages),
            })));
        }
        self.clients.ledger.set_job(line, job);
        let mut welcome = Welcome {
            header: Welcome::header(0),
            client: id.0,
            job: job.0,
            device_count: devices.len().min(MAX_DEVICES) as u32,
            flags,
            devices: [message::DeviceInfo::default(); MAX_DEVICES],
        };
        for (place, device) in welcome.devices.iter_mut().zip(devices) {
            *place = *device;
        }
        let descriptors = gift.map(Vec::from).unwrap_or_default();
        self.send(id, welcome.as_bytes().to_vec(), descriptors);
    }

    fn refuse_client(&mut self, id: ClientId, code: u32, text: &str) {
        if let Some(connection) = self.clients.get(id).and_then(|client| client.connection) {
            self.refuse(connection, code, text);
        }
        self.forget_client(id);
    }

    /// Sends `Refused`, after which the connection is of no use.
    pub(crate) fn refuse(&mut self, to: ConnectionId, code: u32, text: &str) {
        // Not for the usual log: whoever is refused may come again at once, for ever.
        debug!(connection = to.0, code, text, "refused");
        let mut refused = Refused {
            header: Refused::header(0),
            code,
            text_length: 0,
            text: [0; 240],
        };
        let end = (0..=text.len().min(refused.text.len()))
            .rev()
            .find(|end| text.is_char_boundary(*end))
            .unwrap_or(0);
        refused.text[..end].copy_from_slice(&text.as_bytes()[..end]);
        refused.text_length = end as u32;
        self.effects.push(Effect::Send {
            to,
            packet: refused.as_bytes().to_vec(),
            descriptors: Vec::new(),
        });
        self.effects.push(Effect::Close(to));
    }

    fn send(&mut self, client: ClientId, packet: Vec<u8>, descriptors: Vec<OwnedFd>) {
        if let Some(to) = self.clients.get(client).and_then(|client| client.connection) {
            self.effects.push(Effect::Send {
                to,
                packet,
                descriptors,
            });
        }
    }

    pub(crate) fn publish(&mut self, now: Now, kind: &str, job: Option<JobId>, pid: Option<u32>, text: String) {
        let uid = job.and_then(|job| self.policy.owner(job));
        // A process of no job is its owner's, or everybody's would share what may be said of them.
        let of_process = pid
            .filter(|_| kind == "unmanaged")
            .and_then(|pid| self.processes.uid(pid));
        self.say_unsaid(now);
        let text = match self.flood.count(uid.or(of_process), kind, now.ns) {
            None => return,
            Some(number) if number > FREE && !is_always_said(kind) => {
                format!("{text} (number {number} of this kind within a minute)")
            }
            Some(_) => text,
        };
        self.record(now, uid, kind, (job, pid), text);
    }

    /// Says how many events were not, where their minute is over.
    fn say_unsaid(&mut self, now: Now) {
        for unsaid in self.flood.ended(now.ns) {
            let text = format!("{} more events of kind {} were not said", unsaid.count, unsaid.kind);
            self.record(now, unsaid.uid, "unsaid", (None, None), text);
        }
    }

    fn record(
        &mut self,
        now: Now,
        uid: Option<u32>,
        kind: &str,
        (job, pid): (Option<JobId>, Option<u32>),
        text: String,
    ) {
        info!(kind, job = job.map(|job| job.to_string()), pid, text, "event");
        let view = EventView {
            time_ns: now.unix_ns,
            kind: kind.to_owned(),
            job: job.map(|job| job.to_string()),
            pid,
            text,
        };
        let event = Recorded::new(uid, view);
        self.events.push(event.clone());
        self.effects.push(Effect::Publish(Box::new(event)));
    }

    /// Watches a process for its end; `false` when it is gone already.
    pub(crate) fn watch(&mut self, process: Process) -> bool {
        if self.watch_of.contains_key(&process) {
            return true;
        }
        let Some(pidfd) = PidFd::open(process.pid) else {
            return false;
        };
        // Looked at after the descriptor was opened: the same start time means that it is this process that is held.
        let is_it = self.processes.stat(process.pid).is_some_and(|stat| stat.id == process);
        if !is_it || pidfd.has_ended() {
            return false;
        }
        self.last_watch += 1;
        let id = WatchId(self.last_watch);
        self.watches.insert(id, (process, pidfd));
        self.watch_of.insert(process, id);
        self.effects.push(Effect::Watch(id));
        true
    }

    /// Ends a watch that nobody needs any more. Closing the descriptor takes it out of the server's set.
    fn unwatch(&mut self, process: Process) {
        if self.first.contains_key(&process) || !self.clients.of_process(process).is_empty() {
            return;
        }
        if let Some(id) = self.watch_of.remove(&process) {
            self.watches.remove(&id);
        }
    }

    /// The descriptor of a watch that still stands.
    #[must_use]
    pub fn watched(&self, id: WatchId) -> Option<BorrowedFd<'_>> {
        self.watches.get(&id).map(|(_, pidfd)| pidfd.as_fd())
    }

    /// A watched process ended.
    pub fn ended(&mut self, id: WatchId, now: Now) {
        let Some((process, pidfd)) = self.watches.remove(&id) else {
            return;
        };
        if !pidfd.has_ended() {
            self.watches.insert(id, (process, pidfd));
            return;
        }
        self.watch_of.remove(&process);
        if let Some(code) = pidfd.exit_code(process) {
            self.step(now, Event::Exited { process, code });
        }
        self.process_gone(process, now);
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
        self.say_unsaid(now);
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
        policy.min(self.devices.next_look_ns()).min(idle).min(unsaid)
    }
}
