// SPDX-License-Identifier: Apache-2.0
//! Starting a private broker: once, detached from everything that the caller has.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use partage_protocol::admin::{Reply, Request};

use crate::bench::{Bench, of, result};
use crate::played_broker::{admitted, hear, listen_in, next, say, status};

/// Makes `partaged` a script that notes its surroundings and then becomes this test program, playing the broker.
fn install_played_broker(bench: &Bench) {
    let own = std::env::current_exe().expect("own path");
    let notes = bench.dir.display();
    bench.script(
        "lib/partaged",
        &format!(
            "echo started >> {notes}/starts\n\
             {{ echo \"$@\"; pwd; ls -l /proc/$$/fd; cat /proc/$$/stat; env; }} > {notes}/surroundings 2>&1\n\
             PLAYED_BROKER_DIR=$3 exec {} start::plays_the_broker --exact --ignored",
            own.display()
        ),
    );
}

/// Not a test of its own: the process that `partaged` becomes above. Answers until it is stopped.
#[test]
#[ignore = "the broker process of the other tests"]
fn plays_the_broker() {
    let Some(dir) = std::env::var_os("PLAYED_BROKER_DIR") else {
        return;
    };
    let dir = Path::new(&dir);
    let listener = listen_in(dir);
    loop {
        let connection = next(&listener);
        match hear(&connection) {
            Some(Request::Run(_)) => say(&connection, &Reply::Admitted(admitted())),
            Some(Request::Status) => {
                let mut view = status(dir);
                view.broker.pid = std::process::id();
                say(&connection, &Reply::Status(view));
            }
            Some(Request::StopBroker) => {
                say(&connection, &Reply::Done { message: String::new() });
                return;
            }
            _ => {}
        }
    }
}

struct Stopped<'a>(&'a Bench);
impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        let _ = result(self.0.partage(&["broker", "stop"]));
    }
}

#[test]
fn run_starts_a_broker_that_holds_nothing_of_the_caller() {
    let bench = Bench::new();
    install_played_broker(&bench);
    let _stop = Stopped(&bench);
    let began = Instant::now();
    let mut command = bench.partage(&["run", "sh", "-c", "ps -o pid= --ppid $$ | wc -l"]);
    command
        .env("LD_LIBRARY_PATH", "/opt/x")
        .env("PARTAGE_TOKEN", "old")
        .env("PARTAGE_IDLE_EXIT", "7");
    // `output` reads our pipes to their end: a broker that held one would keep us here.
    let output = of(&command.output().expect("starts"));
    // ps itself is the only child of the shell.
    assert_eq!((output.0, output.1.trim()), (0, "2"), "{}", output.2);
    assert!(began.elapsed() < Duration::from_secs(10));

    let noted = std::fs::read_to_string(bench.dir.join("surroundings")).expect("the broker started");
    let mut lines = noted.lines();
    let expected = format!("--private --socket-dir {} --idle-exit 7", bench.socket_dir().display());
    assert_eq!(lines.next(), Some(expected.as_str()));
    assert_eq!(lines.next(), Some("/"));
    let descriptors: Vec<&str> = noted.lines().filter(|line| line.contains(" -> ")).collect();
    for descriptor in &descriptors {
        let target = descriptor.rsplit(" -> ").next().expect("a target");
        let is_own = target.contains("surroundings") || target.contains("/partaged");
        assert!(target == "/dev/null" || is_own, "inherited: {descriptor}");
    }
    assert!(descriptors.len() >= 3, "0, 1 and 2 are open: {noted}");
    for gone in ["LD_LIBRARY_PATH=", "LD_PRELOAD=", "PARTAGE_TOKEN=", "PARTAGE_LIB_DIR="] {
        assert!(!noted.lines().any(|line| line.starts_with(gone)), "{gone}");
    }
    // pid (comm) state ppid pgrp session: of the script, which the broker's process became.
    let stat = noted
        .lines()
        .find(|line| line.contains(") ") && line.ends_with(|c: char| c.is_ascii_digit()));
    let stat = stat.expect("the stat line").rsplit(") ").next().expect("fields");
    let session: i32 = stat.split(' ').nth(3).expect("session").parse().expect("a number");
    // SAFETY: getsid only asks.
    assert_ne!(session, unsafe { libc::getsid(0) }, "a session of its own");

    let (code, out, _) = result(bench.partage(&["broker", "status"]));
    assert!(code == 0 && out.contains("private"), "{out}");
    assert_eq!(result(bench.partage(&["run", "true"])).0, 0);
    assert_eq!(starts(&bench), 1, "the second run met the same broker");
}

fn starts(bench: &Bench) -> usize {
    std::fs::read_to_string(bench.dir.join("starts"))
        .unwrap_or_default()
        .lines()
        .count()
}

#[test]
fn simultaneous_first_runs_start_one_broker() {
    let bench = Bench::new();
    install_played_broker(&bench);
    let _stop = Stopped(&bench);
    let runs: Vec<_> = (0..6)
        .map(|_| bench.partage(&["run", "true"]).spawn().expect("starts"))
        .collect();
    for mut run in runs {
        assert!(run.wait().expect("ends").success());
    }
    assert_eq!(starts(&bench), 1);
}

#[test]
fn a_broker_that_cannot_start_is_an_error_that_names_its_log() {
    let bench = Bench::new();
    let (code, _, err) = result(bench.partage(&["run", "true"]));
    assert_eq!(code, 125);
    assert!(
        err.contains("ended at once") && err.contains("log/partaged.log"),
        "{err}"
    );
    bench.file("lib/partaged", b"#!/no/such/interpreter\n", 0o755);
    let (code, _, err) = result(bench.partage(&["run", "true"]));
    assert_eq!(code, 125);
    assert!(err.contains("cannot start") && err.contains("no such file"), "{err}");
}

/// The hint for the driver cannot be written: who meets a broker does without it, who does not is told.
#[test]
fn a_hint_that_cannot_be_written_keeps_nobody_from_a_broker() {
    let bench = Bench::new();
    bench.file("libnvidia-ml.so.1", b"", 0o644);
    let with_driver = |arguments: &[&str]| {
        let mut command = bench.partage(arguments);
        command.env("LD_LIBRARY_PATH", &bench.dir);
        result(command)
    };
    // A folder in its place: root's rights do not help.
    std::fs::create_dir_all(bench.socket_dir().join("driver/full")).expect("make a folder");
    std::fs::set_permissions(bench.socket_dir(), std::fs::Permissions::from_mode(0o700)).expect("chmod");
    let cannot = format!("cannot write {}/driver: ", bench.socket_dir().display());
    let (code, _, err) = with_driver(&["run", "true"]);
    assert_eq!(code, 125, "{err}");
    assert!(err.contains("ended at once") && err.contains(&cannot), "{err}");
    let (code, _, err) = with_driver(&["run", "--lazy", "true"]);
    assert!(code == 0 && err.contains(&cannot), "{code}: {err}");

    install_played_broker(&bench);
    let _stop = Stopped(&bench);
    assert_eq!(result(bench.partage(&["run", "true"])).0, 0, "it starts");
    for arguments in [&["run", "true"][..], &["run", "--lazy", "true"]] {
        assert_eq!(
            with_driver(arguments),
            (0, String::new(), String::new()),
            "{arguments:?}"
        );
    }
}

#[test]
fn a_directory_where_no_socket_can_be_is_named() {
    let bench = Bench::new();
    for dir in ["/proc/nowhere", "/nowhere/at/all"] {
        let mut command = bench.partage(&["run", "true"]);
        command.env("PARTAGE_SOCKET_DIR", dir);
        let (code, _, err) = result(command);
        assert_eq!(code, 125);
        assert!(err.contains(dir) && err.contains("--socket-dir"), "{err}");
    }
    let long = format!("/tmp/{}", "x".repeat(120));
    let mut command = bench.partage(&["run", "true"]);
    command.env("PARTAGE_SOCKET_DIR", &long);
    let (code, _, err) = result(command);
    assert_eq!(code, 125);
    assert!(err.contains(&long), "{err}");
    assert!(!Path::new(&long).exists());
}

/// On a managed host `run` waits for the host's broker and never starts one. The ten seconds are the promise itself.
#[test]
fn a_managed_hosts_broker_is_waited_for_and_never_started() {
    let system = Path::new("/run/partage");
    if system.exists() {
        println!("SKIPPED: this host is managed");
        return;
    }
    let bench = Bench::new();
    install_played_broker(&bench);
    let began = Instant::now();
    let (code, _, err) = result(bench.partage(&["run", "--socket-dir", "/run/partage", "true"]));
    assert_eq!(code, 125);
    assert!(began.elapsed() >= Duration::from_secs(10));
    assert!(
        err.contains("waited 10 s") && err.contains("systemctl start partaged"),
        "{err}"
    );
    let (code, _, err) = result(bench.partage(&["broker", "start", "--socket-dir", "/run/partage"]));
    assert_eq!(code, 3, "{err}");
    assert!(starts(&bench) == 0 && !system.exists());
}
