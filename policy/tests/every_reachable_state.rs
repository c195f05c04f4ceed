// SPDX-License-Identifier: Apache-2.0
//! Every state that a small host can reach: one device of four units, at most three jobs and two clients; runs,
//! attaches, allocations, frees, deaths, a changed limit, time. What holds in each is in `host` (promises within the
//! device, grants within what is left, a promise never denied, one last reply per ticket, nobody waiting beside room).

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::acts::{Act, small_alphabet};
use crate::host::Host;

/// Jobs, clients and ticks after which nothing more of the kind is tried.
const JOBS: usize = 3;
const CLIENTS: usize = 2;
const NS: u64 = 11_000_000_000;

fn is_within_bounds(host: &Host, act: &Act) -> bool {
    match act {
        Act::Run { .. } => host.replies.len() < JOBS,
        Act::Attach { job, is_child } => {
            let jobs = host.live_jobs();
            // A first process attaches once; a second time would be an exec, which `clients.rs` covers.
            let is_new = jobs.get(*job).is_some_and(|job| *is_child || job.clients == 0);
            host.programs.len() < CLIENTS && is_new
        }
        Act::Allocate { client, .. } | Act::FreeAll { client } | Act::Kill { client } => *client < host.programs.len(),
        Act::FirstGone { job } | Act::Set { job, .. } => *job < host.live_jobs().len(),
        Act::Pass { seconds } => host.now_ns + seconds * 1_000_000_000 < NS,
        _ => true,
    }
}

fn fingerprint(host: &Host) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{:?}", host.policy).hash(&mut hasher);
    for client in host.programs.keys() {
        for word in 0..4 {
            host.board.value(*client, 0, word).hash(&mut hasher);
        }
    }
    host.replies.len().hash(&mut hasher);
    hasher.finish()
}

fn search(name: &str, first: Host) {
    let mut seen = HashSet::from([fingerprint(&first)]);
    // Breadth first, so that a state is met by its shortest path and the bound on depth cuts nothing that a shorter way
    // would have reached.
    let mut queue = VecDeque::from([(first, Vec::new())]);
    let alphabet = small_alphabet();
    let mut transitions = 0u64;
    while let Some((host, path)) = queue.pop_front() {
        for (number, act) in alphabet.iter().enumerate() {
            if !is_within_bounds(&host, act) {
                continue;
            }
            let mut after = host.clone();
            let mut path: Vec<usize> = path.clone();
            path.push(number);
            let trace = Trace {
                name,
                path: &path,
                alphabet: &alphabet,
            };
            // A limit lowered below use excuses what it was before; from then on only promises are counted.
            after.is_excused |= matches!(act, Act::Set { .. });
            let was_possible = after.act(act);
            drop(trace);
            transitions += 1;
            after.commands.clear();
            if was_possible && seen.insert(fingerprint(&after)) && path.len() < DEPTH {
                queue.push_back((after, path));
            }
        }
    }
    println!(
        "{name}: {} states, {transitions} transitions, {DEPTH} steps deep",
        seen.len()
    );
    assert!(seen.len() > 500, "the alphabet does not move the host");
}

/// A host on which these happened.
fn after(acts: &[Act]) -> Host {
    let mut host = Host::new(&[4]);
    for act in acts {
        assert!(host.act(act));
    }
    host.commands.clear();
    host
}

#[test]
fn from_an_idle_host() {
    search("idle", after(&[]));
}

#[test]
fn from_a_job_without_a_promise_that_uses_half() {
    let [_, unpromised, _, attach, ..] = &small_alphabet()[..] else {
        panic!("alphabet")
    };
    let allocate = Act::Allocate {
        client: 0,
        slot: 0,
        bytes: 2 << 30,
    };
    search("unpromised use", after(&[unpromised.clone(), attach.clone(), allocate]));
}

#[test]
fn from_two_jobs_and_one_that_waits() {
    let [half, _, burst, attach, attach_second, ..] = &small_alphabet()[..] else {
        panic!("alphabet")
    };
    let whole = Act::Run {
        uid: 2,
        mem: "75%",
        request: None,
        gpu: "auto",
        wait: true,
    };
    let acts = [
        half.clone(),
        burst.clone(),
        whole,
        attach.clone(),
        attach_second.clone(),
    ];
    search("promise, burst and a waiter", after(&acts));
}

/// Longest path: long enough to fill the device, queue, free, end and admit again.
const DEPTH: usize = 6;

/// Prints the path when an assertion fails under it.
struct Trace<'a> {
    name: &'a str,
    path: &'a [usize],
    alphabet: &'a [Act],
}

impl Drop for Trace<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{} and then", self.name);
            for act in self.path {
                eprintln!("  {:?}", self.alphabet[*act]);
            }
        }
    }
}
