// SPDX-License-Identifier: Apache-2.0
//! `partage run` as a launcher: pipes, codes, one broker, and errors that name the numbers and the fix.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use super::Case;
use crate::artefacts::built;
use crate::rig::{GIB, Rig, Spec};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("launcher::substitution_and_pipe_return", pipes_return),
        Case::new("launcher::two_first_runs_meet_at_one_broker", two_first_runs),
        Case::new("launcher::ssh_and_cron_meet_at_the_same_broker", no_environment),
        Case::new("launcher::bad_input_names_the_fix", bad_input),
        Case::new("launcher::full_device_names_the_holders", full_device),
        Case::new("launcher::queue_and_timeout", queue),
        Case::new("launcher::no_driver_says_what_to_do", no_driver).simulated("needs a machine without a driver"),
        Case::new("launcher::others_jobs_are_out_of_reach", others_jobs),
        Case::new("launcher::two_users_promise_no_memory_twice", two_users).simulated("needs a device both may use"),
        Case {
            spec: Spec {
                gpus: 2,
                memory: 16 * GIB,
                idle_exit: 1,
                ..Spec::DEFAULT
            },
            ..Case::new("launcher::idle_broker_leaves", idle_broker_leaves)
        },
        Case::new("launcher::sim_command", sim_command).simulated("simulated by name"),
    ]
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn shell(rig: &Rig, line: &str) -> Output {
    let mut command = rig.command("/bin/bash");
    command.args(["-c", line]).env("P", built("partage"));
    rig.output(command)
}

fn pipes_return(rig: &Rig) {
    // If the broker held our pipe, `output` would wait for it; the patience there is the broker's 60 s of idleness.
    let start = std::time::Instant::now();
    let output = shell(
        rig,
        r#"x=$("$P" run -- /bin/true); echo "code $?"; "$P" run -- /bin/true | cat; echo "${PIPESTATUS[0]}""#,
    );
    assert_eq!(text(&output.stdout), "code 0\n0\n", "{}", text(&output.stderr));
    assert!(
        start.elapsed() < Duration::from_secs(30),
        "returned while the broker lives"
    );
    assert!(rig.broker_pid_quick().is_some(), "the broker stays");
}

fn two_first_runs(rig: &Rig) {
    let output = shell(
        rig,
        r#"for i in 1 2 3 4; do "$P" run -m 1GiB -- /bin/sleep 2 & done; wait; echo done"#,
    );
    assert_eq!(text(&output.stdout), "done\n", "{}", text(&output.stderr));
    let brokers = brokers_of(rig);
    assert_eq!(brokers.len(), 1, "one broker: {brokers:?}");
}

fn brokers_of(rig: &Rig) -> Vec<u32> {
    let wanted = rig.socket_dir().display().to_string();
    std::fs::read_dir("/proc")
        .expect("proc")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<_> = line.split(|byte| *byte == 0).map(text).collect();
            words.first().is_some_and(|word| word.ends_with("partaged"))
                && words.contains(&wanted)
                && !words.iter().any(|word| word == "--nvml-helper")
        })
        .collect()
}

/// The default folder is chosen from the uid alone; a private /tmp keeps the test off this machine's own.
fn no_environment(rig: &Rig) {
    let sim = rig.sim_dir();
    let inner = format!(
        "'{p}' run --name first -- /bin/sleep 5 & sleep 1; \
         env -i {sim} '{p}' ps --json; \
         env -i {sim} HOME=/ TERM=dumb '{p}' run -- /bin/true && echo ok; \
         env -i {sim} '{p}' broker stop >/dev/null; ls -d /tmp/partage-*; wait",
        p = built("partage").display(),
        sim = if sim.exists() {
            format!(
                "PARTAGE_SIM_DIR={} LD_LIBRARY_PATH={}/lib",
                sim.display(),
                sim.display()
            )
        } else {
            String::new()
        },
    );
    let mut command = rig.command("/usr/bin/unshare");
    // The machine's folder lies below /tmp, so the private /tmp is one folder of a copy-on-write view: a bind of our own.
    let private = rig.dir.join("tmp");
    std::fs::create_dir(&private).expect("writable");
    let setup = format!(
        "mkdir -p {private}/keep && mount --bind {dir} {private}/keep && mount --rbind {private} /tmp && ln -s keep /tmp/{name} && {inner}",
        private = private.display(),
        dir = rig.dir.display(),
        name = rig.dir.file_name().expect("a folder").to_string_lossy(),
    );
    command
        .args(["--mount", "--map-root-user", "--user", "/bin/bash", "-c", &setup])
        .env_remove("PARTAGE_SOCKET_DIR");
    let output = rig.output(command);
    let out = text(&output.stdout);
    assert!(
        out.contains("\"first\"") && out.contains("ok\n"),
        "{out}{}",
        text(&output.stderr)
    );
    assert_eq!(out.matches("/tmp/partage-").count(), 1, "one folder, one broker: {out}");
}

fn bad_input(rig: &Rig) {
    let cases: &[(&[&str], i32, &[&str])] = &[
        (&["run", "--no-such-flag", "--", "true"], 125, &["--no-such-flag"]),
        (&["run", "-m", "8", "--", "true"], 125, &["8GiB"]),
        (&["run", "-m", "0", "--", "true"], 125, &["\"0\"", "1GiB"]),
        (&["run", "-m", "200%", "--", "true"], 125, &["200%", "100"]),
        (&["run", "-m", "1TiB", "-g", "0", "--", "true"], 125, &["1 TiB", "GiB"]),
        (&["run", "-m", "25%"], 125, &["COMMAND"]),
        (&["run", "--", "/etc/passwd"], 126, &["/etc/passwd"]),
        (&["run", "--", "no-such-program-here"], 127, &["no-such-program-here"]),
        (&["run", "-g", "9", "--", "true"], 125, &["9"]),
        (&["run", "-g", "GPU-ffffffff", "--", "true"], 125, &["GPU-ffffffff"]),
        (&["run", "--name", "1bad", "--", "true"], 125, &["1bad"]),
        (&["run", "--wait-timeout", "5", "--", "true"], 125, &["5s"]),
        (&["set", "nobody", "mem=1GiB"], 4, &["nobody"]),
        (&["stop", "j999"], 4, &["j999"]),
        (&["no-such-command"], 2, &["no-such-command"]),
        (&["ps", "--no-such-flag"], 2, &["--no-such-flag"]),
    ];
    for (arguments, code, words) in cases {
        let output = rig.output(rig.partage(arguments));
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(*code), "{arguments:?}: {errors}");
        for word in *words {
            assert!(errors.contains(word), "{arguments:?} names {word}: {errors}");
        }
        assert_eq!(text(&output.stdout), "", "{arguments:?}: data only on stdout");
        if *code != 2 {
            assert!(
                errors.lines().any(|line| line.starts_with("partage:")),
                "{arguments:?}: {errors}"
            );
        }
    }
    // The same of the environment's twins.
    let mut command = rig.partage(&["run", "--", "true"]);
    command.env("PARTAGE_MEM", "8");
    let output = rig.output(command);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("8GiB"));
    // Flags' twins take the words that people write.
    let mut command = rig.partage(&["run", "--", "/bin/true"]);
    command.env("PARTAGE_STRICT", "1").env("PARTAGE_QUIET", "1");
    let output = rig.output(command);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    // Data that could not be written is no success.
    let output = rig.output({
        let mut command = rig.command("/bin/sh");
        command
            .args(["-c", "exec \"$P\" ps >/dev/full"])
            .env("P", built("partage"));
        command
    });
    assert_ne!(output.status.code(), Some(0), "a full disk is told");
    // A folder where no socket can be made.
    let mut command = rig.partage(&["run", "--", "/bin/true"]);
    command.env("PARTAGE_SOCKET_DIR", "/proc/nowhere");
    let output = rig.output(command);
    assert_eq!(output.status.code(), Some(125), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("/proc/nowhere"));
}

fn full_device(rig: &Rig) {
    let mut holder = rig.client(&["-g", "0", "-m", "75%", "--name", "holder"]);
    holder.ready();
    let output = rig.output(rig.run(
        &["-g", "0", "-m", "50%", "--on-full", "fail"],
        Path::new("/bin/true"),
        &[],
    ));
    assert_eq!(output.status.code(), Some(124));
    let errors = text(&output.stderr);
    assert!(
        errors.starts_with("partage:") && errors.contains("j1") && errors.contains("GiB"),
        "{errors}"
    );
    // Four quarters always fit.
    drop(holder);
}

fn queue(rig: &Rig) {
    let mut holder = rig.client(&["-g", "0", "-m", "75%"]);
    holder.ready();
    let output = rig.output(rig.run(
        &["-g", "0", "-m", "50%", "--wait-timeout", "1s"],
        Path::new("/bin/true"),
        &[],
    ));
    assert_eq!(output.status.code(), Some(124), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("wait"), "it said that it waits");
    let clients: Vec<_> = (0..4).map(|_| rig.client(&["-g", "1", "-m", "25%"])).collect();
    for mut client in clients {
        client.ready();
    }
}

fn no_driver(rig: &Rig) {
    let mut command = rig.run(&["-m", "1GiB"], Path::new("/bin/true"), &[]);
    command.env_remove("PARTAGE_SIM_DIR").env_remove("LD_LIBRARY_PATH");
    let output = rig.output(command);
    assert_eq!(output.status.code(), Some(125));
    assert!(
        text(&output.stderr).contains("no NVIDIA driver here; try: partage sim -- partage run"),
        "{}",
        text(&output.stderr)
    );
}

/// Runs `command` as another uid, or says why it cannot.
fn as_nobody(rig: &Rig, arguments: &[&str]) -> Option<Output> {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        println!("SKIPPED: only root can act as another user");
        return None;
    }
    let mut command = rig.command("/usr/bin/setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(built("partage"))
        .args(arguments);
    Some(rig.output(command))
}

/// Whether another user can even execute the build: a home folder of mode 0700 hides it.
fn open_path(path: &Path) -> bool {
    Command::new("/usr/bin/setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "/usr/bin/test",
            "-x",
        ])
        .arg(path)
        .status()
        .is_ok_and(|status| status.success())
}

fn others_jobs(rig: &Rig) {
    if !open_path(&built("partage")) {
        println!("SKIPPED: the build folder is not open to other users");
        return;
    }
    let mut mine = rig.client(&["-m", "1GiB", "--name", "mine"]);
    mine.ready();
    for arguments in [&["set", "mine", "mem=2GiB"][..], &["stop", "mine"], &["stop", "j1"]] {
        let Some(output) = as_nobody(rig, arguments) else {
            return;
        };
        assert!(
            matches!(output.status.code(), Some(3..=5)),
            "{arguments:?}: {:?} {}",
            output.status,
            text(&output.stderr)
        );
    }
    assert_eq!(mine.numbers("info")[2], GIB, "untouched");
}

fn two_users(rig: &Rig) {
    if !open_path(&built("partage")) {
        println!("SKIPPED: the build folder is not open to other users");
        return;
    }
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        println!("SKIPPED: only root can act as another user");
        return;
    }
    // Both may use the machine; each has a broker of its own.
    let _ = Command::new("/bin/chmod").args(["-R", "a+rwX"]).arg(&rig.dir).status();
    let mut mine = rig.client(&["-g", "0", "-m", "50%"]);
    mine.ready();
    let bytes = mine.numbers("info")[1];
    mine.expect(&format!("alloc {bytes} all"), "alloc 0");
    let other = rig.dir.join("theirs");
    std::fs::create_dir(&other).expect("writable");
    std::os::unix::fs::chown(&other, Some(65534), Some(65534)).expect("root");
    let run = |mem: &str| {
        let mut command = rig.command("/usr/bin/setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(built("partage"))
            .args(["run", "-g", "0", "-m", mem, "--on-full", "fail", "--", "/bin/true"])
            .env("PARTAGE_SOCKET_DIR", other.join("sock"))
            .env("HOME", &other);
        rig.output(command)
    };
    let fits = run("25%");
    assert_eq!(
        fits.status.code(),
        Some(0),
        "a quarter is there: {}",
        text(&fits.stderr)
    );
    let too_much = run("75%");
    assert_eq!(
        too_much.status.code(),
        Some(124),
        "three quarters are not: {}",
        text(&too_much.stderr)
    );
}

fn idle_broker_leaves(rig: &Rig) {
    assert!(rig.output(rig.run(&[], Path::new("/bin/true"), &[])).status.success());
    assert!(rig.broker_pid_quick().is_some());
    // The job lives five seconds after its process, the broker one more (this case's setting).
    rig.eventually(Duration::from_secs(20), "the broker leaves", || {
        rig.broker_pid_quick().is_none()
    });
}

fn sim_command(rig: &Rig) {
    let mut command = rig.partage(&["sim", "--gpus", "2", "--memory", "4GiB", "--machine"]);
    let name = format!("t{}", std::process::id());
    command
        .arg(&name)
        .args([
            "--",
            built("partage").to_str().expect("utf-8"),
            "run",
            "-m",
            "25%",
            "--",
        ])
        .arg(crate::artefacts::client())
        .arg("dlopen")
        .env_remove("PARTAGE_SIM_DIR")
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("PARTAGE_SOCKET_DIR");
    let mut client = crate::client::Client::start(command);
    client.ready();
    let total = client.numbers("total 0")[1];
    assert!(total <= GIB && total > GIB * 9 / 10, "a quarter of 4 GiB: {total}");
    let mut look = rig.partage(&[
        "sim",
        "--machine",
        &name,
        "--",
        built("partage").to_str().expect("utf-8"),
        "ps",
        "--json",
    ]);
    look.env_remove("PARTAGE_SIM_DIR")
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("PARTAGE_SOCKET_DIR");
    let output = rig.output(look);
    assert!(
        text(&output.stdout).contains("\"j1\""),
        "a second terminal sees the job: {}",
        text(&output.stderr)
    );
    assert!(client.finish().success());
}
