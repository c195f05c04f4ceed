// SPDX-License-Identifier: Apache-2.0
//! Which device a job may move to: how it is named, what it must be, and room there.

use partage_policy::{Event, Exchange, Intent, Mark, Residence, Target, obstacles};
use partage_protocol::admin::ErrorCode;
use partage_protocol::units::{GIB, JobId, SECOND_NS};

use crate::host::{Host, mem, uuid};
use crate::residence_eligibility::fine;

/// A job of 6 GiB on GPU 0, with 4 in use.
fn with_job(host: &mut Host) -> JobId {
    let (job, first) = host.admitted(1, mem("6g"));
    let client = host.attach(job, first);
    assert!(host.allocate(client, 0, 4 * GIB));
    job
}

fn to(device: u8) -> Exchange {
    Exchange {
        from: uuid(1),
        target: Target {
            slot: 0,
            device: uuid(device),
        },
    }
}

#[test]
fn a_target_is_named_by_index_or_uuid_and_is_another_of_the_same_kind() {
    let mut host = Host::new(&[8, 8, 16, 8]);
    host.devices[3].model = "H100".into();
    host.enumerate();
    let job = with_job(&mut host);
    assert_eq!(host.policy.exchange(job, None, "1"), Ok(to(2)));
    let name = uuid(2).to_string();
    assert_eq!(host.policy.exchange(job, Some("0"), &name), Ok(to(2)));
    let said = |from: Option<&str>, to: &str| {
        let error = host.policy.exchange(job, from, to).expect_err("refused").view();
        (error.code, error.message)
    };
    assert_eq!(
        said(None, "first"),
        (ErrorCode::Invalid, "\"first\" is no GPU".to_owned())
    );
    assert_eq!(said(None, "9").0, ErrorCode::NoDevice);
    assert_eq!(said(Some("1"), "2").1, format!("{job} is not on GPU 1, but on GPU 0"));
    let against = |device: u8| {
        let intent = host.policy.move_intent(job, to(device));
        let found = obstacles(&intent, &fine());
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert!(against(2).is_empty());
    assert_eq!(against(1), ["the job has that GPU already"]);
    assert_eq!(against(3), ["the job's GPU has 8 GiB in all, and that one 16 GiB"]);
    assert_eq!(against(4), ["a job on a H200 cannot go on on a H100"]);
    assert!(matches!(
        host.policy.move_intent(job, to(2)),
        Intent::Move { mig: None, .. }
    ));
}

#[test]
fn of_a_job_with_several_devices_the_one_that_it_leaves_is_named() {
    let mut host = Host::new(&[8, 8, 8]);
    let request = partage_protocol::admin::RunRequest {
        gpu: Some("0,1".into()),
        ..mem("2g")
    };
    let (job, _) = host.admitted(1, request);
    let error = host.policy.exchange(job, None, "2").expect_err("which?").view();
    assert_eq!(error.message, format!("{job} has several GPUs: GPU 0, GPU 1"));
    let exchange = host.policy.exchange(job, Some("1"), "2").expect("named");
    assert_eq!(
        (exchange.from, exchange.target.slot, exchange.target.device),
        (uuid(2), 1, uuid(3))
    );
    let intent = host
        .policy
        .move_intent(job, host.policy.exchange(job, Some("1"), "0").expect("named"));
    assert!(
        matches!(intent, Intent::Move { is_own: true, .. }),
        "it has GPU 0 already"
    );
}

#[test]
fn room_at_the_target_is_asked_for_with_who_holds_it_and_what_lingers_gives_way() {
    let mut host = Host::new(&[8, 8]);
    let job = with_job(&mut host);
    let request = partage_protocol::admin::RunRequest {
        gpu: Some("1".into()),
        ..mem("5g")
    };
    let (other, first) = host.admitted(2, request);
    let error = host
        .policy
        .room_to_move(job, to(2), &host.board)
        .expect_err("no room")
        .view();
    assert_eq!(
        error.message,
        format!("{job} stays on GPU 0: the job needs 6 GiB on GPU 1, which has 3 GiB left for it")
    );
    assert!(
        error.holders.iter().any(|holder| holder.who == other.to_string()),
        "{error:?}"
    );
    // Of the other one nothing runs any more: what it holds is whose who needs it.
    host.step(Event::ProcessGone(first));
    host.pass(SECOND_NS);
    let shortage = host
        .policy
        .ask_room(job, partage_policy::Place::Target, Some(to(2).target), &host.board);
    assert!(shortage.is_err(), "it lingers");
    assert_eq!(host.policy.room_to_move(job, to(2), &host.board), Ok(()));
    host.step(Event::MakeRoom(uuid(2)));
    let room = host
        .policy
        .ask_room(job, partage_policy::Place::Target, Some(to(2).target), &host.board);
    assert!(room.is_ok());
    let view = host.policy.move_view(job, to(2), &host.board);
    assert_eq!(
        (view.bytes, view.from_index, view.to_index),
        (4 * GIB, Some(0), Some(1))
    );
    assert!(
        view.pause_ns > SECOND_NS && !view.is_measured && view.steps.len() > 8,
        "{view:?}"
    );
}

#[test]
fn a_job_has_moved_once_its_record_says_so() {
    let mut host = Host::new(&[8, 8]);
    let job = with_job(&mut host);
    assert!(!host.policy.has_moved(job, to(2)));
    let placed = Mark {
        residence: Residence::Moving,
        target: Some(to(2).target),
        holds_target: true,
        is_placed: true,
        ..Mark::default()
    };
    let mark = Box::new(placed);
    host.step(Event::Residence { job, mark });
    assert!(host.policy.has_moved(job, to(2)));
    let shown = host.policy.devices_of(job);
    assert_eq!((shown[0].uuid, shown[0].index), (uuid(2).bytes, 1));
}
