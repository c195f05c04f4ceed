// SPDX-License-Identifier: Apache-2.0
//! Which event changes numbers, who is behind it, and what goes to the audit log.

use partage_policy::{Event, JobRecord};
use partage_protocol::units::JobId;
use tracing::error;

use super::state_driver::StateDriver;
use crate::watch::audit_log::{Author, Cause};

impl StateDriver {
    /// What numbers that change with this event change by.
    pub(super) fn cause_of(&self, event: &Event) -> Cause {
        let (what, by, is_admins) = match event {
            Event::Set { caller, change, .. } => {
                let by = Author {
                    uid: caller.uid,
                    pid: caller.process.pid,
                };
                let what = if change.is_forced { "set --force" } else { "set" };
                (what, Some(by), caller.is_admin)
            }
            Event::Rules(_) => ("reload", self.reading.by, true),
            Event::UserKnown { .. } => ("user-known", None, false),
            Event::Adopt(_) | Event::Devices { .. } => ("adopted", None, false),
            _ => ("broker", None, false),
        };
        Cause { what, by, is_admins }
    }

    /// A job's record is about to be another one.
    pub(super) fn audit_job(&mut self, new: &JobRecord) {
        let old = self.site.jobs.get(JobId(new.id));
        // Whoever asked for a job gets what is left of it, whatever event made room.
        let begun = || Cause {
            what: "admitted",
            by: new.first.map(|first| Author {
                uid: new.uid,
                pid: first.pid,
            }),
            is_admins: false,
        };
        let cause = if old.is_some() { self.cause.clone() } else { begun() };
        if let Err(error) = self.audit.job(old, new, &cause, self.site.now) {
            error!(%error, job = new.id, "a change of its numbers is not in the audit log");
        }
    }

    /// Classes and rules are others than these.
    pub(super) fn audit_rules(&mut self, old: &[String]) {
        let new = self.site.config.policy.rules.lines(None);
        if let Err(error) = self.audit.rules((old, &new), self.reading.by, self.site.now.unix_ns) {
            error!(%error, "a change of the rules is not in the audit log");
        }
    }
}
