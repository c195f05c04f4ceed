// SPDX-License-Identifier: Apache-2.0
//! `partage run` with terms of time: what the broker is asked, what is refused, what is read back.

use partage_protocol::admin::{Reply, RunRequest};

use crate::bench::{Bench, result};
use crate::played_broker::{admitted, play};
use crate::run::{run_request, variable};

#[test]
fn terms_of_time_reach_the_broker_as_written_and_the_command_not_at_all() {
    let bench = Bench::new();
    let requests = play(&bench.socket_dir(), vec![vec![Reply::Admitted(admitted())]]);
    let mut command = bench.partage(&[
        "run",
        "-c",
        "30%",
        "--priority",
        "low",
        "--time-limit",
        "2h",
        "--",
        "env",
    ]);
    command
        .env("PARTAGE_COMPUTE", "90%")
        .env("PARTAGE_COMPUTE_MAX", "50%")
        .env("PARTAGE_WEIGHT", "300")
        .env("CUDA_TASK_PRIORITY", "0")
        .env("CUDA_DEVICE_SM_LIMIT", "40");
    let (code, out, err) = result(command);
    assert_eq!((code, err.as_str()), (0, ""));
    let said = |text: &str| Some(text.to_owned());
    let expected = RunRequest {
        compute: said("30%"),
        compute_max: said("50%"),
        weight: said("300"),
        priority: said("low"),
        time_limit_ns: Some(7_200_000_000_000),
        from_variables: vec!["PARTAGE_COMPUTE_MAX".to_owned(), "PARTAGE_WEIGHT".to_owned()],
        aliases: [("CUDA_DEVICE_SM_LIMIT", "40"), ("CUDA_TASK_PRIORITY", "0")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        wait: true,
        command: vec!["env".to_owned()],
        ..RunRequest::default()
    };
    assert_eq!(run_request(requests.recv().expect("asked")), expected);
    for gone in [
        "PARTAGE_COMPUTE",
        "PARTAGE_COMPUTE_MAX",
        "PARTAGE_WEIGHT",
        "PARTAGE_PRIORITY",
        "PARTAGE_TIME_LIMIT",
    ] {
        assert_eq!(variable(&out, gone), None, "{gone}");
    }
}

#[test]
fn terms_that_cannot_be_meant_are_refused_before_any_broker_is_asked() {
    let bench = Bench::new();
    for (option, value, part) in [
        ("-c", "30", "--compute: \"30\" has no unit: did you mean 30%?"),
        (
            "-c",
            "none",
            "--compute: \"none\" is no amount: leave it out for no promise",
        ),
        ("-c", "0.3", "--compute: \"0.3\" has no unit: did you mean 30%?"),
        (
            "--compute-max",
            "50",
            "--compute-max: \"50\" has no unit: did you mean 50%?",
        ),
        ("--compute-max", "-5%", "--compute-max: \"-5%\" is negative"),
        ("--weight", "20000", "--weight: bad weight \"20000\""),
        (
            "--priority",
            "urgent",
            "--priority: unknown priority \"urgent\" (use low, normal, high or realtime)",
        ),
        (
            "--time-limit",
            "90",
            "--time-limit: \"90\" has no unit: did you mean 90s?",
        ),
        ("--time-limit", "0s", "--time-limit: \"0s\" leaves no time to run"),
    ] {
        let (code, out, err) = result(bench.partage(&["run", option, value, "echo", "ran"]));
        assert_eq!((code, out.as_str()), (125, ""), "{option} {value}");
        assert!(err.starts_with("partage: ") && err.contains(part), "{err}");
    }
    let mut twin = bench.partage(&["run", "echo", "ran"]);
    twin.env("PARTAGE_COMPUTE", "30");
    assert!(
        result(twin)
            .2
            .contains("PARTAGE_COMPUTE: \"30\" has no unit: did you mean 30%?")
    );
    let (code, _, err) = result(bench.partage(&["run", "-c", "60%", "--compute-max", "50%", "echo"]));
    assert!(
        code == 125 && err.contains("--compute: 60 % is more than the cap of 50 %"),
        "{err}"
    );
    assert!(!bench.socket_dir().exists());
}

#[test]
fn on_a_terminal_the_line_reads_promise_and_cap_back() {
    let bench = Bench::new();
    let mut reply = admitted();
    reply.devices[0].limit_bytes = None;
    reply.terms.promise = 0.3;
    reply.terms.cap = Some(0.5);
    reply.terms.cap_from = "--compute-max 50%".to_owned();
    let _requests = play(&bench.socket_dir(), vec![vec![Reply::Admitted(reply)]]);
    let terminal = nix::pty::openpty(None, None).expect("a terminal");
    let mut command = bench.partage(&["run", "-c", "30%", "--compute-max", "50%", "echo", "ran"]);
    command.stderr(terminal.slave.try_clone().expect("dup"));
    assert_eq!(command.output().expect("starts").stdout, b"ran\n");
    drop(command);
    drop(terminal.slave);
    let mut said = Vec::new();
    let _ = std::io::Read::read_to_end(&mut std::fs::File::from(terminal.master), &mut said);
    let line = "partage: j42 on GPU 3 (H200), no limit, promise 30 %, cap 50 %; promised among your own jobs only\r\n";
    assert_eq!(String::from_utf8_lossy(&said), line);
}
