// SPDX-License-Identifier: Apache-2.0
//! The steps of a save that no other passage has.
//!
//! The job's clients park (`interposer/src/park.rs`): the file that keeps them parked is made before they are told, and
//! removed when they are to come back. The dump is a process of its own ([`dump`](crate::snapshot::dump)), which the
//! next broker finds again.

use std::path::PathBuf;

use partage_policy::{Answer, JobRecord, Process, Residence, Step};
use partage_protocol::message::{MAJOR, PARKING_NAME, Park};
use partage_protocol::snapshot::{Manifest, SavedClient, SavedJob, SavedTerms};
use partage_protocol::units::{JobId, SECOND_NS};
use zerocopy::IntoBytes;

use super::code;
use super::device_map::{machine_of, saved_device};
use super::engine::Engine;
use super::facts::processes_with_library;
use super::saving::tree_of;
use super::steps::owed_words;
use super::way::{Beginning, Closed, SaveTo, Waiting, Way};
use super::written::{Written, desk, is_being_written, what_became};
use crate::host::proc;
use crate::site::Site;
use crate::snapshot::criu;
use crate::snapshot::dump::Standing;
use crate::snapshot::order::DumpOrder;

/// A library looks every 50 ms, and may wait for work that runs on a device.
const PARK_NS: u64 = 10 * SECOND_NS;
/// After SIGKILL; a process in a driver's call takes its time.
const END_NS: u64 = 30 * SECOND_NS;

impl Engine {
    /// Begins a step of a save that no other passage has.
    pub(super) fn save_step(&mut self, site: &mut Site, job: JobId, step: &Step, way: &mut Way) -> Beginning {
        match step {
            Step::Park => self.park(site, job),
            Step::Unpark => self.unpark(site, job),
            Step::Dump { .. } => dump(site, job, way),
            // The dump's process does it, because it may take as long as the dump.
            Step::Commit => Beginning::Answered(Answer::Done),
            Step::End => end(site, job),
            Step::Continue => {
                signal_own(site, job, libc::SIGCONT);
                Beginning::Answered(Answer::Done)
            }
            _ => Beginning::Answered(Answer::Refused(code::NOT_SUPPORTED)),
        }
    }

    /// Has the job's clients let go of what they have of a broker's.
    fn park(&mut self, site: &mut Site, job: JobId) -> Beginning {
        if let Err(error) = std::fs::write(parking_file(site, job), b"") {
            tracing::warn!(%error, %job, "its clients cannot be parked");
            return Beginning::Answered(Answer::Refused(code::OPERATING_SYSTEM));
        }
        // Ahead of the message: each library waits for its own threads that are in NVML now.
        self.set_hold(site, job, Some(Closed::Parked));
        let park = Park {
            header: Park::header(0),
            job: job.0,
        };
        for id in site.clients.of_which(|client| client.job == job && !client.is_parked) {
            site.send(id, park.as_bytes().to_vec(), Vec::new());
        }
        Beginning::Waits(Waiting::Parked {
            until_ns: site.now.ns + PARK_NS,
        })
    }

    fn unpark(&mut self, site: &mut Site, job: JobId) -> Beginning {
        forget_parking(site, job);
        self.set_hold(site, job, Some(Closed::Hard));
        Beginning::Waits(Waiting::Unparked {
            until_ns: site.now.ns + PARK_NS,
        })
    }

    /// A job is forgotten.
    pub(crate) fn forget(&mut self, site: &Site, job: JobId) {
        self.ways.forget(job);
        forget_parking(site, job);
        self.forget_expecting(site, job);
    }
}

/// Has what such a step waits for come?
pub(super) fn poll_save(site: &Site, job: JobId, wait: &Waiting) -> Option<Answer> {
    let (is_done, until_ns) = match wait {
        Waiting::Parked { until_ns } => (are_parked(site, job), *until_ns),
        Waiting::Unparked { until_ns } => (are_back(site, job), *until_ns),
        Waiting::Ended { until_ns } => (has_ended(site, job), *until_ns),
        _ => return None,
    };
    match is_done {
        true => Some(Answer::Done),
        false => (site.now.ns >= until_ns).then_some(Answer::TimedOut),
    }
}

/// Has every client of the job let go of its pages?
fn are_parked(site: &Site, job: JobId) -> bool {
    let mut alive = site.clients.alive_of(job);
    alive.all(|(_, client)| client.is_parked && client.connection.is_none())
}

/// Has every client of the job come back?
fn are_back(site: &Site, job: JobId) -> bool {
    let mut alive = site.clients.alive_of(job);
    alive.all(|(_, client)| client.connection.is_some() && !client.is_parked)
}

/// Clients of the job may come back, or none is left that could.
pub(crate) fn forget_parking(site: &Site, job: JobId) {
    // Nobody was parked: what was wanted.
    let _ = std::fs::remove_file(parking_file(site, job));
}

/// What a broker before left for jobs that need it no more.
pub(super) fn sweep_saving(site: &Site) {
    let residence = |job: u64| site.policy.residence(JobId(job)).map(|mark| mark.residence);
    let client = site.directory.client_socket();
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
            forget_parking(site, JobId(job));
        }
    }
    for entry in site.directory.snapshots().read_dir().into_iter().flatten().flatten() {
        let path = entry.path();
        let number = path
            .file_stem()
            .and_then(|stem| stem.to_str()?.strip_prefix('j')?.parse().ok());
        let is_here = |number| residence(number).is_none_or(|residence| residence == Residence::Here);
        let is_taken = |number: u64| is_being_written(site, JobId(number));
        if number.is_none_or(|number| is_here(number) && !is_taken(number)) {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn parking_file(site: &Site, job: JobId) -> PathBuf {
    let client = site.directory.client_socket();
    client.with_file_name(format!("{PARKING_NAME}{}", job.0))
}

fn dump(site: &mut Site, job: JobId, way: &mut Way) -> Beginning {
    let desk = desk(site, job);
    if matches!(desk.standing(), Standing::Runs | Standing::Dumped) {
        return Beginning::Waits(Waiting::Dumped);
    }
    if way.dumping.is_none()
        && let Some(to) = &way.save_to
    {
        let begun = dump_order(site, job, to).and_then(|order| {
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

/// What became of the dump; none while CRIU has not all of the job.
pub(super) fn dumped(site: &Site, job: JobId, way: &mut Way) -> Option<Answer> {
    way.is_being_written = false;
    match what_became(site, job, way) {
        Written::Runs => None,
        Written::Dumped => {
            way.is_being_written = true;
            Some(Answer::Done)
        }
        Written::Whole => Some(Answer::Done),
        Written::Failed(code) => Some(Answer::Refused(code)),
    }
}

fn dump_order(site: &Site, job: JobId, to: &SaveTo) -> Result<DumpOrder, String> {
    let first = tree_of(site, job)?;
    let record = site.jobs.get(job).ok_or_else(|| format!("{job} has ended"))?;
    let place = record.devices.first();
    let devices = record.devices.iter().map(|place| saved_device(site, place.device));
    let clients = site.clients.alive_of(job).map(|(id, client)| SavedClient {
        pid: proc::inner_number(client.process.pid).unwrap_or(client.process.pid),
        client: id.0,
        owed: owed_words(site, id, record.devices.len()),
    });
    Ok(DumpOrder {
        folder: to.folder.clone(),
        criu: to.criu.clone().map_or_else(criu::find, Ok)?,
        tree: first.pid,
        is_to_stop: to.is_to_stop,
        keep: to.keep,
        files_max: to.files_max,
        outside: to.outside,
        manifest: Manifest {
            format: partage_protocol::snapshot::FORMAT,
            driver: place
                .and_then(|place| site.devices.list().get(&place.device))
                .map_or_else(String::new, |facts| facts.driver.clone()),
            protocol: Some(MAJOR),
            root: proc::inner_number(first.pid).unwrap_or(first.pid),
            parent: parent_of(site, first),
            devices: devices.collect(),
            machine: machine_of(site, first),
            clients: clients.collect(),
            socket_dir: site.directory.path().display().to_string(),
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
                terms: saved_terms(site, record),
            },
            ..Manifest::default()
        },
    })
}

/// The parent of a process by the number that the process has it by; 0: it sees none.
fn parent_of(site: &Site, process: Process) -> u32 {
    let parent = site.processes.stat(process.pid).map_or(0, |stat| stat.parent);
    match proc::namespace(parent) == proc::namespace(process.pid) {
        true => proc::inner_number(parent).unwrap_or(0),
        false => 0,
    }
}

/// A signal to the whole job, in its owner's name: no process of another user was saved.
fn signal_own(site: &mut Site, job: JobId, number: libc::c_int) {
    let owner = site.policy.owner(job).unwrap_or_default();
    drop(site.signal_all(job, number, owner));
}

/// SIGKILL to the whole job.
fn end(site: &mut Site, job: JobId) -> Beginning {
    signal_own(site, job, libc::SIGKILL);
    Beginning::Waits(Waiting::Ended {
        until_ns: site.now.ns + END_NS,
    })
}

/// Is nothing left of the job's tree?
fn has_ended(site: &Site, job: JobId) -> bool {
    let first = site.jobs.get(job).and_then(|record| record.first);
    let is_alive = |first: Process| {
        let stat = site.processes.stat(first.pid);
        stat.is_some_and(|stat| stat.id == first && !stat.is_exiting)
    };
    !first.is_some_and(is_alive) && processes_with_library(site, job).is_empty()
}

/// What a job asked for beside the numbers of its devices.
fn saved_terms(site: &Site, record: &JobRecord) -> SavedTerms {
    let limit_ns = record.terms.time_limit_ns;
    SavedTerms {
        process_bytes: record.devices.first().and_then(|place| place.process),
        time_left_ns: limit_ns.map(|limit| limit.saturating_sub(record.run_ns(site.now.unix_ns))),
        preemptible: record.asked.preemptible,
        idle_release_ns: record.asked.idle_release_ns,
        strict: record.is_strict,
        labels: record.labels.clone(),
    }
}
