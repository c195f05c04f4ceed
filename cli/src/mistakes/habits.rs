// SPDX-License-Identifier: Apache-2.0
//! What people type who know other tools, and what does that here. Only the table.
//!
//! Words are nvidia-smi's, docker's, Slurm's, kubectl's, nice's and those that one guesses. An answer begins with the
//! command that does it.

/// A command; below it words in place of one of its own (of `partage` itself: in place of a command), and below these
/// what to type instead.
const HABITS: &str = "\
partage
  htop nvtop stats watch monitor pmon usage
    `partage top` shows who uses the GPUs, every second
  list jobs procs processes job
    `partage ps` lists the jobs
  nvidia-smi smi gpus gpu devices device info sinfo dmon nodes free
    `partage status` shows the GPUs and what of them is committed
  pause freeze hold sleep evict swap offload
    `partage suspend JOB` moves its GPU memory to host memory and lets it wait
  unpause thaw release continue cont wake
    `partage resume JOB` brings a suspended job back
  report sacct history accounting finished
    `partage ps -a` shows the jobs that ended in the last 24 hours too; --json has every number
  squeue waiting pending sprio
    `partage queue` shows who waits, and `partage ps` who runs
  srun sbatch submit salloc exec create launch limit nice qsub bsub
    `partage run -m 8GiB -- COMMAND` runs it under a limit, and waits for room by itself
  scancel cancel delete rm end terminate qdel pkill abort
    `partage stop JOB` ends a job
  renice update edit change modify priority rename scontrol reprioritize
    `partage set JOB priority=low` changes a running job; likewise mem, compute, weight, name
  inspect describe show sstat details
    `partage get JOB` shows everything about a job, and `partage why JOB` explains it
  explain debug reason
    `partage why JOB` says what it was denied and what slows it down
  logs log journal audit
    `partage events` shows what happened; what a job writes goes where it was started
  wait attach fg
    `partage run` becomes its COMMAND: wait for its process as for any other
  move mv transfer
    `partage migrate JOB --to GPU` moves a running job to another GPU
  save snapshot dump backup commit
    `partage checkpoint JOB --out DIR` saves a job
  load requeue
    `partage restore DIR` starts a saved job again
  cordon disable maintenance
    `partage drain GPU` admits nothing there any more, and moves its jobs away
  uncordon enable
    `partage undrain GPU` lets jobs on the GPU again
  quotas limits sacctmgr users user resourcequota
    `partage quota list` shows the limits of users and groups, and `partage get @USER` one user's
  apply reload
    `partage config reload` reads the host's configuration again
  start daemon serve server restart
    `partage run COMMAND` starts a job and, where none runs, the broker; `partage broker start` that alone
  check diagnose test health selftest
    `partage doctor` checks this machine, and `partage verify` that a limit holds
  setup init enable-service
    `sudo partage install` puts Partage in place for every user of this host
  simulate simulator fake
    `partage sim` gives a command a simulated machine
  prometheus exporter export
    `partage metrics` prints the numbers for a monitoring system; docs/metrics.md says how the broker serves them
  stat query
    `partage ps --json` and `partage status --json` have every number
  -l -L --list-gpus -q --query-gpu -i --id
    `partage status` shows the GPUs, and `partage status --json` every number
partage run
  --gpus --gres --num-gpus --ngpus --gpus-per-node --gpu-count -N
    `-g auto:2` takes two GPUs, `-g 2` GPU 2, `-g 0,1` these two, `-g all` all
  -i --id --device --devices --gpu-id --device-id
    `-g 0` takes GPU 0, as nvidia-smi numbers them
  --memory --mem-limit --vram --gpu-mem --gpu-memory --mem-per-gpu --limit -M
    `-m 8GiB` or `-m 25%` is the limit of memory on each GPU
  --sm --share --shares --percent --cpus --cpu --gpu-util --util
    `-c 30%` promises a share of the GPU's time, and `--compute-max 30%` is a cap
  -n --nice --adjustment --prio --qos
    `--priority low` lets other jobs go first
  -t --time --timeout --max-time --walltime --duration
    `--time-limit 2h` ends the job then; `--wait-timeout 10m` gives up waiting for room
  -J --job-name --jobname
    `--name NAME` names the job
  -l --labels --tag --tags
    `--label KEY=VALUE` labels the job
  -p --partition --profile --preset
    `--class CLASS` starts from a class of the host
  -d --detach --background -it --rm -b
    `partage run` becomes COMMAND: put `&` behind it, or nohup before it, as for any program
  -o --output --error -e --env -u --user -D --chdir -w --workdir
    `partage run` leaves that to the shell: VARIABLE=1 partage run -- COMMAND > FILE
  --no-wait --nowait --immediate -I --nonblock --try
    `--on-full fail` does not wait for room
  --exclusive --whole --full
    `-m 100%` promises all of a GPU's memory to the job
partage ps
  aux -aux -ef -e -A --everyone
    `partage ps -a` shows jobs that ended, too; those of all users are always there
  -l --loop -f --follow -n
    `partage ps --watch` shows them again and again
  -u --user -s --state --label -U --users --selector
    `partage ps --filter user=alice` shows those alone; likewise state=waiting, label=KEY
  --format --output --columns-only --fields --csv --noheader
    `partage ps -o job,name,used` chooses columns, and `partage ps --json` is for programs
partage status
  -l --loop -f --follow -n -lms
    `partage status --watch` shows it again and again
  -q --query --query-gpu --format -x -i --id -L
    `partage status --json` has every number of every GPU
partage stop
  -9 -KILL -SIGKILL --force -f --now -s --signal -15 -TERM
    `partage stop JOB --grace 1s` sends SIGTERM, and SIGKILL a second later
  -t --timeout --time --grace-period
    `--grace 30s` is the time between the two signals
  -a -u --user -A
    `partage stop --all` ends all of your jobs
partage set
  -m --mem --memory --limit --gpu-memory
    `partage set JOB mem=8GiB` changes the limit: settings are KEY=VALUE
  -c --compute --compute-max --share --weight --time-limit --name
    `partage set JOB compute=30%`: settings are KEY=VALUE
  -n --priority --nice --prio
    `partage set JOB priority=low`: settings are KEY=VALUE
partage migrate
  -g --gpu --device --target -t
    `partage migrate JOB --to 1` moves it to GPU 1
partage checkpoint
  -o --dir --output -D --path
    `--out DIR` is the snapshot's folder
partage restore
  -g --gpu --gpus --to
    `--gpu-map 0=1` gives the job GPU 1 in place of its GPU 0
  -d --background
    `--detach` returns once the job runs
partage events
  -n --tail --lines --last
    `partage events | tail` shows the last ones, and `--since 10m` those of ten minutes
  -w --watch
    `partage events -f` shows each new event
partage quota
  show get ls status view
    `partage quota list` shows the quotas, and `partage get @USER` what a user has of them
  add create edit change
    `partage quota set user:alice mem=24GiB` limits a user
  delete remove rm clear reset
    `partage quota unset user:alice` takes it away
partage broker
  restart reload
    `partage broker stop`; the next command of a job starts a new one
partage config
  test validate lint verify
    `partage config check FILE` says what is wrong with it
  apply load set
    `partage config reload` makes the broker read the files again
  view get list cat
    `partage config show` shows what holds now
";

/// Words that stand for one thing.
#[derive(Clone, Debug, Default)]
pub struct Habit {
    /// The command whose word it would be; empty for a command itself.
    pub of: &'static str,
    /// The words.
    pub typed: Vec<&'static str>,
    /// What to type instead.
    pub answer: &'static str,
}

/// All of them.
pub fn all() -> impl Iterator<Item = Habit> {
    let mut habit = Habit::default();
    HABITS.lines().filter_map(move |line| {
        if let Some(answer) = line.strip_prefix("    ") {
            return Some(Habit {
                answer,
                ..habit.clone()
            });
        }
        match line.strip_prefix("  ") {
            Some(words) => habit.typed = words.split(' ').collect(),
            None => habit.of = line.strip_prefix("partage").unwrap_or_default().trim_start(),
        }
        None
    })
}

/// The answer to a word where a word of this command was expected; empty for a command itself.
pub fn answer(of: &str, typed: &str) -> Option<&'static str> {
    let mut found = all().filter(|habit| habit.of == of && habit.typed.contains(&typed));
    found.next().map(|habit| habit.answer)
}
