// SPDX-License-Identifier: Apache-2.0
//! `partage version` and `partage completions`: the program's version, and its words for shells.

use partage_protocol::message::{MAJOR, MINOR};
use serde_json::json;

use crate::arguments::Completions;
use crate::failure::Outcome;
use crate::help;
use crate::show::report::{Report, write_out};

/// `partage version`.
pub fn version(report: &Report) -> Outcome<u8> {
    let (version, commit) = (env!("PARTAGE_VERSION"), env!("PARTAGE_COMMIT"));
    let body = json!({ "version": version, "commit": commit, "protocol": { "major": MAJOR, "minor": MINOR } });
    report.data("version", body, |_| {
        format!("partage {version} ({commit}), protocol {MAJOR}.{MINOR}\n")
    });
    Ok(0)
}

/// `partage completions`.
pub fn completions(arguments: &Completions) -> Outcome<u8> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut help::command(), "partage", &mut script);
    write_out(&String::from_utf8_lossy(&script));
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    /// `docs/cli.md` is this text. After a change of the arguments: `PARTAGE_WRITE_DOCS=1 cargo test -p partage-cli
    /// docs`.
    fn docs() -> String {
        let mut text = String::from(
            "<!-- Made from cli/src/arguments.rs by `PARTAGE_WRITE_DOCS=1 cargo test -p partage-cli docs`; \
             edits here are lost. -->\n# Command line\n",
        );
        let mut command = help::command();
        command.build();
        let mut titles = vec!["partage".to_owned()];
        // clap's own `help` has every command below it once more.
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            titles.push(format!("partage {}", sub.get_name()));
            titles.extend(
                sub.get_subcommands()
                    .filter(|inner| inner.get_name() != "help")
                    .map(|inner| format!("partage {} {}", sub.get_name(), inner.get_name())),
            );
        }
        for title in titles {
            // What a user gets to see, at eighty columns.
            let words = title.split(' ').chain(["--help"]);
            let help = help::command()
                .term_width(80)
                .try_get_matches_from(words)
                .expect_err("help ends parsing");
            let help = help.render().to_string();
            let help = help.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
            write!(text, "\n## {title}\n\n```text\n{}\n```\n", help.trim_end()).expect("a string takes all");
        }
        text + VARIABLES
    }

    const VARIABLES: &str = "
## Variables

| variable | meaning |
|---|---|
| `PARTAGE_MEM`, `PARTAGE_MEM_REQUEST`, `PARTAGE_PROCESS_MEM`, `PARTAGE_COMPUTE`, `PARTAGE_COMPUTE_MAX`, \
`PARTAGE_WEIGHT`, \
`PARTAGE_PRIORITY`, `PARTAGE_TIME_LIMIT`, `PARTAGE_CLASS`, `PARTAGE_GPU`, `PARTAGE_ON_FULL`, \
`PARTAGE_WAIT_TIMEOUT`, `PARTAGE_NAME`, `PARTAGE_LABEL`, `PARTAGE_STRICT`, `PARTAGE_SUMMARY`, \
`PARTAGE_LAZY`, `PARTAGE_PREEMPTIBLE`, \
`PARTAGE_IDLE_RELEASE`, `PARTAGE_CHECKPOINT_EVERY`, `PARTAGE_CHECKPOINT_OUT`, \
`PARTAGE_QUIET` | options of `run`. The option wins. COMMAND does not get them |
| `CUDA_VISIBLE_DEVICES` | limits the GPUs that `run` may choose from. COMMAND does not get it. If it hides every GPU \
(empty, or `-1`), COMMAND keeps it and runs without a job. Set inside a job, it counts the job's GPUs; for a program \
that came without `run` (a container, `register`) it counts the machine's, and the job's among them are seen |
| `PARTAGE_SOCKET_DIR` | `--socket-dir`; else `/run/partage` on a managed host, `/tmp/partage-UID` elsewhere |
| `PARTAGE_IDLE_EXIT` | seconds after its last job that a broker started by `run` leaves (60) |
| `PARTAGE_PID_NAMESPACE` | `any`: a managed broker serves from inside a pid namespace, too |
| `PARTAGE_LIB_DIR` | directory of `libpartage.so`, `partaged` and the simulated driver, looked at before the places \
of a build tree and a package |
| `NVIDIA_GPU_MEMORY_LIMIT`, `NVIDIA_GPU_MEMORY_REQUEST`, `CUDA_DEVICE_MEMORY_LIMIT`, `CUDA_DEVICE_MEMORY_LIMIT_<i>`, \
`CUDA_MPS_PINNED_DEVICE_MEM_LIMIT` | other tools' limits, below |
| `CUDA_DEVICE_SM_LIMIT`, `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`, `CUDA_TASK_PRIORITY` | other tools' caps and \
priorities, below |
| `PARTAGE_TIME_FAIL` | `closed`: if the broker disappears, a job that was being held back stays paused. Default: it \
resumes after two seconds |
| `NO_COLOR`, `LC_ALL`, `LC_CTYPE`, `LANG` | no colour; ASCII where the locale is not UTF-8 |

A job has at most 32 labels of 256 bytes each, key and value together.

An empty `PARTAGE_*` variable is ignored. `run` and `doctor` name a `PARTAGE_*` variable that Partage does not know: \
`PARTAGE_MEMORY=8GiB` sets no limit.

COMMAND gets `LD_PRELOAD` with the library first, `PARTAGE_TOKEN`, `PARTAGE_SOCKET_DIR`, `PARTAGE_DEVICES` and \
`PARTAGE_MEM_BYTES` (its GPUs and limit, while no broker answers), `PARTAGE_BROKER` (where a private broker can be \
started again) and `PARTAGE_STDERR` (which file may be told of the first denial; `quiet` with `-q`). With `--lazy` it \
gets `PARTAGE_LAZY_REQUEST` (what is asked at its first use of a GPU) in place of `PARTAGE_DEVICES` and \
`PARTAGE_MEM_BYTES`. `partage sim` sets `PARTAGE_SIM_DIR`, `PARTAGE_SOCKET_DIR` and puts its driver first in \
`LD_LIBRARY_PATH`.

## What `run` says

On standard error, and none of these with `-q` (a misspelt `PARTAGE_*` variable is named all the same):

| when | line |
|---|---|
| the job waits for room | `partage: waiting: 8 GiB asked on GPU 0, ...`, at once and every minute |
| the job starts | `partage: j19 on GPU 0 (H200), limit 2 GiB`, on a terminal, in a file (a batch log) or the \
journal, not in a pipe; anywhere if the job had to wait |
| memory is denied twice with no success between, or once before the program ends | `partage: 3 GiB asked, limit \
2 GiB, ...`: at most every ten seconds on a terminal, else the first of each process |
| the job ends | `partage: j19 ended 0 after 13s, peak 1.5 of 2 GiB, denied 2 times`: from the broker on a terminal, \
if the job used a GPU; with `--summary` from `run` itself, anywhere |
| `--strict` kills a process | `partage: --strict killed pid 4130 of j19: ...`, on a terminal; `events` and `why` \
say it too |

A broker that is there and does not answer is named with its process and what to do, after ten seconds.

## Other tools' memory variables

Where neither an option nor a `PARTAGE_*` variable gives a size, `run` follows what other schedulers and runtimes \
set, and so does a program that meets the library without `run` (there nothing is promised). The first line below \
that says anything counts, alone:

| variable | value | limits |
|---|---|---|
| `NVIDIA_GPU_MEMORY_REQUEST`, `NVIDIA_GPU_MEMORY_LIMIT` | whole MiB | every GPU; a missing one copies the other |
| `CUDA_DEVICE_MEMORY_LIMIT`, `CUDA_DEVICE_MEMORY_LIMIT_<i>` | `1g`, `1024m`, `512k`; a bare number is bytes, as that \
variable has it | every GPU; the i-th that the program sees |
| `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT` | `0=2G,GPU-1a2b=512M` | the GPUs named, by the number that the program sees or \
by UUID |

All are base 1024. An empty variable is an unset one. `run` refuses a value that cannot be read or names a GPU that \
is not there; a program without `run` then gets the lowest limit of the list on every GPU, or no memory where nothing \
could be read, and `partage why` says so. `run`'s line and `why` name the variable that counted, `doctor` those it \
finds. The administrator switches each line off under `[aliases]` in `partage.toml` (`nvidia_gpu_memory`, \
`cuda_device_memory_limit`, `cuda_mps_pinned_device_mem_limit` = false); while no broker answers they count all the \
same. Inside a job they count for nothing: its limit is set. `CUDA_DISABLE_CONTROL`, which switches another tool's \
limits off, is ignored.

## Other tools' variables about time

| variable | value | means | counts where |
|---|---|---|---|
| `CUDA_DEVICE_SM_LIMIT` | whole percent; 0 is none | `--compute-max` | neither `-c` nor `--compute-max` is given |
| `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE` | percent, such as `12.5` | `--compute-max` | likewise, and the one above says \
nothing |
| `CUDA_TASK_PRIORITY` | 0 is high, 1 normal, more is low | `--priority` | no `--priority` is given |

`run` refuses a value that cannot be read. A program without `run` is only lowered: it gets the cap, never more than \
priority normal, and a cap of 1 % where the value cannot be read, which `partage why` says. The keys in `[aliases]` \
are the names in small letters.

## Time

*Promise* (`-c`): the part of each GPU's time that a job gets whenever it wants it; promises on a GPU add up to 100 % \
at most, unless the administrator allows more, and one that does not fit waits as memory does. *Weight*: jobs without \
a promise split what is not promised in proportion to their weights. *Priority*: of two such jobs of equal weight the \
one a class higher gets four times the time, and its turn comes sooner; lower classes keep a floor. What a job leaves \
idle goes to those that want it, in the same proportions. *Cap* (`--compute-max`): never exceeded, even on an idle \
GPU; without one a job alone on a GPU has all of it. All hold for the processes of a job together, on each of its GPUs.

The second table of `ps`, of jobs at work:

| column | meaning |
|---|---|
| SHARE | The part of the GPU's time that the job may have now. |
| GOT 1s, 60s | The part that it got in the last second and in the last minute. |
| WAITED | How long it was held back in the last minute. |
| STATE | `open`, `waiting` and for whom, `capped`, `idle`, or `not draining` if its work does not end and others no \
longer wait for it. |

`get` also shows how much device time the job was charged. `why` says in a sentence what makes it slow: its cap, a \
neighbour, a higher priority, processes without Partage, or its own CPU side.

`--time-limit` counts from the admission by the clock on the wall. When it is over, the job's processes get SIGTERM \
and ten seconds later SIGKILL; its terminal, `events` and `why` say so.

## Jobs

A job ends when its first process and every process of it that uses CUDA have ended; `ps -a`, `why` and `events` then \
show its exit status, start, duration and peak. The exit status is that of the first process, or 128 and the number \
of the signal that ended it. For five seconds more its promise is kept for a child that has not used CUDA yet, unless \
another job needs the room. A process left behind after that stays limited, but nothing is promised to it.

A `partage run` inside a job stays in that job, on its GPUs and under its limit. A lower limit asked there is not \
enforced while a broker answers, and terms of time asked there are not either; `run` says so, and `--strict` refuses it.
";

    #[test]
    fn docs_say_what_help_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md");
        let made = docs();
        if std::env::var_os("PARTAGE_WRITE_DOCS").is_some() {
            std::fs::write(path, &made).expect("write docs/cli.md");
        }
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            kept == made,
            "docs/cli.md is old: PARTAGE_WRITE_DOCS=1 cargo test -p partage-cli docs"
        );
    }

    #[test]
    fn help_fits_eighty_columns_of_ascii() {
        let help = docs().replace(VARIABLES, "");
        for line in help.lines().filter(|line| !line.starts_with("<!--")) {
            assert!(line.is_ascii() && line.len() <= 80, "{line}");
        }
    }
}
