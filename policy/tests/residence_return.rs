// SPDX-License-Identifier: Apache-2.0
//! A job that is away waits in the queue to come back: its turn, its patience, and what others get meanwhile.

use partage_policy::{Action, Event, Mark, Residence, Return, Stage, TargetQuery, Ticket};
use partage_protocol::admin::{ErrorCode, Reply};
use partage_protocol::units::{ClientId, GIB, JobId, SECOND_NS};

use crate::host::{Host, OVERHEAD, caller, mem};
use crate::terms::why;

fn say(host: &mut Host, job: JobId, residence: Residence) {
    let mark = Mark {
        residence,
        ..Mark::default()
    };
    host.step(Event::Residence {
        job,
        mark: Box::new(mark),
    });
}

/// A job of 6 GiB on a device of 8, with 4 in use, that is away.
fn away(host: &mut Host) -> (JobId, ClientId) {
    let (job, first) = host.admitted(1, mem("6g"));
    let client = host.attach(job, first);
    assert!(host.allocate(client, 0, 4 * GIB));
    say(host, job, Residence::Leaving);
    let process = host.policy.processes(job);
    let now_ns = host.now_ns;
    host.policy.ledger_leave(job, &process, &host.board, now_ns);
    assert_eq!(host.board.value(client, 0, 0), 0, "L");
    assert_eq!(host.board.value(client, 0, OVERHEAD), 0);
    say(host, job, Residence::Away);
    (job, client)
}

/// A `resume`; answers its ticket.
fn resume(host: &mut Host, job: JobId, is_patient: bool, timeout_ns: Option<u64>) -> Ticket {
    let ticket = Ticket(host.fresh());
    host.step(Event::Resume {
        ticket,
        caller: caller(1),
        target: TargetQuery {
            text: job.to_string(),
            descends_from: None,
        },
        is_patient,
        timeout_ns,
    });
    ticket
}

/// The jobs that were told to come back so far.
fn coming(host: &Host) -> Vec<JobId> {
    let come = |action: &Action| match action {
        Action::Come(job) => Some(*job),
        _ => None,
    };
    host.commands.iter().filter_map(come).collect()
}

fn said(host: &Host, ticket: Ticket) -> Vec<Reply> {
    host.replies.get(&ticket).cloned().unwrap_or_default()
}

/// What the broker does with a job that may come back.
fn come(host: &mut Host, job: JobId, client: ClientId) {
    say(host, job, Residence::Coming);
    let processes = host.policy.processes(job);
    let now_ns = host.now_ns;
    host.policy.ledger_come(job, &processes, &host.board, now_ns);
    assert!(
        host.board.value(client, 0, 0) >= 4 * GIB,
        "L before the driver is asked"
    );
    assert_eq!(host.board.value(client, 0, 1), 0, "G after it");
    host.policy.ledger_back(job, &host.board, now_ns);
    say(host, job, Residence::Here);
    host.check();
}

#[test]
fn with_room_a_job_comes_at_once_and_has_what_it_had() {
    let mut host = Host::new(&[8]);
    let (job, client) = away(&mut host);
    let ticket = resume(&mut host, job, true, None);
    assert_eq!(coming(&host), [job]);
    assert!(said(&host, ticket).is_empty(), "what it comes to is the answer");
    come(&mut host, job, client);
    let end = Return::Back("back".into());
    host.step(Event::Returned { job, end });
    let message = "back".to_owned();
    assert_eq!(said(&host, ticket), [Reply::Done { message }]);
    assert_eq!(host.state_of(job), "running");
    assert!(host.allocate(client, 0, 2 * GIB), "its promise holds again");
    let ticket = resume(&mut host, job, true, None);
    let message = format!("{job} is not suspended");
    assert_eq!(said(&host, ticket), [Reply::Done { message }]);
}

#[test]
fn without_room_it_waits_or_fails_as_asked_and_says_who_holds_what() {
    let mut host = Host::new(&[8]);
    let (job, client) = away(&mut host);
    let (other, first) = host.admitted(2, mem("5g"));
    let short = "the job needs 6 GiB on GPU 0, which has 3 GiB left for it";
    let hasty = resume(&mut host, job, false, None);
    let error = host.error_of(hasty);
    assert_eq!(error.code, ErrorCode::NoRoom);
    assert_eq!(error.message, format!("{job} stays suspended: {short}"));
    assert_eq!(error.holders[0].who, other.to_string());
    let limited = resume(&mut host, job, true, Some(2 * SECOND_NS));
    let [Reply::Waiting(waiting)] = &said(&host, limited)[..] else {
        panic!("{:?}", said(&host, limited));
    };
    assert_eq!((waiting.position, waiting.reason.as_str()), (1, short));
    let waits = "it waits since ";
    assert!(
        why(&host, 1, job)
            .iter()
            .any(|text| text.starts_with(waits) && text.ends_with(short))
    );
    host.pass(3 * SECOND_NS);
    assert_eq!(
        host.error_of(limited).message,
        format!("{job} stays suspended: no room within 3s: {short}")
    );
    resume(&mut host, job, true, None);
    host.finish(other, first);
    host.pass(6 * SECOND_NS);
    assert_eq!(coming(&host), [job]);
    come(&mut host, job, client);
}

#[test]
fn later_requests_do_not_delay_it_and_it_delays_no_earlier_one() {
    let mut host = Host::new(&[8]);
    let (job, _) = away(&mut host);
    let (holder, first) = host.admitted(2, mem("5g"));
    let (earlier, _) = host.run(3, mem("4g"));
    assert!(host.is_waiting(earlier));
    resume(&mut host, job, true, None);
    let (later, _) = host.run(4, mem("2g"));
    assert!(
        host.is_waiting(later),
        "2 of 3 GiB are left, and both before it wait for them"
    );
    host.finish(holder, first);
    host.pass(6 * SECOND_NS);
    assert!(!host.is_waiting(earlier), "it asked first");
    assert!(host.is_waiting(later));
    assert!(coming(&host).is_empty(), "4 of 8 GiB are left for 6");
    let job_of = host.job_of(earlier).expect("admitted");
    let process = host.policy.processes(job_of)[0];
    host.finish(job_of, process);
    host.pass(6 * SECOND_NS);
    assert_eq!(coming(&host), [job]);
    assert!(!host.is_waiting(later), "2 GiB are left beside it");
}

#[test]
fn who_gives_up_leaves_the_queue_and_a_job_that_ended_comes_no_more() {
    let mut host = Host::new(&[8]);
    let (job, client) = away(&mut host);
    let (other, first) = host.admitted(2, mem("5g"));
    let ticket = resume(&mut host, job, true, None);
    host.step(Event::TicketGone(ticket));
    host.finish(other, first);
    host.pass(6 * SECOND_NS);
    assert!(coming(&host).is_empty());
    let (other, first) = host.admitted(2, mem("5g"));
    let ticket = resume(&mut host, job, true, None);
    host.kill(client);
    for process in host.policy.processes(job) {
        host.step(Event::ProcessGone(process));
    }
    host.pass(6 * SECOND_NS);
    host.pass(SECOND_NS);
    assert_eq!(host.error_of(ticket).code, ErrorCode::NoTarget);
    host.finish(other, first);
    host.pass(6 * SECOND_NS);
    assert!(coming(&host).is_empty());
}

#[test]
fn a_return_that_found_no_room_on_the_device_is_tried_again_after_a_while() {
    let mut host = Host::new(&[8]);
    let (job, _) = away(&mut host);
    let ticket = resume(&mut host, job, true, None);
    assert_eq!(coming(&host).len(), 1);
    // Another joins that does not wait.
    let hasty = resume(&mut host, job, false, None);
    let end = Return::NoRoom("GPU 0 is full".into());
    host.step(Event::Returned { job, end });
    assert_eq!(
        host.error_of(hasty).message,
        format!("{job} stays suspended: GPU 0 is full")
    );
    assert_eq!(coming(&host).len(), 1, "not at once");
    let [Reply::Waiting(waiting)] = &said(&host, ticket)[..] else {
        panic!("{:?}", said(&host, ticket));
    };
    assert_eq!(waiting.reason, "GPU 0 is full");
    host.pass(SECOND_NS / 2);
    assert_eq!(coming(&host).len(), 1);
    for tries in 2..6 {
        host.pass(SECOND_NS);
        assert_eq!(coming(&host).len(), tries);
        let end = Return::NoRoom("GPU 0 is full".into());
        host.step(Event::Returned { job, end });
    }
    assert_eq!(said(&host, ticket).len(), 1, "it hears once a minute");
    // Nobody waits any more: it is not tried again.
    host.step(Event::TicketGone(ticket));
    host.pass(2 * SECOND_NS);
    assert_eq!(coming(&host).len(), 5);
}

#[test]
fn several_commands_wait_for_one_return_each_as_long_as_it_was_told() {
    let mut host = Host::new(&[8]);
    let (job, client) = away(&mut host);
    let (other, first) = host.admitted(2, mem("5g"));
    let one = resume(&mut host, job, true, None);
    let two = resume(&mut host, job, true, Some(SECOND_NS));
    let three = resume(&mut host, job, false, None);
    assert_eq!(host.error_of(three).code, ErrorCode::NoRoom);
    host.pass(2 * SECOND_NS);
    assert_eq!(host.error_of(two).code, ErrorCode::NoRoom);
    host.finish(other, first);
    host.pass(6 * SECOND_NS);
    assert_eq!(coming(&host), [job]);
    come(&mut host, job, client);
    let late = resume(&mut host, job, true, None);
    let text = format!("{job} is not suspended");
    assert_eq!(said(&host, late), [Reply::Done { message: text }]);
    let end = Return::Back("it is back".into());
    host.step(Event::Returned { job, end });
    let message = "it is back".to_owned();
    assert_eq!(said(&host, one).last(), Some(&Reply::Done { message }));
}

#[test]
fn while_its_hold_closes_a_job_is_served_as_ever() {
    let mut host = Host::new(&[8]);
    let (job, first) = host.admitted(1, mem("6g"));
    let client = host.attach(job, first);
    assert!(host.allocate(client, 0, GIB));
    for stage in [Stage::HoldSoft, Stage::Barrier, Stage::NobodyInside, Stage::Lock] {
        let mark = Mark {
            residence: Residence::Leaving,
            stage: Some(stage),
            ..Mark::default()
        };
        host.step(Event::Residence {
            job,
            mark: Box::new(mark),
        });
        assert!(host.allocate(client, 0, GIB), "{stage:?}");
    }
    say(&mut host, job, Residence::Leaving);
    assert!(!host.allocate(client, 0, GIB), "nobody is in the driver any more");
}

#[test]
fn what_a_job_had_comes_back_under_a_limit_that_was_set_below_it_meanwhile() {
    let mut host = Host::new(&[8]);
    let (job, client) = away(&mut host);
    let reply = host.set(1, &job.to_string(), "1g");
    assert!(matches!(reply, Reply::Job(_)), "{reply:?}");
    resume(&mut host, job, true, None);
    assert_eq!(coming(&host), [job]);
    come(&mut host, job, client);
    assert_eq!(host.used(client, 0), 4 * GIB);
    assert_eq!(host.state_of(job), "over limit");
    assert!(
        !host.allocate(client, 0, GIB / 2),
        "nothing is taken, and nothing more is given"
    );
    host.free(client, 0, 4 * GIB);
    host.pass(2 * SECOND_NS);
    assert!(host.allocate(client, 0, GIB / 2));
}

#[test]
fn a_command_does_not_wait_longer_than_it_was_told_for_a_job_that_does_not_arrive() {
    let mut host = Host::new(&[8]);
    let (job, _) = away(&mut host);
    let ticket = resume(&mut host, job, true, Some(SECOND_NS));
    assert_eq!(coming(&host), [job]);
    host.pass(2 * SECOND_NS);
    assert_eq!(host.error_of(ticket).message, format!("{job} is still coming back"));
    let end = Return::NoRoom("GPU 0 is full".into());
    host.step(Event::Returned { job, end });
    host.pass(2 * SECOND_NS);
    assert_eq!(coming(&host), [job], "nobody waits for it any more");
}

#[test]
fn a_job_that_stands_on_its_way_keeps_no_command_waiting_and_says_at_what() {
    let mut host = Host::new(&[8]);
    let (job, client) = away(&mut host);
    let ticket = resume(&mut host, job, true, None);
    say(&mut host, job, Residence::Coming);
    let stuck = || Event::Stuck {
        job,
        why: "no answer in time".into(),
    };
    host.step(stuck());
    let text = format!("{job} stands on its way: no answer in time; it goes on by itself once that is over");
    assert_eq!(host.error_of(ticket).message, text);
    host.step(stuck());
    let is_said = |action: &Action| matches!(action, Action::Publish { kind: "job-stuck", .. });
    let times = host.commands.iter().filter(|command| is_said(command)).count();
    assert_eq!(times, 1, "what is tried again and again is said once");
    let stands = "it stands there: no answer in time; it goes on by itself once that is over".to_owned();
    assert!(why(&host, 1, job).contains(&stands), "{:?}", why(&host, 1, job));
    come(&mut host, job, client);
    let end = Return::Back("back".into());
    host.step(Event::Returned { job, end });
    assert_eq!(said(&host, ticket).len(), 1, "it was answered");
    assert!(!why(&host, 1, job).contains(&stands));
}
