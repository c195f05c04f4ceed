// SPDX-License-Identifier: Apache-2.0
//! Totals of several jobs where one comes back to its device or moves to another one.

use crate::host::{Host, caller, mem, uuid};
use crate::rules_in_use::{gib, host as ruled_host, reload, written};
use crate::totals::{each_user, memory};
use partage_policy::{Action, Event, Exchange, Mark, Place, Residence, Rules, Target, TargetQuery, Ticket, Total};
use partage_protocol::admin::{Reply, RunRequest};
use partage_protocol::units::{ClientId, GIB, JobId, SECOND_NS};

fn mark(residence: Residence) -> Mark {
    Mark {
        residence,
        ..Mark::default()
    }
}

fn say(host: &mut Host, job: JobId, mark: Mark) {
    let mark = Box::new(mark);
    host.step(Event::Residence { job, mark });
}

/// A job that uses so much.
fn job(host: &mut Host, uid: u32, request: RunRequest, bytes: u64) -> (JobId, ClientId) {
    let (job, first) = host.admitted(uid, request);
    let client = host.attach(job, first);
    assert!(host.allocate(client, 0, bytes));
    (job, client)
}

fn suspend(host: &mut Host, job: JobId) {
    say(host, job, mark(Residence::Leaving));
    let processes = host.policy.processes(job);
    host.policy.ledger_leave(job, &processes, &host.board, host.now_ns);
    say(host, job, mark(Residence::Away));
}

fn resume(host: &mut Host, job: JobId) -> Ticket {
    let ticket = Ticket(host.fresh());
    let target = TargetQuery {
        text: job.to_string(),
        descends_from: None,
    };
    host.step(Event::Resume {
        ticket,
        caller: caller(1),
        target,
        is_patient: true,
        timeout_ns: None,
    });
    ticket
}

/// What was said last of why it waits.
fn reason(host: &Host, ticket: Ticket) -> String {
    let said = |reply: &Reply| match reply {
        Reply::Waiting(waiting) => Some(waiting.reason.clone()),
        _ => None,
    };
    let mut all = host.replies[&ticket].iter().rev();
    all.find_map(said).expect("it waits")
}

fn comes(host: &Host, job: JobId) -> bool {
    let is_it = |action: &Action| matches!(action, Action::Come(other) if *other == job);
    host.commands.iter().any(is_it)
}

fn why_not_back(host: &Host, job: JobId) -> Option<String> {
    let asked = host.policy.ask_room(job, Place::Source, None, &host.board);
    asked.err().map(|shortage| shortage.to_string())
}

/// Devices of 16 GiB.
fn devices(count: u32, total: Total) -> Host {
    let mut host = ruled_host(each_user(total));
    for index in 1..count {
        let mut seen = host.devices[0].clone();
        (seen.index, seen.uuid) = (index, uuid(index as u8 + 1));
        host.devices.push(seen);
    }
    host.enumerate();
    host.measure();
    host
}

fn on(gpu: &str, request: RunRequest) -> RunRequest {
    RunRequest {
        gpu: Some(gpu.into()),
        ..request
    }
}

fn to(device: u8) -> Exchange {
    let target = Target {
        slot: 0,
        device: uuid(device),
    };
    Exchange { from: uuid(1), target }
}

/// Why a job on GPU 0 cannot move; in the command, and in the passage alike.
fn why_not_there(host: &Host, job: JobId, device: u8) -> Option<String> {
    let early = host.policy.room_to_move(job, to(device), &host.board);
    let target = Some(to(device).target);
    let asked = host.policy.ask_room(job, Place::Target, target, &host.board);
    assert_eq!(early.is_err(), asked.is_err());
    early.err().map(|why| why.view().message)
}

fn half_of_the_time() -> Total {
    Total {
        compute_promise: Some(written(500_000, "50%", 9)),
        ..Total::default()
    }
}

fn part(part: &str) -> RunRequest {
    RunRequest {
        compute: Some(part.into()),
        ..mem("")
    }
}

#[test]
fn a_job_comes_back_only_where_its_totals_have_room_and_waits_in_nobodys_way() {
    let mut host = ruled_host(each_user(memory(5)));
    let (away, client) = job(&mut host, 1, mem(""), 4 * GIB);
    suspend(&mut host, away);
    let (_, sibling) = job(&mut host, 1, mem(""), 4 * GIB);
    let ticket = resume(&mut host, away);
    assert!(!comes(&host, away), "8 GiB of 5");
    let words = "the rule students, each_user.mem = 5GiB (/etc/partage/partage.toml:12) leaves 1 GiB on GPU 0 for it; \
                 held by j2 4 GiB";
    assert_eq!(reason(&host, ticket), words);
    // 12 GiB are free: nothing of them is kept for it.
    let others = [2, 3].map(|uid| host.admitted(uid, mem("5GiB")));
    for (other, first) in others {
        host.finish(other, first);
    }
    host.pass(10 * SECOND_NS);
    assert!(!comes(&host, away));
    host.free(sibling, 0, 3 * GIB);
    host.pass(SECOND_NS);
    assert!(comes(&host, away), "its own memory is not in its way");
    say(&mut host, away, mark(Residence::Coming));
    assert_eq!(why_not_back(&host, away), None, "nor is its own claim");
    assert!(!host.allocate(sibling, 0, GIB), "claimed");
    let processes = host.policy.processes(away);
    host.policy.ledger_come(away, &processes, &host.board, host.now_ns);
    host.policy.ledger_back(away, &host.board, host.now_ns);
    say(&mut host, away, mark(Residence::Here));
    assert!(crate::totals::held(&host, &[client, sibling]) <= 5 * GIB);
}

#[test]
fn what_a_total_was_promised_counts_against_a_return_and_one_that_was_lowered_starves_nobody() {
    let mut host = ruled_host(each_user(memory(8)));
    let (away, _) = job(&mut host, 1, mem("6GiB"), GIB);
    suspend(&mut host, away);
    let (sibling, first) = host.admitted(1, mem("4GiB"));
    let text = why_not_back(&host, away).expect("10 GiB of 8 would be promised");
    assert!(
        text.contains("leaves 4 GiB on GPU 0 for it; held by j2 4 GiB"),
        "{text}"
    );
    host.finish(sibling, first);
    host.pass(10 * SECOND_NS);
    assert_eq!(why_not_back(&host, away), None);

    let mut host = ruled_host(Rules::default());
    let (away, _) = job(&mut host, 1, mem(""), 6 * GIB);
    suspend(&mut host, away);
    reload(&mut host, each_user(memory(4)));
    assert_eq!(why_not_back(&host, away), None, "it has the total to itself");
    let (_, sibling) = job(&mut host, 1, mem(""), GIB);
    assert!(why_not_back(&host, away).is_some());
    host.free(sibling, 0, GIB);
    host.pass(SECOND_NS);
    assert_eq!(why_not_back(&host, away), None);
}

#[test]
fn a_job_moves_only_where_its_totals_of_memory_have_room() {
    let mut host = devices(2, memory(5));
    let (moving, _) = job(&mut host, 1, on("0", mem("")), 4 * GIB);
    let (_, sibling) = job(&mut host, 1, on("1", mem("")), 2 * GIB);
    let (_, other) = job(&mut host, 2, on("1", mem("")), 3 * GIB);
    let words = "j1 stays on GPU 0: the rule students, each_user.mem = 5GiB (/etc/partage/partage.toml:12) leaves 3 \
                 GiB on GPU 1 for it; held by j2 2 GiB";
    assert_eq!(why_not_there(&host, moving, 2).as_deref(), Some(words));
    host.free(sibling, 0, GIB);
    host.pass(SECOND_NS);
    assert_eq!(why_not_there(&host, moving, 2), None, "another user's are no matter");
    let claimed = Mark {
        target: Some(to(2).target),
        holds_target: true,
        ..mark(Residence::Moving)
    };
    say(&mut host, moving, claimed);
    assert_eq!(why_not_there(&host, moving, 2), None, "its own claim");
    assert!(!host.allocate(sibling, 0, GIB) && host.allocate(other, 0, GIB));
}

#[test]
fn promised_time_of_a_total_is_asked_for_again_by_a_return_and_a_move() {
    let mut host = devices(2, half_of_the_time());
    let (away, _) = job(&mut host, 1, on("0", part("30%")), GIB);
    suspend(&mut host, away);
    let (sibling, first) = host.admitted(1, on("0", part("30%")));
    let ticket = resume(&mut host, away);
    let words = "the rule students, each_user.compute = 50% (/etc/partage/partage.toml:9) leaves 20 % of the time of \
                 GPU 0 for it";
    assert_eq!((comes(&host, away), reason(&host, ticket).as_str()), (false, words));
    host.finish(sibling, first);
    host.pass(SECOND_NS);
    assert!(comes(&host, away));

    let mut host = devices(2, half_of_the_time());
    let (moving, _) = job(&mut host, 1, on("0", part("30%")), GIB);
    host.admitted(2, on("1", part("30%")));
    assert_eq!(why_not_there(&host, moving, 2), None);
    host.admitted(1, on("1", part("30%")));
    let text = why_not_there(&host, moving, 2).expect("60 % of 50");
    assert!(text.contains("leaves 20 % of the time of GPU 1 for it"), "{text}");
}

#[test]
fn a_move_does_not_bring_jobs_onto_more_gpus_than_their_total() {
    let gpus = |most| Total {
        gpus: Some(written(most, &most.to_string(), 7)),
        mem: Some(gib(16)),
        ..Total::default()
    };
    let mut host = devices(3, gpus(1));
    let (moving, _) = job(&mut host, 1, on("0", mem("")), GIB);
    assert_eq!(why_not_there(&host, moving, 2), None, "it leaves one for another");
    let (sibling, _) = job(&mut host, 1, on("0", mem("")), GIB);
    let words = "j1 stays on GPU 0: the rule students, each_user.gpus = 1 (/etc/partage/partage.toml:7): its jobs are \
                 on GPU 0";
    assert_eq!(why_not_there(&host, moving, 2).as_deref(), Some(words));

    reload(&mut host, each_user(gpus(2)));
    job(&mut host, 1, on("0", mem("")), GIB);
    assert_eq!(why_not_there(&host, moving, 2), None);
    let claimed = Mark {
        target: Some(to(2).target),
        holds_target: true,
        ..mark(Residence::Moving)
    };
    say(&mut host, moving, claimed);
    assert_eq!(why_not_there(&host, moving, 2), None, "its own claim");
    assert!(why_not_there(&host, sibling, 3).is_some(), "the third one");
    assert_eq!(why_not_there(&host, sibling, 2), None, "where one goes already");
}

#[test]
fn while_a_job_moves_nobody_of_its_total_begins_where_it_may_not_be_in_the_end() {
    let gpus = Total {
        gpus: Some(written(1, "1", 7)),
        ..Total::default()
    };
    let mut host = devices(2, gpus);
    let (moving, _) = job(&mut host, 1, on("0", mem("")), GIB);
    let way = |is_placed| Mark {
        target: Some(to(2).target),
        holds_target: true,
        is_placed,
        ..mark(Residence::Moving)
    };
    say(&mut host, moving, way(false));
    let ((old, _), (new, _)) = (host.run(1, on("0", mem(""))), host.run(1, on("1", mem(""))));
    assert!(host.is_waiting(old) && host.is_waiting(new));
    say(&mut host, moving, way(true));
    say(&mut host, moving, mark(Residence::Here));
    host.pass(SECOND_NS);
    assert!(host.is_waiting(old) && !host.is_waiting(new));
}
