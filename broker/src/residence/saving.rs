// SPDX-License-Identifier: Apache-2.0
//! `partage checkpoint`: what has to be so before a job is saved.

use std::path::Path;

use partage_policy::{Access, Caller, Obstacle, Patience, Process, Residence, TargetQuery, Ticket};
use partage_protocol::admin::{ErrorCode, Reply};
use partage_protocol::units::JobId;

use super::engine::Engine;
use super::facts::{processes_with_library, residence_of};
use super::way::{Leaving, Purpose, SaveTo};
use super::written::is_being_written;
use crate::host::proc::with_descendants;
use crate::host::{proc, tasks};
use crate::kind::Kind;
use crate::site::Site;
use crate::snapshot::folder::Folder;
use crate::snapshot::{criu, open_files, sockets, store};

impl Engine {
    /// `partage checkpoint`.
    pub(super) fn save(
        &mut self,
        site: &mut Site,
        (ticket, patience): (Ticket, Patience),
        caller: &Caller,
        target: &TargetQuery,
        to: SaveTo,
    ) {
        let job = match site.policy.resolve(target, caller, Access::Change) {
            Ok(job) => job,
            Err(why) => return site.answer_ticket(ticket, Reply::Error(why.view())),
        };
        let begun = may_save(site, caller, Some(job), &to.folder)
            .and_then(|()| self.begin_to_save(site, job, to, Leaving::asked(Purpose::Save, (ticket, patience))));
        if let Err((code, message)) = begun {
            site.deny_ticket(ticket, code, message, None);
        }
    }

    /// Begins to save a job, unless something else is under way with it or CRIU would refuse it.
    pub(super) fn begin_to_save(
        &mut self,
        site: &mut Site,
        job: JobId,
        to: SaveTo,
        leaving: Leaving,
    ) -> Result<(), (ErrorCode, String)> {
        let is_saved = self.ways.by_job.get(&job).is_some_and(|way| way.save_to.is_some());
        if is_saved || is_being_written(site, job) {
            let busy = format!("a snapshot of {job} is being written: try again when it is whole (partage events -f)");
            return Err((ErrorCode::Failed, busy));
        }
        if self.ways.has(job) {
            let residence = match residence_of(site, job) {
                // What is under way ends in a moment.
                Residence::Here => Residence::Coming,
                elsewhere => elsewhere,
            };
            let busy = Obstacle::NotHere(job, residence).to_string();
            return Err((ErrorCode::Failed, busy));
        }
        let first = tree_of(site, job).map_err(|message| (ErrorCode::Failed, message))?;
        let tree = with_descendants(&*site.processes, &[first.pid].into());
        let planned = sockets::plan(&tree, first.pid, to.outside);
        planned.map_err(|found| (ErrorCode::Failed, sockets::remedy(&found, &job.to_string(), &to.folder)))?;
        open_files::refuse_too_large(first.pid, to.files_max)
            .map_err(|why| (ErrorCode::Failed, format!("{job} is not saved: {why}")))?;
        let is_managed = site.directory.kind() == Kind::Managed;
        let to = SaveTo {
            // A host's broker runs what the host has.
            criu: to.criu.clone().filter(|_| !is_managed).or_else(|| criu::find().ok()),
            ..to
        };
        self.begin_to_leave(site, job, leaving);
        if let Some(way) = self.ways.by_job.get_mut(&job) {
            way.save_to = Some(to);
        }
        Ok(())
    }
}

/// May the caller have a job (one that is to begin: none) saved in this folder?
///
/// # Errors
/// The code, and a sentence.
pub(crate) fn may_save(
    site: &Site,
    caller: &Caller,
    job: Option<JobId>,
    folder: &Path,
) -> Result<(), (ErrorCode, String)> {
    let name = job.map_or_else(|| "a job".to_owned(), |job| job.to_string());
    let me = nix::unistd::geteuid().as_raw();
    let owner = job.and_then(|job| site.policy.owner(job)).unwrap_or(caller.uid);
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
    let is_managed = site.directory.kind() == Kind::Managed;
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

/// The first process of the tree that CRIU is to dump, with what can be told in advance of what it would refuse.
pub(super) fn tree_of(site: &Site, job: JobId) -> Result<Process, String> {
    let first = site.jobs.get(job).and_then(|record| record.first);
    let first = first.filter(|first| site.processes.stat(first.pid).is_some_and(|stat| stat.id == *first));
    let first = first.ok_or_else(|| format!("the first process of {job} has ended, and its others are no tree"))?;
    let (first, remedy) = match site.jobs.get(job).and_then(|record| record.asked.restored_root) {
        Some(number) => (restored_root(site, job, first, number)?, "restore it with --detach"),
        None if has_own_namespace(first) => {
            return Err(format!(
                "{job} has a pid or mount namespace of its own (a container, a unit with PrivateTmp=), and a \
                 restore would find other files"
            ));
        }
        None => (first, "start it with setsid partage run"),
    };
    let tree = with_descendants(&*site.processes, &[first.pid].into());
    for process in processes_with_library(site, job) {
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
fn restored_root(site: &Site, job: JobId, restore: Process, number: u32) -> Result<Process, String> {
    let below = with_descendants(&*site.processes, &[restore.pid].into());
    let is_its_child = |pid: &u32| site.processes.stat(*pid).is_some_and(|stat| stat.parent == restore.pid);
    let is_inside = |pid: &u32| proc::foreign_namespace(*pid, "pid").is_some();
    let keeper = below.iter().find(|pid| is_its_child(pid) && is_inside(pid));
    let namespace = keeper.and_then(|pid| proc::namespace(*pid));
    // A job may have made namespaces within that one.
    let mut of_it = below
        .iter()
        .filter(|pid| namespace.is_some() && proc::namespace(**pid) == namespace);
    let found = of_it.find(|pid| proc::inner_number(**pid) == Some(number));
    let found = found.and_then(|pid| site.processes.stat(*pid));
    found
        .map(|stat| stat.id)
        .ok_or_else(|| format!("the first process of {job}, {number} in its own pid namespace, has ended"))
}

/// Has a process a pid or mount namespace that is not the broker's?
fn has_own_namespace(process: Process) -> bool {
    let mut kinds = ["pid", "mnt"].iter();
    kinds.any(|kind| proc::foreign_namespace(process.pid, kind).is_some())
}
