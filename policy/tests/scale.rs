// SPDX-License-Identifier: Apache-2.0
//! What asks, attaches, views and reloads cost with 1,000 jobs of 50 users under 200 rules.
//!
//! `cargo test --release -p partage-policy --test policy -- --ignored --nocapture scale` prints the times, which depend
//! on the machine. What does not is tested always: how often the clients' words are read for an ask.

use std::time::Instant;

use crate::host::{Counted, Host, USED, caller, mem, uuid};
use crate::rules_in_use::{gib, new_rules, written};
use partage_policy::{
    Attaching, Books, Config, DeviceSeen, Event, Match, Max, Measurement, Membership, Pattern, Policy, Process, Rule,
    Rules, Run, Ticket, Total,
};
use partage_protocol::admin::RunRequest;
use partage_protocol::units::{ClientId, GIB, JobId};

const USERS: u32 = 50;

/// So many rules about users, groups, paths and programs; the last few have totals of each user.
fn rules(count: usize, with_totals: usize) -> Rules {
    let pattern = |text: String| Some(vec![Pattern(text)]);
    let rule = |number: usize| {
        let matching = match number % 4 {
            0 => Match {
                user: pattern(format!("{}", number % USERS as usize)),
                ..Match::default()
            },
            1 => Match {
                group: pattern(format!("group{number}*")),
                ..Match::default()
            },
            2 => Match {
                cgroup: pattern(format!("/lab{number}/*")),
                ..Match::default()
            },
            _ => Match {
                program: pattern(format!("train{number}?")),
                ..Match::default()
            },
        };
        Rule {
            name: format!("rule{number}"),
            matching,
            max: Max {
                mem: Some(gib(60)),
                ..Max::default()
            },
            ..Rule::default()
        }
    };
    let total = |number: usize| Rule {
        name: format!("total{number}"),
        each_user: Total {
            mem: Some(gib(40 + number as u64)),
            compute_promise: Some(written(900_000, "90%", 7)),
            gpus: Some(written(16, "16", 8)),
            jobs: Some(written(1_000, "1000", 9)),
        },
        ..Rule::default()
    };
    Rules {
        rules: (0..count - with_totals)
            .map(rule)
            .chain((0..with_totals).map(total))
            .collect(),
        ..Rules::default()
    }
}

fn config(rules: Rules) -> Config {
    Config {
        is_private: false,
        rules,
        ..Config::default()
    }
}

struct Crowd {
    host: Host,
    clients: Vec<ClientId>,
    fresh: u64,
}

impl Crowd {
    /// So many jobs with a client each, of 50 users in turns, on GPUs of 80 GiB; each uses a little.
    fn new(gpus: u8, jobs: u64, rules: Rules) -> Self {
        let mut host = Host::new(&[]);
        host.devices = (0..gpus)
            .map(|index| DeviceSeen {
                uuid: uuid(index + 1),
                index: index.into(),
                model: "H200".into(),
                total_bytes: 80 * GIB,
                is_unified: false,
                reserve_bytes: 0,
                minor: None,
            })
            .collect();
        host.policy = Policy::new(config(rules));
        host.enumerate();
        host.measure();
        let mut crowd = Self {
            host,
            clients: Vec::new(),
            fresh: 10_000,
        };
        for number in 0..jobs {
            let uid = 1 + number as u32 % USERS;
            let job = crowd.run(
                uid,
                &RunRequest {
                    gpu: Some(format!("{}", number % u64::from(gpus))),
                    ..mem("")
                },
            );
            let client = crowd.attach(uid, Some(job));
            crowd.clients.push(client);
        }
        // So that no job has all of its total.
        for client in crowd.clients.clone() {
            crowd.host.board.set(client, 0, USED, 64 << 20);
        }
        crowd
    }

    fn step(&mut self, event: Event) {
        for command in self.host.policy.step(self.host.now_ns, event, &self.host.board) {
            if let partage_policy::Action::ForgetClient(client) = command {
                self.host.board.rows.remove(&client);
            }
        }
    }

    fn number(&mut self) -> u64 {
        self.fresh += 1;
        self.fresh
    }

    /// Asks for a job; answers the number that it has, where it is admitted or waits.
    fn run(&mut self, uid: u32, request: &RunRequest) -> JobId {
        let number = self.number();
        let mut token = [0; 32];
        token[..8].copy_from_slice(&number.to_le_bytes());
        let process = Process {
            pid: number as u32,
            start: number,
        };
        let run = Run {
            ticket: Ticket(number),
            caller: partage_policy::Caller { process, ..caller(uid) },
            request: request.clone(),
            token,
            cgroup: None,
            other_cgroups: Vec::new(),
            registered: None,
            groups: vec![format!("users{uid}"), "everybody".into()],
            unix_ns: 0,
        };
        self.step(Event::Run(Box::new(run)));
        self.host.policy.live().last().unwrap_or(JobId(0))
    }

    fn attach(&mut self, uid: u32, job: Option<JobId>) -> ClientId {
        let number = self.number();
        let client = ClientId(number);
        self.host.board.rows.insert(client, Default::default());
        let attaching = Attaching {
            client,
            process: Process {
                pid: number as u32,
                start: number,
            },
            uid,
            user: uid.to_string(),
            unix_ns: 0,
            fresh_token: [9; 32],
            membership: Membership {
                by_kernel: job,
                scope: format!("/user-{uid}"),
                ..Membership::default()
            },
        };
        self.step(Event::Attach(Box::new(attaching)));
        client
    }

    fn ask(&mut self, client: ClientId, wanted: u64) {
        self.step(ask(client, wanted));
    }
}

fn ask(client: ClientId, wanted: u64) -> Event {
    Event::Ask {
        client,
        slot: 0,
        wanted,
        request: wanted,
        sequence: 1,
    }
}

/// Prints the median time of an event in microseconds, and the longest one's.
// It measures, and nothing is judged by what it measures.
#[expect(clippy::disallowed_methods)]
fn say(crowd: &mut Crowd, what: &str, count: usize, mut event: impl FnMut(&mut Crowd, usize)) {
    let time = |number| {
        let start = Instant::now();
        event(crowd, number);
        start.elapsed().as_secs_f64() * 1e6
    };
    let mut times: Vec<f64> = (0..count).map(time).collect();
    times.sort_by(f64::total_cmp);
    println!(
        "  {what}: {:.0} us, at most {:.0} us",
        times[count / 2],
        times[count - 1]
    );
}

#[test]
#[ignore = "prints times of this machine"]
fn what_events_cost_with_a_thousand_jobs() {
    for (gpus, jobs, count, totals) in [
        (8, 1_000, 0, 0),
        (8, 1_000, 200, 5),
        (1, 1_000, 200, 5),
        (8, 100, 200, 5),
    ] {
        let rules = |shift: usize| {
            let mut rules = rules(count, totals);
            let count = rules.rules.len().max(1);
            rules.rules.rotate_left(shift % count);
            rules
        };
        let mut crowd = Crowd::new(gpus, jobs, rules(0));
        println!("{jobs} jobs of {USERS} users on {gpus} GPUs, {count} rules, {totals} with each_user");
        measure(&mut crowd, gpus, rules);
    }
}

fn measure(crowd: &mut Crowd, gpus: u8, rules: impl Fn(usize) -> Rules) {
    let clients = crowd.clients.clone();
    let nth = |n: usize| clients[n * 7 % clients.len()];
    say(crowd, "an ask beyond the ceiling", 200, |crowd, n| {
        crowd.ask(nth(n), (8 << 30) + ((n as u64) << 20));
    });
    say(crowd, "an ask that a total denies", 200, |crowd, n| {
        crowd.ask(nth(n), (39 << 30) + ((n as u64) << 20));
    });
    say(crowd, "a measurement of a GPU", 20, |crowd, n| {
        crowd.step(Event::Measured(Measurement {
            device: uuid(1 + n as u8 % gpus),
            used_bytes: 10 * GIB,
            free_bytes: 70 * GIB,
            processes: Vec::new(),
            telemetry: partage_policy::Telemetry::default(),
        }));
    });
    let jobs: Vec<JobId> = crowd.host.policy.live().collect();
    say(crowd, "an attach to a job", 50, |crowd, n| {
        crowd.attach(1 + n as u32 % USERS, Some(jobs[n % jobs.len()]));
    });
    say(crowd, "the first process of a scope without run", 20, |crowd, n| {
        crowd.attach(1_000 + n as u32, None);
    });
    say(crowd, "a reload", 10, |crowd, n| {
        crowd.step(Event::Rules(Box::new(new_rules(rules(1 + n)))));
    });
    let request = RunRequest {
        gpu: Some("auto:1".into()),
        ..mem("75GiB")
    };
    say(crowd, "a request that waits", 100, |crowd, n| {
        crowd.run(1 + n as u32 % USERS, &request);
    });
    println!("  {} jobs wait", crowd.host.policy.queue().count());
    say(crowd, "queue", 10, |crowd, _| {
        drop(
            crowd
                .host
                .policy
                .queue_view(&caller(0), crowd.host.now_ns, &crowd.host.board),
        );
    });
    say(crowd, "a copy of the books", 50, |crowd, _| {
        drop(Books::clone(&crowd.host.policy))
    });
    say(crowd, "a page of ps", 20, |crowd, _| {
        drop(crowd.host.policy.ps(&caller(0), false, &crowd.host.board));
    });
    say(crowd, "a tick", 10, |crowd, _| crowd.step(Event::Tick));
}

#[test]
fn an_ask_looks_at_its_devices_jobs_however_many_rules_there_are() {
    let looks = |rules: Rules| {
        let mut crowd = Crowd::new(2, 60, rules);
        let client = crowd.clients[7];
        let counted = Counted::new(&crowd.host.board);
        let _ = crowd
            .host
            .policy
            .step(crowd.host.now_ns, ask(client, 2 * GIB), &counted);
        counted.looks.get()
    };
    let (few, many) = (looks(rules(2, 1)), looks(rules(200, 5)));
    assert_eq!(few, many);
}
