// SPDX-License-Identifier: Apache-2.0
//! `partage run` with a played broker: what COMMAND gets, what is said, which code.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use partage_protocol::admin::{ErrorCode, Holder, Reply, Request, RunRequest, Waiting};

use crate::bench::{Bench, copy, result};
use crate::played_broker::{admitted, hear, job, job_device, listen_in, next, play, refusal, say, status};
use crate::schema;

pub fn run_request(request: Request) -> RunRequest {
    match request {
        Request::Run(run) => *run,
        other => panic!("{other:?}"),
    }
}

pub fn variable<'a>(environment: &'a str, name: &str) -> Option<&'a str> {
    environment
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

#[test]
fn the_command_gets_what_the_library_needs_and_nothing_of_what_run_has_read() {
    let bench = Bench::new();
    let requests = play(&bench.socket_dir(), vec![vec![Reply::Admitted(admitted())]]);
    let old = bench.dir.join("libpartage-0.0.1-00.so");
    copy(&bench.lib().join("libpartage.so"), &old);
    let mut command = bench.partage(&["run", "-m", "8GiB", "--name", "t", "--label", "a=b", "--", "env"]);
    command
        .env("LD_PRELOAD", format!("{}:libm.so.6", old.display()))
        .env("CUDA_VISIBLE_DEVICES", "1,GPU-ab")
        .env("PARTAGE_MEM_REQUEST", "4GiB")
        .env("PARTAGE_WAIT_TIMEOUT", "10s");
    let (code, out, err) = result(command);
    assert_eq!((code, err.as_str()), (0, ""));
    let request = run_request(requests.recv().expect("asked"));
    let expected = RunRequest {
        mem: Some("8GiB".to_owned()),
        mem_request: Some("4GiB".to_owned()),
        mem_request_from: Some("PARTAGE_MEM_REQUEST".to_owned()),
        visible_devices: Some("1,GPU-ab".to_owned()),
        name: Some("t".to_owned()),
        labels: vec![("a".to_owned(), "b".to_owned())],
        wait: true,
        wait_timeout_ns: request.wait_timeout_ns,
        command: vec!["env".to_owned()],
        ..RunRequest::default()
    };
    assert_eq!(request, expected);
    assert!(
        request
            .wait_timeout_ns
            .is_some_and(|ns| ns <= 10_000_000_000 && ns > 5_000_000_000)
    );
    let preload = variable(&out, "LD_PRELOAD").expect("set");
    let (first, rest) = preload.split_once(':').expect("the caller's is kept");
    assert_eq!(rest, "libm.so.6", "an older copy of ours is replaced");
    assert!(
        first.starts_with(&format!("{}/lib/libpartage-", bench.socket_dir().display())),
        "{first}"
    );
    assert_eq!(variable(&out, "PARTAGE_TOKEN"), Some("ab".repeat(32).as_str()));
    assert_eq!(variable(&out, "PARTAGE_SOCKET_DIR"), bench.socket_dir().to_str());
    assert_eq!(
        variable(&out, "PARTAGE_MEM_BYTES"),
        Some((8_u64 << 30).to_string().as_str())
    );
    assert_eq!(variable(&out, "PARTAGE_BROKER"), bench.lib().join("partaged").to_str());
    for gone in [
        "CUDA_VISIBLE_DEVICES",
        "PARTAGE_MEM_REQUEST",
        "PARTAGE_WAIT_TIMEOUT",
        "PARTAGE_MEM",
    ] {
        assert_eq!(variable(&out, gone), None, "{gone}");
    }
}

#[test]
fn other_tools_variables_go_to_the_broker_and_stay_with_the_command() {
    let bench = Bench::new();
    let mut limited = admitted();
    limited.devices[0].limit_from = "CUDA_DEVICE_MEMORY_LIMIT=1g".to_owned();
    limited.notes = vec!["promises on GPU 3 add up to 130 % of its memory".to_owned()];
    let requests = play(&bench.socket_dir(), vec![vec![Reply::Admitted(limited)]; 2]);
    let variables = [
        ("CUDA_DEVICE_MEMORY_LIMIT", "1g"),
        ("CUDA_DEVICE_MEMORY_LIMIT_1", ""),
        ("CUDA_DISABLE_CONTROL", "true"),
        ("NVIDIA_GPU_MEMORY_LIMIT", "1024"),
    ];
    let mut command = bench.partage(&["run", "env"]);
    command.envs(variables);
    let (code, out, err) = result(command);
    assert_eq!(code, 0);
    assert_eq!(
        err, "partage: promises on GPU 3 add up to 130 % of its memory\n",
        "never silently"
    );
    let request = run_request(requests.recv().expect("asked"));
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        request.aliases,
        [
            pair("CUDA_DEVICE_MEMORY_LIMIT", "1g"),
            pair("NVIDIA_GPU_MEMORY_LIMIT", "1024")
        ]
    );
    // They are not ours: a runtime may read them too.
    assert_eq!(variable(&out, "CUDA_DEVICE_MEMORY_LIMIT"), Some("1g"));
    let mut command = bench.partage(&["run", "--json", "env"]);
    command.envs(variables);
    let (_, _, err) = result(command);
    let document = schema::judge("admitted", err.lines().next().expect("a document"));
    assert_eq!(
        document["admitted"]["devices"][0]["limit_from"],
        "CUDA_DEVICE_MEMORY_LIMIT=1g"
    );
}

#[test]
fn a_managed_broker_is_never_restarted_by_a_program() {
    let bench = Bench::new();
    let mut managed = admitted();
    managed.is_private = false;
    managed.devices = vec![job_device(0, None)];
    let _requests = play(&bench.socket_dir(), vec![vec![Reply::Admitted(managed)]]);
    let mut command = bench.partage(&["run", "env"]);
    command
        .env("PARTAGE_BROKER", "/old/partaged")
        .env("PARTAGE_MEM_BYTES", "5");
    let (code, out, _) = result(command);
    assert_eq!(code, 0);
    assert_eq!(
        (variable(&out, "PARTAGE_BROKER"), variable(&out, "PARTAGE_MEM_BYTES")),
        (None, None)
    );
}

#[test]
fn the_command_is_this_process_and_its_code_is_kept() {
    let bench = Bench::new();
    let script = vec![vec![Reply::Admitted(admitted())]; 3];
    let _requests = play(&bench.socket_dir(), script);
    let child = bench
        .partage(&["run", "sh", "-c", "echo $$; exit 7"])
        .stdout(std::process::Stdio::piped())
        .spawn();
    let child = child.expect("starts");
    let pid = child.id();
    let (code, out, _) = crate::bench::of(&child.wait_with_output().expect("ends"));
    assert_eq!((code, out), (7, format!("{pid}\n")));
    assert_eq!(
        result(bench.partage(&["run", "--", "sh", "-c", "kill -TERM $$"])).0,
        128 + 15
    );
    // A script without `#!` is the shell's.
    let plain = bench.file("plain", b"echo \"$0 $1\"; exit 3\n", 0o755);
    let (code, out, _) = result(bench.partage(&["run", plain.to_str().expect("utf-8"), "one"]));
    assert_eq!((code, out), (3, format!("{} one\n", plain.display())));
}

/// Signals, closed descriptors and limits are as the caller left them; nothing of ours is open.
#[test]
fn the_command_inherits_exactly_what_the_caller_had() {
    let bench = Bench::new();
    let _requests = play(&bench.socket_dir(), vec![vec![Reply::Admitted(admitted())]; 2]);
    let look = "grep -E 'Sig(Blk|Ign|Cgt)|^Umask' /proc/self/status; ls /proc/self/fd; ulimit -n";
    for is_ignored in [false, true] {
        let prepare = |mut command: Command| {
            // SAFETY: only async-signal-safe calls between fork and exec.
            unsafe {
                command.pre_exec(move || {
                    let disposition = if is_ignored { libc::SIG_IGN } else { libc::SIG_DFL };
                    libc::signal(libc::SIGPIPE, disposition);
                    libc::signal(libc::SIGUSR1, disposition);
                    let mut mask = std::mem::zeroed();
                    libc::sigemptyset(&mut mask);
                    if is_ignored {
                        libc::sigaddset(&mut mask, libc::SIGUSR2);
                    }
                    libc::sigprocmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
                    libc::umask(0o027);
                    libc::close(0);
                    Ok(())
                })
            };
            result(command)
        };
        let bare = prepare(bench.command("/bin/sh", &["-c", look]));
        let under = prepare(bench.partage(&["run", "/bin/sh", "-c", look]));
        assert_eq!(under, bare);
    }
}

#[test]
fn waiting_is_said_and_then_the_command_runs() {
    let bench = Bench::new();
    let waiting = Waiting {
        position: 1,
        reason: "8 GiB asked on GPU 3, 2 GiB free of 140 GiB".to_owned(),
        holders: vec![Holder {
            who: "j41".to_owned(),
            gpu: 3,
            compute: None,
            bytes: 138 << 30,
        }],
    };
    let replies = vec![Reply::Waiting(waiting.clone()), Reply::Admitted(admitted())];
    let _requests = play(&bench.socket_dir(), vec![replies.clone(), replies.clone(), replies]);
    let (code, out, err) = result(bench.partage(&["run", "echo", "hello"]));
    let line = "partage: waiting: 8 GiB asked on GPU 3, 2 GiB free of 140 GiB (place 1 in the queue); \
                held by j41 138 GiB on GPU 3\n";
    assert_eq!((code, out.as_str()), (0, "hello\n"));
    let admitted = err.strip_prefix(line).expect("the waiting line first");
    let on = "partage: j42 on GPU 3 (H200), limit 8 GiB; promised among your own jobs only; waited ";
    assert!(
        admitted.starts_with(on) && admitted.lines().count() == 1,
        "off a terminal too: {err}"
    );
    let (_, out, err) = result(bench.partage(&["run", "-q", "echo", "hello"]));
    assert_eq!((out.as_str(), err.as_str()), ("hello\n", ""));
    let (_, out, err) = result(bench.partage(&["run", "--json", "echo", "hello"]));
    assert_eq!(out, "hello\n", "standard output is the command's");
    let lines: Vec<&str> = err.lines().collect();
    schema::judge("waiting", lines[0]);
    let document = schema::judge("admitted", lines[1]);
    assert!(!document.to_string().contains("abab"), "the token is nobody else's");
    assert_eq!(lines.len(), 2);
}

#[test]
fn on_a_terminal_one_line_reads_the_limit_back() {
    let bench = Bench::new();
    let _requests = play(&bench.socket_dir(), vec![vec![Reply::Admitted(admitted())]; 2]);
    let terminal = nix::pty::openpty(None, None).expect("a terminal");
    for arguments in [&["run", "-m", "8GiB", "echo", "ran"][..], &["run", "-q", "echo", "ran"]] {
        let mut command = bench.partage(arguments);
        command.stderr(terminal.slave.try_clone().expect("dup"));
        assert_eq!(command.output().expect("starts").stdout, b"ran\n");
    }
    // All writers are gone, so reading ends (with EIO, as terminals do) after what was said.
    drop(terminal.slave);
    let mut said = Vec::new();
    let _ = std::io::Read::read_to_end(&mut std::fs::File::from(terminal.master), &mut said);
    let line = "partage: j42 on GPU 3 (H200), limit 8 GiB; promised among your own jobs only\r\n";
    assert_eq!(String::from_utf8_lossy(&said), line, "once: -q says nothing");
}

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
fn nothing_is_admitted_for_a_dry_run() {
    let bench = Bench::new();
    let waiting = Waiting {
        position: 2,
        reason: "no room".to_owned(),
        holders: vec![],
    };
    let script = vec![
        vec![Reply::Admitted(admitted())],
        vec![Reply::Admitted(admitted())],
        vec![Reply::Waiting(waiting)],
    ];
    let requests = play(&bench.socket_dir(), script);
    let (code, out, err) = result(bench.partage(&["run", "--dry-run", "-m", "8GiB", "sh", "-c", "echo ran"]));
    let text = "would run on GPU 3 (H200), limit 8 GiB; promised among your own jobs only\n";
    assert_eq!((code, out.as_str(), err.as_str()), (0, text, ""));
    assert!(run_request(requests.recv().expect("asked")).dry_run);
    schema::judge(
        "dry-run",
        &result(bench.partage(&["run", "--dry-run", "--json", "true"])).1,
    );
    let (_, out, _) = result(bench.partage(&["run", "--dry-run", "true"]));
    assert_eq!(out, "would wait: no room (place 2 in the queue)\n");
}

#[test]
fn run_inside_a_job_stays_in_it() {
    let bench = Bench::new();
    let mut outer = job("train");
    outer.devices.truncate(1);
    let inside = |arguments: &[&str], script: Vec<Vec<Reply>>| {
        let _ = std::fs::remove_file(bench.socket_dir().join("client/client.sock"));
        let requests = play(&bench.socket_dir(), script);
        let mut command = bench.partage(arguments);
        command
            .env("PARTAGE_TOKEN", "ab".repeat(32))
            .env("PARTAGE_MEM_BYTES", (8_u64 << 30).to_string());
        let given = result(command);
        (given, requests.try_iter().collect::<Vec<_>>())
    };
    let got_job = || vec![Reply::Job(outer.clone())];
    let (given, asked) = inside(&["run", "-m", "4GiB", "env"], vec![got_job()]);
    assert_eq!(given.0, 0, "{}", given.2);
    assert_eq!(
        variable(&given.1, "PARTAGE_MEM_BYTES"),
        Some((4_u64 << 30).to_string().as_str())
    );
    assert_eq!(
        variable(&given.1, "PARTAGE_TOKEN"),
        Some("ab".repeat(32).as_str()),
        "it stays in the job"
    );
    assert!(
        matches!(asked.as_slice(), [Request::Get { .. }]),
        "no second job is asked for: {asked:?}"
    );
    let line = "partage: inside j42 on GPU 0 (H200), limit 8 GiB for all its processes; \
                the lower limit 4 GiB is not enforced inside a job\n";
    assert_eq!(given.2, line, "what is not enforced is never silent");
    let (given, _) = inside(&["run", "-m", "4GiB", "--strict", "env"], vec![got_job()]);
    assert_eq!((given.0, given.1.as_str()), (125, ""));
    assert!(given.2.contains("not enforced"), "{}", given.2);

    let (given, _) = inside(&["run", "-q", "-m", "4GiB", "true"], vec![got_job()]);
    assert_eq!(given.2, line, "-q silences no limit that is not enforced");
    let (given, _) = inside(&["run", "-q", "-m", "8GiB", "true"], vec![got_job()]);
    assert_eq!(given.2, "", "-q: a wrapper's python that starts another says nothing");

    let (given, _) = inside(&["run", "-m", "64GiB", "env"], vec![got_job()]);
    assert_eq!(
        variable(&given.1, "PARTAGE_MEM_BYTES"),
        Some((8_u64 << 30).to_string().as_str())
    );
    assert!(
        given.2.contains("limit 8 GiB") && given.2.contains("64GiB asked"),
        "{}",
        given.2
    );
    assert_eq!(
        inside(&["run", "true"], vec![got_job()]).0,
        (0, String::new(), String::new())
    );

    let mut of = status(&bench.socket_dir());
    of.devices[0].uuid.clone_from(&outer.devices[0].uuid);
    of.devices[0].usable_bytes = 10 << 30;
    let (given, _) = inside(&["run", "-m", "10%", "env"], vec![got_job(), vec![Reply::Status(of)]]);
    assert_eq!(
        variable(&given.1, "PARTAGE_MEM_BYTES"),
        Some((1_u64 << 30).to_string().as_str()),
        "{}",
        given.2
    );

    let (given, _) = inside(&["run", "-g", "1", "env"], vec![got_job()]);
    assert_eq!(given.0, 125);
    assert!(given.2.contains("CUDA_VISIBLE_DEVICES"), "{}", given.2);

    // A terminal multiplexer that outlived its job: the token is nobody's, so this is a job of its own.
    let stale = vec![vec![refusal(ErrorCode::NoTarget)], vec![Reply::Admitted(admitted())]];
    let (given, asked) = inside(&["run", "true"], stale);
    assert_eq!(given.0, 0, "{}", given.2);
    assert!(
        matches!(asked.as_slice(), [Request::Get { .. }, Request::Run(_)]),
        "{asked:?}"
    );
}

#[test]
fn bad_arguments_name_the_value_and_the_fix() {
    let bench = Bench::new();
    let text = bench.file("text", b"x", 0o644);
    let text = text.to_str().expect("utf-8");
    let cases: &[(&[&str], i32, &str)] = &[
        (&["run", "--no-such-flag", "--", "true"], 125, "--no-such-flag"),
        (
            &["run", "-m", "8", "--", "true"],
            125,
            "partage: --mem: \"8\" has no unit: did you mean 8% or 8GiB?",
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
        (&["run", "--", text], 126, "is not executable"),
        (&["run", "--", "/"], 126, "is a directory"),
        (
            &["run", "--", "no-such-program-here"],
            127,
            "no-such-program-here: no such command in PATH",
        ),
        (&["run", "--", "./no/such/file"], 127, "./no/such/file: no such file"),
        (&["set", "j1", "mem=8"], 2, "partage: mem: \"8\" has no unit"),
        (
            &["set", "j1", "cpu=8"],
            2,
            "unknown setting \"cpu\"; what can be set: mem=SIZE",
        ),
        (&["set", "j1", "mem"], 2, "partage: mem needs a value, e.g. mem=8GiB"),
        (&["stop", "j1", "--grace", "10"], 2, "--grace: \"10\" has no unit"),
        (&["sim", "--gpus", "0", "--", "true"], 125, "--gpus"),
        (&["sim", "--memory", "25%", "--", "true"], 125, "of what?"),
        (&["sim", "--machine", "../x", "--", "true"], 125, "bad name"),
        (&["sim", "--socket-dir", "/tmp/x", "--", "true"], 125, "--machine NAME"),
        (&["no-such-command"], 2, "no-such-command"),
        (&["ps", "--no-such-flag"], 2, "--no-such-flag"),
    ];
    for (arguments, code, words) in cases {
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
