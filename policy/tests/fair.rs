// SPDX-License-Identifier: Apache-2.0
//! `[admission] order = "fair"`: who is next, in single steps and in simulated weeks.

use std::collections::BTreeMap;

use crate::host::{Host, mem};
use crate::measured_time::measured;
use crate::rules_in_use::{host, new_rules};
use partage_policy::{Action, Config, Event, JobTime, Order, Policy, Process, QueueRules, Rules, Split, Ticket};
use partage_protocol::admin::{Reply, RunRequest};
use partage_protocol::units::{GIB, JobId, SECOND_NS};

const MINUTE: u64 = 60 * SECOND_NS;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

fn config(order: Order) -> Config {
    Config {
        is_private: false,
        queue: QueueRules {
            order,
            ..QueueRules::default()
        },
        ..Config::default()
    }
}

fn fair(gib: &[u64]) -> Host {
    let mut host = Host::new(gib);
    host.policy = Policy::new(config(Order::Fair));
    host.enumerate();
    host.measure();
    host
}

fn reload(host: &mut Host, order: Order) {
    let new = Config {
        queue: config(order).queue,
        ..Config::default()
    };
    host.step(Event::Rules(Box::new(new)));
}

fn of_class(class: &str, amount: &str) -> RunRequest {
    RunRequest {
        priority: Some(class.to_owned()),
        ..mem(amount)
    }
}

/// The job of a request that waits: requests get their numbers in order.
fn waits(host: &mut Host, uid: u32, request: RunRequest) -> JobId {
    host.now_ns += SECOND_NS;
    let before: Vec<JobId> = host.policy.queue().collect();
    let (ticket, _) = host.run(uid, request);
    assert!(host.is_waiting(ticket), "{:?}", host.replies.get(&ticket));
    let mut new = host.policy.queue().filter(|id| !before.contains(id));
    new.next().expect("it is in the queue")
}

fn order(host: &Host) -> Vec<JobId> {
    host.policy.queue().collect()
}

fn charged(job: JobId, used_ns: u64) -> JobTime {
    JobTime {
        used_ns,
        ..measured(job)
    }
}

#[test]
fn class_then_what_the_user_had_then_age() {
    let mut host = fair(&[8]);
    let (holder, _) = host.admitted(1, mem("8GiB"));
    host.step(Event::Time(vec![charged(holder, 10 * SECOND_NS)]));
    let [old, low] = [mem("8GiB"), of_class("low", "8GiB")].map(|request| waits(&mut host, 1, request));
    let [bobs, bobs_next] = [(); 2].map(|()| waits(&mut host, 2, mem("8GiB")));
    let high = waits(&mut host, 1, of_class("high", "8GiB"));
    assert_eq!(order(&host), [high, bobs, bobs_next, old, low]);
    // After a day age alone counts.
    host.pass(DAY - 3 * SECOND_NS);
    assert_eq!(order(&host), [old, low, high, bobs, bobs_next]);
    host.pass(10 * SECOND_NS);
    assert_eq!(order(&host), [old, low, bobs, bobs_next, high]);
    // And always, where the order is that of arrival.
    reload(&mut host, Order::Arrival);
    assert_eq!(order(&host), [old, low, bobs, bobs_next, high]);
}

#[test]
fn a_reload_changes_the_order_of_those_that_wait() {
    let mut host = fair(&[8]);
    reload(&mut host, Order::Arrival);
    let (holder, _) = host.admitted(1, mem("8GiB"));
    host.step(Event::Time(vec![charged(holder, 10 * SECOND_NS)]));
    let first = waits(&mut host, 1, mem("8GiB"));
    let second = waits(&mut host, 2, mem("8GiB"));
    assert_eq!(order(&host), [first, second]);
    reload(&mut host, Order::Fair);
    assert_eq!(order(&host), [second, first], "what was had before counts, too");
    reload(&mut host, Order::Arrival);
    assert_eq!(order(&host), [first, second]);
}

#[test]
fn a_job_that_is_alone_counts_by_what_nvml_shows_of_it() {
    let mut host = fair(&[8]);
    let (job, process) = host.admitted(1, mem("4GiB"));
    let client = host.attach(job, process);
    assert!(host.allocate(client, 0, GIB));
    let (idle, idle_process) = host.admitted(2, mem("4GiB"));
    let idle_client = host.attach(idle, idle_process);
    assert!(host.allocate(idle_client, 0, GIB));
    host.busy.extend([(process.pid, 500_000), (idle_process.pid, 0)]);
    let old = waits(&mut host, 1, mem("8GiB"));
    let new = waits(&mut host, 2, mem("8GiB"));
    for _ in 0..3 {
        host.now_ns += SECOND_NS;
        host.measure();
    }
    assert_eq!(order(&host), [new, old]);
    // Where NVML shows no figure it is taken to have all of the time.
    host.busy.remove(&idle_process.pid);
    for _ in 0..9 {
        host.now_ns += SECOND_NS;
        host.measure();
    }
    assert_eq!(order(&host), [old, new]);
}

#[test]
fn the_next_broker_goes_on_with_what_users_had() {
    let mut host = fair(&[8]);
    let (holder, _) = host.admitted(1, mem("8GiB"));
    host.now_ns += HOUR;
    host.step(Event::Time(vec![charged(holder, 600 * SECOND_NS)]));
    let saved = host.usage();
    assert_eq!((saved.len(), saved[0].uid, saved[0].gpu_ns), (1, 1, 600 * SECOND_NS));
    let records = host.records();
    host.restart(records);
    reload(&mut host, Order::Fair);
    let first = waits(&mut host, 1, mem("8GiB"));
    let second = waits(&mut host, 2, mem("8GiB"));
    assert_eq!(order(&host), [second, first]);
}

#[test]
fn a_dry_run_says_what_a_run_would_meet_at_its_place() {
    let mut host = fair(&[8]);
    let (holder, _) = host.admitted(1, mem("4GiB"));
    host.step(Event::Time(vec![charged(holder, 10 * SECOND_NS)]));
    waits(&mut host, 1, mem("8GiB"));
    let mut say = |uid| {
        let request = RunRequest {
            dry_run: true,
            ..mem("4GiB")
        };
        let (ticket, _) = host.run(uid, request);
        match host.replies[&ticket].last() {
            Some(Reply::Done { message }) => message.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert!(say(1).starts_with("would wait"), "behind its user's own request");
    assert!(say(2).starts_with("would start now"), "before a user's that had more");
    host.admitted(2, mem("4GiB"));
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn between(&mut self, from: u64, to: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        from + (z ^ (z >> 31)) % (to - from + 1)
    }
}

/// Virtual time passes in steps of this length.
const STEP: u64 = 5 * MINUTE;

/// What a user always wants: so many requests in the queue, of jobs that run for so many steps at most.
#[derive(Clone, Copy)]
struct Wants {
    uid: u32,
    waiting: usize,
    most_steps: u64,
    class: &'static str,
}

struct Running {
    job: JobId,
    process: Process,
    uid: u32,
    since_ns: u64,
    until_ns: u64,
}

/// A device on which so many jobs run at once, in virtual time.
struct Weeks {
    host: Host,
    random: Random,
    mem: &'static str,
    running: Vec<Running>,
    waiting: Vec<(Ticket, Process, Wants, u64)>,
    /// Device time by user, and the longest wait by user of those that were admitted.
    had: BTreeMap<u32, u64>,
    longest_ns: BTreeMap<u32, u64>,
}

impl Weeks {
    fn new(mem: &'static str, seed: u64) -> Self {
        println!("seed {seed}");
        Self {
            host: fair(&[8]),
            random: Random(seed),
            mem,
            running: Vec::new(),
            waiting: Vec::new(),
            had: BTreeMap::new(),
            longest_ns: BTreeMap::new(),
        }
    }

    fn go(&mut self, users: &[Wants], ns: u64) {
        let end = self.host.now_ns + ns;
        while self.host.now_ns < end {
            for wants in users {
                while self.waiting.iter().filter(|wait| wait.2.uid == wants.uid).count() < wants.waiting {
                    let (ticket, process) = self.host.run(wants.uid, of_class(wants.class, self.mem));
                    self.waiting.push((ticket, process, *wants, self.host.now_ns));
                    self.see_admitted();
                }
            }
            self.step();
        }
    }

    fn step(&mut self) {
        self.host.now_ns += STEP;
        let now = self.host.now_ns;
        assert!(!self.running.is_empty(), "the device is never idle");
        // What runs at once has even parts of the device: here of four, as many as there are at most.
        let views = self
            .running
            .iter()
            .map(|run| charged(run.job, (now - run.since_ns) / 4));
        let views = views.collect();
        for run in &self.running {
            *self.had.entry(run.uid).or_default() += STEP;
        }
        self.host.step(Event::Time(views));
        let (over, on): (Vec<Running>, Vec<Running>) = std::mem::take(&mut self.running)
            .into_iter()
            .partition(|run| now >= run.until_ns);
        self.running = on;
        for run in over {
            self.host.step(Event::ProcessGone(run.process));
            self.see_admitted();
        }
        self.host.commands.clear();
    }

    fn see_admitted(&mut self) {
        let now = self.host.now_ns;
        for (ticket, process, wants, since) in std::mem::take(&mut self.waiting) {
            let Some(job) = self.host.job_of(ticket) else {
                self.waiting.push((ticket, process, wants, since));
                continue;
            };
            let longest = self.longest_ns.entry(wants.uid).or_default();
            *longest = (now - since).max(*longest);
            let until_ns = now + self.random.between(1, wants.most_steps) * STEP;
            self.running.push(Running {
                job,
                process,
                uid: wants.uid,
                since_ns: now,
                until_ns,
            });
        }
    }

    /// A user's part of all that was had.
    fn part(&self, uid: u32) -> f64 {
        let all: u64 = self.had.values().sum();
        self.had.get(&uid).copied().unwrap_or(0) as f64 / all as f64
    }

    /// The longest wait that there was, and is.
    fn longest_wait(&self) -> u64 {
        let waiting = self.waiting.iter().map(|wait| self.host.now_ns - wait.3);
        self.longest_ns.values().copied().chain(waiting).max().unwrap_or(0)
    }
}

fn wants(uid: u32, waiting: usize) -> Wants {
    Wants {
        uid,
        waiting,
        most_steps: 6,
        class: "normal",
    }
}

#[test]
fn two_users_who_want_all_have_half_each_however_many_requests_they_make() {
    // One at a time, and four at once.
    for (mem, seed) in [("8GiB", 1), ("2GiB", 2)] {
        let mut weeks = Weeks::new(mem, seed);
        weeks.go(&[wants(1, 4), wants(2, 20)], 14 * DAY);
        let part = weeks.part(1);
        println!("{mem}: {part}");
        assert!((part - 0.5).abs() <= 0.02, "{mem}: {part}");
        assert!(weeks.longest_wait() < DAY, "{}", weeks.longest_wait());
    }
}

#[test]
fn no_job_waits_for_ever() {
    let mut weeks = Weeks::new("8GiB", 3);
    let low = Wants {
        class: "low",
        ..wants(3, 2)
    };
    weeks.go(&[wants(1, 3), wants(2, 9), low], 21 * DAY);
    let longest = weeks.longest_wait();
    println!("{:?}, at most {} h", weeks.had, longest / HOUR);
    assert!(weeks.part(3) > 0.0, "a lower class is served after a day");
    // The jobs before it, and whatever runs: each takes half an hour at most.
    assert!(longest <= DAY + 2 * HOUR, "{longest}");
    assert!(weeks.longest_ns[&3] >= DAY, "and no sooner");
}

#[test]
fn a_reload_tells_every_job_whose_time_it_shares() {
    let mut host = host(Rules::default());
    let jobs = [1, 2].map(|uid| host.admitted(uid, mem("")).0);
    let told = |commands: &[Action]| -> Vec<(JobId, Option<u32>)> {
        let shown = commands.iter().filter_map(|command| match command {
            Action::ShowTerms { job, terms, .. } => Some((*job, terms.user)),
            _ => None,
        });
        shown.collect()
    };
    assert_eq!(told(&host.commands), jobs.map(|job| (job, None)));
    let mut say = |split| {
        let new = Config {
            split,
            ..new_rules(Rules::default())
        };
        told(&host.step(Event::Rules(Box::new(new))))
    };
    assert_eq!(say(Split::User), [(jobs[0], Some(1)), (jobs[1], Some(2))]);
    assert_eq!(say(Split::User), [], "nothing is told where nothing changed");
    assert_eq!(say(Split::Job), jobs.map(|job| (job, None)));
}
