// SPDX-License-Identifier: Apache-2.0
//! Real containers: podman and runc get the library, the broker's folder and the hook from the file that `partage cdi
//! generate` writes, and whatever enters a container is under its limit.
//!
//! Nothing outside the rig is touched: podman has its own store, and the folder with the description (`/etc/cdi`) is
//! covered in a mount namespace of its own.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::json;

use super::Case;
use super::ruled_host::Host;
use crate::artefacts::{built, client};
use crate::client::Client;
use crate::rig::{GIB, MIB, Rig};

const WHY: &str = "runs containers on the simulated machine";
pub(super) const CLASSES: &str = "schema = 1\n[class.small]\nmem = \"1GiB\"\n[class.large]\nmem = \"10GiB\"\n";

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("containers::a_cap_holds_for_whatever_enters_a_container", entering).simulated(WHY),
        Case::new(
            "containers::a_cap_holds_however_a_container_is_locked_down",
            locked_down,
        )
        .simulated(WHY),
        Case::new(
            "containers::two_share_a_gpu_and_a_third_without_room_does_not_start",
            sharing,
        )
        .simulated(WHY),
    ]
}

/// podman with a store of its own, and a root folder that its containers share.
pub(super) struct Podman<'a> {
    rig: &'a Rig,
    root: PathBuf,
}

impl Drop for Podman<'_> {
    fn drop(&mut self) {
        let mut command = self.command(&["rm", "-f", "-t", "0", "-a"]);
        let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

impl<'a> Podman<'a> {
    /// `None`, with a note: this machine runs no containers, and the case is skipped.
    pub(super) fn start(rig: &'a Rig) -> Option<Self> {
        let podman = Self {
            rig,
            root: rig.dir.join("root"),
        };
        podman.make();
        let output = rig.output(podman.command(&["run", "--rm", "--rootfs", &podman.rootfs(), "/bin/true"]));
        if output.status.success() {
            return Some(podman);
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let why = said.lines().last().unwrap_or("podman is missing").to_owned();
        rig.note(format!("skipped: this machine runs no containers ({why})"));
        None
    }

    pub(super) fn rootfs(&self) -> String {
        format!("{}:O", self.root.display())
    }

    /// The root folder: a few programs and the libraries that they name.
    fn make(&self) {
        let dir = &self.rig.dir;
        std::fs::create_dir_all(dir.join("cdi")).expect("writable");
        let conf = "[containers]\ndefault_ulimits = [\"nofile=4096:4096\", \"nproc=4096:4096\"]\nnetns = \"none\"\n\
                    log_driver = \"none\"\n[engine]\nruntime = \"runc\"\nevents_logger = \"none\"\n\
                    cgroup_manager = \"cgroupfs\"\n";
        std::fs::write(dir.join("containers.conf"), conf).expect("writable");
        let script = r#"set -e
            mkdir -p "$1/bin" "$1/etc" "$1/proc" "$1/sys" "$1/dev" "$1/tmp" "$1/run" "$1/usr/lib" "$1/usr/bin"
            root=$1; shift
            for program in "$@"; do
                cp -L "$program" "$root/bin/"
                for library in $(ldd "$program" | grep -o '/[^ ]*'); do
                    mkdir -p "$root${library%/*}"; cp -nL "$library" "$root$library" || true
                done
            done"#;
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(&self.root);
        for program in ["/bin/sh", "/bin/sleep", "/bin/true", "/usr/bin/env"] {
            command.arg(program);
        }
        let files = [
            client(),
            built("partage"),
            built("libpartage.so"),
            built("libpartage_sim_cuda.so"),
        ];
        let output = self.rig.output({
            command.args(files);
            command
        });
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// `podman WORDS`, which finds our description alone.
    pub(super) fn command(&self, words: &[&str]) -> Command {
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

    /// What a container needs of the simulated machine, as options of `run`.
    pub(super) fn machine(&self) -> Vec<String> {
        let (sim, libraries) = (self.rig.sim_dir(), self.rig.sim_dir().join("lib"));
        // The machine's libraries are links into the build.
        let build = built("libpartage_sim_cuda.so");
        let build = build.parent().expect("a folder").display().to_string();
        vec![
            format!("-v={0}:{0}", sim.display()),
            format!("-v={build}:{build}:ro"),
            format!("-e=PARTAGE_SIM_DIR={}", sim.display()),
            format!("-e=LD_LIBRARY_PATH={}", libraries.display()),
            "-e=NVIDIA_VISIBLE_DEVICES=0".to_owned(),
        ]
    }

    /// A client as a container's first process.
    fn client(&self, class: &str, options: &[&str]) -> Client {
        let mut words = vec!["run".to_owned(), "-i".to_owned(), "--rm".to_owned()];
        words.extend(self.machine());
        words.push(format!("--device=partage.dev/share={class}"));
        words.extend(options.iter().map(|option| (*option).to_owned()));
        words.extend([
            "--rootfs".to_owned(),
            self.rootfs(),
            "/bin/client".to_owned(),
            "dlopen".to_owned(),
        ]);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Client::start(self.command(&words))
    }

    /// A container that waits, by name.
    fn waiting(&self, name: &str, class: &str) {
        let mut words = vec!["run".to_owned(), "-d".to_owned(), format!("--name={name}")];
        words.extend(self.machine());
        words.push(format!("--device=partage.dev/share={class}"));
        words.extend([
            "--rootfs".to_owned(),
            self.rootfs(),
            "/bin/sleep".to_owned(),
            "600".to_owned(),
        ]);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = self.rig.output(self.command(&words));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Writes the description for this rig's broker.
pub(super) fn describe(rig: &Rig) {
    let (output, files) = (rig.dir.join("cdi/partage.json"), rig.dir.join("files"));
    let mut command = rig.partage(&["cdi", "generate", "--output"]);
    command.arg(output).arg("--files").arg(files);
    let output = rig.output(command);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// It sees 1 GiB and gets that to the driver's granularity, and not 512 bytes more.
fn has_one_gib(client: &mut Client) {
    client.ready();
    let numbers = client.numbers("info");
    assert_eq!(numbers.get(2), Some(&GIB), "{numbers:?}");
    let room = client.room();
    client.expect(&format!("alloc {room} all"), "alloc 0");
    client.expect("alloc 512 more", "alloc 2");
    client.expect("free all", "free 0");
}

fn entering(rig: &Rig) {
    let Some(podman) = Podman::start(rig) else { return };
    let _host = Host::start(rig, CLASSES);
    describe(rig);
    podman.waiting("web", "small");
    let job = rig.jobs()[0].clone();
    let id = job["container"]["id"].as_str().expect("a container").to_owned();
    assert_eq!(
        rig.json(&["get", &format!("container:{}", &id[..12])])["job"]["job"],
        job["job"]
    );
    let (sim, libraries) = (rig.sim_dir(), rig.sim_dir().join("lib"));
    let variables = [
        format!("PARTAGE_SIM_DIR={}", sim.display()),
        format!("LD_LIBRARY_PATH={}", libraries.display()),
    ];
    for options in [
        &["exec", "-i", "web", "/bin/client", "dlopen"][..],
        &[
            "exec",
            "-i",
            "-e",
            "LD_PRELOAD=",
            "-e",
            "PARTAGE_MEM_BYTES=8589934592",
            "web",
            "/bin/client",
            "dlopen",
        ],
        &[
            "exec",
            "-i",
            "web",
            "/bin/env",
            "-i",
            &variables[0],
            &variables[1],
            "/bin/client",
            "dlopen",
        ],
    ] {
        let mut member = Client::start(podman.command(options));
        has_one_gib(&mut member);
        assert_eq!(rig.jobs().len(), 1, "{options:?}: {:?}", rig.jobs());
        member.kill();
    }
    // Nothing is changed from inside.
    let words = [
        "exec",
        "web",
        "/bin/partage",
        "--socket-dir",
        "/run/partage",
        "set",
        "j1",
        "mem=none",
    ];
    let output = rig.output(podman.command(&words));
    assert_eq!(
        output.status.code(),
        Some(3),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let _ = rig.output(podman.command(&["kill", "web"]));
    rig.eventually(crate::client::PATIENCE, "the job ends with its container", || {
        rig.jobs().is_empty()
    });
}

fn locked_down(rig: &Rig) {
    let Some(podman) = Podman::start(rig) else { return };
    let _host = Host::start(rig, CLASSES);
    describe(rig);
    let locked = ["--read-only", "--cap-drop=all", "--security-opt=no-new-privileges"];
    for options in [
        &locked[..],
        &["--pid=host"],
        &["-e=LD_PRELOAD=", "-e=CUDA_DEVICE_MEMORY_LIMIT=8g"],
    ] {
        let mut client = podman.client("small", options);
        has_one_gib(&mut client);
        client.kill();
        rig.eventually(crate::client::PATIENCE, "the job ends", || rig.jobs().is_empty());
    }
    let mut lowered = podman.client("small", &["--annotation=partage.dev/mem=512MiB"]);
    lowered.ready();
    assert_eq!(lowered.numbers("info").get(2), Some(&(512 * MIB)));
    lowered.kill();
}

fn sharing(rig: &Rig) {
    let Some(podman) = Podman::start(rig) else { return };
    let _host = Host::start(rig, CLASSES);
    describe(rig);
    let mut pair = [podman.client("small", &[]), podman.client("small", &[])];
    for client in &mut pair {
        client.ready();
        let room = client.room();
        client.expect(&format!("alloc {room} all"), "alloc 0");
        client.expect("alloc 512 more", "alloc 2");
    }
    assert!(rig.truth_allocated() <= 2 * GIB, "the driver's own count");
    assert_eq!(rig.jobs().len(), 2);
    podman.waiting("big", "large");
    let options = [
        "run",
        "--rm",
        "-e=NVIDIA_VISIBLE_DEVICES=0",
        "--device=partage.dev/share=large",
        "--rootfs",
    ];
    let rootfs = podman.rootfs();
    let words: Vec<&str> = options.iter().copied().chain([rootfs.as_str(), "/bin/true"]).collect();
    let output = rig.output(podman.command(&words));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(126), "{said}");
    assert!(said.contains("the container does not start: needs 10 GiB"), "{said}");
    assert!(rig.jobs().iter().all(|job| job["state"] != json!("waiting")));
    for client in &mut pair {
        client.kill();
    }
}
