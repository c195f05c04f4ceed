// SPDX-License-Identifier: Apache-2.0
//! Every state that promises of time can reach on small hosts: jobs with 30, 50, 60 % or none that wait or fail, on any
//! device or a named one, promises raised and lowered, ends, a new broker. In each state:
//!
//! - Σ promises on a device ≤ what may be promised (`host` checks it after each step);
//! - what fails at once, or is refused a raise, really did not fit; what fits is never refused;
//! - the first in the queue fits nowhere: nobody waits beside room;
//! - what was passed on about a live job is what its view says.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::host::{Host, broker_view, caller, mem};
use partage_policy::{Action, Process};
use partage_protocol::admin::{JobView, Reply, RunRequest};
use partage_protocol::terms::{parse_promise, ppm};
use partage_protocol::units::JobId;

/// Jobs that are ever asked for.
const JOBS: usize = 4;
/// Longest path: as many runs as there are jobs, and a change or an end after each.
const DEPTH: usize = 7;

#[derive(Clone, Copy, Debug)]
enum Act {
    Run {
        compute: Option<&'static str>,
        gpu: &'static str,
        wait: bool,
    },
    Set {
        job: usize,
        compute: &'static str,
    },
    End {
        job: usize,
    },
    Restart,
}

fn alphabet() -> Vec<Act> {
    let run = |compute, gpu, wait| Act::Run { compute, gpu, wait };
    vec![
        run(Some("60%"), "auto", true),
        run(Some("50%"), "auto", true),
        run(Some("30%"), "0", true),
        run(None, "auto", true),
        run(Some("50%"), "auto", false),
        Act::Set { job: 0, compute: "70%" },
        Act::Set {
            job: 0,
            compute: "none",
        },
        Act::Set { job: 1, compute: "40%" },
        Act::End { job: 0 },
        Act::End { job: 1 },
        Act::Restart,
    ]
}

fn jobs(host: &Host) -> Vec<JobView> {
    let Reply::Ps { jobs, .. } = host.policy.ps(&caller(0), false, &host.board) else {
        panic!("ps")
    };
    jobs
}

/// What may still be promised on each device, without one job.
fn left(host: &Host, except: Option<&str>) -> BTreeMap<String, u32> {
    let promisable = ppm(host.promisable_time);
    let mut left: BTreeMap<String, u32> = host
        .devices
        .iter()
        .map(|seen| (seen.uuid.to_string(), promisable))
        .collect();
    for job in jobs(host).iter().filter(|job| Some(job.job.as_str()) != except) {
        for device in &job.devices {
            let left = left.get_mut(&device.uuid).expect("a device of the host");
            *left = left
                .checked_sub(ppm(job.terms.promise))
                .expect("promised within what there is");
        }
    }
    left
}

fn id_of(job: &JobView) -> JobId {
    JobId(job.job.trim_start_matches('j').parse().expect("a job id"))
}

/// Does it; answers whether it was possible.
fn act(host: &mut Host, act: Act) -> bool {
    let live: Vec<JobView> = jobs(host).into_iter().filter(|job| job.state != "waiting").collect();
    match act {
        Act::Run { compute, gpu, wait } => {
            let room = left(host, None);
            let is_queue_empty = jobs(host).len() == live.len();
            let request = RunRequest {
                compute: compute.map(str::to_owned),
                gpu: Some(gpu.to_owned()),
                wait,
                ..mem("")
            };
            let (ticket, _) = host.run(1, request);
            let promise = compute.map_or(0, |text| parse_promise(text).expect("a part"));
            let mut allowed = host.devices.iter().filter(|seen| gpu == "auto" || seen.index == 0);
            let fits = allowed.any(|seen| room[&seen.uuid.to_string()] >= promise);
            let is_admitted = host.job_of(ticket).is_some();
            assert!(fits || !is_admitted, "{promise} was promised of {room:?}");
            if is_queue_empty {
                assert_eq!(is_admitted, fits, "{promise} of {room:?}");
            }
            assert!(wait || !host.is_waiting(ticket));
        }
        Act::Set { job, compute } => {
            let Some(job) = live.get(job) else { return false };
            let room = left(host, Some(&job.job));
            let reply = host.set_terms(caller(1), &job.job, &[("compute", compute)]);
            let promise = if compute == "none" {
                0
            } else {
                parse_promise(compute).expect("a part")
            };
            let fits = job.devices.iter().all(|device| room[&device.uuid] >= promise);
            assert_eq!(matches!(reply, Reply::Job(_)), fits, "{compute} of {room:?}: {reply:?}");
        }
        Act::End { job } => {
            let Some(job) = live.get(job) else { return false };
            let first = Process {
                pid: job.pid,
                start: u64::from(job.pid),
            };
            host.finish(id_of(job), first);
        }
        Act::Restart => {
            let records = host.records();
            let waiting = jobs(host).len() > live.len();
            if waiting {
                // A waiting `run` asks the next broker again, which is another `Run`.
                return false;
            }
            let before: Vec<_> = live.iter().map(|job| (job.job.clone(), job.terms.clone())).collect();
            host.restart(records);
            let after: Vec<_> = jobs(host)
                .iter()
                .map(|job| (job.job.clone(), job.terms.clone()))
                .collect();
            assert_eq!(before, after);
            host.measure();
        }
    }
    judge(host);
    true
}

fn judge(host: &Host) {
    let status = host.policy.status(broker_view(), host.now_ns, &host.board);
    let room = left(host, None);
    if let Some(first) = status.queue.first() {
        let asked = first
            .compute
            .as_deref()
            .map_or(0, |text| parse_promise(text).expect("a part"));
        let waiting = jobs(host)
            .into_iter()
            .find(|job| job.job == first.job)
            .expect("in the queue");
        assert_eq!(ppm(waiting.terms.promise), asked);
        // One that named device 0 may wait beside room on the other.
        let device = host.devices[0].uuid.to_string();
        assert!(room[&device] < asked, "{first:?} waits beside {room:?}");
    }
    let mut told: BTreeMap<u64, partage_scheduling::Terms> = BTreeMap::new();
    for command in &host.commands {
        match command {
            Action::ShowTerms { job, terms, .. } => drop(told.insert(job.0, *terms)),
            Action::ForgetJob(job) => drop(told.remove(&job.0)),
            _ => {}
        }
    }
    for job in jobs(host).iter().filter(|job| job.state != "waiting") {
        let terms = told.remove(&id_of(job).0).expect("its terms were passed on");
        assert_eq!(terms.promise_ppm, ppm(job.terms.promise), "{job:?}");
    }
    assert!(told.is_empty(), "only of live jobs: {told:?}");
}

fn fingerprint(host: &Host) -> u64 {
    let mut hasher = DefaultHasher::new();
    for job in jobs(host) {
        let devices: Vec<&str> = job.devices.iter().map(|device| device.uuid.as_str()).collect();
        (job.job, job.state, ppm(job.terms.promise), devices).hash(&mut hasher);
    }
    host.replies.len().hash(&mut hasher);
    hasher.finish()
}

fn search(name: &str, first: Host) {
    let mut seen = HashSet::from([fingerprint(&first)]);
    let mut queue = VecDeque::from([(first, Vec::new())]);
    let mut transitions = 0_u64;
    while let Some((host, path)) = queue.pop_front() {
        for next in alphabet() {
            if matches!(next, Act::Run { .. }) && runs(&path) >= JOBS {
                continue;
            }
            let mut after = host.clone();
            let mut path: Vec<Act> = path.clone();
            path.push(next);
            let trace = Trace { name, path: &path };
            let was_possible = act(&mut after, next);
            drop(trace);
            transitions += 1;
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

fn runs(path: &[Act]) -> usize {
    path.iter().filter(|act| matches!(act, Act::Run { .. })).count()
}

/// Prints the path when an assertion fails under it.
struct Trace<'a> {
    name: &'a str,
    path: &'a [Act],
}

impl Drop for Trace<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{} and then {:#?}", self.name, self.path);
        }
    }
}

#[test]
fn on_one_device() {
    search("one device", Host::new(&[4]));
}

#[test]
fn on_two_devices() {
    search("two devices", Host::new(&[4, 4]));
}
