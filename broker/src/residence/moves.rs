// SPDX-License-Identifier: Apache-2.0
//! `partage migrate`: one job to another device.

use partage_policy::{Access, Caller, Obstacle, Patience, TargetQuery, Ticket, driver_answered};
use partage_protocol::admin::{ErrorCode, Reply};
use partage_protocol::units::JobId;

use super::answers::refuse_way;
use super::code;
use super::engine::Engine;
use super::facts::{residence_of, waits_to_start};
use super::maps::{is_masked, map_refused};
use super::steps::ask_state;
use super::way::{Leaving, Phase, Purpose, Way};
use crate::host::checkpoint::{Answer, Outcome};
use crate::site::{Site, error_view};

impl Engine {
    /// `partage migrate TARGET --to GPU`.
    pub(super) fn migrate(
        &mut self,
        site: &mut Site,
        (ticket, patience): (Ticket, Patience),
        caller: &Caller,
        target: &TargetQuery,
        (from, to, is_dry): (Option<&str>, &str, bool),
    ) {
        let found = site.policy.resolve(target, caller, Access::Change);
        let found = found.and_then(|job| Ok((job, site.policy.exchange(job, from, to)?)));
        let (job, exchange) = match found {
            Ok(found) => found,
            Err(why) => return site.answer_ticket(ticket, Reply::Error(why.view())),
        };
        if let Some(way) = self.ways.by_job.get(&job) {
            let residence = residence_of(site, job);
            let under_way = way.under_way(residence);
            return refuse_way(site, ticket, &[Obstacle::NotHere(job, under_way)]);
        }
        if waits_to_start(site, job) {
            let message = format!("{job} waits in the queue to start: there is nothing to move");
            return site.deny_ticket(ticket, ErrorCode::Failed, message, None);
        }
        let purpose = Purpose::Move(exchange);
        if !is_dry {
            return self.begin_to_leave(site, job, Leaving::asked(purpose, (ticket, patience)));
        }
        let reply = match self.why_not(site, job, purpose) {
            Some(why_not) => Reply::Error(why_not),
            None => Reply::Move(site.policy.move_view(job, exchange, &site.clients)),
        };
        site.answer_ticket(ticket, reply);
    }

    /// What became of the try.
    pub(super) fn take_map(&mut self, site: &mut Site, job: JobId, mut way: Way, outcome: &Outcome) {
        let Phase::Trying { left } = &mut way.phase else {
            return;
        };
        let left = std::mem::take(left);
        let why_not = match outcome {
            Outcome::Answered(Answer::Done) => {
                self.ways.maps.insert(is_masked(site, job), true);
                None
            }
            Outcome::Answered(Answer::Code(code::INVALID_VALUE)) => {
                self.ways.maps.insert(is_masked(site, job), false);
                Some(map_refused(site, job))
            }
            other => {
                let why = match other {
                    Outcome::Answered(Answer::Code(code)) => driver_answered(*code),
                    Outcome::Answered(Answer::NoDriver(why)) | Outcome::Failed(why) => why.clone(),
                    Outcome::Answered(other) => format!("the helper answered {other:?}"),
                    Outcome::Late => "no answer in time".to_owned(),
                };
                let message = format!("whether this driver moves processes could not be tried: {why}");
                Some(error_view(ErrorCode::Failed, message, None))
            }
        };
        match (why_not, left.first().copied()) {
            (None, Some(first)) => {
                way.phase = Phase::asking(left);
                self.ways.by_job.insert(job, way);
                ask_state(site, job, first);
            }
            (why_not, _) => {
                let why_not = why_not.unwrap_or_else(|| map_refused(site, job));
                self.not_begun(site, job, (way.purpose, &way.tickets), &why_not);
            }
        }
    }
}
