// SPDX-License-Identifier: Apache-2.0
//! `partage drain` and `undrain`: a device takes no job any more, and those on it move away, one after the other.
//!
//! ```text
//!   drain ──► mark on disk, Event::Drain ──► each job: a place? ── yes ──► Purpose::Move ──► ended_moves ──┐
//!                                              ▲  └ no: it stays, and why                                  │
//!                                              └───────────────────────────────────────────────────────────┘
//!                                              none left: answered with who moved and who stays
//! ```
//! A job that is on its way to the device is moved off once it is there. `undrain` sends no other job: those that did
//! not go yet are named as staying. A device that became sick is emptied by the same steps where `[gpu] on_sick` says
//! so, without a mark of its own: `undrain` makes it well. A broker's death ends the command and not the mark; the next
//! `drain` goes on with the jobs that are left.

use partage_policy::{Caller, DrainMark, Event, Next, Obstacle, Patience, Stay, Ticket};
use partage_protocol::admin::{DrainView, ErrorCode, ErrorView, MovedView, Reply, StayingView};
use partage_protocol::units::{DeviceUuid, JobId};

use super::answers::in_the_way;
use super::engine::Engine;
use super::facts::residence_of;
use super::way::{EndedMove, Leaving, Purpose, Turn};
use crate::site::Site;
use crate::state::drained;

impl Engine {
    /// A command about a device that is to take no jobs (with the patience for their moves), or jobs again.
    pub(super) fn drain(
        &mut self,
        site: &mut Site,
        ticket: Ticket,
        caller: &Caller,
        (gpu, patience): (&str, Option<Patience>),
    ) {
        let is_drained = patience.is_some();
        if !site.may_administer(caller) {
            let verb = if is_drained { "drain" } else { "undrain" };
            let message = format!("only an administrator may {verb} a GPU of this broker");
            return site.deny_ticket(ticket, ErrorCode::NotAllowed, message, None);
        }
        let device = match site.policy.device_named(gpu) {
            Ok(device) => device,
            Err(why) => return site.answer_ticket(ticket, Reply::Error(why.view())),
        };
        let was = site.policy.is_drained(device);
        let was_sick = site.policy.is_sick(device);
        let mark = is_drained.then_some(DrainMark {
            since_unix_ns: Some(site.now.unix_ns),
            uid: Some(caller.uid),
        });
        if was != is_drained
            && let Err(error) = mark_drained(site, device, mark)
        {
            let message = format!("the mark cannot be written to the state folder: {error}");
            return site.deny_ticket(ticket, ErrorCode::Failed, message, None);
        }
        if let Some(patience) = patience {
            let drain = self.ways.drains.entry(device).or_default();
            drain.patience = patience;
            drain.tickets.push(ticket);
            return self.ways.hurry(Turn::Drain(device));
        }
        if was_sick {
            let uid = caller.uid;
            site.tell_next(Event::Heal { device, uid });
        }
        let message = site.policy.undrained_text(device, was || was_sick);
        site.answer_ticket(ticket, Reply::Done { message });
        if let Some(drain) = self.ways.drains.get_mut(&device) {
            drain.jobs.call_off();
            self.ways.hurry(Turn::Drained(device));
        }
    }

    /// A device became sick, and the configuration says that its jobs leave it then. Nobody waits for that.
    pub(crate) fn empty(&mut self, device: DeviceUuid) {
        let drain = self.ways.drains.entry(device).or_default();
        drain.patience = Patience::draining(None);
        self.ways.hurry(Turn::Drain(device));
    }

    /// Looks which jobs are to leave a device, now that it takes none.
    pub(super) fn begin_drain(&mut self, site: &mut Site, device: DeviceUuid) {
        let jobs = site.policy.jobs_to_move(device, &site.clients);
        self.ways.of_drain(device, |drain| drain.begin(&jobs));
        self.drain_on(site, device);
    }

    /// Sends the next job off that can go; answers who asked once none is left.
    pub(super) fn drain_on(&mut self, site: &mut Site, device: DeviceUuid) {
        loop {
            let Some(drain) = self.ways.drains.get_mut(&device) else {
                return;
            };
            let patience = drain.patience;
            let job = match drain.jobs.next_thing() {
                Next::Look(job) => job,
                Next::Wait => return,
                Next::Over => return self.drained(site, device),
            };
            if self.is_arriving(job, device) {
                self.ways.of_drain(device, |jobs| jobs.awaits(job));
                continue;
            }
            match self.way_off(site, job, device) {
                Ok(purpose) => {
                    self.ways.of_drain(device, |jobs| jobs.goes(job));
                    let leaving = Leaving {
                        patience,
                        ..Leaving::unasked(purpose)
                    };
                    return self.begin_to_leave(site, job, leaving);
                }
                Err(why) => self
                    .ways
                    .of_drain(device, |jobs| jobs.stays(job, why.message, why.hint)),
            }
        }
    }

    /// Is a job on its way to a device by a move whose end this broker hears of?
    fn is_arriving(&self, job: JobId, device: DeviceUuid) -> bool {
        let purpose = self.ways.by_job.get(&job).map(|way| way.purpose);
        matches!(purpose, Some(Purpose::Move(exchange)) if exchange.target.device == device)
    }

    /// How a job can leave a device: first whatever keeps it there, then the room elsewhere.
    fn way_off(&self, site: &Site, job: JobId, device: DeviceUuid) -> Result<Purpose, ErrorView> {
        if let Some(way) = self.ways.by_job.get(&job) {
            let residence = residence_of(site, job);
            return Err(in_the_way(&[Obstacle::NotHere(job, way.under_way(residence))]));
        }
        if let Some(why_not) = self.why_not(site, job, Purpose::Suspend) {
            return Err(why_not);
        }
        let exchange = site.policy.place_to_move(job, device, &site.clients)?;
        Ok(Purpose::Move(exchange))
    }

    /// Moves ended: the drains of their devices go on.
    pub(super) fn take_ended_moves(&mut self) {
        for EndedMove { job, exchange, result } in std::mem::take(&mut self.ways.ended_moves) {
            let to = exchange.target.device;
            let is_there = matches!(&result, Some(Ok(device)) if *device == to);
            if let Some(drain) = self.ways.drains.get_mut(&exchange.from)
                && drain.jobs.is_over(job)
            {
                match result {
                    None => {}
                    Some(Ok(device)) => drain.jobs.moved(job, device),
                    Some(Err((why, hint))) => drain.jobs.stays(job, why, hint),
                }
                self.ways.hurry(Turn::Drained(exchange.from));
            }
            if let Some(drain) = self.ways.drains.get_mut(&to)
                && drain.jobs.arrived(job, is_there)
            {
                self.ways.hurry(Turn::Drained(to));
            }
        }
    }

    fn drained(&mut self, site: &mut Site, device: DeviceUuid) {
        let Some(drain) = self.ways.drains.remove(&device) else {
            return;
        };
        let indices = site.devices.list();
        let index = |device: DeviceUuid| indices.get(&device).map(|facts| facts.index);
        let (moved, staying) = drain.jobs.into_result();
        let moved = moved.into_iter().map(|(job, to)| MovedView {
            job: job.to_string(),
            to: to.to_string(),
            to_index: index(to),
        });
        let staying = staying.into_iter().map(|Stay { job, why, hint }| StayingView {
            job: job.to_string(),
            why,
            hint,
        });
        let view = DrainView {
            gpu: device.to_string(),
            gpu_index: index(device),
            is_drained: site.policy.is_drained(device),
            moved: moved.collect(),
            staying: staying.collect(),
        };
        for ticket in drain.tickets {
            site.answer_ticket(ticket, Reply::Drained(view.clone()));
        }
    }
}

fn mark_drained(site: &mut Site, device: DeviceUuid, mark: Option<DrainMark>) -> std::io::Result<()> {
    let mut all = site.policy.drained().clone();
    match mark {
        Some(mark) => all.insert(device, mark),
        None => all.remove(&device),
    };
    drained::write(&site.directory.drained_file(), &all)?;
    site.tell_next(Event::Drain { device, mark });
    Ok(())
}
