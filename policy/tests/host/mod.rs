// SPDX-License-Identifier: Apache-2.0
//! A host for policy tests: devices, processes with their reservation words, a clock, and what was said to whom.
//!
//! It behaves like the broker where the policy relies on it (words are zero before an attach and dropped after
//! `ForgetClient`, measurements are made from what the processes hold) and checks the policy's invariants after each
//! step.

use std::collections::{BTreeMap, BTreeSet};

use partage_policy::{
    Action, Attaching, Caller, Change, Config, DeviceSeen, DriverState, Event, Membership, Policy, Process, Run,
    TargetQuery, Ticket, UserUsage,
};
use partage_protocol::admin::{ErrorView, Reply, RunRequest};
use partage_protocol::message::{MAX_DEVICES, VERDICT_GRANTED};
use partage_protocol::reservation::{Charged, charge, refund, settle};
use partage_protocol::units::{ClientId, DeviceUuid, GIB, JobId, SECOND_NS};

mod board;
mod ends;
mod invariants;
mod looks;
mod restart;

pub use board::{Board, Counted, FINISHED, MANAGED, OVERHEAD, STARTED, USED};
pub use looks::verdict_of;

/// One process with device memory.
#[derive(Clone, Debug)]
pub struct Program {
    pub client: ClientId,
    pub job: JobId,
    pub process: Process,
    pub devices: Vec<DeviceUuid>,
    /// What the driver holds for it beyond what it charged, per slot.
    pub beyond: Vec<u64>,
}

pub struct Host {
    pub policy: Policy,
    pub board: Board,
    pub now_ns: u64,
    pub devices: Vec<DeviceSeen>,
    pub programs: BTreeMap<ClientId, Program>,
    /// Unmanaged: pid to device and bytes.
    pub strangers: BTreeMap<u32, (DeviceUuid, u64, Option<JobId>)>,
    /// The user whose private broker manages such a process.
    pub other_brokers: BTreeMap<u32, String>,
    /// What NVML shows of the time that processes use, in ppm; nothing of who is not in here.
    pub busy: BTreeMap<u32, u32>,
    /// What NVML says of each device's state.
    pub telemetry: BTreeMap<DeviceUuid, partage_policy::Telemetry>,
    pub replies: BTreeMap<Ticket, Vec<Reply>>,
    pub commands: Vec<Action>,
    /// Unmanaged use grew, or a limit was lowered: invariant 2 holds again only after use fell.
    pub is_excused: bool,
    /// The broker may promise more than there is: then grants are within the device, and promises are not.
    pub is_overcommitted: bool,
    /// How much of a device's time the broker may promise.
    pub promisable_time: f64,
    /// Clients that have ended, and nobody noticed.
    pub unnoticed: BTreeSet<ClientId>,
    /// Jobs that ended, as they are written.
    forgotten: BTreeSet<String>,
    next: u64,
}

impl Clone for Host {
    fn clone(&self) -> Self {
        Self {
            policy: self.policy.clone(),
            board: self.board.copy(),
            now_ns: self.now_ns,
            devices: self.devices.clone(),
            programs: self.programs.clone(),
            strangers: self.strangers.clone(),
            other_brokers: self.other_brokers.clone(),
            busy: self.busy.clone(),
            telemetry: self.telemetry.clone(),
            replies: self.replies.clone(),
            commands: self.commands.clone(),
            is_excused: self.is_excused,
            is_overcommitted: self.is_overcommitted,
            promisable_time: self.promisable_time,
            unnoticed: self.unnoticed.clone(),
            forgotten: self.forgotten.clone(),
            next: self.next,
        }
    }
}

pub fn uuid(number: u8) -> DeviceUuid {
    DeviceUuid {
        bytes: [number; 16],
        is_mig: false,
    }
}

pub fn caller(uid: u32) -> Caller {
    let user = ["root", "alice", "bob"]
        .get(uid as usize)
        .map_or(uid.to_string(), |name| (*name).to_owned());
    Caller {
        uid,
        user,
        is_admin: uid == 0,
        process: Process { pid: 0, start: 0 },
        may_change_own: true,
        inside: None,
    }
}

/// A request of `mem` that waits.
pub fn mem(mem: &str) -> RunRequest {
    let mem = Some(mem.to_owned()).filter(|mem| !mem.is_empty());
    RunRequest {
        mem,
        wait: true,
        command: vec!["train".into()],
        ..RunRequest::default()
    }
}

impl Host {
    /// Devices of so many GiB each, measured and idle.
    pub fn new(gib: &[u64]) -> Self {
        let mut host = Self {
            policy: Policy::new(Config::default()),
            board: Board::default(),
            now_ns: 1,
            devices: Vec::new(),
            programs: BTreeMap::new(),
            strangers: BTreeMap::new(),
            other_brokers: BTreeMap::new(),
            busy: BTreeMap::new(),
            telemetry: BTreeMap::new(),
            replies: BTreeMap::new(),
            commands: Vec::new(),
            is_excused: false,
            is_overcommitted: false,
            promisable_time: 1.0,
            unnoticed: BTreeSet::new(),
            forgotten: BTreeSet::new(),
            next: 100,
        };
        for (index, gib) in gib.iter().enumerate() {
            host.devices.push(DeviceSeen {
                uuid: uuid(index as u8 + 1),
                index: index as u32,
                model: "H200".into(),
                total_bytes: gib * GIB,
                minor: Some(index as u32),
                is_unified: false,
                reserve_bytes: 0,
            });
        }
        host.enumerate();
        host.measure();
        host
    }

    pub fn enumerate(&mut self) {
        let found = self.devices.clone();
        self.step(Event::Devices {
            driver: DriverState::Ok,
            found,
        });
    }

    pub fn step(&mut self, event: Event) -> Vec<Action> {
        let mut commands = self.policy.step(self.now_ns, event, &self.board);
        for command in &commands {
            match command {
                Action::Reply { ticket, heard } => {
                    let reply = heard.clone().reply(&self.policy, &self.board);
                    assert_eq!(heard.is_last(), !is_waiting(&reply));
                    let said = self.replies.entry(*ticket).or_default();
                    assert!(
                        said.last().is_none_or(is_waiting),
                        "{ticket:?} had its last reply: {said:?}, {reply:?}"
                    );
                    said.push(reply);
                }
                Action::ForgetClient(client) => {
                    for slot in 0..MAX_DEVICES {
                        assert_eq!(self.board.value(*client, slot, 0), 0, "forgotten with a reservation");
                    }
                    self.board.rows.remove(client);
                    self.programs.remove(client);
                }
                Action::ForgetJob(job) => assert!(self.forgotten.insert(job.to_string()), "{job} ended twice"),
                _ => {}
            }
        }
        self.commands.extend(commands.iter().cloned());
        self.check();
        commands.extend(self.search(&commands));
        commands
    }

    pub fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// `partage run` by a new process; answers its ticket and process.
    pub fn run(&mut self, uid: u32, request: RunRequest) -> (Ticket, Process) {
        let number = self.fresh();
        let process = Process {
            pid: number as u32,
            start: number,
        };
        let mut token = [0; 32];
        token[..8].copy_from_slice(&number.to_le_bytes());
        let caller = Caller { process, ..caller(uid) };
        let ticket = Ticket(number);
        let run = Run {
            ticket,
            caller,
            request,
            token,
            cgroup: None,
            other_cgroups: Vec::new(),
            groups: Vec::new(),
            unix_ns: 7,
            registered: None,
        };
        self.step(Event::Run(Box::new(run)));
        (ticket, process)
    }

    /// Runs and expects to be admitted; answers the job and its process.
    pub fn admitted(&mut self, uid: u32, request: RunRequest) -> (JobId, Process) {
        let (ticket, process) = self.run(uid, request);
        (
            self.job_of(ticket)
                .unwrap_or_else(|| panic!("not admitted: {:?}", self.replies.get(&ticket))),
            process,
        )
    }

    pub fn job_of(&self, ticket: Ticket) -> Option<JobId> {
        match self.replies.get(&ticket)?.last()? {
            Reply::Admitted(admitted) => admitted.job.trim_start_matches('j').parse().ok().map(JobId),
            _ => None,
        }
    }

    pub fn devices_of(&self, ticket: Ticket) -> Vec<u32> {
        match self.replies.get(&ticket).and_then(|said| said.last()) {
            Some(Reply::Admitted(admitted)) => admitted.devices.iter().map(|device| device.index).collect(),
            other => panic!("not admitted: {other:?}"),
        }
    }

    pub fn error_of(&self, ticket: Ticket) -> ErrorView {
        match self.replies.get(&ticket).and_then(|said| said.last()) {
            Some(Reply::Error(error)) => error.clone(),
            other => panic!("no error: {other:?}"),
        }
    }

    pub fn is_waiting(&self, ticket: Ticket) -> bool {
        self.replies
            .get(&ticket)
            .and_then(|said| said.last())
            .is_some_and(is_waiting)
    }

    /// A process of the job attaches.
    pub fn attach(&mut self, job: JobId, process: Process) -> ClientId {
        let membership = Membership {
            by_kernel: Some(job),
            ..Membership::default()
        };
        self.attach_as(process, 1, membership).expect("welcomed")
    }

    pub fn attach_as(&mut self, process: Process, uid: u32, membership: Membership) -> Option<ClientId> {
        let client = ClientId(self.fresh());
        self.board.rows.insert(client, Default::default());
        let attaching = Attaching {
            client,
            process,
            uid,
            user: caller(uid).user,
            unix_ns: 9,
            fresh_token: [9; 32],
            membership,
        };
        let commands = self.step(Event::Attach(Box::new(attaching)));
        let welcome = commands.iter().find_map(|command| match command {
            Action::Welcome {
                client: welcomed,
                job,
                devices,
                ..
            } if *welcomed == client => Some((*job, devices)),
            _ => None,
        });
        let Some((job, infos)) = welcome else {
            self.board.rows.remove(&client);
            return None;
        };
        let devices: Vec<DeviceUuid> = infos
            .iter()
            .map(|info| DeviceUuid {
                bytes: info.uuid,
                is_mig: false,
            })
            .collect();
        self.programs.insert(
            client,
            Program {
                client,
                job,
                process,
                beyond: vec![0; devices.len()],
                devices,
            },
        );
        Some(client)
    }

    /// The process allocates on a slot as the interposer would; answers whether it got it.
    pub fn allocate(&mut self, client: ClientId, slot: usize, bytes: u64) -> bool {
        for _ in 0..8 {
            let row = &self.board.rows[&client][slot].0;
            let wanted = match charge(&row[2], &row[1], bytes) {
                Charged::Done => return true,
                Charged::Overflow => return false,
                Charged::MustAsk { wanted } => wanted,
            };
            if self.say_ask(client, slot, wanted, bytes).expect("answered") != VERDICT_GRANTED {
                return false;
            }
            let row = &self.board.rows[&client][slot].0;
            let charged = charge(&row[2], &row[1], bytes);
            settle(&row[3]);
            if charged == Charged::Done {
                return true;
            }
        }
        panic!("granted and never enough");
    }

    pub fn free(&mut self, client: ClientId, slot: usize, bytes: u64) {
        let row = &self.board.rows[&client][slot].0;
        refund(&row[2], bytes).expect("freed what it holds");
    }

    pub fn used(&self, client: ClientId, slot: usize) -> u64 {
        self.board.value(client, slot, USED)
    }

    pub fn overhead(&self, client: ClientId, slot: usize) -> u64 {
        self.board.value(client, slot, OVERHEAD)
    }

    /// The process of a client ends.
    pub fn kill(&mut self, client: ClientId) {
        self.step(Event::ClientGone(client));
    }

    /// All of a job ends, and its lingering is over.
    pub fn finish(&mut self, job: JobId, first: Process) {
        let members: Vec<ClientId> = self
            .programs
            .values()
            .filter(|p| p.job == job)
            .map(|p| p.client)
            .collect();
        for client in members {
            self.kill(client);
        }
        self.step(Event::ProcessGone(first));
        self.pass(6 * SECOND_NS);
    }

    pub fn pass(&mut self, ns: u64) {
        self.now_ns += ns;
        self.step(Event::Tick);
    }

    pub fn set(&mut self, uid: u32, target: &str, mem: &str) -> Reply {
        self.change(uid, target, (Some(mem), None))
    }

    /// `partage set` of a limit, a promise or both.
    pub fn change(&mut self, uid: u32, target: &str, (mem, request): (Option<&str>, Option<&str>)) -> Reply {
        let change = Change {
            mem: mem.map(str::to_owned),
            mem_request: request.map(str::to_owned),
            ..Change::default()
        };
        self.ask_change(caller(uid), target, change)
    }

    /// `partage set` of terms: `compute`, `compute-max`, `weight`, `priority`.
    pub fn set_terms(&mut self, who: Caller, target: &str, settings: &[(&str, &str)]) -> Reply {
        let mut change = Change::default();
        for (key, value) in settings {
            let place = match *key {
                "compute" => &mut change.terms.compute,
                "compute-max" => &mut change.terms.compute_max,
                "weight" => &mut change.terms.weight,
                "priority" => &mut change.terms.priority,
                "mem" => &mut change.mem,
                other => panic!("{other}"),
            };
            *place = Some((*value).to_owned());
        }
        self.ask_change(who, target, change)
    }

    pub fn ask_change(&mut self, caller: Caller, target: &str, change: Change) -> Reply {
        let ticket = Ticket(self.fresh());
        let target = TargetQuery {
            text: target.into(),
            descends_from: None,
        };
        self.step(Event::Set {
            ticket,
            caller,
            target,
            change: Box::new(change),
        });
        self.replies[&ticket].last().cloned().expect("answered")
    }

    pub fn state_of(&self, job: JobId) -> String {
        self.policy
            .job_view(job, &caller(0), &self.board)
            .map_or("unknown".into(), |view| view.state)
    }

    /// What was written down last of what users had.
    pub fn usage(&self) -> Vec<UserUsage> {
        let written = self.commands.iter().rev().find_map(|command| match command {
            Action::SaveUsage(users) => Some(users.clone()),
            _ => None,
        });
        written.unwrap_or_default()
    }

    /// What was written down of ended jobs; the newest of one job counts.
    pub fn ended(&self) -> Vec<partage_policy::EndedJob> {
        let ended = self.commands.iter().filter_map(|command| match command {
            Action::RememberJob(ended) => Some((ended.job.id, (**ended).clone())),
            _ => None,
        });
        ended.collect::<BTreeMap<_, _>>().into_values().collect()
    }

    pub fn records(&self) -> Vec<partage_policy::JobRecord> {
        let mut records = BTreeMap::new();
        for command in &self.commands {
            match command {
                Action::SaveJob(record) => drop(records.insert(record.id, (**record).clone())),
                Action::ForgetJob(id) => drop(records.remove(&id.0)),
                _ => {}
            }
        }
        records.into_values().collect()
    }
}

fn is_waiting(reply: &Reply) -> bool {
    matches!(reply, Reply::Waiting(_))
}

pub fn broker_view() -> partage_protocol::admin::BrokerView {
    partage_protocol::admin::BrokerView {
        pid: 1,
        version: String::new(),
        kind: "private".into(),
        socket_dir: String::new(),
        is_admin: false,
        driver: "ok".into(),
        jobs: 0,
        clients: 0,
        uptime_ns: 0,
        audit: Default::default(),
        config: None,
        notes: Vec::new(),
        overcommit_percent: 100,
        aliases_off: Vec::new(),
        compute_overcommit_percent: 100,
        max_class: "realtime".into(),
        invariant_violations: 0,
        errors: Vec::new(),
        events_unwritten: 0,
        events_untold: 0,
        loop_ns: 0,
    }
}
