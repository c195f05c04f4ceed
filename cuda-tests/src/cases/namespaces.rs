// SPDX-License-Identifier: Apache-2.0
//! Programs in namespaces of their own, made by `unshare` alone: what a container is for the kernel. And what holds on
//! a managed host while its broker is away.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Case;
use super::ruled_host::{bare, held};
use crate::artefacts::built;
use crate::client::Client;
use crate::rig::{CONTEXT_BYTES, GIB, MIB, Rig};

pub fn cases() -> Vec<Case> {
    let simulated = "the simulated machine's own namespaces and nodes";
    let managed = "needs a managed broker, root and the simulated machine";
    vec![
        Case::new("namespaces::two_first_processes_share_a_device", first_processes).simulated(simulated),
        Case::new("namespaces::a_container_sees_the_gpu_that_it_was_given", one_of_two).simulated(simulated),
        Case::new(
            "namespaces::run_inside_is_placed_on_the_gpu_that_it_has",
            run_on_one_of_two,
        )
        .simulated(simulated),
        Case::new("namespaces::nobody_gets_memory_while_the_broker_is_away", away).simulated(managed),
        Case::new("namespaces::a_rule_opens_what_the_broker_leaves", open_by_rule).simulated(managed),
        Case::new("namespaces::the_brokers_helpers_are_no_clients", helpers).simulated(managed),
        Case::new("namespaces::a_managed_broker_wants_to_see_every_process", blind_broker).simulated(managed),
        Case::new("namespaces::commands_work_in_a_user_namespace", user_namespace).simulated(managed),
        Case::new("namespaces::verify_says_whether_the_limit_bites", verify).simulated(simulated),
        Case::new(
            "namespaces::a_private_broker_serves_its_users_subordinates",
            subordinates,
        )
        .simulated(managed),
    ]
}

/// May this process make the namespaces?
fn may_unshare(rig: &Rig, arguments: &[&str]) -> bool {
    let mut probe = rig.command("/usr/bin/unshare");
    probe.args(arguments).arg("/bin/true").stderr(Stdio::null());
    let is_allowed = probe.status().is_ok_and(|status| status.success());
    if !is_allowed {
        rig.note(format!("skipped: unshare {} is not allowed here", arguments.join(" ")));
    }
    is_allowed
}

const PID: [&str; 4] = ["--pid", "--fork", "--kill-child", "--mount-proc"];

/// A client that is process 1 of its namespace.
fn first_process(rig: &Rig) -> Client {
    let mut command = rig.command("/usr/bin/unshare");
    command.args(PID).arg(crate::artefacts::client()).arg("dlopen");
    Client::start(command)
}

fn first_processes(rig: &Rig) {
    if !may_unshare(rig, &PID) {
        return;
    }
    let mut clients = [first_process(rig), first_process(rig)];
    for client in &mut clients {
        client.expect("init 0", "init 0");
        client.expect("ctx 0 0", "ctx 0");
    }
    let [first, second] = &mut clients;
    first.expect(&format!("alloc {} a", 10 * GIB), "alloc 0");
    second.expect(&format!("alloc {} a", 10 * GIB), "alloc 2");
    second.expect(&format!("alloc {} a", 4 * GIB), "alloc 0");
    let machine = partage_machine::Machine::open(&rig.sim_dir()).expect("the machine is there");
    let seen = machine.occupants(0);
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(
        seen.iter().all(|one| one.pid > 1),
        "by their numbers out here: {seen:?}"
    );
    assert_eq!(machine.used(0), 14 * GIB + 2 * CONTEXT_BYTES);
    let [first, _second] = clients;
    drop(first);
    rig.eventually(Duration::from_secs(10), "what the first held is free", || {
        machine.used(0) == 4 * GIB + CONTEXT_BYTES
    });
}

const MOUNT: [&str; 3] = ["--mount", "--propagation", "private"];

/// `command`, where GPU 1 alone has a node: `set` is how that is made, in a mount namespace of its own.
fn with_second_gpu(rig: &Rig, program: &Path, arguments: &[&str]) -> Command {
    let nodes = rig.sim_dir().join("dev");
    let script = format!(
        "mount --bind '{0}' '{0}' && mount -t tmpfs none '{0}' && : > '{0}/nvidia1' && exec \"$@\"",
        nodes.display()
    );
    let mut command = rig.command("/usr/bin/unshare");
    command
        .args(MOUNT)
        .args(["--pid", "--fork", "--kill-child", "/bin/sh", "-c", &script, "sh"]);
    command.arg(program).args(arguments);
    command
}

fn uuid_of(rig: &Rig, device: usize) -> String {
    let machine = partage_machine::Machine::open(&rig.sim_dir()).expect("the machine is there");
    machine.devices()[device]
        .uuid_text()
        .trim_start_matches("GPU-")
        .to_owned()
}

/// The UUID that an answer of `uuid` names, without its prefix.
fn shown(answer: &str) -> String {
    let name = answer.rsplit(' ').next().unwrap_or_default();
    name.trim_start_matches("GPU-").to_owned()
}

fn one_of_two(rig: &Rig) {
    if !may_unshare(rig, &MOUNT) {
        return;
    }
    // A job that began with both, so that a broker is there; and a default job of each of the two places.
    let mut both = rig.client(&["-g", "0,1"]);
    both.expect("init 0", "init 0");
    both.expect("count", "count 0 2");
    for visible in [None, Some("0")] {
        let mut command = with_second_gpu(rig, &crate::artefacts::client(), &["dlopen"]);
        command.env("LD_PRELOAD", built("libpartage.so"));
        command.envs(visible.map(|value| ("CUDA_VISIBLE_DEVICES", value)));
        let mut client = Client::start(command);
        client.expect("init 0", "init 0");
        client.expect("count", "count 0 1");
        assert_eq!(shown(&client.say("uuid 0")), uuid_of(rig, 1), "{visible:?}");
        client.expect("ctx 0 0", "ctx 0");
        client.expect(&format!("alloc {GIB} a"), "alloc 0");
        let jobs = rig.jobs();
        let default = jobs
            .iter()
            .find(|job| job["is_default"] == true || job["default"] == true);
        let job = default.unwrap_or_else(|| jobs.last().expect("a job"));
        let devices = job["devices"].as_array().map_or(0, Vec::len);
        assert_eq!(devices, 1, "its job has its GPU alone: {job}");
    }
    // A member of a job that holds both, and can open one of them: the mask leaves out the other.
    let mut command = rig.partage(&["run", "-g", "0,1", "--"]);
    let inner = with_second_gpu(rig, &crate::artefacts::client(), &["dlopen"]);
    command.arg(inner.get_program()).args(inner.get_args());
    let mut client = Client::start(command);
    client.expect("init 0", "init 0");
    client.expect("count", "count 0 1");
    assert_eq!(shown(&client.say("uuid 0")), uuid_of(rig, 1));
}

fn run_on_one_of_two(rig: &Rig) {
    if !may_unshare(rig, &MOUNT) {
        return;
    }
    let mut keeper = rig.client(&["-g", "1", "-m", "1GiB"]);
    keeper.expect("init 0", "init 0");
    // The emptier GPU would be the one that is not there.
    let client = crate::artefacts::client().display().to_string();
    let inside = |options: &[&str]| {
        let mut arguments = vec!["run"];
        arguments.extend(options);
        arguments.extend(["--", &client, "dlopen"]);
        with_second_gpu(rig, &built("partage"), &arguments)
    };
    let mut inner = Client::start(inside(&["-m", "1GiB"]));
    inner.expect("init 0", "init 0");
    assert_eq!(shown(&inner.say("uuid 0")), uuid_of(rig, 1));
    let refused = rig.output(inside(&["-m", "1GiB", "-g", "0"]));
    assert_eq!(refused.status.code(), Some(125), "GPU 0 is not there: {refused:?}");
}

/// A managed broker that may be killed and started again.
struct Host<'a> {
    rig: &'a Rig,
    broker: Option<Child>,
}

impl<'a> Host<'a> {
    fn start(rig: &'a Rig, text: &str) -> Self {
        std::fs::write(rig.dir.join("partage.toml"), text).expect("writable");
        let mut host = Self { rig, broker: None };
        host.again();
        host
    }

    fn command(rig: &Rig) -> Command {
        let mut command = rig.command(built("partaged"));
        command
            .arg("--managed")
            .arg("--config")
            .arg(rig.dir.join("partage.toml"));
        command.arg("--socket-dir").arg(rig.socket_dir());
        command
    }

    fn again(&mut self) {
        self.broker = Some(Self::command(self.rig).spawn().expect("the broker starts"));
        self.rig.eventually(Duration::from_secs(20), "the broker answers", || {
            self.rig
                .output(self.rig.partage(&["broker", "status"]))
                .status
                .success()
        });
    }

    fn kill(&mut self) {
        if let Some(mut broker) = self.broker.take() {
            let _ = broker.kill();
            let _ = broker.wait();
        }
    }
}

impl Drop for Host<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}

const LIMITED: &str = "schema = 1\n[[rule]]\nname = \"all\"\nmax = { mem = \"2GiB\" }\n";

fn away(rig: &Rig) {
    let mut host = Host::start(rig, LIMITED);
    let mut before = bare(rig, &[]);
    before.ready();
    host.kill();
    let machine = partage_machine::Machine::open(&rig.sim_dir()).expect("the machine is there");
    let held_before = machine.used(0) + machine.used(1);
    // Programs start and stop, one after the other, with a limit of their own and without, and end in the wait.
    for variables in [&[][..], &[("PARTAGE_MEM_BYTES", "68719476736")][..]] {
        let mut short = bare(rig, variables);
        short.tell("init 0");
        let until = Instant::now() + Duration::from_millis(700);
        while Instant::now() < until {
            assert_eq!(machine.used(0) + machine.used(1), held_before, "{variables:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(short.try_answer(), None, "it waits for the broker");
    }
    // Two that outlast the wait: one begins its use with no broker at all, one meets it in the wait.
    let mut late = bare(rig, &[]);
    late.expect("init 0", "init 0");
    assert_ne!(late.say("ctx 0 0"), "ctx 0", "no context");
    assert_ne!(late.say(&format!("alloc {MIB} a")), "alloc 0", "and no memory");
    assert_eq!(machine.used(0) + machine.used(1), held_before);
    let mut waiting = bare(rig, &[]);
    waiting.tell("init 0");
    host.again();
    assert_eq!(waiting.answer(), "init 0");
    for client in [&mut waiting, &mut late] {
        rig.eventually(Duration::from_secs(20), "it attaches", || {
            client.say("ctx 0 0") == "ctx 0"
        });
        client.expect(&format!("alloc {} b", 3 * GIB), "alloc 2");
        client.expect(&format!("alloc {} c", 256 * MIB), "alloc 0");
        let jobs = rig.jobs();
        let pid = client.pid();
        assert!(held(rig, pid) > 0 && !jobs.is_empty(), "{pid}: {jobs:?}");
    }
    let unmanaged = rig.json(&["ps"])["unmanaged"].clone();
    let count = unmanaged.as_array().map_or(0, Vec::len);
    assert_eq!(count, 0, "nobody is without a broker: {unmanaged}");
}

fn open_by_rule(rig: &Rig) {
    let open = "schema = 1\n[[rule]]\nname = \"open\"\nmatch = { user = \"0\" }\nwithout_broker = \"open\"\n";
    let mut host = Host::start(rig, open);
    host.kill();
    let mut client = bare(rig, &[]);
    client.expect("init 0", "init 0");
    client.expect("ctx 0 0", "ctx 0");
    client.expect(&format!("alloc {GIB} a"), "alloc 0");
}

fn helpers(rig: &Rig) {
    std::fs::write(rig.dir.join("partage.toml"), "schema = 1\n").expect("writable");
    let mut command = Host::command(rig);
    command.env("LD_PRELOAD", built("libpartage.so"));
    let host = Host {
        rig,
        broker: Some(command.spawn().expect("the broker starts")),
    };
    rig.eventually(Duration::from_secs(20), "the broker sees its devices", || {
        rig.json(&["status"])["devices"]
            .as_array()
            .is_some_and(|gpus| gpus.len() == 2)
    });
    assert!(rig.jobs().is_empty(), "no job began for the helper: {:?}", rig.jobs());
    // The next helper, too.
    let broker = host.broker.as_ref().map_or(0, Child::id);
    let children = || -> Vec<u32> {
        // Each thread has its own.
        let threads = std::fs::read_dir(format!("/proc/{broker}/task")).into_iter().flatten();
        let lists = threads
            .flatten()
            .map(|thread| std::fs::read_to_string(thread.path().join("children")));
        let text: String = lists.map(|list| list.unwrap_or_default() + " ").collect();
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    rig.eventually(Duration::from_secs(20), "the broker has helpers", || {
        !children().is_empty()
    });
    let first = children();
    for pid in &first {
        // SAFETY: a signal to a helper of our own broker.
        unsafe { libc::kill(*pid as libc::pid_t, libc::SIGKILL) };
    }
    rig.eventually(Duration::from_secs(20), "another helper works", || {
        let dry = rig.partage(&["run", "--dry-run", "-m", "1GiB", "--", "true"]);
        children().iter().any(|pid| !first.contains(pid)) && rig.output(dry).status.success()
    });
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    let jobs = rig.jobs();
    assert_eq!(jobs.len(), 1, "the client's job alone: {jobs:?}");
}

fn blind_broker(rig: &Rig) {
    if !may_unshare(rig, &PID) {
        return;
    }
    std::fs::write(rig.dir.join("partage.toml"), "schema = 1\n").expect("writable");
    let inner = Host::command(rig);
    let mut command = rig.command("/usr/bin/unshare");
    command.args(PID).arg(inner.get_program()).args(inner.get_args());
    command.env_remove("PARTAGE_PID_NAMESPACE");
    let output = rig.output(command);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("--pid host") && text.contains("--pid-namespace any"),
        "{text}"
    );
}

/// A user namespace of another user, in which root of the host has no number.
const OTHERS: &str = "setpriv --reuid=100000 --regid=100000 --clear-groups unshare --user --map-root-user";

fn user_namespace(rig: &Rig) {
    let mut probe = MOUNT.to_vec();
    probe.extend(OTHERS.split(' '));
    if !may_unshare(rig, &probe) {
        return;
    }
    let partage = rig.installed();
    let _host = Host::start(rig, LIMITED);
    // The broker's folder under the name that only root makes.
    let script = format!(
        "mount -t tmpfs none /run && mkdir /run/partage && mount --bind '{}' /run/partage && \
         exec {OTHERS} '{}' ps --json",
        rig.socket_dir().display(),
        partage.display()
    );
    let mut command = rig.command("/usr/bin/unshare");
    command.args(MOUNT).args(["/bin/sh", "-c", &script]);
    for name in ["PARTAGE_SOCKET_DIR", "PARTAGE_SIM_DIR", "LD_LIBRARY_PATH"] {
        command.env_remove(name);
    }
    let output = rig.output(command);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    let document = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(document.contains("partage/v1"), "{document}");
}

/// Runs a program as a subordinate uid in a user namespace that this user made; its input is the caller's.
fn mapped(rig: &Rig, program: &Path, arguments: &str) -> String {
    let fifo = rig.dir.join("mapped").display().to_string();
    let inner = format!(
        "read _ < {fifo} && exec setpriv --reuid=7 --regid=7 --clear-groups {} {arguments}",
        program.display()
    );
    format!(
        "rm -f {fifo}; mkfifo {fifo} && exec 3<&0 && \
         {{ unshare --user --keep-caps /bin/sh -c '{inner}' <&3 & }} && inner=$! && \
         while [ $(readlink /proc/$inner/ns/user) = $(readlink /proc/self/ns/user) ]; do sleep 0.05; done && \
         echo 0 100000 1000 > /proc/$inner/uid_map && echo 0 100000 1000 > /proc/$inner/gid_map && \
         echo go > {fifo} && wait $inner"
    )
}

fn subordinates(rig: &Rig) {
    if !may_unshare(rig, &MOUNT) {
        return;
    }
    let machine = partage_machine::Machine::open(&rig.sim_dir()).expect("the machine is there");
    machine.open_to_all().expect("opened up");
    rig.installed();
    let program = rig.dir.join("bin/client");
    let copied = Command::new("/bin/cp")
        .arg(crate::artefacts::client())
        .arg(&program)
        .status();
    assert!(copied.is_ok_and(|status| status.success()), "the client is copied");
    let mut keeper = rig.client(&["-g", "0", "-m", "1GiB"]);
    keeper.ready();
    // The folder is its user's alone; what is mounted of it into a container is `client/`.
    let folder = rig.dir.join("inside");
    std::fs::create_dir_all(folder.join("client")).expect("writable");
    let mount = format!(
        "mount --bind '{}' '{}'",
        rig.socket_dir().join("client").display(),
        folder.join("client").display()
    );
    let inside = |start: &str| {
        let mut command = rig.command("/usr/bin/unshare");
        command
            .args(MOUNT)
            .args(["/bin/sh", "-c", &format!("{mount} && {start}")]);
        command.env("PARTAGE_SOCKET_DIR", &folder);
        command.env("PARTAGE_MEM_BYTES", GIB.to_string());
        Client::start(command)
    };
    let library = format!("LD_PRELOAD={}", rig.dir.join("bin/libpartage.so").display());
    let preloaded = format!("{library} {} dlopen", program.display());
    let mut client = inside(&mapped(rig, Path::new("/usr/bin/env"), &preloaded));
    client.expect("init 0", "init 0");
    client.expect("ctx 0 0", "ctx 0");
    client.expect(&format!("alloc {} a", 2 * GIB), "alloc 2");
    client.expect(&format!("alloc {} a", 256 * MIB), "alloc 0");
    assert_eq!(rig.jobs().len(), 2, "the keeper's job and its own: {:?}", rig.jobs());
    // Another user of the host is none of its users.
    let other = "exec setpriv --reuid=100000 --regid=100000 --clear-groups env";
    let mut stranger = inside(&format!("{other} {preloaded}"));
    stranger.expect("init 0", "init 0");
    assert_ne!(stranger.say(&format!("alloc {MIB} a")), "alloc 0");
    assert_eq!(rig.jobs().len(), 2);
}

fn verify(rig: &Rig) {
    let partage = built("partage").display().to_string();
    let verify = |arguments: &[&str]| {
        let mut all = vec!["--json", "verify"];
        all.extend(arguments);
        let output = rig.output(rig.partage(&all));
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output.status.code(), said)
    };
    // Behind `run`: bound, by the option.
    let (code, said) = verify(&["--", &partage, "run", "-m", "1GiB", "--"]);
    assert_eq!((code, &said["is_bound"]), (Some(0), &true.into()), "{said}");
    assert_eq!(said["limit_bytes"], GIB, "{said}");
    assert!(said["job"].is_string() && said["limit_from"] == "--mem 1GiB", "{said}");
    let (code, said) = verify(&["-m", "512MiB", "--", &partage, "run", "-m", "1GiB", "--"]);
    assert_eq!(code, Some(1), "more than was meant: {said}");
    // No limit, no library, no probe.
    let (code, said) = verify(&["--", &partage, "run", "--"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said["message"]
            .as_str()
            .is_some_and(|text| text.contains("no memory limit")),
        "{said}"
    );
    for wrapper in [&["env", "-i"][..], &["true"][..], &[][..]] {
        let mut words = vec!["--"];
        words.extend(wrapper);
        let (code, said) = verify(&words);
        assert_eq!(code, Some(1), "{wrapper:?}: {said}");
    }
    // In a container its number is another one.
    if may_unshare(rig, &PID) {
        let mut words = vec!["--", &partage, "run", "-m", "1GiB", "--", "unshare"];
        words.extend(PID);
        let (code, said) = verify(&words);
        assert_eq!(code, Some(0), "{said}");
        assert!(said["place"].as_str().is_some_and(|place| !place.is_empty()), "{said}");
    }
}
