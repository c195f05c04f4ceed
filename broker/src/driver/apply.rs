// SPDX-License-Identifier: Apache-2.0
//! Carries out the policy's actions: words, records, signals and watches directly, the others as effects for the
//! server.

use partage_policy::{Action, EndedJob, Event, Heard, JobRecord, Process, Ticket, UserUsage};
use partage_protocol::admin::Reply;
use partage_protocol::message::Answer;
use partage_protocol::units::{ClientId, DeviceUuid, JobId};
use partage_scheduling::Terms;
use tracing::error;
use zerocopy::IntoBytes;

use super::state_driver::StateDriver;
use crate::config::OnSick;
use crate::dispatcher::message::Message;
use crate::host::proc::Stat;
use crate::host::terminal;
use crate::peer::ConnectionId;
use crate::site::effect::Effect;
use crate::state::{sick, usage};

/// The packet of an answer.
fn answer(sequence: u32, (slot, verdict): (u32, u32), [granted, limit, job_used, physical_free]: [u64; 4]) -> Vec<u8> {
    let answer = Answer {
        header: Answer::header(sequence),
        verdict,
        slot,
        granted,
        limit,
        job_used,
        physical_free,
    };
    answer.as_bytes().to_vec()
}

impl StateDriver {
    pub(super) fn apply(&mut self, action: Action) {
        match action {
            Action::Reply { ticket, heard } => self.reply(ticket, heard),
            Action::Come(job) => self.engine.come(&mut self.site, job),
            Action::Leave(job) => self.engine.leave_by_itself(&mut self.site, job),
            Action::Welcome {
                client,
                job,
                flags,
                devices,
            } => self.welcome(client, job, flags, &devices),
            Action::Refuse { client, code, text } => self.refuse_client(client, code, &text),
            Action::ShowPage {
                client,
                clients_in_job,
                limits,
                process_limits,
            } => self.show_page(client, clients_in_job, (&limits, &process_limits)),
            Action::ShowOverheads { client, overheads } => self.show_overheads(client, &overheads),
            Action::Look(device) => self.site.devices.look_at(device),
            Action::FindEnded { client, looked_at } => self.searches.push_back((client, looked_at)),
            Action::Answer {
                client,
                sequence,
                slot,
                verdict,
                granted,
                limit,
                job_used,
                physical_free,
            } => {
                let sums = [granted, limit, job_used, physical_free];
                self.site
                    .send(client, answer(sequence, (slot, verdict), sums), Vec::new());
            }
            Action::Watch { job, process } => self.watch_first(job, process),
            Action::Health(device) => self.keep_health(device),
            Action::SaveJob(record) => self.save_job(*record),
            Action::ShowTerms { job, devices, terms } => self.show_terms(job, devices, terms),
            Action::ShowUnmanaged { device, load } => self.tell_time(Message::Unmanaged(device, load)),
            Action::CorrectTime {
                device,
                charges,
                over_ns,
            } => self.correct_time(device, charges, over_ns),
            Action::ForgetJob(job) => self.forget_job(job),
            Action::RememberJob(ended) => self.remember_job(&ended),
            Action::SaveUsage(users) => self.save_usage(&users),
            Action::ForgetClient(client) => self.forget_client(client),
            Action::SignalJob { job, signal, by } => self.site.signal_job(job, signal, by),
            Action::KillProcess(process) => self.site.kill_process(process),
            Action::KillUnmanaged { job, pid } => self.site.kill_unmanaged(job, pid),
            Action::Tell { job, text } => self.site.say_on_terminal(job, &text),
            Action::Publish {
                kind,
                job,
                uid,
                pid,
                text,
                numbers,
            } => self
                .site
                .publish_of(uid, kind, (job, pid), (text, numbers.view(&self.site.policy))),
        }
    }

    fn correct_time(&mut self, device: DeviceUuid, charges: Vec<(JobId, i64)>, over_ns: u64) {
        self.tell_time(Message::Correct {
            device,
            charges,
            over_ns,
        });
    }

    fn tell_time(&mut self, message: Message) {
        self.site.effects.push(Effect::Time(message));
    }

    /// Tells the dispatcher a job's terms. One that moved is another job for it: what it knew was of the device before.
    fn show_terms(&mut self, job: JobId, devices: Vec<DeviceUuid>, terms: Terms) {
        let known = self.site.jobs.devices(job);
        let has_moved = known.iter().any(|device| !devices.contains(device));
        if has_moved {
            self.site.effects.push(Effect::Time(Message::JobGone(job)));
        }
        let joined = devices.clone();
        self.site
            .effects
            .push(Effect::Time(Message::Terms { job, devices, terms }));
        if !has_moved {
            return;
        }
        for id in self.site.clients.of_job(job) {
            if let Some(client) = self.site.clients.get_mut(id) {
                client.devices.clone_from(&joined);
            }
            self.site.join_dispatcher(id);
        }
    }

    /// Writes what a client should know about its attachment to its page.
    fn show_page(&self, client: ClientId, clients_in_job: u32, limits: (&[u64], &[u64])) {
        let epoch = self.site.clients.ledger.epoch();
        if let Some(client) = self.site.clients.get(client)
            && let Some(pages) = &client.pages
        {
            pages.show(client.job, epoch, clients_in_job, limits);
        }
    }

    /// The policy's last answer to a ticket ends it. What holds the broker back is told to the first run that is
    /// admitted after it was found: on a private broker that is the run whose shell it is from.
    fn reply(&mut self, ticket: Ticket, heard: Heard) {
        let is_last = heard.is_last();
        let mut reply = Box::new(heard.reply(&self.site.policy, &self.site.clients));
        if let Reply::Admitted(admitted) = &mut *reply {
            admitted.notes.extend(self.notes.iter().skip(self.notes_told).cloned());
            self.notes_told = self.notes.len();
        }
        let to = ConnectionId(ticket.0);
        if is_last {
            self.site.tickets.remove(&to);
        }
        self.site.effects.push(Effect::Document { to, reply, is_last });
    }

    fn show_overheads(&self, client: ClientId, overheads: &[u64]) {
        if let Some(pages) = self.site.clients.pages(client) {
            pages.show_overheads(overheads);
        }
    }

    fn save_job(&mut self, record: JobRecord) {
        self.audit_job(&record);
        let id = JobId(record.id);
        self.site.clients.ledger.reserve_job(id);
        let result = self.store.save(&record);
        self.engine.note_written(id, result.is_ok());
        if let Err(error) = result {
            // The job runs all the same; only a broker's death would forget it.
            error!(%error, job = %id, "job record cannot be written");
        }
        if let Some(first) = record.first {
            let stat = self.site.processes.stat(first.pid).filter(|stat| stat.id == first);
            // Another's terminal may have the number of one here.
            let is_ours = |terminal: u64| terminal != 0 && terminal::is_shared(first.pid);
            if let Some(stat) = stat.filter(|stat| is_ours(stat.terminal)) {
                self.site.jobs.set_terminal(id, stat.terminal);
            }
        }
        self.site.jobs.save(record);
    }

    /// Watches a job's first process; one that is gone already is an event of its own.
    fn watch_first(&mut self, job: JobId, process: Process) {
        if self.site.watch(process) {
            return;
        }
        // One that is there and cannot be watched is given up: the same one would be found again.
        let is_there = |stat: Stat| stat.id == process && !stat.is_exiting;
        let next = || self.site.next_first(job);
        let next = (!self.site.processes.stat(process.pid).is_some_and(is_there))
            .then(next)
            .flatten();
        self.site
            .todo
            .extend(next.map(|process| Event::Follows { job, process }));
        self.site.todo.push_back(Event::ProcessGone(process));
    }

    /// A device became sick, or well: the next broker has to know, and its jobs leave it where they are to.
    fn keep_health(&mut self, device: DeviceUuid) {
        if let Err(error) = sick::write(&self.site.directory.sick_file(), self.site.policy.sick()) {
            error!(%error, %device, "which GPUs are sick cannot be written down");
        }
        if self.site.policy.is_sick(device) && self.site.config.on_sick == OnSick::Drain {
            self.engine.empty(device);
        }
    }

    fn remember_job(&mut self, ended: &EndedJob) {
        if let Err(error) = self.ended_jobs.add(ended) {
            error!(%error, job = ended.job.id, "an ended job cannot be written down");
        }
    }

    fn save_usage(&self, users: &[UserUsage]) {
        if let Err(error) = usage::write(&self.site.directory.usage_file(), users) {
            error!(%error, "what users had cannot be written down");
        }
    }

    fn forget_job(&mut self, job: JobId) {
        self.store.remove(job);
        self.engine.forget(&self.site, job);
        self.site.effects.push(Effect::Time(Message::JobGone(job)));
        if let Some(first) = self.site.jobs.forget(job) {
            self.site.unwatch(first);
        }
    }

    pub(super) fn forget_client(&mut self, id: ClientId) {
        if let Some(client) = self.site.clients.remove(id) {
            self.site.effects.push(Effect::Time(Message::Left(id)));
            self.site.unwatch(client.process);
            if let Some(connection) = client.connection {
                self.site.effects.push(Effect::Close(connection));
            }
        }
    }
}
