// SPDX-License-Identifier: Apache-2.0
//! What `top` knows: the broker's last words, the minute before, and what its user chose. It neither asks nor draws.
//!
//! - `history`: what each job got in the last minute. `rows`: which jobs, in which order. `mode`: what a key means.

pub mod history;
pub mod mode;
pub mod press;
pub mod rows;

use std::collections::HashMap;

use partage_protocol::admin::{JobView, StatusView, UnmanagedView};

use crate::failure::Outcome;
use crate::top::fields::Seen;

use history::History;
use mode::Mode;
use rows::{Filter, Order, Row};

/// What the broker says at one moment.
#[derive(Clone, Debug)]
pub struct Shot {
    /// Itself, the GPUs and the queue.
    pub status: StatusView,
    /// The jobs.
    pub jobs: Vec<JobView>,
    /// The processes of no job.
    pub unmanaged: Vec<UnmanagedView>,
}

/// No broker answers.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// Why.
    pub why: String,
    /// Since when, `17:01:03 UTC`.
    pub since: String,
}

/// All of it.
#[derive(Default)]
pub struct State {
    /// The last words of a broker.
    pub shot: Option<Shot>,
    /// Nobody answers at the moment.
    pub trouble: Option<Trouble>,
    /// The last minute.
    pub history: History,
    /// The order of the jobs.
    pub order: Order,
    /// Which of them are shown.
    pub filter: Filter,
    /// They are grouped by user.
    pub is_tree: bool,
    /// The job that the keys are about.
    pub chosen: Option<String>,
    /// What a key means now.
    pub mode: Mode,
    /// What became of the last key; until the next one.
    pub message: Option<String>,
    /// How many jobs the last frame had room for.
    pub page: usize,
}

impl State {
    /// As the command line says.
    ///
    /// # Errors
    /// A column or a filter that cannot be read.
    pub fn new(sort: Option<&str>, filter: Option<&str>, is_tree: bool) -> Outcome<Self> {
        Ok(Self {
            order: sort.map(Order::by).transpose()?.unwrap_or_default(),
            filter: filter.map(Filter::read).transpose()?.unwrap_or_default(),
            is_tree,
            ..Self::default()
        })
    }

    /// A broker answered.
    pub fn take(&mut self, shot: Shot) {
        self.history.note(&shot.jobs);
        self.trouble = None;
        self.shot = Some(shot);
        self.keep_chosen();
    }

    /// None did; `clock` says when.
    pub fn miss(&mut self, why: &str, clock: &str) {
        self.history.note_silence();
        let since = self.trouble.take().map_or(clock.to_owned(), |trouble| trouble.since);
        self.trouble = Some(Trouble {
            why: why.to_owned(),
            since,
        });
    }

    /// Everything that is shown of the jobs, in order.
    pub fn rows(&self) -> Vec<Row<'_>> {
        let Some(shot) = &self.shot else { return Vec::new() };
        let queue = shot.status.queue.iter().zip(1..);
        let queue: HashMap<&str, _> = queue
            .map(|(queued, place)| (queued.job.as_str(), (place, queued)))
            .collect();
        let seen = |job| self.seen(shot, job, &queue);
        rows::rows(
            shot.jobs.iter().map(seen).collect(),
            &self.filter,
            self.order,
            self.is_tree,
        )
    }

    fn seen<'a>(
        &'a self,
        shot: &'a Shot,
        job: &'a JobView,
        queue: &HashMap<&str, (usize, &'a partage_protocol::admin::QueuedView)>,
    ) -> Seen<'a> {
        Seen {
            job,
            queued: queue.get(job.job.as_str()).copied(),
            devices: &shot.status.devices,
            minute: self.history.of(&job.job),
        }
    }

    /// The ids of the jobs that are shown, in order.
    pub fn shown(&self) -> Vec<String> {
        let rows = self.rows();
        let ids = rows.iter().filter_map(|row| match row {
            Row::Job(seen) => Some(seen.job.job.clone()),
            Row::User { .. } => None,
        });
        ids.collect()
    }

    /// The keys are about a job that is shown, where any is.
    pub fn keep_chosen(&mut self) {
        let shown = self.shown();
        let is_shown = self.chosen.as_ref().is_some_and(|chosen| shown.contains(chosen));
        if !is_shown {
            self.chosen = shown.into_iter().next();
        }
    }

    /// The keys are about the job so many lines below.
    pub fn choose(&mut self, below: isize) {
        let mut shown = self.shown();
        let own = shown
            .iter()
            .position(|job| Some(job) == self.chosen.as_ref())
            .unwrap_or(0);
        let next = own.saturating_add_signed(below).min(shown.len().saturating_sub(1));
        self.chosen = (next < shown.len()).then(|| shown.swap_remove(next));
    }
}
