// SPDX-License-Identifier: Apache-2.0
//! Follows a way to its end, and says what it came to: to the commands that wait, and as an event.

use std::collections::BTreeSet;

use partage_policy::{
    Event, Obstacle, Outcome, Patience, Process, Residence, Return, Save, Stage, Ticket, Trouble, stands,
};
use partage_protocol::admin::{ErrorCode, ErrorView, Reply};
use partage_protocol::size::{format_bytes, format_duration};
use partage_protocol::units::{JobId, SECOND_NS};

use super::engine::Engine;
use super::facts::{processes_with_library, residence_of, saved_every};
use super::way::{Phase, Purpose, Way};
use crate::clock::Now;
use crate::site::Site;

/// Stages shorter than this are not worth a word.
const WORTH_NS: u64 = 1_000_000;

impl Engine {
    /// Carries a way on; one that is not over waits in its place.
    pub(super) fn follow(&mut self, site: &mut Site, job: JobId, mut way: Way) {
        let is_told = matches!(&way.phase, Phase::Passing { step: Some(step), .. } if step.wait.is_for_policy());
        if is_told {
            self.poll(site, job, &mut way);
        }
        self.carry_on(site, job, &mut way);
        let outcome = match &way.phase {
            Phase::Passing { passage, .. } => passage.outcome(),
            _ => None,
        };
        let Some(outcome) = outcome else {
            self.say_stuck(site, job, &mut way);
            self.ways.by_job.insert(job, way);
            return;
        };
        let is_alive = || way.processes.is_empty() && !site.policy.processes(job).is_empty();
        let is_left = !processes_with_library(site, job).is_empty() || is_alive();
        self.finish(site, job, way, (outcome, is_left));
        if self.ways.to_come.remove(&job) {
            self.come(site, job);
        }
    }

    /// A way that only tries again and again keeps no command waiting, nor a drain.
    fn say_stuck(&mut self, site: &mut Site, job: JobId, way: &mut Way) {
        let Phase::Passing { passage, .. } = &way.phase else {
            return;
        };
        let Some(trouble) = passage.stuck() else { return };
        let why = trouble.to_string();
        for ticket in std::mem::take(&mut way.tickets) {
            let hint = format!("partage why {job}");
            site.deny_ticket(ticket, ErrorCode::Failed, stands(job, &why), Some(&hint));
        }
        if let Purpose::Move(exchange) = way.purpose
            && !std::mem::replace(&mut way.is_given_up, true)
        {
            let why = (stands(job, &why), Some(format!("partage why {job}")));
            self.ways.note_ended_move(job, exchange, Some(Err(why)));
        }
        site.tell(Event::Stuck { job, why });
    }

    /// Says what a way came to, once its snapshot, if it is to have one, is whole; `is_left`: a process of the job
    /// lives. Where the job came back before that the policy hears of it at once.
    pub(super) fn finish(&mut self, site: &mut Site, job: JobId, mut way: Way, (outcome, is_left): (Outcome, bool)) {
        let why = reason(&way);
        if way.is_being_written && !matches!(way.purpose, Purpose::Recover(_)) {
            way.is_being_written = false;
            let text = format!("{job} runs again, and its snapshot is being written");
            say_returned(site, job, (outcome, is_left), (text, why), &self.ways.to_come);
            return self.writings.add(job, way, (outcome, is_left), site.now.ns);
        }
        let has_returned = way.stood_ns.is_some();
        let (kind, text) = said_of(site, job, &way, (outcome, is_left), &why);
        // What is tried again each second is said once.
        if !kind.is_empty() && self.ways.said.get(&job) != Some(&text) {
            site.publish(kind, Some(job), None, text.clone());
        }
        if let Some(save) = save_of(&way, kind, site.now) {
            site.tell(Event::Saved(job, save));
        }
        if matches!(way.purpose, Purpose::RestoredBehind(_)) && !kind.is_empty() {
            let (texts, behind) = (vec![text.clone()], Some(outcome == Outcome::Here));
            site.tell(Event::Restored { job, texts, behind });
        }
        match kind {
            "resume-failed" => drop(self.ways.said.insert(job, text.clone())),
            _ => drop(self.ways.said.remove(&job)),
        }
        // All that was expected had arrived before the way back began.
        let is_return = matches!(way.purpose, Purpose::Resume | Purpose::Recover(Residence::Coming));
        if is_return && outcome == Outcome::Here {
            self.forget_expecting(site, job);
        }
        if way.save_to.as_ref().is_some_and(|to| to.is_periodic) {
            self.note_save_end(site, job);
        }
        if let Purpose::Move(exchange) = way.purpose {
            let hint = || Some(format!("partage why {job}"));
            let result = match kind {
                _ if !is_left => None,
                "job-moved" => Some(Ok(exchange.target.device)),
                _ if outcome == Outcome::Here => Some(Err((why.clone(), hint()))),
                _ => Some(Err((text.clone(), hint()))),
            };
            self.ways.note_ended_move(job, exchange, result);
        }
        let is_done = match way.purpose {
            Purpose::Move(_) => kind == "job-moved",
            Purpose::Save => kind == "job-saved",
            _ => outcome == Outcome::Away,
        };
        let is_over = site.policy.processes(job).is_empty();
        for ticket in std::mem::take(&mut way.tickets) {
            match (is_done, is_left) {
                (true, _) => site.answer_ticket(ticket, Reply::Done { message: text.clone() }),
                (_, false) if is_over => {
                    site.deny_ticket(ticket, ErrorCode::NoTarget, format!("{job} has ended"), None);
                }
                // It executed another program, or was ended, and its job lives.
                (_, false) => site.deny_ticket(ticket, ErrorCode::Failed, left_the_gpu(job), None),
                _ => {
                    let hint = match trouble(&way).filter(|_| outcome == Outcome::Here) {
                        Some(trouble) if trouble.is_work_in_flight() => give_it_longer(way.patience),
                        _ => format!("partage why {job}"),
                    };
                    site.deny_ticket(ticket, ErrorCode::Failed, text.clone(), Some(&hint));
                }
            }
        }
        if !has_returned {
            say_returned(site, job, (outcome, is_left), (text, why), &self.ways.to_come);
        }
    }

    /// A process ended: its job's passage hears of it at the next turn.
    pub(crate) fn note_gone(&mut self, site: &Site, process: Process) {
        let jobs = site.clients.of_process(process).into_iter();
        let jobs = jobs.filter_map(|id| site.clients.get(id).map(|client| client.job));
        for job in jobs {
            let is_away = residence_of(site, job) != Residence::Here;
            if (is_away || self.ways.has(job)) && !self.ways.gone.contains(&(job, process)) {
                self.ways.gone.push((job, process));
            }
        }
    }

    pub(super) fn take_gone(&mut self, site: &mut Site, job: JobId, process: Process) {
        match self.ways.by_job.get_mut(&job) {
            Some(way) => {
                if let Phase::Passing { passage, .. } = &mut way.phase {
                    passage.gone(process);
                }
            }
            None => self.recover_way(site, job),
        }
    }

    /// A save that nobody asked for could not begin.
    pub(super) fn not_saved(&mut self, site: &mut Site, job: JobId, why: &str) {
        let text = format!("{job} goes on, and is not saved: {why}");
        site.publish("save-failed", Some(job), None, text);
        self.note_save_end(site, job);
    }

    /// The next one is counted from here.
    pub(super) fn note_save_end(&mut self, site: &mut Site, job: JobId) {
        if let Some(every_ns) = saved_every(site, job).map(|saved| saved.every_ns.max(SECOND_NS)) {
            self.periodic.note_end(job, every_ns, site.now.ns);
        }
    }
}

/// Tells the policy where a job is now. One that was told to come while its way off was under way comes at once.
fn say_returned(
    site: &mut Site,
    job: JobId,
    (outcome, is_left): (Outcome, bool),
    (text, why): (String, String),
    to_come: &BTreeSet<JobId>,
) {
    let is_over = site.policy.processes(job).is_empty();
    let end = match outcome {
        _ if !is_left && is_over => Return::Ended,
        _ if !is_left => Return::Never(left_the_gpu(job)),
        Outcome::Here => Return::Back(text),
        Outcome::Poisoned => Return::Never(text),
        Outcome::Away if to_come.contains(&job) => return,
        Outcome::Away => Return::NoRoom(why),
    };
    site.tell(Event::Returned { job, end });
}

/// What a way came to: the kind of the event, empty for none, and the words.
fn said_of(
    site: &Site,
    job: JobId,
    way: &Way,
    (outcome, is_left): (Outcome, bool),
    why: &str,
) -> (&'static str, String) {
    let bytes = format_bytes(site.policy.returning_bytes(job, &site.clients));
    let took = took(site, way);
    match (way.purpose, outcome) {
        (Purpose::Save, _) => saved(job, way, (outcome, is_left), (why, &took)),
        (_, Outcome::Here) if !is_left => ("", format!("{job} ended meanwhile")),
        (_, Outcome::Poisoned) => (
            "job-poisoned",
            format!("{job} cannot run again: {why}; to end it: partage stop {job}"),
        ),
        // It is as it was: a process of it ended, or another broker found it so.
        (Purpose::Recover(_), Outcome::Away) => ("", format!("{job} is suspended")),
        (Purpose::Suspend, Outcome::Away) if way.processes.is_empty() => (
            "job-suspended",
            format!("{job} is suspended: no process of it uses a GPU yet, and its promises are free for others"),
        ),
        (Purpose::Suspend, Outcome::Away) => (
            "job-suspended",
            format!("{job} is suspended: its {bytes} are in host memory, {took}"),
        ),
        (Purpose::Suspend, Outcome::Here) => ("suspend-failed", format!("{job} goes on: {why}")),
        (Purpose::Recover(Residence::Leaving), Outcome::Here) => (
            "suspend-failed",
            format!("{job} goes on: the broker ended while it was being suspended"),
        ),
        (Purpose::Recover(Residence::Moving), Outcome::Here) => {
            let devices = site.jobs.devices(job);
            let gpus: Vec<String> = devices.iter().map(|device| site.policy.gpu(*device)).collect();
            let text = format!(
                "{job} runs again on {}: the broker ended while it was being moved",
                gpus.join(" and ")
            );
            ("job-resumed", text)
        }
        (Purpose::Move(exchange), Outcome::Here) if site.policy.has_moved(job, exchange) => {
            ("job-moved", format!("{}, {took}", site.policy.moved(job, exchange)))
        }
        (Purpose::Move(exchange), Outcome::Here) => ("migrate-failed", site.policy.stays(job, exchange.from, why)),
        (Purpose::Move(_), Outcome::Away) => (
            "migrate-failed",
            format!("{job} is suspended: {why}; to bring it back: partage resume {job}"),
        ),
        (Purpose::RestoredBehind(pid), Outcome::Here) => (
            "restored-behind",
            format!("{job} runs again: another program restored pid {pid} of it, and there is room for it"),
        ),
        (Purpose::RestoredBehind(pid), Outcome::Away) => {
            let has_left = way.took.iter().any(|(stage, _)| *stage == Stage::Checkpoint);
            // Else NVML was late.
            let kind = if has_left { "restored-behind" } else { "" };
            let why = way.why.as_deref().unwrap_or(why);
            let text = format!("{job} was sent away again: another program restored pid {pid} of it, and {why}");
            (kind, text)
        }
        (Purpose::Resume, Outcome::Away) => ("resume-failed", format!("{job} stays suspended: {why}")),
        (Purpose::Resume | Purpose::Recover(_), Outcome::Here) => ("job-resumed", format!("{job} runs again, {took}")),
    }
}

/// The checkpoint that a way wrote.
fn save_of(way: &Way, kind: &str, now: Now) -> Option<Save> {
    let (_, bytes) = way.saved.filter(|_| kind == "job-saved")?;
    Some(Save {
        made_unix_ns: now.unix_ns,
        bytes,
        took_ns: now.ns.saturating_sub(way.began_ns),
    })
}

/// What is said of a job that lives, and whose processes do not use a GPU any more.
fn left_the_gpu(job: JobId) -> String {
    format!("{job} has no process on a GPU any more")
}

/// What to do about work in flight that did not end within this.
fn give_it_longer(patience: Patience) -> String {
    let waited = format_duration(patience.lock_ns);
    format!("it was waited for {waited}: --drain-timeout gives it longer")
}

/// The first failure of a way's passage.
fn trouble(way: &Way) -> Option<&Trouble> {
    match &way.phase {
        Phase::Passing { passage, .. } => passage.trouble(),
        _ => None,
    }
}

/// Why a way did not come to what it was begun for.
fn reason(way: &Way) -> String {
    match (trouble(way).map(Trouble::to_string), way.why.as_deref()) {
        (Some(trouble), Some(why)) => format!("{trouble} ({why})"),
        (Some(trouble), None) => trouble,
        (None, Some(why)) => why.to_owned(),
        (None, None) => "its processes ended".to_owned(),
    }
}

/// What a checkpoint came to.
fn saved(
    job: JobId,
    way: &Way,
    (outcome, is_left): (Outcome, bool),
    (why, took): (&str, &str),
) -> (&'static str, String) {
    let is_saved = matches!(&way.phase, Phase::Passing { passage, .. } if passage.is_saved());
    let saved = way.saved.zip(way.save_to.as_ref());
    match saved.filter(|_| outcome == Outcome::Here) {
        Some(((generation, bytes), to)) => {
            let (folder, bytes) = (to.folder.display(), format_bytes(bytes));
            let stood = way
                .stood_ns
                .map(|ns| format!("; it stood for {} of that", format_duration(ns)));
            let stood = stood.unwrap_or_default();
            let text = format!("{job} is saved in {folder}, generation {generation}: {bytes}, {took}{stood}");
            match (is_saved, to.is_to_stop) {
                (true, _) if is_left => ("job-saved", text),
                (true, _) => ("job-saved", format!("{text}; it has ended")),
                // Something happened when the snapshot was whole, and before the broker knew that it is.
                (false, false) => ("job-saved", format!("{text}; {why}")),
                (false, true) => ("save-failed", format!("{text}; it goes on: {why}")),
            }
        }
        None if outcome == Outcome::Here => ("save-failed", format!("{job} goes on, and is not saved: {why}")),
        None => (
            "save-failed",
            format!("{job} is suspended, because it could not come back after a checkpoint: {why}"),
        ),
    }
}

/// `after 0.4 s (lock the process 2 ms, …)`.
fn took(site: &Site, way: &Way) -> String {
    let parts = way.took.iter().filter(|(_, ns)| *ns >= WORTH_NS);
    let parts: Vec<String> = parts
        .map(|(stage, ns)| format!("{} {}", Stage::text(*stage), format_duration(*ns)))
        .collect();
    let whole = format_duration(site.now.ns.saturating_sub(way.began_ns));
    match parts.is_empty() {
        true => format!("after {whole}"),
        false => format!("after {whole} ({})", parts.join(", ")),
    }
}

pub(super) fn refuse_way(site: &mut Site, ticket: Ticket, found: &[Obstacle]) {
    site.answer_ticket(ticket, Reply::Error(in_the_way(found)));
}

pub(super) fn in_the_way(found: &[Obstacle]) -> ErrorView {
    let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
    ErrorView {
        code: ErrorCode::Failed,
        message: texts.join("; "),
        hint: found.first().map(Obstacle::remedy),
        holders: Vec::new(),
    }
}
