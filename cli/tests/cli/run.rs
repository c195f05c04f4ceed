// SPDX-License-Identifier: Apache-2.0
//! `partage run` with a played broker: what COMMAND gets, what is said, which code.

use std::os::unix::process::CommandExt;
use std::process::Command;

use partage_protocol::admin::{Holder, Reply, Request, RunRequest, Waiting};

use crate::bench::{Bench, copy, result};
use crate::played_broker::{admitted, job_device, play};
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
    // The token, bit by bit: 1010 1011.
    let token = "/.//.//.//./.".repeat(32);
    assert!(
        first.starts_with(&format!("{}/lib{token}/libpartage-", bench.socket_dir().display())),
        "{first}"
    );
    assert_eq!(variable(&out, "PARTAGE_TOKEN"), Some("ab".repeat(32).as_str()));
    assert_eq!(variable(&out, "PARTAGE_SOCKET_DIR"), bench.socket_dir().to_str());
    assert_eq!(
        variable(&out, "PARTAGE_MEM_BYTES"),
        Some((8_u64 << 30).to_string().as_str())
    );
    // A copy of its own: what is installed may be deleted while the job runs.
    let broker = variable(&out, "PARTAGE_BROKER").expect("set");
    let start = format!("{}/lib/broker-", bench.socket_dir().display());
    assert!(broker.starts_with(&start) && broker.ends_with("/partaged"), "{broker}");
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
fn a_batch_log_reads_the_limit_back_and_a_pipe_gets_what_command_writes() {
    let bench = Bench::new();
    let _requests = play(&bench.socket_dir(), vec![vec![Reply::Admitted(admitted())]; 3]);
    let said = |options: &[&str]| {
        let log = bench.dir.join("train.log");
        let file = std::fs::File::create(&log).expect("ours");
        let words = [&["run", "-m", "8GiB"], options, &["sh", "-c", "echo ran >&2"]].concat();
        let mut command = bench.partage(&words);
        command.stderr(file);
        assert!(command.status().expect("starts").success());
        std::fs::read_to_string(&log).expect("there")
    };
    let line = "partage: j42 on GPU 3 (H200), limit 8 GiB; promised among your own jobs only\n";
    assert_eq!(said(&[]), format!("{line}ran\n"));
    assert_eq!(said(&["-q"]), "ran\n");
    let (_, _, err) = result(bench.partage(&["run", "-m", "8GiB", "sh", "-c", "echo ran >&2"]));
    assert_eq!(err, "ran\n", "a pipe is a program's");
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
