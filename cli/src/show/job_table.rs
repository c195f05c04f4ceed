// SPDX-License-Identifier: Apache-2.0
//! The table of `ps`: which columns, which jobs, and what stands in each cell.
//!
//! A job has a row for each of its devices; what is the job's own stands in the first. Amounts of a column are in one
//! unit, so that they can be compared down the column.

use clap::ValueEnum;
use partage_protocol::admin::{ContainerView, EngineView, JobDeviceView, JobView, STATES};
use partage_protocol::size::{format_bytes, format_duration};

use crate::failure::{Failure, Outcome};
use crate::show::devices::gpu;
use crate::show::report::command_line;
use crate::show::tables;
use crate::show::terminal::Style;

/// A column of `ps`, as `-o` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Column {
    /// The job's id.
    Job,
    /// Its name.
    Name,
    /// Its owner.
    User,
    /// Its state.
    State,
    /// Its first process.
    Pid,
    /// Index of the device.
    Gpu,
    /// Bytes in use there.
    Used,
    /// The most that was in use there.
    Peak,
    /// The limit there.
    Limit,
    /// What is promised to it there.
    Promised,
    /// Processes that use the GPU.
    Clients,
    /// Denials.
    Denied,
    /// Exit code.
    Exit,
    /// When it was admitted.
    Started,
    /// How long it has run, or ran.
    Duration,
    /// Its labels.
    Labels,
    /// Its container's name, or the beginning of the id.
    Container,
    /// The engine's job that it is, and what the engine gave it.
    Engine,
    /// Its command.
    Command,
}

impl Column {
    /// What stands above it, and how it gives way: the command, the names, then whole columns.
    fn shape(self) -> tables::Column {
        let column = tables::Column::new;
        match self {
            Self::Job => column("JOB"),
            Self::Name => column("NAME").cut_in_the_middle(12).leaves_when_blank(),
            Self::User => column("USER").cut_in_the_middle(8).leaves(2),
            Self::State => column("STATE"),
            Self::Pid => column("PID"),
            Self::Gpu => column("GPU"),
            Self::Used => column("USED"),
            Self::Peak => column("PEAK"),
            Self::Limit => column("LIMIT"),
            Self::Promised => column("PROMISED"),
            Self::Clients => column("CLIENTS").leaves(3),
            Self::Denied => column("DENIED"),
            Self::Exit => column("EXIT").leaves_when_blank(),
            Self::Started => column("STARTED").leaves(5),
            Self::Duration => column("DURATION").leaves(4),
            Self::Labels => column("LABELS").cut(10),
            Self::Container => column("CONTAINER").cut_in_the_middle(12),
            Self::Engine => column("ENGINE").cut_in_the_middle(12),
            Self::Command => column("COMMAND").cut(10).leaves(1),
        }
    }

    fn is_per_device(self) -> bool {
        matches!(self, Self::Gpu | Self::Used | Self::Peak | Self::Limit | Self::Promised)
    }

    /// Amounts are written once all of them are known.
    fn bytes(self, device: &JobDeviceView) -> Option<Option<u64>> {
        match self {
            Self::Used => Some(Some(device.used_bytes)),
            Self::Peak => Some(Some(device.peak_bytes)),
            Self::Limit => Some(device.limit_bytes),
            Self::Promised => Some(Some(device.request_bytes)),
            _ => None,
        }
    }

    /// What is the job's own.
    fn text(self, job: &JobView, style: &Style, now_ns: u64) -> String {
        let end_ns = job.ended_ns.unwrap_or(now_ns);
        match self {
            Self::Job => job.job.clone(),
            Self::Name => style.text(job.name.as_deref().unwrap_or("-")),
            Self::User => style.text(&job.user),
            Self::State => style.state(&job.state),
            Self::Pid => job.pid.to_string(),
            Self::Clients => job.clients.len().to_string(),
            Self::Denied => job.denied.failed().to_string(),
            Self::Exit => {
                let code = job.exit_code.map_or("-".to_owned(), |code| code.to_string());
                if job.is_over_time {
                    format!("{code} time limit")
                } else {
                    code
                }
            }
            Self::Started | Self::Duration if job.state == "waiting" => "-".to_owned(),
            Self::Started => ago(now_ns.saturating_sub(job.started_ns)),
            Self::Duration => format_duration(end_ns.saturating_sub(job.started_ns)),
            Self::Labels => {
                let one = |(key, value): &(String, String)| format!("{key}={value}");
                let labels: Vec<String> = job.labels.iter().map(one).collect();
                style.text(&tables::joined(&labels, ",", "-"))
            }
            Self::Container => style.text(&job.container.as_ref().map_or("-".to_owned(), container_text)),
            Self::Engine => style.text(&job.engine.as_ref().map_or("-".to_owned(), engine_text)),
            Self::Command => style.text(&command_line(&job.command)),
            Self::Gpu | Self::Used | Self::Peak | Self::Limit | Self::Promised => "-".to_owned(),
        }
    }
}

/// `slurm:4711 shard:5 of 10`.
pub fn engine_text(engine: &EngineView) -> String {
    match &engine.words {
        Some(words) => format!("{} {words}", engine.id),
        None => engine.id.clone(),
    }
}

/// The name, else the digits of the id by which engines show a container.
pub fn container_text(container: &ContainerView) -> String {
    let short = || container.id.chars().take(12).collect::<String>();
    let text = container.name.clone().unwrap_or_else(short);
    if text.is_empty() { "-".to_owned() } else { text }
}

/// `2h ago`: in the largest unit of which there are two.
fn ago(ns: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let seconds = ns / 1_000_000_000;
    let unit = UNITS.iter().find(|(length, _)| seconds >= 2 * length);
    let (length, name) = unit.copied().unwrap_or((1, "s"));
    format!("{}{name} ago", seconds / length)
}

/// The columns that were asked for, else the usual ones.
pub fn columns(asked: &[Column], has_ended: bool) -> Vec<Column> {
    use Column::{Clients, Command, Duration, Exit, Gpu, Job, Limit, Name, Peak, Started, State, Used, User};
    match (asked, has_ended) {
        ([], false) => vec![Job, Name, User, State, Gpu, Used, Limit, Clients, Command],
        ([], true) => vec![
            Job, Name, User, State, Exit, Started, Duration, Gpu, Peak, Limit, Command,
        ],
        (asked, _) => asked.to_vec(),
    }
}

/// The jobs in rows under headings. Columns that were asked for are not left out.
pub fn text(style: &Style, jobs: &[JobView], columns: &[Column], is_asked: bool, now_ns: u64) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut devices: Vec<Option<&JobDeviceView>> = Vec::new();
    let is_per_device = columns.iter().any(|column| column.is_per_device());
    for job in jobs {
        for place in 0..if is_per_device { job.devices.len().max(1) } else { 1 } {
            let device = job.devices.get(place);
            let cell = |column: &Column| match (column, device) {
                (Column::Gpu, Some(device)) => gpu(device),
                _ if place == 0 => column.text(job, style, now_ns),
                _ => String::new(),
            };
            rows.push(columns.iter().map(cell).collect());
            devices.push(device);
        }
    }
    for (place, column) in columns.iter().enumerate() {
        let values: Vec<Option<Option<u64>>> = devices
            .iter()
            .map(|device| device.and_then(|device| column.bytes(device)))
            .collect();
        let unit = Unit::of(&values.iter().filter_map(|value| value.flatten()).collect::<Vec<_>>());
        for (row, value) in rows.iter_mut().zip(values) {
            if let Some(bytes) = value {
                row[place] = bytes.map_or("none".to_owned(), |bytes| unit.text(bytes));
            }
        }
    }
    let shape = |column: &Column| match is_asked {
        true => column.shape().stays(),
        false => column.shape(),
    };
    let shapes: Vec<tables::Column> = columns.iter().map(shape).collect();
    tables::table(style, &shapes, &rows)
}

/// Amounts in one unit, for a column.
pub fn in_one_unit(amounts: &[u64]) -> Vec<String> {
    let unit = Unit::of(amounts);
    amounts.iter().map(|bytes| unit.text(*bytes)).collect()
}

/// The unit of a column: the largest in which its smallest amount that is not 0 still shows.
#[derive(Clone, Copy, Debug)]
struct Unit {
    bytes: u64,
    name: &'static str,
    has_decimal: bool,
}

impl Unit {
    fn of(amounts: &[u64]) -> Self {
        const UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let most = amounts.iter().copied().max().unwrap_or(0);
        let least = amounts.iter().copied().filter(|amount| *amount > 0).min().unwrap_or(0);
        let shows = |(bytes, _): &&(u64, &str)| most >= *bytes && least >= *bytes / 10;
        let (bytes, name) = UNITS.iter().find(shows).copied().unwrap_or((1, "B"));
        Self {
            bytes,
            name,
            has_decimal: amounts.iter().any(|amount| !amount.is_multiple_of(bytes)),
        }
    }

    fn text(self, bytes: u64) -> String {
        if self.has_decimal {
            let tenths = (u128::from(bytes) * 10 + u128::from(self.bytes) / 2) / u128::from(self.bytes);
            format!("{}.{} {}", tenths / 10, tenths % 10, self.name)
        } else if bytes == 0 && self.bytes == 1 {
            format_bytes(0)
        } else {
            format!("{} {}", bytes / self.bytes, self.name)
        }
    }
}

/// One `--filter`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// `label=KEY` or `label=KEY=VALUE`.
    Label(String, Option<String>),
    /// `user=NAME`, or the uid.
    User(String),
    /// `state=WORD`.
    State(String),
}

impl Filter {
    /// From what was typed.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(text: &str) -> Outcome<Self> {
        let bad = |why: String| {
            let hint = "use label=KEY, label=KEY=VALUE, user=NAME or state=STATE";
            Err(Failure::invalid(format!("--filter: {why}")).hint(hint))
        };
        match text.split_once('=') {
            None | Some((_, "")) => bad(format!("{text:?} needs a value")),
            Some(("label", label)) => Ok(match label.split_once('=') {
                Some((key, value)) => Self::Label(key.to_owned(), Some(value.to_owned())),
                None => Self::Label(label.to_owned(), None),
            }),
            Some(("user", user)) => Ok(Self::User(user.to_owned())),
            Some(("state", state)) if !STATES.contains(&state) => {
                bad(format!("no job is ever {state:?}; states are {}", STATES.join(", ")))
            }
            Some(("state", state)) => Ok(Self::State(state.to_owned())),
            Some((key, _)) => bad(format!("unknown key {key:?}")),
        }
    }

    /// Does this job pass?
    pub fn lets(&self, job: &JobView) -> bool {
        match self {
            Self::Label(key, value) => job
                .labels
                .iter()
                .any(|(k, v)| k == key && value.as_ref().is_none_or(|value| value == v)),
            Self::User(user) => job.user == *user || job.uid.to_string() == *user,
            Self::State(state) => job.state == *state,
        }
    }
}

/// The jobs that every filter lets through.
///
/// # Errors
/// A filter that cannot be read.
pub fn filtered(jobs: Vec<JobView>, filters: &[String]) -> Outcome<Vec<JobView>> {
    let filters: Vec<Filter> = filters.iter().map(|text| Filter::read(text)).collect::<Outcome<_>>()?;
    let lets = |job: &JobView| filters.iter().all(|filter| filter.lets(job));
    Ok(jobs.into_iter().filter(lets).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Kind;

    #[test]
    fn a_column_has_one_unit_in_which_its_least_amount_shows() {
        let of = in_one_unit;
        const GIB: u64 = 1 << 30;
        const MIB: u64 = 1 << 20;
        assert_eq!(of(&[8 * GIB, 3 * GIB]), ["8 GiB", "3 GiB"]);
        assert_eq!(of(&[8 * GIB, 1536 * MIB, 0]), ["8.0 GiB", "1.5 GiB", "0.0 GiB"]);
        assert_eq!(of(&[8 * GIB, 64 * MIB]), ["8192 MiB", "64 MiB"]);
        assert_eq!(of(&[0]), ["0 B"]);
        assert_eq!(of(&[512 * MIB]), ["512 MiB"]);
    }

    #[test]
    fn filters_are_read_or_refused() {
        assert_eq!(
            Filter::read("label=a=b").expect("reads"),
            Filter::Label("a".to_owned(), Some("b".to_owned()))
        );
        assert!(Filter::read("label=a").is_ok() && Filter::read("state=over limit").is_ok());
        let bogus = Filter::read("state=bogus").expect_err("no state").sentence();
        assert!(
            bogus.contains("states are waiting, running, stopped, over limit, dying, ended"),
            "{bogus}"
        );
        for bad in ["user=", "label", "gpu=0"] {
            assert_eq!(Filter::read(bad).expect_err(bad).kind, Kind::Invalid);
        }
    }
}
