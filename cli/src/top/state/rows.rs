// SPDX-License-Identifier: Apache-2.0
//! Which jobs are shown, and in which order.

use std::collections::BTreeMap;

use crate::failure::{Failure, Outcome};
use crate::show::job_table;
use crate::top::fields::{self, Cell, Field, Seen};

/// The order of the jobs.
#[derive(Clone, Copy)]
pub struct Order {
    /// The column.
    pub field: &'static Field,
    /// The other way round.
    pub is_reversed: bool,
}

impl Default for Order {
    fn default() -> Self {
        Self {
            field: &fields::FIELDS[0],
            is_reversed: false,
        }
    }
}

impl Order {
    /// By the column of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn by(name: &str) -> Outcome<Self> {
        let field = fields::all().find(|field| field.name == name);
        let field = field.ok_or_else(|| {
            let names: Vec<&str> = fields::all().map(|field| field.name).collect();
            Failure::invalid(format!("--sort: no column is called {name:?}"))
                .hint(format!("columns are {}", names.join(", ")))
        })?;
        Ok(Self {
            field,
            is_reversed: false,
        })
    }

    /// By the next column.
    pub fn next(self) -> Self {
        let own = fields::all().position(|field| field.name == self.field.name);
        let next = own.map_or(0, |own| (own + 1) % fields::all().count());
        Self {
            field: fields::all().nth(next).unwrap_or(self.field),
            is_reversed: false,
        }
    }

    fn sort(self, jobs: &mut [Seen<'_>]) {
        // A job's id decides between equals, so that rows keep their places. Cells are made once for each job.
        jobs.sort_by_cached_key(|seen| Sorted {
            cell: (self.field.cell)(seen),
            id: Cell::Text(seen.job.job.clone()),
        });
        if self.is_reversed {
            jobs.reverse();
        }
    }
}

struct Sorted {
    cell: Cell,
    id: Cell,
}

impl Ord for Sorted {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.cell.order(&other.cell).then_with(|| self.id.order(&other.id))
    }
}

impl PartialOrd for Sorted {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Sorted {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Sorted {}

/// Which jobs are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// As it was typed; empty for all jobs.
    pub text: String,
    pair: Option<job_table::Filter>,
}

impl Filter {
    /// `KEY=VALUE` as in `ps --filter`, or a text that a column has.
    ///
    /// # Errors
    /// A pair that cannot be read.
    pub fn read(text: &str) -> Outcome<Self> {
        let pair = text.contains('=').then(|| job_table::Filter::read(text)).transpose()?;
        Ok(Self {
            text: text.to_owned(),
            pair,
        })
    }

    fn lets(&self, seen: &Seen<'_>) -> bool {
        if let Some(pair) = &self.pair {
            return pair.lets(seen.job);
        }
        let wanted = self.text.to_lowercase();
        wanted.is_empty()
            || fields::all().any(|field| match (field.cell)(seen) {
                Cell::Text(text) => text.to_lowercase().contains(&wanted),
                _ => false,
            })
    }
}

/// A line of the table.
pub enum Row<'a> {
    /// A user, with what belongs to the jobs below.
    User {
        /// Who.
        user: &'a str,
        /// How many jobs.
        jobs: usize,
        /// Bytes in use.
        used_bytes: u64,
        /// The sum of what they get of a GPU's time.
        got: f64,
    },
    /// A job.
    Job(Seen<'a>),
}

/// The lines in their order.
pub fn rows<'a>(jobs: Vec<Seen<'a>>, filter: &Filter, order: Order, is_tree: bool) -> Vec<Row<'a>> {
    let mut jobs: Vec<Seen<'a>> = jobs.into_iter().filter(|seen| filter.lets(seen)).collect();
    order.sort(&mut jobs);
    if !is_tree {
        return jobs.into_iter().map(Row::Job).collect();
    }
    let mut users: BTreeMap<&'a str, Vec<Seen<'a>>> = BTreeMap::new();
    for seen in jobs {
        users.entry(seen.job.user.as_str()).or_default().push(seen);
    }
    let mut rows = Vec::new();
    for (user, jobs) in users {
        let devices = || jobs.iter().flat_map(|seen| &seen.job.devices);
        rows.push(Row::User {
            user,
            jobs: jobs.len(),
            used_bytes: devices().map(|device| device.used_bytes).sum(),
            got: devices()
                .filter_map(|device| device.time.as_ref())
                .map(|time| time.got_1s)
                .sum(),
        });
        rows.extend(jobs.into_iter().map(Row::Job));
    }
    rows
}
