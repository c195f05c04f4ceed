// SPDX-License-Identifier: Apache-2.0
//! `partage drain` and `undrain`: a device takes no job any more, and those on it move away, one after the other.
//!
//! ```text
//!   drain ──► mark on disk, Event::Drain ──► each job: a place? ── yes ──► Purpose::Move ──► ended_moves ──┐
//!                                              ▲  └ no: it stays, and why                                  │
//!                                              └───────────────────────────────────────────────────────────┘
//!                                              none left: answered with who moved and who stays
//! ```
//! A broker's death ends the command and not the mark; the next `drain` goes on with the jobs that are left.

use std::collections::BTreeSet;

use partage_policy::{Caller, Event, Obstacle, Residence, Ticket};
use partage_protocol::admin::{DrainView, ErrorCode, ErrorView, MovedView, Reply, StayingView};
use partage_protocol::units::{DeviceUuid, JobId};

use super::commands::in_the_way;
use super::way::{Drain, MoveResult, Purpose};
use crate::clock::Now;
use crate::driver::requests::error_view;
use crate::driver::state_driver::StateDriver;
use crate::state::drained;

impl StateDriver {
    /// A command about a device that is to take no jobs, or jobs again.
    pub(super) fn drain(&mut self, ticket: Ticket, caller: &Caller, (gpu, is_drained): (&str, bool), now: Now) {
        if !self.may_administer(caller) {
            let message = "only an administrator may drain a GPU of this broker".to_owned();
            return self.answer_ticket(ticket, Reply::Error(error_view(ErrorCode::NotAllowed, message, None)));
        }
        let device = match self.policy.device_named(gpu) {
            Ok(device) => device,
            Err(why) => return self.answer_ticket(ticket, Reply::Error(why)),
        };
        let was = self.policy.is_drained(device);
        if was != is_drained
            && let Err(error) = self.mark_drained(device, is_drained, now)
        {
            let message = format!("the mark cannot be written to the state folder: {error}");
            return self.answer_ticket(ticket, Reply::Error(error_view(ErrorCode::Failed, message, None)));
        }
        if is_drained {
            let jobs = self.policy.jobs_to_move(device, &self.clients);
            let drain = self.ways.drains.entry(device).or_insert_with(|| Drain {
                left: jobs.into(),
                ..Drain::default()
            });
            drain.tickets.push(ticket);
            return self.drain_on(device, now);
        }
        // What is on its way arrives; nobody else is sent.
        if let Some(drain) = self.ways.drains.get_mut(&device) {
            drain.left.clear();
        }
        let message = self.policy.undrained_text(device, was);
        self.answer_ticket(ticket, Reply::Done { message });
    }

    fn mark_drained(&mut self, device: DeviceUuid, is_drained: bool, now: Now) -> std::io::Result<()> {
        let mut all: BTreeSet<DeviceUuid> = self.policy.drained().collect();
        match is_drained {
            true => all.insert(device),
            false => all.remove(&device),
        };
        drained::write(&self.directory.drained_file(), &all)?;
        self.step(now, Event::Drain { device, is_drained });
        Ok(())
    }

    /// Sends the next job off that can go; answers who asked once none is left.
    fn drain_on(&mut self, device: DeviceUuid, now: Now) {
        loop {
            let Some(drain) = self.ways.drains.get_mut(&device) else {
                return;
            };
            if drain.under_way.is_some() {
                return;
            }
            let Some(job) = drain.left.pop_front() else {
                return self.drained(device);
            };
            let purpose = match self.way_off(job, device) {
                Ok(purpose) => purpose,
                Err(why) => {
                    self.note_move(device, job, Some(Err((why.message, why.hint))));
                    continue;
                }
            };
            if let Some(drain) = self.ways.drains.get_mut(&device) {
                drain.under_way = Some(job);
            }
            return self.begin_to_leave(job, purpose, Vec::new(), now);
        }
    }

    /// How a job can leave a device: first whatever keeps it there, then the room elsewhere.
    fn way_off(&self, job: JobId, device: DeviceUuid) -> Result<Purpose, ErrorView> {
        if let Some(way) = self.ways.by_job.get(&job) {
            let residence = self
                .policy
                .residence(job)
                .map_or(Residence::Here, |mark| mark.residence);
            return Err(in_the_way(&[Obstacle::NotHere(job, way.under_way(residence))]));
        }
        if let Some(why_not) = self.why_not(job, Purpose::Suspend) {
            return Err(why_not);
        }
        let exchange = self.policy.place_to_move(job, device, &self.clients)?;
        Ok(Purpose::Move(exchange))
    }

    fn note_move(&mut self, device: DeviceUuid, job: JobId, result: MoveResult) {
        let indices = self.devices.list();
        let Some(drain) = self.ways.drains.get_mut(&device) else {
            return;
        };
        let job = job.to_string();
        match result {
            None => {}
            Some(Ok(to)) => drain.moved.push(MovedView {
                job,
                to: to.to_string(),
                to_index: indices.get(&to).map(|facts| facts.index),
            }),
            Some(Err((why, hint))) => drain.staying.push(StayingView { job, why, hint }),
        }
    }

    /// Moves ended: drains of the devices that they left, or not, go on.
    pub(super) fn take_ended_moves(&mut self, now: Now) {
        for ended in std::mem::take(&mut self.ways.ended_moves) {
            let is_its = |drain: &&mut Drain| drain.under_way == Some(ended.job);
            if let Some(drain) = self.ways.drains.get_mut(&ended.from).filter(is_its) {
                drain.under_way = None;
                self.note_move(ended.from, ended.job, ended.result);
                self.drain_on(ended.from, now);
            }
        }
    }

    fn drained(&mut self, device: DeviceUuid) {
        let Some(drain) = self.ways.drains.remove(&device) else {
            return;
        };
        let view = DrainView {
            gpu: device.to_string(),
            gpu_index: self.devices.list().get(&device).map(|facts| facts.index),
            moved: drain.moved,
            staying: drain.staying,
        };
        for ticket in drain.tickets {
            self.answer_ticket(ticket, Reply::Drained(view.clone()));
        }
    }
}
