// SPDX-License-Identifier: Apache-2.0
//! A drained device: nothing is admitted there, and where each of its jobs may go.

use partage_policy::{DrainMark, Emptying, Event, Mark, Next, Place, Residence, Shortage, Target};
use partage_protocol::admin::RunRequest;
use partage_protocol::units::{GIB, JobId};

use crate::host::{Host, broker_view, mem, uuid};

fn on(gpu: &str, amount: &str) -> RunRequest {
    RunRequest {
        gpu: Some(gpu.into()),
        ..mem(amount)
    }
}

fn drain(host: &mut Host, device: u8, is_drained: bool) {
    let device = uuid(device);
    let mark = DrainMark {
        since_unix_ns: Some(1_795_213_560_000_000_000),
        uid: Some(1000),
    };
    let mark = is_drained.then_some(mark);
    host.step(Event::Drain { device, mark });
}

/// A job with half of its memory in use.
fn with_job(host: &mut Host, gpu: &str, gib: u64) -> JobId {
    let (job, first) = host.admitted(1, on(gpu, &format!("{gib}g")));
    let client = host.attach(job, first);
    assert!(host.allocate(client, 0, gib * GIB / 2));
    job
}

#[test]
fn nothing_is_admitted_on_a_drained_device_until_it_takes_jobs_again() {
    let mut host = Host::new(&[8, 8]);
    drain(&mut host, 1, true);
    let (ticket, _) = host.run(1, on("0", "1g"));
    assert!(host.is_waiting(ticket));
    let (auto, _) = host.admitted(1, mem("1g"));
    let record = host.records().into_iter().find(|record| record.id == auto.0);
    assert_eq!(record.expect("recorded").devices[0].device, uuid(2));
    drain(&mut host, 1, false);
    assert!(!host.is_waiting(ticket));
}

#[test]
fn its_jobs_go_where_there_is_room_the_emptiest_first() {
    let mut host = Host::new(&[16, 16, 16, 8]);
    let (job, other) = (with_job(&mut host, "0", 6), with_job(&mut host, "1", 4));
    drain(&mut host, 1, true);
    assert_eq!(host.policy.jobs_to_move(uuid(1), &host.board), [job]);
    assert_eq!(host.policy.jobs_to_move(uuid(2), &host.board), [other]);
    let place = |host: &Host| {
        let found = host.policy.place_to_move(job, uuid(1), &host.board);
        found
            .map(|exchange| exchange.target.device)
            .map_err(|error| error.view().message)
    };
    assert_eq!(place(&host), Ok(uuid(3)));
    with_job(&mut host, "2", 12);
    assert_eq!(place(&host), Ok(uuid(2)));
    with_job(&mut host, "1", 8);
    assert_eq!(
        place(&host),
        Err(
            "the job needs 6 GiB on GPU 1, which has 4 GiB left for it; the job needs 6 GiB on GPU 2, which has 4 GiB \
             left for it"
                .to_owned()
        )
    );
    drain(&mut host, 2, true);
    drain(&mut host, 3, true);
    assert_eq!(
        place(&host),
        Err("GPU 1 is drained too; GPU 2 is drained too".to_owned())
    );
}

/// What a job has already is the reason, and not what its other devices are.
#[test]
fn a_job_that_has_every_other_gpu_is_told_so() {
    let mut host = Host::new(&[8, 8, 4]);
    let (both, _) = host.admitted(1, on("0,1", "2g"));
    let (small, _) = host.admitted(1, on("2", "2g"));
    let why = |job, from| {
        let found = host.policy.place_to_move(job, uuid(from), &host.board);
        found.expect_err("there is none").view().message
    };
    assert_eq!(why(both, 1), format!("{both} has GPU 1 already"));
    assert_eq!(why(small, 3), "no other GPU here is like GPU 2");
}

#[test]
fn a_drained_device_says_so_in_its_state() {
    let mut host = Host::new(&[8, 8]);
    let state = |host: &Host| {
        let status = host.policy.status(broker_view(), host.now_ns, &host.board);
        status.devices[0].state.clone()
    };
    let (_, first) = host.admitted(1, on("0", "2g"));
    assert_eq!(state(&host), "ok");
    drain(&mut host, 1, true);
    assert_eq!(state(&host), "draining");
    host.step(Event::ProcessGone(first));
    assert_eq!(state(&host), "drained");
    drain(&mut host, 1, false);
    assert_eq!(state(&host), "ok");
}

#[test]
fn the_next_broker_knows_it_and_no_job_comes_back_there() {
    let mut host = Host::new(&[8]);
    let job = with_job(&mut host, "0", 4);
    drain(&mut host, 1, true);
    let text = "GPU 0 is drained: partage undrain 0 lets jobs on it again".to_owned();
    let room = |host: &Host| host.policy.ask_room(job, Place::Source, None, &host.board);
    assert_eq!(room(&host), Err(Shortage::Drained(text)));
    assert_eq!(host.policy.drained().keys().copied().collect::<Vec<_>>(), [uuid(1)]);
    drain(&mut host, 1, false);
    assert_eq!(room(&host), Ok(()));
}

#[test]
fn a_job_that_has_room_there_for_its_arrival_is_to_leave_again() {
    let mut host = Host::new(&[8, 8]);
    let job = with_job(&mut host, "0", 4);
    let mut mark = Mark {
        residence: Residence::Moving,
        target: Some(Target {
            slot: 0,
            device: uuid(2),
        }),
        ..Mark::default()
    };
    for holds_target in [false, true] {
        mark.holds_target = holds_target;
        let mark = Box::new(mark.clone());
        host.step(Event::Residence { job, mark });
        let to_move = host.policy.jobs_to_move(uuid(2), &host.board);
        assert_eq!(to_move.contains(&job), holds_target);
    }
}

const A: JobId = JobId(1);
const B: JobId = JobId(2);
const C: JobId = JobId(3);

/// Three jobs, of which the first is on its way.
fn emptying() -> Emptying {
    let mut emptying = Emptying::default();
    emptying.begin(&[A, B, C]);
    assert_eq!(emptying.next_thing(), Next::Look(A));
    emptying.goes(A);
    assert_eq!(emptying.next_thing(), Next::Wait);
    emptying
}

fn arrives(emptying: &mut Emptying, job: JobId) {
    assert!(emptying.is_over(job));
    emptying.moved(job, uuid(2));
}

fn result(emptying: Emptying) -> (Vec<JobId>, Vec<(JobId, String)>) {
    let (moved, staying) = emptying.into_result();
    let moved = moved.into_iter().map(|(job, _)| job);
    let staying = staying.into_iter().map(|stay| (stay.job, stay.why));
    (moved.collect(), staying.collect())
}

#[test]
fn jobs_leave_one_after_the_other() {
    let mut emptying = emptying();
    assert!(!emptying.is_over(B));
    assert_eq!(emptying.next_thing(), Next::Wait);
    arrives(&mut emptying, A);
    assert_eq!(emptying.next_thing(), Next::Look(B));
    emptying.stays(B, "tied".to_owned(), None);
    assert_eq!(emptying.next_thing(), Next::Look(C));
    emptying.goes(C);
    arrives(&mut emptying, C);
    assert_eq!(emptying.next_thing(), Next::Over);
    assert_eq!(result(emptying), (vec![A, C], vec![(B, "tied".to_owned())]));
}

#[test]
fn of_a_drain_that_is_called_off_every_job_left_is_named() {
    let mut emptying = emptying();
    emptying.call_off();
    assert_eq!(emptying.next_thing(), Next::Wait);
    arrives(&mut emptying, A);
    assert_eq!(emptying.next_thing(), Next::Over);
    let why = "partage undrain came before its turn".to_owned();
    assert_eq!(result(emptying), (vec![A], vec![(B, why.clone()), (C, why)]));
}

#[test]
fn a_drain_after_an_undrain_tries_every_job_but_the_one_on_its_way() {
    let mut emptying = emptying();
    emptying.call_off();
    emptying.begin(&[A, B, C]);
    assert_eq!(emptying.next_thing(), Next::Wait);
    arrives(&mut emptying, A);
    for job in [B, C] {
        assert_eq!(emptying.next_thing(), Next::Look(job));
        emptying.goes(job);
        arrives(&mut emptying, job);
    }
    assert_eq!(emptying.next_thing(), Next::Over);
    assert_eq!(result(emptying), (vec![A, B, C], vec![]));
}

#[test]
fn a_job_that_came_back_is_named_by_what_became_of_it_last() {
    let mut emptying = emptying();
    arrives(&mut emptying, A);
    emptying.begin(&[A]);
    assert_eq!(emptying.next_thing(), Next::Look(A));
    emptying.stays(A, "tied".to_owned(), None);
    assert_eq!(emptying.next_thing(), Next::Over);
    assert_eq!(result(emptying), (vec![], vec![(A, "tied".to_owned())]));
}

#[test]
fn a_job_on_its_way_there_leaves_once_it_has_arrived() {
    for is_there in [true, false] {
        let mut emptying = Emptying::default();
        emptying.begin(&[A]);
        assert_eq!(emptying.next_thing(), Next::Look(A));
        emptying.awaits(A);
        emptying.begin(&[A]);
        assert_eq!(emptying.next_thing(), Next::Wait);
        assert!(!emptying.arrived(B, true));
        assert!(emptying.arrived(A, is_there));
        let next = if is_there { Next::Look(A) } else { Next::Over };
        assert_eq!(emptying.next_thing(), next);
    }
    let mut emptying = Emptying::default();
    emptying.awaits(A);
    emptying.call_off();
    assert_eq!(emptying.next_thing(), Next::Over);
    assert!(!emptying.arrived(A, true));
    assert_eq!(result(emptying).1.len(), 1);
}
