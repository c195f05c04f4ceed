// SPDX-License-Identifier: Apache-2.0
//! podman with a store of its own, for the cases about containers.
//!
//! Nothing outside the rig is touched: the folder with the description (`/etc/cdi`) is covered in a mount namespace of
//! its own.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::artefacts::{built, client};
use crate::cases::ruled_host::SOON;
use crate::client::Client;
use crate::rig::{GIB, Rig};

/// Two devices: a sixteenth of a simulated GPU, and the larger part of one.
pub const CLASSES: &str = "schema = 1\n[class.small]\nmem = \"1GiB\"\n[class.large]\nmem = \"10GiB\"\n";

/// podman's settings: what a machine without systemd and without a network of its own has.
pub const CONF: &str = "[containers]\ndefault_ulimits = [\"nofile=4096:4096\", \"nproc=4096:4096\"]\nnetns = \"none\"\n\
                        log_driver = \"none\"\n[engine]\nruntime = \"runc\"\nevents_logger = \"none\"\n\
                        cgroup_manager = \"cgroupfs\"\n";

/// `partage` in a container, over the socket that it has.
pub const PARTAGE: &[&str] = &["/bin/partage", "--socket-dir", "/run/partage"];

/// podman, and a root folder that its containers share.
pub struct Podman<'a> {
    rig: &'a Rig,
    root: PathBuf,
}

impl Drop for Podman<'_> {
    fn drop(&mut self) {
        // A container whose namespace another one shares goes after that one, which podman is to be asked again for.
        for _ in 0..3 {
            let mut command = self.command(&["rm", "-f", "-t", "0", "-a"]);
            let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
            if status.is_ok_and(|status| status.success()) {
                return;
            }
        }
    }
}

impl<'a> Podman<'a> {
    /// `None`, with a note: this machine runs no containers, and the case is skipped.
    pub fn start(rig: &'a Rig) -> Option<Self> {
        let podman = Self {
            rig,
            root: rig.dir.join("root"),
        };
        podman.make();
        let output = podman.output(&["run", "--rm", "--rootfs", &podman.rootfs(), "/bin/true"]);
        if output.status.success() {
            return Some(podman);
        }
        let said = stderr(&output);
        let why = said.lines().last().unwrap_or("podman is missing").to_owned();
        rig.note(format!("skipped: this machine runs no containers ({why})"));
        None
    }

    /// The word of `run` behind `--rootfs`: each container has a layer of its own over the root folder.
    pub fn rootfs(&self) -> String {
        format!("{}:O", self.root.display())
    }

    /// The root folder: a few programs and the libraries that they name.
    fn make(&self) {
        let dir = &self.rig.dir;
        std::fs::create_dir_all(dir.join("cdi")).expect("writable");
        std::fs::write(dir.join("containers.conf"), CONF).expect("writable");
        for program in ["/bin/sh", "/bin/sleep", "/bin/true", "/usr/bin/env"] {
            self.add(Path::new(program));
        }
        let files = ["partage", "libpartage.so", "libpartage_sim_cuda.so"];
        files.map(built).iter().for_each(|file| self.add(file));
        self.add(&client());
    }

    /// Copies a program and the libraries that it names into the root folder.
    pub fn add(&self, program: &Path) {
        add(self.rig, &self.root, program);
    }

    /// Gives the root folder to a user, so that the root of a mapped user namespace can mount into it.
    pub fn give_root_to(&self, uid: u32) {
        let mut command = Command::new("chown");
        command.args(["-R", &format!("{uid}:{uid}")]).arg(&self.root);
        let output = self.rig.output(command);
        assert!(output.status.success(), "{}", stderr(&output));
    }

    /// `podman WORDS`, which finds our description alone.
    pub fn command(&self, words: &[&str]) -> Command {
        let dir = &self.rig.dir;
        let script = "mkdir -p /etc/cdi && mount --bind \"$0\" /etc/cdi && exec podman \"$@\"";
        let mut command = self.rig.command("unshare");
        command.args(["--mount", "sh", "-c", script]).arg(dir.join("cdi"));
        command
            .arg("--root")
            .arg(dir.join("store"))
            .arg("--runroot")
            .arg(dir.join("run"));
        command.args(["--storage-driver", "vfs"]).args(words);
        command.env("CONTAINERS_CONF", dir.join("containers.conf"));
        command
    }

    /// What it says.
    pub fn output(&self, words: &[&str]) -> Output {
        self.rig.output(self.command(words))
    }

    /// The variables by which a program finds the simulated machine.
    pub fn variables(&self) -> [String; 2] {
        let (sim, libraries) = (self.rig.sim_dir(), self.rig.sim_dir().join("lib"));
        [
            format!("PARTAGE_SIM_DIR={}", sim.display()),
            format!("LD_LIBRARY_PATH={}", libraries.display()),
        ]
    }

    /// What a container needs of the simulated machine, as options of `run`. With a node it has that GPU alone; else it
    /// may open all, and GPU 0 is its own.
    pub fn machine(&self, node: Option<usize>) -> Vec<String> {
        let sim = self.rig.sim_dir().display().to_string();
        // The machine's libraries are links into the build.
        let build = built("libpartage_sim_cuda.so");
        let build = build.parent().expect("a folder").display().to_string();
        let mut options = vec![format!("-v={sim}:{sim}"), format!("-v={build}:{build}:ro")];
        options.extend(self.variables().map(|variable| format!("-e={variable}")));
        match node {
            None => options.push("-e=NVIDIA_VISIBLE_DEVICES=0".to_owned()),
            Some(node) => {
                options.push(format!("--tmpfs={sim}/dev"));
                options.push(format!("-v={sim}/dev/nvidia{node}:{sim}/dev/nvidia{node}"));
            }
        }
        options
    }

    /// `podman run` of a container of this class: options, and the program's words.
    pub fn run(&self, class: &str, options: &[&str], program: &[&str]) -> Command {
        self.run_with(None, class, options, program)
    }

    /// The same with the node of one GPU (`None`: all, and GPU 0 is the container's).
    pub fn run_with(&self, node: Option<usize>, class: &str, options: &[&str], program: &[&str]) -> Command {
        let device = format!("--device=partage.dev/share={class}");
        let (machine, rootfs) = (self.machine(node), self.rootfs());
        let mut words = vec!["run", device.as_str()];
        words.extend(machine.iter().map(String::as_str));
        words.extend(options);
        words.extend(["--rootfs", &rootfs]);
        words.extend(program);
        self.command(&words)
    }

    /// A client as a container's first process.
    pub fn client(&self, class: &str, options: &[&str]) -> Client {
        let options = [&["-i", "--rm"], options].concat();
        Client::start(self.run(class, &options, &["/bin/client", "dlopen"]))
    }

    /// `partage WORDS` in a container, over the socket that it has.
    pub fn partage_in(&self, name: &str, words: &[&str]) -> Output {
        self.output(&[&["exec", name], PARTAGE, words].concat())
    }

    /// Nothing is changed from inside a container.
    #[track_caller]
    pub fn is_refused_a_change(&self, name: &str, job: &str) {
        let output = self.partage_in(name, &["set", job, "mem=none"]);
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    }

    /// A client that enters a container.
    pub fn enter(&self, name: &str, options: &[&str]) -> Client {
        let words = [&["exec", "-i"], options, &[name, "/bin/client", "dlopen"]].concat();
        Client::start(self.command(&words))
    }

    /// A container that waits, by name.
    pub fn waiting(&self, name: &str, class: &str, options: &[&str]) {
        self.detached(name, class, options, &["/bin/sleep", "600"]);
    }

    /// A container whose program runs on, by name.
    pub fn detached(&self, name: &str, class: &str, options: &[&str], program: &[&str]) {
        let name = format!("--name={name}");
        let options = [&["-d", name.as_str()], options].concat();
        let output = self.rig.output(self.run(class, &options, program));
        assert!(output.status.success(), "{}", stderr(&output));
    }

    /// The number of a container's first process.
    pub fn pid(&self, name: &str) -> u32 {
        let output = self.output(&["inspect", "--format", "{{.State.Pid}}", name]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let pid = text.trim().parse().ok().filter(|pid| *pid != 0);
        pid.unwrap_or_else(|| panic!("{name}: {text}{}", stderr(&output)))
    }

    /// The pid namespace of a container.
    pub fn pid_namespace(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/ns/pid", self.pid(name));
        std::fs::metadata(&path)
            .unwrap_or_else(|error| panic!("{path}: {error}"))
            .ino()
    }
}

/// Copies a program and the libraries that it names into a root folder.
pub fn add(rig: &Rig, root: &Path, program: &Path) {
    let script = r#"set -e
            mkdir -p "$1/bin" "$1/etc" "$1/proc" "$1/sys" "$1/dev" "$1/tmp" "$1/run" "$1/usr/lib" "$1/usr/bin"
            cp -L "$2" "$1/bin/"
            for library in $(ldd "$2" | grep -o '/[^ ]*'); do
                mkdir -p "$1${library%/*}"; cp -nL "$library" "$1$library" || true
            done"#;
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(root).arg(program);
    let output = rig.output(command);
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Leaves each control group that lets it, and becomes another program. What is no file of the kernel's is not written.
const LEAVES: &str = "for group in /sys/fs/cgroup/*/cgroup.procs /sys/fs/cgroup/cgroup.procs; do \
                      [ -e $group ] && echo $$ > $group && moved=1; done 2>/dev/null; \
                      echo moved ${moved:-0}; exec \"$@\"";

/// The words of a program that leaves its control groups first.
pub fn leaving<'a>(program: &[&'a str]) -> Vec<&'a str> {
    [&["/bin/sh", "-c", LEAVES, "sh"], program].concat()
}

/// What a command wrote to standard error.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Where the description is.
pub fn description(rig: &Rig) -> PathBuf {
    rig.dir.join("cdi/partage.json")
}

/// Changes the hook of each class in the description.
pub fn change_hooks(rig: &Rig, change: impl Fn(&mut Value)) {
    let path = description(rig);
    let text = std::fs::read_to_string(&path).expect("just written");
    let mut described: Value = serde_json::from_str(&text).expect("JSON");
    for device in described["devices"].as_array_mut().into_iter().flatten() {
        change(&mut device["containerEdits"]["hooks"][0]);
    }
    std::fs::write(&path, described.to_string()).expect("writable");
}

/// The hook gives up after this time.
pub fn with_timeout(rig: &Rig, timeout: &str) {
    change_hooks(rig, |hook| {
        let arguments = hook["args"].as_array_mut().expect("a list");
        if let Some(at) = arguments.iter().position(|word| word == "--timeout") {
            arguments.drain(at..at + 2);
        }
        arguments.extend([json!("--timeout"), json!(timeout)]);
        // The runtime's own, in seconds: it is not what is tried here.
        hook["timeout"] = json!(120);
    });
}

/// Writes the description for this rig's broker. Its hook is patient: this machine is late by seconds at times.
pub fn describe(rig: &Rig) {
    let mut command = rig.partage(&["cdi", "generate", "--output"]);
    command.arg(description(rig)).arg("--files").arg(rig.dir.join("files"));
    let output = rig.output(command);
    assert!(output.status.success(), "{}", stderr(&output));
    with_timeout(rig, "60s");
}

/// Waits until there are so many jobs with so many clients in all, and answers the jobs.
#[track_caller]
pub fn jobs_and_clients(rig: &Rig, jobs: usize, clients: usize) -> Vec<Value> {
    let mut found = Vec::new();
    rig.eventually(SOON, &format!("{jobs} jobs, {clients} clients"), || {
        found = rig.jobs();
        let count = |job: &Value| job["clients"].as_array().map_or(0, Vec::len);
        found.len() == jobs && found.iter().map(count).sum::<usize>() == clients
    });
    found
}

/// It sees 1 GiB and gets that to the driver's granularity, and not 512 bytes more.
#[track_caller]
pub fn has_one_gib(client: &mut Client) {
    client.ready();
    let numbers = client.numbers("info");
    assert_eq!(numbers.get(2), Some(&GIB), "{numbers:?}");
    let room = client.room();
    client.expect(&format!("alloc {room} all"), "alloc 0");
    client.expect("alloc 512 more", "alloc 2");
    client.expect("free all", "free 0");
}
