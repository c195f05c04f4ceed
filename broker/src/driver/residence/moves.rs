// SPDX-License-Identifier: Apache-2.0
//! `partage migrate`: one job to another device.
//!
//! Whether this driver takes a map of a process like the job's is tried once, on a process of our own, before the first
//! job is touched: a driver that refuses it is known before.

use partage_policy::{Access, Caller, Obstacle, Patience, Residence, TargetQuery, Ticket, driver_answered};
use partage_protocol::admin::{ErrorCode, ErrorView, Reply};
use partage_protocol::units::{DeviceUuid, JobId, SECOND_NS};

use super::code;
use super::way::{Leaving, Phase, Purpose, Way};
use crate::clock::Now;
use crate::driver::effect::Effect;
use crate::driver::requests::error_view;
use crate::driver::state_driver::StateDriver;
use crate::helper::process::User;
use crate::host::checkpoint::{Answer, Ask, Outcome};

/// A process is started, gets a context and is moved without any memory.
const TRY_NS: u64 = 90 * SECOND_NS;

impl StateDriver {
    /// `partage migrate TARGET --to GPU`.
    pub(super) fn migrate(
        &mut self,
        (ticket, patience): (Ticket, Patience),
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
            return self.begin_to_leave(job, Leaving::asked(purpose, (ticket, patience)), now);
        }
        let reply = match self.why_not(job, purpose) {
            Some(why_not) => Reply::Error(why_not),
            None => Reply::Move(self.policy.move_view(job, exchange, &self.clients)),
        };
        self.answer_ticket(ticket, reply);
    }

    /// Do its processes see some of the devices only?
    fn is_masked(&self, job: JobId) -> bool {
        self.jobs.devices(job).len() < self.whole_devices().len()
    }

    fn whole_devices(&self) -> Vec<String> {
        let whole = self.devices.list().keys().filter(|device| !device.is_mig);
        whole.map(ToString::to_string).collect()
    }

    /// Does the driver take maps of processes like this job's? None: not tried yet.
    pub(super) fn takes_map(&self, job: JobId) -> Option<bool> {
        self.ways.maps.get(&self.is_masked(job)).copied()
    }

    /// Has it tried on the device where the job is to go: there is room.
    pub(super) fn try_map(&mut self, job: JobId, device: DeviceUuid) {
        let ask = Ask::Map {
            device: device.to_string(),
            is_masked: self.is_masked(job),
            all: self.whole_devices(),
        };
        // As the broker's own user: the answer holds for every job, and the process that is tried is of our own.
        self.effects.push(Effect::AskHelper {
            job,
            user: User::own(),
            ask,
            patience_ns: TRY_NS,
        });
    }

    /// What became of the try.
    pub(super) fn take_map(&mut self, job: JobId, mut way: Way, outcome: &Outcome, now: Now) {
        let Phase::Trying { left } = &mut way.phase else {
            return;
        };
        let left = std::mem::take(left);
        let why_not = match outcome {
            Outcome::Answered(Answer::Done) => {
                self.ways.maps.insert(self.is_masked(job), true);
                None
            }
            Outcome::Answered(Answer::Code(code::INVALID_VALUE)) => {
                self.ways.maps.insert(self.is_masked(job), false);
                Some(self.map_refused(job))
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
                self.ask_state(job, first);
            }
            (why_not, _) => {
                let why_not = why_not.unwrap_or_else(|| self.map_refused(job));
                self.not_begun(job, way.purpose, &way.tickets, &why_not, now);
            }
        }
    }

    /// The driver moves no process like this job's.
    pub(super) fn map_refused(&self, job: JobId) -> ErrorView {
        let (which, hint) = match self.is_masked(job) {
            true => (
                "a process that sees some of the GPUs only",
                Some("only a job of all GPUs can move with this driver"),
            ),
            false => ("a process", None),
        };
        let message = format!(
            "this driver does not exchange the GPUs of {which}: it answered CUDA_ERROR_INVALID_VALUE (1) for a \
             process of Partage's own, and {job} was not touched"
        );
        error_view(ErrorCode::Failed, message, hint)
    }
}
