// SPDX-License-Identifier: Apache-2.0
//! `partage checkpoint`: what has to be so before a job is saved, and the steps of a save that no other passage has.
//!
//! The job's clients park (`interposer/src/park.rs`): the file that keeps them parked is made before they are told, and
//! removed when they are to come back. The dump is a process of its own ([`dump`](crate::snapshot::dump)), which the
//! next broker finds again.

use std::path::{Path, PathBuf};

use partage_policy::{
    Access, Answer, Caller, JobRecord, Obstacle, Patience, Process, Residence, Step, TargetQuery, Ticket,
};
use partage_protocol::admin::{ErrorCode, Reply};
use partage_protocol::message::{MAJOR, PARKING_NAME, Park};
use partage_protocol::snapshot::{Manifest, SavedClient, SavedJob, SavedTerms};
use partage_protocol::units::{JobId, SECOND_NS};
use zerocopy::IntoBytes;

use super::code;
use super::way::{Beginning, Closed, Leaving, Purpose, SaveTo, Waiting, Way};
use crate::clock::Now;
use crate::driver::requests::error_view;
use crate::driver::state_driver::StateDriver;
use crate::host::proc::{self, with_descendants};
use crate::host::tasks;
use crate::kind::Kind;
use crate::snapshot::dump::{Desk, Standing};
use crate::snapshot::folder::Folder;
use crate::snapshot::order::{DumpOrder, DumpOutcome};
use crate::snapshot::{criu, store};

/// A library looks every 50 ms, and may wait for work that runs on a device.
const PARK_NS: u64 = 10 * SECOND_NS;
/// After SIGKILL; a process in a driver's call takes its time.
const END_NS: u64 = 30 * SECOND_NS;

impl StateDriver {
    /// `partage checkpoint`.
    pub(super) fn save(
        &mut self,
        (ticket, patience): (Ticket, Patience),
        caller: &Caller,
        target: &TargetQuery,
        to: SaveTo,
        now: Now,
    ) {
        let job = match self.policy.resolve(target, caller, Access::Change) {
            Ok(job) => job,
            Err(why) => return self.answer_ticket(ticket, Reply::Error(why)),
        };
        let begun = self
            .may_save(caller, Some(job), &to.folder)
            .and_then(|()| self.begin_to_save(job, to, Leaving::asked(Purpose::Save, (ticket, patience)), now));
        if let Err((code, message)) = begun {
            self.answer_ticket(ticket, Reply::Error(error_view(code, message, None)));
        }
    }

    /// May the caller have a job (one that is to begin: none) saved in this folder?
    ///
    /// # Errors
    /// The code, and a sentence.
    pub(in crate::driver) fn may_save(
        &self,
        caller: &Caller,
        job: Option<JobId>,
        folder: &Path,
    ) -> Result<(), (ErrorCode, String)> {
        let name = job.map_or_else(|| "a job".to_owned(), |job| job.to_string());
        let me = nix::unistd::geteuid().as_raw();
        let owner = job.and_then(|job| self.policy.owner(job)).unwrap_or(caller.uid);
        // The files of a snapshot hold the job's memory, and its writer follows names in the caller's folder.
        if owner != me {
            // Another user's broker cannot act for the job at all.
            let what_works = if me == 0 { "; suspend and migrate work" } else { "" };
            let message = format!(
                "no job of uid {owner} is saved here: a snapshot is written by a broker of the job's own user, and \
                 this one is uid {me}'s{what_works}"
            );
            return Err((ErrorCode::NotAllowed, message));
        }
        if caller.uid != owner {
            let message = format!(
                "{name} is saved at its owner's word alone (uid {owner}), not at that of uid {}",
                caller.uid
            );
            return Err((ErrorCode::NotAllowed, message));
        }
        // What it names is opened, and its CRIU run, by a process of this broker's.
        let is_managed = self.directory.kind() == Kind::Managed;
        if !proc::shares_namespaces(caller.process.pid) || is_managed && !caller.is_admin {
            let message = format!(
                "{name} is saved by a command beside its broker alone: pid {} has another mount, pid or user \
                 namespace (a container), or is no administrator of this host",
                caller.process.pid
            );
            return Err((ErrorCode::NotAllowed, message));
        }
        if !criu::may_run() {
            let message = "the broker of this user has no right to run CRIU: it needs CAP_SYS_ADMIN or \
                           CAP_CHECKPOINT_RESTORE, which it has from the command that started it (partage broker stop, \
                           then partage broker start with that right)";
            return Err((ErrorCode::NotAllowed, message.to_owned()));
        }
        Folder::open(folder)
            .and_then(|_| store::is_writable(folder))
            .map_err(|message| (ErrorCode::Failed, message))
    }

    /// Begins to save a job, unless something else is under way with it or CRIU would refuse it.
    pub(super) fn begin_to_save(
        &mut self,
        job: JobId,
        to: SaveTo,
        leaving: Leaving,
        now: Now,
    ) -> Result<(), (ErrorCode, String)> {
        if self.ways.has(job) {
            let busy = Obstacle::NotHere(job, Residence::Coming).to_string();
            return Err((ErrorCode::Failed, busy));
        }
        self.tree_of(job).map_err(|message| (ErrorCode::Failed, message))?;
        let is_managed = self.directory.kind() == Kind::Managed;
        let to = SaveTo {
            // A host's broker runs what the host has.
            criu: to.criu.clone().filter(|_| !is_managed).or_else(|| criu::find().ok()),
            ..to
        };
        self.begin_to_leave(job, leaving, now);
        if let Some(way) = self.ways.by_job.get_mut(&job) {
            way.save_to = Some(to);
        }
        Ok(())
    }

    /// The first process of the tree that CRIU is to dump, with what can be told in advance of what it would refuse.
    fn tree_of(&self, job: JobId) -> Result<Process, String> {
        let first = self.jobs.get(job).and_then(|record| record.first);
        let first = first.filter(|first| self.processes.stat(first.pid).is_some_and(|stat| stat.id == *first));
        let first = first.ok_or_else(|| format!("the first process of {job} has ended, and its others are no tree"))?;
        let (first, remedy) = match self.jobs.get(job).and_then(|record| record.asked.restored_root) {
            Some(number) => (self.restored_root(job, first, number)?, "restore it with --detach"),
            None if has_own_namespace(first) => {
                return Err(format!(
                    "{job} has a pid or mount namespace of its own (a container, a unit with PrivateTmp=), and a \
                     restore would find other files"
                ));
            }
            None => (first, "start it with setsid partage run"),
        };
        let tree = with_descendants(&*self.processes, &[first.pid].into());
        for process in self.processes_with_library(job) {
            let pid = process.pid;
            if !tree.contains(&pid) {
                return Err(format!(
                    "pid {pid} of {job} has left the tree of its first process, pid {}",
                    first.pid
                ));
            }
            if proc::namespace(pid) != proc::namespace(first.pid) {
                return Err(format!(
                    "pid {pid} of {job} has another pid namespace than its first process, pid {}: CRIU cannot save it",
                    first.pid
                ));
            }
        }
        for pid in tree {
            if proc::session_began_outside(pid) {
                return Err(format!(
                    "pid {pid} of {job} is in a session that began outside its pid namespace, which CRIU cannot save: \
                     {remedy}"
                ));
            }
            if tasks::has_lost_its_first(pid) {
                return Err(format!(
                    "pid {pid} of {job} lives on in other threads after its main thread has ended, which CRIU cannot \
                     save: suspend and migrate work"
                ));
            }
            if let Some(what) = proc::undumpable(pid) {
                return Err(format!("pid {pid} of {job} has {what} open, which CRIU cannot save"));
            }
        }
        Ok(first)
    }

    /// The first process of a restored tree, by its number in the pid namespace that `restore` made.
    fn restored_root(&self, job: JobId, restore: Process, number: u32) -> Result<Process, String> {
        let below = with_descendants(&*self.processes, &[restore.pid].into());
        let is_its_child = |pid: &u32| self.processes.stat(*pid).is_some_and(|stat| stat.parent == restore.pid);
        let is_inside = |pid: &u32| proc::foreign_namespace(*pid, "pid").is_some();
        let keeper = below.iter().find(|pid| is_its_child(pid) && is_inside(pid));
        let namespace = keeper.and_then(|pid| proc::namespace(*pid));
        // A job may have made namespaces within that one.
        let mut of_it = below
            .iter()
            .filter(|pid| namespace.is_some() && proc::namespace(**pid) == namespace);
        let found = of_it.find(|pid| proc::inner_number(**pid) == Some(number));
        let found = found.and_then(|pid| self.processes.stat(*pid));
        found
            .map(|stat| stat.id)
            .ok_or_else(|| format!("the first process of {job}, {number} in its own pid namespace, has ended"))
    }

    /// Begins a step of a save that no other passage has.
    pub(super) fn save_step(&mut self, job: JobId, step: &Step, way: &mut Way, now: Now) -> Beginning {
        match step {
            Step::Park => self.park(job, now),
            Step::Unpark => self.unpark(job, now),
            Step::Dump { .. } => self.dump(job, way, now),
            // The dump's process does it, because it may take as long as the dump.
            Step::Commit => Beginning::Answered(Answer::Done),
            Step::End => self.end(job, now),
            Step::Continue => {
                self.signal_own(job, libc::SIGCONT);
                Beginning::Answered(Answer::Done)
            }
            _ => Beginning::Answered(Answer::Refused(code::NOT_SUPPORTED)),
        }
    }

    /// Has what such a step waits for come?
    pub(super) fn poll_save(&self, job: JobId, wait: &Waiting, now: Now) -> Option<Answer> {
        let (is_done, until_ns) = match wait {
            Waiting::Parked { until_ns } => (self.are_parked(job), *until_ns),
            Waiting::Unparked { until_ns } => (self.are_back(job), *until_ns),
            Waiting::Ended { until_ns } => (self.has_ended(job), *until_ns),
            _ => return None,
        };
        match is_done {
            true => Some(Answer::Done),
            false => (now.ns >= until_ns).then_some(Answer::TimedOut),
        }
    }

    /// Has the job's clients let go of what they have of a broker's.
    fn park(&mut self, job: JobId, now: Now) -> Beginning {
        if let Err(error) = std::fs::write(self.parking_file(job), b"") {
            tracing::warn!(%error, %job, "its clients cannot be parked");
            return Beginning::Answered(Answer::Refused(code::OPERATING_SYSTEM));
        }
        // Ahead of the message: each library waits for its own threads that are in NVML now.
        self.set_hold(job, Some(Closed::Parked));
        let park = Park {
            header: Park::header(0),
            job: job.0,
        };
        let of_job = self.clients.iter().filter(|(_, client)| client.job == job);
        let ids: Vec<_> = of_job
            .filter(|(_, client)| !client.is_parked)
            .map(|(id, _)| id)
            .collect();
        for id in ids {
            self.send(id, park.as_bytes().to_vec(), Vec::new());
        }
        Beginning::Waits(Waiting::Parked {
            until_ns: now.ns + PARK_NS,
        })
    }

    /// Has every client of the job let go of its pages?
    fn are_parked(&self, job: JobId) -> bool {
        let mut alive = self
            .clients
            .iter()
            .filter(|(_, client)| client.job == job && client.dying.is_none());
        alive.all(|(_, client)| client.is_parked && client.connection.is_none())
    }

    fn unpark(&mut self, job: JobId, now: Now) -> Beginning {
        self.forget_parking(job);
        self.set_hold(job, Some(Closed::Hard));
        Beginning::Waits(Waiting::Unparked {
            until_ns: now.ns + PARK_NS,
        })
    }

    /// Has every client of the job come back?
    fn are_back(&self, job: JobId) -> bool {
        let mut alive = self
            .clients
            .iter()
            .filter(|(_, client)| client.job == job && client.dying.is_none());
        alive.all(|(_, client)| client.connection.is_some() && !client.is_parked)
    }

    /// Clients of the job may come back, or none is left that could.
    pub(in crate::driver) fn forget_parking(&self, job: JobId) {
        // Nobody was parked: what was wanted.
        let _ = std::fs::remove_file(self.parking_file(job));
    }

    /// What a broker before left for jobs that need it no more.
    pub(super) fn sweep_saving(&self) {
        let residence = |job: u64| self.policy.residence(JobId(job)).map(|mark| mark.residence);
        let client = self.directory.client_socket();
        for entry in client
            .parent()
            .and_then(|folder| folder.read_dir().ok())
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = entry.file_name().to_string_lossy().into_owned();
            let job = name.strip_prefix(PARKING_NAME).and_then(|number| number.parse().ok());
            if let Some(job) = job.filter(|job| residence(*job) != Some(Residence::Saving)) {
                self.forget_parking(JobId(job));
            }
        }
        for entry in self.directory.snapshots().read_dir().into_iter().flatten().flatten() {
            let path = entry.path();
            let number = path
                .file_stem()
                .and_then(|stem| stem.to_str()?.strip_prefix('j')?.parse().ok());
            if number.is_none_or(|number| residence(number).is_none_or(|residence| residence == Residence::Here)) {
                let _ = std::fs::remove_file(path);
            }
        }
    }

    fn parking_file(&self, job: JobId) -> PathBuf {
        let client = self.directory.client_socket();
        client.with_file_name(format!("{PARKING_NAME}{}", job.0))
    }

    fn desk(&self, job: JobId) -> Desk {
        Desk::new(&self.directory.snapshots(), &job.to_string())
    }

    fn dump(&mut self, job: JobId, way: &mut Way, now: Now) -> Beginning {
        let desk = self.desk(job);
        if matches!(desk.standing(), Standing::Runs) {
            return Beginning::Waits(Waiting::Dumped);
        }
        if way.dumping.is_none()
            && let Some(to) = &way.save_to
        {
            let begun = self.dump_order(job, to, now).and_then(|order| {
                let begun = desk.begin(&order);
                begun.map_err(|error| format!("the process that saves it does not start: {error}"))
            });
            match begun {
                Ok(child) => way.dumping = Some(child),
                Err(why) => {
                    way.why = Some(why);
                    return Beginning::Answered(Answer::Refused(code::OPERATING_SYSTEM));
                }
            }
        }
        Beginning::Waits(Waiting::Dumped)
    }

    /// What became of the dump; none while it is under way.
    pub(super) fn dumped(&mut self, job: JobId, way: &mut Way) -> Option<Answer> {
        let desk = self.desk(job);
        let standing = desk.standing();
        if matches!(standing, Standing::Runs) {
            return None;
        }
        if let Some(child) = &mut way.dumping {
            // It let go of its lock as it ended, and is not to stay as a dead one.
            match child.try_wait() {
                Ok(None) => return None,
                Ok(Some(_)) | Err(_) => way.dumping = None,
            }
        }
        desk.clear();
        match standing {
            Standing::Over(DumpOutcome::Saved { generation, bytes }) => {
                way.saved = Some((generation, bytes));
                Some(Answer::Done)
            }
            Standing::Over(DumpOutcome::Failed { why }) => {
                way.why = Some(why);
                Some(Answer::Refused(code::NOT_SUPPORTED))
            }
            Standing::Runs | Standing::Nothing => {
                way.why = Some("the process that saves it died".to_owned());
                Some(Answer::Refused(code::OPERATING_SYSTEM))
            }
        }
    }

    fn dump_order(&self, job: JobId, to: &SaveTo, now: Now) -> Result<DumpOrder, String> {
        let first = self.tree_of(job)?;
        let record = self.jobs.get(job).ok_or_else(|| format!("{job} has ended"))?;
        let place = record.devices.first();
        let devices = record.devices.iter().map(|place| self.saved_device(place.device));
        let clients = self
            .clients
            .iter()
            .filter(|(_, client)| client.job == job && client.dying.is_none());
        let clients = clients.map(|(id, client)| SavedClient {
            pid: proc::inner_number(client.process.pid).unwrap_or(client.process.pid),
            client: id.0,
            owed: self.owed_words(id, record.devices.len()),
        });
        Ok(DumpOrder {
            folder: to.folder.clone(),
            criu: to.criu.clone().map_or_else(criu::find, Ok)?,
            tree: first.pid,
            is_to_stop: to.is_to_stop,
            keep: to.keep,
            manifest: Manifest {
                format: partage_protocol::snapshot::FORMAT,
                driver: place
                    .and_then(|place| self.devices.list().get(&place.device))
                    .map_or_else(String::new, |facts| facts.driver.clone()),
                protocol: Some(MAJOR),
                root: proc::inner_number(first.pid).unwrap_or(first.pid),
                devices: devices.collect(),
                machine: self.machine_of(first),
                clients: clients.collect(),
                socket_dir: self.directory.path().display().to_string(),
                job: SavedJob {
                    id: job.to_string(),
                    uid: record.uid,
                    token: record.token_text(),
                    name: record.name.clone(),
                    command: record.command.clone(),
                    limit_bytes: place.and_then(|place| place.limit),
                    request_bytes: place.map_or(0, |place| place.request),
                    promise_ppm: record.terms.promise_ppm,
                    cap_ppm: record.terms.cap_ppm,
                    weight: record.terms.weight,
                    class: record.terms.class.word().to_owned(),
                    terms: saved_terms(record, now),
                },
                ..Manifest::default()
            },
        })
    }

    /// A signal to the whole job, in its owner's name: no process of another user was saved.
    fn signal_own(&mut self, job: JobId, number: libc::c_int) {
        let owner = self.policy.owner(job).unwrap_or_default();
        drop(self.signal_all(job, number, owner));
    }

    /// SIGKILL to the whole job.
    fn end(&mut self, job: JobId, now: Now) -> Beginning {
        self.signal_own(job, libc::SIGKILL);
        Beginning::Waits(Waiting::Ended {
            until_ns: now.ns + END_NS,
        })
    }

    /// Is nothing left of the job's tree?
    fn has_ended(&self, job: JobId) -> bool {
        let first = self.jobs.get(job).and_then(|record| record.first);
        let is_alive = |first: Process| {
            let stat = self.processes.stat(first.pid);
            stat.is_some_and(|stat| stat.id == first && !stat.is_exiting)
        };
        !first.is_some_and(is_alive) && self.processes_with_library(job).is_empty()
    }
}

/// Has a process a pid or mount namespace that is not the broker's?
fn has_own_namespace(process: Process) -> bool {
    let mut kinds = ["pid", "mnt"].iter();
    kinds.any(|kind| proc::foreign_namespace(process.pid, kind).is_some())
}

/// What a job asked for beside the numbers of its devices.
fn saved_terms(record: &JobRecord, now: Now) -> SavedTerms {
    let limit_ns = record.terms.time_limit_ns;
    SavedTerms {
        process_bytes: record.devices.first().and_then(|place| place.process),
        time_left_ns: limit_ns.map(|limit| limit.saturating_sub(record.run_ns(now.unix_ns))),
        preemptible: record.asked.preemptible,
        idle_release_ns: record.asked.idle_release_ns,
        strict: record.is_strict,
        labels: record.labels.clone(),
    }
}
