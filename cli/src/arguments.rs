// SPDX-License-Identifier: Apache-2.0
//! The command line's words: the only place that says which commands and options exist. `docs/cli.md` is made from it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::terminal::ColorChoice;

/// Share a GPU between programs, each with the memory and the time it was given.
#[derive(Debug, Parser)]
#[command(
    name = "partage",
    version = concat!(env!("PARTAGE_VERSION"), " (", env!("PARTAGE_COMMIT"), ")"),
    max_term_width = 80,
    disable_help_subcommand = true,
    after_help = "Examples:
  partage run -m 25% -- python train.py     under a quarter of a GPU's memory
  partage run -c 30% -- python train.py     promised 30 % of a GPU's time
  partage ps                                who runs, with how much
  partage set j3 mem=8GiB compute=50%       change a running job's numbers
  partage sim -- partage run -m 25% -- CMD  the same on a simulated GPU

Exit codes: 0 done, 1 the answer is no, 2 usage, 3 not allowed, 4 no such
target, 5 no broker. `run` and `sim` keep COMMAND's code; their own are
124 no room, 125 failed, 126 not executable, 127 not found."
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
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "PARTAGE_SOCKET_DIR",
        hide_env = true,
        display_order = 902
    )]
    pub socket_dir: Option<PathBuf>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    Run(Run),
    Ps(Ps),
    Status(Status),
    Set(Set),
    Get(Get),
    Why(Why),
    Stop(Stop),
    Broker(Broker),
    Sim(Sim),
    Doctor(Doctor),
    Events(Events),
    Completions(Completions),
    Version(Version),
}

/// Run COMMAND with limits on the GPU memory and time that it and its children use
#[derive(Args, Clone, Debug, Default)]
#[command(
    after_help = "COMMAND replaces this process: signals, job control and the exit code are its
own. Without -m it may use the whole card and is promised nothing.

-c promises a part of each GPU's time: the job gets it whenever it wants it, and
what it leaves goes to others. Without -c it shares what is not promised, by
--weight. Only --compute-max holds a job back on an idle GPU.

Sizes are 8GiB, 8192M or 25%; durations 90s, 10m or 1h30m. Options can be given
as variables: PARTAGE_MEM=25%, PARTAGE_ON_FULL=fail, PARTAGE_STRICT=1.
Without an option the variables of other tools count (docs/cli.md).

Examples:
  partage run -m 25% -- python train.py
  partage run -m 8GiB -g 1 --name eval --on-full fail -- ./eval --all
  partage run -c 30% --compute-max 50% --time-limit 2h -- python train.py
  partage run --priority low -- python sweep.py     behind the others' work
  partage run -m 8GiB -g auto:2 -- torchrun --nproc-per-node 2 train.py
  partage run -m 50% --dry-run -- true       say what would happen"
)]
pub struct Run {
    /// Limit per GPU for all processes of the job together, and its promise
    #[arg(
        short,
        long,
        value_name = "SIZE|PCT",
        env = "PARTAGE_MEM",
        hide_env = true,
        allow_hyphen_values = true
    )]
    pub mem: Option<String>,
    /// Promise per GPU, if less than the limit
    #[arg(
        long,
        value_name = "SIZE|PCT",
        env = "PARTAGE_MEM_REQUEST",
        hide_env = true,
        allow_hyphen_values = true
    )]
    pub mem_request: Option<String>,
    /// Promise of each GPU's time, for all processes of the job together
    #[arg(
        short,
        long,
        value_name = "PCT",
        env = "PARTAGE_COMPUTE",
        hide_env = true,
        allow_hyphen_values = true
    )]
    pub compute: Option<String>,
    /// Cap: never more than this part of each GPU's time, even if it is idle
    #[arg(
        long,
        value_name = "PCT",
        env = "PARTAGE_COMPUTE_MAX",
        hide_env = true,
        allow_hyphen_values = true
    )]
    pub compute_max: Option<String>,
    /// Weight beside other jobs without a promise, 1 to 10000 (100)
    #[arg(
        long,
        value_name = "N",
        env = "PARTAGE_WEIGHT",
        hide_env = true,
        allow_hyphen_values = true
    )]
    pub weight: Option<String>,
    /// Class beside other jobs: low, normal (the default), high or realtime
    #[arg(long, value_name = "CLASS", env = "PARTAGE_PRIORITY", hide_env = true)]
    pub priority: Option<String>,
    /// End the job after this time: SIGTERM, and SIGKILL 10 s later
    #[arg(
        long,
        value_name = "DUR",
        env = "PARTAGE_TIME_LIMIT",
        hide_env = true,
        allow_hyphen_values = true
    )]
    pub time_limit: Option<String>,
    /// auto (one GPU), auto:N, nvidia-smi's index, or a UUID; several with commas
    #[arg(short, long, value_name = "GPU", env = "PARTAGE_GPU", hide_env = true)]
    pub gpu: Option<String>,
    /// When there is no room: wait (the default), or fail with code 124
    #[arg(
        long,
        value_name = "WHAT",
        env = "PARTAGE_ON_FULL",
        hide_env = true,
        hide_possible_values = true
    )]
    pub on_full: Option<OnFull>,
    /// Longest wait; then code 124
    #[arg(
        long,
        value_name = "DUR",
        env = "PARTAGE_WAIT_TIMEOUT",
        hide_env = true,
        allow_hyphen_values = true
    )]
    pub wait_timeout: Option<String>,
    /// Name of the job, unique among your live jobs
    #[arg(long, value_name = "NAME", env = "PARTAGE_NAME", hide_env = true)]
    pub name: Option<String>,
    /// A label, may be repeated
    #[arg(
        long,
        value_name = "K=V",
        env = "PARTAGE_LABEL",
        hide_env = true,
        value_delimiter = ','
    )]
    pub label: Vec<String>,
    /// Refuse a COMMAND that the limit cannot follow, and kill processes that use a GPU without the limit
    #[arg(long, env = "PARTAGE_STRICT", hide_env = true, value_parser = BoolishValueParser::new())]
    pub strict: bool,
    /// Say what would happen; admit and run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Say nothing about admission and waiting
    #[arg(short, long, env = "PARTAGE_QUIET", hide_env = true, value_parser = BoolishValueParser::new())]
    pub quiet: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// What to do when there is no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OnFull {
    /// Wait in the queue.
    #[default]
    Wait,
    /// Fail.
    Fail,
}

/// List the jobs, and GPU processes that no job owns
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  partage ps
  partage ps --json | jq '.jobs[] | {job, name, devices}'")]
pub struct Ps {
    /// Jobs that ended in the last 24 hours too
    #[arg(short, long)]
    pub all: bool,
}

/// Show GPUs, what is promised on them, the queue and the broker
#[derive(Args, Debug)]
pub struct Status {}

/// Change a running job
#[derive(Args, Debug)]
#[command(
    after_help = "A limit below what the job uses denies new allocations; nothing is killed.
A promise (mem-request) that equals the limit follows it. Shares of time change
at once; a promise that does not fit is refused. All changes, or none.

Examples:
  partage set j3 mem=8GiB
  partage set j3 compute=30% compute-max=none priority=low
  partage set train mem=50% mem-request=25%"
)]
pub struct Set {
    /// Job id (j3), name, or the pid of one of its processes
    pub target: String,
    /// What to change: mem=SIZE|PCT, mem-request=SIZE|PCT, compute=PCT|none, compute-max=PCT|none, weight=N,
    /// priority=CLASS
    #[arg(required = true, value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
}

/// Show one job's numbers
#[derive(Args, Debug)]
pub struct Get {
    /// Job id (j3), name, or the pid of one of its processes
    pub target: String,
}

/// Say what was denied to a job, who held it, why it is slow, and what set its limits
#[derive(Args, Debug)]
#[command(after_help = "Worst first. Jobs that ended in the last 24 hours answer too.")]
pub struct Why {
    /// Job id (j3), name, or the pid of one of its processes
    pub target: String,
}

/// End a job: SIGTERM to its processes, SIGKILL after the grace
#[derive(Args, Debug)]
pub struct Stop {
    /// Job id (j3), name, or the pid of one of its processes
    pub target: String,
    /// Time between the two signals
    #[arg(long, value_name = "DUR", default_value = "10s", allow_hyphen_values = true)]
    pub grace: String,
}

/// Start, stop or look at the broker
#[derive(Args, Debug)]
#[command(
    after_help = "`partage run` starts a broker of your own when none answers, and it leaves a
minute after its last job. On a host whose administrator runs the broker
(/etc/partage/partage.toml or /run/partage exists) none is ever started."
)]
pub struct Broker {
    #[command(subcommand)]
    pub action: BrokerAction,
}

/// What to do with the broker.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum BrokerAction {
    /// Start a broker of your own, unless one answers
    Start,
    /// End it; its jobs go on under their limits, and the next broker adopts them
    Stop,
    /// Say whether one answers (code 0) or not (code 1)
    Status,
}

/// Run COMMAND on a simulated machine, without a GPU
#[derive(Args, Debug, Default)]
#[command(
    after_help = "COMMAND meets simulated GPUs as its CUDA driver and a broker of its own; nothing
in it reaches a real device. Another `partage sim` joins the machine while it
lives; the last one that ends removes it. Programs of the CUDA driver API run
(tinygrad, Numba, plain cu* calls); those of the CUDA runtime (PyTorch) do not.

Examples:
  partage sim -- partage run -m 25% -- python train.py
  partage sim -- partage ps                  from a second terminal
  partage sim --gpus 4 --memory 16GiB --machine four -- bash"
)]
pub struct Sim {
    /// Number of GPUs (default 2)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub gpus: Option<u32>,
    /// Memory of each GPU (default: the profile's)
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory: Option<String>,
    /// Model of the GPUs: h200 (default), a100, l4, t4
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Name of the machine to make or join
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub machine: String,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Check this machine and say what to mend; code 1 when a check fails
#[derive(Args, Debug)]
pub struct Doctor {}

/// Show what happened: admissions, ends, denials, unmanaged processes
#[derive(Args, Debug)]
pub struct Events {
    /// Go on with each new event
    #[arg(short, long)]
    pub follow: bool,
}

/// Print a completion script for a shell
#[derive(Args, Debug)]
#[command(after_help = "Example: partage completions bash > ~/.local/share/bash-completion/completions/partage")]
pub struct Completions {
    /// Which shell
    pub shell: Shell,
}

/// Print the version
#[derive(Args, Debug)]
pub struct Version {}
