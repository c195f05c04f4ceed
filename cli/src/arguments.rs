// SPDX-License-Identifier: Apache-2.0
//! The command line's words: the only place that says which commands and options exist. `docs/cli.md` is made from it.

mod again;
mod amounts;
mod config;
mod container;
mod demo;
mod install;
mod metrics;
mod on_full;
mod outside;
mod quota;
mod residence;
mod sim;
mod snapshot;
mod top;
mod verify;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{Arg, Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::show::job_table::Column;
use crate::show::terminal::ColorChoice;

pub use again::Again;
pub use amounts::Amounts;
pub use config::{Config, ConfigAction};
pub use container::{Cdi, CdiAction, CdiGenerate, CreateRuntime, Hook, HookAction, Numbers, Register};
pub use demo::Demo;
pub use install::{Install, StartNow, Uninstall};
pub use metrics::Metrics;
pub use on_full::OnFull;
pub use outside::Tcp;
pub use quota::{Quota, QuotaAction};
pub use residence::{Drain, Migrate, Resume, Suspend, Undrain};
pub use sim::Sim;
pub use snapshot::{Checkpoint, Files, GpuPair, Restore};
pub use top::Top;
pub use verify::Verify;

/// Share a GPU between programs: give each a limit on memory and a share of time.
#[derive(Debug, Parser)]
#[command(
    name = "partage",
    version = concat!(env!("PARTAGE_VERSION"), " (", env!("PARTAGE_COMMIT"), ")"),
    max_term_width = 80,
    after_help = "Examples:
  partage run -m 25% -- python train.py     under a quarter of a GPU's memory
  partage run -c 30% -- python train.py     promised 30 % of a GPU's time
  partage ps                                list the jobs
  partage set j3 mem=8GiB compute=50%       change a running job
  partage sim -- partage run -m 25% -- CMD  try it on a simulated GPU
  partage demo                              see it at work, in a few seconds

Exit status: 0 success, 1 refused, 2 bad usage, 3 not permitted, 4 no such job,
5 no broker running, or it does not answer. `run` and `sim` exit with COMMAND's
status; their own are 124 no room, 125 failed, 126 not executable, 127 not
found."
)]
pub struct Arguments {
    #[command(flatten)]
    pub everywhere: Everywhere,
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Args, Debug)]
pub struct Everywhere {
    /// Write JSON (schema partage/v1, see docs/json/)
    #[arg(long, global = true, display_order = 900)]
    pub json: bool,
    /// Colour the output: auto (on a terminal), always or never
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_default_value = true,
        hide_possible_values = true,
        display_order = 901
    )]
    pub color: ColorChoice,
    /// Talk to the broker in DIR (PARTAGE_SOCKET_DIR)
    #[arg(long, global = true, value_name = "DIR", display_order = 902)]
    pub socket_dir: Option<PathBuf>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    Run(Box<Run>),
    Ps(Ps),
    Status(Status),
    Top(Top),
    Queue(Queue),
    Set(Set),
    Get(Get),
    Why(Why),
    Stop(Stop),
    Suspend(Suspend),
    Resume(Resume),
    Checkpoint(Checkpoint),
    Restore(Restore),
    Migrate(Migrate),
    Drain(Drain),
    Undrain(Undrain),
    Broker(Broker),
    Config(Config),
    Quota(Quota),
    Register(Box<Register>),
    Hook(Box<Hook>),
    Cdi(Cdi),
    Sim(Sim),
    Demo(Demo),
    Doctor(Doctor),
    Verify(Verify),
    Install(Install),
    Uninstall(Uninstall),
    Events(Events),
    Metrics(Metrics),
    Completions(Completions),
    Man(Man),
    Version(Version),
}

/// Run COMMAND and its children under a limit of GPU memory and time
#[derive(Args, Clone, Debug, Default)]
#[command(
    mut_args(with_variable),
    after_help = "`partage run` becomes COMMAND, so Ctrl-C, Ctrl-Z and the exit status work as
usual. Without -m there is no memory limit and no promise.

-c promises a share of each GPU's time. Time that the job does not use goes to
other jobs. Without -c the job shares what is left by --weight. Only
--compute-max slows a job down on an idle GPU.

With --lazy nothing is asked or promised before a process of COMMAND first calls
cuInit. That call waits for room as `run` would, or fails (out of memory) with
--on-full fail. Not with --summary.

Sizes: 8GiB, 8192M or 25%. Durations: 90s, 10m or 1h30m. Every option can also
be set in the environment: PARTAGE_MEM=25%, PARTAGE_STRICT=1. An empty variable
is ignored. Without an option, other tools' variables are used (docs/cli.md).

Examples:
  partage run -m 25% -- python train.py
  partage run -m 8GiB -g 1 --name eval --on-full fail -- ./eval --all
  partage run -c 30% --compute-max 50% --time-limit 2h -- python train.py
  partage run --priority low -- python sweep.py     behind the others' work
  partage run -m 8GiB -g auto:2 -- torchrun --nproc-per-node 2 train.py
  partage run -m 50% --dry-run -- true       say what would happen"
)]
pub struct Run {
    #[command(flatten)]
    pub amounts: Amounts,
    /// Start from the numbers of a class of the host's configuration
    #[arg(long, value_name = "CLASS")]
    pub class: Option<String>,
    /// auto (one GPU), auto:N, all, nvidia-smi's index, a UUID; several with commas
    #[arg(short, long, value_name = "GPU")]
    pub gpu: Option<String>,
    /// If there is no room: wait (default), or fail with exit status 124
    #[arg(long, value_name = "WHAT", hide_possible_values = true)]
    pub on_full: Option<OnFull>,
    /// Give up waiting after this time, with exit status 124
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub wait_timeout: Option<String>,
    /// Name of the job, unique among your live jobs
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Label for `ps --filter label=K`; can be repeated
    #[arg(long, value_name = "K=V", value_delimiter = ',')]
    pub label: Vec<String>,
    /// Refuse a COMMAND that escapes the limit, and kill processes that use a GPU without it
    #[arg(long, value_parser = BoolishValueParser::new())]
    pub strict: bool,
    /// Become a job at the first use of a GPU: until then nothing is promised
    #[arg(long, value_parser = BoolishValueParser::new())]
    pub lazy: bool,
    /// May be suspended for jobs of a higher priority; default: yes for priority low, no for the others
    #[arg(
        long,
        value_name = "YES|NO",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "yes",
        hide_possible_values = true,
        value_parser = BoolishValueParser::new()
    )]
    pub preemptible: Option<bool>,
    /// Give the GPU's memory to others after this time without a call, until the next one
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub idle_release: Option<String>,
    /// Save the job in --checkpoint-out, this long after the last save
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub checkpoint_every: Option<String>,
    /// The folder for --checkpoint-every, yours alone; made where it is missing
    #[arg(long, value_name = "DIR")]
    pub checkpoint_out: Option<PathBuf>,
    /// With --checkpoint-every: copy files that the job writes in place, up to SIZE [default: 1GiB]
    #[arg(long, value_name = "SIZE", requires = "checkpoint_every", allow_hyphen_values = true)]
    pub files_max: Option<String>,
    /// Connections out of the job, when it is saved: refuse (default), or close
    #[arg(
        long,
        value_name = "WHAT",
        hide_possible_values = true,
        requires = "checkpoint_every"
    )]
    pub tcp: Option<Tcp>,
    /// Say what would happen, and run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Stay as COMMAND's parent and end with one line: exit status, time, peak memory, denials
    #[arg(long, value_parser = BoolishValueParser::new())]
    pub summary: bool,
    /// Say nothing about admission, waiting, denials and the end of the job
    #[arg(short, long, value_parser = BoolishValueParser::new())]
    pub quiet: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Variables that `run` reads instead of options. They have done their work: COMMAND does not get them, or a `run`
/// inside would read them again.
pub const TWINS: &[&str] = &[
    "PARTAGE_MEM",
    "PARTAGE_MEM_REQUEST",
    "PARTAGE_PROCESS_MEM",
    "PARTAGE_COMPUTE",
    "PARTAGE_COMPUTE_MAX",
    "PARTAGE_WEIGHT",
    "PARTAGE_PRIORITY",
    "PARTAGE_TIME_LIMIT",
    "PARTAGE_CLASS",
    "PARTAGE_GPU",
    "PARTAGE_ON_FULL",
    "PARTAGE_WAIT_TIMEOUT",
    "PARTAGE_NAME",
    "PARTAGE_LABEL",
    "PARTAGE_STRICT",
    "PARTAGE_PREEMPTIBLE",
    "PARTAGE_IDLE_RELEASE",
    "PARTAGE_CHECKPOINT_EVERY",
    "PARTAGE_CHECKPOINT_OUT",
    "PARTAGE_QUIET",
    "PARTAGE_SUMMARY",
    "PARTAGE_LAZY",
];

/// An option of `run` with its variable, where it has one: `PARTAGE_MEM` for `--mem`.
fn with_variable(option: Arg) -> Arg {
    let id = option.get_id().as_str().to_ascii_uppercase();
    match TWINS.iter().find(|twin| twin.strip_prefix("PARTAGE_") == Some(&id)) {
        Some(twin) => option.env(*twin).hide_env(true),
        None => option,
    }
}

/// List the jobs, and unmanaged GPU processes
#[derive(Args, Debug)]
#[command(
    visible_alias = "ls",
    after_help = "The second table shows jobs at work that share a GPU or have a cap.

A terminal that is too narrow gets shorter commands, names cut in the middle and
in the end fewer columns: without COMMAND, then USER, then CLIENTS. Columns of
-o stay. A pipe or a file gets everything.

Columns for -o: job, name, user, state, pid, gpu, used, peak, limit, promised,
clients, denied, exit, started, duration, labels, container, command.

Examples:
  partage ps
  partage ps -a --filter state=ended
  partage ps -o job,name,peak,limit --filter label=team=vision
  partage ps --json | jq '.jobs[] | {job, name, devices}'"
)]
pub struct Ps {
    /// Show jobs that ended in the last 24 hours too, with exit status, start, duration and peak
    #[arg(short, long)]
    pub all: bool,
    /// Show these columns only
    #[arg(
        short = 'o',
        long,
        value_name = "COLS",
        value_delimiter = ',',
        hide_possible_values = true
    )]
    pub columns: Vec<Column>,
    /// Show jobs with label=KEY, label=KEY=VALUE, user=NAME or state=STATE; can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub filter: Vec<String>,
    /// Show every column whole, wider than the terminal
    #[arg(long)]
    pub no_trunc: bool,
    #[command(flatten)]
    pub again: Again,
}

/// Show the GPUs, what of them is committed, queue and broker
#[derive(Args, Debug)]
pub struct Status {
    /// Print one line for Nagios and its like, and exit with 0 (ok), 1 (warning) or 2 (critical)
    #[arg(long, conflicts_with = "seconds")]
    pub check: bool,
    #[command(flatten)]
    pub again: Again,
}

/// Show who waits, in order: what for, and a guess of how long still
#[derive(Args, Debug)]
pub struct Queue {}

/// Change a running job
#[derive(Args, Debug)]
#[command(
    after_help = "Keys: mem, mem-request and process-mem (SIZE, PCT or none), compute and
compute-max (PCT or none), weight (N), priority (low, normal, high, realtime),
time-limit (DUR or none), name (NAME or none).

If the new limit is below current use, nothing is killed: new allocations fail
until the job has freed enough. If the whole limit was promised, the promise
(mem-request) changes with it. Shares of time change at once. A promise that
does not fit is refused, and then nothing is changed.

Examples:
  partage set j3 mem=8GiB
  partage set j3 compute=30% compute-max=none priority=low
  partage set train mem=50% mem-request=25%
  partage set process:1234 mem=2GiB       one process of a job, alone"
)]
pub struct Set {
    /// Job id (j3), name, or the pid of one of its processes; process:PID for mem of that process alone
    pub target: String,
    /// What to change, and to what
    #[arg(required = true, value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
    /// Go beyond the rules of the configuration until the job ends (administrators)
    #[arg(long)]
    pub force: bool,
}

/// Show everything about one job, a user's limits, or a GPU
#[derive(Args, Debug)]
pub struct Get {
    /// Job id (j3), name, or the pid of one of its processes; @alice for a user's limits and what is used of each;
    /// gpu:0 for the state of a GPU
    pub target: String,
}

/// Explain a job: what it was denied, what slows it, its limits
#[derive(Args, Debug)]
#[command(
    after_help = "The most serious point comes first. Works for jobs that ended in the last 24
hours too."
)]
pub struct Why {
    /// Job id (j3), name, or the pid of one of its processes
    pub target: String,
}

/// End jobs: SIGTERM, and SIGKILL after a grace period
#[derive(Args, Debug)]
#[command(
    visible_alias = "kill",
    after_help = "Examples:
  partage stop j3
  partage stop j3 train --grace 1m
  partage stop --all"
)]
pub struct Stop {
    /// Job id (j3), name, or the pid of one of its processes; several end together
    #[arg(value_name = "TARGET", required_unless_present = "all", conflicts_with = "all")]
    pub targets: Vec<String>,
    /// End all of your jobs
    #[arg(long)]
    pub all: bool,
    /// Time between the two signals
    #[arg(long, value_name = "DUR", default_value = "10s", allow_hyphen_values = true)]
    pub grace: String,
}

/// Start, stop or show the broker
#[derive(Args, Debug)]
#[command(
    after_help = "`partage run` starts a broker for you when none is running. It exits a minute
after your last job. On a host with a managed broker
(/etc/partage/partage.toml or /run/partage exists) Partage never starts one."
)]
pub struct Broker {
    #[command(subcommand)]
    pub action: BrokerAction,
}

/// What to do with the broker.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum BrokerAction {
    /// Start a broker for you, unless one is running
    Start,
    /// Stop it; running jobs keep their limits, and the next broker takes them over
    Stop,
    /// Show it (exit status 0), or say that none answers (exit status 5)
    Status,
}

/// Check this machine and suggest fixes
#[derive(Args, Debug)]
#[command(
    after_help = "A line that says `off` is about something that one can do without. Exit status 1
if a check fails; with --strict also if one warns.

Example, for cron, which mails what is written:
  partage doctor --strict > doctor.log || cat doctor.log"
)]
pub struct Doctor {
    /// Exit status 1 for warnings, too
    #[arg(long)]
    pub strict: bool,
}

/// Show what happened: starts, ends, denials, missing limits
#[derive(Args, Debug)]
#[command(
    after_help = "Events stay for 30 days, and a restart of the broker loses none. At most
64 MiB are kept, 8 MiB on a broker of one's own. Kinds: docs/events.md.

Example:
  partage events --since 2h --user alice --kind denied,job-ended"
)]
pub struct Events {
    /// Keep running and show each new event
    #[arg(short, long)]
    pub follow: bool,
    /// Show events of this last stretch of time only, e.g. 10m [default: 1d; with --after: all that are kept]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    pub since: Option<String>,
    /// Show no event of this last stretch of time
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, conflicts_with = "follow")]
    pub until: Option<String>,
    /// Show events of this user's jobs only: a name, or a number
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Show events of these kinds only, e.g. denied,job-ended
    #[arg(long = "kind", value_name = "KIND", value_delimiter = ',')]
    pub kinds: Vec<String>,
    /// Show events of this job only, e.g. j42
    #[arg(long, value_name = "JOB")]
    pub job: Option<String>,
    /// Show events after the one with this number only: the last `number` that a reader of --json had
    #[arg(long, value_name = "N")]
    pub after: Option<u64>,
    /// Show who changed whose numbers instead, older brokers' changes too (root; on a broker of one's own, its user)
    #[arg(long, conflicts_with_all = ["follow", "until", "user", "kinds", "job", "after"])]
    pub audit: bool,
}

/// Print a completion script for a shell
#[derive(Args, Debug)]
#[command(after_help = "Example:
  partage completions bash > ~/.local/share/bash-completion/completions/partage")]
pub struct Completions {
    /// Which shell
    pub shell: Shell,
}

/// Write the manual pages into a folder
#[derive(Args, Debug)]
#[command(
    after_help = "Writes partage.1, a page for each command (partage-run.1, ...) and partaged.8.

Example:
  partage man ~/.local/share/man/man1 && man partage-run"
)]
pub struct Man {
    /// An existing folder; pages of the same names are replaced
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

/// Print the version
#[derive(Args, Debug)]
pub struct Version {}
