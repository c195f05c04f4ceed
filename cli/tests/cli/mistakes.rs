// SPDX-License-Identifier: Apache-2.0
//! What people type who know other tools, and what is said: our word for it, never the parser's nearest string.

use crate::bench::{Bench, result};
use crate::schema;

/// What is typed behind `partage`, and all that is said.
const MISTAKES: [(&str, &str); 41] = [
    // nvidia-smi
    (
        "nvtop",
        "partage has no command \"nvtop\"; `partage top` shows who uses the GPUs, every second",
    ),
    (
        "pmon",
        "partage has no command \"pmon\"; `partage top` shows who uses the GPUs, every second",
    ),
    (
        "dmon",
        "partage has no command \"dmon\"; `partage status` shows the GPUs and what of them is committed",
    ),
    (
        "-L",
        "partage has no option -L; `partage status` shows the GPUs, and `partage status --json` every number",
    ),
    (
        "--query-gpu=memory.used",
        "partage has no option --query-gpu; `partage status` shows the GPUs, and `partage status --json` every \
         number",
    ),
    (
        "status -l 1",
        "partage status has no option -l; `partage status --watch` shows it again and again",
    ),
    (
        "run -i 0 true",
        "partage run has no option -i; `-g 0` takes GPU 0, as nvidia-smi numbers them",
    ),
    (
        "stop -KILL j3",
        "partage stop has no option -KILL; `partage stop JOB --grace 1s` sends SIGTERM, and SIGKILL a second later",
    ),
    // docker
    (
        "pause j3",
        "partage has no command \"pause\"; `partage suspend JOB` moves its GPU memory to host memory and lets \
         it wait",
    ),
    (
        "unpause j3",
        "partage has no command \"unpause\"; `partage resume JOB` brings a suspended job back",
    ),
    (
        "stats",
        "partage has no command \"stats\"; `partage top` shows who uses the GPUs, every second",
    ),
    (
        "inspect j3",
        "partage has no command \"inspect\"; `partage get JOB` shows everything about a job, and `partage why JOB` \
         explains it",
    ),
    (
        "logs j3",
        "partage has no command \"logs\"; `partage events` shows what happened; what a job writes goes where it was \
         started",
    ),
    ("rm j3", "partage has no command \"rm\"; `partage stop JOB` ends a job"),
    (
        "run --gpus 2 python train.py",
        "partage run has no option --gpus; `-g auto:2` takes two GPUs, `-g 2` GPU 2, `-g 0,1` these two, `-g \
         all` all",
    ),
    (
        "run --gpus=all true",
        "partage run has no option --gpus; `-g auto:2` takes two GPUs, `-g 2` GPU 2, `-g 0,1` these two, `-g \
         all` all",
    ),
    (
        "run --memory 8g true",
        "partage run has no option --memory; `-m 8GiB` or `-m 25%` is the limit of memory on each GPU",
    ),
    (
        "run -d true",
        "partage run has no option -d; `partage run` becomes COMMAND: put `&` behind it, or nohup before it, as \
         for any \
         program",
    ),
    // Slurm
    (
        "squeue",
        "partage has no command \"squeue\"; `partage queue` shows who waits, and `partage ps` who runs",
    ),
    (
        "sinfo",
        "partage has no command \"sinfo\"; `partage status` shows the GPUs and what of them is committed",
    ),
    (
        "srun true",
        "partage has no command \"srun\"; `partage run -m 8GiB -- COMMAND` runs it under a limit, and waits for \
         room by \
         itself",
    ),
    (
        "scancel j3",
        "partage has no command \"scancel\"; `partage stop JOB` ends a job",
    ),
    (
        "report",
        "partage has no command \"report\"; `partage ps -a` shows the jobs that ended in the last 24 hours too; \
         --json \
         has every number",
    ),
    (
        "run --gres=gpu:2 true",
        "partage run has no option --gres; `-g auto:2` takes two GPUs, `-g 2` GPU 2, `-g 0,1` these two, `-g \
         all` all",
    ),
    (
        "run -t 2h true",
        "partage run has no option -t; `--time-limit 2h` ends the job then; `--wait-timeout 10m` gives up \
         waiting for \
         room",
    ),
    (
        "run -J train true",
        "partage run has no option -J; `--name NAME` names the job",
    ),
    (
        "ps -u alice",
        "partage ps has no option -u; `partage ps --filter user=alice` shows those alone; likewise \
         state=waiting, label=KEY",
    ),
    // kubectl
    (
        "describe j3",
        "partage has no command \"describe\"; `partage get JOB` shows everything about a job, and `partage why JOB` \
         explains it",
    ),
    (
        "delete j3",
        "partage has no command \"delete\"; `partage stop JOB` ends a job",
    ),
    (
        "cordon 0",
        "partage has no command \"cordon\"; `partage drain GPU` admits nothing there any more, and moves its \
         jobs away",
    ),
    (
        "quota get alice",
        "partage quota has no command \"get\"; `partage quota list` shows the quotas, and `partage get @USER` \
         what a user has of them",
    ),
    // nice, ps, kill
    (
        "run -n 10 true",
        "partage run has no option -n; `--priority low` lets other jobs go first",
    ),
    (
        "renice 5 j3",
        "partage has no command \"renice\"; `partage set JOB priority=low` changes a running job; likewise mem, \
         compute, weight, name",
    ),
    (
        "ps aux",
        "partage ps takes no argument \"aux\"; `partage ps -a` shows jobs that ended, too; those of all users \
         are always there",
    ),
    (
        "stop -9 j3",
        "partage stop has no option -9; `partage stop JOB --grace 1s` sends SIGTERM, and SIGKILL a second later",
    ),
    // Ours, slipped or misplaced
    (
        "set j3 --mem 8GiB",
        "partage set has no option --mem; `partage set JOB mem=8GiB` changes the limit: settings are KEY=VALUE",
    ),
    (
        "migrate j3 --gpu 1",
        "partage migrate has no option --gpu; `partage migrate JOB --to 1` moves it to GPU 1",
    ),
    (
        "stauts",
        "partage has no command \"stauts\"; did you mean `partage status`?",
    ),
    (
        "run --priorty low true",
        "partage run has no option --priorty; did you mean --priority?",
    ),
    (
        "sh train.sh",
        "partage has no command \"sh\"; `partage run -m 25% -- sh ...` runs it under a limit",
    ),
    (
        "frobnicate",
        "partage has no command \"frobnicate\"; `partage --help` lists the commands",
    ),
];

#[test]
fn a_mistake_is_answered_with_what_to_type() {
    let bench = Bench::new();
    for (typed, said) in MISTAKES {
        let words: Vec<&str> = typed.split(' ').collect();
        let code = if words[0] == "run" { 125 } else { 2 };
        let expected = (code, String::new(), format!("partage: {said}\n"));
        assert_eq!(result(bench.partage(&words)), expected, "partage {typed}");
    }
    assert!(!bench.socket_dir().exists(), "nobody was asked");
}

#[test]
fn a_mistake_in_json_has_its_answer_as_the_hint() {
    let bench = Bench::new();
    let (code, out, err) = result(bench.partage(&["--json", "pause", "j3"]));
    assert_eq!((code, err.as_str()), (2, ""));
    let document = schema::judge("error", &out);
    assert_eq!(document["error"]["code"], "invalid");
    assert_eq!(document["error"]["message"], "partage has no command \"pause\"");
    let hint = document["error"]["hint"].as_str().expect("a hint");
    assert!(hint.starts_with("`partage suspend JOB`"), "{hint}");
}

#[test]
fn help_is_long_and_h_is_short() {
    let bench = Bench::new();
    let said = |words: &[&str]| {
        let (code, out, err) = result(bench.partage(words));
        assert_eq!((code, err.as_str()), (0, ""), "{words:?}");
        out
    };
    let long = said(&["help"]);
    assert_eq!(long, said(&["--help"]));
    for group in ["Run programs:", "Look:", "Change jobs:", "Administer a host:", "Check:"] {
        assert!(long.contains(&format!("\n{group}\n  ")), "{group}: {long}");
    }
    assert!(long.contains("Examples:") && !said(&["-h"]).contains("Examples:"));
    assert!(said(&["run", "--help"]).contains("Examples:"));
    let short = said(&["run", "-h"]);
    assert!(short.ends_with("More, with examples: partage run --help\n"), "{short}");
    assert_eq!(said(&["help", "run"]), said(&["run", "--help"]));
    // Of COMMAND, not of us.
    assert_eq!(
        result(bench.partage(&["run", "--dry-run", "--", "true", "-h"])).0,
        125,
        "no broker here"
    );
}
