// SPDX-License-Identifier: Apache-2.0
//! `partage migrate`: one job to another device.

use partage_policy::{Access, Caller, Obstacle, Residence, TargetQuery, Ticket};
use partage_protocol::admin::{ErrorCode, Reply};

use super::way::Purpose;
use crate::clock::Now;
use crate::driver::requests::error_view;
use crate::driver::state_driver::StateDriver;

impl StateDriver {
    /// `partage migrate TARGET --to GPU`.
    pub(super) fn migrate(
        &mut self,
        ticket: Ticket,
        caller: &Caller,
        target: &TargetQuery,
        (from, to, is_dry): (Option<&str>, &str, bool),
        now: Now,
    ) {
        let found = self.policy.resolve(target, caller, Access::Change);
        let found = found.and_then(|job| Ok((job, self.policy.exchange(job, from, to)?)));
        let (job, exchange) = match found {
            Ok(found) => found,
            Err(why) => return self.answer_ticket(ticket, Reply::Error(why)),
        };
        if let Some(way) = self.ways.by_job.get(&job) {
            let residence = self
                .policy
                .residence(job)
                .map_or(Residence::Here, |mark| mark.residence);
            let under_way = way.under_way(residence);
            return self.refuse_way(ticket, &[Obstacle::NotHere(job, under_way)]);
        }
        if self.waits_to_start(job) {
            let message = format!("{job} waits in the queue to start: there is nothing to move");
            return self.answer_ticket(ticket, Reply::Error(error_view(ErrorCode::Failed, message, None)));
        }
        let purpose = Purpose::Move(exchange);
        if !is_dry {
            return self.begin_to_leave(job, purpose, vec![ticket], now);
        }
        let reply = match self.why_not(job, purpose) {
            Some(why_not) => Reply::Error(why_not),
            None => Reply::Move(self.policy.move_view(job, exchange, &self.clients)),
        };
        self.answer_ticket(ticket, reply);
    }
}
