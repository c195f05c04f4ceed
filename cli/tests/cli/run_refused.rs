// SPDX-License-Identifier: Apache-2.0
//! What `run` and the other commands refuse, and with which code: bad words, brokers that fail.

use std::path::Path;

use partage_protocol::admin::{ErrorCode, Reply, Waiting};

use crate::bench::{Bench, copy, result};
use crate::played_broker::{admitted, hear, listen_in, next, play, refusal, say};
use crate::run::run_request;
use crate::schema;

/// Words, the exit code, what is said.
const REFUSED: &[(&[&str], i32, &str)] = &[
    (&["run", "--no-such-flag", "--", "true"], 125, "--no-such-flag"),
    (
        &["run", "-m", "8", "--", "true"],
        125,
        "partage: --mem: \"8\" has no unit: did you mean 8% or 8GiB?",
    ),
    (
        &["run", "-m", "none", "--", "true"],
        125,
        "partage: --mem: \"none\" is no amount: leave it out for no limit",
    ),
    (
        &["run", "-m", "", "--", "true"],
        125,
        "partage: --mem: the value is empty: write 8GiB, 8192MiB or 25%",
    ),
    (&["run", "-m", "0", "--", "true"], 125, "partage: --mem: \"0\""),
    (
        &["run", "-m", "-1GiB", "--", "true"],
        125,
        "partage: --mem: \"-1GiB\" is negative",
    ),
    (&["run", "-m", "200%", "--", "true"], 125, "200%"),
    (
        &["run", "-m", "1GiB", "--mem-request", "2GiB", "true"],
        125,
        "2GiB is more than the limit 1GiB",
    ),
    (&["run", "--wait-timeout", "5", "true"], 125, "5s"),
    (&["run", "--on-full", "x", "true"], 125, "--on-full"),
    (&["run", "-g", "first", "true"], 125, "auto:2"),
    (&["run", "--name", "j7", "true"], 125, "job id"),
    (
        &["run", "--label", "x", "true"],
        125,
        "--label: \"x\" needs a value, e.g. --label team=vision",
    ),
    (&["run", "-m", "25%"], 125, "COMMAND"),
    (&["run", "--", "/"], 126, "is a directory"),
    (
        &["run", "--", "no-such-program-here"],
        127,
        "no-such-program-here: no such command in PATH",
    ),
    (&["run", "--", "./no/such/file"], 127, "./no/such/file: no such file"),
    (
        &["suspend", "j1", "--drain-timeout", "5"],
        2,
        "partage: --drain-timeout: \"5\" has no unit: did you mean 5s?",
    ),
    (
        &["migrate", "j1", "--to", "1", "--drain-timeout", "0s"],
        2,
        "partage: --drain-timeout: \"0s\" is less than 1ms",
    ),
    (
        &["drain", "0", "--drain-timeout", "2h"],
        2,
        "partage: --drain-timeout: \"2h\" is more than 1h",
    ),
    (
        &["checkpoint", "j1", "--out", "/", "--drain-timeout", "-1s"],
        2,
        "partage: --drain-timeout: \"-1s\" is negative",
    ),
    (&["set", "j1", "mem=8"], 2, "partage: mem: \"8\" has no unit"),
    (
        &["set", "j1", "cpu=8"],
        2,
        "unknown setting \"cpu\"; what can be set: mem=SIZE",
    ),
    (&["set", "j1", "mem"], 2, "partage: mem needs a value, e.g. mem=8GiB"),
    (&["stop", "j1", "--grace", "10"], 2, "--grace: \"10\" has no unit"),
    (&["sim", "--gpus", "0", "--", "true"], 125, "--gpus"),
    (
        &["sim", "--memory", "1", "--", "true"],
        125,
        "--memory: \"1\" has no unit: did you mean 1GiB?",
    ),
    (&["sim", "--memory", "25%", "--", "true"], 125, "of what?"),
    (&["sim", "--machine", "../x", "--", "true"], 125, "bad name"),
    (&["sim", "--socket-dir", "/tmp/x", "--", "true"], 125, "--machine NAME"),
    (&["no-such-command"], 2, "no-such-command"),
    (&["ps", "--no-such-flag"], 2, "--no-such-flag"),
];

#[test]
fn a_broker_that_dies_while_one_waits_is_replaced_quietly() {
    let bench = Bench::new();
    let waiting = Waiting {
        position: 1,
        reason: "no room".to_owned(),
        holders: vec![],
    };
    let first = vec![Reply::Waiting(waiting.clone())];
    let second = vec![Reply::Waiting(waiting), Reply::Admitted(admitted())];
    let requests = play(&bench.socket_dir(), vec![first, second]);
    let (code, out, err) = result(bench.partage(&["run", "--wait-timeout", "1h", "echo", "ran"]));
    assert_eq!((code, out.as_str()), (0, "ran\n"), "{err}");
    let (first, rest) = err.split_once('\n').expect("a line");
    assert_eq!(first, "partage: waiting: no room (place 1 in the queue)");
    assert!(
        rest.starts_with("partage: j42 on GPU 3") && rest.lines().count() == 1,
        "said once: {err}"
    );
    let asked = |request| run_request(request).wait_timeout_ns.expect("a timeout");
    let (first, second) = (
        asked(requests.recv().expect("first")),
        asked(requests.recv().expect("second")),
    );
    assert!(second < first, "what was waited already counts: {first} {second}");
}

#[test]
fn a_broker_that_dies_again_and_again_is_an_error() {
    let bench = Bench::new();
    let requests = play(&bench.socket_dir(), vec![vec![]; 20]);
    let (code, _, err) = result(bench.partage(&["run", "true"]));
    assert_eq!(code, 125);
    assert!(
        err.starts_with("partage: the broker at ") && err.contains("partaged.log"),
        "{err}"
    );
    assert_eq!(requests.try_iter().count(), 5);
}

#[test]
fn refusals_have_the_codes_of_the_documentation() {
    for (code, of_run, of_get) in [
        (ErrorCode::Invalid, 125, 2),
        (ErrorCode::NotAllowed, 125, 3),
        (ErrorCode::NoTarget, 125, 4),
        (ErrorCode::Ambiguous, 125, 4),
        (ErrorCode::NoRoom, 124, 1),
        (ErrorCode::Impossible, 125, 1),
        (ErrorCode::NoDevice, 125, 4),
        (ErrorCode::NoDriver, 125, 1),
        (ErrorCode::Internal, 125, 5),
    ] {
        let bench = Bench::new();
        let _requests = play(&bench.socket_dir(), vec![vec![refusal(code)]; 4]);
        let ran = result(bench.partage(&["run", "true"]));
        assert_eq!(
            ran,
            (of_run, String::new(), "partage: it cannot be; try less\n".to_owned()),
            "{code:?}"
        );
        assert_eq!(result(bench.partage(&["get", "j1"])).0, of_get, "{code:?}");
        let (_, out, err) = result(bench.partage(&["get", "j1", "--json"]));
        schema::judge("error", &out);
        assert_eq!(err, "");
        let (_, out, err) = result(bench.partage(&["run", "--json", "true"]));
        schema::judge("error", &err);
        assert_eq!(out, "");
    }
}

#[test]
fn bad_arguments_name_the_value_and_the_fix() {
    let bench = Bench::new();
    let text = bench.file("text", b"x", 0o644);
    let text = text.to_str().expect("utf-8");
    let not_executable: (&[&str], i32, &str) = (&["run", "--", text], 126, "is not executable");
    for (arguments, code, words) in REFUSED.iter().chain([&not_executable]) {
        let (got, out, err) = result(bench.partage(arguments));
        assert_eq!(got, *code, "{arguments:?}: {err}");
        assert!(
            err.contains(words) && err.starts_with("partage: "),
            "{arguments:?}: {err}"
        );
        assert_eq!(out, "", "{arguments:?}: standard output carries data only");
    }
    let mut command = bench.partage(&["run", "true"]);
    command.env("PARTAGE_MEM", "8");
    assert_eq!(
        result(command),
        (
            125,
            String::new(),
            "partage: PARTAGE_MEM: \"8\" has no unit: did you mean 8% or 8GiB?\n".to_owned()
        )
    );
    let (code, out, _) = result(bench.partage(&["ps", "--json", "--bad"]));
    assert_eq!(code, 2);
    schema::judge("error", &out);
    assert_eq!(result(bench.partage(&[])).0, 2);
    assert_eq!(result(bench.partage(&["run", "--help"])).0, 0);
}

#[test]
fn a_library_that_is_missing_is_told_before_anybody_is_asked() {
    let bench = Bench::new();
    std::fs::remove_file(bench.lib().join("libpartage.so")).expect("remove");
    // The build folder of the program under test may hold one too: a copy of the program lies alone.
    let alone = bench.dir.join("bin");
    std::fs::create_dir(&alone).expect("make");
    copy(Path::new(env!("CARGO_BIN_EXE_partage")), &alone.join("partage"));
    let program = alone.join("partage");
    let (code, _, err) = result(bench.command(program.to_str().expect("utf-8"), &["run", "true"]));
    assert_eq!(code, 125);
    assert!(
        err.contains("libpartage.so is missing") && err.contains("PARTAGE_LIB_DIR"),
        "{err}"
    );
    assert!(!bench.socket_dir().exists());
}

/// A wait that the broker does not end is ended by `run` itself.
#[test]
fn a_silent_broker_does_not_outlast_the_wait_timeout() {
    let bench = Bench::new();
    let listener = listen_in(&bench.socket_dir());
    let silent = std::thread::spawn(move || {
        let connection = next(&listener);
        let request = hear(&connection).expect("asked");
        say(
            &connection,
            &Reply::Waiting(Waiting {
                position: 1,
                reason: "no room".to_owned(),
                holders: vec![],
            }),
        );
        // Open until the asker leaves.
        assert_eq!(hear(&connection), None);
        request
    });
    let (code, _, err) = result(bench.partage(&["run", "--wait-timeout", "100ms", "true"]));
    assert_eq!(code, 124, "{err}");
    assert!(err.contains("no room within 100ms"), "{err}");
    run_request(silent.join().expect("the broker saw it leave"));
}

#[test]
fn a_socket_directory_that_is_too_long_is_named_with_the_way_out() {
    let bench = Bench::new();
    let long = format!("/tmp/{}", "x".repeat(115));
    let (_, _, err) = result(bench.partage(&["ps", "--socket-dir", &long]));
    assert!(
        err.contains("at most 107 bytes") && err.contains("choose a shorter --socket-dir"),
        "{err}"
    );
}

#[test]
fn a_usage_error_does_not_show_the_socket_directory_of_the_environment() {
    let bench = Bench::new();
    let mut command = bench.partage(&["set"]);
    command.env("PARTAGE_SOCKET_DIR", "/tmp/elsewhere");
    let (code, _, err) = result(command);
    assert!(code == 2 && !err.contains("--socket-dir"), "{err}");
}
