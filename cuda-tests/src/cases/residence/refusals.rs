// SPDX-License-Identifier: Apache-2.0
//! What keeps a job from leaving its GPU is refused with the reason and what to do, and neither the driver is called
//! nor the program disturbed.

use std::path::{Path, PathBuf};

use super::super::Case;
use super::said::{filled, kill_broker, no, ok, state};
use crate::artefacts::client as client_program;
use crate::client::{Client, PATIENCE};
use crate::rig::{MIB, Rig};

pub fn cases() -> Vec<Case> {
    let why = "the trace of calls is the simulated driver's";
    vec![
        Case::new("residence::a_process_that_is_tied_to_its_gpu_is_not_touched", ties).simulated(why),
        Case::new(
            "residence::a_driver_without_pairs_moves_no_job_and_suspends_it",
            old_driver,
        )
        .simulated(why),
        Case::new(
            "residence::a_job_with_a_process_without_the_library_is_not_touched",
            bare,
        )
        .simulated(why),
        Case::new("residence::a_job_beside_an_mps_server_is_not_touched", mps).simulated(why),
        Case::new(
            "residence::a_process_that_closed_what_it_shares_with_the_broker_is_not_touched",
            closed,
        )
        .simulated(why),
        Case::new(
            "residence::a_job_whose_memory_cgroup_is_too_small_is_not_touched",
            small_cgroup,
        )
        .simulated(why),
        Case::new("residence::a_job_on_a_mig_instance_is_bound_and_not_touched", mig).simulated(why),
    ]
}

/// The driver's calls that change a process, as the broker's helpers make them.
pub struct Trace(pub PathBuf);

impl Trace {
    /// Starts the broker, whose helpers write there from now on.
    fn start(rig: &Rig) -> Self {
        let trace = Self(rig.dir.join("trace"));
        let mut start = rig.partage(&["broker", "start"]);
        start.env("PARTAGE_SIM_TRACE", &trace.0);
        let output = rig.output(start);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        trace
    }

    pub fn calls(&self) -> usize {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        let is_one = |line: &&str| {
            let names = ["Lock ", "Checkpoint ", "Restore ", "Unlock "];
            names
                .iter()
                .any(|name| line.contains(&format!("cuCheckpointProcess{name}")))
        };
        text.lines().filter(is_one).count()
    }

    /// Neither a suspend nor a move touches the job; the reason and what to do are said.
    pub fn is_untouched(&self, rig: &Rig, job: &str, (reason, remedy): (&str, &str)) {
        let before = self.calls();
        for command in [&["suspend", job][..], &["migrate", job, "--to", "1"]] {
            let (code, said) = no(rig, command);
            assert_eq!(code, Some(1), "{command:?}: {said}");
            assert!(said.contains(reason) && said.contains(remedy), "{command:?}: {said}");
        }
        assert_eq!(state(rig, job), "running");
        assert_eq!(self.calls(), before, "{job}: {reason}");
    }
}

/// Each command of the client that makes a tie, after those that it needs, and what is said of it. The answer's number
/// takes the place of `@` in the next one.
const TIES: [(&[&str], &str); 7] = [
    (&["managed 1048576 m"], "managed memory"),
    (&["ipcget a"], "memory shared by CUDA IPC"),
    (&["stream s", "eventmake e s"], "an event shared by CUDA IPC"),
    (&["createfd 2097152 v", "vexport v"], "an exported memory handle"),
    (
        &["createfd 2097152 v", "vexport v", "vimport @ w"],
        "an exported memory handle and an imported memory handle",
    ),
    (&["poolfd p", "poolexport p"], "a shared memory pool"),
    (&["external 1048576"], "external memory"),
];

fn ties(rig: &Rig) {
    let trace = Trace::start(rig);
    let mut free = filled(rig, "free", "1GiB");
    ok(rig, &["suspend", "free"]);
    ok(rig, &["resume", "free"]);
    assert_eq!(trace.calls(), 4, "lock, checkpoint, restore, unlock");
    free.kill();
    for (commands, what) in TIES {
        let mut client = filled(rig, "tied", "1GiB");
        let mut number = String::new();
        for command in commands {
            let answer = client.say(&command.replace('@', &number));
            let verb = command.split(' ').next().unwrap_or_default();
            assert!(answer.starts_with(&format!("{verb} 0")), "{command}: {answer}");
            number = answer.rsplit(' ').next().unwrap_or_default().to_owned();
        }
        let reason = format!("pid {} has {what}, which the driver cannot save", client.pid());
        let remedy = "end that process first, or start the job without that feature";
        trace.is_untouched(rig, "tied", (&reason, remedy));
        client.expect("check a 165", "check 0 0");
        client.expect(&format!("alloc {MIB} more"), "alloc 0");
        client.kill();
        rig.eventually(PATIENCE, "it ended", || state(rig, "tied").is_empty());
    }
}

/// 570 has no pairs for a restore: it suspends, and a move is refused before the job is touched.
fn old_driver(rig: &Rig) {
    let file = rig.sim_dir().join("machine.toml");
    let text = std::fs::read_to_string(&file).expect("a machine");
    let changed = text.replace("driver = 580", "driver = 570");
    assert_ne!(text, changed, "{text}");
    std::fs::write(&file, changed).expect("writable");
    let trace = Trace::start(rig);
    let mut client = filled(rig, "one", "1GiB");
    let (code, said) = no(rig, &["migrate", "one", "--to", "1"]);
    let text = "the driver is 570, and this needs 580 or later";
    assert!(code == Some(1) && said.contains(text), "{said}");
    assert_eq!(state(rig, "one"), "running");
    assert_eq!(trace.calls(), 0, "not even a process of our own was tried");
    ok(rig, &["suspend", "one"]);
    ok(rig, &["resume", "one"]);
    client.expect("check a 165", "check 0 0");
}

/// The job's program starts one that does without.
fn bare(rig: &Rig) {
    let trace = Trace::start(rig);
    let (env, program) = (Path::new("/usr/bin/env"), client_program());
    let words = ["-u", "LD_PRELOAD", &program.display().to_string(), "dlopen"];
    let mut client = Client::start(rig.run(&["-m", "1GiB", "-g", "0", "--name", "bare"], env, &words));
    client.ready();
    client.expect(&format!("alloc {MIB} a"), "alloc 0");
    client.expect("fill a 165", "fill 0 165 165");
    rig.eventually(PATIENCE, "it is seen", || {
        ok(rig, &["ps"]).contains(&client.pid().to_string())
    });
    let reason = format!(
        "pid {} uses the GPU without Partage, so its threads cannot be held",
        client.pid()
    );
    trace.is_untouched(rig, "bare", (&reason, "start it with partage run, or end it"));
    client.expect("check a 165", "check 0 0");
}

/// A process of the MPS server's name uses the GPU; the simulator has no MPS.
fn mps(rig: &Rig) {
    let trace = Trace::start(rig);
    let mut client = filled(rig, "one", "1GiB");
    let program = rig.dir.join("nvidia-cuda-mps-server");
    std::fs::copy(client_program(), &program).expect("ours");
    let mut server = rig.command(&program);
    server.arg("dlopen");
    let mut server = Client::start(server);
    server.ready();
    server.expect(&format!("alloc {MIB} a"), "alloc 0");
    rig.eventually(PATIENCE, "it is seen", || {
        let status = rig.json(&["status"]);
        status["devices"][0]["unmanaged_bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes > 0)
    });
    let reason = "MPS shares the GPU, and the driver cannot checkpoint its clients";
    trace.is_untouched(
        rig,
        "one",
        (reason, "stop the MPS daemon (echo quit | nvidia-cuda-mps-control)"),
    );
    client.expect("check a 165", "check 0 0");
    server.kill();
    rig.eventually(PATIENCE, "it goes once that is gone", || {
        rig.output(rig.partage(&["suspend", "one"])).status.success()
    });
    ok(rig, &["resume", "one"]);
    client.expect("check a 165", "check 0 0");
}

/// The next broker gets none of its pages back.
fn closed(rig: &Rig) {
    let mut client = filled(rig, "one", "1GiB");
    client.expect("closefds", "closefds");
    kill_broker(rig);
    client.expect(&format!("alloc {MIB} b"), "alloc 0");
    let reason = format!(
        "pid {} turned Partage off or closed what it shares with the broker, so its threads cannot be held",
        client.pid()
    );
    let mut said = String::new();
    rig.eventually(PATIENCE, "it is back", || {
        said = no(rig, &["suspend", "one"]).1;
        said.contains(&reason)
    });
    assert!(said.contains("start the job again"), "{said}");
    assert_eq!(state(rig, "one"), "running");
    client.expect("check a 165", "check 0 0");
}

/// A client of this name with half a GiB that it has written, started behind `wrapper` on the first device.
pub fn filled_behind(rig: &Rig, options: &[&str], wrapper: &[&str]) -> Client {
    let program = client_program().display().to_string();
    let mut words = wrapper.to_vec();
    words.extend([program.as_str(), "dlopen"]);
    let (first, rest) = words.split_first().expect("a program");
    let mut client = Client::start(rig.run(options, Path::new(first), rest));
    client.ready();
    client.expect(&format!("alloc {} a", 512 * MIB), "alloc 0");
    client.expect("fill a 165", "fill 0 165 165");
    client
}

/// The first device is in MIG mode: its instance is shared like any device, and stays where it is.
fn mig(rig: &Rig) {
    let file = rig.sim_dir().join("machine.toml");
    let text = std::fs::read_to_string(&file).expect("a machine");
    let changed = text.replacen("mig = false", "mig = true", 1);
    assert_ne!(text, changed, "{text}");
    std::fs::write(&file, changed).expect("writable");
    let trace = Trace::start(rig);
    let machine = partage_machine::Machine::open(&rig.sim_dir()).expect("the machine is there");
    let instance = machine.devices()[0].instance_text().expect("in MIG mode");
    let mut client = filled_behind(rig, &["-m", "1GiB", "-g", &instance, "--name", "one"], &[]);
    assert_eq!(rig.jobs()[0]["devices"][0]["uuid"], instance);
    client.expect(&format!("alloc {} more", 1_024 * MIB), "alloc 2");
    let remedy = "use whole GPUs for jobs that are to be suspended";
    let reason = format!("{instance} is in MIG mode, where the driver cannot checkpoint");
    trace.is_untouched(rig, "one", (&reason, remedy));
    client.expect("check a 165", "check 0 0");
    // Nor does a whole device's job move there.
    let mut other = filled_behind(rig, &["-m", "1GiB", "-g", "1", "--name", "whole"], &[]);
    let (code, said) = no(rig, &["migrate", "whole", "--to", &instance]);
    assert!(code == Some(1) && said.contains(&reason), "{code:?}: {said}");
    ok(rig, &["suspend", "whole"]);
    ok(rig, &["resume", "whole"]);
    other.expect("check a 165", "check 0 0");
}

/// A memory cgroup, removed with the last process in it.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// None, where nobody may make one here.
    fn new(rig: &Rig) -> Option<Self> {
        let name = rig.dir.file_name()?.to_owned();
        let made = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].map(|root| Path::new(root).join(&name));
        let found = made.into_iter().find(|folder| {
            let is_made = std::fs::create_dir(folder).is_ok();
            let has_limit = ["memory.limit_in_bytes", "memory.max"]
                .iter()
                .any(|file| folder.join(file).exists());
            if is_made && !has_limit {
                // Of no use, and empty.
                let _ = std::fs::remove_dir(folder);
            }
            is_made && has_limit
        });
        found.map(Self)
    }

    fn limit(&self, bytes: u64) {
        let files = ["memory.limit_in_bytes", "memory.max"].map(|name| self.0.join(name));
        let file = files.iter().find(|file| file.exists()).expect("a limit");
        std::fs::write(file, bytes.to_string()).expect("root may");
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // What is left of it is empty, and nobody's.
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn small_cgroup(rig: &Rig) {
    let Some(group) = MemoryGroup::new(rig) else {
        println!("SKIPPED: residence::a_job_whose_memory_cgroup_is_too_small_is_not_touched: none can be made here");
        return;
    };
    let trace = Trace::start(rig);
    let mut client = filled(rig, "one", "1GiB");
    std::fs::write(group.0.join("cgroup.procs"), client.pid().to_string()).expect("root may");
    group.limit(256 * MIB);
    let name = group.0.file_name().expect("a name").to_string_lossy();
    let reason = format!("and its memory cgroup /{name} has ");
    trace.is_untouched(rig, "one", (&reason, "raise its limit (memory.max) by "));
    client.expect("check a 165", "check 0 0");
    group.limit(4_096 * MIB);
    ok(rig, &["suspend", "one"]);
    ok(rig, &["resume", "one"]);
    client.expect("check a 165", "check 0 0");
    client.kill();
    rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
}
