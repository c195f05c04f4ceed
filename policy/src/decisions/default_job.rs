// SPDX-License-Identifier: Apache-2.0
//! Default jobs: for processes that loaded the library outside `partage run`.
//!
//! Processes of one user, one login scope or container and one *environment* (what their variables ask for) share a
//! default job: every device that they can open, nothing promised, the limits that the environment gives. An
//! environment can only lower limits, and only for its own processes: another environment gets another default job. A
//! rule may give its preset to a user instead of a scope, and then scopes do not matter; or to each process, and then
//! each whose parents are no clients has a job of its own. What the preset allows, all jobs of the scope or user have
//! together.
//!
//! Variables that cannot be followed never mean "no limit": of a list that names an unknown device the lowest entry
//! holds everywhere, and what cannot be read at all leaves no memory; a note says so.

use partage_protocol::job_ledger::JobLedger;
use partage_protocol::units::JobId;

use super::Policy;
use super::time_limit::time_limit_at;
use crate::action::Action;
use crate::event::Attaching;
use crate::job::{Job, JobRecord, Life, Placement, Slot};
use crate::machine::Machine;
use crate::notice::{Figures, Notice};
use crate::residence::ResidenceRecord;
use crate::rules::{Asked, Judge};

impl Policy {
    /// A process that belongs to no job gets the default class: every device that it can open, no promise.
    pub(crate) fn begin_default_job<M: Machine>(
        &mut self,
        attaching: &Attaching,
        machine: &M,
        now_ns: u64,
    ) -> Result<JobId, String> {
        let facts = attaching.facts();
        let judge = Judge::of_accepted(&self.books.config.rules, self.books.config.max_class, &facts, None);
        let totals = self.books.config.rules.totals_of(&facts);
        let (devices, note) = self.default_places(&attaching.membership, &totals, &judge)?;
        let (asked_terms, terms_note) = self.default_terms(&attaching.membership);
        let terms = judge.terms(&asked_terms).map_err(|why| why.to_string())?;
        let id = self.books.jobs.take_number();
        let record = JobRecord {
            id: id.0,
            uid: attaching.uid,
            user: attaching.user.clone(),
            name: None,
            labels: Vec::new(),
            command: Vec::new(),
            first: None,
            token: attaching.fresh_token,
            cgroup: None,
            default_scope: Some(attaching.membership.scope.clone()),
            environment: self.key_of(&attaching.membership),
            is_strict: judge.is_strict(),
            is_quiet: true,
            devices: devices.clone(),
            terms,
            asked: Asked {
                terms: Some(asked_terms),
                facts: Some(facts),
                ..Asked::default()
            },
            started_unix_ns: attaching.unix_ns,
            residence: ResidenceRecord::default(),
            registration: None,
        };
        let mut job = Job::new(record.clone(), Life::running());
        let slot = |place: &Placement| Slot::new(JobLedger::new(self.limit_of(place.device, place.limit), 0));
        job.begin(devices.iter().map(slot).collect());
        let limit_ns = record.terms.time_limit_ns;
        job.set_time_limit_at(time_limit_at(&record, limit_ns, attaching.unix_ns, now_ns));
        for note in note.iter().chain(&terms_note) {
            job.note(note);
        }
        self.add_job(job);
        for place in &devices {
            self.share_headroom(place.device, machine, now_ns);
        }
        self.act(Action::SaveJob(Box::new(record)));
        self.show_terms(id);
        let pid = attaching.process.pid;
        let mut places = devices.iter();
        let limited = places.find_map(|place| Some((place.origin.limit.clone(), place.limit?)));
        let what = match limited {
            Some((words, limit)) => Notice::DefaultLimited(id, pid, words, limit),
            None => Notice::Default(id, pid),
        };
        self.publish_numbers("job-admitted", (Some(id), Some(pid)), what, Figures::Job);
        for note in note.into_iter().chain(terms_note) {
            self.publish("notice", Some(id), Some(pid), note);
        }
        Ok(id)
    }
}
