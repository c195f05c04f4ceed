// SPDX-License-Identifier: Apache-2.0
//! `partage run` as a launcher: pipes, codes, one broker, and errors that name the numbers and the fix.

use std::path::Path;
use std::process::{Child, Output};
use std::time::Duration;

mod driver;
mod output;
mod users;

use driver::{library_path, no_driver};
use output::text;
use users::{administrators, others_jobs, two_users};

use super::Case;
use crate::artefacts::built;
use crate::rig::{Driver, GIB, MIB, Rig, Spec};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("launcher::substitution_and_pipe_return", pipes_return),
        Case::new("launcher::two_first_runs_meet_at_one_broker", two_first_runs),
        Case::new("launcher::ssh_and_cron_meet_at_the_same_broker", no_environment),
        Case::new("launcher::bad_input_names_the_fix", bad_input),
        Case::new("launcher::full_device_names_the_holders", full_device),
        Case::new("launcher::queue_and_timeout", queue).simulated("needs two devices"),
        Case::new("launcher::a_stopped_waiter_is_passed_and_keeps_its_place", stopped),
        Case::new("launcher::no_driver_says_what_to_do", no_driver).simulated("needs a machine without a driver"),
        Case::new("launcher::a_driver_that_only_the_library_path_finds", library_path)
            .simulated("the driver is wrapped in libraries of its own"),
        Case::new("launcher::others_jobs_are_out_of_reach", others_jobs),
        Case::new("launcher::administrators_change_any_job", administrators)
            .simulated("needs a broker and a device for several users"),
        Case::new("launcher::two_users_promise_no_memory_twice", two_users)
            .simulated("needs a device that both users may use"),
        Case {
            spec: Spec {
                gpus: 2,
                memory: 16 * GIB,
                idle_exit: 1,
                ..Spec::DEFAULT
            },
            ..Case::new("launcher::idle_broker_leaves", idle_broker_leaves)
        },
        Case::new("launcher::sim_command", sim_command).simulated("asks for a simulated machine"),
        Case::new(
            "launcher::sim_promises_what_the_disk_holds_or_is_told_to_overcommit",
            sim_overcommit,
        )
        .simulated("asks for a simulated machine"),
    ]
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

/// The script of `no_environment`: a job of `run` and one of the library alone in one list, then a job without any
/// variable, then the folders that there are.
fn jobs_without_environment(rig: &Rig, xdg: &Path) -> String {
    let sim = rig.sim_dir();
    let (partage, client) = (rig.installed(), rig.dir.join("client"));
    std::fs::copy(crate::artefacts::client(), &client).expect("writable");
    format!(
        "XDG_RUNTIME_DIR={xdg} '{p}' run --name first -- /bin/sleep 600 & first=$!; \
         until_listed() {{ \
         for i in {{1..300}}; do \
         list=$(env -i {sim} '{p}' ps --json); case $list in $1) return;; esac; sleep 0.1; \
         done; }}; \
         until_listed '*\"first\"*'; \
         mkfifo '{hold}'; exec 9<>'{hold}'; printf 'init 0\nctx 0\n' >&9; \
         env -i {sim} XDG_RUNTIME_DIR={xdg} LD_PRELOAD='{library}' '{client}' dlopen <'{hold}' 9>&- & second=$!; \
         until_listed '*\"first\"*\"attached\"*'; \
         echo \"$list\"; exec 9>&-; wait $second; kill $first; \
         env -i {sim} HOME=/ TERM=dumb '{p}' run -- /bin/true && echo ok; \
         env -i {sim} '{p}' broker stop >/dev/null; ls -d /tmp/partage-*; wait",
        p = partage.display(),
        library = partage.with_file_name("libpartage.so").display(),
        client = client.display(),
        hold = rig.dir.join("hold").display(),
        // As a login session has it, and ssh and cron do not.
        xdg = xdg.display(),
        sim = if sim.exists() {
            format!(
                "PARTAGE_SIM_DIR={} LD_LIBRARY_PATH={}/lib",
                sim.display(),
                sim.display()
            )
        } else {
            String::new()
        },
    )
}

/// What gives the mount namespace of a shell a private /tmp, which has what a case needs of the real one at the same
/// place: the rig's own folder, and the build where it lies there.
pub fn private_tmp(rig: &Rig) -> String {
    let private = rig.dir.join("tmp");
    let mut setup = String::from("set -e; ");
    for folder in [&rig.dir, &crate::artefacts::bin_dir(), &crate::artefacts::package_dir()] {
        let folder = folder.canonicalize().expect("there");
        if let Ok(below) = folder.strip_prefix("/tmp") {
            let (from, to) = (folder.display(), private.join(below));
            setup += &format!("mkdir -p '{to}'; mount --bind '{from}' '{to}'; ", to = to.display());
        }
    }
    let private = private.display();
    setup + &format!("mkdir -p '{private}'; mount --rbind '{private}' /tmp; ")
}

/// The default folder is chosen from the uid alone; a private /tmp keeps the test off this machine's own, and
/// hides a build below the real one: the programs come along in the rig's folder.
fn no_environment(rig: &Rig) {
    if rig.driver == Driver::Real && std::env::var_os("PARTAGE_SIM_DIR").is_some() {
        println!("SKIPPED: the simulated machine in the real one's place lies in the hidden folder");
        return;
    }
    let xdg = rig.dir.join("xdg");
    std::fs::create_dir(&xdg).expect("writable");
    let inner = jobs_without_environment(rig, &xdg);
    let mut command = rig.command("/usr/bin/unshare");
    let setup = format!("{}set +e; {inner}", private_tmp(rig));
    command
        .args(["--mount", "--map-root-user", "--user", "/bin/bash", "-c", &setup])
        .env_remove("PARTAGE_SOCKET_DIR");
    let output = rig.output(command);
    let out = text(&output.stdout);
    // The list may come between the client's two lines.
    assert!(
        ["\"first\"", "init 0\n", "ctx 0\n", "ok\n"]
            .iter()
            .all(|said| out.contains(said)),
        "{out}{}",
        text(&output.stderr)
    );
    // `run` and the library alone, with what a login session sets and without, meet at one broker.
    assert_eq!(out.matches("\"job\":").count(), 2, "two jobs in one list: {out}");
    assert!(out.contains("\"unmanaged\":[]"), "and nobody who is in none: {out}");
    assert_eq!(out.matches("/tmp/partage-").count(), 1, "one folder, one broker: {out}");
    assert_eq!(
        std::fs::read_dir(&xdg).expect("ours").count(),
        0,
        "nothing in the session's own folder"
    );
}

fn bad_input(rig: &Rig) {
    let cases: &[(&[&str], i32, &[&str])] = &[
        (&["run", "--no-such-flag", "--", "true"], 125, &["--no-such-flag"]),
        (&["run", "-m", "8", "--", "true"], 125, &["8GiB"]),
        (&["run", "-m", "0", "--", "true"], 125, &["\"0\"", "8GiB"]),
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

/// Ctrl-Z in the queue, and Ctrl-Z of a job that runs.
fn stopped(rig: &Rig) {
    let state = |name: &str| {
        rig.json(&["get", name])["job"]["state"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let signal = |child: &Child, signal: i32| {
        // SAFETY: kill with the pid of our own unreaped child: it cannot be another process.
        unsafe { libc::kill(child.id() as libc::pid_t, signal) };
    };
    let run = |name: &str, mem: &str| -> Child {
        let sleep = Path::new("/bin/sleep");
        let mut command = rig.run(&["-g", "0", "--name", name, "-m", mem], sleep, &["600"]);
        command.stderr(std::process::Stdio::null()).spawn().expect("partage")
    };
    let is = |name: &str, wanted: &str| {
        rig.eventually(Duration::from_secs(30), "a state", || state(name) == wanted);
    };
    let mut holder = run("holder", "75%");
    is("holder", "running");
    signal(&holder, libc::SIGSTOP);
    is("holder", "stopped");
    assert!(text(&rig.output(rig.partage(&["ps"])).stdout).contains("stopped"));
    signal(&holder, libc::SIGCONT);
    is("holder", "running");
    // The first in the queue is stopped: the second passes it, though both need what is short.
    let first = run("first", "50%");
    is("first", "waiting");
    signal(&first, libc::SIGSTOP);
    let mut second = run("second", "60%");
    rig.eventually(Duration::from_secs(30), "it is said", || {
        rig.json(&["why", "first"])
            .to_string()
            .contains("is stopped: it keeps its place")
    });
    assert_eq!(state("second"), "waiting");
    holder.kill().expect("our own child");
    holder.wait().expect("our own child");
    is("second", "running");
    assert_eq!(state("first"), "waiting");
    // It goes on, and is the first again.
    let third = run("third", "50%");
    is("third", "waiting");
    signal(&first, libc::SIGCONT);
    second.kill().expect("our own child");
    second.wait().expect("our own child");
    is("first", "running");
    for mut child in [first, third] {
        child.kill().expect("our own child");
        child.wait().expect("our own child");
    }
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

/// The disk below the machine holds what the GPUs promise, unless `--overcommit` says that it need not.
fn sim_overcommit(rig: &Rig) {
    let room = partage_machine::backing::available(Path::new("/tmp")).expect("a folder");
    // A tenth more than the disk has, on a GPU that has it and a context besides.
    let asked = room + room / 10;
    let memory = format!("{}MiB", asked / MIB + 2048);
    for (number, (more, code)) in [(&[][..], 2), (&["--overcommit"][..], 0)].into_iter().enumerate() {
        let name = format!("o{}-{number}", std::process::id());
        let mut command = rig.partage(&["sim", "--gpus", "1", "--memory", &memory, "--machine", &name]);
        command
            .args(more)
            .arg("--")
            .arg(crate::artefacts::client())
            .arg("dlopen")
            .env_remove("PARTAGE_SIM_DIR")
            .env_remove("LD_LIBRARY_PATH")
            .env_remove("PARTAGE_SOCKET_DIR");
        let mut client = crate::client::Client::start(command);
        client.ready();
        client.say("ctx 0");
        client.expect(&format!("alloc {asked}"), &format!("alloc {code}"));
        if code == 2 {
            client.wait_for_stderr("--overcommit");
        }
        assert!(client.finish().success());
    }
}
