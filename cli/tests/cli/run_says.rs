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
        "PARTAGE_PREEMPTIBLE",
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
    let (code, _, err) = result(command);
    assert_eq!(code, 0);
    assert!(
        err.ends_with("(did you mean PARTAGE_MEM?)\n"),
        "-q silences no misspelt limit: {err}"
    );
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
