// SPDX-License-Identifier: Apache-2.0
//! What slows a job down where nothing holds it back at the moment.

use crate::host::{Host, caller};
use crate::measured_time::{cause, measured, named, slow, ten_seconds, time_of, two_jobs};
use partage_policy::{Cause, Event, JobTime, Process, TargetQuery, TimeState};
use partage_protocol::admin::Reply;
use partage_protocol::units::{GIB, SECOND_NS};

#[test]
fn a_neighbour_is_named_without_any_wait_where_the_device_itself_divides_its_time() {
    let (mut host, first, second) = two_jobs();
    let stuck = JobTime {
        is_not_draining: true,
        ..measured(second)
    };
    host.step(Event::Time(vec![measured(first), measured(second)]));
    assert_eq!(cause(&host, first), named("neighbour", &["j2"]));
    assert!(slow(&host, 1, first).starts_with("GPU 0: it shares the device with j2 (bob): its share is 50.0 %"));
    host.step(Event::Time(vec![measured(first), stuck]));
    let text = slow(&host, 1, first);
    assert!(
        text.starts_with("GPU 0: the work of j2 (bob) does not end") && text.ends_with("partage stop j2"),
        "{text}"
    );
    assert_eq!(cause(&host, second), named("not-draining", &[]));
}

#[test]
fn a_device_that_a_job_does_not_use_is_not_worth_a_sentence() {
    let (mut host, first, _) = two_jobs();
    let unused = JobTime {
        got_1s_ppm: 0,
        got_60s_ppm: 0,
        state: TimeState::Idle,
        unit_ns: 0,
        ..measured(first)
    };
    ten_seconds(&mut host, unused, 0);
    let target = TargetQuery {
        text: first.to_string(),
        descends_from: None,
    };
    let Ok(Reply::Why(why)) = host.policy.why(&caller(1), &target, host.now_ns, &host.board) else {
        panic!("it answers")
    };
    assert_eq!(
        why.sentences[0],
        "j1 runs within its limits, and nothing was denied to it"
    );
    assert!(
        !why.sentences.iter().any(|text| text.contains("last second")),
        "{:#?}",
        why.sentences
    );
}

#[test]
fn a_neighbour_with_work_from_before_it_was_measured_is_seen_by_nvml_alone() {
    let (mut host, first, second) = two_jobs();
    let pids: Vec<u32> = [first, second]
        .map(|job| {
            let view = host.policy.job_view(job, &caller(0), &host.board).expect("known");
            let start = u64::from(view.pid);
            let client = host.attach(job, Process { pid: view.pid, start });
            assert!(host.allocate(client, 0, GIB));
            view.pid
        })
        .to_vec();
    let alone = JobTime {
        asked_ppm: 1_000_000,
        got_1s_ppm: 1_000_000,
        got_60s_ppm: 1_000_000,
        ..measured(first)
    };
    let unseen = JobTime {
        got_1s_ppm: 0,
        got_60s_ppm: 0,
        state: TimeState::Idle,
        ..measured(second)
    };
    host.step(Event::Time(vec![alone, unseen]));
    host.measure();
    assert_eq!(cause(&host, first), named("none", &[]), "NVML does not say");
    host.busy.extend([(pids[0], 990_000), (pids[1], 0)]);
    host.measure();
    assert_eq!(cause(&host, first), named("none", &[]));
    host.busy.extend([(pids[0], 500_000), (pids[1], 490_000)]);
    host.measure();
    assert_eq!(cause(&host, first), named("neighbour", &["j2"]));
    assert_eq!(
        slow(&host, 1, first),
        "GPU 0: j2 (bob) has work there from before this job came that has not ended, and NVML shows the device at \
         work for it for 49 % of the last second: the device itself divides its time; where that does not end, its \
         owner ends it with: partage stop j2"
    );
}

#[test]
fn a_cap_that_binds_is_named_although_a_neighbour_had_the_device() {
    let (mut host, first, second) = two_jobs();
    assert!(matches!(
        host.set_terms(caller(1), &first.to_string(), &[("compute-max", "20%")]),
        Reply::Job(_)
    ));
    let time = JobTime {
        asked_ppm: 200_000,
        got_1s_ppm: 199_000,
        got_60s_ppm: 199_500,
        waits_for: Cause::Neighbour(second),
        ..measured(first)
    };
    ten_seconds(&mut host, time, 7 * SECOND_NS);
    assert_eq!(cause(&host, first), named("cap", &[]));
    // It does not bind who has less than it, nor whose share is less.
    for (asked_ppm, got_60s_ppm) in [(200_000, 150_000), (150_000, 150_000)] {
        let time = JobTime {
            asked_ppm,
            got_60s_ppm,
            ..time
        };
        ten_seconds(&mut host, time, 17 * SECOND_NS);
        assert_eq!(
            cause(&host, first),
            named("neighbour", &[&second.to_string()]),
            "{asked_ppm}"
        );
    }
}

#[test]
fn points_that_nobody_had_are_switching_and_idle() {
    let (mut host, first, second) = two_jobs();
    let text = |host: &Host| -> Option<String> {
        let target = TargetQuery {
            text: first.to_string(),
            descends_from: None,
        };
        let Ok(Reply::Why(why)) = host.policy.why(&caller(1), &target, host.now_ns, &host.board) else {
            panic!("it answers")
        };
        let is_named = why.causes.iter().any(|found| found.cause == "switching-and-idle");
        let text = why
            .sentences
            .into_iter()
            .find(|text| text.contains("switching and idle"));
        assert_eq!(is_named, text.is_some());
        text
    };
    let low = JobTime {
        asked_ppm: 300_000,
        got_60s_ppm: 276_000,
        ..measured(first)
    };
    let other = JobTime {
        asked_ppm: 700_000,
        got_60s_ppm: 671_000,
        ..measured(second)
    };
    host.step(Event::Time(vec![low, other]));
    assert_eq!(
        text(&host).as_deref(),
        Some(
            "GPU 0: switching and idle: its jobs had 94.7 % of the last minute together; 5.3 % went to passing the \
             device from one to another and to idle moments between, which is missing in every share (this job: 27.6 \
             % of 30.0 %)"
        )
    );
    // Somebody had it, it wanted less, or it has what it may have.
    let had = JobTime {
        got_60s_ppm: 722_000,
        ..other
    };
    let seldom = JobTime {
        wanted_60s_ppm: 800_000,
        ..low
    };
    let enough = JobTime {
        got_60s_ppm: 295_000,
        ..low
    };
    for times in [[low, had], [seldom, other], [enough, other]] {
        host.step(Event::Time(times.to_vec()));
        assert_eq!(text(&host), None, "{times:?}");
    }
    // What was asked is the promise, and what it may have now another thing.
    assert!(matches!(
        host.set_terms(caller(1), &first.to_string(), &[("compute", "25%")]),
        Reply::Job(_)
    ));
    let time = time_of(&host, first).expect("measured");
    assert_eq!((time.asked, time.share), (0.25, 0.3));
    assert_eq!(time_of(&host, second).expect("measured").asked, 0.0);
}
