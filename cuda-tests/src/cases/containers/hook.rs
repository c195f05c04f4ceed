// SPDX-License-Identifier: Apache-2.0
//! A hook that finds no broker, fails, is killed or comes too late: the container does not start, and nothing of it is
//! left.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::json;

use super::podman::{Podman, change_hooks, describe, stderr, with_timeout};
use crate::cases::ruled_host::{Host, SOON};
use crate::rig::Rig;

/// All of a GPU: while anything is left of one such container, there is no room for the next.
const WHOLE: &str = "schema = 1\n[class.whole]\nmem = \"16GiB\"\n";

/// Puts a shell's script in the hook's place; its `"$@"` is the hook.
fn wrap(rig: &Rig, script: &str) {
    change_hooks(rig, |hook| {
        let arguments = hook["args"].as_array().cloned().unwrap_or_default();
        let mut words = vec![
            json!("sh"),
            json!("-c"),
            json!(script),
            json!("sh"),
            hook["path"].clone(),
        ];
        words.extend(arguments.into_iter().skip(1));
        hook["args"] = json!(words);
        hook["path"] = json!("/bin/sh");
    });
}

/// A container of all of GPU 0 that leaves a mark when its program runs.
struct Marked {
    mark: PathBuf,
    volume: String,
}

impl Marked {
    fn new(rig: &Rig) -> Self {
        let folder = rig.dir.join("mark");
        std::fs::create_dir_all(&folder).expect("writable");
        Self {
            mark: folder.join("started"),
            volume: format!("-v={}:/mark", folder.display()),
        }
    }

    fn command(&self, podman: &Podman<'_>) -> Command {
        let program = ["/bin/sh", "-c", ": > /mark/started"];
        podman.run("whole", &["--rm", &self.volume], &program)
    }

    /// It starts, so nothing was left of those before.
    #[track_caller]
    fn starts(&self, rig: &Rig, podman: &Podman<'_>) {
        rig.eventually(SOON, "no job is left", || rig.jobs().is_empty());
        // A broker that stood still had no answer from NVML meanwhile, and looks again.
        rig.eventually(SOON, "the GPU is there", || {
            rig.json(&["status"])["devices"][0]["state"] == "ok"
        });
        let output = rig.output(self.command(podman));
        assert!(output.status.success() && self.mark.exists(), "{}", stderr(&output));
        std::fs::remove_file(&self.mark).expect("ours");
        rig.eventually(SOON, "its job ends", || rig.jobs().is_empty());
    }

    /// It does not start, and what the engine says has these words.
    #[track_caller]
    fn does_not_start(&self, rig: &Rig, podman: &Podman<'_>, words: &str) {
        let output = rig.output(self.command(podman));
        let said = stderr(&output);
        assert!(!output.status.success() && !self.mark.exists(), "it starts: {said}");
        assert!(said.contains(words), "{said}");
    }
}

pub fn no_broker(rig: &Rig) {
    let Some(podman) = Podman::start(rig) else { return };
    let host = Host::start(rig, WHOLE);
    describe(rig);
    with_timeout(rig, "1s");
    let marked = Marked::new(rig);
    drop(host);
    let sentence = "partage: the container does not start: ";
    marked.does_not_start(rig, &podman, sentence);
    // A broker that does not answer is none.
    let host = Host::start(rig, WHOLE);
    partage_machine::process::stop(host.broker.id());
    marked.does_not_start(rig, &podman, sentence);
    signal(host.broker.id(), libc::SIGCONT);
    describe(rig);
    marked.starts(rig, &podman);
}

pub fn fails(rig: &Rig) {
    let Some(podman) = Podman::start(rig) else { return };
    let host = Host::start(rig, WHOLE);
    let marked = Marked::new(rig);
    // After the registration, when there is a job to end; before it, and in the middle of it.
    for (script, words) in [
        ("\"$@\" && echo 'no room here' >&2; exit 1", "no room here"),
        ("\"$@\"; kill -KILL $$", "hook"),
        ("kill -KILL $$", "hook"),
    ] {
        describe(rig);
        wrap(rig, script);
        marked.does_not_start(rig, &podman, words);
        describe(rig);
        marked.starts(rig, &podman);
    }
    for _ in 0..2 {
        with_timeout(rig, "60s");
        partage_machine::process::stop(host.broker.id());
        let mut command = marked.command(&podman);
        let running = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let running = running.expect("podman starts");
        let mut hook = None;
        rig.eventually(SOON, "the hook waits", || {
            hook = waiting_hook(rig);
            hook.is_some()
        });
        signal(hook.expect("found"), libc::SIGKILL);
        let output = running.wait_with_output().expect("ours");
        let said = stderr(&output);
        assert!(!output.status.success() && !marked.mark.exists(), "it starts: {said}");
        signal(host.broker.id(), libc::SIGCONT);
        describe(rig);
        marked.starts(rig, &podman);
    }
}

fn signal(pid: u32, signal: i32) {
    // SAFETY: a process of this case that has not been waited for.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
}

/// The hook of this rig's description that has connected to the broker.
fn waiting_hook(rig: &Rig) -> Option<u32> {
    let place = rig.socket_dir().into_os_string().into_encoded_bytes();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.find(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.contains(&&b"create-runtime"[..]) && words.contains(&&place[..]) && has_socket(*pid)
    })
}

fn has_socket(pid: u32) -> bool {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    files
        .filter_map(|file| std::fs::read_link(file.path()).ok())
        .any(|to| to.display().to_string().starts_with("socket:"))
}
