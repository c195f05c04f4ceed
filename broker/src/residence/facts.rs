// SPDX-License-Identifier: Apache-2.0
//! What may keep a job from leaving its devices, as the broker finds it.

use std::collections::BTreeMap;

use partage_policy::{HostRoom, JobFacts, Obstacle, Process, ProcessFacts, Residence};
use partage_protocol::snapshot::SavedEvery;
use partage_protocol::units::{DeviceUuid, JobId};

use super::engine::Engine;
use super::holds::ties_of;
use crate::helper::process::User;
use crate::host::host_memory;
use crate::site::Site;
use crate::state::clients::Client;

/// The MPS server's name, cut to 15 bytes by the kernel.
const MPS_NAME: &str = "nvidia-cuda-mps";

impl Engine {
    /// Everything that is known of a job before it leaves, or moves to a device.
    pub(super) fn job_facts(&self, site: &Site, job: JobId, to: Option<DeviceUuid>) -> JobFacts {
        let mut processes: BTreeMap<Process, ProcessFacts> = BTreeMap::new();
        for process in processes_with_library(site, job) {
            let lacks_node = to.filter(|to| !sees(site, process, *to)).and_then(|to| node(site, to));
            let facts = process_facts(site, process);
            processes.insert(process, ProcessFacts { lacks_node, ..facts });
        }
        for process in unmanaged_of(site, job) {
            processes.entry(process).or_insert(ProcessFacts {
                process,
                uid: site.processes.uid(process.pid).unwrap_or(0),
                is_stopped: false,
                has_library: false,
                is_unreachable: false,
                is_away: false,
                is_uncounted: false,
                ties: Vec::new(),
                lacks_node: None,
            });
        }
        let devices = site.jobs.devices(job);
        let uid = site.policy.owner(job).unwrap_or(0);
        let me = nix::unistd::geteuid().as_raw();
        let host = processes.keys().map(|process| host_memory::room(process.pid));
        let host = host.chain(devices.iter().filter_map(|device| shared_room(site, *device)));
        let no_bound = HostRoom {
            available: u64::MAX,
            cgroup: None,
        };
        let mig = devices.iter().find(|device| device.is_mig);
        JobFacts {
            job,
            uid,
            residence: residence_of(site, job),
            driver_level: devices.first().and_then(|device| driver_level(site, *device)),
            mig: mig.map(ToString::to_string),
            has_mps: devices.iter().any(|device| has_mps(site, *device)),
            can_act_as_owner: me == 0 || me == uid,
            bytes: site.policy.returning_bytes(job, &site.clients),
            host: self.less_the_leaving(site, job, host.fold(no_bound, tighter)),
            processes: processes.into_values().collect(),
        }
    }

    /// What other jobs that are leaving at the moment will take of it is no room.
    fn less_the_leaving(&self, site: &Site, job: JobId, room: HostRoom) -> HostRoom {
        let others = self.ways.leaving().filter(|other| *other != job);
        let bytes = others.fold(0, |sum: u64, other| {
            sum.saturating_add(site.policy.returning_bytes(other, &site.clients))
        });
        HostRoom {
            available: room.available.saturating_sub(bytes),
            ..room
        }
    }

    /// What ties a job's processes to their devices by now, in words.
    pub(super) fn tied(&self, site: &Site, job: JobId) -> Option<String> {
        let facts = self.job_facts(site, job, None);
        let found = facts.processes.into_iter().find_map(|process| {
            let pid = process.process.pid;
            let ties = Some(process.ties).filter(|ties| !ties.is_empty());
            let tied = ties.map(|ties| Obstacle::Tied(pid, ties));
            tied.or_else(|| process.is_uncounted.then_some(Obstacle::Uncounted(pid)))
        });
        found.map(|obstacle| obstacle.to_string())
    }
}

/// Where the books have a job.
pub(super) fn residence_of(site: &Site, job: JobId) -> Residence {
    let mark = site.policy.residence(job);
    mark.map_or(Residence::Here, |mark| mark.residence)
}

/// The processes of a job that have the library.
pub(super) fn processes_with_library(site: &Site, job: JobId) -> Vec<Process> {
    let alive = site.clients.alive_of(job);
    let mut processes: Vec<Process> = alive.map(|(_, client)| client.process).collect();
    processes.sort_unstable();
    processes.dedup();
    processes.retain(|process| {
        let stat = site.processes.stat(process.pid);
        stat.is_some_and(|stat| stat.id == *process && !stat.is_exiting)
    });
    processes
}

/// What is free of a device that has no memory of its own: what leaves it stays in the same memory.
fn shared_room(site: &Site, device: DeviceUuid) -> Option<HostRoom> {
    site.devices.list().get(&device).filter(|facts| facts.is_unified)?;
    Some(HostRoom {
        available: site.devices.sample_since(device, 0)?.free,
        cgroup: None,
    })
}

fn process_facts(site: &Site, process: Process) -> ProcessFacts {
    let is_of_it = |client: &&Client| client.process == process && client.dying.is_none();
    let clients: Vec<&Client> = site.clients.iter().map(|(_, client)| client).filter(is_of_it).collect();
    let seen = clients.iter().filter_map(|client| client.pages.as_deref()).map(ties_of);
    let (mut ties, mut is_uncounted) = (Vec::new(), false);
    for (of_client, uncounted) in seen {
        ties.extend(of_client);
        is_uncounted |= uncounted;
    }
    ties.sort_unstable();
    ties.dedup();
    ProcessFacts {
        process,
        uid: clients.first().map_or(0, |client| client.uid),
        is_stopped: site.processes.stat(process.pid).is_some_and(|stat| stat.is_stopped),
        has_library: true,
        is_unreachable: clients
            .iter()
            .any(|client| client.pages.is_none() && client.connection.is_some()),
        is_away: clients.iter().any(|client| client.connection.is_none()),
        is_uncounted,
        ties,
        lacks_node: None,
    }
}

/// The file of a device, where NVML tells its number.
fn node(site: &Site, device: DeviceUuid) -> Option<String> {
    let minor = site.devices.list().get(&device)?.minor?;
    Some(format!("/dev/nvidia{minor}"))
}

/// Does the kernel show a device to a process?
fn sees(site: &Site, process: Process, device: DeviceUuid) -> bool {
    node(site, device).is_none_or(|node| site.processes.has_file(process.pid, &node))
}

/// Every whole device that the kernel shows to a process.
pub(super) fn shown_to(site: &Site, process: Process) -> Vec<DeviceUuid> {
    let all = site.devices.list().keys().copied();
    all.filter(|device| !device.is_mig && sees(site, process, *device))
        .collect()
}

/// For a restore that exchanges two devices: every device that the kernel shows to the process, whether it masked
/// it or not, with the one that it becomes. A driver takes no other map.
pub(super) fn whole_map(site: &Site, process: Process, (old, new): (DeviceUuid, DeviceUuid)) -> Vec<(String, String)> {
    let shown = shown_to(site, process).into_iter();
    let becomes = |device: DeviceUuid| match device {
        device if device == old => new,
        device if device == new => old,
        device => device,
    };
    shown
        .map(|device| (device.to_string(), becomes(device).to_string()))
        .collect()
}

/// Processes of the job that use its devices without the library.
fn unmanaged_of(site: &Site, job: JobId) -> Vec<Process> {
    let devices = site.jobs.devices(job);
    let shown = devices.iter().flat_map(|device| site.devices.shown_on(*device));
    let stats = shown.filter_map(|pid| site.processes.stat(pid));
    let is_unmanaged =
        |process: &Process| site.clients.of_process(*process).is_empty() && site.job_by_kernel(*process) == Some(job);
    stats.map(|stat| stat.id).filter(is_unmanaged).collect()
}

/// The branch of a device's driver, where NVML tells its version (`580.65.06`).
fn driver_level(site: &Site, device: DeviceUuid) -> Option<u32> {
    site.devices.list().get(&device)?.driver.split('.').next()?.parse().ok()
}

fn has_mps(site: &Site, device: DeviceUuid) -> bool {
    let mut shown = site.devices.shown_on(device).into_iter();
    shown.any(|pid| site.processes.name(pid).is_some_and(|name| name == MPS_NAME))
}

/// As whom the driver is asked about a process of a job.
pub(super) fn user_of(site: &Site, job: JobId, process: Process) -> User {
    let clients = site.clients.of_process(process);
    let client = clients.first().and_then(|id| site.clients.get(*id));
    // One whose client was forgotten meanwhile is still the job's.
    let uid = client.map(|client| client.uid).or_else(|| site.policy.owner(job));
    match uid {
        Some(uid) if uid != User::own().uid => User {
            uid,
            gid: site.processes.gid(process.pid).unwrap_or(uid),
            groups: site.processes.groups(process.pid),
        },
        _ => User::own(),
    }
}

/// The tighter of two rooms in each respect: processes of one job may be in several cgroups.
fn tighter(one: HostRoom, other: HostRoom) -> HostRoom {
    let left = |cgroup: &(String, u64, u64)| cgroup.1.saturating_sub(cgroup.2);
    let both = one.cgroup.into_iter().chain(other.cgroup);
    HostRoom {
        available: one.available.min(other.available),
        cgroup: both.min_by_key(left),
    }
}

pub(super) fn waits_to_start(site: &Site, job: JobId) -> bool {
    residence_of(site, job) == Residence::Here && site.policy.queue().any(|waiting| waiting == job)
}

pub(super) fn saved_every(site: &Site, job: JobId) -> Option<&SavedEvery> {
    site.jobs.get(job)?.asked.saved.as_ref()
}
