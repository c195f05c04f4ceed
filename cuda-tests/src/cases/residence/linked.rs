// SPDX-License-Identifier: Apache-2.0
//! Jobs whose processes are linked with one another, or with somebody outside, in a snapshot.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::Stdio;

use super::super::{Case, tenth};
use super::said::{ok, state};
use super::saved::{criu, folder, restore, save, with_criu};
use super::saved_trees::kill_all;
use crate::artefacts::package_dir;
use crate::cases::matrix::python;
use crate::client::{Client, PATIENCE};
use crate::rig::Rig;

pub fn cases() -> Vec<Case> {
    const WHY: &str = "a real GPU's cycle with CRIU is the acceptance script's";
    let case = |name, body| Case::new(name, body).simulated(WHY);
    vec![
        case("residence::ranks_in_a_ring_of_tcp_are_saved_and_come_back", |rig| {
            comes_back(rig, &["ring"])
        }),
        case("residence::parent_and_child_with_a_tcp_connection_come_back", |rig| {
            comes_back(rig, &["tcp"])
        }),
        case(
            "residence::a_process_that_uses_nvml_alone_is_saved_with_its_job",
            nvml_alone,
        ),
        case("residence::unix_sockets_udp_and_listeners_come_back", others),
        case("residence::what_a_restored_process_may_notice_is_as_it_was", notice),
        case("residence::a_connection_to_outside_is_refused_or_closed", outside),
        case("residence::a_unix_socket_to_outside_is_refused_or_closed", unix_outside),
        case(
            "residence::shared_memory_and_queues_of_the_kernel_are_refused_by_name",
            unsaved,
        ),
        case("residence::a_notebooks_kernel_comes_back_to_its_client", notebook),
    ]
}

/// A job of `linked.py`.
fn start(rig: &Rig, name: &str, kind: &[&str]) -> Client {
    let script = package_dir().join("programs/linked.py").display().to_string();
    let mut arguments = vec![script.as_str()];
    arguments.extend(kind);
    Client::start(rig.run(&["-m", "2GiB", "-g", "0", "--name", name], &python(), &arguments))
}

/// What an undisturbed run says after 5, 30 and 10 steps more.
fn undisturbed(rig: &Rig, kind: &[&str]) -> [String; 3] {
    let mut alone = start(rig, "alone", kind);
    let said = [5, 30, 10].map(|steps| alone.say(&format!("round {steps}")));
    assert!(alone.finish().success());
    said
}

/// Saved after 5 steps, killed 30 steps later, restored, and run to the end.
fn comes_back(rig: &Rig, kind: &[&str]) {
    let Some(criu) = criu(rig) else { return };
    let alone = undisturbed(rig, kind);
    let mut one = start(rig, "one", kind);
    assert_eq!(one.say("round 5"), alone[0]);
    save(rig, &criu, &[]).expect("saved");
    killed_and_back(rig, &criu, one, &alone);
}

/// Of a job that was saved just now.
fn killed_and_back(rig: &Rig, criu: &Path, mut one: Client, alone: &[String; 3]) {
    assert_eq!(one.say("round 30"), alone[1], "the saved one goes on");
    kill_all(rig, one.pid(), "one");
    one.kill();
    let mut again = restore(rig, criu, &[]);
    assert_eq!(again.say("round 30"), alone[1], "the restored one");
    assert_eq!(again.say("round 10"), alone[2]);
    assert_eq!(again.finish().code(), Some(0));
    rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
}

/// It lets go of the broker's pages whatever it does: it polls, or it has looked once and sleeps.
fn nvml_alone(rig: &Rig) {
    comes_back(rig, &["nvml"]);
    let Some(criu) = criu(rig) else { return };
    std::fs::remove_dir_all(folder(rig)).expect("ours");
    let mut client = rig.client(&["-m", "1GiB", "-g", "0", "--name", "one"]);
    client.ready();
    client.expect("alloc 67108864 a", "alloc 0");
    client.expect("fill a 165", "fill 0 165 165");
    client.tell("fork");
    client.expect("exec dlopen", "exec");
    client.expect("nvml", "nvml 0");
    // What it holds changes as the driver is measured; the limit does not.
    let sees = |client: &mut Client| client.say("nvmlmem 0").starts_with("nvmlmem 0 1073741824 ");
    assert!(sees(&mut client));
    save(rig, &criu, &[]).expect("saved");
    assert!(sees(&mut client));
    kill_all(rig, client.pid(), "one");
    client.kill();
    let mut again = restore(rig, &criu, &[]);
    assert!(sees(&mut again));
    again.expect("exit 9", "forked 9");
    again.expect("check a 165", "check 0 0");
    assert!(again.finish().success());
}

/// In the soak; else the first alone.
fn others(rig: &Rig) {
    let kinds = ["unix", "udp", "listen"];
    let count = if tenth() == 1 { kinds.len() } else { 1 };
    for kind in &kinds[..count] {
        comes_back(rig, &[kind]);
        let _ = std::fs::remove_dir_all(folder(rig));
    }
}

/// Its parent's number, the processors of its threads, its timers.
fn notice(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let mut one = start(rig, "one", &["bound"]);
    let said = one.say("notice");
    let parent = format!("parent {} thread [", std::process::id());
    assert!(said.starts_with(&parent) && said.ends_with(" timer True"), "{said}");
    for round in ["first", "of the restored one"] {
        save(rig, &criu, &[]).expect("saved");
        assert_eq!(one.say("notice"), said, "{round}");
        rig.eventually(PATIENCE, "it runs", || state(rig, "one") == "running");
        kill_all(rig, one.pid(), "one");
        one.kill();
        one = restore(rig, &criu, &[]);
        assert_eq!(one.say("notice"), said, "{round}");
        rig.eventually(PATIENCE, "it runs", || state(rig, "one") == "running");
    }
    assert_eq!(one.finish().code(), Some(0));
}

/// The command that a refusal names, without `partage`.
fn remedy(said: &str) -> Vec<&str> {
    let (_, command) = said
        .split_once("partage checkpoint ")
        .unwrap_or_else(|| panic!("{said}"));
    let words = command.lines().next().unwrap_or_default().split_whitespace();
    std::iter::once("checkpoint").chain(words).collect()
}

/// Refused by name before the job has left its device, saved by the command that is named, and found closed then.
fn refused_then_closed(rig: &Rig, criu: &Path, mut one: Client, named: &str) {
    assert_eq!(one.say("send"), "stands");
    let (code, said) = save(rig, criu, &[]).expect_err("it is connected to outside");
    assert!(code == Some(1) && said.contains(named), "{said}");
    assert!(!ok(rig, &["events"]).contains("saving"), "it was touched");
    assert_eq!(one.say("send"), "stands");
    let saved = rig.output(with_criu(rig, criu, &remedy(&said)));
    assert!(
        saved.status.success(),
        "{said}: {}",
        String::from_utf8_lossy(&saved.stderr)
    );
    // The one that lives has it still.
    assert_eq!(one.say("send"), "stands");
    let steps = one.say("round 7");
    kill_all(rig, one.pid(), "one");
    one.kill();
    let mut again = restore(rig, criu, &[]);
    assert_eq!(again.say("send"), "closed");
    assert_eq!(again.say("round 7"), steps);
    again.wait_for_stderr("broken as by a lost network (--tcp close): ");
    assert_eq!(again.finish().code(), Some(0));
}

/// Answers whatever is said on each connection.
fn echo(mut stream: impl Read + Write) {
    let mut byte = [0];
    while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
}

fn outside(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || echo(stream));
        }
    });
    let one = start(rig, "one", &["outside", &address]);
    let named = format!(" has a TCP connection to {address}, outside the job (descriptor ");
    refused_then_closed(rig, &criu, one, &named);
}

fn unix_outside(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let path = rig.dir.join("outside");
    let listener = UnixListener::bind(&path).expect("a path");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || echo(stream));
        }
    });
    let path = path.display().to_string();
    let one = start(rig, "one", &["unixoutside", &path]);
    let named = format!(" has a unix socket to {path}, outside the job (descriptor ");
    refused_then_closed(rig, &criu, one, &named);
    std::fs::remove_dir_all(folder(rig)).expect("ours");
    // Messages to a name have no state: they go there again.
    let log = rig.dir.join("log");
    let receiver = UnixDatagram::bind(&log).expect("a path");
    let log = log.display().to_string();
    std::thread::spawn(move || while receiver.recv(&mut [0; 8]).is_ok() {});
    comes_back(rig, &["named", &log]);
}

fn unsaved(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    for (kind, what) in [
        ("shared", " has System V shared memory attached (SYSV"),
        ("queue", " has the POSIX message queue /linked-"),
    ] {
        let mut one = start(rig, "one", &[kind]);
        one.say("round 1");
        let (code, said) = save(rig, &criu, &[]).expect_err("CRIU cannot save it");
        assert!(code == Some(1) && said.contains(what), "{said}");
        assert!(!ok(rig, &["events"]).contains("saving"), "it was touched");
        for command in ["suspend", "resume"] {
            assert!(said.contains("partage suspend "));
            ok(rig, &[command, "one"]);
        }
        one.say("round 1");
        assert_eq!(one.finish().code(), Some(0));
        rig.eventually(PATIENCE, "it has ended", || state(rig, "one").is_empty());
    }
}

fn notebook(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let mut look = rig.command(python());
    look.args(["-c", "import ipykernel, jupyter_client"]);
    if !rig.output(look).status.success() {
        return rig.note("skipped: ipykernel is not installed");
    }
    let file = rig.dir.join("kernel.json").display().to_string();
    let start_kernel = |name: &str| {
        let module = ["-m", "ipykernel_launcher", "-f", &file];
        let mut kernel = rig.run(&["-m", "1GiB", "-g", "0", "--name", name], &python(), &module);
        // As a server does: the kernel ends when its parent is another one.
        kernel.env("JPY_PARENT_PID", std::process::id().to_string());
        kernel
            .env("HOME", &rig.dir)
            .env("PYTHONPATH", package_dir().join("programs"));
        kernel.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        kernel.spawn().expect("it starts")
    };
    let client = || {
        let mut client = rig.command(python());
        client.arg(package_dir().join("programs/notebook.py")).arg(&file);
        client.env("HOME", &rig.dir);
        Client::start(client)
    };
    let mut one = start_kernel("one");
    rig.eventually(PATIENCE, "it listens", || Path::new(&file).exists());
    let mut user = client();
    user.expect("from ring import Counter; counter = Counter(); n = 0", "None");
    let cell = "n += 1; counter.set(counter.count() * 3 + n); counter.word(5)";
    let mut seen = Vec::new();
    let ask = |user: &mut Client, times: usize| (0..times).map(|_| user.say(cell)).collect::<Vec<_>>();
    seen.extend(ask(&mut user, 3));
    let (_, said) = save(rig, &criu, &[]).expect_err("its client is outside");
    assert!(said.contains(" has a TCP connection to 127.0.0.1:"), "{said}");
    let saved = rig.output(with_criu(rig, &criu, &remedy(&said)));
    assert!(saved.status.success(), "{}", String::from_utf8_lossy(&saved.stderr));
    let later = ask(&mut user, 30);
    kill_all(rig, one.id(), "one");
    one.wait().expect("ours");
    let folder = folder(rig);
    let again = rig.output(with_criu(rig, &criu, &["restore", &folder, "--detach"]));
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    // The same client, which connects again by itself, and goes on where the kernel is now.
    assert_eq!(ask(&mut user, 30), later);
    // The kernel looks for its parent each second.
    std::thread::sleep(std::time::Duration::from_millis(2_500));
    assert_eq!(user.say("n"), "33");
    assert!(user.finish().success());
    ok(rig, &["stop", "one"]);
    rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
}
