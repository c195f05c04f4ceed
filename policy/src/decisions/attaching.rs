// SPDX-License-Identifier: Apache-2.0
//! Clients attach, ask for memory, and leave.

use std::fmt::Display;

use partage_protocol::job_ledger::{Answer, Verdict};
use partage_protocol::message::{
    MAX_DEVICES, NOTICE_FOREIGN_NAMESPACE, NOTICE_NO_BROKER, NOTICE_OVERHEAD, NOTICE_RECOVERED, NOTICE_SHARING_OFF,
    NOTICE_UNKNOWN_ENTRY_POINT, REFUSED_CAPACITY, REFUSED_DEVICES, VERDICT_CARD_FULL, VERDICT_GRANTED, VERDICT_INVALID,
    VERDICT_LIMIT, VERDICT_PROCESS_LIMIT, VERDICT_RETRY, VERDICT_UNFREED, WELCOME_DEFAULT_JOB, WELCOME_OPEN_SHIFT,
    WELCOME_PRIVATE_BROKER, WELCOME_STRICT,
};
use partage_protocol::units::{ClientId, JobId};

use super::Policy;
use super::said::Said;
use super::undecided::Asked;
use crate::action::Action;
use crate::books::room::headroom::held_by;
use crate::client::{Client, Presence};
use crate::event::Attaching;
use crate::job::{Placement, Reason, Short};
use crate::machine::{Machine, OnSlot};
use crate::notice::Notice;
use crate::question::{AskedAt, Question};

/// Clients one job may have: far above any real job, low enough that a fork bomb does not take the ledger from others.
pub const MAX_CLIENTS_PER_JOB: usize = 4_096;

impl Policy {
    pub(crate) fn attach<M: Machine>(&mut self, attaching: Attaching, machine: &M, now_ns: u64) {
        let id = attaching.client;
        self.replace_image(&attaching, machine, now_ns);
        let job = match self.find_job(&attaching) {
            Some(job) => job,
            None => match self.begin_default_job(&attaching, machine, now_ns) {
                Ok(job) => job,
                Err(text) => return self.refuse_client(id, REFUSED_DEVICES, text),
            },
        };
        let Some(state) = self.books.jobs.get_mut(&job) else {
            return;
        };
        if state.clients.len() >= MAX_CLIENTS_PER_JOB {
            return self.refuse_client(id, REFUSED_CAPACITY, Notice::Full(job, MAX_CLIENTS_PER_JOB));
        }
        state.add_client(id, attaching.process.pid);
        state.limit_client((id, attaching.process), machine, now_ns);
        for (slot, state) in state.slots_mut() {
            state.ledger_mut().attach(&OnSlot { machine, slot }, id, now_ns);
        }
        self.resume(job);
        let process = attaching.process;
        self.books.clients.add(
            id,
            Client {
                job,
                process,
                presence: Presence::Attached,
                nodes: attaching.membership.nodes,
            },
        );
        self.welcome(id, job);
        self.show_overheads(id, machine);
        self.show_pages(job);
        let pid = process.pid;
        self.publish("client-attached", Some(job), Some(pid), Notice::Attached(pid, job));
    }

    /// A process attaches once: if it is known already, it has replaced its image (exec freed what it held, and no
    /// pidfd says so), or a broker died before it could be welcomed. Its earlier clients are gone.
    fn replace_image<M: Machine>(&mut self, attaching: &Attaching, machine: &M, now_ns: u64) {
        let is_earlier =
            |(id, client): &(&ClientId, &Client)| **id != attaching.client && client.process == attaching.process;
        let earlier: Vec<ClientId> = self
            .books
            .clients
            .iter()
            .filter(is_earlier)
            .map(|(id, _)| *id)
            .collect();
        for client in earlier {
            self.client_gone(client, machine, now_ns);
        }
    }

    pub(crate) fn welcome(&mut self, client: ClientId, job: JobId) {
        let Some(record) = self.books.jobs.get(&job).map(|job| job.record.clone()) else {
            return;
        };
        let mut flags = 0;
        for (is_set, flag) in [
            (record.default_scope.is_some(), WELCOME_DEFAULT_JOB),
            (self.books.config.is_private, WELCOME_PRIVATE_BROKER),
            (record.is_strict, WELCOME_STRICT),
        ] {
            flags |= if is_set { flag } else { 0 };
        }
        let nodes = self.books.clients.get(&client).map_or(0, |client| client.nodes);
        for (slot, place) in record.devices.iter().enumerate().take(MAX_DEVICES) {
            let seen = self.books.devices.get(&place.device).map(|device| &device.seen);
            flags |= u32::from(seen.is_none_or(|seen| seen.is_among(nodes))) << (WELCOME_OPEN_SHIFT + slot as u32);
        }
        let mut devices = self.devices_of(job);
        if record.default_scope.is_some() || record.registration.is_some() {
            self.number(&mut devices, nodes);
        }
        self.act(Action::Welcome {
            client,
            job,
            flags,
            devices,
        });
    }

    /// Shows every client of a job how many they are and what the limits are.
    pub(crate) fn show_pages(&mut self, job: JobId) {
        let Some(state) = self.books.jobs.get(&job) else { return };
        let limits: Vec<u64> = state
            .record
            .devices
            .iter()
            .map(|place| self.limit_of(place.device, place.limit))
            .collect();
        let members: Vec<ClientId> = state.clients.iter().copied().collect();
        let clients_in_job = u32::try_from(members.len()).unwrap_or(u32::MAX);
        let places = state.record.devices.clone();
        for client in members {
            let process = self.books.clients.get(&client).map(|client| client.process);
            let own = |place: &Placement| process.and_then(|process| place.process_limit(process));
            let action = Action::ShowPage {
                client,
                clients_in_job,
                limits: limits.clone(),
                // A limit of nothing would read as none.
                process_limits: places
                    .iter()
                    .map(|place| own(place).map_or(0, |limit| limit.max(1)))
                    .collect(),
            };
            self.act(action);
        }
    }

    pub(crate) fn ask<M: Machine>(
        &mut self,
        (client, slot, sequence): (ClientId, usize, u32),
        (wanted, request): (u64, u64),
        at: AskedAt,
        machine: &M,
        now_ns: u64,
    ) {
        let Some(job) = self.books.clients.get(&client).map(|known| known.job) else {
            return self.answer_invalid(client, slot, sequence);
        };
        let Some((answer, short)) = self.ask_ledger(job, (client, slot), wanted, machine, now_ns) else {
            return self.answer_invalid(client, slot, sequence);
        };
        if answer.verdict != Verdict::Granted {
            let question = Question::Ask {
                slot,
                sequence,
                wanted,
                request,
            };
            let more = wanted.saturating_sub(used_by(machine, client, slot));
            let asked = Asked { job, slot, more, at };
            if self.keep_undecided((client, question), asked, answer.verdict, machine, now_ns) {
                return;
            }
        }
        self.note_peaks(job, machine);
        let why = Reason::of(answer.verdict, short);
        let unfreed = why.and_then(|_| self.unfreed(job, slot, request, machine));
        let verdict = match answer.verdict {
            Verdict::Limit | Verdict::CardFull { .. } if unfreed.is_some() => VERDICT_UNFREED,
            Verdict::Granted => VERDICT_GRANTED,
            Verdict::Limit if self.is_cured_by_a_limit(job, slot, (answer.job_used, request), machine) => VERDICT_LIMIT,
            // The client advises a higher limit only where that helps.
            Verdict::Limit | Verdict::CardFull { .. } => VERDICT_CARD_FULL,
            Verdict::ProcessLimit => VERDICT_PROCESS_LIMIT,
            Verdict::Retry => VERDICT_RETRY,
            Verdict::Invalid => VERDICT_INVALID,
        };
        if let Some(why) = why {
            self.deny(job, slot, (client, request, 1), why, machine, now_ns);
        }
        let physical_free = unfreed.map_or_else(|| self.physical_free(job, slot), |unfreed| unfreed.pid.into());
        let action = Action::Answer {
            client,
            sequence,
            slot: slot as u32,
            verdict,
            granted: answer.granted,
            limit: answer.limit,
            job_used: answer.job_used,
            physical_free,
        };
        self.act(action);
    }

    /// Asks the job's ledger, and again where there is room for a higher ceiling; with what has none. `None`: no such
    /// slot.
    fn ask_ledger<M: Machine>(
        &mut self,
        job: JobId,
        (client, slot): (ClientId, usize),
        wanted: u64,
        machine: &M,
        now_ns: u64,
    ) -> Option<(Answer, Short)> {
        let pages = OnSlot { machine, slot };
        let ask = |policy: &mut Self| {
            let state = policy.books.jobs.get_mut(&job)?.slot_mut(slot)?;
            Some(state.ledger_mut().ask(&pages, client, wanted, now_ns))
        };
        let answer = ask(self)?;
        if let Verdict::CardFull { short_by } = answer.verdict
            && let Some((device, ceiling)) = self.slot_device(job, slot)
        {
            let needed = ceiling.saturating_add(short_by);
            return match self.grow_ceiling(job, device, needed, machine, now_ns) {
                Ok(()) => Some((ask(self)?, Short::Card)),
                Err(short) => Some((answer, short)),
            };
        }
        Some((answer, Short::Card))
    }

    pub(crate) fn answer_invalid(&mut self, client: ClientId, slot: usize, sequence: u32) {
        let slot = u32::try_from(slot).unwrap_or(u32::MAX);
        let (granted, limit, job_used, physical_free) = (0, 0, 0, u64::MAX);
        let verdict = VERDICT_INVALID;
        let action = Action::Answer {
            client,
            sequence,
            slot,
            verdict,
            granted,
            limit,
            job_used,
            physical_free,
        };
        self.act(action);
    }

    /// Answers with a verdict and the numbers of the moment.
    pub(crate) fn answer_usage<M: Machine>(
        &mut self,
        (client, slot, sequence): (ClientId, usize, u32),
        said: Said,
        machine: &M,
    ) {
        let Said {
            verdict,
            needed,
            unfreed,
        } = said;
        let job = self.books.clients.get(&client).map(|client| client.job);
        let ledger = job.and_then(|job| self.books.ledger(job, slot));
        let (Some(job), Some(ledger)) = (job, ledger) else {
            return self.answer_invalid(client, slot, sequence);
        };
        let pages = OnSlot { machine, slot };
        let granted = machine.words(client, slot).map_or(0, |words| {
            use partage_protocol::reservation::Word;
            words.ledger.load()
        });
        let action = Action::Answer {
            client,
            sequence,
            slot: slot as u32,
            verdict,
            granted: needed.unwrap_or(granted),
            limit: ledger.limit(),
            job_used: ledger.used_sum(&pages),
            physical_free: unfreed.map_or_else(|| self.physical_free(job, slot), |unfreed| unfreed.pid.into()),
        };
        self.note_peaks(job, machine);
        self.act(action);
    }

    pub(crate) fn client_gone<M: Machine>(&mut self, client: ClientId, machine: &M, now_ns: u64) {
        let Some(known) = self.books.clients.get(&client).cloned() else {
            return;
        };
        self.note_peaks(known.job, machine);
        let mut devices = Vec::new();
        if let Some(job) = self.books.jobs.get_mut(&known.job) {
            job.set_client(client, false);
            for (slot, place) in job.record.devices.iter().enumerate() {
                devices.push((place.device, held_by(machine, client, slot)));
            }
            for (slot, state) in job.slots_mut() {
                state.ledger_mut().death(&OnSlot { machine, slot }, client, now_ns);
            }
        }
        self.books.clients.forget(client);
        self.books.overheads.forget(client);
        self.books.undecided.forget(client);
        self.books.undecided.note_freed();
        self.bar_drifting(known.job, machine, now_ns);
        let is_last_of_pid = !self.books.clients.values().any(|other| other.process == known.process);
        for (device, bytes) in devices {
            if let Some(device) = self.books.devices.get_mut(&device).filter(|_| is_last_of_pid) {
                device.forget_process(known.process.pid, bytes);
            }
            self.share_headroom(device, machine, now_ns);
        }
        self.act(Action::ForgetClient(client));
        let (pid, job) = (known.process.pid, known.job);
        self.publish("client-died", Some(job), Some(pid), Notice::Gone(pid, job));
        self.show_pages(known.job);
        self.look_after(known.job, machine, now_ns);
    }

    pub(crate) fn notice<M: Machine>(
        &mut self,
        client: ClientId,
        (what, slot, value): (u32, usize, u64),
        machine: &M,
        now_ns: u64,
    ) {
        let Some(known) = self.books.clients.get(&client) else {
            return;
        };
        let (job, pid) = (known.job, known.process.pid);
        if what == NOTICE_OVERHEAD {
            if let Some((device, _)) = self.slot_device(job, slot) {
                if let Some(state) = self.books.overheads.get_mut(client, slot) {
                    state.explain(now_ns);
                }
                self.act(Action::Look(device));
            }
            return;
        }
        let Some(state) = self.books.jobs.get_mut(&job) else {
            return;
        };
        let what = match what {
            NOTICE_SHARING_OFF => Notice::SharingOff(pid, value),
            NOTICE_FOREIGN_NAMESPACE => Notice::ForeignNamespace(pid),
            NOTICE_UNKNOWN_ENTRY_POINT => Notice::UnknownEntryPoint(pid, value),
            NOTICE_RECOVERED => return state.recover(slot, (pid, value)),
            NOTICE_NO_BROKER => return self.deny(job, slot, (client, 0, value), Reason::NoBroker, machine, now_ns),
            // A denial was counted where it was answered, and an unknown notice is a newer client's.
            _ => return,
        };
        state.note(&what);
        self.publish("notice", Some(job), Some(pid), what);
    }

    pub(crate) fn refuse_client(&mut self, client: ClientId, code: u32, why: impl Display) {
        let text = why.to_string();
        self.act(Action::Refuse { client, code, text });
    }
}

/// What a client uses on a slot, as its page says; 0 while its page is not here.
fn used_by<M: Machine>(machine: &M, client: ClientId, slot: usize) -> u64 {
    use partage_protocol::reservation::Word;
    let shared = machine.words(client, slot).and_then(|words| words.shared);
    shared.map_or(0, |shared| shared.used.load())
}
