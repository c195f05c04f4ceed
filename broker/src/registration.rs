// SPDX-License-Identifier: Apache-2.0
//! A process that did not ask for it becomes the first of a job, such as a container's before it runs a program of its
//! user. One way in for every runtime: `register`, a container's hook, a scheduler's prologue.
//!
//! Who may: root for any process; others for a process of their own uid, or of a user namespace that they own. Nobody
//! from inside a container: root there is not root of the host, whatever its number. The job owns the control group of
//! the container, or of an engine's job, so that whatever is in it is of the job (`site/kin.rs`).

use partage_policy::{Caller, Ceiling, Cgroup, EngineJob, Lowered, Process, Registration, Run, Ticket};
use partage_protocol::admin::{AtMost, ErrorCode, RegisterRequest, Reply, RunRequest};
use partage_protocol::message::TOKEN_BYTES;
use partage_protocol::units::{DeviceUuid, JobId};

use crate::host::{cgroups, proc};
use crate::peer::Peer;
use crate::site::{Site, error_view};

/// Longest id and name of a container, in bytes.
const LONGEST_NAME: usize = 256;

/// Longest words of an engine, in bytes.
const LONGEST_WORDS: usize = 128;

/// Why a registration is refused: what is told, and what to do.
pub(crate) type Refusal = (ErrorCode, String, &'static str);

/// A process that was registered.
#[derive(Debug)]
pub struct Registering {
    process: Process,
    /// The job's user.
    uid: u32,
    /// The caller may do what administrators may.
    is_admin: bool,
    registration: Registration,
    lowered: Lowered,
    /// The GPUs that it has, by the numbers of their nodes.
    nodes: Vec<u32>,
}

impl Registering {
    /// Is the process still there?
    pub(crate) fn lives(&self, site: &Site) -> bool {
        let stat = site.processes.stat(self.process.pid);
        stat.is_some_and(|stat| stat.id == self.process && !stat.is_exiting)
    }

    /// What the policy is to judge. Precondition: the devices are known.
    ///
    /// # Errors
    /// The devices that the process has are none of the machine's, or not told apart.
    pub(crate) fn into_run(
        self,
        site: &mut Site,
        (ticket, token): (Ticket, [u8; TOKEN_BYTES]),
        mut request: RunRequest,
    ) -> Result<Run, Refusal> {
        request.gpu = gpus_of(site, &self.nodes, request.gpu.as_deref())?;
        let (process, uid) = (self.process, self.uid);
        let caller = Caller {
            uid,
            user: site.users.name(uid),
            is_admin: self.is_admin,
            process,
            may_change_own: true,
            inside: None,
        };
        Ok(Run {
            ticket,
            caller,
            request,
            token,
            cgroup: site.processes.cgroup(process.pid),
            other_cgroups: site.other_cgroups(process.pid),
            groups: site.groups_of(process.pid, uid),
            unix_ns: site.now.unix_ns,
            registered: Some((self.registration, self.lowered)),
        })
    }
}

/// Judges who asks, and for which process.
///
/// # Errors
/// Why not.
pub(crate) fn judge(site: &Site, caller: &Caller, request: &RegisterRequest) -> Result<Registering, Refusal> {
    let theirs = site.processes.cgroups(caller.process.pid);
    check_registrar(site, caller, &theirs)?;
    let pid = request.pid;
    let stat = site.processes.stat(pid).filter(|stat| pid > 1 && !stat.is_exiting);
    let Some(stat) = stat else {
        let message = format!("no process {pid}");
        return Err((ErrorCode::NoTarget, message, "register a process while it runs"));
    };
    let owner = site.processes.uid(pid).unwrap_or(u32::MAX);
    let is_root = caller.uid == 0 && caller.may_change_own;
    let is_theirs = || owner == caller.uid || site.processes.is_in_namespace_of(pid, caller.uid);
    let may_register = is_root || caller.may_change_own && is_theirs();
    if !may_register {
        let message = format!("process {pid} is neither yours nor in a user namespace of yours");
        return Err((
            ErrorCode::NotAllowed,
            message,
            "register a process of your own, or ask root",
        ));
    }
    // Else a user of root's container could give its own processes there other numbers than root did.
    let by_root = site
        .job_by_kernel(stat.id)
        .filter(|job| is_registered_by_root(site, *job));
    if let Some(job) = by_root.filter(|_| !is_root) {
        let message = format!("process {pid} is of {job}, which root registered");
        return Err((ErrorCode::NotAllowed, message, "ask root"));
    }
    let known = site.clients.of_process(stat.id);
    let known = known.first().and_then(|id| site.clients.get(*id));
    if let Some(client) = known {
        let message = format!("process {pid} uses a GPU already, as {}", client.job);
        return Err((
            ErrorCode::Invalid,
            message,
            "register a process before it runs a program",
        ));
    }
    let (cgroup, container) = groups_of_container(site, pid, &theirs, request)?;
    let names = [&request.container, &request.container_name];
    if names.into_iter().flatten().any(|name| name.len() > LONGEST_NAME) {
        let message = format!("a container's id or name of more than {LONGEST_NAME} bytes");
        return Err((ErrorCode::Invalid, message, "name it as its runtime does"));
    }
    Ok(Registering {
        process: stat.id,
        uid: if is_root { owner } else { caller.uid },
        is_admin: is_root || caller.is_admin,
        registration: Registration {
            container: request.container.clone().unwrap_or(container),
            name: request.container_name.clone().unwrap_or_default(),
            cgroup,
            is_by_root: is_root,
            engine: engine_of(request)?,
        },
        lowered: Lowered {
            most_mem: request.lower_mem.clone(),
            most_compute: request.lower_compute.clone(),
            most_class: request.lower_class.clone(),
            at_most: most_of(&request.at_most),
        },
        nodes: request.nodes.clone(),
    })
}

/// The engine's job, as the request names it.
fn engine_of(request: &RegisterRequest) -> Result<EngineJob, Refusal> {
    let invalid = |message: String, hint| (ErrorCode::Invalid, message, hint);
    let words = request.engine_words.clone().unwrap_or_default();
    let Some(id) = request.engine.clone() else {
        let why = "--engine-words without --engine: whose words?".to_owned();
        return match words.as_str() {
            "" => Ok(EngineJob::default()),
            _ => Err(invalid(why, "name the engine's job, e.g. --engine slurm:4711")),
        };
    };
    if let Err(why) = EngineJob::check_id(&id) {
        let message = format!("--engine: {id:?} is no engine's job: {why}");
        return Err(invalid(message, "write ENGINE:ID, e.g. --engine slurm:4711"));
    }
    if words.len() > LONGEST_WORDS || words.chars().any(char::is_control) {
        let message = format!("--engine-words of more than {LONGEST_WORDS} bytes, or with control characters");
        return Err(invalid(
            message,
            "one short line, e.g. --engine-words \"shard:5 of 10\"",
        ));
    }
    Ok(EngineJob { id, words })
}

/// `--at-most` as the policy keeps it.
fn most_of(most: &AtMost) -> Ceiling {
    let terms = most.terms.clone();
    Ceiling {
        mem: most.mem.clone(),
        mem_request: most.mem_request.clone(),
        process_mem: most.process_mem.clone(),
        promise: terms.compute,
        cap: terms.compute_max,
        weight: terms.weight,
        priority: terms.priority,
        time_limit: terms.time_limit,
    }
}

fn is_registered_by_root(site: &Site, job: JobId) -> bool {
    let registration = site.jobs.get(job).and_then(|record| record.registration.as_ref());
    registration.is_some_and(|registration| registration.is_by_root)
}

/// May this caller register anything? Its numbers of processes are to be ours, and its root the host's.
fn check_registrar(site: &Site, caller: &Caller, theirs: &[Cgroup]) -> Result<(), Refusal> {
    let pid = caller.process.pid;
    let ours = proc::namespace(std::process::id());
    if ours.is_none() || ours != proc::namespace(pid) {
        let message = "this process numbers processes otherwise than the broker: another pid namespace".to_owned();
        return Err((ErrorCode::NotAllowed, message, "register it outside the container"));
    }
    let own = cgroups::container(&site.processes.cgroups(std::process::id()));
    let is_in_container = cgroups::container(theirs).is_some_and(|found| Some(&found) != own.as_ref());
    if is_in_container {
        let message = "this is inside a container: from there nothing is registered".to_owned();
        return Err((ErrorCode::NotAllowed, message, "register it outside the container"));
    }
    Ok(())
}

/// The control group that the job is to own, and the container's id where a path tells it.
fn groups_of_container(
    site: &Site,
    pid: u32,
    theirs: &[Cgroup],
    request: &RegisterRequest,
) -> Result<(Option<Cgroup>, String), Refusal> {
    let groups = site.processes.cgroups(pid);
    let id = cgroups::container(&groups).map_or_else(String::new, |found| found.id);
    let Some(path) = request.cgroup.as_deref() else {
        return Ok((cgroups::own(&groups, theirs), id));
    };
    match cgroups::of_path(&groups, path.trim_end_matches('/')) {
        Some(group) if group.path.starts_with('/') => Ok((Some(group), id)),
        _ => {
            let message = format!("process {pid} is not in the control group {path}");
            Err((
                ErrorCode::Invalid,
                message,
                "see /proc/PID/cgroup; without --cgroup its own is taken",
            ))
        }
    }
}

/// The devices behind these nodes, as `--gpu` names them; without nodes what was asked, where `all` is every one.
fn gpus_of(site: &Site, nodes: &[u32], asked: Option<&str>) -> Result<Option<String>, Refusal> {
    let mut devices: Vec<(u32, &DeviceUuid, Option<u32>)> = site
        .devices
        .list()
        .iter()
        .map(|(uuid, facts)| (facts.index, uuid, facts.minor))
        .collect();
    devices.sort_unstable_by_key(|(index, ..)| *index);
    let list = |found: Vec<String>| Some(found.join(","));
    let asked = asked.filter(|text| !text.is_empty());
    if nodes.is_empty() {
        let every = || devices.iter().map(|(_, uuid, _)| uuid.to_string()).collect();
        return Ok(match asked {
            Some("all") => list(every()),
            asked => asked.map(str::to_owned),
        });
    }
    let mut found = Vec::new();
    for node in nodes {
        let mut behind = devices.iter().filter(|(.., minor)| *minor == Some(*node));
        match (behind.next(), behind.next()) {
            (Some((_, uuid, _)), None) => found.push(uuid.to_string()),
            (None, _) => {
                let message = format!("the container has /dev/nvidia{node}, behind which the broker sees no GPU");
                return Err((ErrorCode::Invalid, message, "partage status lists the GPUs"));
            }
            // One node for all instances of a divided GPU: only names tell them apart.
            (Some(_), Some(_)) => match asked.filter(|text| *text != "all") {
                Some(names) => return Ok(Some(names.to_owned())),
                None => {
                    let message = format!("/dev/nvidia{node} is divided into MIG instances");
                    return Err((
                        ErrorCode::Invalid,
                        message,
                        "name the container's instances: --gpu MIG-...",
                    ));
                }
            },
        }
    }
    found.dedup();
    Ok(list(found))
}

/// A runtime inside a container, or an engine inside a job, starts another one: that one stays in the job.
pub(crate) fn inside(site: &Site, peer: &Peer, caller: &Caller, (job, pid): (JobId, u32)) -> Reply {
    let own = proc::namespace(peer.pid);
    // The caller's number of it may be another one than ours: what is told of it is told of no other process.
    let is_ours = own.is_some() && own == proc::namespace(std::process::id());
    let stat = site.processes.stat(pid).filter(|_| is_ours);
    let is_of_job = stat.is_none_or(|stat| site.job_by_kernel(stat.id) == Some(job));
    let view = site.policy.job_view(job, caller, &site.clients);
    match view.filter(|_| is_of_job) {
        Some(view) => Reply::Inside(Box::new(view)),
        None => {
            let message = format!("this is inside {job}, which was registered: from there no other process is");
            Reply::Error(error_view(
                ErrorCode::NotAllowed,
                message,
                Some("register it outside its container or control group"),
            ))
        }
    }
}
