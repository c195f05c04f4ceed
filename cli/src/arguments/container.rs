// SPDX-License-Identifier: Apache-2.0
//! The words about containers and other engines' jobs: `register`, `hook`, `cdi`.

use clap::{Args, Subcommand};

use super::amounts::Amounts;

/// Numbers of a job that somebody else's process begins. No variable stands for any of them.
#[derive(Args, Clone, Debug, Default)]
pub struct Numbers {
    /// Start from the numbers of a class of the host's configuration
    #[arg(long, value_name = "CLASS")]
    pub class: Option<String>,
    #[command(flatten)]
    pub amounts: Amounts,
    /// all, auto (one GPU), auto:N, nvidia-smi's index, or a UUID; several with commas
    #[arg(short, long, value_name = "GPU")]
    pub gpu: Option<String>,
    /// Label; can be repeated. Rules match labels that root gives here
    #[arg(long, value_name = "K=V", value_delimiter = ',')]
    pub label: Vec<String>,
    /// Kill processes of the job that use a GPU without the limit
    #[arg(long)]
    pub strict: bool,
}

/// Make a process, with its control group, a job
#[derive(Args, Debug)]
#[command(
    after_help = "For engines that start other people's jobs, such as Slurm. All processes in the
control group belong to the job, whoever starts them and with whatever
environment. The job ends with the group's last process. (A container's job ends
with its first process. A process without a group of its own is its job's only
one, with its children.) Registering a process of the same group again changes
nothing and names the job. `register` does not wait for room.

Root registers any process; others one of their own, or of a user namespace of
theirs. What root registers, the job's owner can lower but not raise. --at-most
holds for administrators too, unless they say --force. Container engines call
`partage hook` instead.

Examples:
  partage register --pid 4711 --cgroup /slurm_n1/uid_7/job_12 --name train \\
      --engine slurm:12 --engine-words \"shard:5 of 10\" -m 50% -g 0
  partage register --pid 4711 -m 50% --at-most mem=10GiB,compute-max=30%"
)]
pub struct Register {
    /// The process; it has not used a GPU yet
    #[arg(long, value_name = "N")]
    pub pid: u32,
    /// Name of the job, unique among its user's jobs
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The engine's own id of the job, e.g. slurm:4711; a TARGET from then on
    #[arg(long, value_name = "ENGINE:ID")]
    pub engine: Option<String>,
    /// What the engine gave the job, in its words; ps and get show them, why root's alone
    #[arg(long, value_name = "TEXT", requires = "engine")]
    pub engine_words: Option<String>,
    /// Never more than this, whatever is asked or set later: KEY=VALUE as in `partage set`
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub at_most: Vec<String>,
    /// Give up after this time, also where no broker answers
    #[arg(long, value_name = "DUR", default_value = "45s", allow_hyphen_values = true)]
    pub timeout: String,
    /// Control group that the job owns (default: the process's own)
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<String>,
    /// Id of its container (default: as the control group tells)
    #[arg(long, value_name = "ID")]
    pub container: Option<String>,
    /// Name of its container
    #[arg(long, value_name = "NAME")]
    pub container_name: Option<String>,
    #[command(flatten)]
    pub numbers: Numbers,
}

/// For container runtimes: make a container a job before it starts
#[derive(Args, Debug)]
pub struct Hook {
    #[command(subcommand)]
    pub action: HookAction,
}

/// Which hook.
#[derive(Debug, Subcommand)]
pub enum HookAction {
    /// The OCI hook createRuntime: exit status 1 and one sentence keep the container from starting
    #[command(
        after_help = "Reads the container's state on standard input and config.json in its bundle. The
GPUs are those whose nodes the container gets, else those that
NVIDIA_VISIBLE_DEVICES names in it. Annotations become labels. The annotations
partage.dev/mem, partage.dev/compute and partage.dev/class only lower the
numbers above; partage.dev/name names the container.

`partage cdi generate` writes the file from which engines call this."
    )]
    CreateRuntime(CreateRuntime),
}

/// `hook create-runtime`.
#[derive(Args, Debug)]
pub struct CreateRuntime {
    #[command(flatten)]
    pub numbers: Numbers,
    /// Start the container without a limit when no broker answers
    #[arg(long)]
    pub open: bool,
    /// Give up after this time
    #[arg(long, value_name = "DUR", default_value = "4s", allow_hyphen_values = true)]
    pub timeout: String,
}

/// Describe Partage to container engines (CDI files)
#[derive(Args, Debug)]
pub struct Cdi {
    #[command(subcommand)]
    pub action: CdiAction,
}

/// What to do about it.
#[derive(Debug, Subcommand)]
pub enum CdiAction {
    /// Write the file from which engines give containers the library, the broker's folder and the hook
    #[command(
        after_help = "One device for each class of the host's configuration, and `default`, whose
limits are those of the rules: podman run --device partage.dev/share=small ...
The limits stand in the hook's arguments, never in the container's environment.
GPUs are not listed: name them as before (--device nvidia.com/gpu=0). Write it
again when classes or the library change; containers that run keep what they
have.

Examples:
  sudo partage cdi generate
  partage cdi generate --output -            look at it"
    )]
    Generate(CdiGenerate),
}

/// `cdi generate`.
#[derive(Args, Debug)]
pub struct CdiGenerate {
    /// The file; `-` writes it to standard output and nothing else anywhere
    #[arg(long, value_name = "FILE", default_value = "/etc/cdi/partage.json")]
    pub output: String,
    /// Folder for the library's copies that containers get
    #[arg(long, value_name = "DIR", default_value = "/var/lib/partage/containers")]
    pub files: std::path::PathBuf,
    /// Containers start without a limit while no broker answers
    #[arg(long)]
    pub open: bool,
}
