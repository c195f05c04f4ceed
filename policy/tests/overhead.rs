// SPDX-License-Identifier: Apache-2.0
//! Overhead: measured when a client is quiet, announced before a context is made, counted like a lowered limit.

use crate::host::{FINISHED, Host, MANAGED, STARTED, USED, broker_view, caller, mem, uuid, verdict_of};
use partage_policy::{Action, Event, Measurement, Process, ProcessUse, UNAUDITED_NS};
use partage_protocol::admin::{JobDeviceView, JobView};
use partage_protocol::message::{MEASURE_AFTER, MEASURE_BEFORE, VERDICT_GRANTED};
use partage_protocol::units::{ClientId, GIB, JobId, MIB, SECOND_NS};

pub const CONTEXT: u64 = 512 * MIB;

pub fn child(pid: u32) -> Process {
    Process { pid, start: 1 }
}

/// A job of 8 GiB with two processes on a device of 16 GiB.
pub fn pair() -> (Host, JobId, ClientId, ClientId) {
    let mut host = Host::new(&[16]);
    let (job, process) = host.admitted(1, mem("8GiB"));
    let first = host.attach(job, process);
    let second = host.attach(job, child(11));
    (host, job, first, second)
}

pub fn view(host: &Host, job: JobId) -> JobView {
    host.policy.job_view(job, &caller(1), &host.board).expect("known")
}

/// What `why` says to the owner.
pub fn why(host: &Host, job: JobId) -> String {
    let target = partage_policy::TargetQuery {
        text: job.to_string(),
        descends_from: None,
    };
    match host.policy.why(&caller(0), &target, host.now_ns, &host.board) {
        Ok(partage_protocol::admin::Reply::Why(why)) => why.sentences.join("\n"),
        other => panic!("{other:?}"),
    }
}

pub fn device(host: &Host, job: JobId) -> JobDeviceView {
    view(host, job).devices.remove(0)
}

#[test]
fn a_quiet_reading_makes_the_jobs_use_what_nvml_shows() {
    let (mut host, job, first, second) = pair();
    assert!(host.allocate(first, 0, GIB) && host.allocate(second, 0, GIB));
    host.change_beyond(first, 0, |_| CONTEXT);
    host.change_beyond(second, 0, |_| CONTEXT + 5);
    host.measure();
    let shown = device(&host, job);
    assert_eq!(shown.used_bytes, 2 * GIB + 2 * CONTEXT + 5);
    assert_eq!(shown.overhead_bytes, 2 * CONTEXT + 5);
    let clients = view(&host, job).clients;
    assert_eq!(
        (clients[0].used_bytes[0], clients[0].overhead_bytes[0]),
        (GIB + CONTEXT, CONTEXT)
    );
    // What it takes is not there for allocations, to the byte, and comes back when it goes.
    let rest = 6 * GIB - 2 * CONTEXT - 5;
    assert!(!host.allocate(first, 0, rest + 1) && host.allocate(first, 0, rest));
    assert!(!host.allocate(second, 0, 1));
    host.change_beyond(second, 0, |_| CONTEXT);
    host.measure();
    assert!(!host.allocate(second, 0, 6) && host.allocate(second, 0, 5));
}

#[test]
fn managed_memory_is_charged_in_full_and_is_no_negative_overhead() {
    let (mut host, job, first, _) = pair();
    assert!(host.allocate(first, 0, 3 * GIB));
    host.board.set(first, 0, MANAGED, 2 * GIB);
    host.change_beyond(first, 0, |_| CONTEXT);
    host.measure();
    let shown = device(&host, job);
    assert_eq!((shown.used_bytes, shown.managed_bytes), (3 * GIB + CONTEXT, 2 * GIB));
    assert_eq!(shown.overhead_bytes, CONTEXT);
    let status = host.policy.status(broker_view(), host.now_ns, &host.board);
    assert_eq!(status.devices[0].unmanaged_bytes, 0);
}

#[test]
fn a_process_is_not_counted_twice() {
    // Limit and promise 8 GiB: a job that uses 6 with its context commits 8, and the other 8 can be promised.
    let (mut host, _, first, _) = pair();
    assert!(host.allocate(first, 0, 5 * GIB) && host.make_context(first, 0, GIB));
    host.measure();
    host.admitted(2, mem("8GiB"));
    let status = host.policy.status(broker_view(), host.now_ns, &host.board);
    assert_eq!(
        (status.devices[0].committed_bytes, status.devices[0].unmanaged_bytes),
        (16 * GIB, 0)
    );
}

#[test]
fn overhead_that_leaves_no_room_freezes_growth_and_kills_nothing() {
    let (mut host, job, first, second) = pair();
    assert!(host.allocate(first, 0, 5 * GIB) && host.allocate(second, 0, 3 * GIB));
    host.is_excused = true;
    host.change_beyond(first, 0, |_| CONTEXT);
    host.measure();
    assert_eq!(view(&host, job).state, "over limit");
    assert!(!host.allocate(first, 0, 1));
    host.free(second, 0, CONTEXT);
    assert!(!host.allocate(second, 0, 1), "what it freed pays for the context");
    host.free(second, 0, MIB);
    assert!(host.allocate(first, 0, MIB));
    assert_eq!(view(&host, job).state, "running");
}

#[test]
fn a_client_in_the_middle_of_an_operation_is_not_judged() {
    let (mut host, job, first, _) = pair();
    assert!(host.allocate(first, 0, GIB));
    host.change_beyond(first, 0, |_| CONTEXT);
    host.measure();
    host.change_beyond(first, 0, |_| 2 * CONTEXT);
    // Between charge and driver call; then one that came and went while the device was looked at.
    host.board.set(first, 0, STARTED, 1);
    host.measure();
    assert_eq!(host.overhead(first, 0), CONTEXT);
    host.step(Event::Asking(uuid(1)));
    host.board.set(first, 0, FINISHED, 1);
    host.answer_look(uuid(1));
    assert_eq!(host.overhead(first, 0), CONTEXT);
    // Nobody said what it charged when the look began.
    host.answer_look(uuid(1));
    assert_eq!(host.overhead(first, 0), CONTEXT);
    host.measure();
    assert_eq!(host.overhead(first, 0), 2 * CONTEXT);
    assert!(view(&host, job).notes.is_empty());
}

#[test]
fn a_client_that_is_never_quiet_is_shown_and_charged_with_what_every_look_shows() {
    let (mut host, job, first, _) = pair();
    host.board.set(first, 0, STARTED, 1);
    host.change_beyond(first, 0, |_| 3 * GIB);
    host.measure();
    host.pass(UNAUDITED_NS / 2);
    host.change_beyond(first, 0, |_| 2 * GIB);
    host.measure();
    assert!(host.overhead(first, 0) == 0 && view(&host, job).notes.is_empty());
    host.change_beyond(first, 0, |_| 4 * GIB);
    host.pass(UNAUDITED_NS);
    host.measure();
    assert!(
        view(&host, job).notes[0].contains("unaudited"),
        "{:?}",
        view(&host, job).notes
    );
    assert_eq!(host.overhead(first, 0), 2 * GIB, "the least that it can be");
    host.board.set(first, 0, FINISHED, 1);
    host.measure();
    assert_eq!(host.overhead(first, 0), 4 * GIB);
    assert!(view(&host, job).notes.is_empty());
}

#[test]
fn whatever_a_client_writes_the_total_is_at_least_what_nvml_shows() {
    let (mut host, job, first, _) = pair();
    assert!(host.allocate(first, 0, 3 * GIB));
    let truth = 3 * GIB + CONTEXT;
    let tell = |host: &mut Host, used, managed| {
        let (asking, bytes) = (Event::Asking(uuid(1)), Some(truth));
        host.board.set(first, 0, USED, used);
        host.board.set(first, 0, MANAGED, managed);
        host.step(asking);
        let pid = host.programs[&first].process.pid;
        let process = ProcessUse {
            pid,
            uid: None,
            other_broker: None,
            bytes,
            descends_from: None,
            start: None,
            is_graphics_only: false,
            busy_ppm: None,
        };
        let free_bytes = 16 * GIB - truth;
        let measured = Measurement {
            device: uuid(1),
            used_bytes: truth,
            free_bytes,
            processes: vec![process],
            telemetry: partage_policy::Telemetry::default(),
        };
        host.step(Event::Measured(measured));
        device(host, job).used_bytes
    };
    assert_eq!(tell(&mut host, 3 * GIB, 0), truth);
    assert_eq!(tell(&mut host, 0, 0), truth, "denies all");
    assert!(tell(&mut host, 3 * GIB, u64::MAX) >= truth, "all of it managed");
    host.is_excused = true;
    for used in [u64::MAX, 1 << 63, 100 * GIB] {
        let shown = tell(&mut host, used, 0);
        assert!((truth..=8 * GIB).contains(&shown), "{shown}: counted up to its grant");
    }
}

#[test]
fn a_driver_without_figures_per_process_is_said_to_measure_nothing() {
    let (mut host, job, first, _) = pair();
    assert!(host.allocate(first, 0, GIB));
    let silent = |host: &mut Host| {
        host.step(Event::Asking(uuid(1)));
        let pid = host.programs[&first].process.pid;
        let process = ProcessUse {
            pid,
            uid: None,
            other_broker: None,
            bytes: None,
            descends_from: None,
            start: None,
            is_graphics_only: false,
            busy_ppm: None,
        };
        let (used_bytes, free_bytes) = (2 * GIB, 14 * GIB);
        host.step(Event::Measured(Measurement {
            device: uuid(1),
            used_bytes,
            free_bytes,
            processes: vec![process],
            telemetry: partage_policy::Telemetry::default(),
        }))
    };
    silent(&mut host);
    assert_eq!(device(&host, job).used_bytes, GIB);
    assert!(
        view(&host, job).notes[0].contains("not measured"),
        "{:?}",
        view(&host, job).notes
    );
    assert_eq!(host.say_measure(first, 0, MEASURE_BEFORE), Some(VERDICT_GRANTED));
    assert_eq!(host.say_measure(first, 0, MEASURE_AFTER), None);
    assert_eq!(verdict_of(&silent(&mut host), 6), Some(VERDICT_GRANTED));
}

#[test]
fn overhead_survives_the_broker_and_goes_with_its_process() {
    let (mut host, job, first, second) = pair();
    assert!(host.make_context(first, 0, CONTEXT) && host.make_context(second, 0, CONTEXT));
    assert!(host.allocate(second, 0, GIB));
    let processes = [first, second].map(|client| host.programs[&client].process);
    let records = host.records();
    host.restart(records);
    assert_eq!(device(&host, job).overhead_bytes, 2 * CONTEXT);
    host.board.lost.clear();
    for (client, process) in [first, second].into_iter().zip(processes) {
        let said = host.step(Event::Reattach {
            client,
            process,
            are_pages_lost: false,
        });
        let overheads = vec![CONTEXT];
        assert!(said.iter().any(|said| *said
            == Action::ShowOverheads {
                client,
                overheads: overheads.clone()
            }));
    }
    host.pass(SECOND_NS);
    host.measure();
    assert!(!host.allocate(first, 0, 6 * GIB + 1) && host.allocate(first, 0, 6 * GIB));
    host.kill(second);
    assert_eq!(device(&host, job).used_bytes, 6 * GIB + CONTEXT);
    assert!(host.allocate(first, 0, 2 * GIB - CONTEXT));
}

#[test]
fn one_users_contexts_do_not_make_anothers_expensive() {
    let mut host = Host::new(&[64]);
    let (liar, process) = host.admitted(2, mem("32GiB"));
    let client = host.attach_as(
        process,
        2,
        partage_policy::Membership {
            by_kernel: Some(liar),
            ..Default::default()
        },
    );
    assert!(host.make_context(client.expect("welcomed"), 0, 30 * GIB));
    let (job, process) = host.admitted(1, mem("8GiB"));
    let honest = host.attach(job, process);
    assert!(host.make_context(honest, 0, CONTEXT));
}

#[test]
fn a_program_that_replaced_itself_leaves_no_overhead_to_its_successor() {
    let (mut host, job, first, _) = pair();
    assert!(host.allocate(first, 0, GIB) && host.make_context(first, 0, CONTEXT));
    let process = host.programs[&first].process;
    let after = host.attach(job, process);
    assert!(!host.programs.contains_key(&first));
    assert_eq!(device(&host, job).used_bytes, 0);
    host.measure();
    assert_eq!(device(&host, job).used_bytes, 0);
    assert!(host.make_context(after, 0, 2 * CONTEXT));
    assert_eq!(device(&host, job).used_bytes, 2 * CONTEXT);
}

#[test]
fn a_client_whose_pages_are_lost_keeps_its_overhead_and_its_grant() {
    let (mut host, job, first, second) = pair();
    assert!(host.allocate(first, 0, GIB) && host.make_context(first, 0, CONTEXT));
    let (process, sibling) = (host.programs[&first].process, host.programs[&second].process);
    let granted = host.board.value(first, 0, 0);
    let records = host.records();
    host.restart(records);
    host.board.lost = vec![first];
    for (client, process, are_pages_lost) in [(first, process, true), (second, sibling, false)] {
        host.step(Event::Reattach {
            client,
            process,
            are_pages_lost,
        });
    }
    host.measure();
    assert_eq!(device(&host, job).used_bytes, granted + CONTEXT);
    assert!(!host.allocate(second, 0, 8 * GIB - granted - CONTEXT + 1));
    assert!(host.allocate(second, 0, 8 * GIB - granted - CONTEXT));
}

#[test]
fn a_client_that_cannot_die_keeps_overhead_and_charge_until_it_is_gone() {
    let (mut host, job, first, second) = pair();
    assert!(host.allocate(first, 0, 5 * GIB) && host.make_context(first, 0, CONTEXT));
    host.step(Event::ClientDying(first));
    // What NVML still shows of it may fall in parts; nobody gets any of it before all is gone.
    host.change_beyond(first, 0, |_| 0);
    host.measure();
    assert_eq!(device(&host, job).used_bytes, 5 * GIB + CONTEXT);
    let more = 3 * GIB - CONTEXT + 1;
    assert_eq!(host.say_ask(second, 0, more, more), None, "it waits for that");
    let (ticket, _) = host.run(2, mem("9GiB"));
    assert!(host.is_waiting(ticket));
    host.kill(first);
    assert!(host.allocate(second, 0, 8 * GIB));
}

#[test]
fn a_limit_that_holds_no_context_is_refused_with_the_number_once_it_is_known() {
    let mut host = Host::new(&[16]);
    let small = || mem("100MiB");
    let (first, process) = host.admitted(1, small());
    host.finish(first, process);
    let (job, process) = host.admitted(1, mem("2GiB"));
    let client = host.attach(job, process);
    assert!(host.make_context(client, 0, 300 << 20));
    let (ticket, _) = host.run(1, small());
    let error = host.error_of(ticket);
    assert_eq!(
        (error.message.as_str(), error.hint.as_deref()),
        (
            "the limit of 100 MiB is below what a CUDA context alone takes on GPU 0: 300 MiB",
            Some("ask for more: --mem 512MiB")
        )
    );
    // Another user's contexts are nobody else's measure, and more is let in.
    host.admitted(2, small());
    host.admitted(1, mem("512MiB"));
}
