// SPDX-License-Identifier: Apache-2.0
//! `partage restore`: a job whose processes come from a snapshot is away from its first moment on.
//!
//! ```text
//!   Run ──► admitted ──► Restore: hold hard, mark Away, who will say hello is on disk ──► Waiting ──► CRIU
//!     each recorded client: a parked hello ──► pages, P as recorded ──► the last one ──► as `resume` ──► Done
//! ```
//! Until it has come back, the list of who is expected lies in a file: a new broker takes the hellos in as well. Who
//! has not said hello at the deadline, which lies there too, is named, and the command ends the job.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use partage_policy::{Caller, Event, InBooks, Mark, Process, Residence, Return, TargetQuery, Ticket};
use partage_protocol::admin::{ErrorCode, Reply, Waiting};
use partage_protocol::message::{HELLO_PARKED, Hello};
use partage_protocol::size::format_duration;
use partage_protocol::snapshot::{Needs, RestoreRequest, SavedClient, SavedDevice, Unfit};
use partage_protocol::units::{ClientId, DeviceUuid, JobId};
use serde::{Deserialize, Serialize};

use super::device_map::{RestoredMap, is_like, machine_of, map_file, saved_device, whole, write_map};
use super::engine::Engine;
use super::facts::{processes_with_library, residence_of};
use super::way::{Closed, Expecting};
use crate::host::proc;
use crate::kept_file::write_whole;
use crate::peer::ConnectionId;
use crate::site::Site;
use crate::site::effect::Effect;
use crate::state::ledger::LineIndex;

/// Who is to say hello, and until when.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Expected {
    clients: Vec<SavedClient>,
    deadline: Option<Deadline>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Deadline {
    unix_ns: u64,
    within_ns: u64,
}

impl Engine {
    /// The caller's job, admitted just now, is about to be restored.
    pub(super) fn restore(&mut self, site: &mut Site, ticket: Ticket, caller: Caller, request: &RestoreRequest) {
        let me = nix::unistd::geteuid().as_raw();
        if caller.uid != me {
            // As with a checkpoint. What it says that the processes had is believed.
            let message = format!("jobs are restored by a broker of their own user alone (uid {me} here)");
            return site.deny_ticket(ticket, ErrorCode::NotAllowed, message, None);
        }
        let Some(job) = site.jobs.of_first(caller.process) else {
            let message = format!("{} was restored by another command meanwhile", request.saved_job);
            let hint = "one of them can live at a time: partage ps";
            return site.deny_ticket(ticket, ErrorCode::Failed, message, Some(hint));
        };
        let residence = residence_of(site, job);
        let is_fresh = residence == Residence::Here && processes_with_library(site, job).is_empty();
        let checked = match is_fresh && !self.ways.has(job) {
            true => has_devices(site, job, caller.process, request),
            false => Err(Unfit::new("job", format!("{job} has processes already"))),
        };
        let pairs = match checked {
            Ok(pairs) => pairs,
            Err(unfit) => {
                return site.deny_ticket(ticket, ErrorCode::Failed, unfit.to_string(), None);
            }
        };
        if self.write_expecting(site, job, request, pairs).is_err() {
            let message = "the broker cannot write to its folder".to_owned();
            return site.deny_ticket(ticket, ErrorCode::Internal, message, None);
        }
        // From their first moment on: what they have is checkpointed.
        self.set_hold(site, job, Some(Closed::Hard));
        let mark = Mark {
            residence: Residence::Away,
            books: InBooks::Left,
            ..Mark::default()
        };
        let mark = Box::new(mark);
        site.tell(Event::Residence { job, mark });
        self.ways.expecting.insert(job, Expecting { ticket, caller });
        if !request.files.is_empty() {
            for text in &request.files {
                site.publish("files-restored", Some(job), None, text.clone());
            }
            let texts = request.files.clone();
            site.tell(Event::Restored {
                job,
                texts,
                behind: None,
            });
        }
        // Now they may be restored.
        let waiting = Waiting {
            position: 0,
            reason: format!("the processes of {job} are to come back"),
            holders: Vec::new(),
        };
        site.effects.push(Effect::Document {
            to: ConnectionId(ticket.0),
            reply: Box::new(Reply::Waiting(waiting)),
            is_last: false,
        });
    }

    fn write_expecting(
        &mut self,
        site: &mut Site,
        job: JobId,
        request: &RestoreRequest,
        pairs: Vec<(String, String)>,
    ) -> io::Result<()> {
        if !pairs.is_empty() {
            let processes = request.clients.iter().map(|client| client.pid);
            write_map(site, job, &RestoredMap::new(pairs, processes.collect()))?;
        }
        let expected = Expected {
            clients: request.clients.clone(),
            deadline: request.within_ns.map(|within_ns| Deadline {
                unix_ns: site.now.unix_ns.saturating_add(within_ns),
                within_ns,
            }),
        };
        if let Some(Deadline { within_ns, .. }) = expected.deadline {
            self.ways.restores.insert(job, site.now.ns.saturating_add(within_ns));
        }
        write_whole(&expecting_file(site, job), &serde_json::to_vec(&expected)?)
    }

    /// The jobs that are being restored since a broker before.
    pub(super) fn recover_restores(&mut self, site: &mut Site, jobs: &[JobId]) {
        for job in jobs {
            if let Some(deadline) = expected_of(site, *job).deadline {
                let left_ns = deadline.unix_ns.saturating_sub(site.now.unix_ns);
                self.ways.restores.insert(*job, site.now.ns.saturating_add(left_ns));
            }
        }
    }

    /// Whoever waits for a restored job hears at its deadline who did not say hello.
    pub(super) fn tick_restores(&mut self, site: &mut Site) {
        let due = self.ways.restores.iter().filter(|(_, until)| site.now.ns >= **until);
        let due: Vec<JobId> = due.map(|(job, _)| *job).collect();
        for job in due {
            self.ways.restores.remove(&job);
            let Some(why) = lacks(site, job) else { continue };
            let within = expected_of(site, job).deadline.map_or(0, |deadline| deadline.within_ns);
            let text = format!("{job} did not come back within {}: {why}", format_duration(within));
            site.publish("restore-failed", Some(job), None, text.clone());
            if let Some(Expecting { ticket, .. }) = self.ways.expecting.remove(&job) {
                let hint = format!("partage why {job}");
                site.deny_ticket(ticket, ErrorCode::Failed, text.clone(), Some(&hint));
            }
            let end = Return::Never(text);
            site.tell(Event::Returned { job, end });
        }
    }

    /// A client was welcomed: with the last one of a restored job that job comes back.
    pub(crate) fn has_arrived(&mut self, site: &mut Site, client: ClientId) {
        let Some(job) = site.clients.get(client).map(|client| client.job) else {
            return;
        };
        if !self.ways.expecting.contains_key(&job) || lacks(site, job).is_some() {
            return;
        }
        if let Some(Expecting { ticket, caller }) = self.ways.expecting.remove(&job) {
            let resume = Event::Resume {
                ticket,
                caller,
                target: TargetQuery {
                    text: job.to_string(),
                    descends_from: None,
                },
                is_patient: true,
                timeout_ns: None,
            };
            site.tell(resume);
        }
    }

    /// It has come back, or will not.
    pub(super) fn forget_expecting(&mut self, site: &Site, job: JobId) {
        self.ways.restores.remove(&job);
        // Most jobs are not restored.
        let _ = std::fs::remove_file(expecting_file(site, job));
        let _ = std::fs::remove_file(map_file(site, job));
    }
}

/// Has this machine what a snapshot needs? Asked by a process before its job is admitted. Precondition: the devices
/// are known.
///
/// # Errors
/// [`Unfit`], with what was saved and what is here.
pub(crate) fn has_needs(site: &Site, process: Process, needs: &Needs) -> Result<(), Unfit> {
    let unfit = |why: String| Err(Unfit::new("devices", why));
    if !needs.onto.is_empty() && needs.onto.len() != needs.devices.len() {
        let (saved, onto) = (needs.devices.len(), needs.onto.len());
        return unfit(format!("{saved} were saved, and {onto} are to take their place"));
    }
    let mut own: Vec<DeviceUuid> = Vec::new();
    for (slot, saved) in needs.devices.iter().enumerate() {
        let device = takes_the_place(site, saved, needs.onto.get(slot))?;
        let Some(facts) = site.devices.list().get(&device) else {
            return unfit(format!("{device} is lost"));
        };
        let gpu = match device.to_string() == saved.uuid {
            true => "it".to_owned(),
            false => format!("GPU {}", facts.index),
        };
        if own.contains(&device) {
            return unfit(format!("GPU {} cannot take the place of two", facts.index));
        }
        is_like(saved, &saved_device(site, device), &gpu)?;
        if !needs.driver.is_empty() && facts.driver != needs.driver {
            let why = format!("{} was saved, and {:?} is here", needs.driver, facts.driver);
            return Err(Unfit::new("driver", why));
        }
        own.push(device);
    }
    map_of(site, (&needs.devices, &needs.machine), &own, process).map(drop)
}

/// The device that is to take the place of a saved one: as said, or itself.
fn takes_the_place(site: &Site, saved: &SavedDevice, said: Option<&String>) -> Result<DeviceUuid, Unfit> {
    let list = site.devices.list();
    let own = list.keys().find(|device| device.to_string() == saved.uuid);
    match (said.filter(|said| **said != saved.uuid), own) {
        (None, Some(own)) => Ok(*own),
        (None, None) => {
            let (uuid, name, count) = (&saved.uuid, &saved.name, list.len());
            let why = format!("{uuid} ({name}) was saved, and is none of the {count} here");
            Err(Unfit::new(
                "devices",
                why + "; --gpu-map gives its place to another GPU",
            ))
        }
        (Some(said), _) => {
            let named = site.policy.device_named(said);
            let named = named.map_err(|error| Unfit::new("devices", error.to_string()))?;
            match named.is_mig {
                true => Err(Unfit::new(
                    "devices",
                    format!("{named} is a MIG device, which cannot be mapped"),
                )),
                false => Ok(named),
            }
        }
    }
}

/// By which map processes come back that are shown what `process` is.
fn map_of(
    site: &Site,
    (saved, machine): (&[SavedDevice], &[SavedDevice]),
    own: &[DeviceUuid],
    process: Process,
) -> Result<Vec<(String, String)>, Unfit> {
    let own: Vec<SavedDevice> = own.iter().map(|device| saved_device(site, *device)).collect();
    whole((saved, machine), (&own, &machine_of(site, process)))
}

/// Are these the job's devices, slot by slot, or ones that can take their places? Answers by which map.
fn has_devices(
    site: &Site,
    job: JobId,
    process: Process,
    request: &RestoreRequest,
) -> Result<Vec<(String, String)>, Unfit> {
    let saved = &request.devices;
    let own = site.jobs.devices(job);
    if own.len() != saved.len() {
        let why = format!("{} were saved, and the job has {}", saved.len(), own.len());
        return Err(Unfit::new("devices", why));
    }
    for (slot, (own, saved)) in own.iter().zip(saved).enumerate() {
        is_like(saved, &saved_device(site, *own), &own.to_string())?;
        let owed = request.clients.iter().filter_map(|client| client.owed.get(slot));
        let owed = owed.fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        if owed > saved.total_bytes {
            let why = format!(
                "{owed} bytes were on {}, which has {} in all",
                saved.uuid, saved.total_bytes
            );
            return Err(Unfit::new("clients", why));
        }
    }
    map_of(site, (saved, &request.machine), &own, process)
}

/// What a restored process has to get back, by its number and client id in the snapshot; none where nobody expects
/// it.
fn expected(site: &Site, process: Process, client: u64) -> Option<Vec<u64>> {
    let job = site.job_by_kernel(process)?;
    let number = proc::inner_number(process.pid)?;
    let mut saved = expected_of(site, job).clients.into_iter();
    let saved = saved.find(|saved| saved.pid == number && saved.client == client)?;
    Some(saved.owed)
}

fn expected_of(site: &Site, job: JobId) -> Expected {
    let text = std::fs::read(expecting_file(site, job)).unwrap_or_default();
    let saved = serde_json::from_slice(&text);
    // A broker of an older version wrote the clients alone.
    let saved = saved.or_else(|_| {
        let clients = serde_json::from_slice(&text)?;
        Ok::<_, serde_json::Error>(Expected {
            clients,
            deadline: None,
        })
    });
    saved.unwrap_or_default()
}

/// Why a restored job cannot come back yet.
pub(super) fn lacks(site: &Site, job: JobId) -> Option<String> {
    let missing = missing(site, job);
    let pids: Vec<String> = missing.iter().map(|saved| saved.pid.to_string()).collect();
    (!pids.is_empty()).then(|| {
        format!(
            "restored pid {} did not reach the broker at {}",
            pids.join(", "),
            site.directory.path().display()
        )
    })
}

fn missing(site: &Site, job: JobId) -> Vec<SavedClient> {
    let mut expected = expected_of(site, job).clients;
    if !expected.is_empty() {
        let of_job = site.clients.iter().filter(|(_, client)| client.job == job);
        let here: Vec<Option<u32>> = of_job
            .map(|(_, client)| proc::inner_number(client.process.pid))
            .collect();
        expected.retain(|saved| !here.contains(&Some(saved.pid)));
    }
    expected
}

/// What a restored process has to get back is owed to it.
///
/// # Errors
/// A sentence: nobody expects such a process.
pub(crate) fn owe(site: &Site, process: Process, hello: &Hello, line: LineIndex) -> Result<(), &'static str> {
    if hello.flags & HELLO_PARKED == 0 {
        return Ok(());
    }
    let owed = expected(site, process, hello.client)
        .ok_or("this process was restored, and no `partage restore` waits for it")?;
    for (slot, bytes) in owed.into_iter().enumerate() {
        site.clients.ledger.owed(line, slot).store(bytes, Ordering::SeqCst);
    }
    Ok(())
}

fn expecting_file(site: &Site, job: JobId) -> PathBuf {
    site.directory.snapshots().join(format!("{job}.expected"))
}
