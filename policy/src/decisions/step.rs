// SPDX-License-Identifier: Apache-2.0
//! One event in, actions out: gives the event to the file that decides.

use super::Policy;
use crate::action::Action;
use crate::client::Presence;
use crate::decisions::said::Said;
use crate::event::Event;
use crate::machine::Machine;
use crate::question::AskedAt;
use crate::sick::DeviceNews;
use partage_protocol::message::VERDICT_GRANTED;

impl Policy {
    /// Takes one event at a time `now_ns` (monotonic) that never goes back; answers what to do, in order. Grants are
    /// already written through `machine` when it returns.
    #[must_use]
    pub fn step<M: Machine>(&mut self, now_ns: u64, event: Event, machine: &M) -> Vec<Action> {
        self.books.begin_step(now_ns);
        let is_due = self.due_ns.is_some_and(|due| now_ns >= due);
        if is_due {
            self.expire(machine, now_ns);
            self.ask_again(machine, now_ns);
        }
        let may_admit = is_due || event.may_admit();
        // The frequent ones first; they change nobody's room, and what is due only as far as they say.
        if let Some(event) = self.take_frequent(event, machine, now_ns) {
            self.take(event, machine, now_ns);
            self.ask_again(machine, now_ns);
            if may_admit {
                self.serve_queue(machine, now_ns);
            }
            self.note_due();
        }
        std::mem::take(&mut self.out)
    }

    /// Takes what clients and measurements say many times a second; answers any other event.
    fn take_frequent<M: Machine>(&mut self, event: Event, machine: &M, now_ns: u64) -> Option<Event> {
        match event {
            Event::Ask {
                client,
                slot,
                wanted,
                request,
                sequence,
            } => {
                self.books.undecided.forget(client);
                let at = AskedAt::now(now_ns);
                self.ask((client, slot, sequence), (wanted, request), at, machine, now_ns);
            }
            Event::Usage { client, slot, sequence } => {
                self.answer_usage((client, slot, sequence), Said::verdict(VERDICT_GRANTED), machine);
            }
            Event::Measure {
                client,
                slot,
                stage,
                sequence,
            } => {
                self.books.undecided.forget(client);
                self.measure_client((client, slot, sequence), stage, machine, now_ns);
                self.note_due();
            }
            Event::Time(times) => self.take_times(times, now_ns),
            Event::Asking(device) => self.asking(device, machine),
            event => return Some(event),
        }
        None
    }

    /// Takes any other event.
    fn take<M: Machine>(&mut self, event: Event, machine: &M, now_ns: u64) {
        match event {
            Event::Adopt(adoption) => self.adopt(adoption, machine, now_ns),
            Event::Devices { driver, found } => {
                self.see_devices(driver, found, machine, now_ns);
                self.judge_adopted(machine, now_ns);
            }
            Event::DeviceLost { device, why } => self.lose_device(device, why, machine, now_ns),
            Event::Measured(measured) => self.measure(measured, machine, now_ns),
            Event::Run(run) => self.run(*run, machine, now_ns),
            Event::Set {
                ticket,
                caller,
                target,
                change,
            } => self.set((ticket, &caller), &target, &change, machine, now_ns),
            Event::Stop {
                ticket,
                caller,
                target,
                grace_ns,
            } => self.stop((ticket, &caller), &target, grace_ns, machine, now_ns),
            Event::Resume {
                ticket,
                caller,
                target,
                is_patient,
                timeout_ns,
            } => self.return_job((ticket, &caller), &target, (is_patient, timeout_ns), now_ns),
            Event::Returned { job, end } => self.returned(job, end, now_ns),
            Event::Stuck { .. } | Event::Spared { .. } | Event::Restored { .. } => self.take_note(event),
            Event::Exited { .. } | Event::Follows { .. } | Event::Saved(..) => self.take_note(event),
            Event::Stays(_) | Event::DeviceSlow(_) | Event::TicketGone(_) => self.take_note(event),
            Event::NotLeft { job, why } => self.not_left(job, &why, now_ns),
            Event::Drain { device, mark } => self.hear_of_device(device, mark.into(), now_ns),
            Event::Xids { device, xids } => self.hear_of_device(device, DeviceNews::Xids(&xids), now_ns),
            Event::Heal { device, uid } => self.hear_of_device(device, DeviceNews::Healed(uid), now_ns),
            Event::MakeRoom(device) => drop(self.end_lingering(&[device], machine, now_ns)),
            Event::Quiet { job, for_ns } => self.take_quiet(job, for_ns, machine, now_ns),
            Event::Wanted(job) => self.take_wanted(job, now_ns),
            Event::Attach(attaching) => self.attach(*attaching, machine, now_ns),
            Event::Reattach {
                client,
                process,
                are_pages_lost,
            } => self.reattach(client, process, are_pages_lost, machine),
            Event::ClientAway(client) => self.leave(client, Presence::Away, now_ns),
            Event::ClientDying(client) => self.leave(client, Presence::Dying, now_ns),
            Event::Searched(client) => self.ask_searched(client, machine, now_ns),
            Event::ClientGone(client) => self.client_gone(client, machine, now_ns),
            Event::ProcessGone(process) => self.process_gone(process, machine, now_ns),
            Event::Notice {
                client,
                what,
                slot,
                value,
            } => self.notice(client, (what, slot, value), machine, now_ns),
            Event::Stopped(jobs) => self.books.jobs.set_stopped(&jobs),
            Event::Rules(new) => self.take_rules(*new, machine, now_ns),
            Event::UserKnown { uid, user, groups } => self.take_user(uid, (&user, &groups), machine, now_ns),
            Event::Residence { job, mark } => self.take_mark(job, *mark, machine, now_ns),
            // What they bring is taken before.
            Event::Ask { .. }
            | Event::Usage { .. }
            | Event::Measure { .. }
            | Event::Time(_)
            | Event::Asking(_)
            | Event::Tick => {}
        }
    }

    /// Takes what is to be said of a job, and of its first process.
    fn take_note(&mut self, event: Event) {
        match event {
            Event::Stuck { job, why } => self.note_stuck(job, &why),
            Event::Spared { job, processes } => self.note_spared(job, &processes),
            Event::Restored { job, texts, behind } => self.note_restored(job, &texts, behind),
            Event::Exited { process, code } => self.exited(process, code),
            Event::Follows { job, process } => self.follow(job, process),
            Event::Stays(job) => self.stay_away(job),
            Event::TicketGone(ticket) => self.ticket_gone(ticket),
            Event::DeviceSlow(device) => self.books.note_slow(device),
            Event::Saved(job, save) => {
                let record = self.books.jobs.get_mut(&job).and_then(|job| job.note_saved(save));
                self.out.extend(record.map(Action::SaveJob));
            }
            _ => {}
        }
    }
}
