// SPDX-License-Identifier: Apache-2.0
//! What `run` says around COMMAND, and what it makes of its variables.

use partage_protocol::admin::Reply;

use crate::bench::{Bench, result};
use crate::played_broker::{admitted, job, job_device, play};
use crate::run::{run_request, variable};
use crate::schema;

#[test]
fn a_summary_ends_the_output_of_a_job_and_its_code_is_the_commands() {
    let bench = Bench::new();
    let reply = || vec![Reply::Admitted(admitted())];
    let mut view = job("train");
    view.devices = vec![job_device(3, Some(8 << 30))];
    let requests = play(
        &bench.socket_dir(),
        vec![reply(), vec![Reply::Job(view)], reply(), vec![]],
    );
    let (code, out, err) = result(bench.partage(&["run", "--summary", "sh", "-c", "echo out; exit 7"]));
    assert_eq!((code, out.as_str()), (7, "out\n"));
    let told = err.lines().last().expect("a line");
    assert!(
        told.starts_with("partage: j42 ended 7 after ") && told.ends_with(", peak 4 of 8 GiB, denied 2 times"),
        "{err}"
    );
    assert!(
        run_request(requests.recv().expect("asked")).quiet,
        "the broker need not say it too"
    );
    // Signals go on to the command; a broker that went away leaves what is known.
    let mut command = bench.partage(&["run", "--summary", "sh", "-c", "kill -TERM $PPID; exec sleep 60"]);
    command.env("PARTAGE_MEM", "");
    let (code, _, err) = result(command);
    assert_eq!(code, 143, "{err}");
    assert!(
        err.lines()
            .last()
            .is_some_and(|line| line.starts_with("partage: j42 ended 143 after ")),
        "{err}"
    );
}

/// COMMAND gets what is sent to everybody in its process group, or to each process of the job, once.
#[test]
fn with_a_summary_each_signal_comes_once() {
    use std::os::unix::process::CommandExt;
    use std::process::Stdio;
    use std::time::Duration;

    use nix::sys::signal::{Signal, kill, killpg};
    use nix::unistd::Pid;

    let bench = Bench::new();
    let _requests = play(&bench.socket_dir(), vec![vec![Reply::Admitted(admitted())]; 4]);
    let noted = bench.dir.join("noted");
    let script = format!(
        "trap 'echo TERM >> {0}' TERM; trap 'echo ALRM >> {0}' ALRM; trap 'echo CONT >> {0}' CONT
         echo $$ > {0}.new; mv {0}.new {0}
         i=0; while [ -e {0} ] && [ $i -lt 400 ]; do sleep 0.05 & wait $!; i=$((i + 1)); done",
        noted.display()
    );
    let mut command = bench.partage(&["run", "--summary", "sh", "-c", &script]);
    let mut run = command
        .process_group(0)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let until = |is_there: &dyn Fn(&[String]) -> bool| {
        for _ in 0..400 {
            let text = std::fs::read_to_string(&noted).unwrap_or_default();
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            if is_there(&lines) {
                return lines;
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        panic!("{:?}", std::fs::read_to_string(&noted));
    };
    let pid = until(&|lines| !lines.is_empty())[0].parse().expect("a pid");
    let (child, run_pid) = (Pid::from_raw(pid), Pid::from_raw(run.id().cast_signed()));
    // Long enough for the first to have been passed on, and for the shell to have seen that.
    let pause = || std::thread::sleep(Duration::from_millis(600));
    let count = |lines: &[String], name: &str| lines.iter().filter(|line| *line == name).count();

    killpg(run_pid, Signal::SIGTERM).expect("sent");
    pause();
    assert_eq!(count(&until(&|lines| lines.len() > 1), "TERM"), 1, "of a group's");
    // As `partage stop` does: to each descendant, the first process last, and all go on. Slowly, since what comes while
    // the same is pending is lost.
    let witness = children(run_pid).into_iter().find(|other| *other != child);
    for signal in [Signal::SIGTERM, Signal::SIGCONT] {
        let before = until(&|lines| !lines.is_empty()).len();
        kill(child, signal).expect("sent");
        until(&|lines| lines.len() > before);
        for pid in witness.into_iter().chain([run_pid]) {
            kill(pid, signal).expect("sent");
        }
        pause();
    }
    let lines = until(&|lines| lines.len() > 3);
    assert_eq!((count(&lines, "TERM"), count(&lines, "CONT")), (2, 1), "of a stop");
    for signal in [Signal::SIGTERM, Signal::SIGALRM, Signal::SIGCONT] {
        kill(run_pid, signal).expect("sent");
    }
    let lines = until(&|lines| lines.len() > 6);
    assert_eq!(
        (count(&lines, "TERM"), count(&lines, "CONT")),
        (3, 2),
        "sent to run alone"
    );
    kill(run_pid, Signal::SIGTSTP).expect("sent");
    let state = |pid: Pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().and_then(|fields| fields.chars().next())
    };
    // The group has no parent in its session that would go on with it only if this test's own has none.
    pause();
    if state(child) == Some('T') {
        assert_eq!(state(run_pid), Some('T'), "both stop");
        kill(run_pid, Signal::SIGCONT).expect("sent");
        pause();
        assert!(state(child) != Some('T') && state(run_pid) != Some('T'), "both go on");
    }
    std::fs::remove_file(&noted).expect("the end");
    assert!(run.wait().expect("ends").success());
    assert!(witness.is_none_or(|pid| state(pid).is_none()), "nothing is left");
}

fn children(of: nix::unistd::Pid) -> Vec<nix::unistd::Pid> {
    let text = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    let numbers = text.split_whitespace().filter_map(|pid| pid.parse().ok());
    numbers.map(nix::unistd::Pid::from_raw).collect()
}

#[test]
fn the_document_of_a_summary_shows_the_job_as_it_ended() {
    let bench = Bench::new();
    let mut gone = job("train");
    gone.clients.clear();
    let script = vec![
        vec![Reply::Admitted(admitted())],
        vec![Reply::Job(job("train"))],
        vec![Reply::Job(gone)],
    ];
    let _requests = play(&bench.socket_dir(), script);
    let (code, out, err) = result(bench.partage(&["run", "--summary", "--json", "sh", "-c", "exit 7"]));
    assert_eq!((code, out.as_str()), (7, ""), "{err}");
    let document = schema::judge("job", err.lines().last().expect("a document"));
    let job = &document["job"];
    assert_eq!(
        (job["state"].as_str(), job["exit_code"].as_u64()),
        (Some("ended"), Some(7))
    );
    assert!(job["ended_ns"].as_u64() > job["started_ns"].as_u64(), "{job}");
}

#[test]
fn empty_variables_are_unset_ones_and_unknown_ones_are_named() {
    let bench = Bench::new();
    let requests = play(&bench.socket_dir(), vec![vec![Reply::Admitted(admitted())]; 2]);
    let mut command = bench.partage(&["run", "true"]);
    for name in [
        "PARTAGE_MEM",
        "PARTAGE_STRICT",
        "PARTAGE_COMPUTE",
        "PARTAGE_ON_FULL",
        "PARTAGE_LABEL",
        "PARTAGE_SIM_DIR",
    ] {
        command.env(name, "");
    }
    command.env("PARTAGE_MEMORY", "8GiB");
    let (code, _, err) = result(command);
    assert_eq!(
        (code, err.as_str()),
        (
            0,
            "partage: PARTAGE_MEMORY is set, but Partage has no such variable (did you mean PARTAGE_MEM?)\n"
        )
    );
    let asked = run_request(requests.recv().expect("asked"));
    assert_eq!((asked.mem, asked.strict, asked.labels), (None, false, vec![]));
    let mut command = bench.partage(&["run", "-q", "true"]);
    command.env("PARTAGE_MEMORY", "8GiB");
    assert_eq!(result(command), (0, String::new(), String::new()));
}

#[test]
fn a_command_from_which_every_gpu_is_hidden_takes_no_place_and_keeps_the_variable() {
    let bench = Bench::new();
    for hidden in ["", "-1", "NoDevFiles"] {
        let mut command = bench.partage(&["run", "-m", "25%", "env"]);
        command.env("CUDA_VISIBLE_DEVICES", hidden);
        let (code, out, err) = result(command);
        assert_eq!(
            (code, err.as_str()),
            (
                0,
                format!("partage: CUDA_VISIBLE_DEVICES={hidden} hides every GPU from COMMAND: it runs without a job\n")
                    .as_str()
            )
        );
        assert_eq!(variable(&out, "CUDA_VISIBLE_DEVICES"), Some(hidden));
        assert_eq!(variable(&out, "PARTAGE_TOKEN"), None);
        assert!(
            variable(&out, "LD_PRELOAD").is_some(),
            "a child that sees a GPU is known"
        );
    }
    let mut command = bench.partage(&["run", "-q", "-m", "25%", "true"]);
    command.env("CUDA_VISIBLE_DEVICES", "");
    assert_eq!(result(command), (0, String::new(), String::new()));
}

/// Standard error of `run` is told to the library, or that nothing is to be said.
#[test]
fn the_library_hears_where_it_may_speak() {
    let bench = Bench::new();
    let _requests = play(&bench.socket_dir(), vec![vec![Reply::Admitted(admitted())]; 2]);
    let (_, out, _) = result(bench.partage(&["run", "sh", "-c", "echo $PARTAGE_STDERR; stat -L -c %d:%i /dev/fd/2"]));
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines.len() == 2 && lines[0] == lines[1], "{out}");
    let (_, out, _) = result(bench.partage(&["run", "-q", "env"]));
    assert_eq!(variable(&out, "PARTAGE_STDERR"), Some("quiet"));
}
