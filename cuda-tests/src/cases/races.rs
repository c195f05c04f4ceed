// SPDX-License-Identifier: Apache-2.0
//! Two clients that each ask for 60 % of the limit at once: exactly one gets it, every time.

use std::path::Path;

use super::{Case, Random, tenth};
use crate::client::Client;
use crate::rig::Rig;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("races::two_threads_ask_sixty_percent", threads),
        Case::new("races::two_processes_ask_sixty_percent", processes),
        Case::new("races::sixty_sixty_forty", sixty_sixty_forty),
        Case::new("races::broker_killed_meanwhile", broker_killed),
    ]
}

/// Sixty percent of a room and the rest, in units of what an allocation takes at least.
fn parts(room: u64) -> (u64, u64) {
    let sixty = room * 6 / 10 / 512 * 512;
    (sixty, room - sixty)
}

/// What one of several asks for.
enum Part {
    Sixty,
    Forty,
}

fn rounds() -> usize {
    1000 / tenth()
}

fn threads(rig: &Rig) {
    let rounds = rounds();
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    let (sixty, _) = parts(client.room());
    client.expect(
        &format!("race 2 {rounds} {sixty}"),
        &format!("race none=0 one={rounds} two=0 other=0"),
    );
    rig.note(format!("{rounds} rounds of two threads"));
}

/// A job whose first process is a shell that waits; its clients join by the job's environment.
pub struct Siblings {
    /// Keeps the job alive.
    pub shell: Client,
    environment: Vec<(String, String)>,
    /// The clients that `siblings` started.
    pub members: Vec<Client>,
}

impl Siblings {
    /// What makes a process one of the job.
    pub fn environment(&self) -> impl Iterator<Item = (&str, &str)> {
        self.environment
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// One more process of the job, attached.
    pub fn start(&self, rig: &Rig) -> Client {
        let mut command = rig.command(crate::artefacts::client());
        command.arg("dlopen").envs(self.environment());
        Client::start(command)
    }
}

/// A job with `count` clients.
pub fn siblings(rig: &Rig, options: &[&str], count: usize) -> Siblings {
    siblings_of(rig, rig.run(options, Path::new(SHELL), &SAYS_ENVIRONMENT), count)
}

const SHELL: &str = "/bin/sh";
const SAYS_ENVIRONMENT: [&str; 2] = [
    "-c",
    "env | grep -E '^(PARTAGE_|LD_PRELOAD)'; echo ready; cat >/dev/null",
];

/// The same by a `partage` of one's own, which is to be given options and the shell.
pub fn siblings_by(rig: &Rig, partage: &Path, options: &[&str], count: usize) -> Siblings {
    let mut command = rig.command(partage);
    command
        .arg("run")
        .args(options)
        .args(["--", SHELL])
        .args(SAYS_ENVIRONMENT);
    siblings_of(rig, command, count)
}

fn siblings_of(rig: &Rig, shell: std::process::Command, count: usize) -> Siblings {
    let shell = Client::start(shell);
    let mut environment = Vec::new();
    loop {
        let line = shell.next_answer();
        if line == "ready" {
            break;
        }
        let (name, value) = line.split_once('=').expect("NAME=VALUE");
        environment.push((name.to_owned(), value.to_owned()));
    }
    let mut job = Siblings {
        shell,
        environment,
        members: Vec::new(),
    };
    for _ in 0..count {
        let mut client = job.start(rig);
        client.ready();
        job.members.push(client);
    }
    job
}

/// One client for each part of the room.
fn race(rig: &Rig, wanted: &[Part], rounds: usize) -> Vec<String> {
    let mut job = siblings(rig, &["-m", "1GiB"], wanted.len());
    let (sixty, forty) = parts(job.members[0].room());
    let size = |part: &Part| match part {
        Part::Sixty => sixty,
        Part::Forty => forty,
    };
    let sizes: Vec<u64> = wanted.iter().map(size).collect();
    let file = rig.dir.join("arena");
    for (client, bytes) in job.members.iter_mut().zip(&sizes) {
        client.tell(&format!("prace {} {} {rounds} {bytes}", file.display(), sizes.len()));
    }
    let answers = job.members.iter_mut().map(Client::answer).collect();
    job.shell.kill();
    answers
}

fn processes(rig: &Rig) {
    let rounds = rounds();
    for answer in race(rig, &[Part::Sixty, Part::Sixty], rounds) {
        assert!(answer.contains("odd=0"), "{answer}");
        assert!(
            answer.ends_with(&format!("none=0 one={rounds} two=0 other=0")),
            "{answer}"
        );
    }
    rig.note(format!("{rounds} rounds of two processes"));
}

fn sixty_sixty_forty(rig: &Rig) {
    let rounds = rounds();
    for answer in race(rig, &[Part::Sixty, Part::Sixty, Part::Forty], rounds) {
        assert!(answer.contains("odd=0"), "{answer}");
        assert!(
            answer.ends_with(&format!("none=0 one=0 two={rounds} other=0")),
            "{answer}"
        );
    }
    rig.note(format!("{rounds} rounds of 60/60/40"));
}

fn broker_killed(rig: &Rig) {
    let wanted = if tenth() == 1 { 20 } else { 3 };
    let rounds = rounds();
    let mut random = Random::new(23);
    let mut job = siblings(rig, &["-m", "1GiB"], 2);
    let (sixty, _) = parts(job.members[0].room());
    let mut kills = 0;
    for race in 0..wanted {
        // The clients bring the next broker themselves.
        rig.eventually(std::time::Duration::from_secs(20), "a broker", || {
            rig.broker_pid_quick().is_some()
        });
        let file = rig.dir.join(format!("arena{race}"));
        for client in &mut job.members {
            client.tell(&format!("prace {} 2 {rounds} {sixty}", file.display()));
        }
        // Anywhere in the race, which takes some tens of milliseconds while a broker answers.
        std::thread::sleep(std::time::Duration::from_micros(random.below(40_000)));
        if let Some(pid) = rig.broker_pid_quick() {
            // SAFETY: a broker of this rig's own folder; killing it is the point of the test.
            unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
            kills += 1;
        }
        for client in &mut job.members {
            let answer = client.answer();
            assert!(
                answer.contains(" two=0 other=0") && answer.contains("odd=0"),
                "never two of sixty: {answer}"
            );
        }
    }
    rig.note(format!(
        "{wanted} races of {rounds} rounds, broker killed {kills} times"
    ));
    assert!(kills > 0, "the broker was killed at least once");
}
