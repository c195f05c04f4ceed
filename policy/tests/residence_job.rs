// SPDX-License-Identifier: Apache-2.0
//! What the rest of the policy makes of a job that is not on its devices: room, promises, audit, time limit, records.

use partage_policy::{Action, Event, JobRecord, Mark, Place, Process, Residence, Shortage, Stage, Target};
use partage_protocol::admin::RunRequest;
use partage_protocol::units::{ClientId, GIB, JobId, SECOND_NS};

use crate::host::{Host, OVERHEAD, USED, mem, uuid};
use crate::terms::why;

fn mark(residence: Residence) -> Mark {
    Mark {
        residence,
        ..Mark::default()
    }
}

/// A passage says where the job is; answers the record that is to be written.
fn say(host: &mut Host, job: JobId, mark: Mark) -> JobRecord {
    let mark = Box::new(mark);
    let commands = host.step(Event::Residence { job, mark });
    let saved = commands.into_iter().find_map(|command| match command {
        Action::SaveJob(record) => Some(*record),
        _ => None,
    });
    saved.expect("a record")
}

/// A promised job of 6 GiB on a device of 8, with 4 in use.
fn promised(host: &mut Host) -> (JobId, ClientId) {
    let request = RunRequest {
        time_limit_ns: Some(60 * SECOND_NS),
        ..mem("6g")
    };
    let (job, first) = host.admitted(1, request);
    let client = host.attach(job, first);
    assert!(host.allocate(client, 0, 4 * GIB));
    (job, client)
}

/// `LedgerLeave`.
fn leave(host: &mut Host, job: JobId) {
    let processes = host.policy.processes(job);
    host.policy.ledger_leave(job, &processes, &host.board, host.now_ns);
}

/// `LedgerCome` and `LedgerBack`.
fn come(host: &mut Host, job: JobId) {
    let processes = host.policy.processes(job);
    host.policy.ledger_come(job, &processes, &host.board, host.now_ns);
    host.policy.ledger_back(job, &host.board, host.now_ns);
}

#[test]
fn memory_and_promise_of_an_away_job_are_free_and_return_only_where_there_is_room() {
    let mut host = Host::new(&[8]);
    let (job, client) = promised(&mut host);
    assert!(host.policy.ask_room(job, Place::Source, None, &host.board).is_ok());
    say(&mut host, job, mark(Residence::Leaving));
    assert_eq!(host.policy.returning_bytes(job, &host.board), 4 * GIB);
    assert_eq!(host.state_of(job), "suspending");
    leave(&mut host, job);
    say(&mut host, job, mark(Residence::Away));
    assert_eq!(host.state_of(job), "suspended");
    assert!(why(&host, 1, job)[0].starts_with("it is suspended: its 4 GiB are in host memory"));
    // Another job takes what it was promised.
    let (other, _) = host.admitted(2, mem("5g"));
    let short = host.policy.ask_room(job, Place::Source, None, &host.board);
    let (needed, left) = (6 * GIB, 3 * GIB);
    let gpu = "GPU 0".to_owned();
    assert_eq!(short, Err(Shortage::Memory(gpu, needed, left)));
    assert_eq!(
        short.expect_err("short").to_string(),
        "the job needs 6 GiB on GPU 0, which has 3 GiB left for it"
    );
    let end = host.policy.processes(other)[0];
    host.step(Event::ProcessGone(end));
    host.pass(6 * SECOND_NS);
    assert!(host.policy.ask_room(job, Place::Source, None, &host.board).is_ok());
    say(&mut host, job, mark(Residence::Coming));
    assert_eq!(host.state_of(job), "resuming");
    // From the claim on nobody else gets it.
    let (ticket, _) = host.run(2, mem("5g"));
    assert!(host.is_waiting(ticket));
    come(&mut host, job);
    let record = say(&mut host, job, Mark::default());
    assert_eq!(record.residence.mark, Mark::default());
    assert_eq!(host.state_of(job), "running");
    assert!(host.allocate(client, 0, 2 * GIB), "its promise holds again");
}

#[test]
fn what_a_process_had_that_dies_on_its_way_is_nobodys() {
    for (residence, has_left) in [(Residence::Leaving, false), (Residence::Coming, true)] {
        let mut host = Host::new(&[8]);
        let (job, first) = host.admitted(1, RunRequest::default());
        let one = host.attach(job, first);
        let second = Process { pid: 9_999, start: 1 };
        let other = host.attach(job, second);
        assert!(host.allocate(one, 0, 3 * GIB) && host.allocate(other, 0, 2 * GIB));
        say(&mut host, job, mark(Residence::Leaving));
        if has_left {
            leave(&mut host, job);
            say(&mut host, job, mark(Residence::Away));
        }
        say(&mut host, job, mark(residence));
        assert_eq!(host.policy.returning_bytes(job, &host.board), 5 * GIB);
        host.kill(other);
        assert_eq!(host.policy.returning_bytes(job, &host.board), 3 * GIB, "{residence:?}");
    }
}

#[test]
fn a_time_limit_stands_still_while_the_job_is_away_and_under_the_next_broker() {
    let mut host = Host::new(&[8]);
    let (job, _) = promised(&mut host);
    let ends = |host: &Host| {
        let is_signal = |action: &Action| matches!(action, Action::SignalJob { .. });
        host.commands.iter().filter(|command| is_signal(command)).count()
    };
    host.pass(20 * SECOND_NS);
    say(&mut host, job, mark(Residence::Leaving));
    leave(&mut host, job);
    let record = say(&mut host, job, mark(Residence::Away));
    host.pass(1_000 * SECOND_NS);
    assert_eq!(ends(&host), 0);
    assert_eq!(record.residence.absent_ns(record.residence.since_unix_ns + 7), 7);
    say(&mut host, job, mark(Residence::Coming));
    come(&mut host, job);
    let record = say(&mut host, job, Mark::default());
    assert_eq!(record.residence.paused_ns, 1_000 * SECOND_NS);
    host.pass(39 * SECOND_NS);
    assert_eq!(ends(&host), 0);
    host.pass(2 * SECOND_NS);
    assert_eq!(ends(&host), 1);
}

#[test]
fn what_nvml_shows_of_an_away_job_is_held_against_nobody() {
    let mut host = Host::new(&[8]);
    let (job, client) = promised(&mut host);
    say(&mut host, job, mark(Residence::Leaving));
    leave(&mut host, job);
    say(&mut host, job, mark(Residence::Away));
    // Its page still says what it used, and NVML shows nothing of it any more.
    assert_eq!(host.board.value(client, 0, USED), 4 * GIB);
    host.programs.remove(&client);
    for _ in 0..10 {
        host.pass(SECOND_NS);
        host.measure();
    }
    let is_drift = |action: &Action| matches!(action, Action::KillProcess(_) | Action::Publish { kind: "drift", .. });
    assert!(!host.commands.iter().any(is_drift));
    assert_eq!(host.board.value(client, 0, OVERHEAD), 0);
}

#[test]
fn a_move_claims_its_target_and_then_has_it() {
    let mut host = Host::new(&[8, 8]);
    let (job, _) = promised(&mut host);
    let target = Target {
        slot: 0,
        device: uuid(2),
    };
    assert!(
        host.policy
            .ask_room(job, Place::Target, Some(target), &host.board)
            .is_ok()
    );
    let moving = Mark {
        stage: Some(Stage::HoldHard),
        target: Some(target),
        holds_target: true,
        ..mark(Residence::Moving)
    };
    let record = say(&mut host, job, moving.clone());
    assert_eq!(record.devices[0].device, uuid(1));
    assert_eq!(host.state_of(job), "moving");
    let (ticket, _) = host.run(2, mem("3g"));
    assert!(host.is_waiting(ticket));
    let placed = Mark {
        stage: Some(Stage::Placement),
        is_placed: true,
        ..moving
    };
    let record = say(&mut host, job, placed);
    assert_eq!(record.devices[0].device, uuid(2));
    assert_eq!(
        (record.residence.mark.target, record.residence.mark.holds_target),
        (None, false)
    );
    say(&mut host, job, Mark::default());
    assert!(!host.is_waiting(ticket), "the source is free");
}

#[test]
fn a_record_of_a_broker_before_is_a_job_that_is_here() {
    let mut host = Host::new(&[8]);
    let (job, _) = promised(&mut host);
    let record = say(&mut host, job, Mark::default());
    let mut text = serde_json::to_value(&record).expect("JSON");
    text.as_object_mut().expect("an object").remove("residence");
    let read: JobRecord = serde_json::from_value(text).expect("the layout before");
    assert_eq!(read, record);
    let moved = say(
        &mut host,
        job,
        Mark {
            target: Some(Target {
                slot: 0,
                device: uuid(1),
            }),
            on_target: vec![Process { pid: 7, start: 8 }],
            stage: Some(Stage::Restore),
            ..mark(Residence::Moving)
        },
    );
    let text = serde_json::to_string(&moved).expect("JSON");
    assert!(text.contains(r#""residence":"moving""#) && text.contains(r#""stage":"restore""#));
    let read: JobRecord = serde_json::from_str(&text).expect("its own layout");
    assert_eq!(read, moved);
}
