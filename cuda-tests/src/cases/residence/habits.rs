// SPDX-License-Identifier: Apache-2.0
//! What trainings do beside their steps: each such habit is saved amid its steps, goes on, is killed and restored, and
//! ends as if nothing had been.
//!
//! `programs/habits.py` has the habits. Those of links between processes are saved at rest in `linked.rs`, too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::super::Case;
use super::said::{ok, state};
use super::saved::{criu, folder, save, with_criu};
use super::saved_trees::kill_all;
use crate::artefacts::package_dir;
use crate::cases::matrix::python;
use crate::cases::tenth;
use crate::client::{Client, PATIENCE};
use crate::rig::Rig;

pub fn cases() -> Vec<Case> {
    const WHY: &str = "a real GPU's cycle with CRIU is the acceptance script's";
    vec![
        Case::new("residence::files_are_as_they_were_when_a_job_comes_back", files).simulated(WHY),
        Case::new("residence::a_training_that_logs_to_wandb_comes_back", wandb).simulated(WHY),
        Case::new("residence::what_trainings_do_beside_their_steps_comes_back", others).simulated(WHY),
    ]
}

/// A program with one habit, and how a shell begins its log; nothing where standard output is no log.
type Habit = (&'static str, &'static str);

/// Each habit with what is said of its files at the restore: a file's name begins it. Nothing where they are as they
/// were.
const FILES: [(Habit, &str); 4] = [
    (("log", ">"), "train.log has "),
    (("csv", ""), "table.csv has "),
    (("sqlite", ""), "runs.db-wal holds again what the job knows"),
    (("memmaprw", ""), "array.dat holds again what the job knows"),
];
const FILES_IN_THE_SOAK: [(Habit, &str); 6] = [
    (("log", ">>"), "train.log has "),
    (("memmap", ""), ""),
    (("flock", ""), ""),
    (("deleted", ""), ""),
    (("renamed", ""), ""),
    (("random", ""), "blocks.bin holds again what the job knows"),
];
/// The first one in every run.
const OTHERS: [&str; 20] = [
    "ring", "tcp", "unix", "udp", "listen", "threads", "fork", "spawn", "segment", "fresh", "pipe", "fifo", "pty",
    "zombie", "inotify", "asyncio", "eventfd", "memfd", "itimer", "nvml",
];

fn files(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    for (habit, said) in FILES {
        comes_back(rig, &criu, habit, said);
    }
    if tenth() == 1 {
        for (habit, said) in FILES_IN_THE_SOAK {
            comes_back(rig, &criu, habit, said);
        }
        if is_installed(rig, "tensorboardX") {
            comes_back(rig, &criu, ("tensorboard", ""), ".tfevents.");
        }
    }
}

fn wandb(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    if is_installed(rig, "wandb") {
        // Whether its file grew by the kill is up to its process.
        comes_back(rig, &criu, ("wandb", ""), "");
        // The training, and the process that looks at the GPU for it.
        let clients = ok(rig, &["events"]).matches(" attached to j1").count();
        assert!(clients >= 2, "{clients}");
    }
}

fn others(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let count = if tenth() == 1 { OTHERS.len() } else { 1 };
    for habit in &OTHERS[..count] {
        comes_back(rig, &criu, (habit, ""), "");
    }
}

/// Whether Python finds a module; said where it does not.
fn is_installed(rig: &Rig, module: &str) -> bool {
    let mut look = rig.command(python());
    look.args(["-c", &format!("import {module}")]);
    let found = rig.output(look).status.success();
    if !found {
        println!("SKIPPED: {module} is not installed");
    }
    found
}

/// Saved amid its steps, killed 30 steps later, restored, and run to the end.
fn comes_back(rig: &Rig, criu: &Path, habit: Habit, said: &str) {
    let name = format!("{}{}", habit.0, habit.1.len());
    let program = Program::new(rig, habit, &name);
    let mut heard = Vec::new();
    let mut client = program.start();
    steps(&mut client, STEPS.0, &mut heard);
    client.tell("go");
    let out = save(rig, criu, &[]).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    program.only_its_own();
    let late = steps(&mut client, STEPS.1, &mut heard);
    let after = program.files();
    kill(rig, client);
    heard.clear();
    let mut again = program.restore(criu, &[]);
    let restored = steps(&mut again, STEPS.1, &mut heard);
    heard.push(again.stderr());
    let heard = heard.join("\n");
    rig.note(format!("{name}: {out}; {late}, restored {restored}; {heard}"));
    assert!(heard.contains(said), "{name}: {heard}");
    // It breaks its lines.
    let why = ok(rig, &["why", "one"]);
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(why.contains(said.trim_end()), "{name}: {why}");
    end(again);
    rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
    if !said.is_empty() {
        let events = ok(rig, &["events"]);
        assert!(events.contains(said), "{events}");
    }
    let alone = undisturbed(&program, &late, &restored);
    program.has_what_it_would_have(&alone, &after, said);
    std::fs::remove_dir_all(folder(rig)).expect("ours");
    forget_blocks(rig);
}

/// A run of the same habit that is asked at the same steps, and ends at the latter.
fn undisturbed<'a>(program: &Program<'a>, late: &str, restored: &str) -> Program<'a> {
    let count = |said: &str| said.split(' ').nth(1)?.parse::<u32>().ok();
    let [late_count, count] = [late, restored].map(|said| count(said).unwrap_or_else(|| panic!("{said}")));
    let alone = |name: &str, asked: &[(u32, &str)]| {
        let name = format!("{}-{name}", program.name());
        let alone = Program::new(program.rig, (program.habit, program.redirect), &name);
        let (mut client, mut at) = (alone.start(), 0);
        for (count, said) in asked {
            assert_eq!(steps(&mut client, count - at, &mut Vec::new()), *said, "{name}");
            at = *count;
        }
        end(client);
        let rig = program.rig;
        rig.eventually(PATIENCE, "it has ended", || state(rig, "one").is_empty());
        alone
    };
    if late_count <= count {
        return alone("alone", &[(late_count, late), (count, restored)]);
    }
    alone("later", &[(late_count, late)]);
    alone("alone", &[(count, restored)])
}

/// The first line in which two files differ, with its number, of each.
fn first_difference(one: &[u8], other: &[u8]) -> Option<(usize, [String; 2])> {
    let lines = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes)
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let [ours, theirs] = [one, other].map(lines);
    let line = |lines: &[String], at: usize| lines.get(at).cloned().unwrap_or_default();
    let at = (0..ours.len().max(theirs.len())).find(|at| ours.get(*at) != theirs.get(*at));
    // Files that differ in what is no line differ at their end.
    let at = at.or((one != other).then_some(ours.len()))?;
    Some((at, [line(&ours, at), line(&theirs, at)]))
}

/// The names that killed processes left to the machine.
fn forget_blocks(rig: &Rig) {
    let prefix = format!("{}-", rig.dir.file_name().expect("a folder").to_string_lossy());
    for entry in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            std::fs::remove_file(entry.path()).expect("ours");
        }
    }
}

/// Steps before the save, and after it.
pub(super) const STEPS: (u32, u32) = (20, 30);

/// A program with one habit, in a folder of its own.
pub(super) struct Program<'a> {
    rig: &'a Rig,
    habit: &'static str,
    /// How a shell begins its log; nothing where standard output is no log.
    redirect: &'static str,
    pub(super) folder: PathBuf,
}

impl<'a> Program<'a> {
    pub(super) fn new(rig: &'a Rig, (habit, redirect): Habit, folder: &str) -> Self {
        let folder = rig.dir.join(folder);
        std::fs::create_dir_all(folder.join("tmp")).expect("ours");
        Self {
            rig,
            habit,
            redirect,
            folder,
        }
    }

    pub(super) fn start(&self) -> Client {
        let script = package_dir().join("programs/habits.py").display().to_string();
        let place = self.folder.display().to_string();
        let mut run = self.rig.run(
            &["-m", "1GiB", "-g", "0", "--name", "one"],
            &python(),
            &[&script, self.habit, &place],
        );
        // Where wandb keeps notes of its own, and what it leaves when it is killed.
        run.env("HOME", &self.folder).env("TMPDIR", self.folder.join("tmp"));
        Client::start(self.through_a_shell(run, true))
    }

    fn name(&self) -> String {
        format!("{}{}", self.habit, self.redirect.len())
    }

    /// A restore of it, as the job that it becomes.
    pub(super) fn restore(&self, criu: &Path, more: &[&str]) -> Client {
        let saved = folder(self.rig);
        let mut arguments = vec!["restore", saved.as_str()];
        arguments.extend(more);
        Client::start(self.through_a_shell(with_criu(self.rig, criu, &arguments), false))
    }

    /// Where standard output is a log the program answers on standard error.
    fn through_a_shell(&self, inner: Command, is_to_log: bool) -> Command {
        if self.redirect.is_empty() {
            return inner;
        }
        let log = match is_to_log {
            true => format!("{} '{}'", self.redirect, self.log().display()),
            false => ">/dev/null".to_owned(),
        };
        let mut outer = Command::new("sh");
        outer.args(["-c", &format!("exec \"$@\" 2>&1 {log}"), "sh"]);
        outer.arg(inner.get_program()).args(inner.get_args());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => outer.env(name, value),
                None => outer.env_remove(name),
            };
        }
        if let Some(place) = inner.get_current_dir() {
            outer.current_dir(place);
        }
        outer
    }

    pub(super) fn log(&self) -> PathBuf {
        self.folder.join("train.log")
    }

    /// Every file of its folder, by its name.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = std::fs::read_dir(&self.folder).expect("ours").flatten();
        // A fifo would wait for its other end.
        let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
        let files = files.map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, std::fs::read(entry.path()).expect("ours"))
        });
        files.collect()
    }

    /// Nothing of Partage's or of the driver's is among the files that were noted.
    fn only_its_own(&self) {
        let path = Path::new(&folder(self.rig)).join("gen-0001/manifest.json");
        let manifest: Value = serde_json::from_slice(&std::fs::read(path).expect("there")).expect("a manifest");
        let files = manifest["open_files"]["files"].as_array().cloned().unwrap_or_default();
        for file in files {
            let path = file["path"].as_str().expect("a path");
            assert!(Path::new(path).starts_with(&self.folder), "{path}");
        }
    }

    /// Its files are those of a run that nobody disturbed, and what was in them when it was killed is there still: in
    /// what a restore kept of the file that it spoke of.
    fn has_what_it_would_have(&self, alone: &Self, killed: &BTreeMap<String, Vec<u8>>, said: &str) {
        let (name, mut files) = (self.name(), self.files());
        for (file, content) in killed {
            let kept = files.remove(&format!("{file}.after-gen-1"));
            let Some(kept) = kept else {
                assert!(
                    said.split(' ').next() != Some(file),
                    "{name}: nothing is kept of {file}"
                );
                continue;
            };
            // All of it, or what followed what the job knows.
            let begins = content.strip_suffix(&kept[..]);
            let is_whole = kept == *content;
            assert!(
                is_whole || begins.is_some_and(|begins| files[file].starts_with(begins)),
                "{name}: {file} had {} bytes, and {} are kept",
                content.len(),
                kept.len()
            );
        }
        let expected = alone.files();
        let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&files), names(&expected), "{name}");
        for (file, content) in &files {
            let other = first_difference(content, &expected[file]);
            assert_eq!(other, None, "{name}: {file}, and that of an undisturbed run");
        }
    }

    pub(super) fn log_text(&self) -> String {
        std::fs::read_to_string(self.log()).expect("there")
    }
}

/// Has it make so many steps, and answers what it says of them; lines of Partage's before that are given to `heard`.
pub(super) fn steps(client: &mut Client, count: u32, heard: &mut Vec<String>) -> String {
    client.tell(&format!("steps {count}"));
    loop {
        let line = client.answer();
        if line.starts_with("at ") {
            return line;
        }
        heard.push(line);
    }
}

pub(super) fn end(mut client: Client) {
    client.tell("end");
    assert_eq!(client.finish().code(), Some(0));
}

pub(super) fn kill(rig: &Rig, mut client: Client) {
    kill_all(rig, client.pid(), "one");
    client.kill();
}
