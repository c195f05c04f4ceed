// SPDX-License-Identifier: Apache-2.0
//! A machine to test on: simulated devices (or the real ones), a broker of its own, and programs started on them.
//!
//! Everything a rig makes lives in one temporary folder, and everything it starts ends with it. The process environment
//! of the test runner is never changed: children get theirs explicitly.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::artefacts::{bin_dir, built};
use crate::client::{Client, PATIENCE};

/// One gibibyte.
pub const GIB: u64 = 1 << 30;
/// One mebibyte.
pub const MIB: u64 = 1 << 20;
/// What a context costs on the simulated devices: real enough to be seen, small enough not to crowd the limits here.
pub const CONTEXT_BYTES: u64 = 64 * MIB;

/// What a case asks of its machine.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Devices needed.
    pub gpus: u32,
    /// Memory of each simulated device in bytes.
    pub memory: u64,
    /// Seconds after its last job that the private broker leaves.
    pub idle_exit: u32,
    /// The simulated devices' clocks keep pace with the machine's.
    pub keeps_pace: bool,
}

impl Spec {
    /// What a case gets that asks for nothing.
    pub const DEFAULT: Self = Self {
        gpus: 2,
        memory: 16 * GIB,
        idle_exit: 60,
        keeps_pace: false,
    };
}

impl Default for Spec {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Which driver the clients load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The simulated one.
    Simulated,
    /// The machine's own.
    Real,
}

impl Driver {
    /// From `PARTAGE_TEST_DRIVER`: `real`, or the simulated one.
    pub fn chosen() -> Self {
        if std::env::var("PARTAGE_TEST_DRIVER").is_ok_and(|v| v == "real") {
            Self::Real
        } else {
            Self::Simulated
        }
    }
}

/// One machine.
pub struct Rig {
    /// Its folder.
    pub dir: PathBuf,
    /// Its driver.
    pub driver: Driver,
    spec: Spec,
    notes: RefCell<Vec<String>>,
}

impl Rig {
    /// Makes a machine.
    ///
    /// # Panics
    /// When the folder or the simulated machine cannot be made.
    pub fn new(spec: Spec) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // A process of this number that was killed may have left one behind. Short on purpose: a unix socket's path
        // holds 107 bytes.
        let dir = loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let dir = std::env::temp_dir().join(format!("{}{number}", Self::prefix(std::process::id())));
            match std::fs::create_dir(&dir) {
                Ok(()) => break dir,
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{}: {error}", dir.display()),
            }
        };
        let driver = Driver::chosen();
        let rig = Self {
            dir,
            driver,
            spec,
            notes: RefCell::default(),
        };
        if driver == Driver::Simulated {
            rig.make_machine();
        }
        rig
    }

    /// What the names of the folders begin with that a process makes for its rigs.
    pub(crate) fn prefix(process: u32) -> String {
        format!("pt{process}-")
    }

    fn make_machine(&self) {
        let mut spec = partage_machine::Spec::new(self.spec.gpus as usize, "h200", Some(self.spec.memory));
        // Cases reserve whole devices and write a little of them: the disk need not hold the rest.
        spec.allow_overcommit = true;
        for device in &mut spec.devices {
            device.context_bytes = Some(CONTEXT_BYTES);
            device.keeps_pace = self.spec.keeps_pace;
        }
        self.make_machine_of(&spec);
    }

    fn make_machine_of(&self, spec: &partage_machine::Spec) {
        partage_machine::Machine::create(&self.sim_dir(), spec).expect("a simulated machine");
        let (driver, nvml) = (built("libpartage_sim_cuda.so"), built("libpartage_sim_nvml.so"));
        partage_machine::Machine::link_libraries(&self.sim_dir(), &driver, &nvml).expect("writable");
    }

    /// Makes the simulated machine anew with the same devices, as a reboot does. Precondition: nothing runs on it.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn remake_machine(&self) {
        self.change_machine(|_| ());
    }

    /// Makes the simulated machine anew, with devices that differ. Precondition: nothing runs on it.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn change_machine(&self, change: impl FnOnce(&mut partage_machine::Spec)) {
        let machine = partage_machine::Machine::open(&self.sim_dir()).expect("the machine is there");
        let mut spec = machine.spec().clone();
        change(&mut spec);
        std::fs::remove_dir_all(self.sim_dir()).expect("ours");
        self.make_machine_of(&spec);
    }

    /// The simulated machine's folder.
    pub fn sim_dir(&self) -> PathBuf {
        self.dir.join("sim")
    }

    /// The broker's socket folder.
    pub fn socket_dir(&self) -> PathBuf {
        self.dir.join("sock")
    }

    /// Something a reader of the log should know (a seed, a count).
    pub fn note(&self, text: impl Into<String>) {
        let text = text.into();
        println!("note: {text}");
        self.notes.borrow_mut().push(text);
    }

    /// A command with this machine's environment and nothing else of ours but the search path and home.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().stdin(Stdio::null());
        for name in ["PATH", "HOME", "LANG", "PARTAGE_LOG", "LLVM_PROFILE_FILE"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("PARTAGE_SOCKET_DIR", self.socket_dir());
        // The cases may run inside one, and all that they start with them.
        command.env("PARTAGE_PID_NAMESPACE", "any");
        command.env("PARTAGE_IDLE_EXIT", self.spec.idle_exit.to_string());
        match self.driver {
            Driver::Simulated => {
                command
                    .env("PARTAGE_SIM_DIR", self.sim_dir())
                    .env("LD_LIBRARY_PATH", self.sim_dir().join("lib"));
            }
            Driver::Real => {
                // The second: in a rehearsal, where a simulated driver stands in the real one's place.
                for name in ["LD_LIBRARY_PATH", "PARTAGE_SIM_DIR"] {
                    if let Some(value) = std::env::var_os(name) {
                        command.env(name, value);
                    }
                }
            }
        }
        command
    }

    /// `partage ARGUMENTS`.
    pub fn partage(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(built("partage"));
        command.args(arguments);
        command
    }

    /// `partage run OPTIONS -- PROGRAM ARGUMENTS`.
    pub fn run(&self, options: &[&str], program: &Path, arguments: &[&str]) -> Command {
        let mut command = self.partage(&["run"]);
        command.args(options).arg("--").arg(program).args(arguments);
        command
    }

    /// A steerable client under `partage run`, reaching the driver by dlopen.
    pub fn client(&self, options: &[&str]) -> Client {
        self.client_via(options, "dlopen")
    }

    /// A steerable client under `partage run` that reaches the driver as named.
    pub fn client_via(&self, options: &[&str], via: &str) -> Client {
        Client::start(self.run(options, &crate::artefacts::client(), &[via]))
    }

    /// The same client without Partage.
    pub fn bare_client(&self, via: &str) -> Client {
        let mut command = self.command(crate::artefacts::client());
        command.arg(via);
        Client::start(command)
    }

    /// `partage`, beside the files that it needs, in this rig's folder, and the driver too: anybody may use them there,
    /// wherever the rig's folder is. The build folder may lie below a home folder that is shut to others, or below a
    /// `/tmp` that a case hides.
    ///
    /// # Panics
    /// When the files cannot be copied.
    pub fn installed(&self) -> PathBuf {
        let folder = self.dir.join("bin");
        if !folder.exists() {
            std::fs::create_dir(&folder).expect("writable");
            for name in ["partage", "partaged", "libpartage.so"] {
                // By way of a child: a file that is open for writing here could not be executed while another thread
                // starts one.
                let status = Command::new("/bin/cp").arg(built(name)).arg(&folder).status();
                assert!(status.is_ok_and(|status| status.success()), "{name} is copied");
            }
            // The machine's driver libraries are links into the build.
            for link in std::fs::read_dir(self.sim_dir().join("lib"))
                .into_iter()
                .flatten()
                .flatten()
            {
                let (path, beside) = (link.path(), folder.join("library"));
                if path.is_symlink() {
                    let copied = std::fs::copy(&path, &beside).and_then(|_| std::fs::rename(&beside, &path));
                    copied.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                }
            }
            let status = Command::new("/bin/chmod").args(["-R", "a+rX"]).arg(&self.dir).status();
            assert!(
                status.is_ok_and(|status| status.success()),
                "{} is opened up",
                self.dir.display()
            );
        }
        folder.join("partage")
    }

    /// Runs a command to its end and gives its output.
    ///
    /// # Panics
    /// When it cannot be started or outlives [`PATIENCE`].
    pub fn output(&self, mut command: Command) -> Output {
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let pid = child.id();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let _ = sender.send(child.wait_with_output());
        });
        match receiver.recv_timeout(PATIENCE) {
            Ok(output) => output.expect("our own child"),
            Err(_) => {
                // SAFETY: the waiting thread has not reaped it yet, so the pid is still our child's.
                unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
                panic!("{command:?} did not end within {PATIENCE:?}");
            }
        }
    }

    /// `partage VERB --json`, parsed.
    ///
    /// # Panics
    /// When it fails or prints no JSON.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let mut all = arguments.to_vec();
        all.push("--json");
        let output = self.output(self.partage(&all));
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!(
                "partage {arguments:?}: {error}: {}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            )
        })
    }

    /// The jobs of `partage ps --json`.
    pub fn jobs(&self) -> Vec<Value> {
        self.json(&["ps"])["jobs"].as_array().cloned().unwrap_or_default()
    }

    /// Σ over live jobs and devices of what the ledger says clients' calls were charged and the driver must hold:
    /// measured overhead and managed memory, resident only where it is touched, left out.
    pub fn ledger_used(&self) -> u64 {
        self.jobs()
            .iter()
            .flat_map(|job| job["devices"].as_array().cloned().unwrap_or_default())
            .fold(0, |sum, device| {
                let bytes = |name: &str| device[name].as_u64().unwrap_or(0);
                sum + bytes("used_bytes") - bytes("overhead_bytes") - bytes("managed_bytes")
            })
    }

    /// Whether what `ps` says all jobs use, managed memory left out, is what the driver holds for all processes.
    pub fn books_agree(&self) -> bool {
        let machine = partage_machine::Machine::open(&self.sim_dir()).expect("the machine is there");
        let occupants = (0..self.spec.gpus as usize).flat_map(|device| machine.occupants(device));
        let truth: u64 = occupants.map(|occupant| occupant.used).sum();
        let used = |device: &Value| {
            let bytes = |name: &str| device[name].as_u64().unwrap_or(0);
            bytes("used_bytes") - bytes("managed_bytes")
        };
        let jobs = self.jobs();
        let devices = jobs.iter().filter_map(|job| job["devices"].as_array()).flatten();
        devices.map(used).sum::<u64>() == truth
    }

    /// Waits until the broker has measured what the driver holds for this rig's clients beyond their charges: before
    /// that a context looks like room.
    pub fn wait_for_overhead(&self) {
        if self.driver == Driver::Real {
            // Its books are not ours to read: until something is measured on each device that is in use.
            let none = "\"overhead_bytes\":0";
            self.eventually(Duration::from_secs(5), "overhead is measured", || {
                !self.json(&["ps"])["jobs"].to_string().contains(none)
            });
            return;
        }
        self.eventually(Duration::from_secs(2), "overhead is measured", || self.books_agree());
    }

    /// What a context costs on device 0, as the broker measures it for a client that has one and nothing else.
    ///
    /// # Panics
    /// When nothing is measured.
    pub fn context_cost(&self) -> u64 {
        let mut client = self.client(&["--name", "context-cost", "-g", "0"]);
        client.ready();
        let look = || {
            let job = &self.json(&["get", "context-cost"])["job"];
            job["devices"][0]["overhead_bytes"].as_u64().unwrap_or(0)
        };
        let cost = self.at_rest("a context is measured", look);
        client.kill();
        cost
    }

    /// What `look` gives once that is not 0 and has stayed the same for longer than the broker takes to measure.
    ///
    /// # Panics
    /// When it does not come to rest.
    #[track_caller]
    pub fn at_rest(&self, what: &str, look: impl Fn() -> u64) -> u64 {
        let (mut found, mut since) = (look(), Instant::now());
        self.eventually(Duration::from_secs(30), what, || {
            let new = look();
            if new != found {
                (found, since) = (new, Instant::now());
            }
            found > 0 && since.elapsed() > Duration::from_millis(1_500)
        });
        found
    }

    /// What clients' allocations hold on all devices by the driver's own books, context overhead left out.
    ///
    /// # Panics
    /// On a real driver, whose books do not tell allocations from overhead.
    pub fn truth_allocated(&self) -> u64 {
        assert_eq!(
            self.driver,
            Driver::Simulated,
            "a real driver's books mix allocations and overhead"
        );
        let machine = partage_machine::Machine::open(&self.sim_dir()).expect("the machine is there");
        (0..self.spec.gpus as usize)
            .flat_map(|device| machine.occupants(device))
            .map(|occupant| occupant.used - u64::from(occupant.contexts) * CONTEXT_BYTES)
            .sum()
    }

    /// Process id of this rig's broker, if one answers.
    pub fn broker_pid(&self) -> Option<u32> {
        let output = self.output(self.partage(&["broker", "status", "--json"]));
        let value: Value = serde_json::from_slice(&output.stdout).ok()?;
        value["broker"]["pid"].as_u64().map(|pid| pid as u32)
    }

    /// The broker that holds this rig's lock, found without starting or asking one.
    pub fn broker_pid_quick(&self) -> Option<u32> {
        let wanted = self.socket_dir().display().to_string();
        std::fs::read_dir("/proc")
            .ok()?
            .filter_map(Result::ok)
            .find_map(|entry| {
                let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
                let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
                // Behind the emulator's own name, where one runs it.
                let is_broker = words.iter().take(2).any(|word| word.ends_with("partaged"))
                    && words.iter().any(|word| *word == wanted)
                    && !words.iter().any(|word| word == "--nvml-helper");
                is_broker.then_some(pid)
            })
    }

    /// Waits until `condition` holds; says how long that took.
    ///
    /// # Panics
    /// When it does not within `limit`.
    #[track_caller]
    pub fn eventually(&self, limit: Duration, what: &str, mut condition: impl FnMut() -> bool) -> Duration {
        let start = Instant::now();
        loop {
            if condition() {
                return start.elapsed();
            }
            assert!(start.elapsed() < limit, "{what}: not within {limit:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if self.socket_dir().exists() {
            let mut stop = self.partage(&["broker", "stop"]);
            let _ = stop.stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
        if std::thread::panicking() {
            let log = self.socket_dir().join("log/partaged.log");
            if let Ok(text) = std::fs::read_to_string(log) {
                let lines: Vec<_> = text.lines().collect();
                eprintln!(
                    "broker log, last lines:\n{}",
                    lines[lines.len().saturating_sub(30)..].join("\n")
                );
            }
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Extra argument that links a program against the driver of the rig's kind.
pub fn link_driver(rig: &Rig) -> Vec<String> {
    match rig.driver {
        Driver::Simulated => {
            vec![bin_dir().join("libpartage_sim_cuda.so").display().to_string()]
        }
        // Where the loader finds it; a machine that only runs programs has no `libcuda.so` for the linker.
        Driver::Real => {
            let folders = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
            let folders = folders.split(':').filter(|folder| !folder.is_empty());
            folders
                .map(|folder| format!("-L{folder}"))
                .chain(["-l:libcuda.so.1".into()])
                .collect()
        }
    }
}
