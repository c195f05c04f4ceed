// SPDX-License-Identifier: Apache-2.0
//! The one list of what is shown of a job: the table, the line of the chosen job, `--once`, `--json` and `--sort` are
//! made from it.
//!
//! Memory is the sum over a job's GPUs, parts of time are the mean over those whose time is measured.

use std::cmp::Ordering;

use partage_protocol::admin::{DeviceView, JobDeviceView, JobView, QueuedView, TimeView};
use partage_protocol::size::format_duration;
use serde_json::{Map, Value, json};

use crate::show::devices::gpu;
use crate::show::job_table::{container_text, engine_text};
use crate::show::report::command_line;

/// What is known of one job.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// Its numbers.
    pub job: &'a JobView,
    /// Its place in the queue and what it waits for.
    pub queued: Option<(usize, &'a QueuedView)>,
    /// The GPUs of the machine.
    pub devices: &'a [DeviceView],
    /// What it got in each of the last seconds, the oldest first; none where it was not measured.
    pub minute: &'a [Option<f64>],
}

/// What stands in a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// It does not apply.
    Nothing,
    /// A word or a sentence; empty for nothing.
    Text(String),
    /// Bytes; none where there is no bound.
    Bytes(Option<u64>),
    /// A part of a GPU's time; none where it is not known.
    Part(Option<f64>),
    /// Nanoseconds; none where they are not known.
    Time(Option<u64>),
    /// A number of things.
    Count(u64),
    /// A part of time for each of the last seconds.
    Minute(Vec<Option<f64>>),
}

/// How a column becomes narrower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It has so many cells, or more where something is wider.
    Whole(u16),
    /// From so many to so many cells; its middle is cut out.
    Between(u16, u16),
    /// From so many cells to all that is left; its end is cut off.
    Rest(u16),
}

/// One thing that is shown of a job.
pub struct Field {
    /// Its key in documents.
    pub key: &'static str,
    /// Its name for `--sort`.
    pub name: &'static str,
    /// What stands above it.
    pub heading: &'static str,
    /// Its width.
    pub room: Room,
    /// When it leaves a terminal that is too narrow: the smallest first; none stays.
    pub leaves: Option<u8>,
    /// What it is.
    pub cell: fn(&Seen<'_>) -> Cell,
}

/// All of them, in the order of the table.
pub static FIELDS: [Field; 18] = [
    row("job", "job", "JOB", Room::Whole(4), None, |seen| text(&seen.job.job)),
    row("name", "name", "NAME", Room::Between(6, 20), None, |seen| {
        text(seen.job.name.as_deref().unwrap_or_default())
    }),
    row("user", "user", "USER", Room::Between(6, 12), Some(10), |seen| {
        text(&seen.job.user)
    }),
    row("state", "state", "STATE", Room::Whole(9), None, |seen| {
        text(&seen.job.state)
    }),
    row("gpus", "gpu", "GPU", Room::Between(3, 7), None, |seen| {
        let gpus: Vec<String> = seen.job.devices.iter().map(gpu).collect();
        Cell::Text(gpus.join(","))
    }),
    row("used_bytes", "used", "USED", Room::Whole(6), None, |seen| {
        sum(seen, |device| Some(device.used_bytes))
    }),
    row("limit_bytes", "limit", "LIMIT", Room::Whole(6), Some(12), |seen| {
        sum(seen, |device| device.limit_bytes)
    }),
    row(
        "request_bytes",
        "promised",
        "PROMISED",
        Room::Whole(8),
        Some(4),
        |seen| sum(seen, |device| Some(device.request_bytes)),
    ),
    row("asked", "asked", "ASKED", Room::Whole(5), Some(8), |seen| {
        Cell::Part(Some(seen.job.terms.promise).filter(|part| *part > 0.0))
    }),
    row("share", "share", "SHARE", Room::Whole(5), Some(5), |seen| {
        mean(seen.job, |time| time.share)
    }),
    row("got_1s", "got", "GOT", Room::Whole(5), None, |seen| {
        mean(seen.job, |time| time.got_1s)
    }),
    row("got_60s", "60s", "60s", Room::Whole(5), Some(7), |seen| {
        mean(seen.job, |time| time.got_60s)
    }),
    row("minute", "minute", "MINUTE", Room::Between(10, 30), Some(11), |seen| {
        Cell::Minute(seen.minute.to_vec())
    }),
    row("waited_60s_ns", "waited", "WAITED", Room::Whole(6), Some(9), |seen| {
        Cell::Time(waited(seen))
    }),
    row("held_by", "held", "HELD BY", Room::Between(8, 14), None, |seen| {
        Cell::Text(held_by(seen))
    }),
    row("denied", "denied", "DENIED", Room::Whole(6), Some(6), |seen| {
        Cell::Count(seen.job.denied.failed())
    }),
    row(
        "container",
        "container",
        "CONTAINER",
        Room::Between(9, 16),
        Some(3),
        |seen| {
            let container = seen.job.container.as_ref().map(container_text);
            Cell::Text(container.filter(|name| name != "-").unwrap_or_default())
        },
    ),
    row("engine", "engine", "ENGINE", Room::Between(6, 20), Some(2), |seen| {
        Cell::Text(seen.job.engine.as_ref().map_or(String::new(), engine_text))
    }),
];

/// What fills the rest of a wide line; it has no key, since a command is a list of words in documents.
pub static COMMAND: Field = row("command", "command", "COMMAND", Room::Rest(12), Some(1), |seen| {
    Cell::Text(command_line(&seen.job.command))
});

const fn row(
    key: &'static str,
    name: &'static str,
    heading: &'static str,
    room: Room,
    leaves: Option<u8>,
    cell: fn(&Seen<'_>) -> Cell,
) -> Field {
    Field {
        key,
        name,
        heading,
        room,
        leaves,
        cell,
    }
}

/// Every field, the command last.
pub fn all() -> impl Iterator<Item = &'static Field> {
    FIELDS.iter().chain(std::iter::once(&COMMAND))
}

/// Over its GPUs; a job that waits has none yet.
fn sum(seen: &Seen<'_>, bytes: fn(&JobDeviceView) -> Option<u64>) -> Cell {
    match seen.job.devices.as_slice() {
        [] => Cell::Nothing,
        devices => Cell::Bytes(devices.iter().map(bytes).sum()),
    }
}

fn text(text: &str) -> Cell {
    Cell::Text(text.to_owned())
}

/// The mean over the GPUs where the job's time is measured; none where it is nowhere.
pub fn mean(job: &JobView, part: fn(&TimeView) -> f64) -> Cell {
    Cell::Part(mean_of(job, part))
}

/// The number of [`mean`].
pub fn mean_of(job: &JobView, part: fn(&TimeView) -> f64) -> Option<f64> {
    let parts: Vec<f64> = job
        .devices
        .iter()
        .filter_map(|device| device.time.as_ref())
        .map(part)
        .collect();
    (!parts.is_empty()).then(|| parts.iter().sum::<f64>() / parts.len() as f64)
}

/// In the queue since it asked; at its gates, the longest of its GPUs.
fn waited(seen: &Seen<'_>) -> Option<u64> {
    let gates = seen.job.devices.iter().filter_map(|device| device.time.as_ref());
    match seen.queued {
        Some((_, queued)) => Some(queued.waited_ns),
        None => gates.map(|time| time.waited_60s_ns).max(),
    }
}

/// What holds it up, as `why` says it, in a word or two; empty where nothing does.
fn held_by(seen: &Seen<'_>) -> String {
    if let Some((place, _)) = seen.queued {
        return format!("queue {place}");
    }
    let times = seen.job.devices.iter().filter_map(|device| device.time.as_ref());
    for time in times {
        match (&time.held_by, time.state.as_str()) {
            (Some(by), _) if time.is_held_by_priority => return format!("{by} priority"),
            (Some(by), _) => return by.clone(),
            (None, "not draining") => return "own work".to_owned(),
            _ => {}
        }
    }
    let is_there = |device: &&DeviceView| seen.job.devices.iter().any(|own| own.uuid == device.uuid);
    let throttled = seen
        .devices
        .iter()
        .filter(is_there)
        .find_map(|device| device.throttle.first());
    throttled.cloned().unwrap_or_default()
}

impl Cell {
    /// For people; `-` where there is nothing to say.
    pub fn text(&self) -> String {
        match self {
            Self::Nothing | Self::Minute(_) => "-".to_owned(),
            Self::Text(text) if text.is_empty() => "-".to_owned(),
            Self::Text(text) => text.clone(),
            Self::Bytes(bytes) => bytes.map_or("none".to_owned(), compact),
            Self::Part(part) => part.map_or("-".to_owned(), percent),
            Self::Time(None) | Self::Time(Some(0)) => "-".to_owned(),
            Self::Time(Some(ns)) => format_duration(*ns),
            Self::Count(count) => count.to_string(),
        }
    }

    /// For programs.
    fn value(&self) -> Value {
        match self {
            Self::Nothing => Value::Null,
            Self::Text(text) if text.is_empty() => Value::Null,
            Self::Text(text) => json!(text),
            Self::Bytes(bytes) => json!(bytes),
            Self::Part(part) => json!(part),
            Self::Time(ns) => json!(ns),
            Self::Count(count) => json!(count),
            Self::Minute(parts) => json!(parts),
        }
    }

    /// Numbers stand to the right.
    pub fn is_number(&self) -> bool {
        !matches!(self, Self::Text(_) | Self::Minute(_))
    }

    /// Nothing stands there.
    pub fn is_blank(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Text(text) => text.is_empty(),
            Self::Minute(parts) => parts.iter().all(Option::is_none),
            _ => false,
        }
    }

    /// The order of a column: numbers from the greatest, words from A; ids by their numbers.
    pub fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Text(one), Self::Text(other)) => {
                let id = |text: &str| text.strip_prefix('j').and_then(|digits| digits.parse::<u64>().ok());
                match (id(one), id(other)) {
                    (Some(one), Some(other)) => one.cmp(&other),
                    _ => one.cmp(other),
                }
            }
            (Self::Bytes(one), Self::Bytes(other)) => {
                // Without a bound is the most.
                other.unwrap_or(u64::MAX).cmp(&one.unwrap_or(u64::MAX))
            }
            (Self::Part(one), Self::Part(other)) => other.unwrap_or(-1.0).total_cmp(&one.unwrap_or(-1.0)),
            (Self::Time(one), Self::Time(other)) => other.cmp(one),
            (Self::Count(one), Self::Count(other)) => other.cmp(one),
            (Self::Minute(one), Self::Minute(other)) => {
                let sum = |parts: &[Option<f64>]| parts.iter().flatten().sum::<f64>();
                sum(other).total_cmp(&sum(one))
            }
            // What does not apply comes last.
            (one, other) => matches!(one, Self::Nothing).cmp(&matches!(other, Self::Nothing)),
        }
    }
}

/// A job as a document.
pub fn document(seen: &Seen<'_>) -> Value {
    let fields = FIELDS
        .iter()
        .map(|field| (field.key.to_owned(), (field.cell)(seen).value()));
    let mut fields: Map<String, Value> = fields.collect();
    fields.insert(COMMAND.key.to_owned(), json!(seen.job.command));
    Value::Object(fields)
}

/// Bytes in at most six letters: `35.2G`, `812M`, `0`.
pub fn compact(bytes: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    let Some((unit, name)) = UNITS.iter().find(|(unit, _)| bytes >= *unit) else {
        return bytes.to_string();
    };
    let tenths = (u128::from(bytes) * 10 + u128::from(*unit) / 2) / u128::from(*unit);
    match tenths {
        1000.. => format!("{}{name}", (tenths + 5) / 10),
        tenths if tenths % 10 == 0 => format!("{}{name}", tenths / 10),
        tenths => format!("{}.{}{name}", tenths / 10, tenths % 10),
    }
}

/// A part in at most five letters: `49 %`, `<1 %`.
pub fn percent(part: f64) -> String {
    // A sum of nothing is -0.
    let percent = part * 100.0 + 0.0;
    if percent > 0.0 && percent < 1.0 {
        "<1 %".to_owned()
    } else {
        format!("{percent:.0} %")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_and_parts_are_short() {
        const GIB: u64 = 1 << 30;
        let of = |bytes| compact(bytes);
        assert_eq!(
            [of(0), of(900), of(8 * GIB), of(GIB * 352 / 10)],
            ["0", "900", "8G", "35.2G"]
        );
        assert_eq!([of(140 * GIB + GIB / 3), of(1023 << 20)], ["140G", "1023M"]);
        assert_eq!(
            [percent(-0.0), percent(0.002), percent(0.496), percent(1.0)],
            ["0 %", "<1 %", "50 %", "100 %"]
        );
    }

    #[test]
    fn numbers_go_from_the_greatest_and_ids_by_their_digits() {
        let text = |text: &str| Cell::Text(text.to_owned());
        assert_eq!(text("j9").order(&text("j10")), Ordering::Less);
        assert_eq!(text("alice").order(&text("bob")), Ordering::Less);
        assert_eq!(Cell::Bytes(Some(1)).order(&Cell::Bytes(None)), Ordering::Greater);
        assert_eq!(Cell::Part(Some(0.5)).order(&Cell::Part(None)), Ordering::Less);
    }

    #[test]
    fn every_name_is_unique_and_in_the_help() {
        let names: Vec<&str> = all().map(|field| field.name).filter(|name| *name != "minute").collect();
        let mut once = names.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), names.len());
        let command = crate::help::command();
        let help = command
            .find_subcommand("top")
            .and_then(|top| top.get_after_help())
            .expect("help")
            .to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            help.contains(&format!("Columns for --sort: {}.", names.join(", "))),
            "{help}"
        );
    }
}
