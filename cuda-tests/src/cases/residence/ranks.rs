// SPDX-License-Identifier: Apache-2.0
//! A training of four processes that add up over TCP, which is saved and crashes at random moments.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::super::{Case, Random, seed, tenth};
use super::said::trains;
use super::saved::{criu, folder, save, with_criu};
use super::saved_trees::kill_all;
use crate::artefacts::package_dir;
use crate::cases::matrix::python;
use crate::client::{Client, PATIENCE};
use crate::rig::{Rig, Spec};

pub fn cases() -> Vec<Case> {
    const BITS: &str = "the vendor's driver gives no promise of equal bits to tinygrad's kernels";
    let case = Case::new(
        "residence::ranks_that_crash_at_random_moments_have_the_same_losses",
        crashes,
    );
    // With several processes on a device each kernel waits for the others' slices.
    let spec = Spec {
        gpus: RANKS as u32,
        ..Spec::DEFAULT
    };
    vec![Case { spec, ..case }.simulated(BITS)]
}

/// Steps of a training: more where there are many moments to crash at.
fn steps() -> usize {
    if tenth() == 1 { 25 } else { 12 }
}

const RANKS: usize = 4;

/// The job, or a restore that became it.
struct Ranks<'a> {
    rig: &'a Rig,
    client: Client,
}

impl<'a> Ranks<'a> {
    fn start(rig: &'a Rig) -> Self {
        let script = package_dir().join("programs/ranks.py").display().to_string();
        let place = rig.dir.display().to_string();
        let options = ["-m", "2GiB", "-g", "all", "--name", "one"];
        let mut command = rig.run(&options, &python(), &[&script, &steps().to_string(), &place]);
        command.envs([("DEV", "CUDA"), ("CUDA", "1"), ("PTX", "1"), ("PARALLEL", "0")]);
        command.env("HOME", &rig.dir);
        let client = Client::start(command);
        trains(rig, "one");
        rig.eventually(PATIENCE, "all ranks use a GPU", || {
            let jobs = rig.jobs();
            let job = jobs.iter().find(|view| view["name"] == "one");
            job.and_then(|view| view["clients"].as_array().map(Vec::len)) >= Some(RANKS)
        });
        Self { rig, client }
    }

    fn restored(rig: &'a Rig, criu: &Path, folder: &Path) -> Self {
        let folder = folder.display().to_string();
        let client = Client::start(with_criu(rig, criu, &["restore", &folder]));
        client.wait_for_stderr("runs again");
        Self { rig, client }
    }

    fn crash(mut self) {
        kill_all(self.rig, self.client.pid(), "one");
        self.client.kill();
    }

    /// Its losses, at its end.
    fn losses(mut self) -> Vec<String> {
        let rig = self.rig;
        std::fs::write(go(rig), b"").expect("ours");
        let losses = (0..steps()).map(|_| self.client.answer()).collect();
        assert_eq!(self.client.finish().code(), Some(0));
        std::fs::remove_file(go(rig)).expect("ours");
        rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
        losses
    }
}

/// What the training waits for at its end.
fn go(rig: &Rig) -> PathBuf {
    rig.dir.join("go")
}

/// What it makes then.
fn done(rig: &Rig) -> PathBuf {
    rig.dir.join("done")
}

fn crashes(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let mut look = rig.command(python());
    look.args(["-c", "import tinygrad, numpy"]);
    if !rig.output(look).status.success() {
        println!("SKIPPED: tinygrad is not installed");
        return;
    }
    let alone = Ranks::start(rig);
    let began = Instant::now();
    rig.eventually(PATIENCE, "its last step is done", || done(rig).exists());
    let whole = u64::try_from(began.elapsed().as_millis()).expect("short");
    let alone = alone.losses();
    let mut random = Random::new(0x4a11);
    let rounds = if tenth() == 1 { 100 } else { 1 };
    let mut started = Some(Ranks::start(rig));
    // The other rounds go on from there.
    let (newest, beginning) = (PathBuf::from(folder(rig)), rig.dir.join("beginning"));
    if rounds > 1 {
        save(rig, &criu, &[]).expect("saved");
        copy(&newest, &beginning);
    }
    let mut amid = 0;
    for round in 0..rounds {
        let ranks = started.take();
        let ranks = ranks.unwrap_or_else(|| Ranks::restored(rig, &criu, &beginning));
        std::thread::sleep(Duration::from_millis(random.below(whole)));
        if rounds > 1 && random.below(4) == 0 {
            crash_while_saved(ranks, &criu, random.below(1_500));
            amid += 1;
        } else {
            save(rig, &criu, &[]).unwrap_or_else(|error| panic!("round {round}: {error:?}"));
            std::thread::sleep(Duration::from_millis(random.below(1_000)));
            ranks.crash();
        }
        let losses = Ranks::restored(rig, &criu, &newest).losses();
        assert_eq!(losses, alone, "the losses differ in round {round}");
    }
    rig.note(format!(
        "seed {}: {rounds} crashes, {amid} of them while the job was saved, of a training of {whole} ms",
        seed()
    ));
}

/// So many milliseconds after the save began, which may be over then.
fn crash_while_saved(ranks: Ranks<'_>, criu: &Path, after: u64) {
    let path = folder(ranks.rig);
    let mut command = with_criu(ranks.rig, criu, &["checkpoint", "one", "--out", &path]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let command = command.spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(after));
    ranks.crash();
    command.wait_with_output().expect("ours");
}

/// A snapshot's folder, as it is.
fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(status.is_ok_and(|status| status.success()), "{}", to.display());
}
