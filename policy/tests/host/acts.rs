// SPDX-License-Identifier: Apache-2.0
//! Things that can happen on a host, for searches and random sequences, and what must hold after each.

use partage_policy::{Event, Process};
use partage_protocol::admin::{Reply, RunRequest};
use partage_protocol::units::{ClientId, GIB, JobId, SECOND_NS};

use crate::host::{Host, broker_view, caller, mem, uuid};

/// One thing; indices are taken modulo what is there.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    Run {
        uid: u32,
        mem: &'static str,
        request: Option<&'static str>,
        gpu: &'static str,
        wait: bool,
    },
    /// A process of the n-th live job attaches: its first one, or a child.
    Attach {
        job: usize,
        is_child: bool,
    },
    Allocate {
        client: usize,
        slot: usize,
        bytes: u64,
    },
    FreeAll {
        client: usize,
    },
    Kill {
        client: usize,
    },
    /// A context or module, announced and measured.
    Context {
        client: usize,
        slot: usize,
        bytes: u64,
    },
    /// What the driver holds beyond the charges changes without a word, and is measured some time.
    Drift {
        client: usize,
        slot: usize,
        bytes: u64,
    },
    FirstGone {
        job: usize,
    },
    Set {
        job: usize,
        mem: &'static str,
    },
    Stop {
        job: usize,
    },
    Measure,
    Stranger {
        device: u8,
        bytes: u64,
    },
    Pass {
        seconds: u64,
    },
}

pub struct LiveJob {
    pub id: JobId,
    pub first: Process,
    pub uid: u32,
    pub promised: Vec<u64>,
    pub clients: usize,
}

impl Host {
    pub fn live_jobs(&self) -> Vec<LiveJob> {
        let Reply::Ps { jobs, .. } = self.policy.ps(&caller(0), false, &self.board) else {
            panic!("ps")
        };
        let live = jobs.into_iter().filter(|job| job.state != "waiting");
        live.map(|job| LiveJob {
            id: JobId(job.job.trim_start_matches('j').parse().expect("a job id")),
            // `Host::run` gives first processes equal pid and start.
            first: Process {
                pid: job.pid,
                start: u64::from(job.pid),
            },
            uid: job.uid,
            promised: job.devices.iter().map(|device| device.request_bytes).collect(),
            clients: job.clients.len(),
        })
        .collect()
    }

    fn nth_client(&self, at: usize) -> Option<ClientId> {
        let clients: Vec<_> = self.programs.keys().copied().collect();
        clients.get(at % clients.len().max(1)).copied()
    }

    /// Does it; answers whether it was possible.
    pub fn act(&mut self, act: &Act) -> bool {
        let jobs = self.live_jobs();
        let nth = |at: usize| jobs.get(at % jobs.len().max(1));
        match act {
            Act::Run {
                uid,
                mem: amount,
                request,
                gpu,
                wait,
            } => {
                let mem_request = request.map(str::to_owned);
                let request = RunRequest {
                    mem_request,
                    gpu: Some((*gpu).into()),
                    wait: *wait,
                    ..mem(amount)
                };
                self.run(*uid, request);
            }
            Act::Attach { job, is_child } => {
                let Some(job) = nth(*job) else { return false };
                let number = self.fresh();
                let child = Process {
                    pid: number as u32,
                    start: number,
                };
                self.attach(job.id, if *is_child { child } else { job.first });
            }
            Act::Allocate { client, slot, bytes } => return self.allocate_and_judge(*client, *slot, *bytes),
            Act::FreeAll { client } => {
                let Some(client) = self.nth_client(*client) else {
                    return false;
                };
                for slot in 0..self.programs[&client].devices.len() {
                    self.free(client, slot, self.used(client, slot));
                }
            }
            Act::Kill { client } => {
                let Some(client) = self.nth_client(*client) else {
                    return false;
                };
                self.kill(client);
            }
            Act::Context { client, slot, bytes } => {
                let Some(client) = self.nth_client(*client) else {
                    return false;
                };
                let slot = slot % self.programs[&client].devices.len();
                // Until it was measured nobody knows what it takes.
                self.is_excused = true;
                let stayed = self.make_context(client, slot, *bytes);
                self.job_is_within_its_limit(client, slot, stayed);
            }
            Act::Drift { client, slot, bytes } => {
                let Some(client) = self.nth_client(*client) else {
                    return false;
                };
                let slot = slot % self.programs[&client].devices.len();
                self.is_excused = true;
                self.change_beyond(client, slot, |_| *bytes);
                self.measure();
                self.overhead_is_what_the_driver_holds();
            }
            Act::FirstGone { job } => {
                let Some(job) = nth(*job) else { return false };
                self.step(Event::ProcessGone(job.first));
            }
            Act::Set { job, mem } => {
                let Some(job) = nth(*job) else { return false };
                let (id, uid) = (job.id.to_string(), job.uid);
                self.set(uid, &id, mem);
            }
            Act::Stop { job } => {
                let Some(job) = nth(*job) else { return false };
                let ticket = partage_policy::Ticket(self.fresh());
                let target = partage_policy::TargetQuery {
                    text: job.id.to_string(),
                    descends_from: None,
                };
                self.step(Event::Stop {
                    ticket,
                    caller: caller(job.uid),
                    target,
                    grace_ns: SECOND_NS,
                });
            }
            Act::Measure => {
                self.measure();
                self.nobody_waits_beside_room();
            }
            Act::Stranger { device, bytes } => {
                self.is_excused = true;
                self.strangers.insert(u32::from(*device), (uuid(*device), *bytes, None));
                self.measure();
            }
            Act::Pass { seconds } => self.pass(seconds * SECOND_NS),
        }
        true
    }

    /// A job that keeps within its promise is never denied.
    fn allocate_and_judge(&mut self, client: usize, slot: usize, bytes: u64) -> bool {
        let Some(client) = self.nth_client(client) else {
            return false;
        };
        let program = self.programs[&client].clone();
        let slot = slot % program.devices.len();
        let members = self.programs.values().filter(|other| other.job == program.job);
        let used: u64 = members.map(|other| self.used(other.client, slot)).sum();
        let job = self
            .live_jobs()
            .into_iter()
            .find(|job| job.id == program.job)
            .expect("its job lives");
        let is_promised = used + bytes <= job.promised[slot];
        let got = self.allocate(client, slot, bytes);
        assert!(
            got || !is_promised || self.is_excused,
            "{bytes} more than {used} was promised and denied"
        );
        self.check();
        true
    }

    /// A context stays only where the job has room for it; then everything it uses is within its limit.
    fn job_is_within_its_limit(&self, client: ClientId, slot: usize, stayed: bool) {
        let job = self.programs[&client].job;
        let view = self.policy.job_view(job, &caller(0), &self.board).expect("known");
        let device = &view.devices[slot];
        let limit = device.limit_bytes.unwrap_or(u64::MAX);
        assert!(!stayed || device.used_bytes <= limit, "{device:?}");
        assert_eq!(self.overhead(client, slot), self.programs[&client].beyond[slot]);
    }

    /// At rest the job's use is the driver's figure.
    fn overhead_is_what_the_driver_holds(&self) {
        for program in self.programs.values() {
            for (slot, beyond) in program.beyond.iter().enumerate() {
                assert_eq!(self.overhead(program.client, slot), *beyond, "{program:?}");
            }
        }
    }

    /// On a host with one device: the first in the queue really does not fit.
    fn nobody_waits_beside_room(&self) {
        let status = self.policy.status(broker_view(), self.now_ns, &self.board);
        let ([device], Some(first)) = (status.devices.as_slice(), status.queue.first()) else {
            return;
        };
        // Without a limit the view does not tell the promise.
        let Some(mem) = &first.mem else { return };
        let amount = partage_protocol::size::parse_amount(mem)
            .expect("judged before")
            .on(device.usable_bytes);
        // A request may be smaller than the limit; then this says less, never more.
        let left = device.usable_bytes.saturating_sub(device.committed_bytes);
        assert!(amount > left, "{first:?} waits with {left} left");
    }
}

/// Everything that the small search tries in every state.
pub fn small_alphabet() -> Vec<Act> {
    let run = |mem, request| Act::Run {
        uid: 1,
        mem,
        request,
        gpu: "auto",
        wait: true,
    };
    vec![
        run("50%", None),
        run("", None),
        run("100%", Some("25%")),
        Act::Attach {
            job: 0,
            is_child: false,
        },
        Act::Attach {
            job: 1,
            is_child: false,
        },
        Act::Attach { job: 1, is_child: true },
        Act::Allocate {
            client: 0,
            slot: 0,
            bytes: 2 * GIB,
        },
        Act::Allocate {
            client: 1,
            slot: 0,
            bytes: 2 * GIB,
        },
        Act::FreeAll { client: 0 },
        Act::FreeAll { client: 1 },
        Act::Kill { client: 0 },
        Act::FirstGone { job: 0 },
        Act::Set { job: 0, mem: "75%" },
        Act::Measure,
        Act::Pass { seconds: 5 },
    ]
}
