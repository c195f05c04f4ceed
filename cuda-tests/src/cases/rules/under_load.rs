// SPDX-License-Identifier: Apache-2.0
//! The configuration is read again and again, every second time a broken one, while many programs allocate as fast as
//! they can, under a limit of each job and a total of their user.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use partage_machine::Machine;
use serde_json::Value;

use crate::cases::quota_limits::room_together;
use crate::cases::ruled_host::{Host, SOON, broker};
use crate::cases::tenth;
use crate::client::Client;
use crate::rig::{GIB, MIB, Rig};

/// What a configuration allows, in bytes: of each job, and of all jobs of a user on a GPU.
#[derive(Clone, Copy, Debug)]
struct Allowed {
    job: u64,
    total: u64,
}

/// The contexts of all programs fit into the lower total.
const TIGHT: Allowed = Allowed {
    job: 512 * MIB,
    total: 3 * GIB,
};
const LOOSE: Allowed = Allowed {
    job: GIB,
    total: 6 * GIB,
};
const BROKEN: &str = "schema = 1\n[[rule]]\nname = \"students\"\nmaxx = {}\n";

fn text(allowed: Allowed) -> String {
    let [job, total] = [allowed.job, allowed.total].map(|bytes| bytes / MIB);
    let rule = "schema = 1\n[[rule]]\nname = \"students\"\n";
    format!("{rule}max = {{ mem = \"{job}MiB\" }}\neach_user = {{ mem = \"{total}MiB\" }}\n")
}

/// The largest that one job has, and that all have on one GPU.
fn most<'a>(bytes: impl Iterator<Item = (&'a str, u64)>) -> Allowed {
    let mut totals = BTreeMap::new();
    let mut job = 0;
    for (gpu, bytes) in bytes {
        job = job.max(bytes);
        *totals.entry(gpu).or_insert(0) += bytes;
    }
    Allowed {
        job,
        total: totals.into_values().max().unwrap_or(0),
    }
}

impl Allowed {
    fn is_within(self, most: Self) -> bool {
        self.job <= most.job && self.total <= most.total
    }
}

/// A thread that looks at the driver's own books all the time.
struct Watch {
    bound: Arc<[AtomicU64; 2]>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64, String>>,
}

impl Watch {
    fn start(rig: &Rig, first: Allowed) -> Self {
        let machine = Machine::open(&rig.sim_dir()).expect("the machine is there");
        let bound = Arc::new([first.job, first.total].map(AtomicU64::new));
        let is_over = Arc::new(AtomicBool::new(false));
        let (theirs, end) = (Arc::clone(&bound), Arc::clone(&is_over));
        let load = move || {
            let [job, total] = [&theirs[0], &theirs[1]].map(|word| word.load(Ordering::SeqCst));
            Allowed { job, total }
        };
        let thread = std::thread::spawn(move || {
            let mut looks = 0;
            while !end.load(Ordering::SeqCst) {
                let before = load();
                let books: Vec<_> = (0..2).map(|device| machine.occupants(device)).collect();
                let used = books.iter().zip(["0", "1"]);
                let seen = most(used.flat_map(|(all, gpu)| all.iter().map(move |one| (gpu, one.used))));
                // What holds may have changed meanwhile.
                let after = load();
                let both = Allowed {
                    job: before.job.max(after.job),
                    total: before.total.max(after.total),
                };
                if !seen.is_within(both) {
                    return Err(format!("the driver holds {seen:?}, and {both:?} is allowed"));
                }
                looks += 1;
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            Ok(looks)
        });
        Self { bound, is_over, thread }
    }

    /// From now on nothing above this may be seen.
    fn allow(&self, most: Allowed) {
        self.bound[0].store(most.job, Ordering::SeqCst);
        self.bound[1].store(most.total, Ordering::SeqCst);
    }

    /// How often it looked.
    fn end(self) -> Result<u64, String> {
        self.is_over.store(true, Ordering::SeqCst);
        self.thread.join().expect("it does not panic")
    }
}

/// What the ledger granted.
fn granted(jobs: &[Value]) -> Allowed {
    let devices = jobs.iter().map(|job| &job["devices"][0]);
    most(devices.map(|device| {
        let gpu = device["uuid"].as_str().expect("a name");
        (gpu, device["granted_bytes"].as_u64().expect("a number"))
    }))
}

/// Each job's numbers, and what set them.
fn numbers(rig: &Rig) -> Vec<String> {
    let line = |job: &Value| {
        let device = &job["devices"][0];
        let keys = ["uuid", "limit_bytes", "request_bytes", "limit_from", "request_from"];
        let numbers = keys.map(|key| device[key].to_string()).join(" ");
        format!("{} {numbers} {}", job["job"], job["terms"])
    };
    rig.jobs().iter().map(line).collect()
}

pub fn reloads(rig: &Rig) {
    let (count, rounds) = if tenth() == 1 { (64, 100) } else { (16, 12) };
    let mut host = Host::start(rig, &text(LOOSE));
    let start = |number: usize| {
        let gpu = ["0", "1"][number % 2];
        rig.client(&["-m", "1GiB", "--mem-request", "none", "-g", gpu])
    };
    let mut clients: Vec<Client> = (0..count).map(start).collect();
    for client in &mut clients {
        client.ready();
    }
    rig.wait_for_overhead();
    let watch = Watch::start(rig, LOOSE);
    // One of them only looks at its card.
    let (looker, busy) = clients.split_first_mut().expect("some");
    for (seed, client) in busy.iter_mut().enumerate() {
        client.expect(&format!("loopforever {} {}", 256 * MIB, seed + 1), "loopforever");
    }
    for round in 0..rounds {
        // Four steps: tight, broken, loose, broken. The answer to a reload comes once it holds.
        let holds = if round % 4 < 2 { TIGHT } else { LOOSE };
        if round % 2 == 1 {
            assert!(!host.reload(BROKEN), "a broken file is refused");
        } else {
            watch.allow(LOOSE);
            assert!(host.reload(&text(holds)), "a whole one is taken");
        }
        assert_eq!(looker.numbers("info")[2], holds.job, "round {round}");
        for job in rig.jobs() {
            assert_eq!(job["devices"][0]["limit_bytes"], holds.job, "round {round}: {job}");
        }
        // Who had more frees it in its own time, and from then on nobody has.
        rig.eventually(SOON, "all are within what holds", || {
            granted(&rig.jobs()).is_within(holds)
        });
        watch.allow(holds);
        if holds.job == LOOSE.job {
            rig.eventually(SOON, "what was asked is used again", || {
                !granted(&rig.jobs()).is_within(TIGHT)
            });
        }
    }
    let jobs = rig.jobs();
    assert_eq!(jobs.len(), count, "nobody died: {jobs:#?}");
    assert!(busy.iter_mut().all(|client| client.try_answer().is_none()));
    // The next broker has the same numbers.
    assert!(host.reload(&text(LOOSE)));
    let before = numbers(rig);
    let _ = host.broker.kill();
    let _ = host.broker.wait();
    host.broker = broker(rig);
    rig.eventually(SOON, "all jobs are known again", || rig.jobs().len() == count);
    assert_eq!(numbers(rig), before);
    let looks = watch.end().unwrap_or_else(|why| panic!("{why}"));
    rig.note(format!(
        "{count} programs, {rounds} reloads, {looks} looks at the driver's books"
    ));
    drop(clients);
    totals_are_whole(rig, &host);
}

/// Two jobs get all of a total, and not 512 bytes more.
fn totals_are_whole(rig: &Rig, host: &Host<'_>) {
    rig.eventually(SOON, "all are gone", || rig.jobs().is_empty());
    let small = Allowed { job: GIB, total: GIB };
    assert!(host.reload(&text(small)));
    let mut clients = [rig.client(&["-g", "0"]), rig.client(&["-g", "0"])];
    clients.iter_mut().for_each(Client::ready);
    rig.wait_for_overhead();
    let room = room_together(&mut clients, GIB);
    let sixty = room * 6 / 10 / 512 * 512;
    let [one, two] = &mut clients;
    one.expect(&format!("alloc {sixty} a"), "alloc 0");
    two.expect(&format!("alloc {} a", room - sixty), "alloc 0");
    one.expect("alloc 512 b", "alloc 2");
    two.expect("alloc 512 b", "alloc 2");
}
