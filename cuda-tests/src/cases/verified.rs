// SPDX-License-Identifier: Apache-2.0
//! `partage verify` in the places where a program may end up: 0 where a limit holds, 1 where none does, and why.
//!
//! A managed host whose rule gives everybody 2 GiB; its container is a set of namespaces with the two things that the
//! device of a description mounts, the library by `/etc/ld.so.preload` and the broker's folder.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::Case;
use super::commands::build_by_musl;
use super::containers::podman::{CLASSES, Podman, describe};
use super::ruled_host::Host;
use crate::artefacts::{built, program};
use crate::rig::{GIB, Rig};

const WHY: &str = "needs a managed broker, root and the simulated machine";
const LIMITED: &str = "schema = 1\n[[rule]]\nname = \"all\"\nmax = { mem = \"2GiB\" }\n";

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("verified::on_the_host", host).simulated(WHY),
        Case::new("verified::on_the_gpu_that_the_program_sees", second_gpu).simulated(WHY),
        Case::new("verified::in_a_container", container).simulated(WHY),
        Case::new("verified::in_a_container_of_podman", podman).simulated(WHY),
        Case::new("verified::behind_another_c_library_and_none", other_libraries).simulated(WHY),
        Case::new("verified::while_the_broker_is_away", away).simulated(WHY),
    ]
}

/// `partage --json verify -- WRAPPER…`: its code and what it said.
fn verify(rig: &Rig, wrapper: &[String]) -> (Option<i32>, Value) {
    let mut command = rig.partage(&["--json", "verify", "--"]);
    command.args(wrapper);
    let output = rig.output(command);
    let said = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        panic!("{wrapper:?}: {error}: {text}")
    });
    (output.status.code(), said)
}

/// The rule's limit holds there.
#[track_caller]
fn holds(rig: &Rig, wrapper: &[String], preload: &str) {
    let (code, said) = verify(rig, wrapper);
    assert_eq!(code, Some(0), "{wrapper:?}: {said}");
    assert_eq!(said["is_bound"], true, "{said}");
    assert_eq!(said["limit_bytes"], 2 * GIB, "{said}");
    let from = said["limit_from"].as_str().unwrap_or_default();
    assert!(from.starts_with("rule all, "), "{said}");
    assert_eq!(said["preload"], preload, "{said}");
}

/// None holds, and the sentence has these words.
#[track_caller]
fn holds_not(rig: &Rig, wrapper: &[String], words: &[&str]) {
    let (code, said) = verify(rig, wrapper);
    assert_eq!(code, Some(1), "{wrapper:?}: {said}");
    assert_eq!(said["is_bound"], false, "{said}");
    let message = said["message"].as_str().unwrap_or_default();
    for part in words {
        assert!(message.contains(part), "{part}: {message}");
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// What an emptied environment needs of the simulated machine: words for `env`. The folder of the broker among them,
/// because `partage` looks for a private one where the machine is simulated.
fn machine(rig: &Rig, broker: &Path) -> Vec<String> {
    let folder = rig.sim_dir();
    vec![
        format!("PARTAGE_SIM_DIR={}", folder.display()),
        format!("LD_LIBRARY_PATH={}", folder.join("lib").display()),
        format!("PARTAGE_SOCKET_DIR={}", broker.display()),
    ]
}

/// The library's variable, as a word for `env`.
fn variable() -> String {
    format!("LD_PRELOAD={}", built("libpartage.so").display())
}

/// Programs that empty the environment of what they start: `setpriv` everywhere, sudo where it starts something without
/// a question.
fn emptying() -> Vec<Vec<String>> {
    let mut all = vec![owned(&["setpriv", "--reset-env", "--"])];
    let mut probe = Command::new(SUDO[0]);
    probe
        .args(&SUDO[1..])
        .arg("true")
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    match probe.status().is_ok_and(|status| status.success()) {
        true => all.push(owned(&SUDO)),
        false => println!("SKIPPED: verified: sudo starts nothing here; setpriv empties the environment in its place"),
    }
    all
}

const SUDO: [&str; 3] = ["/usr/bin/sudo", "-n", "--"];

fn host(rig: &Rig) {
    let _host = Host::start(rig, LIMITED);
    let library = variable();
    holds_not(rig, &[], &["the library is not in the program"]);
    holds(rig, &owned(&["env", &library]), "variable");
    let given = machine(rig, &rig.socket_dir());
    let emptied = [owned(&["env", &library, "env", "-i"]), given.clone()].concat();
    holds_not(rig, &emptied, &["not in the program", "without LD_PRELOAD"]);
    for outer in emptying() {
        let words = [owned(&["env", &library]), outer.clone(), owned(&["env"]), given.clone()].concat();
        holds_not(rig, &words, &["not in the program"]);
        if outer == owned(&SUDO) {
            holds_not(
                rig,
                &outer,
                &["not in the program", "sudo: it changes the user", "put it first"],
            );
        }
    }
}

/// Two GPUs of one job with two limits: what counts is that of the probe's.
fn second_gpu(rig: &Rig) {
    rig.change_machine(|spec| spec.devices[1].memory = Some(8 * GIB));
    let run = owned(&[&built("partage").display().to_string(), "run", "-m", "25%", "-g"]);
    for (gpus, seen, limit) in [("0,1", "1", 2), ("1,0", "1", 4), ("0,1", "0", 4)] {
        let visible = format!("CUDA_VISIBLE_DEVICES={seen}");
        let words = [run.clone(), owned(&[gpus, "--", "env", &visible])].concat();
        let (code, said) = verify(rig, &words);
        assert_eq!(code, Some(0), "{gpus}, {seen}: {said}");
        assert_eq!(said["limit_bytes"], said["total_bytes"], "{gpus}, {seen}: {said}");
        // A little is the driver's.
        let bytes = said["limit_bytes"].as_u64().unwrap_or_default();
        assert!(
            bytes > (limit - 1) * GIB && bytes <= limit * GIB,
            "{gpus}, {seen}: {said}"
        );
    }
}

/// Namespaces of their own: `$0` is the folder of its `/etc`, `$1` the broker's folder that is mounted, or nothing.
const CONTAINER: &str = r#"
mount --bind "$0" /etc && mount -t tmpfs -o mode=755 none /run || exit 70
if [ -n "$1" ]; then mkdir -p /run/partage/client && mount --bind "$1" /run/partage/client || exit 71; fi
shift
export PARTAGE_SOCKET_DIR=/run/partage
exec "$@"
"#;

/// What starts a program in such a container. `None`, with a note: this machine makes none, and the case is skipped.
fn contained(rig: &Rig, has_device: bool) -> Option<Vec<String>> {
    let etc = rig.dir.join(if has_device { "etc" } else { "etc-without" });
    let copied = Command::new("/bin/cp").arg("-a").arg("/etc").arg(&etc).status();
    assert!(copied.is_ok_and(|status| status.success()), "/etc is copied");
    let (preload, mut client) = (etc.join("ld.so.preload"), PathBuf::new());
    let _ = std::fs::remove_file(&preload);
    if has_device {
        let line = format!("{}\n", built("libpartage.so").display());
        std::fs::write(&preload, line).expect("writable");
        client = rig.socket_dir().join("client");
    }
    let namespaces = ["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"];
    let mut words = owned(&["/usr/bin/unshare"]);
    words.extend(owned(&namespaces));
    words.extend(owned(&["--mount-proc", "/bin/sh", "-c", CONTAINER]));
    words.extend([etc.display().to_string(), client.display().to_string()]);
    let mut probe = rig.command(&words[0]);
    probe.args(&words[1..]).arg("/bin/true").stderr(Stdio::null());
    if rig.output(probe).status.success() {
        return Some(words);
    }
    rig.note("skipped: this machine makes no namespaces like a container's");
    None
}

fn container(rig: &Rig) {
    let _host = Host::start(rig, LIMITED);
    let (Some(inside), Some(without)) = (contained(rig, true), contained(rig, false)) else {
        return;
    };
    holds(rig, &inside, "file");
    holds_not(rig, &without, &["in a ", "not in the program"]);
    let given = machine(rig, Path::new("/run/partage"));
    for outer in [vec![owned(&["env", "-i"])], emptying()].concat() {
        let words = [inside.clone(), outer, owned(&["env"]), given.clone()].concat();
        holds(rig, &words, "file");
    }
    // Its own variable beside the file: the same library, once.
    holds(rig, &[inside.clone(), owned(&["env", &variable()])].concat(), "both");
    assert_eq!(rig.truth_allocated(), 0, "what a probe took is free again");
}

/// As docs/containers.md says it: a container with the device, and one without.
fn podman(rig: &Rig) {
    let Some(podman) = Podman::start(rig) else { return };
    let _host = Host::start(rig, CLASSES);
    describe(rig);
    let wrapper = |device: &[&str]| {
        let (machine, root) = (podman.machine(None), podman.rootfs());
        let mut words = vec!["run", "--rm", "-e=PARTAGE_SOCKET_DIR=/run/partage"];
        words.extend(machine.iter().map(String::as_str).chain(device.iter().copied()));
        words.extend(["--rootfs", &root]);
        let command = podman.command(&words);
        let conf = format!("CONTAINERS_CONF={}", rig.dir.join("containers.conf").display());
        let mut all = owned(&["env", &conf]);
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        all.extend(words.map(|word| word.to_string_lossy().into_owned()));
        all
    };
    let (code, said) = verify(rig, &wrapper(&["--device=partage.dev/share=small"]));
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(
        (&said["limit_bytes"], &said["preload"]),
        (&GIB.into(), &"file".into()),
        "{said}"
    );
    let text = |key: &str| said[key].as_str().unwrap_or_default().to_owned();
    assert!(text("limit_from").contains("class small"), "{said}");
    assert!(text("place").starts_with("a container of podman"), "{said}");
    let words = ["in a container of podman", "not in the program"];
    holds_not(rig, &wrapper(&[]), &words);
}

/// Programs that load no library become the probe, which loads it; the same programs are no probe.
fn other_libraries(rig: &Rig) {
    let _host = Host::start(rig, LIMITED);
    let mut programs = vec![(
        program("passes-on-static", "passes_on.c", &["-static"]),
        "statically linked",
    )];
    for (name, flags, word) in [
        ("musl", &[][..], "musl libc"),
        ("musl-static", &["-static"], "statically linked"),
    ] {
        let path = rig.dir.join(name);
        if build_by_musl("passes_on.c", &path, flags) {
            programs.push((path, word));
        }
    }
    let inside = contained(rig, true);
    for (path, why) in programs {
        let path = path.display().to_string();
        holds(rig, &owned(&["env", &variable(), &path]), "variable");
        // Not the words of the sentence about what it is: the probe ran, without the library.
        holds_not(rig, &owned(&[&path]), &["not in the program, so no limit holds for it"]);
        if let Some(inside) = &inside {
            holds(rig, &[inside.clone(), owned(&[&path])].concat(), "file");
        }
        // The program itself in the probe's place.
        holds_not(
            rig,
            &owned(&[&path, "/bin/true"]),
            &["the probe did not run there", why],
        );
    }
}

fn away(rig: &Rig) {
    let host = Host::start(rig, LIMITED);
    let Some(inside) = contained(rig, true) else { return };
    holds(rig, &inside, "file");
    drop(host);
    holds_not(rig, &inside, &["in a ", "no broker knows the program"]);
    assert_eq!(rig.truth_allocated(), 0);
    let _host = Host::start(rig, LIMITED);
    holds(rig, &inside, "file");
}
