// SPDX-License-Identifier: Apache-2.0
//! Which job a TARGET means, and whether the caller may change it.
//!
//! `1234` (a pid stands for its whole job), `j42`, a name of one's own, `alice/train`, `@alice`, `container:ID`
//! (or the beginning of one), `cgroup:/…`, `slurm:4711` (an engine's own id of a job that it registered). More than
//! one match is an error that lists them. Current jobs hide ended ones: an ended job is meant only by its id, or by a
//! name that no current job has. Everybody may read; names are shown to their owner and to administrators only; only
//! the owner or an administrator may change a job.

mod attaching;
mod default_job;
mod judged;

use partage_protocol::units::JobId;

use crate::books::Books;
use crate::caller::{Caller, Process};
use crate::event::TargetQuery;
use crate::job::Job;
use crate::refusal::{Refusal, Why};
use crate::registration::EngineJob;
use crate::request::job_number;

/// What a caller wants with a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read; ended jobs answer too.
    Look,
    /// Change or end it.
    Change,
}

impl Books {
    /// Finds the one job that is meant.
    ///
    /// # Errors
    /// `NoTarget`, `Ambiguous`, `NotAllowed`, or `Invalid` for a text that is no target.
    pub fn resolve(&self, query: &TargetQuery, caller: &Caller, access: Access) -> Result<JobId, Refusal> {
        let text = query.text.as_str();
        let matching = self.matching(query, caller)?;
        let (current, ended): (Vec<&Job>, Vec<&Job>) = matching.into_iter().partition(|job| job.state().takes_name());
        let candidates = if current.is_empty() && access == Access::Look {
            &ended
        } else {
            &current
        };
        let job = match candidates.as_slice() {
            [job] => *job,
            [] if !ended.is_empty() => return Err(Why::Ended(ended.iter().map(|job| job.id()).collect()).into()),
            [] => return Err(Why::NoJob(text.to_owned()).into()),
            // The newest of several ended jobs of one name is what "why did train fail" means.
            several if std::ptr::eq(candidates, &ended) => match several.iter().max_by_key(|job| job.record.id) {
                Some(job) => *job,
                None => return Err(Why::NoJob(text.to_owned()).into()),
            },
            several => {
                let names = several.iter().map(|job| self.name_for(job, caller)).collect();
                return Err(Why::Several(text.to_owned(), names).into());
            }
        };
        if access == Access::Change && !may_change(job, caller) {
            return Err(match caller.inside {
                Some(inside) => Why::Inside(inside),
                None if may_see(job, caller) => Why::BelongsOutside(job.id(), job.record.user.clone()),
                None => Why::Belongs(job.id(), job.record.user.clone()),
            }
            .into());
        }
        Ok(job.id())
    }

    fn matching(&self, query: &TargetQuery, caller: &Caller) -> Result<Vec<&Job>, Refusal> {
        let text = query.text.as_str();
        let select = |is_it: &dyn Fn(&Job) -> bool| self.jobs.values().filter(|job| is_it(job)).collect::<Vec<_>>();
        if text.starts_with(|c: char| c.is_ascii_digit()) && !text.contains('/') {
            let pid: u32 = text.parse().map_err(|_| Why::NoPid(text.to_owned()))?;
            return Ok(self.of_pid(pid, query.descends_from));
        }
        if let Some(number) = job_number(text) {
            return Ok(select(&|job| job.record.id == number));
        }
        if let Some(user) = text.strip_prefix('@') {
            return Ok(select(&|job| is_user(job, user) && !job.state().is_over()));
        }
        if let Some(called) = text.strip_prefix("container:") {
            let of = |job: &Job| job.record.registration.clone().unwrap_or_default();
            let is_named = |job: &Job| !called.is_empty() && may_see(job, caller) && of(job).name == called;
            let begins = |job: &Job| !called.is_empty() && of(job).container.starts_with(called);
            // One that is named whole is meant, whatever other ids begin so.
            let exact = select(&|job| is_named(job) || begins(job) && of(job).container.len() == called.len());
            return Ok(if exact.is_empty() { select(&begins) } else { exact });
        }
        if let Some(path) = text.strip_prefix("cgroup:") {
            return Ok(select(&|job| job.record.cgroup.as_deref() == Some(path)));
        }
        if text.starts_with("process:") {
            return Err(Why::ProcessAlone(text.to_owned()).into());
        }
        if EngineJob::check_id(text).is_ok() {
            let of = |job: &Job| {
                job.record
                    .registration
                    .as_ref()
                    .is_some_and(|one| one.engine.id == text)
            };
            let by_root = |job: &Job| of(job) && job.record.facts().ceiling.is_some();
            // What a user calls so keeps nobody from meaning the engine's own.
            let known = select(&by_root);
            return Ok(if known.is_empty() { select(&of) } else { known });
        }
        if let Some((kind, _)) = text.split_once(':') {
            return Err(Why::TargetKind(kind.to_owned()).into());
        }
        let (user, name) = match text.split_once('/') {
            Some((user, name)) => (Some(user), name),
            None => (None, text),
        };
        let is_named = |job: &Job| job.record.name.as_deref() == Some(name) && may_see(job, caller);
        match user {
            Some(user) => Ok(select(&|job| is_named(job) && is_user(job, user))),
            None => {
                // One's own job comes before another user's of the same name, whom an administrator could also mean.
                let own = select(&|job| is_named(job) && job.record.uid == caller.uid);
                Ok(if own.is_empty() { select(&is_named) } else { own })
            }
        }
    }

    fn of_pid(&self, pid: u32, descends_from: Option<JobId>) -> Vec<&Job> {
        let is_first = |job: &&Job| {
            job.state().takes_name() && job.is_first_alive && job.record.first.is_some_and(|first| first.pid == pid)
        };
        let by_client = self
            .clients
            .values()
            .find(|client| client.process.pid == pid)
            .map(|client| client.job);
        let id = self
            .jobs
            .values()
            .find(is_first)
            .map(Job::id)
            .or(by_client)
            .or(descends_from);
        id.and_then(|id| self.jobs.get(&id)).into_iter().collect()
    }

    /// The client that is meant by a pid, and its job, which the caller may change.
    ///
    /// # Errors
    /// `NoTarget` where no such process has attached, and as [`Books::resolve`].
    pub(crate) fn client_of_pid(&self, pid: &str, caller: &Caller) -> Result<(JobId, Process), Refusal> {
        let nobody = || Why::NotAttached(pid.to_owned());
        let number: u32 = pid.parse().map_err(|_| nobody())?;
        let mut clients = self.clients.values();
        let client = clients.find(|client| client.process.pid == number).ok_or_else(nobody)?;
        let target = TargetQuery {
            text: client.job.to_string(),
            descends_from: None,
        };
        Ok((self.resolve(&target, caller, Access::Change)?, client.process))
    }

    /// A holder (`j42`, `pid 77`) as `caller` may know it: `j42 (alice/train)`, `j42 (alice)`.
    pub(crate) fn holder_name(&self, who: &str, caller: &Caller) -> String {
        let job = job_number(who).and_then(|number| self.jobs.get(&JobId(number)));
        job.map_or_else(|| who.to_owned(), |job| self.name_for(job, caller))
    }

    fn name_for(&self, job: &Job, caller: &Caller) -> String {
        match &job.record.name {
            Some(name) if may_see(job, caller) => format!("{} ({}/{name})", job.id(), job.record.user),
            _ => format!("{} ({})", job.id(), job.record.user),
        }
    }
}

fn is_user(job: &Job, user: &str) -> bool {
    job.record.user == user || user.parse() == Ok(job.record.uid)
}

/// May the caller change the job?
fn may_change(job: &Job, caller: &Caller) -> bool {
    caller.inside.is_none() && may_see(job, caller) && (caller.is_admin || caller.may_change_own)
}

/// May the caller see the job's name and command? Whoever is in a container sees that container's job,
/// whatever its uid is: root in one is not root of the host.
pub(crate) fn may_see(job: &Job, caller: &Caller) -> bool {
    match caller.inside {
        Some(inside) => inside == job.id(),
        None => caller.is_admin || caller.uid == job.record.uid,
    }
}
