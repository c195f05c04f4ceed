// SPDX-License-Identifier: Apache-2.0
//! What people type who know other tools, and what does that here. Only the table.
//!
//! Words are nvidia-smi's, docker's, Slurm's, kubectl's, nice's and those that one guesses. An answer begins with the
//! command that does it.

/// Words that stand for one thing.
pub struct Habit {
    /// The command whose word it would be; empty for a command itself.
    pub of: &'static str,
    /// The words.
    pub typed: &'static [&'static str],
    /// What to type instead.
    pub answer: &'static str,
}

const fn habit(of: &'static str, typed: &'static [&'static str], answer: &'static str) -> Habit {
    Habit { of, typed, answer }
}

/// In place of a command.
const COMMANDS: &[Habit] = &[
    habit(
        "",
        &["top", "htop", "nvtop", "stats", "watch", "monitor", "pmon", "usage"],
        "`watch partage ps` shows who uses the GPUs, again and again",
    ),
    habit(
        "",
        &["list", "jobs", "procs", "processes", "job"],
        "`partage ps` lists the jobs",
    ),
    habit(
        "",
        &[
            "nvidia-smi",
            "smi",
            "gpus",
            "gpu",
            "devices",
            "device",
            "info",
            "sinfo",
            "dmon",
            "nodes",
            "free",
        ],
        "`partage status` shows the GPUs and what of them is committed",
    ),
    habit(
        "",
        &["pause", "freeze", "hold", "sleep", "evict", "swap", "offload"],
        "`partage suspend JOB` moves its GPU memory to host memory and lets it wait",
    ),
    habit(
        "",
        &["unpause", "thaw", "release", "continue", "cont", "wake"],
        "`partage resume JOB` brings a suspended job back",
    ),
    habit(
        "",
        &["report", "sacct", "history", "accounting", "finished"],
        "`partage ps -a` shows the jobs that ended in the last 24 hours too; --json has every number",
    ),
    habit(
        "",
        &["squeue", "waiting", "pending", "sprio"],
        "`partage queue` shows who waits, and `partage ps` who runs",
    ),
    habit(
        "",
        &[
            "srun", "sbatch", "submit", "salloc", "exec", "create", "launch", "limit", "nice", "qsub", "bsub",
        ],
        "`partage run -m 8GiB -- COMMAND` runs it under a limit, and waits for room by itself",
    ),
    habit(
        "",
        &[
            "scancel",
            "cancel",
            "delete",
            "rm",
            "end",
            "terminate",
            "qdel",
            "pkill",
            "abort",
        ],
        "`partage stop JOB` ends a job",
    ),
    habit(
        "",
        &[
            "renice",
            "update",
            "edit",
            "change",
            "modify",
            "priority",
            "rename",
            "scontrol",
            "reprioritize",
        ],
        "`partage set JOB priority=low` changes a running job; likewise mem, compute, weight, name",
    ),
    habit(
        "",
        &["inspect", "describe", "show", "sstat", "details"],
        "`partage get JOB` shows everything about a job, and `partage why JOB` explains it",
    ),
    habit(
        "",
        &["explain", "debug", "reason"],
        "`partage why JOB` says what it was denied and what slows it down",
    ),
    habit(
        "",
        &["logs", "log", "journal", "audit"],
        "`partage events` shows what happened; what a job writes goes where it was started",
    ),
    habit(
        "",
        &["wait", "attach", "fg"],
        "`partage run` becomes its COMMAND: wait for its process as for any other",
    ),
    habit(
        "",
        &["move", "mv", "transfer"],
        "`partage migrate JOB --to GPU` moves a running job to another GPU",
    ),
    habit(
        "",
        &["save", "snapshot", "dump", "backup", "commit"],
        "`partage checkpoint JOB --out DIR` saves a job",
    ),
    habit(
        "",
        &["load", "requeue"],
        "`partage restore DIR` starts a saved job again",
    ),
    habit(
        "",
        &["cordon", "disable", "maintenance"],
        "`partage drain GPU` admits nothing there any more, and moves its jobs away",
    ),
    habit(
        "",
        &["uncordon", "enable"],
        "`partage undrain GPU` lets jobs on the GPU again",
    ),
    habit(
        "",
        &["quotas", "limits", "sacctmgr", "users", "user", "resourcequota"],
        "`partage quota list` shows the limits of users and groups, and `partage get @USER` one user's",
    ),
    habit(
        "",
        &["apply", "reload"],
        "`partage config reload` reads the host's configuration again",
    ),
    habit(
        "",
        &["start", "daemon", "serve", "server", "restart"],
        "`partage run COMMAND` starts a job and, where none runs, the broker; `partage broker start` that alone",
    ),
    habit(
        "",
        &["check", "diagnose", "test", "health", "selftest"],
        "`partage doctor` checks this machine, and `partage verify` that a limit holds",
    ),
    habit(
        "",
        &["setup", "init", "enable-service"],
        "`sudo partage install` puts Partage in place for every user of this host",
    ),
    habit(
        "",
        &["simulate", "simulator", "fake"],
        "`partage sim` gives a command a simulated machine",
    ),
    habit(
        "",
        &["metrics", "stat", "export", "query"],
        "`partage ps --json` and `partage status --json` have every number",
    ),
    habit(
        "",
        &["-l", "-L", "--list-gpus", "-q", "--query-gpu", "-i", "--id"],
        "`partage status` shows the GPUs, and `partage status --json` every number",
    ),
];

/// In place of an option or an argument.
const OPTIONS: &[Habit] = &[
    habit(
        "run",
        &[
            "--gpus",
            "--gres",
            "--num-gpus",
            "--ngpus",
            "--gpus-per-node",
            "--gpu-count",
            "-N",
        ],
        "`-g auto:2` takes two GPUs, `-g 2` GPU 2, `-g 0,1` these two, `-g all` all",
    ),
    habit(
        "run",
        &["-i", "--id", "--device", "--devices", "--gpu-id", "--device-id"],
        "`-g 0` takes GPU 0, as nvidia-smi numbers them",
    ),
    habit(
        "run",
        &[
            "--memory",
            "--mem-limit",
            "--vram",
            "--gpu-mem",
            "--gpu-memory",
            "--mem-per-gpu",
            "--limit",
            "-M",
        ],
        "`-m 8GiB` or `-m 25%` is the limit of memory on each GPU",
    ),
    habit(
        "run",
        &[
            "--sm",
            "--share",
            "--shares",
            "--percent",
            "--cpus",
            "--cpu",
            "--gpu-util",
            "--util",
        ],
        "`-c 30%` promises a share of the GPU's time, and `--compute-max 30%` is a cap",
    ),
    habit(
        "run",
        &["-n", "--nice", "--adjustment", "--prio", "--qos"],
        "`--priority low` lets other jobs go first",
    ),
    habit(
        "run",
        &["-t", "--time", "--timeout", "--max-time", "--walltime", "--duration"],
        "`--time-limit 2h` ends the job then; `--wait-timeout 10m` gives up waiting for room",
    ),
    habit("run", &["-J", "--job-name", "--jobname"], "`--name NAME` names the job"),
    habit(
        "run",
        &["-l", "--labels", "--tag", "--tags"],
        "`--label KEY=VALUE` labels the job",
    ),
    habit(
        "run",
        &["-p", "--partition", "--profile", "--preset"],
        "`--class CLASS` starts from a class of the host",
    ),
    habit(
        "run",
        &["-d", "--detach", "--background", "-it", "--rm", "-b"],
        "`partage run` becomes COMMAND: put `&` behind it, or nohup before it, as for any program",
    ),
    habit(
        "run",
        &[
            "-o",
            "--output",
            "--error",
            "-e",
            "--env",
            "-u",
            "--user",
            "-D",
            "--chdir",
            "-w",
            "--workdir",
        ],
        "`partage run` leaves that to the shell: VARIABLE=1 partage run -- COMMAND > FILE",
    ),
    habit(
        "run",
        &["--no-wait", "--nowait", "--immediate", "-I", "--nonblock", "--try"],
        "`--on-full fail` does not wait for room",
    ),
    habit(
        "run",
        &["--exclusive", "--whole", "--full"],
        "`-m 100%` promises all of a GPU's memory to the job",
    ),
    habit(
        "ps",
        &["aux", "-aux", "-ef", "-e", "-A", "--everyone"],
        "`partage ps -a` shows jobs that ended, too; those of all users are always there",
    ),
    habit(
        "ps",
        &["-w", "--watch", "-l", "--loop", "-f", "--follow", "-n"],
        "`watch partage ps` shows them again and again",
    ),
    habit(
        "ps",
        &[
            "-u",
            "--user",
            "-s",
            "--state",
            "--label",
            "-U",
            "--users",
            "--selector",
        ],
        "`partage ps --filter user=alice` shows those alone; likewise state=waiting, label=KEY",
    ),
    habit(
        "ps",
        &[
            "--format",
            "--output",
            "--columns-only",
            "--fields",
            "--csv",
            "--noheader",
        ],
        "`partage ps -o job,name,used` chooses columns, and `partage ps --json` is for programs",
    ),
    habit(
        "status",
        &["-l", "--loop", "-w", "--watch", "-f", "--follow", "-n", "-lms"],
        "`watch partage status` shows it again and again",
    ),
    habit(
        "status",
        &["-q", "--query", "--query-gpu", "--format", "-x", "-i", "--id", "-L"],
        "`partage status --json` has every number of every GPU",
    ),
    habit(
        "stop",
        &[
            "-9", "-KILL", "-SIGKILL", "--force", "-f", "--now", "-s", "--signal", "-15", "-TERM",
        ],
        "`partage stop JOB --grace 1s` sends SIGTERM, and SIGKILL a second later",
    ),
    habit(
        "stop",
        &["-t", "--timeout", "--time", "--grace-period"],
        "`--grace 30s` is the time between the two signals",
    ),
    habit(
        "stop",
        &["-a", "-u", "--user", "-A"],
        "`partage stop --all` ends all of your jobs",
    ),
    habit(
        "set",
        &["-m", "--mem", "--memory", "--limit", "--gpu-memory"],
        "`partage set JOB mem=8GiB` changes the limit: settings are KEY=VALUE",
    ),
    habit(
        "set",
        &[
            "-c",
            "--compute",
            "--compute-max",
            "--share",
            "--weight",
            "--time-limit",
            "--name",
        ],
        "`partage set JOB compute=30%`: settings are KEY=VALUE",
    ),
    habit(
        "set",
        &["-n", "--priority", "--nice", "--prio"],
        "`partage set JOB priority=low`: settings are KEY=VALUE",
    ),
    habit(
        "migrate",
        &["-g", "--gpu", "--device", "--target", "-t"],
        "`partage migrate JOB --to 1` moves it to GPU 1",
    ),
    habit(
        "checkpoint",
        &["-o", "--dir", "--output", "-D", "--path"],
        "`--out DIR` is the snapshot's folder",
    ),
    habit(
        "restore",
        &["-g", "--gpu", "--gpus", "--to"],
        "`--gpu-map 0=1` gives the job GPU 1 in place of its GPU 0",
    ),
    habit(
        "restore",
        &["-d", "--background"],
        "`--detach` returns once the job runs",
    ),
    habit(
        "events",
        &["-n", "--tail", "--lines", "--last"],
        "`partage events | tail` shows the last ones, and `--since 10m` those of ten minutes",
    ),
    habit("events", &["-w", "--watch"], "`partage events -f` shows each new event"),
    habit(
        "quota",
        &["show", "get", "ls", "status", "view"],
        "`partage quota list` shows the quotas, and `partage get @USER` what a user has of them",
    ),
    habit(
        "quota",
        &["add", "create", "edit", "change"],
        "`partage quota set user:alice mem=24GiB` limits a user",
    ),
    habit(
        "quota",
        &["delete", "remove", "rm", "clear", "reset"],
        "`partage quota unset user:alice` takes it away",
    ),
    habit(
        "broker",
        &["restart", "reload"],
        "`partage broker stop`; the next command of a job starts a new one",
    ),
    habit(
        "config",
        &["test", "validate", "lint", "verify"],
        "`partage config check FILE` says what is wrong with it",
    ),
    habit(
        "config",
        &["apply", "load", "set"],
        "`partage config reload` makes the broker read the files again",
    ),
    habit(
        "config",
        &["view", "get", "list", "cat"],
        "`partage config show` shows what holds now",
    ),
];

/// The answer to a word where a word of this command was expected; empty for a command itself.
pub fn answer(of: &str, typed: &str) -> Option<&'static str> {
    let mut habits = COMMANDS.iter().chain(OPTIONS);
    let found = habits.find(|habit| habit.of == of && habit.typed.contains(&typed));
    found.map(|habit| habit.answer)
}

/// All of them.
#[cfg(test)]
pub fn all() -> impl Iterator<Item = &'static Habit> {
    COMMANDS.iter().chain(OPTIONS)
}
