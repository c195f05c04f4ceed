// SPDX-License-Identifier: Apache-2.0
//! Jobs that agreed are suspended for requests of a higher class, and come back by themselves.

use partage_policy::{Action, Event, Mark, Residence, Return, Ticket};
use partage_protocol::admin::{Reply, RunRequest};
use partage_protocol::units::{ClientId, GIB, JobId, SECOND_NS};

use crate::host::{Host, mem};
use crate::terms::why;

/// A request of this class.
pub fn of(class: &str, amount: &str) -> RunRequest {
    RunRequest {
        priority: Some(class.to_owned()),
        ..mem(amount)
    }
}

/// A job that uses so much of what it was promised, and has run for long enough.
pub fn at_work(host: &mut Host, request: RunRequest, gib: u64) -> (JobId, ClientId) {
    let (job, first) = host.admitted(1, request);
    let client = host.attach(job, first);
    assert!(host.allocate(client, 0, gib * GIB));
    host.pass(300 * SECOND_NS);
    (job, client)
}

fn say(host: &mut Host, job: JobId, residence: Residence) {
    let mark = Mark {
        residence,
        ..Mark::default()
    };
    let mark = Box::new(mark);
    host.step(Event::Residence { job, mark });
}

/// What the broker's engine does with the jobs that were told to leave or to come: each passage takes `TOOK_NS`.
#[derive(Default)]
pub struct Engine {
    /// Commands that it has seen.
    pub seen: usize,
    /// How often jobs left.
    pub swaps: usize,
}

pub const TOOK_NS: u64 = SECOND_NS / 2;

impl Engine {
    /// The jobs that were told to leave since it looked last.
    pub fn told(&mut self, host: &Host) -> Vec<JobId> {
        let new = host.commands[self.seen..].iter();
        let leave = new.filter_map(|command| match command {
            Action::Leave(job) => Some(*job),
            _ => None,
        });
        let told = leave.collect();
        self.seen = host.commands.len();
        told
    }

    /// Carries out whatever is to do, and what follows from that.
    pub fn work(&mut self, host: &mut Host) {
        while let Some(command) = host.commands.get(self.seen).cloned() {
            self.seen += 1;
            match command {
                Action::Leave(job) => self.leave(host, job),
                Action::Come(job) => come(host, job),
                _ => {}
            }
        }
    }

    fn leave(&mut self, host: &mut Host, job: JobId) {
        self.swaps += 1;
        say(host, job, Residence::Leaving);
        host.pass(TOOK_NS);
        let processes = host.policy.processes(job);
        host.policy.ledger_leave(job, &processes, &host.board, host.now_ns);
        say(host, job, Residence::Away);
        let end = Return::NoRoom("suspended".into());
        host.step(Event::Returned { job, end });
    }
}

fn come(host: &mut Host, job: JobId) {
    say(host, job, Residence::Coming);
    host.pass(TOOK_NS);
    let processes = host.policy.processes(job);
    host.policy.ledger_come(job, &processes, &host.board, host.now_ns);
    host.policy.ledger_back(job, &host.board, host.now_ns);
    say(host, job, Residence::Here);
    let end = Return::Back("back".into());
    host.step(Event::Returned { job, end });
}

fn reason_of(host: &Host, ticket: Ticket) -> String {
    match host.replies.get(&ticket).and_then(|said| said.last()) {
        Some(Reply::Waiting(waiting)) => waiting.reason.clone(),
        other => panic!("{other:?}"),
    }
}

/// Whoever stops or kills what is to send a job away keeps its memory, and not the room of a request: another one goes.
#[test]
fn where_one_stands_on_its_way_another_one_leaves() {
    let mut host = Host::new(&[12]);
    let (first, _) = at_work(&mut host, of("low", "6g"), 3);
    let (second, _) = at_work(&mut host, of("low", "6g"), 4);
    let mut engine = Engine::default();
    let (ticket, _) = host.run(2, of("high", "6g"));
    assert_eq!(engine.told(&host), [first], "the one with the fewest bytes");
    say(&mut host, first, Residence::Leaving);
    host.pass(60 * SECOND_NS);
    assert_eq!(engine.told(&host), [], "it is waited for");
    let why = "the driver does not answer".to_owned();
    host.step(Event::Stuck { job: first, why });
    assert_eq!(engine.told(&host), [second], "another one leaves in its stead");
    engine.leave(&mut host, second);
    assert!(host.job_of(ticket).is_some(), "admitted once the second had left");
}

#[test]
fn a_low_job_leaves_for_a_high_one_and_comes_back_by_itself() {
    let mut host = Host::new(&[8]);
    let (low, client) = at_work(&mut host, of("low", "6g"), 4);
    let mut engine = Engine::default();
    let (ticket, first) = host.run(2, of("high", "6g"));
    assert_eq!(reason_of(&host, ticket), format!("{low} leaves the GPU"));
    engine.work(&mut host);
    let high = host.job_of(ticket).expect("admitted once the other had left");
    assert_eq!(host.state_of(low), "suspended");
    let texts = why(&host, 1, low);
    assert!(
        texts.iter().any(|text| text.contains(&format!("suspended for {high}"))),
        "{texts:?}"
    );
    assert!(
        texts.iter().any(|text| text.contains("to come back: the job needs")),
        "{texts:?}"
    );
    host.finish(high, first);
    host.pass(6 * SECOND_NS);
    engine.work(&mut host);
    assert_eq!((host.state_of(low), engine.swaps), ("running".into(), 1));
    assert_eq!(host.used(client, 0), 4 * GIB);
    assert!(host.allocate(client, 0, GIB), "its promise holds again");
}

#[test]
fn only_jobs_that_agreed_and_are_of_a_lower_class_leave() {
    let agreed = |class, preemptible| RunRequest {
        preemptible: Some(preemptible),
        ..of(class, "6g")
    };
    for (holder, class, leaves) in [
        (of("low", "6g"), "normal", true),
        (of("low", "6g"), "low", false),
        (of("normal", "6g"), "high", false),
        (of("high", "6g"), "realtime", false),
        (agreed("low", false), "high", false),
        (agreed("normal", true), "high", true),
        (agreed("normal", true), "normal", false),
        (agreed("high", true), "normal", false),
    ] {
        let mut host = Host::new(&[8]);
        let words = format!("{holder:?} for {class}");
        let (job, _) = at_work(&mut host, holder, 4);
        let mut engine = Engine::default();
        engine.told(&host);
        host.run(2, of(class, "6g"));
        let told = if leaves { vec![job] } else { Vec::new() };
        assert_eq!(engine.told(&host), told, "{words}");
    }
}

#[test]
fn the_fewest_bytes_that_suffice_leave() {
    type Row = (&'static [(&'static str, u64)], &'static str, &'static [usize]);
    // Promise and use of each job, what is asked on a device of 16 GiB, and which are to leave.
    let table: [Row; 5] = [
        (&[("4g", 1), ("4g", 3), ("4g", 2)], "6g", &[0]),
        (&[("4g", 1), ("4g", 3), ("4g", 2)], "10g", &[0, 2]),
        (&[("2g", 1), ("6g", 4), ("6g", 3)], "7g", &[2]),
        (&[("5g", 2), ("5g", 2), ("6g", 5)], "6g", &[0, 1]),
        (&[("8g", 3), ("3g", 1), ("3g", 1)], "6g", &[1, 2]),
    ];
    for (holders, asked, expected) in table {
        let mut host = Host::new(&[16]);
        let mut engine = Engine::default();
        let jobs = holders
            .iter()
            .map(|(promise, gib)| at_work(&mut host, of("low", promise), *gib).0);
        let jobs: Vec<JobId> = jobs.collect::<Vec<_>>();
        engine.told(&host);
        let (ticket, _) = host.run(2, of("high", asked));
        let expected: Vec<JobId> = expected.iter().map(|place| jobs[*place]).collect();
        assert_eq!(engine.told(&host), expected, "{holders:?} for {asked}");
        // Asked again while they leave, no other is sent after them.
        host.pass(SECOND_NS);
        assert!(engine.told(&host).is_empty());
        assert!(reason_of(&host, ticket).contains(" the GPU"));
    }
}

#[test]
fn of_many_victims_none_leaves_that_is_not_needed() {
    let mut host = Host::new(&[32]);
    let mut engine = Engine::default();
    for _ in 0..12 {
        at_work(&mut host, of("low", "2g"), 1);
    }
    engine.told(&host);
    host.run(2, of("high", "14g"));
    // 8 GiB are free.
    assert_eq!(engine.told(&host).len(), 3);
}

#[test]
fn a_job_runs_ten_times_what_a_swap_takes_before_it_leaves() {
    let mut host = Host::new(&[8]);
    let (low, first) = host.admitted(1, of("low", "6g"));
    let client = host.attach(low, first);
    assert!(host.allocate(client, 0, 4 * GIB));
    let mut engine = Engine::default();
    let (ticket, first) = host.run(2, of("high", "6g"));
    // 1.1 s and 1.43 ms for each of its 4,096 MiB, and the overhead: some 7 s.
    host.pass(60 * SECOND_NS);
    assert!(engine.told(&host).is_empty(), "it began just now");
    host.pass(20 * SECOND_NS);
    engine.seen = 0;
    engine.work(&mut host);
    let high = host.job_of(ticket).expect("admitted");
    host.finish(high, first);
    host.pass(6 * SECOND_NS);
    engine.work(&mut host);
    assert_eq!(host.state_of(low), "running");
    // From now on what the way took counts: twice half a second, ten times.
    host.run(2, of("high", "6g"));
    host.pass(9 * SECOND_NS);
    engine.work(&mut host);
    assert_eq!(host.state_of(low), "running");
    host.pass(SECOND_NS);
    engine.work(&mut host);
    assert_eq!((host.state_of(low), engine.swaps), ("suspended".into(), 2));
}

#[test]
fn who_cannot_leave_is_asked_again_after_a_minute_and_another_one_leaves_instead() {
    let mut host = Host::new(&[16]);
    let (tied, _) = at_work(&mut host, of("low", "6g"), 1);
    let (other, _) = at_work(&mut host, of("low", "6g"), 2);
    let mut engine = Engine::default();
    engine.told(&host);
    host.run(2, of("high", "8g"));
    assert_eq!(engine.told(&host), [tied]);
    let why = "it shares memory by IPC".to_owned();
    host.step(Event::NotLeft { job: tied, why });
    assert_eq!(engine.told(&host), [other]);
    let why = "likewise".to_owned();
    host.step(Event::NotLeft { job: other, why });
    host.pass(59 * SECOND_NS);
    assert!(engine.told(&host).is_empty());
    host.pass(SECOND_NS);
    assert_eq!(engine.told(&host), [tied]);
}

#[test]
fn what_is_short_of_time_alone_preempts_nobody() {
    let mut host = Host::new(&[16]);
    let share = |class, part: &str| RunRequest {
        compute: Some(part.to_owned()),
        ..of(class, "4g")
    };
    at_work(&mut host, share("low", "80%"), 1);
    let mut engine = Engine::default();
    engine.told(&host);
    host.run(2, share("high", "50%"));
    assert!(engine.told(&host).is_empty());
}

#[test]
fn a_command_decides_whether_it_comes_back() {
    let mut host = Host::new(&[8]);
    let (low, _) = at_work(&mut host, of("low", "6g"), 4);
    let mut engine = Engine::default();
    let (ticket, first) = host.run(2, of("high", "6g"));
    engine.work(&mut host);
    host.step(Event::Stays(low));
    let high = host.job_of(ticket).expect("admitted");
    host.finish(high, first);
    host.pass(600 * SECOND_NS);
    engine.work(&mut host);
    assert_eq!(host.state_of(low), "suspended", "a `suspend` keeps it away");
    assert_eq!(host.policy.waiting_jobs(), 0);
}

#[test]
fn the_next_broker_knows_that_it_is_to_come_back() {
    let mut host = Host::new(&[8]);
    let (low, _) = at_work(&mut host, of("low", "6g"), 4);
    let mut engine = Engine::default();
    host.run(2, of("high", "6g"));
    engine.work(&mut host);
    let records = host.records();
    host.restart(records);
    assert_eq!(host.state_of(low), "suspended");
    assert_eq!(host.policy.waiting_jobs(), 1);
}

/// The run waited at a broker that died, and asks the next one after it took over what left.
#[test]
fn the_next_broker_leaves_the_room_to_the_run_that_asks_again() {
    for asks in [true, false] {
        let mut host = Host::new(&[8]);
        let (low, client) = at_work(&mut host, of("low", "6g"), 4);
        let mut engine = Engine::default();
        host.run(2, of("high", "6g"));
        engine.work(&mut host);
        let mut records = host.records();
        records.retain(|record| record.id == low.0);
        host.restart(records);
        let process = host.programs[&client].process;
        host.step(Event::Reattach {
            client,
            process,
            are_pages_lost: false,
        });
        host.measure();
        engine.told(&host);
        host.pass(2 * SECOND_NS);
        let again = asks.then(|| host.run(2, of("high", "6g")).0);
        host.pass(20 * SECOND_NS);
        engine.work(&mut host);
        let state = if asks { "suspended" } else { "running" };
        assert_eq!(host.state_of(low), state);
        assert!(again.is_none_or(|ticket| host.job_of(ticket).is_some()));
    }
}

/// What it left with is what it needs again, before anybody measured what it holds beyond its charges.
#[test]
fn a_job_that_leaves_again_at_once_needs_as_much_room() {
    let mut host = Host::new(&[8]);
    let (low, client) = at_work(&mut host, of("low", "6g"), 4);
    assert!(host.make_context(client, 0, GIB / 2));
    for _ in 0..2 {
        say(&mut host, low, Residence::Leaving);
        let processes = host.policy.processes(low);
        host.policy.ledger_leave(low, &processes, &host.board, host.now_ns);
        say(&mut host, low, Residence::Away);
        assert_eq!(host.policy.returning_bytes(low, &host.board), 4 * GIB + GIB / 2);
        say(&mut host, low, Residence::Coming);
        host.policy.ledger_come(low, &processes, &host.board, host.now_ns);
        host.policy.ledger_back(low, &host.board, host.now_ns);
        say(&mut host, low, Residence::Here);
    }
    host.measure();
    assert_eq!(host.policy.returning_bytes(low, &host.board), 4 * GIB + GIB / 2);
}

#[test]
fn a_way_that_began_under_another_broker_is_not_taken_for_a_long_one() {
    let mut host = Host::new(&[8]);
    let (low, _) = at_work(&mut host, of("low", "6g"), 4);
    say(&mut host, low, Residence::Leaving);
    let records = host.records();
    host.restart(records);
    let processes = host.policy.processes(low);
    host.policy.ledger_leave(low, &processes, &host.board, host.now_ns);
    say(&mut host, low, Residence::Away);
    come(&mut host, low);
    host.pass(80 * SECOND_NS);
    host.measure();
    let mut engine = Engine::default();
    engine.told(&host);
    host.run(2, of("high", "6g"));
    assert_eq!(engine.told(&host), [low], "what a swap of 4 GiB takes is guessed");
}

#[test]
fn nobody_starves_however_many_requests_come() {
    let mut host = Host::new(&[8]);
    let mut engine = Engine::default();
    let (low, first) = host.admitted(1, of("low", "6g"));
    let client = host.attach(low, first);
    assert!(host.allocate(client, 0, 4 * GIB));
    let mut waiting = Vec::new();
    let mut running: Option<(JobId, partage_policy::Process, u64)> = None;
    let (mut here, mut served, mut random) = (0_u32, 0_u32, 7_u64);
    for second in 0..4_000_u64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        if second % 60 == 0 {
            waiting.push(host.run(2, of("high", "6g")));
        }
        if let Some((job, first, until)) = running
            && second >= until
        {
            host.finish(job, first);
            running = None;
        }
        host.pass(SECOND_NS);
        engine.work(&mut host);
        if running.is_none()
            && let Some(at) = waiting.iter().position(|(ticket, _)| host.job_of(*ticket).is_some())
        {
            let (ticket, first) = waiting.remove(at);
            let job = host.job_of(ticket).expect("admitted");
            running = Some((job, first, second + 5 + (random >> 33) % 20));
            served += 1;
        }
        here += u32::from(host.state_of(low) == "running");
    }
    assert!(here > 1_200, "the low job was there for {here} of 4000 seconds");
    assert!(
        served > 50,
        "{served} of {} requests were served",
        served as usize + waiting.len()
    );
    // Twice half a second for each, and it ran ten times that before.
    assert!(
        engine.swaps as u32 * 10 <= here + 10,
        "{} swaps in {here} s",
        engine.swaps
    );
}
